"""A backup is whole, checked and private, or it is not there."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

import storage.sqlite.backup
from storage.errors import BackupFailed, NotADatabase, StoreUnavailable
from storage.sqlite.backup import back_up
from storage.sqlite.opening import APPLICATION_ID, SCHEMA_VERSION, open_reader, open_writer
from storage.sqlite.ownership import acquire


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A closed database with two companies."""
    path = tmp_path / "companies.db"
    with closing(open_writer(path)) as raw:
        raw.execute("INSERT INTO companies (name) VALUES ('a'), ('b')")
    return path


def names_in(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as raw:
        return [row[0] for row in raw.execute("SELECT name FROM companies ORDER BY name").fetchall()]


def everything_beside(path: Path) -> set[str]:
    return {file.name for file in path.parent.iterdir()}


def test_a_copy_is_the_database_as_it_was_at_one_moment(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    with closing(open_writer(source)) as raw:
        raw.execute("INSERT INTO companies (name) VALUES ('in the WAL')")
        raw.execute("BEGIN IMMEDIATE")
        raw.execute("INSERT INTO companies (name) VALUES ('not committed')")
        assert back_up(source, target) == target.stat().st_size
        raw.execute("COMMIT")
    assert names_in(target) == ["a", "b", "in the WAL"]
    with closing(sqlite3.connect(target)) as raw:
        pragmas = [raw.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
        assert pragmas == [APPLICATION_ID, SCHEMA_VERSION]
        assert raw.execute("SELECT seq FROM sqlite_sequence WHERE name = 'companies'").fetchone() == (3,)
    open_writer(target).close()


def test_it_is_made_beside_the_owner_and_takes_nothing_from_him(source: Path, tmp_path: Path) -> None:
    with acquire(source), closing(open_writer(source)) as raw:
        back_up(source, tmp_path / "copy.db")
        raw.execute("INSERT INTO companies (name) VALUES ('c')")
    assert names_in(source) == ["a", "b", "c"]
    with acquire(tmp_path / "copy.db"):
        assert names_in(tmp_path / "copy.db") == ["a", "b"]


def test_it_is_private_whatever_the_umask(source: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        back_up(source, tmp_path / "copy.db")
    finally:
        os.umask(before)
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600
    assert everything_beside(source) == {"companies.db", "copy.db"}


@pytest.mark.parametrize("suffix", ["", "-wal", "-journal"])
def test_nothing_is_overwritten_and_nothing_that_lies_there_becomes_a_part_of_it(
    source: Path, tmp_path: Path, suffix: str
) -> None:
    there = tmp_path / f"copy.db{suffix}"
    there.write_text("precious", "utf-8")
    with pytest.raises(BackupFailed, match="exists, and nothing is overwritten") as caught:
        back_up(source, tmp_path / "copy.db")
    assert caught.value.target == str(tmp_path / "copy.db")
    assert there.read_text("utf-8") == "precious"
    assert everything_beside(source) == {"companies.db", there.name}


def test_not_even_a_link_that_leads_nowhere_or_the_database_itself(source: Path, tmp_path: Path) -> None:
    (tmp_path / "copy.db").symlink_to(tmp_path / "nowhere")
    for target in (tmp_path / "copy.db", source):
        with pytest.raises(BackupFailed):
            back_up(source, target)
    assert everything_beside(source) == {"companies.db", "copy.db"}
    assert names_in(source) == ["a", "b"]


@pytest.mark.parametrize("links", [True, False], ids=["links", "a file system without links"])
def test_a_target_that_comes_to_be_meanwhile_is_not_overwritten_either(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    target = tmp_path / "copy.db"

    def no_link(*_args: object) -> None:
        raise PermissionError("planted")

    if not links:
        monkeypatch.setattr(os, "link", no_link)
    assert back_up(source, tmp_path / "first.db") > 0
    sync = storage.sqlite.backup._sync

    def then_somebody_comes(path: Path) -> None:
        sync(path)
        target.write_text("precious", "utf-8")

    monkeypatch.setattr(storage.sqlite.backup, "_sync", then_somebody_comes)
    with pytest.raises(BackupFailed):
        back_up(source, target)
    assert target.read_text("utf-8") == "precious"
    assert everything_beside(source) == {"companies.db", "copy.db", "first.db"}


def test_a_place_that_cannot_be_written_is_said(source: Path, tmp_path: Path) -> None:
    with pytest.raises(BackupFailed, match="it cannot be written: No such file or directory"):
        back_up(source, tmp_path / "no such directory" / "copy.db")


def test_what_is_no_database_of_ours_is_not_copied(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database", "utf-8")
    for path in (tmp_path / "text", tmp_path / "missing"):
        with pytest.raises(NotADatabase):
            back_up(path, tmp_path / "copy.db")
    assert {file.name for file in tmp_path.iterdir()} == {"text"}


def test_a_database_that_is_damaged_gives_no_copy(source: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(source)) as raw:
        raw.execute("PRAGMA journal_mode = DELETE")
        raw.executemany("INSERT INTO companies (name) VALUES (?)", [(f"company {n}",) for n in range(2000)])
        raw.commit()
        (root,) = raw.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'companies'").fetchone()
        (size,) = raw.execute("PRAGMA page_size").fetchone()
    data = bytearray(source.read_bytes())
    data[(root - 1) * size : (root - 1) * size + 8] = b"\xff" * 8
    source.write_bytes(bytes(data))
    with pytest.raises(BackupFailed, match="damaged"):
        back_up(source, tmp_path / "copy.db")
    assert everything_beside(source) <= {"companies.db", "companies.db-wal", "companies.db-shm"}


def test_a_copy_that_does_not_hold_together_is_none(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database is sound to look at, and its index is not: only the check of the copy tells."""
    copy = storage.sqlite.backup._copy

    def badly(raw: sqlite3.Connection, part: Path, *rest: object) -> None:
        copy(raw, part, *rest)  # type: ignore[arg-type]
        with closing(sqlite3.connect(part)) as raw:
            raw.execute("PRAGMA writable_schema = ON")
            raw.execute("DELETE FROM sqlite_schema WHERE name = 'companies_due'")
            raw.commit()

    monkeypatch.setattr(storage.sqlite.backup, "_copy", badly)
    with pytest.raises(BackupFailed, match="the copy is damaged"):
        back_up(source, tmp_path / "copy.db")
    assert everything_beside(source) == {"companies.db"}


def test_a_disk_that_is_full_is_nobody_s_fault_and_leaves_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    error.sqlite_errorname = "SQLITE_FULL"

    class Full(sqlite3.Connection):
        def execute(self, *_args: object) -> sqlite3.Cursor:
            raise error

    monkeypatch.setattr(storage.sqlite.backup, "open_copier", partial(sqlite3.connect, factory=Full))
    with pytest.raises(StoreUnavailable):
        back_up(source, tmp_path / "copy.db")
    assert everything_beside(source) == {"companies.db"}


@pytest.mark.parametrize("after", [0, 1, 3])
def test_it_can_be_given_up_at_any_step_and_leaves_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setattr(storage.sqlite.backup, "STEPS", 10)
    asked: list[None] = []

    def go_on() -> None:
        asked.append(None)
        if len(asked) > after:
            raise InterruptedError("enough")

    with pytest.raises(InterruptedError, match="enough"):
        back_up(source, tmp_path / "copy.db", go_on=go_on)
    assert everything_beside(source) == {"companies.db"}
    assert back_up(source, tmp_path / "copy.db") > 0


def test_processes_of_the_original_are_not_in_the_copy(source: Path, tmp_path: Path) -> None:
    """Whoever opens the copy takes what ran for lost, and must not end the commands of a host that lives."""
    with closing(open_writer(source)) as raw:
        raw.execute(
            "INSERT INTO tasks (company_id, seq, id, priority, created_ms, mode, shape, fail_fast, title)"
            " VALUES (1, 1, 't', 2, 0, 'auto', '[]', 0, '')"
        )
        raw.execute(
            "INSERT INTO runs (company_id, seq, number, status, created_ms, slot, admitted_ms)"
            " VALUES (1, 1, 1, 'running', 0, 1, 1)"
        )
        raw.execute(
            "INSERT INTO nodes (company_id, seq, run, pos, spec, status, attempts)"
            " VALUES (1, 1, 1, 0, '{}', 'running', 1)"
        )
        raw.execute(
            "INSERT INTO attempts (company_id, seq, run, pos, number, generation, host_id, started_ms, pid,"
            " pid_started) VALUES (1, 1, 1, 0, 1, 0, 1, 0, 77, 'then')"
        )
        back_up(source, tmp_path / "copy.db")
        assert raw.execute("SELECT pid, pid_started FROM attempts").fetchall() == [(77, "then")]
    with closing(open_reader(tmp_path / "copy.db")) as raw:
        assert raw.execute("SELECT pid, pid_started, ended_ms FROM attempts").fetchall() == [
            (None, None, None)
        ]
