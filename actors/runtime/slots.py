"""Execution slots: how many attempts of all companies execute at once, shared fairly.

A company that wants a slot and finds none stands in line. A slot that becomes free is *offered* to the
first in line and kept for it until its next turn has used it or given it back, so nobody can take it in
between. The line goes round robin: a company of weight w may take w slots in a row, then it stands at the
end again. So a company with a thousand ready nodes delays another by one round, and alone it uses all.

Attempts that come back from waiting go before all of that: they hold their run's slot and somebody may be
waiting for them. Slots in use are counted from the registry; nothing here counts them a second time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import trio

from actors.core.effects import AttemptKey
from actors.core.transitions import Phase

from .attempts import Attempt, AttemptRef, Registry


class Slots:
    def __init__(
        self,
        executions_max: int,
        registry: Registry,
        wake: Callable[[str], None],
        *,
        abandoned_max: int,
    ) -> None:
        self.executions_max = executions_max
        self.abandoned_max = abandoned_max
        self._registry = registry
        self._wake = wake
        self._line: OrderedDict[str, int] = OrderedDict()
        """Company in line → its weight."""
        self._turns_left: dict[str, int] = {}
        """Turns in a row that a company has left in this round."""
        self._offers: dict[str, int] = {}
        self._returning: OrderedDict[Attempt, trio.Event] = OrderedDict()
        self._kept_back: dict[str, None] = {}
        """Companies with a suspect that waits for the end of another one."""

    @property
    def free(self) -> int:
        """Slots that are neither held, nor offered, nor wanted back by an attempt that waited."""
        return max(0, self.executions_max - self._taken - len(self._returning))

    @property
    def _taken(self) -> int:
        return self._registry.slots_in_use + sum(self._offers.values())

    @property
    def held_up(self) -> bool:
        """Whether so many attempts were left behind that nothing new starts."""
        return len(self._registry.abandoned) >= self.abandoned_max

    # --- companies ----------------------------------------------------------------------------------------------

    def take(self, company: str) -> bool:
        """Take one slot in a turn: an offered one first; a free one only if nobody stands in line before."""
        if self.held_up:
            return False
        offered = self._offers.get(company, 0)
        if offered:
            self._set_offers(company, offered - 1)
            return True
        return self.free > 0 and not any(name != company for name in self._line)

    def want(self, company: str, weight: int = 1) -> None:
        """Stand in line: in front while the company has turns in a row left, else at the end."""
        if company not in self._line:
            self._line[company] = weight
            if self._turns_left.get(company, 0) > 0:
                self._line.move_to_end(company, last=False)
        self._line[company] = weight
        self.offer()

    def offered(self, company: str) -> int:
        """Slots that are kept for the company."""
        return self._offers.get(company, 0)

    def give_up(self, company: str, count: int) -> None:
        """So many of the slots that were offered are not used: they go to the next in line."""
        left = self.offered(company) - count
        if company in self._offers:
            self._set_offers(company, max(0, left))
        self.offer()

    def keep_back(self, company: str) -> None:
        """Wake the company when no attempt at a suspect is alive any more."""
        self._kept_back.setdefault(company)
        self.offer()  # the other one may have ended since the company looked

    def leave(self, company: str) -> None:
        """The company wants nothing any more."""
        self._kept_back.pop(company, None)
        self._line.pop(company, None)
        self._turns_left.pop(company, None)
        self.give_up(company, self.offered(company))

    def offer(self) -> None:
        """Hand out free slots: to attempts that come back first, then along the line. Suspects that were kept back
        try anew.
        """
        if self._registry.suspect is None:
            kept_back, self._kept_back = self._kept_back, {}
            for company in kept_back:
                self._wake(company)
        while self._returning and self._taken < self.executions_max:
            attempt, event = self._returning.popitem(last=False)
            if attempt.phase is not Phase.WAITING:
                event.set()
                continue
            # in the same step as the slot, so nobody sees the one without the other
            attempt.move(Phase.EXECUTING)
            attempt.active_s, attempt.warned = trio.current_time(), False
            self._registry.give_slot(attempt)
            event.set()
        if self.held_up:
            return
        while self._line and self.free > 0:
            company, weight = next(iter(self._line.items()))
            del self._line[company]
            left = (self._turns_left.get(company, 0) or weight) - 1
            if left > 0:
                self._turns_left[company] = left
            else:
                self._turns_left.pop(company, None)
            self._set_offers(company, self._offers.get(company, 0) + 1)
            self._wake(company)

    def _set_offers(self, company: str, count: int) -> None:
        if count:
            self._offers[company] = count
        else:
            del self._offers[company]

    # --- attempts that wait -----------------------------------------------------------------------------------------

    async def take_back(self, attempt: Attempt) -> None:
        """Wait until the attempt has a slot again, or is told to end. Several of its children may wait for it together.

        Shielded: only `forget` ends it early, so a handler that went on after a time-out of its own cannot
        go on without a slot.
        """
        if attempt.slot:
            return
        event = self._returning.setdefault(attempt, trio.Event())
        self.offer()
        with trio.CancelScope(shield=True):
            await event.wait()

    def forget(self, attempt: Attempt) -> None:
        """The attempt is told to end: it needs no slot for that."""
        event = self._returning.pop(attempt, None)
        if event is not None:
            event.set()


class TurnSlots:
    """The slots as one turn of one company sees them: what it reserves becomes an attempt, or goes back."""

    def __init__(self, company: str, slots: Slots, registry: Registry) -> None:
        self._company = company
        self._slots = slots
        self._registry = registry
        self._reserved: dict[AttemptRef, Attempt] = {}
        self._offered = slots.offered(company)
        """Offers that this turn can use. One that comes later is for the next turn, and keeps its place."""

    def reserve(self, key: AttemptKey, *, suspect: bool = False) -> bool:
        if not self._slots.take(self._company):
            return False
        self._offered = max(0, self._offered - 1)
        ref = AttemptRef(self._company, key)
        self._reserved[ref] = self._registry.begin(ref, suspect=suspect)
        return True

    def sent(self) -> None:
        """The unit with these attempts was handed to the writer."""
        for attempt in self._reserved.values():
            attempt.move(Phase.PERSISTING)

    def reserved(self, ref: AttemptRef) -> Attempt:
        """The attempt that this turn reserved a slot for; its end of the turn undoes it unless it has `started`."""
        return self._reserved[ref]

    def started(self, ref: AttemptRef) -> Attempt:
        """The attempt is durable and now belongs to its child."""
        return self._reserved.pop(ref)

    def give_back(self) -> None:
        """End of the turn: whatever was reserved and not started is undone."""
        for ref, attempt in self._reserved.items():
            attempt.move(Phase.FINALIZING)
            self._registry.free_slot(attempt)
            self._registry.finish(ref)
        self._reserved.clear()
        self._slots.give_up(self._company, self._offered)
