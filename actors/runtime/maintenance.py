"""What can be done to a database without running it: a copy, pruning, deleting a company.

A copy is made beside whoever runs the database. The others need to own it, so they are refused while a host
runs; they start no actor and no task, and leave what is unsettled as it is.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Container
from contextlib import asynccontextmanager

import attrs
import trio

from actors.errors import CompanyUnknown
from actors.retention import DeletedCompany, PruneReport, Retention
from storage.backup import back_up, back_up_open
from storage.codec import check_name
from storage.database import Database, open_database
from storage.loading import find_company
from storage.location import locate
from storage.opening import open_reader
from storage.records import EventRecord
from storage.retention import OldCompany
from storage.units import Committed
from storage.writer import Unit

from .deletion import MarkDeleted, finish_deletion, marked_companies
from .pruning import Pruner, T


@attrs.define
class _Unattended:
    """The `Place` of a database that nobody runs: no actor is there, and none can come."""

    database: Database

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def alive(self, _company: str) -> Container[int]:
        return ()

    def told(self, _position: int, _event: EventRecord) -> None:
        """It is in the log."""

    def published(self, _company: str, _events: tuple[EventRecord, ...], _committed: Committed) -> None:
        """It is in the log."""

    async def between_turns(
        self, company: OldCompany, prepare: Callable[[int, Container[str]], Unit[T] | None]
    ) -> T | None:
        unit = prepare(company.epoch, ())
        return None if unit is None else await self.database.writer.commit(unit)


@asynccontextmanager
async def _owned(path: str | os.PathLike[str]) -> AsyncIterator[_Unattended]:
    """The database, which must exist; deletions that were begun are finished first."""
    path = locate(path)
    await trio.to_thread.run_sync(lambda: open_reader(path).close())
    async with open_database(path) as database:
        place = _Unattended(database)
        for company_id in await marked_companies(database):
            await finish_deletion(place, company_id)
        yield place


async def prune(path: str | os.PathLike[str], retention: Retention) -> PruneReport:
    """Let go of what is old in a database that nobody runs. A host prunes by itself: `open_runtime(retention=…)`.

    Raises `DatabaseInUse` naming the process that runs it, `NotADatabase`, `SchemaTooNew`, `StoreUnavailable`.
    Cancellation: stops between two units.
    """
    async with _owned(path) as place:
        return await Pruner(place).prune(retention)


async def delete_company(path: str | os.PathLike[str], name: str) -> DeletedCompany:
    """Delete a company of a database that nobody runs; see `Runtime.delete_company`.

    Raises `CompanyUnknown`; `CompanyActive` for one that has active runs, also if the process that ran them has
    died: open the runtime and stop them; the rest as `prune`. Cancellation: what has begun goes on with the next
    opening.
    """
    check_name(name, what="a company's name")
    async with _owned(path) as place:
        company = await place.database.read(lambda conn: find_company(conn, name))
        if company is None:
            raise CompanyUnknown(name)
        unit = MarkDeleted(company.company_id, name, company.epoch, (), place.now_ms())
        await place.database.writer.commit(unit)
        deleted = await finish_deletion(place, company.company_id)
        assert deleted is not None, "nobody else is there"
        return deleted


async def backup(path: str | os.PathLike[str], target: str | os.PathLike[str]) -> int:
    """Write a copy of the database at ``path`` to ``target``, beside whoever runs it; see `Runtime.backup`.

    Raises `NotADatabase` and `SchemaTooNew` besides.
    """
    source, copy = locate(path), os.path.abspath(target)
    return await trio.to_thread.run_sync(
        lambda: back_up(source, copy, go_on=trio.from_thread.check_cancelled)
    )


async def copy_of(database: Database, target: str | os.PathLike[str]) -> int:
    """The copy of a database that is open here."""

    def go_on() -> None:
        if database.how == "thread":
            trio.from_thread.check_cancelled()

    copy = os.path.abspath(target)
    if database.writer.lost is not None:
        return await database.writer.between_commits(lambda raw: back_up_open(raw, copy))
    return await database.apart(lambda: back_up(database.path, copy, go_on=go_on))
