"""Stall limits: one child and one heap for all attempts.

An attempt that says nothing for half of its limit is warned of; at the limit it is cancelled. What it says
(`Context.progress`) costs it an assignment and moves nothing here: the entry in the heap is looked at when
its time comes, and put back if the attempt got on meanwhile. Waiting does not count. A sign of life is not
progress: the watch goes by what the handler says, never by whether its task is scheduled.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

import trio

from actors.core.transitions import Phase

from .attempts import Attempt

_SLACK = 256
"""The heap is cleared of ended attempts when it has more than twice as many entries as live ones, and this."""


class StallWatch:
    def __init__(self, stalled: Callable[[Attempt], None], quiet: Callable[[Attempt, float], None]) -> None:
        self._stalled = stalled
        self._quiet = quiet
        self._heap: list[tuple[float, int, Attempt]] = []
        self._count = 0
        self._clean_at = _SLACK
        self._earlier = trio.Event()

    def add(self, attempt: Attempt) -> None:
        """Watch the attempt from now on."""
        assert attempt.spec is not None
        assert attempt.spec.stall_s is not None
        self._push(attempt.active_s + attempt.spec.stall_s / 2, attempt)
        if len(self._heap) > self._clean_at:
            self._heap = [entry for entry in self._heap if not entry[2].ended]
            heapify(self._heap)
            self._clean_at = 2 * len(self._heap) + _SLACK

    def _push(self, at_s: float, attempt: Attempt) -> None:
        self._count += 1
        if not self._heap or at_s < self._heap[0][0]:
            self._earlier.set()
        heappush(self._heap, (at_s, self._count, attempt))

    async def run(self) -> None:
        """Watch for ever."""
        while True:
            self._earlier = trio.Event()
            while self._heap and self._heap[0][0] <= trio.current_time():
                self._look(heappop(self._heap)[2])
            with trio.move_on_at(self._heap[0][0] if self._heap else float("inf")):
                await self._earlier.wait()

    def _look(self, attempt: Attempt) -> None:
        if attempt.ended or attempt.phase is Phase.CANCELLING:
            return
        assert attempt.spec is not None
        stall_s = attempt.spec.stall_s
        assert stall_s is not None
        now_s = trio.current_time()
        if attempt.phase is Phase.WAITING:
            self._push(now_s + stall_s / 2, attempt)
            return
        # the same sums decide as are put in the heap: a difference would round another way, and look for ever
        half_s, limit_s = attempt.active_s + stall_s / 2, attempt.active_s + stall_s
        if now_s >= limit_s:
            self._stalled(attempt)
        elif now_s >= half_s:
            if not attempt.warned:
                attempt.warned = True
                self._quiet(attempt, now_s - attempt.active_s)
            self._push(limit_s, attempt)
        else:
            self._push(half_s, attempt)
