"""How far a run is: derived from its node records and moved with them, so that no step walks the whole graph.

``unmet`` counts the unfinished nodes that each node still waits for. A pending node without any is *ready*,
or *backing off* when a time is set before which it must not start. `Progress.move` is symmetric: a move
undone is the move the other way round.

A gate is never ready: nothing of it can start. It is *reached* when nothing is unmet, and then a person answers it.
"""

from __future__ import annotations

from collections.abc import Set

from storage.records import NodeRecord, NodeStatus

from .heap import Heap
from .shape import NodeSpec

_NONE = dict.fromkeys(NodeStatus, 0)
_NOWHERE: frozenset[int] = frozenset()


class Gates:
    """The gates of one run that wait for a person."""

    __slots__ = ("all", "reached", "said", "unsaid")

    def __init__(self, gates: frozenset[int]) -> None:
        self.all = gates
        self.reached: set[int] = set()
        self.said: set[int] = set()
        """Those whose record has since when they wait."""
        self.unsaid: set[int] = set()
        """Reached, and not said."""

    def reach(self, pos: int) -> None:
        self.reached.add(pos)
        if pos not in self.said:
            self.unsaid.add(pos)

    def lose(self, pos: int) -> None:
        self.reached.discard(pos)
        self.unsaid.discard(pos)

    def leave(self, pos: int) -> None:
        self.lose(pos)
        self.said.discard(pos)


class Progress:
    __slots__ = ("counts", "gates", "idle", "ready", "resting", "running", "specs", "unmet", "users")

    def __init__(
        self,
        specs: tuple[NodeSpec, ...],
        users: tuple[tuple[int, ...], ...],
        gates: frozenset[int] = _NOWHERE,
    ) -> None:
        self.specs = specs
        self.users = users
        self.unmet = [len(spec.after) for spec in specs]
        self.counts = _NONE.copy()
        self.idle: set[int] = set()
        """Pending and not backing off; ready once nothing is unmet."""
        self.ready: Heap[int, tuple[int]] = Heap()
        """By position."""
        self.resting: dict[int, int] = {}
        """Backing off: position → the time before which it must not start, ms."""
        self.running: set[int] = set()
        self.gates = Gates(gates) if gates else None

    def move(self, before: NodeRecord | None, after: NodeRecord | None) -> None:
        """Replace one node's record by another; ``None`` for a node that is not there (yet, or any more)."""
        if before is not None:
            self.counts[before.status] -= 1
            self._leave(before.pos)
        if after is not None:
            self.counts[after.status] += 1
            self._enter(after)
        was_done = before is not None and before.status is NodeStatus.SUCCEEDED
        is_done = after is not None and after.status is NodeStatus.SUCCEEDED
        if before is not None and was_done and not is_done:
            self._count(before.pos, 1)
        if after is not None and is_done and not was_done:
            self._count(after.pos, -1)

    def wake(self, pos: int) -> None:
        """The node's time has come: from backing off to ready. Changes no record."""
        del self.resting[pos]
        self._settle_in(pos)

    def next_ready(self) -> int | None:
        """The ready node that stands first in the graph."""
        first = self.ready.first()
        return None if first is None else first[0]

    @property
    def reached(self) -> Set[int]:
        """The gates that wait for a person."""
        return _NOWHERE if self.gates is None else self.gates.reached

    @property
    def unsaid(self) -> Set[int]:
        """Those of them whose record does not yet have since when."""
        return _NOWHERE if self.gates is None else self.gates.unsaid

    def _leave(self, pos: int) -> None:
        self.idle.discard(pos)
        self.ready.discard(pos)
        self.running.discard(pos)
        self.resting.pop(pos, None)
        if self.gates is not None:
            self.gates.leave(pos)

    def _enter(self, node: NodeRecord) -> None:
        if node.status is NodeStatus.RUNNING:
            self.running.add(node.pos)
        elif node.status is NodeStatus.PENDING and node.not_before_ms is not None:
            self.resting[node.pos] = node.not_before_ms
        elif node.status is NodeStatus.PENDING:
            if self.gates is not None and node.reached_ms is not None:
                self.gates.said.add(node.pos)
            self._settle_in(node.pos)

    def _settle_in(self, pos: int) -> None:
        self.idle.add(pos)
        if self.unmet[pos] == 0:
            self._make_ready(pos)

    def _count(self, pos: int, step: int) -> None:
        for user in self.users[pos]:
            self.unmet[user] += step
            if self.unmet[user] == 0 and user in self.idle:
                self._make_ready(user)
            elif self.unmet[user] > 0:
                self.ready.discard(user)
                if self.gates is not None:
                    self.gates.lose(user)

    def _make_ready(self, pos: int) -> None:
        if self.gates is not None and pos in self.gates.all:
            self.gates.reach(pos)
            return
        self.ready.put(pos, (pos,))
