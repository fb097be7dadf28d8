"""A connection without a thread: the same contract, for tests on a virtual clock.

Work runs in the Trio thread, so nothing happens beside the test and `MockClock` may jump whenever all is
idle. It also blocks the event loop for as long as SQLite takes, so it is not for production.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

import trio

from storage.errors import StoreClosed
from storage.forks import ForkGuard

T = TypeVar("T")


class InlineConnection:
    """`storage.sqlite.connection.Connection` over an open SQLite connection, which it owns and closes."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self._raw = raw
        self._guard = ForkGuard()
        self._closed = False

    async def run(self, work: Callable[[sqlite3.Connection], T], /) -> T:
        """Run `work` here and now; see `storage.sqlite.connection.Connection.run`.

        The cancellation point comes before the work and the scheduling point after it, exactly as with a
        thread: callers are served in the order of their calls, and what has started stands.
        """
        self._guard.check()
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._closed:
            raise StoreClosed
        try:
            return work(self._raw)
        finally:
            await trio.lowlevel.cancel_shielded_checkpoint()

    async def aclose(self) -> None:
        """Close the SQLite connection; see `storage.sqlite.connection.Connection.aclose`."""
        self._guard.check()
        if not self._closed:
            self._closed = True
            self._raw.close()
        await trio.lowlevel.cancel_shielded_checkpoint()
