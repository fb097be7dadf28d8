"""Waking the readers of the log.

A wake says only that there may be more; the log is what is read, so no wake can be missed for good.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

LAST_READ_S = 1.0
"""How long closing waits for readers to fetch the last events."""


class Hub:
    def __init__(self) -> None:
        self._news = trio.Event()
        self._asked = False
        self._reading = 0
        self.closed = False

    def notify(self) -> None:
        """Something was committed, or something that is only in memory changed."""
        if self._asked:  # whoever took the event may still be reading: it is not enough that nobody waits
            self._asked = False
            self._news.set()
            self._news = trio.Event()

    @property
    def news(self) -> trio.Event:
        """Set at the next change. Take it before reading, wait on it after."""
        self._asked = True
        return self._news

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Around a reader's waiting and reading, not around what it does with an event."""
        self._reading += 1
        try:
            yield
        finally:
            self._reading -= 1

    async def aclose(self) -> None:
        """Let every waiter go, and give readers of the log a moment to read its end."""
        self.closed = True
        self._news.set()
        with trio.move_on_after(LAST_READ_S):
            while self._reading:
                await trio.sleep(0.001)
