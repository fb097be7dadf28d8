"""Where stores are opened: the one place in `actors` that knows which engine they have."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from storage.nursery import bare_nursery
from storage.sqlite.connection import Connection
from storage.sqlite.location import locate
from storage.sqlite.locks import Owner
from storage.sqlite.opening import Durability, create_empty, open_reader, open_sender
from storage.sqlite.ownership import owner_of
from storage.sqlite.sender import SqliteSender
from storage.sqlite.store import Hooks, How, SqliteStore, copy_beside, open_read_store, open_store

__all__ = [
    "Connection",
    "Durability",
    "Hooks",
    "How",
    "Owner",
    "SqliteSender",
    "copy_beside",
    "locate",
    "open_beside",
    "open_owned",
    "open_read_store",
    "open_store",
    "owner_of",
]


@asynccontextmanager
async def open_owned(path: str | os.PathLike[str]) -> AsyncIterator[SqliteStore]:
    """Own and open a database, which must exist.

    Raises `DatabaseInUse`, `NotADatabase`, `SchemaTooNew`, `StoreUnavailable`.
    """
    name = locate(path)
    await trio.to_thread.run_sync(lambda: open_reader(name).close())
    async with open_store(name) as store:
        yield store


@asynccontextmanager
async def open_beside(
    path: str | os.PathLike[str], *, busy_s: float, create: bool = False
) -> AsyncIterator[SqliteSender]:
    """Open a database, which must exist, for reading and sending beside the process that owns it.

    ``busy_s``: how long to wait for transactions of others. ``create``: make an empty database if there is none.

    Raises `NotADatabase`, `SchemaTooNew`,
    `StoreUnavailable`.
    """
    from storage.sqlite.bridge import open_bridge  # aiosqlite is only loaded where a thread is used

    name, busy_ms = locate(path), round(busy_s * 1000)
    async with bare_nursery(), open_bridge() as bridge:
        if create:
            await trio.to_thread.run_sync(create_empty, name)
        connection = await bridge.connect(lambda: open_sender(name, busy_ms=busy_ms))
        yield SqliteSender(name, connection)
