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
        place = self.first_place()
        return None if place is None else place[3]

    def first_place(self) -> _Place | None:
        while self._heap:
            place = self._heap[0]
            if self._places.get(place[3]) is place:
                return place
            heappop(self._heap)
        return None

    def ahead_of(self, key: Key, shown: int) -> tuple[list[str], int]:
        """Of the tasks that go before ``key``, the first ``shown`` in order, and how many there are. For reads."""
        places, ahead = self.places_ahead_of(key, shown)
        return [place[3] for place in places], ahead

    def places_ahead_of(self, key: Key, shown: int) -> tuple[list[_Place], int]:
        ahead = bisect_left(self._in_order(), (*key, ""))
        return self._in_order()[: min(ahead, shown)], ahead

    def head(self, count: int) -> list[str]:
        """The first ``count`` tasks in order. For reads."""
        return [place[3] for place in self._in_order()[:count]]

    def _in_order(self) -> list[_Place]:
        if self._sorted is None:
            self._sorted = sorted(self._places.values())
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
