"""When a failed node is tried again. Pure arithmetic that cannot overflow, whatever the numbers."""

from __future__ import annotations

import math
import zlib

from actors.messages import Backoff

JITTER_MAX = 0.1
"""Up to a tenth more, so that failures of one moment do not return in one moment."""
_DUE_MS_MAX = 2**62
"""Sums of times stay inside SQLite's 64-bit integers."""


def backoff_s(backoff: Backoff, tries: int, identity: str) -> float:
    """Seconds to wait after try number ``tries`` (from 1) failed.

    ``identity`` names the attempt: the jitter derives from it, so the same attempt always waits the same
    time.
    """
    if backoff.base_s == 0:
        return 0.0
    grown = math.log(backoff.base_s) + (tries - 1) * math.log(backoff.factor)
    room = math.log(backoff.max_s) if backoff.max_s > 0 else -math.inf
    wait = backoff.max_s if grown >= room else round(math.exp(grown), 6)
    fraction = zlib.crc32(identity.encode("utf-8")) / 2**32
    return wait * (1 + JITTER_MAX * fraction)


def due_ms(now_ms: int, wait_s: float) -> int:
    """The wall-clock time ``wait_s`` from now, whole milliseconds, rounded up."""
    return min(now_ms + math.ceil(min(wait_s * 1000, _DUE_MS_MAX)), _DUE_MS_MAX)
