"""The directory of companies that have something to do, and of when the absent ones become due.

A company is a *cell*: its mailbox, what its actor shows of its memory, and its crashes. The cell outlives its
actors. Look-up-or-start is synchronous, and so is leaving, so no message falls between two actors.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import attrs
import trio

from actors.core.inputs import Report, Spending
from actors.core.restart import counts
from actors.core.state import CompanyState
from actors.errors import CompanyParked, RuntimeClosed
from actors.messages import Unpark, Unparked
from storage.logging import get_logger
from storage.records import Claim

from .due_times import DueTimes
from .mailbox import Envelope, Mailbox, Sweep

_log = get_logger("turnkeeper")


@attrs.define(eq=False)
class Memory:
    """A company in memory, as its actor shows it to readers."""

    state: CompanyState
    between_turns: trio.Event = attrs.field(factory=trio.Event)
    """Set while the state holds nothing that is not committed."""
    resting: bool = False
    """Whether the actor waits for something to do."""

    @property
    def works(self) -> bool:
        """Whether work of the company becomes due by itself; its schedules aside, which never end."""
        return self.state.next_work_ms() is not None


@attrs.define(eq=False)
class Cell:
    """One company in the directory."""

    name: str
    mailbox: Mailbox = attrs.field(factory=Mailbox)
    memory: Memory | None = None
    """While an actor of the company has loaded it."""
    claim: Claim | None = None
    """Under which others than the actor write for the company; none while a new one is asked for."""
    claim_changed: trio.Event = attrs.field(factory=trio.Event)
    """Set when there is one again, or never will be."""
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

    def withdraw_claim(self) -> None:
        """The actor is about to ask for a claim, which ends the one before."""
        self.claim = None
        self.claim_changed = trio.Event()

    def set_claim(self, claim: Claim) -> None:
        """The company's actor has this claim."""
        self.claim = claim
        self.claim_changed.set()

    def end_claims(self) -> None:
        """No actor of this cell will claim again; callers that wait for one have to ask the next cell."""
        self.claim = None
        self.claim_changed.set()

    @property
    def idle(self) -> bool:
        """Whether its actor is loaded, has nothing to do, and no message is on its way."""
        memory = self.memory
        return self.mailbox.unused and not self.mailbox.woken and memory is not None and memory.resting

    @property
    def parked_error(self) -> CompanyParked:
        wait_s = max(0.0, self.parked_until_s - trio.current_time())
        return CompanyParked(self.name, self.parked or "", wait_s)

    def parked_answer(self, envelope: Envelope) -> bool:
        """Answer a message if the company is parked; says whether it was answered, so that it must not be put.

        Raises `CompanyParked` for everything but `Unpark` and a sweep.
        """
        if self.parked is None or isinstance(envelope.content, Sweep):
            return False
        if isinstance(envelope.content, Unpark):
            self.unparked = True
            self.unpark.set()
            envelope.answer(Unparked(was_parked=True))
            return True
        raise self.parked_error


class Directory:
    """``start`` begins to watch over a new cell; the supervisor sets it."""

    def __init__(self) -> None:
        self._cells: dict[str, Cell] = {}
        self.due = DueTimes()
        self.due_changed = trio.Event()
        self.start: Callable[[Cell], None] | None = None
        self.closed = False

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(self._cells.values())

    def cell(self, company: str) -> Cell:
        """The company's cell, started if it has none. Synchronous. Raises `RuntimeClosed`."""
        cell = self._cells.get(company)
        if cell is None:
            if self.closed or self.start is None:
                raise RuntimeClosed
            cell = Cell(company)
            self.start(cell)
            self._cells[company] = cell
            self.due.forget(company)
        return cell

    async def claim_of(self, company: str) -> Claim:
        """The claim under which to write for the company, which is started if it has no actor.

        Operations take effect in their order, and the claim is withdrawn before the next one is asked for, so a
        caller that submits without a checkpoint in between is never late. Raises `RuntimeClosed`.
        """
        while True:
            cell = self.cell(company)
            if cell.claim is not None:
                return cell.claim
            await cell.claim_changed.wait()

    def find(self, company: str) -> Cell | None:
        return self._cells.get(company)

    def memory(self, company: str) -> Memory | None:
        """The company's memory, if an actor has loaded it."""
        cell = self._cells.get(company)
        return None if cell is None else cell.memory

    def wake(self, company: str) -> None:
        """Make the company look. One that has no actor is started: it looks when it begins."""
        with suppress(RuntimeClosed):
            self.cell(company).mailbox.wake()

    def wake_all(self) -> None:
        """Something that held up every company is over."""
        for cell in self.cells:
            cell.mailbox.wake()

    def post(self, company: str, report: Report | Spending) -> None:
        """Tell the company of an attempt that ended or spent something. When all is closed, no one is left to tell."""
        try:
            self.cell(company).mailbox.put_nowait(Envelope(report))
        except RuntimeClosed:
            _log.info("attempt.unheard", company=company, task=report.key.task)

    def leave(self, cell: Cell, due_ms: int | None, *, works: bool) -> bool:
        """The actor has nothing to do; ``works``: work of it becomes due, and not only a schedule.

        Removal and the check before it have no checkpoint between. While its crashes count it stays, for they
        would be forgotten with it.
        """
        if counts(cell.crashes, trio.current_time()):
            return False
        self.remove(cell)
        self.note_due(cell.name, due_ms, works=works)
        return True

    def remove(self, cell: Cell) -> None:
        if self._cells.get(cell.name) is cell:
            del self._cells[cell.name]

    def note_due(self, company: str, due_ms: int | None, *, works: bool) -> None:
        if due_ms is not None:
            self.due.note(company, due_ms, works=works)
            self.due_changed.set()
