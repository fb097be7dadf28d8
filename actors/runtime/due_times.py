"""When absent companies become due: one time each, however often they come and go."""

from __future__ import annotations

from actors.core.heap import Heap


class DueTimes(Heap[str, tuple[int, str]]):
    """When absent companies become due: one time each, however often they come and go."""

    __slots__ = ("working",)

    def __init__(self) -> None:
        super().__init__()
        self.working: set[str] = set()
        """Those of them that wait for work of theirs, and not only for a schedule."""

    def note(self, company: str, due_ms: int, *, works: bool = True) -> None:
        if works:
            self.working.add(company)
        else:
            self.working.discard(company)
        self.put(company, (due_ms, company))

    def forget(self, company: str) -> None:
        self.discard(company)
        self.working.discard(company)
