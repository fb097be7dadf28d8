"""Keeping the database small while it runs: the part of the sweep that lets go instead of healing.

A child of its own, in the sweep's rhythm, so that letting go never delays healing. It finishes deletions that
were begun, cuts a write-ahead log that has grown, and prunes by age. The log is looked at every time, which
costs one small reading; companies are walked only so often that nothing lies there much longer than it should:
a fiftieth of the shortest age. Without a `Retention` the one reading is that of unfinished deletions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from contextlib import suppress
from typing import TypeVar

import attrs
import trio

from actors.core.state import CompanyState
from actors.errors import CompanyDeleted, CompanyUnknown, RuntimeClosed
from actors.runtime.attempts import Attempt
from actors.runtime.describe import describe
from actors.runtime.directory import Cell
from actors.runtime.mailbox import Errand
from actors.runtime.services import Services
from actors.runtime.sweep import ANSWER_S, EVERY_S
from storage.contract.companies import FindCompany
from storage.contract.retention import ListDeletions, Logged, MarkDeleted, Marked
from storage.contract.store import Operation, Store
from storage.contract.turns import Committed
from storage.errors import OutcomeUnknown, StaleEpoch, StoreClosed, StoreUnavailable
from storage.logging import get_logger
from storage.records import Claim, CompanyRecord, EventRecord

from .deletion import finish_deletion, mark_of, refused_if_active
from .policy import DeletedCompany, PruneReport, Retention
from .pruning import Pruner

T = TypeVar("T")

_log = get_logger("turnkeeper")

WALKS_PER_AGE = 50
WALK_AT_LEAST_EVERY_S = 6 * 3600.0


class Housekeeper:
    """Also the `Place` where a runtime is pruned."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.store: Store = services.store
        self.last: PruneReport | None = None
        self._pruner = Pruner(self)
        self._pruning = trio.Lock()
        self._walk_at_s = -math.inf
        self._waited_for: set[int] = set()
        """Companies whose deletion is seen to by whoever asked for it."""
        self._wake = trio.Event()
        self._wal_told = False

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Tidy for ever."""
        while True:
            self._wake = trio.Event()
            try:
                await self.tidy()
            except Exception as error:  # the store is away, or a mistake of ours: the next pass tries again
                _log.warning("housekeeping.failed", cause=describe(error), exc_info=error)
            with trio.move_on_after(EVERY_S):
                await self._wake.wait()

    async def tidy(self) -> None:
        """One pass."""
        for claim in await self.store.fetch(ListDeletions()):
            if claim.company_id not in self._waited_for:
                await self._finish_deletion(claim)
        await self._look_at_wal()
        retention = self._services.options.retention
        if not retention.keeps_all:
            await self._prune(retention, companies=trio.current_time() >= self._walk_at_s)

    async def _finish_deletion(self, claim: Claim) -> None:
        try:
            await finish_deletion(self, claim)
        except (StoreUnavailable, StoreClosed, OutcomeUnknown):
            raise
        except Exception as error:  # one company's, whatever it is; the next pass tries again
            cause = describe(error)
            _log.warning("deletion.failed", company_id=claim.company_id, cause=cause, exc_info=error)

    # --- pruning --------------------------------------------------------------------------------------------

    async def prune(self, retention: Retention | None) -> PruneReport:
        """One whole pass now, after one that is under way."""
        return await self._prune(self._services.options.retention if retention is None else retention)

    async def _prune(self, retention: Retention, *, companies: bool = True) -> PruneReport:
        async with self._pruning:
            began_s = trio.current_time()
            report = self.last = await self._pruner.prune(retention, companies=companies)
            if companies and retention is self._services.options.retention:
                self._walk_at_s = began_s + _between_walks_s(retention)
        return report

    def now_ms(self) -> int:
        return self._services.now_ms()

    def alive(self, company: str) -> frozenset[int]:
        return frozenset(attempt.ref.key.seq for attempt in self._attempts_of(company))

    def _attempts_of(self, company: str) -> list[Attempt]:
        """Those that live, and those that were left behind."""
        registry = self._services.registry
        left = (attempt for attempt in registry.abandoned if attempt.ref.company == company)
        return [*registry.of_company(company), *left]

    def told(self, company: str | None, logged: Logged) -> None:
        if company is None:
            self._services.publisher.told(logged.position, logged.event)
        else:
            assert logged.seq is not None, "it belongs to a company"
            committed = Committed(logged.position, logged.seq)
            self._services.publisher.published(company, (logged.event,), committed)

    async def between_turns(
        self, claim: Claim, prepare: Callable[[Claim, Container[str]], Operation[T] | None]
    ) -> T | None:
        """Where an actor lives it does it, else nobody can come before the operation: it is handed in at once. A
        company that is parked is passed by, and so is another company that has the name by now.
        """
        cell = self._services.directory.find(claim.name)
        if cell is None:
            operation = prepare(claim, ())
            if operation is None:
                return None
            try:
                return await self.store.commit(operation)
            except StaleEpoch:  # an actor has come, and maybe gone, since the company was looked at
                return None
        if cell.parked is not None:
            return None

        def prepared(state: CompanyState) -> Operation[T] | None:
            own = state.company.claim
            return prepare(own, state.entries) if own.company_id == claim.company_id else None

        errand = Errand(prepared)
        cell.mailbox.put_errand(errand)
        with trio.fail_after(ANSWER_S):
            answer: T | None = await errand.reply.wait()
        return answer

    # --- the write-ahead log --------------------------------------------------------------------------------

    async def _look_at_wal(self) -> None:
        wal = await self.store.shrink()
        if wal.bytes > self.store.wal_kept_bytes and not self._wal_told:
            self._wal_told = True
            data = {"bytes": wal.bytes, "limit_bytes": self.store.wal_kept_bytes}
            await self._services.publisher.record(EventRecord("wal.grown", self.now_ms(), data=data))
        elif wal.bytes <= self.store.wal_kept_bytes and self._wal_told:
            self._wal_told = False
            event = EventRecord("wal.shrunk", self.now_ms(), data={"bytes": wal.bytes})
            await self._services.publisher.record(event)

    # --- deleting a company ---------------------------------------------------------------------------------

    async def delete_company(self, name: str) -> DeletedCompany:
        """Mark the company and see to its end. See `Runtime.delete_company`."""
        order = _Order(name)
        try:
            with refused_if_active(name):
                marked = await self._mark(order)
            self._services.directory.due.forget(name)
            self.told(name, marked.logged)
            deleted = await finish_deletion(self, marked.claim)
            assert deleted is not None, "nobody else sees to it"
            return deleted
        finally:
            order.given_up = True
            self._waited_for.discard(order.company_id)
            self._wake.set()  # whatever is left is seen to by the next pass

    async def _mark(self, order: _Order) -> Marked:
        while True:
            self._services.guard.check()
            if self._services.shutdown.closing:
                raise RuntimeClosed
            with suppress(StaleEpoch):  # an actor has come, or was replaced, since it was looked at
                cell = self._services.directory.find(order.name)
                if cell is not None:
                    return await self._mark_with_actor(order, cell)
                company = await self.store.fetch(FindCompany(order.name))
                if company is None:
                    raise CompanyUnknown(order.name)
                if self._services.directory.find(order.name) is None:
                    return await self.store.commit(self._mark_of(company, order))

    async def _mark_with_actor(self, order: _Order, cell: Cell) -> Marked:
        if cell.parked is not None:
            raise cell.parked_error

        def prepare(state: CompanyState) -> MarkDeleted | None:
            return None if order.given_up else self._mark_of(state.company, order)

        errand = Errand(prepare, last=True)
        try:
            cell.mailbox.put_errand(errand)
            marked: Marked = await errand.reply.wait()
        except CompanyDeleted:  # somebody else was first
            raise CompanyUnknown(order.name) from None
        return marked

    def _mark_of(self, company: CompanyRecord, order: _Order) -> MarkDeleted:
        order.company_id = company.company_id
        self._waited_for.add(company.company_id)
        attempts = [attempt.label for attempt in self._attempts_of(company.name)]
        return mark_of(company, attempts, self.now_ms())


@attrs.define
class _Order:
    """Somebody wants a company deleted, and waits for it as long as he has not given up."""

    name: str
    company_id: int = 0
    given_up: bool = False


def _between_walks_s(retention: Retention) -> float:
    ages_s = [age_s for age_s in retention.walked if age_s is not None]
    return min(max(EVERY_S, min(ages_s, default=math.inf) / WALKS_PER_AGE), WALK_AT_LEAST_EVERY_S)
