"""When absent companies become due: one time each, however often they come and go."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush


class DueTimes:
    """``working``: companies that wait for work of theirs, and not only for a schedule."""

    def __init__(self) -> None:
        self._of: dict[str, int] = {}
        self.working: set[str] = set()
        self._heap: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __contains__(self, company: object) -> bool:
        return company in self._of

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def note(self, company: str, due_ms: int, *, works: bool = True) -> None:
        if works:
            self.working.add(company)
        else:
            self.working.discard(company)
        if self._of.get(company) != due_ms:
            self._of[company] = due_ms
            heappush(self._heap, (due_ms, company))
        if len(self._heap) > 2 * len(self._of) + 64:
            self._heap = sorted((due, name) for name, due in self._of.items())

    def forget(self, company: str) -> None:
        self._of.pop(company, None)
        self.working.discard(company)

    def first(self) -> tuple[int, str] | None:
        """The earliest time and whose it is."""
        while self._heap and self._of.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0] if self._heap else None
