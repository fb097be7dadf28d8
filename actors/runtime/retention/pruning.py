"""Removing what is old, in small steps.

The log belongs to nobody, and attempts of settled runs are in nobody's memory: those operations go straight to the
store. A task is different. A turn reads rows and decides by what it read, so a task may only go between two turns of
its company. Where an actor lives it commits the operation itself, and spares what it holds in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Protocol, TypeVar

import trio

from actors.errors import CompanyDeleted, CompanyUnknown
from actors.runtime.describe import describe
from storage.contract.retention import (
    FIRST_ATTEMPT,
    AttemptKey,
    Cutoffs,
    FindOldAttempts,
    FindOldCompanies,
    FindOldLogEnd,
    FindOldTasks,
    FindPrunableTasks,
    Logged,
    OldCompany,
    PruneAttempts,
    PrunedTasks,
    PruneLog,
    PruneTasks,
)
from storage.contract.store import Operation, Store
from storage.errors import OutcomeUnknown, StaleEpoch, StoreClosed, StoreUnavailable
from storage.logging import get_logger
from storage.records import Claim

from .policy import PruneReport, Retention

T = TypeVar("T")

_log = get_logger("turnkeeper")

TASKS_MAX = 100
"""Tasks of one operation, if they have few rows."""
REST_S = 0.01
"""Between two operations: the writer belongs to others for most of the time."""


class Place(Protocol):
    """Where it is pruned: in a runtime, or in a database that nobody runs."""

    @property
    def store(self) -> Store: ...

    def now_ms(self) -> int: ...
    def alive(self, company: str) -> Container[int]:
        """Numbers of the company's tasks with an attempt that lives in this process, or was left behind in it."""
        ...

    def told(self, company: str | None, logged: Logged) -> None:
        """This event is durable."""
        ...

    async def between_turns(
        self, claim: Claim, prepare: Callable[[Claim, Container[str]], Operation[T] | None]
    ) -> T | None:
        """Commit an operation while no turn of the company is under way.

        ``prepare`` is given the claim that is valid, the actor's if one lives, and the ids of the tasks in memory. It
        is called when no turn can begin any more before the operation; it may return nothing. Answers ``None`` also
        if an actor came after ``claim`` was read.
        """
        ...


class Pruner:
    """One pass after the other over everything that may be old."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._events = self._attempts = self._tasks = self._errors = 0

    async def prune(self, retention: Retention, *, companies: bool = True) -> PruneReport:
        """One pass. Without ``companies`` only the log is looked at, which costs one small reading.

        Raises `StorageError` if the store is away or closed. Cancellation: stops between two operations.
        """
        cutoffs = retention.cutoffs(self._place.now_ms())
        self._events = self._attempts = self._tasks = self._errors = 0
        if cutoffs.events_ms is not None:
            await self._prune_log(cutoffs, cutoffs.events_ms)
        if companies and any(age_s is not None for age_s in retention.walked):
            await self._walk(cutoffs)
        return PruneReport(self._place.now_ms(), self._events, self._attempts, self._tasks, self._errors)

    async def _commit(self, operation: Operation[T]) -> T:
        answer = await self._place.store.commit(operation)
        await trio.sleep(REST_S)
        return answer

    async def _prune_log(self, cutoffs: Cutoffs, before_ms: int) -> None:
        while (last := await self._place.store.fetch(FindOldLogEnd(cutoffs))) is not None:
            pruned = await self._commit(PruneLog(last, before_ms, self._place.now_ms()))
            if pruned is not None:
                self._events += pruned.count
                self._place.told(None, pruned.logged)

    async def _walk(self, cutoffs: Cutoffs) -> None:
        after: int | None = 0
        while after is not None:
            page = await self._place.store.fetch(FindOldCompanies(cutoffs, after))
            for company in page.found:
                await self._prune_company(company, cutoffs)
            after = page.after

    async def _prune_company(self, company: OldCompany, cutoffs: Cutoffs) -> None:
        try:
            if cutoffs.attempts_ms is not None:
                await self._prune_attempts(company, cutoffs.attempts_ms)
            await self._prune_tasks(company, cutoffs)
        except (StoreUnavailable, StoreClosed, OutcomeUnknown):
            raise
        except (CompanyDeleted, CompanyUnknown):
            pass  # it is gone, and so is what was old in it
        except Exception as error:  # one company's, whatever it is
            self._errors += 1
            _log.warning("pruning.company_failed", company=company.name, cause=describe(error))

    async def _prune_attempts(self, company: OldCompany, before_ms: int) -> None:
        after: AttemptKey | None = FIRST_ATTEMPT
        while after is not None:
            page = await self._place.store.fetch(FindOldAttempts(company, before_ms, after))
            alive = self._place.alive(company.name)
            for found in page.found:
                if keys := [key for key in found.items if key[0] not in alive]:
                    claim = Claim(company.company_id, company.name, found.epoch)
                    await self._prune_these(claim, keys, before_ms)
            after = page.after

    async def _prune_these(self, claim: Claim, keys: Sequence[AttemptKey], before_ms: int) -> None:
        try:
            pruned = await self._commit(PruneAttempts(claim, keys, before_ms, self._place.now_ms()))
        except StaleEpoch:
            return  # an actor has come since they were found: the next pass finds them again
        if pruned is not None:
            self._attempts += pruned.count
            self._place.told(claim.name, pruned.logged)

    async def _prune_tasks(self, company: OldCompany, cutoffs: Cutoffs) -> None:
        after: int | None = 0
        while after is not None:
            page = await self._place.store.fetch(FindOldTasks(company, cutoffs, after))
            starts = page.found
            while starts:
                starts = await self._prune_from(company, cutoffs, starts)
            after = page.after

    async def _prune_from(
        self, company: OldCompany, cutoffs: Cutoffs, starts: Sequence[int]
    ) -> Sequence[int]:
        """One operation on tasks found from ``starts``; returns where to look for the next, nothing if none went."""
        query = FindPrunableTasks(company.company_id, cutoffs, starts, TASKS_MAX)
        found = await self._place.store.fetch(query)
        if found is None or not found.items:
            return ()
        tasks = found.items

        def prepare(claim: Claim, held: Container[str]) -> Operation[PrunedTasks | None] | None:
            alive = self._place.alive(company.name)
            seqs = [seq for seq, task in tasks.items() if task not in held and seq not in alive]
            return PruneTasks(claim, seqs, cutoffs, self._place.now_ms()) if seqs else None

        claim = Claim(company.company_id, company.name, found.epoch)
        pruned = await self._place.between_turns(claim, prepare)
        await trio.sleep(REST_S)
        if pruned is None:
            return ()
        self._tasks += len(pruned.seqs)
        self._place.told(company.name, pruned.logged)
        return [*(seq for seq in starts if seq not in pruned.seqs), *pruned.freed]
