"""Execution slots: how many attempts of all companies execute at once, first come first served.

A company that wants a slot and finds none stands in line. A slot that becomes free is *offered* to the
first in line and kept for it until its next turn has used it or given it back, so nobody can take it in
between. Slots in use are counted from the registry; nothing here counts them a second time.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.core.draft import AttemptKey
from actors.core.transitions import Phase

from .attempts import Attempt, AttemptRef, Registry


class Slots:
    def __init__(self, executions_max: int, registry: Registry, wake: Callable[[str], None]) -> None:
        self.executions_max = executions_max
        self._registry = registry
        self._wake = wake
        self._line: dict[str, None] = {}
        self._offers: dict[str, int] = {}

    @property
    def free(self) -> int:
        """Slots that are neither held nor offered."""
        return max(0, self.executions_max - self._registry.slots_in_use - sum(self._offers.values()))

    def take(self, company: str) -> bool:
        """Take one slot in a turn: an offered one first; a free one only if nobody stands in line before."""
        offered = self._offers.get(company, 0)
        if offered:
            if offered == 1:
                del self._offers[company]
            else:
                self._offers[company] = offered - 1
            return True
        others_wait = any(name != company for name in self._line)
        return self.free > 0 and not others_wait

    def want(self, company: str) -> None:
        """Stand in line for a slot; at its end, unless the company stands there already."""
        self._line.setdefault(company)
        self.offer()

    def give_up(self, company: str) -> None:
        """What was offered and not used goes to the next in line."""
        self._offers.pop(company, None)
        self.offer()

    def leave(self, company: str) -> None:
        """The company wants nothing any more."""
        self._line.pop(company, None)
        self.give_up(company)

    def offer(self) -> None:
        """Offer free slots along the line."""
        while self._line and self.free > 0:
            company = next(iter(self._line))
            del self._line[company]
            self._offers[company] = self._offers.get(company, 0) + 1
            self._wake(company)


class TurnSlots:
    """The slots as one turn of one company sees them: what it reserves becomes an attempt, or goes back."""

    def __init__(self, company: str, slots: Slots, registry: Registry) -> None:
        self._company = company
        self._slots = slots
        self._registry = registry
        self._reserved: dict[AttemptRef, Attempt] = {}

    def reserve(self, key: AttemptKey) -> bool:
        if not self._slots.take(self._company):
            return False
        ref = AttemptRef(self._company, key)
        self._reserved[ref] = self._registry.begin(ref)
        return True

    def sent(self) -> None:
        """The unit with these attempts was handed to the writer."""
        for attempt in self._reserved.values():
            attempt.move(Phase.PERSISTING)

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
        self._slots.give_up(self._company)
