"""The supervisor: watches over the company of each cell of the directory, with a wrapper that catches.

A crashed actor is started again from stored facts after a rest that grows; while the rest is long the company
is parked. One company's trouble never reaches another.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Any

import trio

from actors.core.restart import PARKED_ABOVE_S, add_crash, delay_s
from actors.core.schedules.state import schedule_of
from actors.core.turn import BadRow, TurnFailed
from actors.errors import CompanyDeleted, CompanyUnknown, OutcomeUnknown, RuntimeClosed
from storage.codec import clean_text
from storage.contract.recovery import DisableSchedule, FindTask, Quarantine
from storage.errors import StaleEpoch, StoreClosed, StoreLost, StoreUnavailable
from storage.logging import get_logger
from storage.records import Claim, EventRecord

from .clock import WallWatch
from .company import CompanyActor
from .describe import describe
from .directory import Cell
from .executor import Executor
from .services import Services

_log = get_logger("turnkeeper")

AGAIN_MAX = 100
AGAIN_S = 1.0
"""Companies that are started in one go. If the wall clock went back, all that wait for a time have to look: so many
at once, and the next a second later."""


class Supervisor:
    def __init__(self, nursery: trio.Nursery, services: Services, executor: Executor) -> None:
        self._nursery = nursery
        self._services = services
        self._executor = executor
        self._directory = services.directory
        self._directory.start = self._start
        self._wall = WallWatch(services.now_ms(), trio.current_time())
        self._again: deque[str] = deque()
        """Absent companies that have to look, because the wall clock went back."""

    def _start(self, cell: Cell) -> None:
        if self._nursery.cancel_scope.cancel_called:
            raise RuntimeClosed
        self._nursery.start_soon(self._watch, cell, name=f"company {cell.name}")

    # --- due times of absent companies ----------------------------------------------------------------------

    def clock_showed(self, last_ms: int) -> None:
        """The wall clock has shown this before the process began."""
        self._wall = WallWatch(last_ms, trio.current_time())
        self._directory.due_changed.set()

    async def bring_back(self) -> None:
        """Start companies whose due time has come, a page at a time. One child for all of them."""
        while True:
            self._directory.due_changed = trio.Event()
            now_ms = self._services.now_ms()
            if self._wall.went_back(now_ms, trio.current_time()):
                self._again.extend(self._directory.due)
            self._look_again()
            woken = 0
            while (
                (first := self._directory.due.first()) is not None
                and first[0] <= now_ms
                and woken < AGAIN_MAX
            ):
                self._directory.due.forget(first[1])
                self._directory.wake(first[1])
                woken += 1
            longest_s = AGAIN_S if self._again else 60.0
            wait_s = longest_s if first is None else min(max(0.0, (first[0] - now_ms) / 1000), longest_s)
            with trio.move_on_after(wait_s):
                await self._directory.due_changed.wait()

    def _look_again(self) -> None:
        """Start some of those that the clock left behind: what they wait for may be due by another reckoning."""
        for _ in range(min(len(self._again), AGAIN_MAX)):
            company = self._again.popleft()
            if company in self._directory.due:
                self._directory.wake(company)

    # --- watching over one company --------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def _watch(self, cell: Cell) -> None:
        """Run the company's actors, one after the other, until one leaves. Catches everything but
        cancellation.
        """
        try:
            while not self._directory.closed:
                actor = CompanyActor(cell, self._services, self._executor)
                cell.careful = False
                try:
                    await actor.run()
                except (StaleEpoch, StoreClosed, OutcomeUnknown) as error:
                    self._end(cell, error)
                    return
                except (CompanyDeleted, CompanyUnknown) as error:
                    cell.mailbox.close(error)  # what comes from now on is for another company of this name
                    return
                except StoreLost as error:
                    cell.mailbox.close(error)
                    return
                except StoreUnavailable:
                    await trio.sleep(1.0)  # not a crash: the store is away, and reading will work again
                    continue
                except Exception as error:
                    await self._survive(cell, error)
                    continue
                return
        finally:
            cell.memory = None
            cell.end_claims()
            self._directory.remove(cell)
            if cell.mailbox.closed is None and (not cell.mailbox.unused or self._directory.closed):
                cell.mailbox.close(RuntimeClosed())

    def _end(self, cell: Cell, error: BaseException) -> None:
        _log.error("actor.ended", company=cell.name, cause=describe(error))
        cell.mailbox.close(error if isinstance(error, OutcomeUnknown) else RuntimeClosed(str(error)))

    async def _survive(self, cell: Cell, error: Exception) -> None:
        """`_crashed`, which must not fail itself: nothing that happens to one company may reach the nursery."""
        try:
            await self._crashed(cell, error)
        except Exception as second:
            with suppress(Exception):
                _log.error(
                    "actor.crash_unrecorded", company=cell.name, cause=describe(second), exc_info=second
                )
            await self._rest(cell, max(1.0, delay_s(len(cell.crashes))), describe(error), tell=False)

    async def _crashed(self, cell: Cell, error: Exception) -> None:
        """Write down the crash, set aside a task or a schedule that caused two in a row, and rest."""
        cell.memory, cell.careful = None, True
        cause = error.cause if isinstance(error, TurnFailed) else error
        about = error.about if isinstance(error, TurnFailed) else None
        text = describe(cause)
        bad_row = isinstance(cause, BadRow)
        again = about is not None and (about == cell.last_about or bad_row)
        cell.last_about = None if again else about
        task = None if about is None or schedule_of(about) is not None else about
        _log.error("actor.crashed", company=cell.name, cause=text, task=task, exc_info=cause)
        cell.crashes = add_crash(cell.crashes, trio.current_time())
        if again and about is not None and await self._set_aside(cell, about, cause):
            cell.crashes = ()
        rest_s = delay_s(len(cell.crashes))
        await self._record(cell, "actor.crashed", task=task, reason=text, data={"cause": text})
        if rest_s > 0:
            await self._rest(cell, rest_s, text)

    async def _rest(self, cell: Cell, rest_s: float, cause: str, *, tell: bool = True) -> None:
        """Rest before the next try, parked if it is long. ``tell``: whether events can be stored."""
        cell.unpark, cell.unparked = trio.Event(), False
        if rest_s > PARKED_ABOVE_S:
            cell.parked = cause
            cell.parked_until_s = trio.current_time() + rest_s
            cell.mailbox.fail_all(cell.parked_error, asked_only=True)
        try:
            if tell and cell.parked is not None:
                data = {"cause": cause, "wait_s": rest_s}
                await self._record(cell, "company.parked", reason=cause, data=data)
            if not self._services.shutdown.closing:
                with trio.move_on_after(rest_s):
                    await cell.unpark.wait()
        finally:
            was_parked, cell.parked = cell.parked, None
        if cell.unparked:
            cell.crashes = ()
            if tell and was_parked is not None:
                await self._record(cell, "company.unparked")

    async def _record(self, cell: Cell, kind: str, **fields: Any) -> None:
        """Store an event about the company's actor. One that crashed before it had a claim has nothing to store
        it under; the log of the process tells of it.
        """
        if cell.claim is not None:
            event = EventRecord(kind, self._services.now_ms(), **fields)
            await self._services.publisher.record_of_company(cell.claim, event)

    def hurry(self) -> None:
        """The runtime closes: who rests tries once more, so that ends of attempts are committed."""
        for cell in self._directory.cells:
            cell.unpark.set()

    async def _set_aside(self, cell: Cell, about: str, cause: BaseException) -> bool:
        """Disable the schedule, or quarantine the task, durably. False if it is not stored."""
        claim, schedule = cell.claim, schedule_of(about)
        if claim is None:
            return False
        if schedule is None:
            return await self._quarantine(claim, about, cause)
        why = clean_text(f"its moves failed twice: {describe(cause)}")
        asked = DisableSchedule(claim, schedule, why, self._services.now_ms())
        committed, events = await self._services.store.commit(asked)
        self._services.publisher.published(cell.name, events, committed)
        return bool(events)

    async def _quarantine(self, claim: Claim, task: str, cause: BaseException) -> bool:
        """Its attempts are told to end, and their reports will be late. False as well if it is set aside already: then
        that does not help, and the company rests.
        """
        import traceback

        shown = "".join(traceback.format_exception(cause))[-20_000:]
        name = claim.name
        found = await self._services.store.fetch(FindTask(name, task))
        if found is None or found.quarantined:
            return False
        why = clean_text(f"its moves failed twice: {describe(cause)}")
        if isinstance(cause, BadRow):
            why = clean_text(str(cause))
        asked = Quarantine(claim, task, found.seq, why, shown, self._services.now_ms())
        committed, events = await self._services.store.commit(asked)
        self._services.publisher.published(name, events, committed)
        for attempt in self._services.registry.of_company(name):
            if attempt.ref.key.task == task:
                self._executor.cancel(attempt.ref, "superseded")
        return True
