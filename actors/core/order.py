"""Who is next: the one function that owns the order of a company's queue, and the queue of tasks whose own
gates are open.
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import heapify, heappop, heappush

from storage.records import RunRecord, TaskRecord

Key = tuple[int, int, int]
_HEAP_SLACK = 64
"""The heap is rebuilt when more than half of it, and more than this, is stale."""


def order_key(task: TaskRecord, run: RunRecord) -> Key:
    """Smaller goes first: put in front by `StartNow` (latest first), then priority, then submission sequence.

    A retried, interrupted or resumed run keeps its place, because none of the three changes with it.
    """
    return (-run.front, task.priority, task.seq)


class OpenQueue:
    """Tasks whose own gates are all open, by order. Adding, leaving and looking at the first cost a logarithm.

    A heap with stale entries: an entry counts only while its key is the task's current one.
    """

    __slots__ = ("_heap", "_keys", "_sorted")

    def __init__(self) -> None:
        self._keys: dict[str, Key] = {}
        self._heap: list[tuple[Key, str]] = []
        self._sorted: list[tuple[Key, str]] | None = None
        """For reads, kept until the next change: a list of all tasks asks once for each of them."""

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, task: object) -> bool:
        return task in self._keys

    def put(self, task: str, key: Key) -> None:
        """Add a task, or give it a new key."""
        if self._keys.get(task) == key:
            return
        self._keys[task] = key
        self._sorted = None
        heappush(self._heap, (key, task))
        if len(self._heap) > 2 * len(self._keys) + _HEAP_SLACK:
            self._heap = [(key, task) for task, key in self._keys.items()]
            heapify(self._heap)

    def discard(self, task: str) -> None:
        if self._keys.pop(task, None) is not None:
            self._sorted = None

    def first(self) -> str | None:
        while self._heap:
            key, task = self._heap[0]
            if self._keys.get(task) == key:
                return task
            heappop(self._heap)
        return None

    def ahead_of(self, key: Key, shown: int) -> tuple[list[str], int]:
        """Of the tasks that go before ``key``, the first ``shown`` in order, and how many there are. For reads."""
        place = bisect_left(self._in_order(), (key, ""))
        return [task for _, task in self._in_order()[: min(place, shown)]], place

    def head(self, count: int) -> list[str]:
        """The first ``count`` tasks in order. For reads."""
        return [task for _, task in self._in_order()[:count]]

    def _in_order(self) -> list[tuple[Key, str]]:
        if self._sorted is None:
            self._sorted = sorted((key, task) for task, key in self._keys.items())
        return self._sorted
