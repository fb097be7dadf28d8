"""Where stores are opened: the one place that knows which engine they have."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import attrs
import trio

from storage.contract.retention import Logged
from storage.contract.store import Operation, Query
from storage.group_commit import Unit
from storage.nursery import bare_nursery
from storage.sqlite.backup import back_up
from storage.sqlite.database import Database, open_database
from storage.sqlite.engine import answer, carry_out
from storage.sqlite.opening import WAL_BYTES_KEPT, open_reader, open_sender
from storage.sqlite.sender import SenderStore
from storage.sqlite.unit_of_work import Committed
from storage.sqlite.wal import SHRINK_ABOVE_BYTES, WalState, shrink_wal

T = TypeVar("T")


@attrs.define(slots=False)
class OwnedStore:
    """A database that this process owns. ``wal_kept_bytes``: what its write-ahead log keeps in ordinary use, and
    ``wal_cut_above_bytes``: the size above which `shrink` cuts it.
    """

    database: Database
    wal_kept_bytes: int = WAL_BYTES_KEPT
    wal_cut_above_bytes: int = SHRINK_ABOVE_BYTES

    async def commit(self, operation: Operation[T]) -> T:
        """See `storage.contract.store.Store.commit`."""
        return await self.database.writer.commit(unit_of(operation))

    async def fetch(self, query: Query[T]) -> T:
        """See `storage.contract.store.Store.fetch`."""
        return await self.database.read(lambda conn: answer(conn, query))

    async def shrink(self) -> WalState:
        """Cut the write-ahead log if it has grown; see `storage.sqlite.wal.shrink_wal`."""
        return await shrink_wal(self.database, self.wal_cut_above_bytes)

    async def copy_to(self, target: str | os.PathLike[str]) -> int:
        """Write a copy of the database; see `storage.sqlite.backup.back_up`."""

        def go_on() -> None:
            if self.database.how == "thread":
                trio.from_thread.check_cancelled()

        return await self.database.apart(lambda: back_up(self.database.path, target, go_on=go_on))


def unit_of(operation: Operation[T]) -> Unit[T]:
    """The operation as the writer takes it."""
    return lambda conn: carry_out(conn, operation)


def committed_of(logged: Logged) -> Committed:
    """What an operation recorded, as a turn says it. The event belongs to a company."""
    assert logged.seq is not None
    return Committed(logged.position, logged.seq, ())


@asynccontextmanager
async def open_owned(path: str | os.PathLike[str]) -> AsyncIterator[OwnedStore]:
    """Own and open a database, which must exist.

    Raises `DatabaseInUse`, `NotADatabase`, `SchemaTooNew`, `StoreUnavailable`.
    """
    await trio.to_thread.run_sync(lambda: open_reader(path).close())
    async with open_database(path) as database:
        yield OwnedStore(database)


@asynccontextmanager
async def open_beside(path: str | os.PathLike[str], *, busy_s: float) -> AsyncIterator[SenderStore]:
    """Open a database, which must exist, for reading and sending beside the process that owns it.

    ``busy_s``: how long to wait for transactions of others. Raises `NotADatabase`, `SchemaTooNew`,
    `StoreUnavailable`.
    """
    from storage.sqlite.bridge import open_bridge  # aiosqlite is only loaded where a thread is used

    busy_ms = round(busy_s * 1000)
    async with bare_nursery(), open_bridge() as bridge:
        yield SenderStore(await bridge.connect(lambda: open_sender(path, busy_ms=busy_ms)))


async def copy_beside(path: str | os.PathLike[str], target: str | os.PathLike[str]) -> int:
    """Write a copy of a database beside the process that owns it, if one does; see `back_up`."""
    return await trio.to_thread.run_sync(
        lambda: back_up(path, target, go_on=trio.from_thread.check_cancelled)
    )
