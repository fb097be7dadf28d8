"""Reading the log. Live is only a wake: what is read is always the table, so there is no seam between old
and new.

The log is let go from its beginning. Each page is read in one snapshot with the floor below which lines are gone,
so a reader that is behind it hears of that and never goes on after a gap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from actors.errors import CursorTooOld
from actors.events import Event
from storage.codec import check_name
from storage.contract.events import LogLines, LogPlace, ReadLog, StoredEvent
from storage.contract.store import ReadStore
from storage.errors import StoreClosed

from .notifier import Notifier

PAGE = 500
"""Events of one read: bounded, so that no snapshot stays open while a slow reader works."""


def event_of(line: StoredEvent) -> Event:
    """A line of the log as an `Event`."""
    return Event(
        line.position,
        line.company,
        line.seq,
        line.at_ms,
        line.kind,
        line.task,
        line.run,
        line.node,
        line.attempt,
        line.before,
        line.after,
        line.reason,
        line.data,
    )


class Events:
    """An asynchronous iterator over the log. It is no generator, so a loop over it may be left at any event.

    With ``wait`` it follows: at the end of the log it waits for more, and ends when that returns false.
    Without, it ends at the end of the log. Each page is one read, so no snapshot stays open while the
    reader works.
    """

    def __init__(
        self,
        read: Callable[[ReadLog], Awaitable[LogLines]],
        page: Page,
        wait: Callable[[], Awaitable[bool]] | None,
    ) -> None:
        self._read = read
        self._page = page
        self._wait = wait
        self._lines: deque[StoredEvent] = deque()
        self._more = True

    def __aiter__(self) -> Events:
        return self

    async def aclose(self) -> None:
        """Nothing needs closing; here for ``contextlib.aclosing``."""

    async def __anext__(self) -> Event:
        while not self._lines:
            if not self._more and (self._wait is None or not await self._wait()):
                raise StopAsyncIteration
            lines = self._page.take(await self._read(self._page.query))
            self._lines.extend(lines)
            self._more = len(lines) == PAGE
        return event_of(self._lines.popleft())


def follow_events(
    database: ReadStore, notifier: Notifier, *, company: str | None, after: int | None
) -> Events:
    """Events after ``after``, and then each new one, until the notifier closes."""
    follower = _Follower(database, notifier)
    return Events(follower.read, Page(company, after), follower.wait)


class _Follower:
    """Reads beside a running host: a wake is taken before reading and waited for after, so none is missed."""

    def __init__(self, database: ReadStore, notifier: Notifier) -> None:
        self._database = database
        self._notifier = notifier
        self._news = notifier.news
        self._last = False

    async def read(self, query: ReadLog) -> LogLines:
        self._news, self._last = self._notifier.news, self._notifier.closed
        try:
            with self._notifier.reading():
                return await self._database.fetch(query)
        except StoreClosed:
            self._last = True
            return LogLines((), query.place)

    async def wait(self) -> bool:
        if self._last:
            return False
        with self._notifier.reading():
            await self._news.wait()
        return True


class Page:
    """Where a reader is, over all companies or in one, from page to page.

    Without ``after`` it begins with the oldest line that is there.
    """

    def __init__(self, company: str | None, after: int | None) -> None:
        if after is not None and (isinstance(after, bool) or not isinstance(after, int) or after < 0):
            raise ValueError(f"after must be a position of at least 0, not {after!r}")
        self._company = None if company is None else check_name(company, what="a company's name")
        self._place = LogPlace(after)

    @property
    def query(self) -> ReadLog:
        """What to ask for the next page."""
        return ReadLog(self._company, self._place, PAGE)

    def take(self, answer: LogLines) -> Sequence[StoredEvent]:
        """The lines of the page, and the place is behind them. Raises `CursorTooOld`."""
        if answer.floor is not None:
            raise CursorTooOld(self._place.after or 0, answer.floor, self._company)
        self._place = answer.place
        return answer.lines
