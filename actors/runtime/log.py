"""Reading the log. Live is only a wake: what is read is always the table, so there is no seam between old
and new.

The log is let go from its beginning. Each page is read in one snapshot with the floor below which lines are gone,
so a reader that is behind it hears of that and never goes on after a gap.
"""

from __future__ import annotations

import json
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from actors.errors import CursorTooOld
from actors.events import Event
from storage.codec import check_name
from storage.errors import StoreClosed
from storage.sqlite.retention import floor_of
from storage.sqlite.statements import SQL

from .notifier import Notifier

T = TypeVar("T")

PAGE = 500
"""Events of one read: bounded, so that no snapshot stays open while a slow reader works."""


def event_of(row: Sequence[Any]) -> Event:
    """A row of the log as an `Event`."""
    position, company, seq, at_ms, kind, task, run, node, attempt, before, after, reason, data = row
    said = json.loads(data) if data else {}
    return Event(position, company, seq, at_ms, kind, task, run, node, attempt, before, after, reason, said)


class Readable(Protocol):
    """A database that can be read, whether or not it can be written."""

    async def read(self, body: Callable[[sqlite3.Connection], T]) -> T: ...


class Events:
    """An asynchronous iterator over the log. It is no generator, so a loop over it may be left at any event.

    With ``wait`` it follows: at the end of the log it waits for more, and ends when that returns false.
    Without, it ends at the end of the log. Each page is one read, so no snapshot stays open while the
    reader works.
    """

    def __init__(
        self,
        read: Callable[[Callable[[sqlite3.Connection], list[Any]]], Awaitable[list[Any]]],
        page: Page,
        wait: Callable[[], Awaitable[bool]] | None,
    ) -> None:
        self._read = read
        self._page = page
        self._wait = wait
        self._rows: deque[Any] = deque()
        self._more = True

    def __aiter__(self) -> Events:
        return self

    async def aclose(self) -> None:
        """Nothing needs closing; here for ``contextlib.aclosing``."""

    async def __anext__(self) -> Event:
        while not self._rows:
            if not self._more and (self._wait is None or not await self._wait()):
                raise StopAsyncIteration
            rows = await self._read(self._page.read)
            self._rows.extend(rows)
            self._more = len(rows) == PAGE
        return event_of(self._rows.popleft())


def follow_events(
    database: Readable, notifier: Notifier, *, company: str | None, after: int | None
) -> Events:
    """Events after ``after``, and then each new one, until the notifier closes."""
    follower = _Follower(database, notifier)
    return Events(follower.read, Page(company, after), follower.wait)


class _Follower:
    """Reads beside a running host: a wake is taken before reading and waited for after, so none is missed."""

    def __init__(self, database: Readable, notifier: Notifier) -> None:
        self._database = database
        self._notifier = notifier
        self._news = notifier.news
        self._last = False

    async def read(self, body: Callable[[sqlite3.Connection], list[Any]]) -> list[Any]:
        self._news, self._last = self._notifier.news, self._notifier.closed
        try:
            with self._notifier.reading():
                return await self._database.read(body)
        except StoreClosed:
            self._last = True
            return []

    async def wait(self) -> bool:
        if self._last:
            return False
        with self._notifier.reading():
            await self._news.wait()
        return True


class Page:
    """Where a reader is: its position over all companies, or its place in one company's dense numbers.

    Without ``after`` it begins with the oldest line that is there. `read` raises `CursorTooOld`.
    """

    def __init__(self, company: str | None, after: int | None) -> None:
        if after is not None and (isinstance(after, bool) or not isinstance(after, int) or after < 0):
            raise ValueError(f"after must be a position of at least 0, not {after!r}")
        self._company = None if company is None else check_name(company, what="a company's name")
        self._after = after
        self._company_id: int | None = None
        self._seq = 0

    def read(self, conn: sqlite3.Connection) -> list[Any]:
        rows = self._read_all(conn) if self._company is None else self._read_company(conn, self._company)
        if rows:
            self._after = rows[-1][0]
        return rows

    def _read_all(self, conn: sqlite3.Connection) -> list[Any]:
        after = self._above(floor_of(conn).position)
        return conn.execute(SQL["events_all"], {"after": after, "limit": PAGE}).fetchall()

    def _above(self, floor: int) -> int:
        """The cursor, if no line after it is gone."""
        if self._after is None:
            self._after = floor
        if self._after < floor:
            raise CursorTooOld(self._after, floor, self._company)
        return self._after

    def _read_company(self, conn: sqlite3.Connection, name: str) -> list[Any]:
        row = conn.execute(SQL["find_company"], {"name": name}).fetchone()
        if self._company_id is not None and (row is None or row[0] != self._company_id):
            (end,) = conn.execute(SQL["last_position"]).fetchone()
            raise CursorTooOld(self._after or 0, end, name)
        if row is None:
            return []
        company_id = row[0]
        floor = floor_of(conn, company_id)
        after = self._above(floor.position)
        if self._company_id is None:
            self._company_id, self._seq = company_id, _seq_at(conn, company_id, after, floor.seq)
        params = {"company_id": company_id, "name": name, "after_seq": self._seq, "limit": PAGE}
        rows = conn.execute(SQL["events_company"], params).fetchall()
        if rows:
            self._seq = rows[-1][2]
        return rows


def _seq_at(conn: sqlite3.Connection, company_id: int, position: int, floor_seq: int) -> int:
    """The company's last number at or before ``position``, which is not below the floor. Both rise together, so
    halving finds it in a few look-ups.
    """
    low = floor_seq
    high = int(conn.execute(SQL["event_seq"], {"company_id": company_id}).fetchone()[0])
    while low < high:
        middle = (low + high + 1) // 2
        row = conn.execute(SQL["event_position"], {"company_id": company_id, "seq": middle}).fetchone()
        if row is None or row[0] <= position:
            low = middle
        else:
            high = middle - 1
    return low
