"""Executing attempts: starting, cancelling, and seeing to it that each one ends.

An attempt runs in a child of the runtime's nursery, beside the actor and independent of its restarts. What
became of it is a `Report`, kept in the attempt until it is committed and put in the company's system lane.
Time-outs and graces run here and need no turn; only recording needs one. A child that returned has given
its slot back at once; its result waits for the commit.

A handler that does not end within the grace after it was cancelled is left behind: its end is reported
without it, its slot is free, and when it returns at last, its report is late.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

import structlog
import trio

from actors.core.draft import StartAttempt
from actors.core.reports import Report
from actors.core.transitions import Phase
from actors.errors import GiveUp, IllegalMove, RetryAfter
from actors.handlers import Context, Handler
from storage.codec import decode, encode
from storage.records import AttemptEnd
from storage.units import Inputs

from .attempts import Attempt, AttemptRef, Registry
from .context import current_attempt
from .describe import describe
from .slots import Slots

STOP_GRACE_S = 10.0
"""From the cancellation of an attempt to leaving it behind: longer than a command's own way from SIGTERM to
SIGKILL.
"""


class Host(Protocol):
    """What executing needs of the runtime."""

    def company_handle(self, company: str) -> Any: ...
    def post_report(self, company: str, report: Report) -> None: ...
    async def record_process(self, ref: AttemptRef, pid: int, started: str) -> None: ...
    def notify(self) -> None: ...


class Executor:
    """Runs attempts. All methods but the children's are synchronous, so that acting on a commit has no
    checkpoint.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        registry: Registry,
        slots: Slots,
        handlers: Mapping[str, Handler],
        host: Host,
        *,
        stop_grace_s: float = STOP_GRACE_S,
    ) -> None:
        self._nursery = nursery
        self._registry = registry
        self._slots = slots
        self._handlers = handlers
        self._host = host
        self.stop_grace_s = stop_grace_s
        self._threads = trio.CapacityLimiter(math.inf)  # the execution slots bound them already
        self.closing = False
        """Set when the runtime closes now: a child that starts sees it before it does any work."""

    # --- called by actors -----------------------------------------------------------------------------------

    def start(self, attempt: Attempt, effect: StartAttempt, inputs: Inputs) -> None:
        """The attempt is durable: begin it."""
        attempt.spec = effect.spec
        attempt.generation = effect.generation
        attempt.input_names = effect.input_names
        attempt.move(Phase.EXECUTING)
        attempt.alive = True
        self._nursery.start_soon(self._run, attempt, inputs, name=f"attempt {attempt.label}")
        if effect.spec.timeout_s is not None:
            self._nursery.start_soon(self._time_out, attempt, effect.spec.timeout_s)

    def cancel(self, ref: AttemptRef, why: str) -> None:
        """Ask a live attempt to end; what has ended, or was asked before, is left alone."""
        attempt = self._registry.get(ref)
        if attempt is not None:
            self.cancel_attempt(attempt, why)

    def cancel_attempt(self, attempt: Attempt, why: str) -> None:
        if attempt.phase not in (Phase.EXECUTING, Phase.WAITING):
            return
        attempt.move(Phase.CANCELLING)
        attempt.cancel_why = why
        if attempt.scope is not None:
            attempt.scope.cancel()
        self._nursery.start_soon(self._grace, attempt, why)

    def finish(self, ref: AttemptRef) -> None:
        """The end is committed: the registration goes."""
        self._registry.finish(ref)

    # --- an attempt's children ------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def _run(self, attempt: Attempt, inputs: Inputs) -> None:
        current_attempt.set(attempt.ref)
        try:
            report = await self._execute(attempt, inputs)
        finally:
            if not attempt.in_thread:
                self._registry.returned(attempt)
        self._ended(attempt, report)

    async def _execute(self, attempt: Attempt, inputs: Inputs) -> Report:
        """The handler from beginning to end; whatever happens becomes a report."""
        if self.closing:
            return self._report(attempt, AttemptEnd.INTERRUPTED, error="the runtime was closing")
        with trio.CancelScope() as attempt.scope:
            if attempt.phase is Phase.CANCELLING:
                attempt.scope.cancel()
            try:
                context = self._context(attempt, inputs)
            except ValueError as error:
                return self._report(attempt, AttemptEnd.INTERRUPTED, bad_row=describe(error))
            try:
                value = await self._call(attempt, context)
                return self._report(attempt, AttemptEnd.SUCCEEDED, result=encode(value, what="the result"))
            except GiveUp as error:
                return self._report(attempt, AttemptEnd.FAILED, error=describe(error), give_up=True)
            except RetryAfter as error:
                return self._report(
                    attempt, AttemptEnd.INTERRUPTED, error=describe(error), again_s=error.seconds
                )
            except IllegalMove as error:
                return self._report(attempt, AttemptEnd.INTERRUPTED, error=describe(error))
            except KeyboardInterrupt:
                self._ended(attempt, self._report(attempt, AttemptEnd.INTERRUPTED, error="KeyboardInterrupt"))
                raise
            except (Exception, SystemExit, GeneratorExit) as error:
                return self._failed(attempt, error)
            except BaseExceptionGroup as group:
                errors = group.split(trio.Cancelled)[1]
                if errors is None:
                    raise
                return self._failed(attempt, errors)
        why = attempt.cancel_why or "closing"
        return self._report(attempt, _END_OF[why], error=self._why_text(attempt, why))

    async def _call(self, attempt: Attempt, context: Context) -> object:
        assert attempt.spec is not None
        handler = self._handlers[attempt.spec.handler]
        if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004 - asks what kind, not whether
        ):
            return await handler(context)
        value = await self._in_thread(attempt, partial(handler, context))
        return await value if inspect.isawaitable(value) else value

    async def _in_thread(self, attempt: Attempt, work: Callable[[], object]) -> object:
        """A plain function cannot be cancelled; it gets the grace, and then its thread is left behind."""
        token = trio.lowlevel.current_trio_token()
        attempt.in_thread = True

        def in_thread() -> object:
            try:
                return work()
            finally:
                with suppress(trio.RunFinishedError):
                    token.run_sync_soon(self._thread_returned, attempt)

        with trio.CancelScope(shield=True) as attempt.hard_scope:
            if attempt.phase is Phase.FINALIZING:
                attempt.hard_scope.cancel()
            return await trio.to_thread.run_sync(
                in_thread, abandon_on_cancel=True, limiter=self._threads, thread_name=attempt.label
            )
        raise _LeftBehind

    def _thread_returned(self, attempt: Attempt) -> None:
        attempt.in_thread = False
        late = attempt.phase is Phase.FINALIZING and self._registry.get(attempt.ref) is None
        self._registry.returned(attempt)
        if late:
            self._host.post_report(
                attempt.ref.company, self._report(attempt, AttemptEnd.INTERRUPTED, error="late")
            )

    @trio.lowlevel.enable_ki_protection
    async def _time_out(self, attempt: Attempt, timeout_s: float) -> None:
        with trio.move_on_after(timeout_s):
            await attempt.ended.wait()
        self.cancel_attempt(attempt, "timed_out")

    @trio.lowlevel.enable_ki_protection
    async def _grace(self, attempt: Attempt, why: str) -> None:
        with trio.move_on_after(self.stop_grace_s):
            await attempt.ended.wait()
        if not attempt.ended.is_set():
            self.leave_behind(attempt, why)

    def leave_behind(self, attempt: Attempt, why: str) -> None:
        """Report the attempt's end without it, and let its thread be."""
        report = self._report(
            attempt,
            _END_OF[why],
            error=self._why_text(attempt, why),
            abandoned_after_s=self.stop_grace_s,
        )
        self._ended(attempt, report)
        if attempt.hard_scope is not None:
            attempt.hard_scope.cancel()

    # --- its end --------------------------------------------------------------------------------------------

    def _ended(self, attempt: Attempt, report: Report) -> None:
        """Whoever comes first says how the attempt ended; a second report of it is late."""
        if attempt.phase is Phase.FINALIZING:
            if not attempt.in_thread:
                self._host.post_report(attempt.ref.company, report)
            return
        attempt.move(Phase.FINALIZING)
        attempt.report = report
        attempt.ended.set()
        if self._registry.free_slot(attempt):
            self._slots.offer()
        self._host.post_report(attempt.ref.company, report)

    def _report(self, attempt: Attempt, end: AttemptEnd, **fields: Any) -> Report:
        return Report(attempt.ref.key, end, **fields)

    def _failed(self, attempt: Attempt, error: BaseException) -> Report:
        """An error that came out of a cancelled handler is a way of ending, not a failure of its own."""
        end = AttemptEnd.FAILED if attempt.cancel_why is None else _END_OF[attempt.cancel_why]
        return self._report(attempt, end, error=describe(error))

    def _why_text(self, attempt: Attempt, why: str) -> str | None:
        if why == "timed_out" and attempt.spec is not None:
            return f"TimeOut: took longer than {attempt.spec.timeout_s:g} s"
        return "the runtime was closing" if why == "closing" else None

    def _context(self, attempt: Attempt, inputs: Inputs) -> Context:
        assert attempt.spec is not None
        company, key = attempt.ref.company, attempt.ref.key
        task_payload = None if inputs.payload is None else decode(inputs.payload)
        own = None if inputs.node_payload is None else decode(inputs.node_payload)
        results = {
            name: decode(text or "null")
            for name, text in zip(attempt.input_names, inputs.results, strict=True)
        }
        return Context(
            company=self._host.company_handle(company),
            task=key.task,
            run=key.run,
            node=attempt.spec.name,
            attempt=key.number,
            generation=attempt.generation,
            payload=task_payload if own is None else own,
            task_payload=task_payload,
            inputs=MappingProxyType(results),
            key=f"{company}/{key.task}/{key.run}/{attempt.spec.name}/{attempt.generation}",
            log=structlog.get_logger("turnkeeper").bind(
                company=company, task=key.task, run=key.run, node=attempt.spec.name, attempt=key.number
            ),
            progress=partial(self._progress, attempt),
            record_process=partial(self._host.record_process, attempt.ref),
            cancelled=lambda: attempt.cancel_why is not None or self.closing,
        )

    def _progress(self, attempt: Attempt, text: str) -> None:
        attempt.progress = text
        with suppress(RuntimeError):
            trio.lowlevel.current_trio_token()
            self._host.notify()


class _LeftBehind(Exception):
    """The thread of a plain function was left behind; its report has been made."""


_END_OF = {
    "stopped": AttemptEnd.STOPPED,
    "timed_out": AttemptEnd.TIMED_OUT,
    "closing": AttemptEnd.INTERRUPTED,
    "superseded": AttemptEnd.SUPERSEDED,
}
