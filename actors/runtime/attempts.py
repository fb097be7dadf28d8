"""Live attempts: the one registry of them, and their phases.

The registry holds every registration of an attempt, the reverse maps included; no other module keeps a
mapping keyed by attempt. `begin` asserts that none of them is there, in both directions; `finish` is the
one way out. The execution slot is a field of the attempt, so slots in use are counted from attempts, never
beside them.

An attempt that was left behind because it would not end is kept apart until it returns, so that its late
report is recognised.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import attrs
import trio

from actors.core.effects import AttemptKey
from actors.core.inputs import Report
from actors.core.shape import NodeSpec
from actors.core.transitions import PHASE_MOVES, Phase, check_move
from storage.logging import get_logger

_log = get_logger("turnkeeper")


class AttemptRef(NamedTuple):
    """An attempt of any company."""

    company: str
    key: AttemptKey

    @property
    def node(self) -> tuple[str, str, int, int]:
        return (self.company, self.key.task, self.key.run, self.key.pos)


@attrs.define(eq=False)
class Attempt:
    """One live attempt. ``report`` is its end, once known and until it is committed."""

    ref: AttemptRef
    phase: Phase = Phase.CLAIMING
    slot: bool = False
    suspect: bool = False
    spec: NodeSpec | None = None
    generation: int = 0
    input_names: tuple[str, ...] = ()
    feedback: str | None = None
    progress: str | None = None
    spent: int = 0
    """What it says it has spent (`Context.spend`); any thread adds to it, under the executor's lock."""
    spending_told: bool = False
    """Whether somebody is about to tell the company of it."""
    spent_told: int = 0
    """What its company was told last."""
    spent_s: float = -math.inf
    """When (Trio clock)."""
    active_s: float = 0.0
    """When it last showed that it gets on (Trio clock): its start, its last progress, its return from waiting."""
    warned: bool = False
    """Whether it was said, since it last got on, that half of its stall limit is over."""
    waits: int = 0
    """How deep it is in `Context.waiting`, in all its own children together."""
    waiting: str | None = None
    """What it waits for, while it is waiting."""
    waiting_since_ms: int = 0
    scope: trio.CancelScope | None = None
    hard_scope: trio.CancelScope | None = None
    """Shields a worker thread from the ordinary cancellation; cancelled when the attempt is left behind."""
    cancel_why: str | None = None
    report: Report | None = None
    alive: bool = False
    """Whether a child or a thread of it is still running."""
    in_thread: bool = False
    waits_for: tuple[tuple[str, str], ...] = ()
    """Company and id of the tasks whose end its handler waits for."""
    ended: bool = False
    """Whether its end is known."""
    story: tuple[str, ...] = ()
    _end: trio.Event | None = None
    """Made only if somebody waits for the end."""

    @property
    def label(self) -> str:
        """``company/task/run/node/attempt``, for people."""
        key = self.ref.key
        node = self.spec.name if self.spec is not None else str(key.pos)
        return f"{self.ref.company}/{key.task}/{key.run}/{node}/{key.number}"

    def move(self, phase: Phase) -> None:
        """Go to ``phase``; raises `IllegalMove` with the story so far, and changes nothing, if the table
        has no such move.
        """
        check_move("attempt", PHASE_MOVES, lambda: self.label, self.phase, phase, self.story)
        if phase is not self.phase:
            self.story += (self.phase.value,)
        self.phase = phase

    def end(self) -> None:
        """Its end is known."""
        self.ended = True
        if self._end is not None:
            self._end.set()

    async def wait_end(self) -> None:
        """Wait until its end is known."""
        if self._end is None:
            self._end = trio.Event()
            if self.ended:
                self._end.set()
        await self._end.wait()


class Registry:
    """Every live attempt of the process."""

    def __init__(self) -> None:
        self._attempts: dict[AttemptRef, Attempt] = {}
        self._by_company: dict[str, dict[AttemptRef, Attempt]] = {}
        self._by_node: dict[tuple[str, str, int, int], AttemptRef] = {}
        self._holding: dict[AttemptRef, Attempt] = {}
        self._abandoned: dict[AttemptRef, Attempt] = {}
        self._suspect: Attempt | None = None
        self._illegal: dict[tuple[str, str, int, int], int] = {}
        """Node → illegal moves of its attempts, one after the other."""

    # --- reading --------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._attempts)

    def __iter__(self) -> Iterator[Attempt]:
        return iter(tuple(self._attempts.values()))

    def get(self, ref: AttemptRef) -> Attempt | None:
        return self._attempts.get(ref)

    def of_company(self, company: str) -> tuple[Attempt, ...]:
        return tuple(self._by_company.get(company, {}).values())

    def busy(self, company: str) -> bool:
        return company in self._by_company

    @property
    def slots_in_use(self) -> int:
        return len(self._holding)

    @property
    def holders(self) -> tuple[Attempt, ...]:
        return tuple(self._holding.values())

    @property
    def waiting(self) -> int:
        """Attempts that gave their slot back to wait."""
        return sum(attempt.phase is Phase.WAITING for attempt in self._attempts.values())

    @property
    def abandoned(self) -> tuple[Attempt, ...]:
        return tuple(self._abandoned.values())

    # --- in and out -----------------------------------------------------------------------------------------

    @property
    def suspect(self) -> Attempt | None:
        """The attempt at a suspect that is registered; at most one is."""
        return self._suspect

    def begin(self, ref: AttemptRef, *, suspect: bool = False) -> Attempt:
        """Register an attempt and give it its slot. Nothing of it, nor of its node, may be registered."""
        assert ref not in self._attempts, f"{ref} is registered already"
        assert ref not in self._holding, f"{ref} holds a slot already"
        assert ref not in self._by_company.get(ref.company, {}), (
            f"{ref} is registered for its company already"
        )
        assert ref not in self._abandoned, f"{ref} was left behind already"
        assert ref.node not in self._by_node, f"an earlier attempt of {ref.node} is still registered"
        assert not (suspect and self._suspect), f"{self._suspect} is a suspect as well"
        attempt = Attempt(ref, suspect=suspect)
        self._suspect = attempt if suspect else self._suspect
        self._attempts[ref] = attempt
        self._by_company.setdefault(ref.company, {})[ref] = attempt
        self._by_node[ref.node] = ref
        attempt.slot = True
        self._holding[ref] = attempt
        return attempt

    def give_slot(self, attempt: Attempt) -> None:
        """Give a slot back to an attempt that waited."""
        assert attempt.ref in self._attempts, f"{attempt.label} is not registered"
        assert not attempt.slot, f"{attempt.label} holds a slot already"
        attempt.slot = True
        self._holding[attempt.ref] = attempt

    def free_slot(self, attempt: Attempt) -> bool:
        """Take the slot from the attempt; says whether it had one."""
        if not attempt.slot:
            return False
        attempt.slot = False
        del self._holding[attempt.ref]
        return True

    def finish(self, ref: AttemptRef) -> None:
        """Remove every registration. One that its exit path should have cleared is cleared, and loudly
        complained of.
        """
        attempt = self._attempts.pop(ref, None)
        if attempt is None:
            return
        attempt.move(Phase.FINALIZING)
        attempt.report = None  # a result can be large, and the stall watch holds the attempt for a while yet
        if self.free_slot(attempt):
            _log.warning("attempt.leak", attempt=attempt.label, registration="slot")
        mine = self._by_company[ref.company]
        del mine[ref]
        if not mine:
            del self._by_company[ref.company]
        if self._suspect is attempt:
            self._suspect = None
        if self._by_node.get(ref.node) == ref:
            del self._by_node[ref.node]
        else:
            _log.warning("attempt.leak", attempt=attempt.label, registration="node")
        if attempt.alive:
            self._abandoned[ref] = attempt

    def returned(self, attempt: Attempt) -> None:
        """The attempt's child or thread is gone, late or in time."""
        attempt.alive = False
        self._abandoned.pop(attempt.ref, None)

    def note_illegal(self, attempt: Attempt) -> int:
        """An illegal move of the attempt; says how many of its node's attempts in a row made one."""
        node = attempt.ref.node
        self._illegal[node] = self._illegal.get(node, 0) + 1
        return self._illegal[node]

    def forget_illegal(self, attempt: Attempt) -> None:
        """The attempt ended in an ordinary way."""
        self._illegal.pop(attempt.ref.node, None)

    def check(self) -> None:
        """Assert that all maps tell the same story, in both directions. For tests."""
        assert {a.ref for a in self._attempts.values() if a.slot} == set(self._holding)
        assert {ref for mine in self._by_company.values() for ref in mine} == set(self._attempts)
        assert set(self._by_node.values()) == set(self._attempts)
        assert all(ref.node == node for node, ref in self._by_node.items())
        assert [a for a in self._attempts.values() if a.suspect] == ([self._suspect] if self._suspect else [])
        assert not set(self._abandoned) & set(self._attempts)
