"""Letting go of what is old, in small units that each tell of themselves.

What lies in the log, and attempts of runs that are settled, rests in nobody's memory: those units go straight
to the writer. A task is another matter. A turn reads rows and decides by what it read, so a task may only go
between two turns of its company: where an actor lives it commits the unit itself, and spares what it holds in
memory. Where none lives, the unit carries the company's epoch, so it is refused if an actor has come since.

Each unit asks once more, in its own transaction, whether what was found may still go.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from typing import Protocol, TypeVar

import attrs
import trio

from actors.errors import CompanyDeleted, CompanyUnknown
from actors.retention import PruneReport, Retention
from storage.database import Database
from storage.errors import OutcomeUnknown, StaleEpoch, StoreClosed, StoreUnavailable
from storage.logging import get_logger
from storage.records import EventRecord
from storage.retention import (
    ROWS_MAX,
    AttemptRow,
    Cutoffs,
    OldCompany,
    dependents_of,
    going_together,
    is_old,
    look_at_attempts,
    look_at_tasks,
    old_companies,
    old_log_end,
    prune_attempts,
    prune_hosts,
    prune_log,
    remove_task,
    upstream_seqs,
)
from storage.statements import SQL
from storage.units import Committed, write_events
from storage.writer import Unit

from .describe import describe

T = TypeVar("T")

_log = get_logger("turnkeeper")

TASKS_MAX = 100
"""Tasks of one unit, if they have few rows."""
REST_S = 0.01
"""Between two units: the writer belongs to others for most of the time."""
IDS_SHOWN = 100
"""Ids in one ``tasks.pruned`` event; the count beside them is the whole."""
LOG_PRUNED = "log.pruned"


def cutoffs_of(retention: Retention, now_ms: int) -> Cutoffs:
    """The moments before which things may go."""

    def before(age_s: float | None) -> int | None:
        return None if age_s is None else max(0, now_ms - round(age_s * 1000))

    return Cutoffs(
        now_ms,
        events_ms=before(retention.events_s),
        attempts_ms=before(retention.attempts_s),
        tasks_ms=before(retention.tasks_s),
        archived_ms=before(retention.archived_s),
        keys_ms=before(retention.keys_s),
    )


# --- units --------------------------------------------------------------------------------------------------


@attrs.frozen
class PruneLog:
    """The unit that lets the beginning of the log go, up to ``last``; what it says stands at the end of the log.

    Returns how many lines went, and the event with its position; nothing if there was nothing left to do.
    """

    last: int
    before_ms: int
    now_ms: int

    def __call__(self, conn: sqlite3.Connection) -> tuple[int, EventRecord, int] | None:
        floor, count = prune_log(conn, self.last)
        if count == 0:
            return None
        data = {"floor": floor, "count": count, "hosts": prune_hosts(conn, self.before_ms)}
        event = EventRecord(LOG_PRUNED, self.now_ms, data=data)
        return count, event, write_events(conn, None, None, [event])


Told = tuple[Committed, tuple[EventRecord, ...]]
"""What a unit added to the company's part of the log."""


@attrs.frozen
class PruneAttempts:
    """The unit that lets attempts go. Returns how many, and what it told; nothing if there were none."""

    company_id: int
    keys: Sequence[AttemptRow]
    before_ms: int
    now_ms: int

    def __call__(self, conn: sqlite3.Connection) -> tuple[int, Told] | None:
        if conn.execute(SQL["epoch_of"], {"company_id": self.company_id}).fetchone() is None:
            return None
        count = prune_attempts(conn, self.company_id, self.keys, self.before_ms)
        if count == 0:
            return None
        event = EventRecord("attempts.pruned", self.now_ms, data={"count": count})
        return count, tell(conn, self.company_id, event)


@attrs.frozen
class PrunedTasks:
    """``freed``: numbers of tasks on which those that went depended; they may be the next."""

    seqs: frozenset[int]
    freed: tuple[int, ...]
    told: Told


@attrs.frozen
class PruneTasks:
    """The unit that lets tasks go, each whole. ``epoch`` is that of the actor whose memory was asked, or of the
    company as it was when nobody lived: raises `StaleEpoch` if it is over.
    """

    company_id: int
    name: str
    epoch: int
    seqs: Sequence[int]
    cutoffs: Cutoffs
    now_ms: int

    def __call__(self, conn: sqlite3.Connection) -> PrunedTasks | None:
        row = conn.execute(SQL["epoch_of"], {"company_id": self.company_id}).fetchone()
        if row is None or row[0] != self.epoch:
            raise StaleEpoch(self.name, self.epoch)
        gone: dict[int, str] = {}
        freed: dict[int, None] = {}
        rows = 0
        for seq in self.seqs:
            task = is_old(conn, self.company_id, seq, self.cutoffs)
            if rows < ROWS_MAX and task is not None and not dependents_of(conn, self.company_id, task, 1):
                freed.update(dict.fromkeys(upstream_seqs(conn, self.company_id, seq)))
                rows += remove_task(conn, self.company_id, seq)
                gone[seq] = task
        if not gone:
            return None
        ids = list(gone.values())
        data = {"count": len(ids), "ids": ids[:IDS_SHOWN]}
        told = tell(conn, self.company_id, EventRecord("tasks.pruned", self.now_ms, data=data))
        return PrunedTasks(frozenset(gone), tuple(seq for seq in freed if seq not in gone), told)


def tell(conn: sqlite3.Connection, company_id: int, event: EventRecord) -> Told:
    """Write a line in the company's part of the log, in a unit that is not a turn's."""
    params = {"company_id": company_id, "events": 1}
    (seq,) = conn.execute(SQL["number_events"], params).fetchone()
    return Committed(write_events(conn, company_id, seq, [event]), seq, ()), (event,)


# --- the walk -----------------------------------------------------------------------------------------------


class Place(Protocol):
    """Where it is pruned: in a runtime, or in a database that nobody runs."""

    database: Database

    def now_ms(self) -> int: ...
    def alive(self, company: str) -> Container[int]:
        """Numbers of the company's tasks of which an attempt lives in this process, or was left behind in it."""
        ...

    def told(self, position: int, event: EventRecord) -> None: ...
    def published(self, company: str, events: tuple[EventRecord, ...], committed: Committed) -> None: ...
    async def between_turns(
        self, company: OldCompany, prepare: Callable[[int, Container[str]], Unit[T] | None]
    ) -> T | None:
        """Commit a unit while no turn of the company is under way. ``prepare`` is given the epoch and the ids of
        tasks in memory, and is called when nothing can begin any more before the unit; it may return nothing.
        """
        ...


class Pruner:
    """One pass after the other over everything that may be old."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._events = self._attempts = self._tasks = self._errors = 0

    async def prune(self, retention: Retention, *, companies: bool = True) -> PruneReport:
        """One pass. Without ``companies`` only the log is looked at, which costs one small reading.

        Raises `StorageError` if the store is away or closed. Cancellation: stops between two units.
        """
        cutoffs = cutoffs_of(retention, self._place.now_ms())
        self._events = self._attempts = self._tasks = self._errors = 0
        if cutoffs.events_ms is not None:
            await self._prune_log(cutoffs, cutoffs.events_ms)
        if companies and any(age_s is not None for age_s in retention.walked):
            await self._walk(cutoffs)
        return PruneReport(self._place.now_ms(), self._events, self._attempts, self._tasks, self._errors)

    async def _commit(self, unit: Unit[T]) -> T:
        value = await self._place.database.writer.commit(unit)
        await trio.sleep(REST_S)
        return value

    async def _prune_log(self, cutoffs: Cutoffs, before_ms: int) -> None:
        look = partial(old_log_end, cutoffs=cutoffs, kind=LOG_PRUNED)
        while (last := await self._place.database.read(look)) is not None:
            done = await self._commit(PruneLog(last, before_ms, self._place.now_ms()))
            if done is not None:
                count, event, position = done
                self._events += count
                self._place.told(position, event)

    async def _walk(self, cutoffs: Cutoffs) -> None:
        after: int | None = 0
        while after is not None:
            found, after = await self._place.database.read(
                partial(old_companies, cutoffs=cutoffs, after=after)
            )
            for company in found:
                try:
                    await self._prune_attempts(company, cutoffs)
                    await self._prune_tasks(company, cutoffs)
                except (StoreUnavailable, StoreClosed, OutcomeUnknown):
                    raise
                except (CompanyDeleted, CompanyUnknown):
                    pass  # it is gone, and so is what was old in it
                except Exception as error:  # one company's, whatever it is
                    self._errors += 1
                    _log.warning("pruning.company_failed", company=company.name, cause=describe(error))

    async def _prune_attempts(self, company: OldCompany, cutoffs: Cutoffs) -> None:
        before_ms = cutoffs.attempts_ms
        after: AttemptRow | None = (0, 0, 0, 0)
        while after is not None and before_ms is not None:
            look = partial(look_at_attempts, company=company, before_ms=before_ms, after=after)
            old, after = await self._place.database.read(look)
            alive = self._place.alive(company.name)
            keys = [key for key in old if key[0] not in alive]
            if keys:
                unit = PruneAttempts(company.company_id, keys, before_ms, self._place.now_ms())
                done = await self._commit(unit)
                if done is not None:
                    self._attempts += done[0]
                    self._publish(company, done[1])

    async def _prune_tasks(self, company: OldCompany, cutoffs: Cutoffs) -> None:
        after: int | None = 0
        while after is not None:
            look = partial(look_at_tasks, company=company, cutoffs=cutoffs, after=after)
            starts, after = await self._place.database.read(look)
            while starts:
                starts = await self._prune_from(company, cutoffs, starts)

    async def _prune_from(self, company: OldCompany, cutoffs: Cutoffs, starts: Iterable[int]) -> list[int]:
        """One unit of tasks, found from ``starts``; returns where to look for the next, nothing if none went."""
        company_id = company.company_id
        going = await self._place.database.read(
            lambda conn: going_together(conn, company_id, cutoffs, starts, TASKS_MAX)
        )
        if not going:
            return []

        def prepare(epoch: int, held: Container[str]) -> Unit[PrunedTasks | None] | None:
            alive = self._place.alive(company.name)
            seqs = [seq for seq, task in going.items() if task not in held and seq not in alive]
            now_ms = self._place.now_ms()
            return PruneTasks(company_id, company.name, epoch, seqs, cutoffs, now_ms) if seqs else None

        done = await self._place.between_turns(company, prepare)
        await trio.sleep(REST_S)
        if done is None:
            return []
        self._tasks += len(done.seqs)
        self._publish(company, done.told)
        return [*(seq for seq in starts if seq not in done.seqs), *done.freed]

    def _publish(self, company: OldCompany, told: Told) -> None:
        committed, events = told
        self._place.published(company.name, events, committed)
