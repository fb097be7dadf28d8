"""Who is next: the one function that owns the order of a company's queue, and the queue of tasks whose own
gates are open.
"""

from __future__ import annotations

from bisect import bisect_left

from storage.records import RunRecord, TaskRecord

from .heap import Heap

Key = tuple[int, int, int]
Place = tuple[int, int, int, str]
"""A key, and the task that has it: places sort as their keys do."""


def order_key(task: TaskRecord, run: RunRecord) -> Key:
    """Smaller goes first: put in front by `StartNow` (latest first), then priority, then submission sequence.

    A retried, interrupted or resumed run keeps its place, because none of the three changes with it.
    """
    return (-run.front, task.priority, task.seq)


class OpenQueue:
    """Tasks whose own gates are all open, by order. A hundred thousand may wait in it, so a task costs one tuple."""

    __slots__ = ("_heap", "_sorted")

    def __init__(self) -> None:
        self._heap: Heap[str, Place] = Heap()
        self._sorted: list[Place] | None = None
        """For reads, kept until the next change: a list of all tasks asks once for each of them."""

    def __len__(self) -> int:
        return len(self._heap)

    def __contains__(self, task: object) -> bool:
        return task in self._heap

    def put(self, task: str, key: Key) -> None:
        """Add a task, or give it a new key."""
        if self._heap.put(task, (*key, task)):
            self._sorted = None

    def discard(self, task: str) -> None:
        if self._heap.discard(task):
            self._sorted = None

    def first(self) -> str | None:
        place = self._heap.first()
        return None if place is None else place[3]

    def first_place(self) -> Place | None:
        """The first, after its key."""
        return self._heap.first()

    def ahead_of(self, key: Key, shown: int) -> tuple[list[str], int]:
        """Of the tasks that go before ``key``, the first ``shown`` in order, and how many there are. For reads."""
        places, ahead = self.places_ahead_of(key, shown)
        return [place[3] for place in places], ahead

    def places_ahead_of(self, key: Key, shown: int) -> tuple[list[Place], int]:
        ahead = bisect_left(self._in_order(), (*key, ""))
        return self._in_order()[: min(ahead, shown)], ahead

    def head(self, count: int) -> list[str]:
        """The first ``count`` tasks in order. For reads."""
        return [place[3] for place in self._in_order()[:count]]

    def _in_order(self) -> list[Place]:
        if self._sorted is None:
            self._sorted = self._heap.in_order()
        return self._sorted


class NeedQueues:
    """The tasks of an `OpenQueue` once more, by what of the budget their first attempts need. Kept only where there
    is a budget; mostly all need the same, so there is a queue for each need.
    """

    __slots__ = ("_lines", "_needs")

    def __init__(self) -> None:
        self._lines: dict[int, OpenQueue] = {}
        self._needs: dict[str, int] = {}

    def put(self, task: str, key: Key, need: int) -> None:
        if self._needs.get(task, need) != need:
            self.discard(task)
        self._needs[task] = need
        self._lines.setdefault(need, OpenQueue()).put(task, key)

    def discard(self, task: str) -> None:
        need = self._needs.pop(task, None)
        if need is not None:
            self._lines[need].discard(task)
            if not len(self._lines[need]):
                del self._lines[need]

    def clear(self) -> None:
        self._lines.clear()
        self._needs.clear()

    def first(self, room: int) -> str | None:
        """The first in order of those that need no more than ``room``."""
        places = [line.first_place() for line in self._within(room)]
        return min((place for place in places if place is not None), default=(0, 0, 0, None))[3]

    def ahead_of(self, key: Key, shown: int, room: int) -> tuple[list[str], int]:
        """As of `OpenQueue`, of those that need no more than ``room``. For reads."""
        found = [line.places_ahead_of(key, shown) for line in self._within(room)]
        places = sorted(place for some, _ in found for place in some)
        return [place[3] for place in places[:shown]], sum(count for _, count in found)

    @property
    def needs(self) -> dict[str, int]:
        """Task → need. For tests."""
        return dict(self._needs)

    def _within(self, room: int) -> list[OpenQueue]:
        return [line for need, line in self._lines.items() if need == 0 or need <= room]
