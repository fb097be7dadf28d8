"""Live progress: what attempts say of themselves. In memory only, and only the latest of each.

A handler may report as often as it likes: a report replaces the one before, and readers are woken once
until they have read. A reader looks at most ten times a second.
"""

from __future__ import annotations

import math
from collections import deque
from weakref import WeakSet

import attrs
import trio

from .attempts import Attempt

EVERY_S = 0.1
LATEST_MAX = 10_000
"""Attempts whose reports wait for one reader. Of more than that the newest are not told."""


@attrs.frozen
class Progress:
    """The latest that an attempt said of itself."""

    company: str
    task: str
    run: int
    node: str
    attempt: int
    text: str


class ProgressBoard:
    """Where handlers pin what they have to say. Readers that nobody holds any more are forgotten."""

    def __init__(self) -> None:
        self._readers: WeakSet[ProgressReader] = WeakSet()
        self.closed = False
        self.token = trio.lowlevel.current_trio_token()

    def note(self, attempt: Attempt) -> None:
        """Called by handlers, in whatever thread. Costs a dictionary entry for each reader."""
        for reader in tuple(self._readers):
            reader.put(attempt)

    def read(self, company: str | None) -> ProgressReader:
        reader = ProgressReader(self, company)
        self._readers.add(reader)
        return reader

    def close(self) -> None:
        self.closed = True
        for reader in self._readers:
            reader.wake()


class ProgressReader:
    """An asynchronous iterator over reports from now on, coalesced, until the runtime closes."""

    def __init__(self, board: ProgressBoard, company: str | None) -> None:
        self._board = board
        self._company = company
        self._latest: dict[Attempt, str] = {}
        self._ready: deque[Progress] = deque()
        self._news = trio.Event()
        self._asked = False
        self._read_s = -math.inf

    def __aiter__(self) -> ProgressReader:
        return self

    async def __anext__(self) -> Progress:
        while not self._ready:
            if not self._latest:
                if self._board.closed:
                    raise StopAsyncIteration
                await self._news.wait()
            await trio.sleep_until(self._read_s + EVERY_S)
            self._take()
        return self._ready.popleft()

    def put(self, attempt: Attempt) -> None:
        if self._company is not None and attempt.ref.company != self._company:
            return
        if len(self._latest) >= LATEST_MAX and attempt not in self._latest:
            return
        self._latest[attempt] = attempt.progress or ""
        if not self._asked:
            self._asked = True
            self._board.token.run_sync_soon(self.wake, idempotent=True)

    def wake(self) -> None:
        self._news.set()

    def _take(self) -> None:
        self._news = trio.Event()
        self._asked = False
        self._read_s = trio.current_time()
        latest, self._latest = self._latest, {}
        self._ready.extend(_progress(attempt, text) for attempt, text in latest.items())


def _progress(attempt: Attempt, text: str) -> Progress:
    key = attempt.ref.key
    node = "" if attempt.spec is None else attempt.spec.name
    return Progress(attempt.ref.company, key.task, key.run, node, key.number, text)
