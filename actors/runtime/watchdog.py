"""A watchdog for the event loop: names the handler that blocks it, and measures the loop's lag.

Async handlers share one thread with everything else. One that computes, or calls something that blocks,
stops every company; nothing in the process can end it. So a thread looks whether the loop still turns, and
after a second says in whose code it stands. Several handlers may do so one after the other before the loop
turns again: each of them is named.
"""

from __future__ import annotations

import sys
import threading
import time
from types import FrameType
from typing import Any

import trio

from storage.logging import get_logger

from .attempts import Attempt

BEAT_S = 0.25
BLOCKED_S = 1.0
"""After so long without a turn of the loop the watchdog speaks."""

_log = get_logger("turnkeeper")


class Watchdog:
    """``lag_s``: how much later than asked for the loop woke its last beat, in seconds."""

    def __init__(self, *, beat_s: float = BEAT_S, blocked_s: float = BLOCKED_S) -> None:
        self.lag_s = 0.0
        self._beat_s = beat_s
        self._blocked_s = blocked_s
        self._beaten = time.monotonic()
        self._thread_id = threading.get_ident()
        self._stop = threading.Event()

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Beat, with the watching thread beside, until cancelled."""
        thread = threading.Thread(target=self._watch, name="turnkeeper watchdog", daemon=True)
        thread.start()
        try:
            while True:
                asked = time.monotonic()
                self._beaten = asked
                await trio.sleep(self._beat_s)
                self.lag_s = max(0.0, time.monotonic() - asked - self._beat_s)
        finally:
            self._stop.set()
            thread.join(1.0)

    def _watch(self) -> None:
        beaten, said, named, seen, seen_at = 0.0, False, None, None, 0.0
        while not self._stop.wait(self._beat_s):
            now = time.monotonic()
            if self._beaten != beaten:
                beaten, said = self._beaten, False
            if now - beaten < self._blocked_s:
                continue
            found = where(sys._current_frames().get(self._thread_id))
            who = found.get("attempt")
            if said:  # once of each; of one that came after it, from when it was first seen
                if who != seen:
                    seen, seen_at = who, now
                if who == named or now - seen_at < self._blocked_s:
                    continue
            said, named, seen = True, who, who
            _log.error("loop.blocked", silent_s=round(now - beaten, 3), **found)


def where(frame: FrameType | None) -> dict[str, Any]:
    """Which attempt's code the loop stands in, and the line; empty if it cannot be told."""
    line = None if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
    while frame is not None:
        attempt = frame.f_locals.get("attempt") if frame.f_code.co_name == "_call" else None
        if isinstance(attempt, Attempt):
            return {"attempt": attempt.label, "at": line}
        frame = frame.f_back
    return {} if line is None else {"at": line}
