"""Ctrl-C and its kin, counted: the first asks for an end, the second for one now, the third does not ask.

SIGTERM is what a service manager sends, and after a limit of its own, often ten seconds, it sends SIGKILL.
So SIGTERM is ``hasty``: what executes gets less time to finish. The commands may be sent it too (systemd
sends it to the whole control group); what becomes of them then is not their fault and costs no try:
`CostsNoTry`.

Why not `trio.open_signal_receiver`: what it receives is handled by the event loop, and a Python function of
a plan can hold that up. The count here rises in the signal handler itself, so that the third signal always
ends the process.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Awaitable, Callable
from types import FrameType, TracebackType
from typing import Any, Final

import attrs
import trio

from actors import RetryAfter
from actors.commands import CommandFailed

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_INTERRUPTED: Final = 130
AT_ONCE: Final = 3
OURS_TOO_S: Final = 0.5
"""How long a command that was ended by one of the signals waits to hear whether the host was sent one as well."""


class Interrupts:
    """A context manager around everything that is to be ended in order. For the main thread, inside
    `trio.run`."""

    def __init__(self) -> None:
        self.count = 0
        self.hasty = False
        """Whether one of them was SIGTERM."""
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

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self.count += 1
        self.hasty = self.hasty or number == signal.SIGTERM
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


@attrs.frozen
class CostsNoTry:
    """The handler of commands in a process that can be told to end: a command that was ended together with it
    was interrupted, it did not fail."""

    command: Callable[[Any], Awaitable[dict[str, Any]]]
    interrupts: Interrupts

    async def __call__(self, ctx: Any) -> dict[str, Any]:
        try:
            return await self.command(ctx)
        except CommandFailed as failed:
            if ctx.cancel_requested or not await self._ended_with_us(failed):
                raise
            raise RetryAfter(1, str(failed)) from failed

    async def _ended_with_us(self, failed: CommandFailed) -> bool:
        """After a SIGTERM any failure is taken for its work, as many programs catch it and exit with a status."""
        if failed.signal in SIGNALS:
            with trio.move_on_after(OURS_TOO_S):
                await self.interrupts.reach(1)
            return self.interrupts.count > 0
        return self.interrupts.hasty
