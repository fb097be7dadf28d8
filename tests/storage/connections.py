"""Connections for the tests of the connection layer: both kinds, and one that fails when told to."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trio

from storage.sqlite.bridge import open_bridge
from storage.sqlite.connection import Connection
from storage.sqlite.inline import InlineConnection
from storage.sqlite.opening import configure_writer, open_writer
from tests.stores import Plain

T = TypeVar("T")

KINDS = ["inline", "thread"]
SCHEMA = "CREATE TABLE t (a INTEGER NOT NULL UNIQUE CHECK (a < 1000)) STRICT;"


@asynccontextmanager
async def a_connection(kind: str, opener: Callable[[], sqlite3.Connection]) -> AsyncIterator[Connection]:
    if kind == "thread":
        async with open_bridge() as bridge:
            yield await bridge.connect(opener)
    else:
        connection = InlineConnection(opener())
        try:
            yield connection
        finally:
            await connection.aclose()


def a_database(directory: Path) -> Path:
    """A new database with the table `t`, closed."""
    path = directory / "test.db"
    open_writer(path, schema=SCHEMA).close()
    return path


def writer_of(path: Path) -> Callable[[], sqlite3.Connection]:
    return partial(open_writer, path, schema=SCHEMA)


def insert(*values: int) -> Plain[tuple[int, ...]]:
    def work(raw: sqlite3.Connection) -> tuple[int, ...]:
        for value in values:
            raw.execute("INSERT INTO t VALUES (?)", (value,))
        return values

    return Plain(work)


def rows_of(path: Path) -> list[int]:
    """What a bystander sees in the table."""
    raw = sqlite3.connect(path, isolation_level=None, timeout=0)
    try:
        return [row[0] for row in raw.execute("SELECT a FROM t ORDER BY a").fetchall()]
    finally:
        raw.close()


def assert_nobody_holds_the_write_lock(path: Path) -> None:
    raw = sqlite3.connect(path, isolation_level=None, timeout=0)
    try:
        raw.execute("BEGIN IMMEDIATE")
        assert raw.in_transaction
        raw.execute("ROLLBACK")
    finally:
        raw.close()


def store_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("turnkeeper-store")]


class In:
    """Does something in the Trio thread from inside a work, wherever that runs, and waits until it is done."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._trio_thread = threading.get_ident()

    def trio(self, action: Callable[[], object]) -> None:
        if threading.get_ident() == self._trio_thread:
            action()
            return
        done = threading.Event()
        self._token.run_sync_soon(action)
        self._token.run_sync_soon(done.set)
        assert done.wait(5), "the Trio thread did not get round to it"


def sqlite_error(code: int, text: str = "planned failure") -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    error.sqlite_errorname = "SQLITE_PLANNED"
    return error


class FailingSqlite(sqlite3.Connection):
    """Fails the calls of `execute` whose numbers are in `fails`, counted from 1 since `arm`."""

    fails: frozenset[int] = frozenset()
    code = sqlite3.SQLITE_IOERR
    calls = 0

    def arm(self, *numbers: int, code: int = sqlite3.SQLITE_IOERR) -> None:
        self.calls, self.fails, self.code = 0, frozenset(numbers), code

    def execute(self, *args: Any) -> sqlite3.Cursor:
        self.calls += 1
        if self.calls in self.fails:
            raise sqlite_error(self.code)
        return super().execute(*args)


def open_failing(path: Path) -> FailingSqlite:
    raw = sqlite3.connect(path, isolation_level=None, factory=FailingSqlite)
    configure_writer(raw)
    return raw


class Flaky:
    """A connection whose hops fail: the next with `errors` in turn, and all with `down` while it is set."""

    def __init__(self, inner: Connection) -> None:
        self._inner = inner
        self.errors: list[Exception] = []
        self.down: Exception | None = None
        self.hops_at_s: list[float] = []

    async def run(self, work: Callable[[sqlite3.Connection], T], /) -> T:
        self.hops_at_s.append(trio.current_time())
        if self.errors:
            return await self._inner.run(partial(_raise, self.errors.pop(0)))
        if self.down is not None:
            return await self._inner.run(partial(_raise, self.down))
        return await self._inner.run(work)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _raise(error: Exception, _: sqlite3.Connection) -> Any:
    raise error
