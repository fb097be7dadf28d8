"""Reading a database from any process, whether or not a host runs."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from actors.core.admission import Live
from storage.codec import check_name
from storage.contract.companies import ListCompanies
from storage.contract.events import LastPosition
from storage.contract.store import ReadStore

from .clock import wall_clock_ms
from .handle import Reads
from .log import Events, Page
from .opening import Owner, open_read_store, owner_of
from .reads import Source

POLL_S = 0.25
"""How often a following reader looks for new events of another process."""


async def _wait_a_little() -> bool:
    await trio.sleep(POLL_S)
    return True


class Reader:
    """The stored facts of a database. Comes from `open_reader`.

    What only the host knows (who waits for an execution slot, what an attempt says of itself) is not seen
    from here. Where no host runs, every unfinished task says so.
    """

    def __init__(self, database: ReadStore, clock_ms: Callable[[], int] = wall_clock_ms) -> None:
        self.path = database.path
        self._database = database
        self._source = Source(database, clock_ms, self._live)

    def _live(self, _company: str) -> Live:
        return Live(no_host=self.owner is None)

    @property
    def owner(self) -> Owner | None:
        """The process that runs the database; ``None`` if none does."""
        return owner_of(self.path)

    def company(self, name: str) -> Reads:
        """The reads of a company. Raises `InvalidName`."""
        return Reads(self._source, check_name(name, what="a company's name"))

    async def companies(self) -> tuple[str, ...]:
        """Names of all companies, sorted."""
        return await self._database.fetch(ListCompanies())

    def events(self, *, company: str | None = None, after: int | None = None, follow: bool = False) -> Events:
        """Events after the position ``after``, in commit order; with ``follow`` for ever, looking four
        times a second. Without ``after`` from the oldest that is kept.

        Raises `CursorTooOld` in the loop if events after that position, or after the last one given out, are no
        longer kept.
        """
        return Events(self._database.fetch, Page(company, after), _wait_a_little if follow else None)

    async def last_position(self) -> int:
        """The position of the newest event, whether or not it is still kept; 0 if there has been none."""
        return await self._database.fetch(LastPosition())


@asynccontextmanager
async def open_reader(path: str | os.PathLike[str]) -> AsyncIterator[Reader]:
    """Open an existing database for reading only, from any process, beside whoever runs it.

    Raises `NotADatabase` (also if there is no such file), `SchemaTooNew`, `StoreUnavailable`.
    """
    async with open_read_store(path) as database:
        yield Reader(database)
