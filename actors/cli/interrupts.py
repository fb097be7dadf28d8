"""Ctrl-C and its kin, counted: the first asks for an end, the second for one now, the third does not ask.

Why not `trio.open_signal_receiver`: what it receives is handled by the event loop, and a Python function of
a plan can hold that up. The count here rises in the signal handler itself, so that the third signal always
ends the process.
"""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType, TracebackType
from typing import Any, Final

import trio

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_INTERRUPTED: Final = 130
AT_ONCE: Final = 3


class Interrupts:
    """A context manager around everything that is to be ended in order. For the main thread, inside
    `trio.run`."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup stays nohup
                self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self.count >= AT_ONCE:
            os._exit(EXIT_INTERRUPTED)
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._wake)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def reach(self, count: int) -> None:
        """Wait until there were so many of them."""
        while self.count < count:
            await self._changed.wait()
