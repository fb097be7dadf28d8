"""The supervisor: a directory of companies that have something to do, each watched over by a wrapper that
catches.

A company is a *cell*: its mailbox, its actor if one runs, and its crashes. The cell outlives its actors. A
crashed actor is started again from stored facts after a rest that grows; while the rest is long the company
is parked. Look-up-or-start is synchronous, and so is leaving, so no message falls between two actors. One
company's trouble never reaches another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import attrs
import structlog
import trio

from actors.core.restart import PARKED_ABOVE_S, add_crash, counts, delay_s
from actors.core.schedules import schedule_of
from actors.errors import CompanyDeleted, CompanyParked, CompanyUnknown, OutcomeUnknown, RuntimeClosed
from actors.messages import Unpark, Unparked
from storage.codec import clean_text
from storage.errors import StaleEpoch, StoreClosed, StoreLost, StoreUnavailable
from storage.records import EventRecord
from storage.statements import SQL

from . import recovery
from .company import CompanyActor, Crash
from .describe import describe
from .mailbox import Envelope, Mailbox, Sweep
from .wall import WallWatch

if TYPE_CHECKING:
    from .runtime import Runtime

_log = structlog.get_logger("turnkeeper")

AGAIN_MAX = 100
AGAIN_S = 1.0
"""Companies that are started in one go. If the wall clock went back, all that wait for a time have to look: so many
at once, and the next a second later."""


@attrs.define(eq=False)
class Cell:
    """One company in the directory."""

    name: str
    mailbox: Mailbox = attrs.field(factory=Mailbox)
    actor: CompanyActor | None = None
    crashes: tuple[float, ...] = ()
    parked: str | None = None
    parked_until_s: float = 0.0
    last_about: str | None = None
    """The task or schedule that the last crash was about; twice in a row and it is set aside."""
    careful: bool = False
    """Whether the next actor should go one step at a time."""
    unpark: trio.Event = attrs.field(factory=trio.Event)
    """Ends its rest."""
    unparked: bool = False
    """Whether a person did."""


class _DueTimes:
    """When absent companies become due: one time each, however often they come and go."""

    def __init__(self) -> None:
        self._of: dict[str, int] = {}
        self.working: set[str] = set()
        """Those of them that wait for work of theirs, and not only for a schedule."""
        self._heap: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __contains__(self, company: object) -> bool:
        return company in self._of

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def note(self, company: str, due_ms: int, *, works: bool = True) -> None:
        if works:
            self.working.add(company)
        else:
            self.working.discard(company)
        if self._of.get(company) != due_ms:
            self._of[company] = due_ms
            heappush(self._heap, (due_ms, company))
        if len(self._heap) > 2 * len(self._of) + 64:
            self._heap = sorted((due, name) for name, due in self._of.items())

    def forget(self, company: str) -> None:
        self._of.pop(company, None)
        self.working.discard(company)

    def first(self) -> tuple[int, str] | None:
        """The earliest time and whose it is."""
        while self._heap and self._of.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0] if self._heap else None


class Supervisor:
    def __init__(self, nursery: trio.Nursery, runtime: Runtime) -> None:
        self._nursery = nursery
        self._runtime = runtime
        self._cells: dict[str, Cell] = {}
        self._due = _DueTimes()
        self._due_changed = trio.Event()
        self._wall = WallWatch(runtime.now_ms(), trio.current_time())
        self._again: deque[str] = deque()
        """Absent companies that have to look, because the wall clock went back."""
        self.closed = False

    # --- the directory --------------------------------------------------------------------------------------

    def cell(self, company: str) -> Cell:
        """The company's cell, started if it has none. Synchronous."""
        cell = self._cells.get(company)
        if cell is None:
            if self.closed or self._nursery.cancel_scope.cancel_called:
                raise RuntimeClosed
            cell = self._cells[company] = Cell(company)
            self._due.forget(company)
            self._nursery.start_soon(self._watch, cell, name=f"company {company}")
        return cell

    def find(self, company: str) -> Cell | None:
        return self._cells.get(company)

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(self._cells.values())

    def leave(self, cell: Cell, due_ms: int | None, *, works: bool) -> bool:
        """The actor has nothing to do; ``works``: work of it becomes due, and not only a schedule.

        Removal and the check before it have no checkpoint between. While its crashes count it stays, for they
        would be forgotten with it.
        """
        if counts(cell.crashes, trio.current_time()):
            return False
        if self._cells.get(cell.name) is cell:
            del self._cells[cell.name]
        self.note_due(cell.name, due_ms, works=works)
        return True

    def wake(self, company: str) -> None:
        """Make the company look. One that has no actor is started: it looks when it begins."""
        with suppress(RuntimeClosed):
            self.cell(company).mailbox.wake()

    def forget_due(self, company: str) -> None:
        """The company is no more."""
        self._due.forget(company)

    # --- due times of absent companies ----------------------------------------------------------------------

    def note_due(self, company: str, due_ms: int | None, *, works: bool) -> None:
        if due_ms is not None:
            self._due.note(company, due_ms, works=works)
            self._due_changed.set()

    @property
    def has_due(self) -> bool:
        """Whether work of an absent company becomes due."""
        return bool(self._due.working)

    def clock_showed(self, last_ms: int) -> None:
        """The wall clock has shown this before the process began."""
        self._wall = WallWatch(last_ms, trio.current_time())
        self._due_changed.set()

    async def bring_back(self) -> None:
        """Start companies whose due time has come, a page at a time. One child for all of them."""
        while True:
            self._due_changed = trio.Event()
            now_ms = self._runtime.now_ms()
            if self._wall.went_back(now_ms, trio.current_time()):
                self._again.extend(self._due)
            self._look_again()
            woken = 0
            while (first := self._due.first()) is not None and first[0] <= now_ms and woken < AGAIN_MAX:
                self._due.forget(first[1])
                self.wake(first[1])
                woken += 1
            longest_s = AGAIN_S if self._again else 60.0
            wait_s = longest_s if first is None else min(max(0.0, (first[0] - now_ms) / 1000), longest_s)
            with trio.move_on_after(wait_s):
                await self._due_changed.wait()

    def _look_again(self) -> None:
        """Start some of those that the clock left behind: what they wait for may be due by another reckoning."""
        for _ in range(min(len(self._again), AGAIN_MAX)):
            company = self._again.popleft()
            if company in self._due:
                self.wake(company)

    # --- watching over one company --------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def _watch(self, cell: Cell) -> None:
        """Run the company's actors, one after the other, until one leaves. Catches everything but
        cancellation.
        """
        try:
            while not self.closed:
                cell.actor = CompanyActor(
                    cell.name, cell.mailbox, self._runtime.surroundings, careful=cell.careful
                )
                cell.careful = False
                try:
                    await cell.actor.run()
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
            cell.actor = None
            if self._cells.get(cell.name) is cell:
                del self._cells[cell.name]
            if cell.mailbox.closed is None and (not cell.mailbox.unused or self.closed):
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
        cell.actor, cell.careful = None, True
        cause = error.cause if isinstance(error, Crash) else error
        about = error.about if isinstance(error, Crash) else None
        text = describe(cause)
        bad_row = isinstance(cause, recovery.BadRow)
        again = about is not None and (about == cell.last_about or bad_row)
        cell.last_about = None if again else about
        task = None if about is None or schedule_of(about) is not None else about
        _log.error("actor.crashed", company=cell.name, cause=text, task=task, exc_info=cause)
        cell.crashes = add_crash(cell.crashes, trio.current_time())
        if again and about is not None and await self._set_aside(cell, about, cause):
            cell.crashes = ()
        rest_s = delay_s(len(cell.crashes))
        await self._runtime.record_company_event(
            cell.name,
            EventRecord(
                "actor.crashed", self._runtime.now_ms(), task=task, reason=text, data={"cause": text}
            ),
        )
        if rest_s > 0:
            await self._rest(cell, rest_s, text)

    async def _rest(self, cell: Cell, rest_s: float, cause: str, *, tell: bool = True) -> None:
        """Rest before the next try, parked if it is long. ``tell``: whether events can be stored."""
        cell.unpark, cell.unparked = trio.Event(), False
        if rest_s > PARKED_ABOVE_S:
            cell.parked = cause
            cell.parked_until_s = trio.current_time() + rest_s
            cell.mailbox.fail_all(self.parked_error(cell), asked_only=True)
        try:
            if tell and cell.parked is not None:
                data = {"cause": cause, "wait_s": rest_s}
                await self._runtime.record_company_event(
                    cell.name, EventRecord("company.parked", self._runtime.now_ms(), reason=cause, data=data)
                )
            if not self._runtime.closing:
                with trio.move_on_after(rest_s):
                    await cell.unpark.wait()
        finally:
            was_parked, cell.parked = cell.parked, None
        if cell.unparked:
            cell.crashes = ()
            if tell and was_parked is not None:
                await self._runtime.record_company_event(
                    cell.name, EventRecord("company.unparked", self._runtime.now_ms())
                )

    def hurry(self) -> None:
        """The runtime closes: who rests tries once more, so that ends of attempts are committed."""
        for cell in self._cells.values():
            cell.unpark.set()

    async def _set_aside(self, cell: Cell, about: str, cause: BaseException) -> bool:
        """Disable the schedule, or quarantine the task, durably. False if it is not stored."""
        schedule = schedule_of(about)
        if schedule is None:
            return await self._quarantine(cell, about, cause)
        why = clean_text(f"its moves failed twice: {describe(cause)}")
        unit = recovery.DisableSchedule(cell.name, schedule, why, self._runtime.now_ms())
        committed, events = await self._runtime.database.writer.commit(unit)
        self._runtime.published(cell.name, events, committed)
        return bool(events)

    async def _quarantine(self, cell: Cell, task: str, cause: BaseException) -> bool:
        """Its attempts are told to end, and their reports will be late. False as well if it is set aside already: then
        that does not help, and the company rests.
        """
        import traceback

        shown = "".join(traceback.format_exception(cause))[-20_000:]
        name = cell.name
        row = await self._runtime.database.read(
            lambda conn: conn.execute(SQL["task_seq"], {"company": name, "id": task}).fetchone()
        )
        if row is None or row[1]:
            return False
        why = clean_text(f"its moves failed twice: {describe(cause)}")
        if isinstance(cause, recovery.BadRow):
            why = clean_text(str(cause))
        unit = recovery.Quarantine(name, task, row[0], why, shown, self._runtime.now_ms())
        committed, events = await self._runtime.database.writer.commit(unit)
        self._runtime.published(name, events, committed)
        for attempt in self._runtime.registry.of_company(name):
            if attempt.ref.key.task == task:
                self._runtime.executor.cancel(attempt.ref, "superseded")
        return True

    # --- messages -------------------------------------------------------------------------------------------

    def parked_answer(self, cell: Cell, envelope: Envelope) -> bool:
        """Answer a message to a parked company; says whether it was answered, so that it must not be put."""
        if cell.parked is None or isinstance(envelope.content, Sweep):
            return False
        if isinstance(envelope.content, Unpark):
            cell.unparked = True
            cell.unpark.set()
            envelope.answer(Unparked(was_parked=True))
            return True
        raise self.parked_error(cell)

    def parked_error(self, cell: Cell) -> CompanyParked:
        wait_s = max(0.0, cell.parked_until_s - trio.current_time())
        return CompanyParked(cell.name, cell.parked or "", wait_s)
