"""A priority queue whose keys may change their places and leave."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
P = TypeVar("P", bound=tuple[Any, ...])

HEAP_SLACK = 64
"""The heap is rebuilt when more than half of it, and more than this, is stale."""


class Heap(Generic[K, P]):
    """Keys by their places; adding, leaving and looking at the first cost a logarithm.

    A place is a tuple that sorts, and that ends with its key. Places that do not count any more stay in the heap until
    they come first or are too many, so it is never longer than twice the keys and `HEAP_SLACK`.
    """

    __slots__ = ("_heap", "_places")

    def __init__(self) -> None:
        self._places: dict[K, P] = {}
        self._heap: list[P] = []

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[K]:
        """All keys, in no order."""
        return iter(self._places)

    def put(self, key: K, place: P) -> bool:
        """Add a key, or move it; says whether anything changed."""
        if self._places.get(key) == place:
            return False
        self._places[key] = place
        heappush(self._heap, place)
        if len(self._heap) > 2 * len(self._places) + HEAP_SLACK:
            self._heap = list(self._places.values())
            heapify(self._heap)
        return True

    def discard(self, key: K) -> bool:
        """Remove a key; says whether it was there."""
        return self._places.pop(key, None) is not None

    def clear(self) -> None:
        self._places.clear()
        self._heap.clear()

    def first(self) -> P | None:
        """The least place."""
        while self._heap:
            place = self._heap[0]
            if self._places.get(place[-1]) is place:
                return place
            heappop(self._heap)
        return None

    def in_order(self) -> list[P]:
        """All places, sorted. For reads."""
        return sorted(self._places.values())
