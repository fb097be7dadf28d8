"""Who is next: the one function that owns the order of a company's queue, and the queue of tasks whose own
gates are open.
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import heapify, heappop, heappush

from storage.records import RunRecord, TaskRecord

Key = tuple[int, int, int]
_Place = tuple[int, int, int, str]
"""A key, and the task that has it: places sort as their keys do."""
_HEAP_SLACK = 64
"""The heap is rebuilt when more than half of it, and more than this, is stale."""


def order_key(task: TaskRecord, run: RunRecord) -> Key:
    """Smaller goes first: put in front by `StartNow` (latest first), then priority, then submission sequence.

    A retried, interrupted or resumed run keeps its place, because none of the three changes with it.
    """
    return (-run.front, task.priority, task.seq)


class OpenQueue:
    """Tasks whose own gates are all open, by order. Adding, leaving and looking at the first cost a logarithm.

    A heap with stale places: a place counts only while it is the task's current one. A hundred thousand tasks may wait
    in it, so a task costs one tuple.
    """

    __slots__ = ("_heap", "_places", "_sorted")

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}
        self._heap: list[_Place] = []
        self._sorted: list[_Place] | None = None
        """For reads, kept until the next change: a list of all tasks asks once for each of them."""

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, task: object) -> bool:
        return task in self._places

    def put(self, task: str, key: Key) -> None:
        """Add a task, or give it a new key."""
        place = (*key, task)
        if self._places.get(task) == place:
            return
        self._places[task] = place
        self._sorted = None
        heappush(self._heap, place)
        if len(self._heap) > 2 * len(self._places) + _HEAP_SLACK:
            self._heap = list(self._places.values())
            heapify(self._heap)

    def discard(self, task: str) -> None:
        if self._places.pop(task, None) is not None:
            self._sorted = None

    def first(self) -> str | None:
        while self._heap:
            place = self._heap[0]
            if self._places.get(place[3]) is place:
                return place[3]
            heappop(self._heap)
        return None

    def ahead_of(self, key: Key, shown: int) -> tuple[list[str], int]:
        """Of the tasks that go before ``key``, the first ``shown`` in order, and how many there are. For reads."""
        ahead = bisect_left(self._in_order(), (*key, ""))
        return self.head(min(ahead, shown)), ahead

    def head(self, count: int) -> list[str]:
        """The first ``count`` tasks in order. For reads."""
        return [place[3] for place in self._in_order()[:count]]

    def _in_order(self) -> list[_Place]:
        if self._sorted is None:
            self._sorted = sorted(self._places.values())
        return self._sorted
