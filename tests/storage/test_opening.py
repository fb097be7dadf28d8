"""Opening: what is ours is opened as it should be, what is not is left as it was."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from storage.errors import NotADatabase, SchemaTooNew, StoreUnavailable, UnitRefused
from storage.sqlite import ownership
from storage.sqlite.errors import classify, refused, unavailable
from storage.sqlite.opening import (
    APPLICATION_ID,
    BUSY_MS,
    SCHEMA_VERSION,
    WAL_BYTES_KEPT,
    WAL_PAGES,
    Durability,
    configure_writer,
    open_reader,
    open_writer,
    schema_script,
)
from tests.storage.connections import SCHEMA, a_database, assert_nobody_holds_the_write_lock, sqlite_error

Opener = Callable[[Path], sqlite3.Connection]


def open_with_schema(path: Path) -> sqlite3.Connection:
    return open_writer(path, schema=SCHEMA)


OPENERS = [open_with_schema, open_reader]


def pragma(raw: sqlite3.Connection, name: str) -> object:
    return raw.execute(f"PRAGMA {name}").fetchone()[0]


def everything_in(directory: Path) -> dict[str, bytes]:
    """All files but the WAL's index, which holds nothing of the database's and which readers may rebuild."""
    return {file.name: file.read_bytes() for file in directory.iterdir() if not file.name.endswith("-shm")}


def a_foreign_database(path: Path, *, application_id: int = 0, version: int = 0, wal: bool = False) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        if wal:
            raw.execute("PRAGMA journal_mode = WAL")
        raw.execute(f"PRAGMA application_id = {application_id}")
        raw.execute(f"PRAGMA user_version = {version}")
        raw.execute("CREATE TABLE theirs (a)")


# creating


def test_a_new_database_is_created_with_its_schema_and_its_marks(tmp_path: Path) -> None:
    with closing(open_writer(tmp_path / "new.db", schema=SCHEMA)) as raw:
        assert pragma(raw, "application_id") == APPLICATION_ID
        assert pragma(raw, "user_version") == SCHEMA_VERSION
        assert raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall() == [("t",)]
        assert not raw.in_transaction


def test_an_existing_database_is_opened_with_its_rows_and_not_created_again(tmp_path: Path) -> None:
    path = a_database(tmp_path)
    with closing(open_writer(path, schema=SCHEMA)) as raw:
        raw.execute("INSERT INTO t VALUES (1)")
    with closing(open_writer(path, schema="this is not SQL")) as raw:
        assert raw.execute("SELECT a FROM t").fetchall() == [(1,)]


def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    (tmp_path / "test.db").touch()
    path = a_database(tmp_path)
    assert path.stat().st_size > 0


def test_a_schema_that_fails_half_way_leaves_an_empty_database_that_the_next_opening_fills(
    tmp_path: Path,
) -> None:
    path = tmp_path / "test.db"
    with pytest.raises(sqlite3.OperationalError):
        open_writer(path, schema="CREATE TABLE half (a); CREATE TABLE half (a);")
    assert_nobody_holds_the_write_lock(path)
    with closing(open_writer(path, schema=SCHEMA)) as raw:
        assert raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall() == [("t",)]


def test_the_schema_of_this_version_comes_with_the_package(tmp_path: Path) -> None:
    assert "CREATE TABLE" in schema_script()
    with closing(open_writer(tmp_path / "real.db")) as raw:
        assert pragma(raw, "user_version") == SCHEMA_VERSION
        assert raw.execute("SELECT count(*) FROM sqlite_schema").fetchone() > (0,)


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_database_wal_and_index_are_private_to_their_user_whatever_the_umask(
    tmp_path: Path, umask: int
) -> None:
    before = os.umask(umask)
    try:
        with closing(open_writer(tmp_path / "private.db", schema=SCHEMA)) as raw:
            raw.execute("INSERT INTO t VALUES (1)")
            modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert modes == {"private.db": 0o600, "private.db-wal": 0o600, "private.db-shm": 0o600}


def test_a_name_that_means_something_in_a_uri_is_only_a_name(tmp_path: Path) -> None:
    path = tmp_path / "odd ?mode=memory#%41.db"
    open_writer(path, schema=SCHEMA).close()
    assert path.stat().st_size > 0


# how a connection is set up


@pytest.mark.parametrize(("durability", "synchronous"), [("full", 2), ("normal", 1)])
def test_the_writer_is_set_up_for_the_durability_that_was_asked_for(
    tmp_path: Path, durability: Durability, synchronous: int
) -> None:
    with closing(open_writer(tmp_path / "test.db", durability=durability, schema=SCHEMA)) as raw:
        assert raw.isolation_level is None
        assert pragma(raw, "journal_mode") == "wal"
        assert pragma(raw, "synchronous") == synchronous
        assert pragma(raw, "foreign_keys") == 1
        assert pragma(raw, "busy_timeout") == BUSY_MS
        assert pragma(raw, "journal_size_limit") == WAL_BYTES_KEPT
        assert pragma(raw, "wal_autocheckpoint") == WAL_PAGES


def test_full_durability_is_the_default(tmp_path: Path) -> None:
    with closing(open_writer(tmp_path / "test.db", schema=SCHEMA)) as raw:
        assert pragma(raw, "synchronous") == 2


def test_the_reader_reads_beside_a_writer_and_cannot_write(tmp_path: Path) -> None:
    path = a_database(tmp_path)
    with closing(open_writer(path)) as writer, closing(open_reader(path)) as reader:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("INSERT INTO t VALUES (1)")
        assert reader.execute("SELECT a FROM t").fetchall() == []
        writer.execute("COMMIT")
        assert reader.execute("SELECT a FROM t").fetchall() == [(1,)]
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader.execute("INSERT INTO t VALUES (2)")
        assert pragma(reader, "busy_timeout") == BUSY_MS


def test_a_database_whose_process_died_is_recovered_from_its_wal(tmp_path: Path) -> None:
    path = tmp_path / "test.db"
    pid = os.fork()
    if pid == 0:
        raw = open_writer(path, schema=SCHEMA)
        raw.execute("INSERT INTO t VALUES (1)")
        os._exit(0)  # nothing is closed
    os.waitpid(pid, 0)
    assert (tmp_path / "test.db-wal").stat().st_size > 0
    (tmp_path / "test.db-shm").unlink()
    with closing(open_reader(path)) as raw:
        assert raw.execute("SELECT a FROM t").fetchall() == [(1,)]


def test_a_file_system_without_a_wal_is_refused_in_words() -> None:
    with (
        closing(sqlite3.connect(":memory:")) as raw,
        pytest.raises(StoreUnavailable, match="write-ahead log"),
    ):
        configure_writer(raw)


# what is not ours


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize("wal", [False, True])
@pytest.mark.parametrize("application_id", [0, 1234])
def test_the_database_of_another_application_is_refused_and_left_as_it_was(
    tmp_path: Path, opener: Opener, application_id: int, wal: bool
) -> None:
    path = tmp_path / "theirs.db"
    a_foreign_database(path, application_id=application_id, version=7, wal=wal)
    before = everything_in(tmp_path)
    with pytest.raises(NotADatabase, match="another application"):
        opener(path)
    assert everything_in(tmp_path) == before


@pytest.mark.parametrize("opener", OPENERS)
def test_the_wal_of_a_dead_foreign_process_is_not_checkpointed_by_looking(
    tmp_path: Path, opener: Opener
) -> None:
    path = tmp_path / "theirs.db"
    pid = os.fork()
    if pid == 0:
        raw = sqlite3.connect(path, isolation_level=None)
        raw.execute("PRAGMA journal_mode = WAL")
        raw.execute("CREATE TABLE theirs (a)")
        os._exit(0)
    os.waitpid(pid, 0)
    before = everything_in(tmp_path)
    assert len(before["theirs.db-wal"]) > 0
    with pytest.raises(NotADatabase):
        opener(path)
    assert everything_in(tmp_path) == before


@pytest.mark.parametrize("opener", OPENERS)
def test_a_database_of_a_newer_version_is_refused_with_both_numbers_and_left_as_it_was(
    tmp_path: Path, opener: Opener
) -> None:
    path = tmp_path / "newer.db"
    a_foreign_database(path, application_id=APPLICATION_ID, version=SCHEMA_VERSION + 1, wal=True)
    before = everything_in(tmp_path)
    with pytest.raises(SchemaTooNew) as caught:
        opener(path)
    assert (caught.value.found, caught.value.known) == (SCHEMA_VERSION + 1, SCHEMA_VERSION)
    assert everything_in(tmp_path) == before


@pytest.mark.parametrize("opener", OPENERS)
def test_a_file_that_is_no_database_is_refused_and_left_as_it_was(tmp_path: Path, opener: Opener) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear SQLite, " * 1000)
    before = everything_in(tmp_path)
    with pytest.raises(NotADatabase, match="not a database"):
        opener(path)
    assert everything_in(tmp_path) == before


@pytest.mark.parametrize("opener", OPENERS)
def test_a_directory_and_a_pipe_are_refused_at_once(tmp_path: Path, opener: Opener) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(NotADatabase, match="regular file"):
            opener(path)


def test_a_reader_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotADatabase, match="no such file"):
        open_reader(tmp_path / "none.db")
    (tmp_path / "empty.db").touch()
    with pytest.raises(NotADatabase, match="empty"):
        open_reader(tmp_path / "empty.db")
    assert everything_in(tmp_path) == {"empty.db": b""}


def test_a_directory_that_does_not_exist_is_not_made_up(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="No such file or directory") as raised:
        open_writer(tmp_path / "none" / "test.db", schema=SCHEMA)
    assert str(raised.value).endswith("The path is at fault: make its folder, or give another path")
    assert everything_in(tmp_path) == {}


def test_a_file_where_a_folder_should_be_is_the_paths_fault(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for opener in OPENERS:
        with pytest.raises(StoreUnavailable, match="Not a directory") as raised:
            opener(tmp_path / "file" / "test.db")
        assert "The path is at fault: make its folder" in str(raised.value)


def test_a_refused_opening_leaves_no_connection_open(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    a_foreign_database(path)
    on_record = len(ownership._register.handles)
    for opener in OPENERS:
        with pytest.raises(NotADatabase):
            opener(path)
    with pytest.raises(sqlite3.OperationalError):
        open_writer(tmp_path / "test.db", schema="this is not SQL")
    assert len(ownership._register.handles) == on_record


def test_looking_at_a_database_drops_no_lock_that_this_process_holds_on_it(tmp_path: Path) -> None:
    """Closing any descriptor of the file would: so nothing but SQLite ever opens it."""
    path = a_database(tmp_path)
    with closing(open_writer(path)) as owner:
        owner.execute("BEGIN IMMEDIATE")
        open_reader(path).close()
        assert try_to_write_from_another_process(path) == sqlite3.SQLITE_BUSY


def try_to_write_from_another_process(path: Path) -> int:
    program = (
        "import sqlite3, sys\n"
        "raw = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=0)\n"
        "try:\n    raw.execute('BEGIN IMMEDIATE')\n"
        "except sqlite3.OperationalError as exc:\n    sys.exit(exc.sqlite_errorcode)\n"
    )
    return subprocess.run([sys.executable, "-c", program, path], check=False).returncode


# telling errors apart


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_BUSY, "transient"),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, "transient"),
        (sqlite3.SQLITE_LOCKED, "transient"),
        (sqlite3.SQLITE_FULL, "transient"),
        (sqlite3.SQLITE_IOERR_FSYNC, "transient"),
        (sqlite3.SQLITE_NOMEM, "transient"),
        (sqlite3.SQLITE_INTERRUPT, "transient"),
        (sqlite3.SQLITE_CANTOPEN, "transient"),
        (sqlite3.SQLITE_PROTOCOL, "transient"),
        (sqlite3.SQLITE_READONLY_DBMOVED, "transient"),
        (sqlite3.SQLITE_CONSTRAINT_TRIGGER, "permanent"),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, "permanent"),
        (sqlite3.SQLITE_ERROR, "permanent"),
        (sqlite3.SQLITE_MISMATCH, "permanent"),
        (sqlite3.SQLITE_TOOBIG, "permanent"),
        (sqlite3.SQLITE_CORRUPT, "permanent"),
        (sqlite3.SQLITE_NOTADB, "permanent"),
    ],
)
def test_errors_are_told_apart_by_their_code_and_never_by_their_text(code: int, kind: str) -> None:
    assert classify(sqlite_error(code, "database is locked")) == kind
    assert classify(sqlite_error(code, "UNIQUE constraint failed")) == kind


def test_an_error_without_a_code_is_permanent() -> None:
    assert classify(sqlite3.ProgrammingError("Cannot operate on a closed database.")) == "permanent"
    assert classify(OSError("database is locked")) == "permanent"
    error = LookupError("not SQLite's")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY  # type: ignore[attr-defined]
    assert classify(error) == "permanent"


def test_errors_carry_fields_and_say_whose_fault_it_is_and_what_to_do() -> None:
    busy = sqlite_error(sqlite3.SQLITE_BUSY, "database is locked")
    away = unavailable(busy)
    assert (away.cause, away.code) == ("database is locked", "SQLITE_PLANNED")
    assert "Nothing is wrong with the request" in str(away)
    assert "The path is at fault" in str(unavailable(PermissionError(errno.EACCES, "Permission denied")))
    assert "Nothing is wrong" in str(unavailable(OSError(errno.ENOSPC, "No space left on device")))
    no = refused(busy)
    assert isinstance(no, UnitRefused)
    assert no.__cause__ is busy
    assert "changed nothing" in str(no)


def test_closing_a_handle_twice_is_harmless(tmp_path: Path) -> None:
    raw = open_writer(tmp_path / "test.db", schema=SCHEMA)
    raw.close()
    raw.close()
    with pytest.raises(sqlite3.ProgrammingError):
        raw.execute("SELECT 1")


def test_two_handles_do_not_close_at_the_same_moment_or_neither_is_the_last(tmp_path: Path) -> None:
    """SQLite's last connection deletes the WAL; two that close at once each take the other for still there."""
    path = a_database(tmp_path)
    opened, close = threading.Event(), threading.Event()

    def open_and_close() -> None:
        raw = open_reader(path)
        opened.set()
        close.wait(60)
        raw.close()

    closes = threading.Thread(target=open_and_close)
    closes.start()
    assert opened.wait(60)
    with ownership._register.closing:
        close.set()
        closes.join(0.05)
        assert closes.is_alive(), "another one is closing"
    closes.join()
