"""aiosqlite on Trio: the only module that knows of asyncio.

aiosqlite gives each connection a thread and speaks asyncio; trio-asyncio runs an asyncio loop inside Trio. The loop
lives in a child of its own, so its context stays there: a host that uses trio-asyncio itself finds its own loop
current inside our block. One loop serves any number of connections.

*The hop.* aiosqlite's public methods take one statement each, but a transaction has to run whole on the thread (see
`storage.store`). So we subclass its `Connection` and hand a function to its protected runner, `_execute`; this is
the only place that does, and the range of versions is pinned. The result does not travel back through the asyncio
future, but straight from the thread to the waiting Trio task. That halves the cost of a hop, and it makes the wait
independent of the loop: a Ctrl-C that happens to land in a callback kills the loop, but not the one thing that must
not be left half way.

*Closing.* First the SQLite connection is closed on its thread, after all works asked for; then the thread is ended and
joined; then the loop goes, since a thread that reports to a closed loop dies noisily. A child of the bridge does it,
so it is finished whoever asked for it is cancelled or interrupted. A statement that runs on is interrupted after a
grace. aiosqlite's thread would keep the process alive for as long as it lives; ours is a daemon, so that a work that
cannot be interrupted (an endless loop in Python) costs a warning instead.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, TypeVar

import aiosqlite
import structlog
import trio
import trio_asyncio
from outcome import Error, Outcome, Value, capture

from storage.errors import OutcomeUnknown, StoreClosed
from storage.ownership import ForkGuard, close_handle

T = TypeVar("T")

CLOSE_GRACE_S: Final = 2.0  # for the works already asked for, before their statement is interrupted
INTERRUPT_GRACE_S: Final = 1.0  # for an interrupted statement to end; both together stay under five seconds
JOIN_S: Final = 1.0  # the thread has left its last function by then and only has to return

_log = structlog.get_logger("storage.bridge")


class Bridge:
    """An asyncio loop in a Trio child, and the connections that it serves. Made by `open_bridge`."""

    def __init__(self) -> None:
        self._guard = ForkGuard()
        self._connections: set[ThreadConnection] = set()
        self._ready = trio.Event()
        self._leave = trio.Event()
        self._closers: trio.Nursery | None = None
        self._loop: Any = None

    async def connect(self, opener: Callable[[], sqlite3.Connection]) -> ThreadConnection:
        """Start a thread, call `opener` on it, and return the connection that it opened.

        Raises what `opener` raises (then the thread is gone again), `StoreClosed` if the bridge is closing.

        Cancellation: `opener` runs to its end; a caller that was cancelled meanwhile gets `trio.Cancelled` after the
        connection has been closed again.
        """
        self._guard.check()
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._closers is None or self._leave.is_set():
            raise StoreClosed
        connection = ThreadConnection(self, opener)
        self._connections.add(connection)
        try:
            await connection._open()
            await trio.lowlevel.checkpoint_if_cancelled()
        except BaseException:
            await connection.aclose()
            raise
        return connection

    async def _serve(self) -> None:
        """The child. Cancellation from outside does not reach it; it leaves when the block is left, or its loop died."""
        try:
            with trio.CancelScope(shield=True):
                async with trio_asyncio.open_loop() as self._loop:
                    self._loop.set_exception_handler(_log_stray_error)
                    await self._serve_loop()
        finally:
            self._closers = None
            self._ready.set()

    async def _serve_loop(self) -> None:
        with trio.CancelScope() as alive:  # trio-asyncio cancels its body when the loop dies
            ...
