"""How far a run is: derived from its node records and moved with them, so that no step walks the whole graph.

``unmet`` counts the unfinished nodes that each node still waits for. A pending node without any is *ready*,
or *backing off* when a time is set before which it must not start. `Progress.move` is symmetric: a move
undone is the move the other way round.
"""

from __future__ import annotations

from heapq import heappop, heappush

from storage.records import NodeRecord, NodeStatus

from .shape import NodeSpec

_NONE = dict.fromkeys(NodeStatus, 0)


class Progress:
    __slots__ = ("_heap", "counts", "idle", "ready", "resting", "running", "specs", "unmet", "users")

    def __init__(self, specs: tuple[NodeSpec, ...], users: tuple[tuple[int, ...], ...]) -> None:
        self.specs = specs
        self.users = users
        self.unmet = [len(spec.after) for spec in specs]
        self.counts = _NONE.copy()
        self.idle: set[int] = set()
        """Pending and not backing off; ready once nothing is unmet."""
        self.ready: set[int] = set()
        self.resting: dict[int, int] = {}
        """Backing off: position → the time before which it must not start, ms."""
        self.running: set[int] = set()
        self._heap: list[int] = []

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
        while self._heap and self._heap[0] not in self.ready:
            heappop(self._heap)
        return self._heap[0] if self._heap else None

    def _leave(self, pos: int) -> None:
        self.idle.discard(pos)
        self.ready.discard(pos)
        self.running.discard(pos)
        self.resting.pop(pos, None)

    def _enter(self, node: NodeRecord) -> None:
        if node.status is NodeStatus.RUNNING:
            self.running.add(node.pos)
        elif node.status is NodeStatus.PENDING and node.not_before_ms is not None:
            self.resting[node.pos] = node.not_before_ms
        elif node.status is NodeStatus.PENDING:
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

    def _make_ready(self, pos: int) -> None:
        self.ready.add(pos)
        heappush(self._heap, pos)
