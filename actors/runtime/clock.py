"""The wall clock, and noticing that it went back by the clock that never does."""

from __future__ import annotations

import time

from actors.core.schedules.state import BACK_MS


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class WallWatch:
    """Two looks are compared: what the wall clock shows, and what it would if only time had passed."""

    def __init__(self, now_ms: int, now_s: float) -> None:
        self._shown_ms = now_ms
        self._at_s = now_s

    def went_back(self, now_ms: int, now_s: float) -> bool:
        """Whether since the last look the clock was set back, by enough not to be waited for."""
        expected_ms = self._shown_ms + round((now_s - self._at_s) * 1000)
        self._shown_ms, self._at_s = now_ms, now_s
        return expected_ms - now_ms > BACK_MS
