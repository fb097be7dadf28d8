"""A database opened whole: the ownership, one writer and one reader connection, and the writer's loop.

Two ways lead to the same thing. With threads, as in production; or inline, where every statement runs in
the Trio thread, so that a virtual clock never jumps over a call that is under way.
"""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal, TypeVar

import attrs
import trio

from storage.errors import StoreLost, StoreUnavailable
from storage.guard import Guard
from storage.inline import InlineConnection
from storage.nursery import bare_nursery
from storage.opening import Durability, guard_writer, open_reader, open_writer
from storage.ownership import acquire
from storage.store import Connection, read
from storage.writer import Writer

T = TypeVar("T")

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


@attrs.frozen
class Database:
    """An open database. ``writer`` is the only road to a change; `read` sees one snapshot each time."""

    path: str
    writer: Writer
    reader: Connection
    how: Literal["thread", "inline"] = "thread"

    async def read(self, body: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``body`` over one snapshot; raises `StoreUnavailable` for what may pass. Cancellable before
        it starts.
        """
        return await read(self.reader, body)

    async def apart(self, work: Callable[[], T]) -> T:
        """Run ``work``, which opens what it needs by itself, without holding up anybody.

        Cancellation: ``work`` can ask for it by `trio.from_thread.check_cancelled`, and is waited for.
        """
        if self.how == "thread":
            return await trio.to_thread.run_sync(work)
        await trio.lowlevel.checkpoint()
        return work()


@asynccontextmanager
async def open_database(
    path: str | os.PathLike[str],
    *,
    durability: Durability = "full",
    how: Literal["thread", "inline"] = "thread",
    hooks: Hooks | None = None,
    wrap: Callable[[Connection], Connection] = lambda connection: connection,
    close_grace_s: float = CLOSE_GRACE_S,
) -> AsyncIterator[Database]:
    """Own and open the database at ``path``; it is created, private to its user, if there is none.

    ``wrap`` is put round the writer's connection; tests count and break commits with it. Raises
    `DatabaseInUse`, `NotADatabase`, `SchemaTooNew`, `StoreUnavailable`. Leaving waits for the units that
    were handed in, and closes everything.
    """
    with acquire(path) as ownership, guard_writer(ownership) as guard:
        name = ownership.path
        if how == "inline":
            writing = InlineConnection(_open_guarded(name, durability, guard))
            try:
                reading = InlineConnection(open_reader(name))
                try:
                    async with _serve(
                        name, wrap(writing), reading, hooks, close_grace_s, guard, how
                    ) as opened:
                        yield opened
                finally:
                    await reading.aclose()
            finally:
                guard.let_go()
                await writing.aclose()
            return
        from storage.bridge import open_bridge

        async with open_bridge() as bridge:
            try:
                thread = await bridge.connect(lambda: _open_guarded(name, durability, guard))
                other = await bridge.connect(lambda: open_reader(name))
                async with _serve(name, wrap(thread), other, hooks, close_grace_s, guard, how) as opened:
                    yield opened
            finally:
                guard.let_go()


def _open_guarded(name: str, durability: Durability, guard: Guard) -> sqlite3.Connection:
    raw = open_writer(name, durability=durability)
    try:
        raw.execute("SELECT 1 FROM sqlite_schema").fetchall()  # now there is a write-ahead log
        guard.keep()
    except BaseException:
        raw.close()
        raise
    return raw


@asynccontextmanager
async def _serve(
    path: str,
    writing: Connection,
    reading: Connection,
    hooks: Hooks | None,
    close_grace_s: float,
    guard: Guard,
    how: Literal["thread", "inline"],
) -> AsyncIterator[Database]:
    """The writer's loop around the block, ended after everything handed in is answered."""
    hooks = hooks or Hooks()
    writer = Writer(
        writing,
        look=guard.look,
        look_every_s=LOOK_EVERY_S if how == "thread" else math.inf,
        on_outage=lambda error: hooks.on_outage(error),
        on_recovery=lambda outage_s: hooks.on_recovery(outage_s),
        on_loss=lambda error: hooks.on_loss(error),
    )
    async with bare_nursery() as nursery:
        nursery.start_soon(_run_shielded, writer)
        try:
            yield Database(path, writer, reading, how)
        finally:
            with trio.CancelScope(shield=True):
                await writer.aclose(close_grace_s)


async def _run_shielded(writer: Writer) -> None:
    """A cancelled host still has its last units committed; `Writer.aclose` is what ends the loop."""
    with trio.CancelScope(shield=True):
        await writer.run()
