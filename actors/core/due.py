"""What waits for a time: nodes that back off, and tasks that may not start before theirs."""

from __future__ import annotations

from .heap import Heap
from .task_state import TaskState

TASK = -1
"""In the place of a node's position: the task itself."""
Waiting = tuple[str, int]
"""A task, and the position of its node, or `TASK`."""


class DueTimes(Heap[Waiting, tuple[int, Waiting]]):
    __slots__ = ()

    def note(self, waiting: Waiting, due_ms: int | None) -> None:
        """It waits until then; ``None``: it does not wait."""
        if due_ms is None:
            self.discard(waiting)
        else:
            self.put(waiting, (due_ms, waiting))

    def note_node(self, entry: TaskState, pos: int) -> None:
        """A node that backs off is waited for unless its run is settled: then nothing of it becomes due by itself."""
        settled = entry.run is None or entry.run.status.settled
        resting = None if settled or entry.progress is None else entry.progress.resting.get(pos)
        self.note((entry.task.id, pos), resting)

    def note_nodes(self, entry: TaskState) -> None:
        if entry.progress is not None:
            for pos in entry.progress.resting:
                self.note_node(entry, pos)

    def forget_nodes(self, entry: TaskState) -> None:
        """Nothing of the task is in memory any more, or it has other nodes."""
        if entry.progress is not None:
            for pos in entry.progress.resting:
                self.discard((entry.task.id, pos))
