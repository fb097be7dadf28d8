"""When a crashed actor is started again: a pure function of its crashes."""

from __future__ import annotations

from collections.abc import Sequence

QUIET_S = 60.0
"""A minute without a crash and all is forgotten."""
DELAY_MAX_S = 60.0
PARKED_ABOVE_S = 5.0
"""While the rest is longer than this the company is *parked*: its messages are answered instead of kept
waiting.
"""


def add_crash(crashes: Sequence[float], now_s: float) -> tuple[float, ...]:
    """The crashes that count, with this one: those that followed each other within a quiet minute."""
    return (*crashes, now_s) if counts(crashes, now_s) else (now_s,)


def counts(crashes: Sequence[float], now_s: float) -> bool:
    """Whether there were crashes, and no quiet minute since."""
    return bool(crashes) and now_s - crashes[-1] < QUIET_S + delay_s(len(crashes))


def delay_s(crashes: int) -> float:
    """Seconds to rest after so many crashes in a row: 0, 1, 2, 4 … 60."""
    if crashes <= 1:
        return 0.0
    return min(DELAY_MAX_S, 2.0 ** min(crashes - 2, 10))
