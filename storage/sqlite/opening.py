"""Opening a database: whose it is, its first schema, and how a connection is set up.

Nothing is written to a file before it is known to be ours. Setting a journal mode writes, and so does
closing the last connection of a WAL; therefore the question is asked through a read-only connection first.
The file itself is never opened except by SQLite and by the owner's guard, which closes its descriptor last: SQLite's
locks are POSIX locks, and closing any other descriptor of the file in this process would drop them. Only a file that
does not exist yet is created by us, so that it is private from its first moment; SQLite gives its `-wal` and `-shm`
the same mode.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from importlib import resources
from pathlib import Path
from typing import Final, Literal, NoReturn
from urllib.parse import quote

from storage.errors import NotADatabase, SchemaTooNew
from storage.sqlite.connection import roll_back
from storage.sqlite.errors import classify, unavailable
from storage.sqlite.guard import Guard, guard, refuse_other_names
from storage.sqlite.location import locate
from storage.sqlite.ownership import Handle, Ownership, owner_of, refuse_inherited

APPLICATION_ID: Final = 0x54524E4B  # "TRNK", in the header of each of our files
SCHEMA_VERSION: Final = 5

OPEN_BUSY_MS: Final = 2_000  # while opening: another process may be recovering or closing the WAL
BUSY_MS: Final = 100  # afterwards: the writer tries again itself, and sees a cancellation between two tries
WAL_BYTES_KEPT: Final = 64 * 1024 * 1024  # a WAL that a long reader made grow is cut back to this
WAL_PAGES: Final = 1_000  # a commit that finds so many in the WAL copies them to the database: about 4 MB
CACHED_STATEMENTS: Final = 512  # more than there are named statements, so none is compiled twice

Durability = Literal["full", "normal"]
_SYNCHRONOUS: Final[dict[Durability, str]] = {
    # each commit is synced: what was answered survives a power cut
    "full": "PRAGMA synchronous = FULL",
    # only checkpoints are synced: a power cut may take the last commits, never the consistency; a crash
    # takes nothing
    "normal": "PRAGMA synchronous = NORMAL",
}


def open_writer(
    path: str | os.PathLike[str], *, durability: Durability = "full", schema: str | None = None
) -> sqlite3.Connection:
    """Open the database at `path` for writing; create it if there is none. Take the ownership of it first.

    `schema` is the script that creates it, by default the one of this version. Runs on the thread that will
    use the connection.

    Raises `NotADatabase`, `SchemaTooNew`, `StoreUnavailable`, `ForkedProcess`; after any error nothing is
    left open.
    """
    name = _resolve(path)
    _create_private(name)
    found = _identify(name)
    raw = _connect(name, "mode=rw")
    try:
        configure_writer(raw, durability)
        if found == 0:
            _create_schema(raw, schema_script() if schema is None else schema)
        raw.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    except BaseException as exc:
        raw.close()
        _raise_in_words(exc, name)
    return raw


def open_reader(path: str | os.PathLike[str]) -> sqlite3.Connection:
    """Open an existing database of ours for reading only. Works beside any owner, from any process.

    Raises `NotADatabase` also for a file that does not exist or holds no schema yet; the rest as
    `open_writer`.
    """
    name = _resolve(path)
    if _identify(name) == 0:
        raise NotADatabase(name, "it is empty", absent=True)
    raw = _connect(name, "mode=rw")
    try:
        configure_reader(raw)
    except BaseException as exc:
        raw.close()
        _raise_in_words(exc, name)
    return raw


def open_sender(path: str | os.PathLike[str], *, busy_ms: int) -> sqlite3.Connection:
    """Open an existing database of ours to leave messages in it, beside any owner and without being one.

    Waits at most ``busy_ms`` for another process's transaction. Commits are synced; checkpoints are the
    owner's business. Raises as `open_reader`.
    """
    name = _resolve(path)
    if _identify(name) == 0:
        raise NotADatabase(name, "it is empty")
    raw = _connect(name, "mode=rw")
    try:
        raw.execute(_SYNCHRONOUS["full"])
        raw.execute("PRAGMA foreign_keys = ON")
        raw.execute("PRAGMA wal_autocheckpoint = 0")
        raw.execute(f"PRAGMA busy_timeout = {int(busy_ms)}")
    except BaseException as exc:
        raw.close()
        _raise_in_words(exc, name)
    return raw


def create_empty(path: str | os.PathLike[str]) -> None:
    """Create a database without any rows, unless there is one at ``path`` already.

    Several processes may do so at once, a host that opens it for the first time among them. Raises as `open_writer`.
    """
    name = _resolve(path)
    try:
        if _identify(name) != 0:
            return
    except NotADatabase as error:
        if not error.absent:
            raise
    open_writer(name).close()


def open_copier(path: str | os.PathLike[str]) -> sqlite3.Connection:
    """Open an existing database of ours for `VACUUM INTO`, which writes only the copy, but which a connection that
    must not write refuses. Works beside any owner. Raises as `open_reader`.
    """
    name = _resolve(path)
    _identify(name)
    return _connect(name, "mode=rw")


def open_copy(path: str | os.PathLike[str]) -> sqlite3.Connection:
    """Open a copy that nobody else knows yet, for writing."""
    return _connect(_resolve(path), "mode=rw")


def configure_writer(connection: sqlite3.Connection, durability: Durability = "full") -> None:
    """Set up a connection that writes. Raises `StoreUnavailable` where the file system cannot hold a WAL."""
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise unavailable(
            OSError(f"its file system does not support a write-ahead log (journal mode {mode})")
        )
    connection.execute(_SYNCHRONOUS[durability])
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")


def configure_reader(connection: sqlite3.Connection) -> None:
    """Set up a connection that cannot write."""
    connection.execute("PRAGMA query_only = ON")
    connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")


def schema_script() -> str:
    """The script that creates the schema of this version."""
    return (resources.files("storage.sqlite") / "sql" / "schema.sql").read_text(encoding="utf-8")


def guard_writer(ownership: Ownership) -> Guard:
    """Guard the owner's database before it is opened; create an empty file if there is none.

    Raises `NotADatabase`, `SchemaTooNew`, `StoreUnavailable`, `ForkedProcess`, `DatabaseInUse`.
    """
    name = _resolve(ownership.path)
    _create_private(name)
    _identify(name)
    return guard(ownership)


def _resolve(path: str | os.PathLike[str]) -> str:
    name = locate(path)
    refuse_inherited(name)
    return name


def _create_private(name: str) -> None:
    try:
        os.close(os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return
    except OSError as exc:
        raise unavailable(exc) from exc


def _identify(name: str) -> int:
    """The schema's version, 0 for an empty database; raises if it is not ours to touch. Writes nothing."""
    _refuse_what_is_no_file(name)
    # Without a WAL the file is all there is. Only `immutable` then keeps SQLite from creating one to read by.
    probe = _connect(name, "mode=ro" if Path(f"{name}-wal").exists() else "mode=ro&immutable=1")
    try:
        application = _integer(probe, "PRAGMA application_id")
        version = _integer(probe, "PRAGMA user_version")
        tables = _integer(probe, "SELECT count(*) FROM sqlite_schema")
    except sqlite3.Error as exc:
        _raise_in_words(exc, name)
    finally:
        probe.close()
    if application == 0 and version == 0 and tables == 0:
        return 0
    if application != APPLICATION_ID:
        raise NotADatabase(name, f"it belongs to another application (id {application}, {tables} tables)")
    if version > SCHEMA_VERSION:
        raise SchemaTooNew(name, version, SCHEMA_VERSION)
    if version < SCHEMA_VERSION:
        raise NotADatabase(name, f"its schema {version} is from before the first release")
    return version


def _refuse_what_is_no_file(name: str) -> None:
    try:
        found = os.stat(name)
    except FileNotFoundError:
        raise NotADatabase(name, "there is no such file", absent=True) from None
    except OSError as exc:
        raise unavailable(exc) from exc
    if not stat.S_ISREG(found.st_mode):
        raise NotADatabase(name, "it is not a regular file")
    if found.st_nlink > 1 and owner_of(name) is None:
        refuse_other_names(name, found)


def _connect(name: str, how: str) -> Handle:
    try:
        raw = sqlite3.connect(
            f"file:{quote(name)}?{how}",
            uri=True,
            timeout=OPEN_BUSY_MS / 1000,
            isolation_level=None,
            cached_statements=CACHED_STATEMENTS,
            factory=Handle,
        )
    except sqlite3.Error as exc:
        raise unavailable(exc) from exc
    raw.keep(name)
    return raw


def _create_schema(raw: sqlite3.Connection, script: str) -> None:
    """One transaction, so that a crash leaves an empty database or a whole one.

    The borders are in the script, as `executescript` would commit a transaction begun outside.
    """
    try:
        raw.executescript(
            f"BEGIN IMMEDIATE;\n{script}\n;"
            f"PRAGMA application_id = {APPLICATION_ID};"
            f"PRAGMA user_version = {SCHEMA_VERSION};"
            "COMMIT;"
        )
    except sqlite3.OperationalError:
        roll_back(raw)
        if _integer(raw, "PRAGMA user_version") != SCHEMA_VERSION:
            raise
        # another process has created it since this one looked
    except BaseException:
        roll_back(raw)
        raise


def _integer(connection: sqlite3.Connection, statement: str) -> int:
    (value,) = connection.execute(statement).fetchone()
    return int(value)


def _raise_in_words(exc: BaseException, name: str) -> NoReturn:
    if not isinstance(exc, sqlite3.Error):
        raise exc
    if classify(exc) == "transient":
        raise unavailable(exc) from exc
    if getattr(exc, "sqlite_errorcode", None) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        raise NotADatabase(name, str(exc)) from exc
    raise exc
