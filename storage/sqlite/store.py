"""The Store over SQLite: the ownership of the file, one connection that writes and one that reads, and the writer's
loop.

Two ways lead to the same thing. With threads, as in production; or inline, where every statement runs in
the Trio thread, so that a virtual clock never jumps over a call that is under way.
"""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Literal, TypeVar

import attrs
import trio

from storage.contract.store import Operation, Query, WalState, WriterStatistics
from storage.errors import StoreLost, StoreUnavailable
from storage.group_commit import Submitted, Writer
from storage.nursery import bare_nursery

from .backup import back_up, back_up_open
from .connection import Connection, read_transaction, reading
from .engine import answer
from .guard import Guard
from .inline import InlineConnection
from .location import locate
from .opening import WAL_BYTES_KEPT, Durability, guard_writer, open_reader, open_writer
from .ownership import acquire
from .wal import SHRINK_ABOVE_BYTES, shrink_wal, wal_bytes
from .writing import SqliteEngine

T = TypeVar("T")
R = TypeVar("R")
How = Literal["thread", "inline"]

CLOSE_GRACE_S = 5.0
"""How long closing waits for a store that is down before what waits in the writer is answered "outcome
unknown".
"""


LOOK_EVERY_S = 1.0
"""How often the files are looked at while nothing is written."""


@attrs.define
class Hooks:
    """What the owner of a database wants to hear from its writer."""

    on_outage: Callable[[StoreUnavailable], object] = lambda _: None
    on_recovery: Callable[[float], object] = lambda _: None
    on_loss: Callable[[StoreLost], object] = lambda _: None


class SqliteReader:
    """`storage.contract.store.ReadStore` over one connection."""

    def __init__(self, path: str, reader: Connection) -> None:
        self.path = path
        self.reader = reader

    async def fetch(self, query: Query[T]) -> T:
        """See `storage.contract.store.ReadStore.fetch`."""
        return await reading(self.reader, lambda raw: read_transaction(raw, partial(answer, asked=query)))

    async def fetch_with(self, query: Query[T], build: Callable[[T], R]) -> R:
        """See `storage.contract.store.ReadStore.fetch_with`."""

        def work(raw: sqlite3.Connection) -> R:
            return build(read_transaction(raw, partial(answer, asked=query)))

        return await reading(self.reader, work)


class SqliteStore(SqliteReader):
    """`storage.contract.store.Store`. Comes from `open_store`."""

    def __init__(self, path: str, writing: Connection, reader: Connection, writer: Writer, how: How) -> None:
        super().__init__(path, reader)
        self.wal_kept_bytes = WAL_BYTES_KEPT
        self.wal_cut_above_bytes = SHRINK_ABOVE_BYTES
        """The size above which `shrink` cuts it."""
        self._writing = writing
        self._writer = writer
        self._how = how

    @property
    def cause(self) -> StoreUnavailable | None:
        """See `storage.contract.store.Store.cause`."""
        return self._writer.cause

    @property
    def lost(self) -> StoreLost | None:
        """See `storage.contract.store.Store.lost`."""
        return self._writer.lost

    @property
    def statistics(self) -> WriterStatistics:
        """See `storage.contract.store.Store.statistics`."""
        return self._writer.statistics

    def submit(self, operation: Operation[T]) -> Submitted[T]:
        """See `storage.contract.store.Store.submit`."""
        return self._writer.submit(operation)

    async def commit(self, operation: Operation[T]) -> T:
        """See `storage.contract.store.Store.commit`."""
        return await self._writer.submit(operation).wait()

    @property
    def wal_bytes(self) -> int:
        """See `storage.contract.store.Store.wal_bytes`."""
        return wal_bytes(self.path)

    async def shrink(self) -> WalState:
        """See `storage.contract.store.Store.shrink`."""
        return await shrink_wal(self.path, self._writing, self.wal_cut_above_bytes)

    async def copy_to(self, target: str | os.PathLike[str]) -> int:
        """See `storage.contract.store.Store.copy_to`."""
        if self.lost is not None:
            copy = os.path.abspath(target)
            return await self._writing.run(lambda raw: back_up_open(raw, copy))
        if self._how == "thread":
            return await copy_beside(self.path, target)
        await trio.lowlevel.checkpoint()
        return back_up(self.path, target, go_on=lambda: None)


async def copy_beside(path: str | os.PathLike[str], target: str | os.PathLike[str]) -> int:
    """Write a copy of a database, whoever owns it; see `storage.contract.store.Store.copy_to`.

    Raises `NotADatabase` and `SchemaTooNew` besides.
    """
    source, copy = locate(path), os.path.abspath(target)
    return await trio.to_thread.run_sync(
        lambda: back_up(source, copy, go_on=trio.from_thread.check_cancelled)
    )


@asynccontextmanager
async def open_store(
    path: str | os.PathLike[str],
    *,
    durability: Durability = "full",
    how: How = "thread",
    hooks: Hooks | None = None,
    wrap: Callable[[Connection], Connection] = lambda connection: connection,
    close_grace_s: float = CLOSE_GRACE_S,
) -> AsyncIterator[SqliteStore]:
    """Own and open the database at ``path``; it is created, private to its user, if there is none.

    ``wrap`` is put round the writer's connection; tests count and break commits with it. Raises
    `DatabaseInUse`, `NotADatabase`, `SchemaTooNew`, `StoreUnavailable`. Leaving waits for the operations that
    were handed in, and closes everything.
    """
    with acquire(path) as ownership, guard_writer(ownership) as guard:
        async with _connections(ownership.path, durability, how, guard) as (writing, reader):
            writing = wrap(writing)
            hooks = hooks or Hooks()
            writer = Writer(
                SqliteEngine(writing, guard.look),
                on_outage=lambda error: hooks.on_outage(error),
                on_recovery=lambda outage_s: hooks.on_recovery(outage_s),
                on_loss=lambda error: hooks.on_loss(error),
                look_every_s=LOOK_EVERY_S if how == "thread" else math.inf,
            )
            async with bare_nursery() as nursery:
                nursery.start_soon(_run_shielded, writer)
                try:
                    yield SqliteStore(ownership.path, writing, reader, writer, how)
                finally:
                    with trio.CancelScope(shield=True):
                        await writer.aclose(close_grace_s)


@asynccontextmanager
async def open_read_store(path: str | os.PathLike[str]) -> AsyncIterator[SqliteReader]:
    """Open an existing database for reading only, from any process, beside whoever runs it.

    Raises `NotADatabase` (also if there is no such file), `SchemaTooNew`, `StoreUnavailable`.
    """
    from .bridge import open_bridge

    name = locate(path)
    async with bare_nursery(), open_bridge() as bridge:
        yield SqliteReader(name, await bridge.connect(lambda: open_reader(name)))


@asynccontextmanager
async def _connections(
    path: str, durability: Durability, how: How, guard: Guard
) -> AsyncIterator[tuple[Connection, Connection]]:
    """The connection that writes and the one that reads. The guard lets go before the last of them closes."""
    if how == "inline":
        writing = InlineConnection(_open_guarded(path, durability, guard))
        try:
            reader = InlineConnection(open_reader(path))
            try:
                yield writing, reader
            finally:
                await reader.aclose()
        finally:
            guard.let_go()
            await writing.aclose()
        return
    from .bridge import open_bridge

    async with open_bridge() as bridge:
        try:
            thread = await bridge.connect(lambda: _open_guarded(path, durability, guard))
            yield thread, await bridge.connect(lambda: open_reader(path))
        finally:
            guard.let_go()


def _open_guarded(path: str, durability: Durability, guard: Guard) -> sqlite3.Connection:
    raw = open_writer(path, durability=durability)
    try:
        raw.execute("SELECT 1 FROM sqlite_schema").fetchall()  # now there is a write-ahead log
        guard.keep()
    except BaseException:
        raw.close()
        raise
    return raw


async def _run_shielded(writer: Writer) -> None:
    """A cancelled host still has its last operations committed; `Writer.aclose` is what ends the loop."""
    with trio.CancelScope(shield=True):
        await writer.run()
