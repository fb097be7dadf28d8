"""Reading a database from any process, whether or not a host runs."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from actors.core.gates import Live
from storage.codec import check_name
from storage.location import locate
from storage.locks import Owner
from storage.nursery import bare_nursery
from storage.opening import open_reader as open_connection
from storage.ownership import owner_of
from storage.statements import SQL
from storage.store import Connection, read

from .company import CompanyActor
from .handle import Reads
from .log import Events, Page
from .wall import wall_clock_ms

T = TypeVar("T")

POLL_S = 0.25
"""How often a following reader looks for new events of another process."""


async def _wait_a_little() -> bool:
    await trio.sleep(POLL_S)
    return True


class _ReadOnly:
    """The reads' idea of a database, without a writer."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def read(self, body: Callable[[sqlite3.Connection], T]) -> T:
        return await read(self._connection, body)


class Reader:
    """The stored facts of a database. Comes from `open_reader`.

    What only the host knows (who waits for an execution slot, what an attempt says of itself) is not seen
    from here. Where no host runs, every unfinished task says so.
    """

    def __init__(
        self, path: str, connection: Connection, clock_ms: Callable[[], int] = wall_clock_ms
    ) -> None:
        self.path = path
        self.now_ms = clock_ms
        self.database = _ReadOnly(connection)

    @property
    def owner(self) -> Owner | None:
        """The process that runs the database; ``None`` if none does."""
        return owner_of(self.path)

    def company(self, name: str) -> Reads:
        """The reads of a company. Raises `InvalidName`."""
        return Reads(self, check_name(name, what="a company's name"))  # type: ignore[arg-type]

    async def companies(self) -> tuple[str, ...]:
        """Names of all companies, sorted."""
        rows = await self.database.read(lambda conn: conn.execute(SQL["list_companies"]).fetchall())
        return tuple(row[0] for row in rows)

    def events(self, *, company: str | None = None, after: int | None = None, follow: bool = False) -> Events:
        """Events after the position ``after``, in commit order; with ``follow`` for ever, looking four
        times a second. Without ``after`` from the oldest that is kept.

        Raises `CursorTooOld` in the loop if events after that position, or after the last one given out, are no
        longer kept.
        """
        return Events(self.database.read, Page(company, after), _wait_a_little if follow else None)

    async def last_position(self) -> int:
        """The position of the newest event, whether or not it is still kept; 0 if there has been none."""
        row = await self.database.read(lambda conn: conn.execute(SQL["last_position"]).fetchone())
        return int(row[0])

    def check(self) -> None:
        """Nothing in memory can be mistaken for the parent's: the connection itself refuses a forked child."""

    def actor(self, _company: str) -> CompanyActor | None:
        return None

    def live_in_words(self, _company: str) -> Live:
        return Live(no_host=self.owner is None)

    @property
    def handlers_known(self) -> frozenset[str] | None:
        return None


@asynccontextmanager
async def open_reader(path: str | os.PathLike[str]) -> AsyncIterator[Reader]:
    """Open an existing database for reading only, from any process, beside whoever runs it.

    Raises `NotADatabase` (also if there is no such file), `SchemaTooNew`, `StoreUnavailable`.
    """
    from storage.bridge import open_bridge

    name = locate(path)
    async with bare_nursery(), open_bridge() as bridge:
        yield Reader(name, await bridge.connect(lambda: open_connection(name)))
