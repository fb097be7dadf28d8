"""Waking those who wait for news: readers of the log, and whoever waits for something in one company.

A wake says only that there may be more; the log is what is read, so no wake can be missed for good. Who waits for
one company is not woken by the news of another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

LAST_READ_S = 1.0
"""How long closing waits for readers to fetch the last events."""


class News:
    """Set at the next change, again and again."""

    __slots__ = ("_asked", "_event", "followers")

    def __init__(self) -> None:
        self._event = trio.Event()
        self._asked = False
        self.followers = 0

    def notify(self) -> None:
        if self._asked:  # whoever took the event may still be reading: it is not enough that nobody waits
            self._asked = False
            self._event.set()
            self._event = trio.Event()

    @property
    def event(self) -> trio.Event:
        """Set at the next change. Take it before reading, wait on it after."""
        self._asked = True
        return self._event


class Notifier:
    def __init__(self) -> None:
        self._all = News()
        self._companies: dict[str, News] = {}
        """Of those that somebody follows."""
        self._reading = 0
        self.closed = False

    def notify(self, company: str | None = None) -> None:
        """Something was committed, or something that is only in memory changed: of one company, or of all."""
        self._all.notify()
        if company is None:
            for news in self._companies.values():
                news.notify()
        elif company in self._companies:
            self._companies[company].notify()

    @property
    def news(self) -> trio.Event:
        """Set at the next change of whatever company. Take it before reading, wait on it after."""
        return self._all.event

    @contextmanager
    def following(self, company: str) -> Iterator[News]:
        """The news of one company, and of what concerns all."""
        news = self._companies.setdefault(company, News())
        news.followers += 1
        try:
            yield news
        finally:
            news.followers -= 1
            if not news.followers:
                del self._companies[company]

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
        self.notify()
        with trio.move_on_after(LAST_READ_S):
            while self._reading:
                await trio.sleep(0.001)
