"""For hosts' own tests: the whole runtime, with real SQL, on a virtual clock.

The store runs inline, so no thread works beside the test, and under `trio.testing.MockClock` with
``autojump_threshold=0`` hours pass in no time: backoffs, time-outs, graces and sweeps happen in the order
in which they would.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import trio

from actors.handlers import Handler, freeze
from actors.runtime.execution import STOP_GRACE_S, WAITING_MAX
from actors.runtime.retention.policy import Retention
from actors.runtime.runtime import DRAIN_S, EXECUTIONS_MAX, Options, Runtime, run_database
from actors.runtime.slots import ABANDONED_MAX

EPOCH_MS = 1_767_225_600_000
"""2026-01-01 00:00 UTC: where virtual wall time begins."""


class VirtualClock:
    """A wall clock that moves with Trio's, and can be made to jump."""

    def __init__(self, start_ms: int = EPOCH_MS) -> None:
        self._offset_ms = start_ms
        self._began_s: float | None = None

    def __call__(self) -> int:
        now_s = trio.current_time()
        if self._began_s is None:
            self._began_s = now_s
        return self._offset_ms + round((now_s - self._began_s) * 1000)

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator would; Trio's clock does not notice."""
        self._offset_ms += round(seconds * 1000)


@asynccontextmanager
async def open_test_runtime(
    path: str | os.PathLike[str],
    *,
    handlers: Mapping[str, Handler],
    clock: VirtualClock | None = None,
    executions_max: int = EXECUTIONS_MAX,
    stop_grace_s: float = STOP_GRACE_S,
    drain_s: float = DRAIN_S,
    waiting_max: int = WAITING_MAX,
    abandoned_max: int = ABANDONED_MAX,
    retention: Retention | None = None,
) -> AsyncIterator[Runtime]:
    """`open_runtime` with the inline store and a virtual wall clock."""
    options = Options(
        freeze(handlers),
        executions_max,
        stop_grace_s,
        drain_s,
        waiting_max=waiting_max,
        abandoned_max=abandoned_max,
        retention=Retention() if retention is None else retention,
        clock_ms=clock or VirtualClock(),
    )
    async with run_database(path, options, how="inline") as runtime:
        yield runtime


async def run_until_idle(runtime: Runtime) -> None:
    """Wait until nothing can go on by itself: no attempt, no message, nothing backing off, in any company.

    What is queued behind a limit, blocked, or waits for a person stays so. What other processes left in the
    inbox is taken first. The times of schedules are not waited for, as there is always a next one; tasks that
    may not start yet are.
    """
    runtime.intake.wake()
    while True:
        news = runtime.hub.news
        if runtime.idle:
            await trio.lowlevel.checkpoint()
            return
        await news.wait()
