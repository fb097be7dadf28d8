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
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any

import trio

from actors.core.effects import StartAttempt
from actors.core.inputs import Report
from actors.core.transitions import Phase
from actors.errors import GiveUp, IllegalMove, RetryAfter, RuntimeClosed
from actors.handlers import Context
from storage.codec import clean_text, encode
from storage.contract.recovery import RecordProcess
from storage.contract.turns import Inputs
from storage.errors import StorageError
from storage.logging import get_logger
from storage.records import AttemptEnd, EventRecord

from .attempts import Attempt, AttemptRef
from .current import current_attempt
from .describe import describe, describe_all, leaves_of
from .inputs import context_of
from .lookup import place_of
from .publisher import quiet_event
from .services import Services
from .spending import SpendingTeller
from .stalls import StallWatch

_log = get_logger("turnkeeper")

ILLEGAL_MAX = 3
"""So many illegal moves in a row of one node and it fails: a mistake of ours must not go round for ever."""


class Executor:
    """Runs attempts. All methods but the children's are synchronous, so that acting on a commit has no
    checkpoint.
    """

    def __init__(self, nursery: trio.Nursery, services: Services) -> None:
        self._nursery = nursery
        self._services = services
        self._registry = services.registry
        self._slots = services.slots
        self._watch = StallWatch(self._stalled, self._tell_quiet)
        self._clock = trio.lowlevel.current_clock().current_time  # can be read in a worker thread too
        self.spending = SpendingTeller(nursery, services.post)
        self._threads = trio.CapacityLimiter(math.inf)  # the execution slots bound them already

    @property
    def closing(self) -> bool:
        """Whether the runtime closes now: a child that starts sees it before it does any work."""
        return self._services.shutdown.closing

    # --- called by actors -----------------------------------------------------------------------------------

    def start(self, attempt: Attempt, effect: StartAttempt, inputs: Inputs) -> None:
        """The attempt is durable: begin it."""
        attempt.spec = effect.spec
        attempt.generation = effect.generation
        attempt.input_names = effect.input_names
        attempt.feedback = effect.feedback
        try:
            attempt.move(Phase.EXECUTING)
        except IllegalMove as error:
            self._ended(attempt, self._illegal(attempt, error))
            return
        attempt.active_s = trio.current_time()
        self._nursery.start_soon(self._run, attempt, inputs, name=f"attempt {attempt.label}")
        attempt.alive = True
        if effect.spec.timeout_s is not None:
            self._nursery.start_soon(self._time_out, attempt, effect.spec.timeout_s)
        if effect.spec.stall_s is not None:
            self._watch.add(attempt)

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
        self._slots.forget(attempt)
        if attempt.scope is not None:
            attempt.scope.cancel()
        self._nursery.start_soon(self._grace, attempt, why)

    def finish(self, ref: AttemptRef) -> None:
        """The end is committed: the registration goes."""
        self._registry.finish(ref)
        self._slots.offer()  # a suspect may have waited for this one's end

    def _stalled(self, attempt: Attempt) -> None:
        self.cancel_attempt(attempt, "stalled")

    def _tell_quiet(self, attempt: Attempt, quiet_s: float) -> None:
        event = quiet_event(attempt, quiet_s, self._services.now_ms())
        self._nursery.start_soon(self._record_quietly, attempt.ref.company, event)

    async def _record_quietly(self, company: str, event: EventRecord) -> None:
        """An event that cannot be stored is only logged."""
        try:
            claim = await self._services.directory.claim_of(company)
            await self._services.publisher.record_of_company(claim, event)
        except (StorageError, RuntimeClosed) as error:
            _log.warning("event.unstored", kind=event.kind, cause=str(error))

    @trio.lowlevel.enable_ki_protection
    async def watch_stalls(self) -> None:
        """One child for the stall limits of all attempts."""
        await self._watch.run()

    # --- an attempt's children ------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def _run(self, attempt: Attempt, inputs: Inputs) -> None:
        current_attempt.set(attempt.ref)
        try:
            report = await self._execute(attempt, inputs)
        except _LeftBehind:
            return
        except Exception as error:  # Trio's, about a scope or a nursery that the handler left open
            report = self._failed(attempt, error)
        finally:
            if trio.lowlevel.current_task().child_nurseries:
                await _end_leaked_nurseries()
            if not attempt.in_thread:
                self._gone(attempt)
        self._ended(attempt, report)

    async def _execute(self, attempt: Attempt, inputs: Inputs) -> Report:
        """The handler from beginning to end; whatever happens becomes a report."""
        if self.closing:
            return self._report(attempt, AttemptEnd.INTERRUPTED, error="the runtime was closing")
        with trio.CancelScope() as attempt.scope:
            if attempt.phase is Phase.CANCELLING:
                attempt.scope.cancel()
            try:
                context = context_of(self._services, attempt, inputs, _WayBack(self, attempt))
            except ValueError as error:
                return self._report(attempt, AttemptEnd.INTERRUPTED, bad_row=describe(error))
            try:
                value = await self._call(attempt, context)
                return self._report(attempt, AttemptEnd.SUCCEEDED, result=encode(value, what="the result"))
            except _LeftBehind:
                raise
            except BaseException as error:
                report = self._report_of(attempt, error)
                if report is None:
                    raise
                return report
        why = attempt.cancel_why or "closing"
        return self._report(attempt, _END_OF[why], error=self._why_text(attempt, why))

    def _report_of(self, attempt: Attempt, error: BaseException) -> Report | None:
        """What a handler's exception says of its end; ``None`` for one that has to go on: our own
        cancellation, and a Ctrl-C.

        Trio's nurseries wrap what their children raise, so a group counts as what is in it. Anything else
        ends the attempt and nobody besides, be it an ``Exception`` or not.
        """
        cancelled = trio.current_effective_deadline() == -math.inf
        leaves = [leaf for leaf in leaves_of(error) if not (cancelled and isinstance(leaf, trio.Cancelled))]
        if any(isinstance(leaf, KeyboardInterrupt) for leaf in leaves):
            self._ended(attempt, self._report(attempt, AttemptEnd.INTERRUPTED, error="KeyboardInterrupt"))
            return None
        if not leaves:
            return None
        text = describe_all(leaves)
        if any(isinstance(leaf, GiveUp) for leaf in leaves):
            return self._report(attempt, AttemptEnd.FAILED, error=text, give_up=True)
        again = [leaf.seconds for leaf in leaves if isinstance(leaf, RetryAfter)]
        if len(again) == len(leaves):
            return self._report(attempt, AttemptEnd.INTERRUPTED, error=text, again_s=max(again))
        illegal = next((leaf for leaf in leaves if isinstance(leaf, IllegalMove)), None)
        if illegal is not None:
            return self._illegal(attempt, illegal)
        return self._failed(attempt, error, text)

    async def _call(self, attempt: Attempt, context: Context) -> object:
        assert attempt.spec is not None
        handler = self._services.options.handlers[attempt.spec.handler]
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

        def in_thread() -> tuple[object]:
            end = AttemptEnd.FAILED
            try:
                value = work()
                end = AttemptEnd.SUCCEEDED
                return (value,)  # bare, Trio would take a coroutine for a mistake
            finally:
                with suppress(trio.RunFinishedError):
                    token.run_sync_soon(self._thread_returned, attempt, end)

        with trio.CancelScope(shield=True) as attempt.hard_scope:
            if attempt.phase is Phase.FINALIZING:
                attempt.hard_scope.cancel()
            (value,) = await trio.to_thread.run_sync(
                in_thread, abandon_on_cancel=True, limiter=self._threads, thread_name=attempt.label
            )
            return value
        raise _LeftBehind

    def _thread_returned(self, attempt: Attempt, end: AttemptEnd) -> None:
        """Runs before the attempt's own child hears of it, so one that is finalizing was left behind."""
        attempt.in_thread = False
        self._gone(attempt)
        if attempt.phase is Phase.FINALIZING:
            self._services.post(attempt.ref.company, self._report(attempt, end))

    async def _time_out(self, attempt: Attempt, timeout_s: float) -> None:
        with trio.move_on_after(timeout_s):
            await attempt.wait_end()
        self.cancel_attempt(attempt, "timed_out")

    @trio.lowlevel.enable_ki_protection
    async def _grace(self, attempt: Attempt, why: str) -> None:
        with trio.move_on_after(self._services.options.stop_grace_s):
            await attempt.wait_end()
        if not attempt.ended:
            self.leave_behind(attempt, why)

    def leave_behind(self, attempt: Attempt, why: str) -> None:
        """Report the attempt's end without it, and let its thread be."""
        report = self._report(
            attempt,
            _END_OF[why],
            error=self._why_text(attempt, why),
            abandoned_after_s=self._services.options.stop_grace_s,
        )
        self._ended(attempt, report)
        if attempt.hard_scope is not None:
            attempt.hard_scope.cancel()

    # --- waiting --------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def waiting(self, attempt: Attempt, reason: str) -> AsyncIterator[None]:
        """The body waits for something outside: its execution slot is free for others meanwhile."""
        attempt.waits += 1
        if (
            attempt.waits == 1
            and attempt.phase is Phase.EXECUTING
            and self._registry.waiting < self._services.options.waiting_max
        ):
            attempt.move(Phase.WAITING)
            attempt.waiting, attempt.waiting_since_ms = (
                clean_text(reason, chars_max=200),
                self._services.now_ms(),
            )
            self._registry.free_slot(attempt)
            self._slots.offer()
            self._services.notifier.notify(attempt.ref.company)
        try:
            yield
        finally:
            attempt.waits -= 1
            if attempt.waits == 0 and attempt.phase is Phase.WAITING:
                await self._slots.take_back(attempt)
            attempt.waiting = None if attempt.waits == 0 else attempt.waiting
            self._services.notifier.notify(attempt.ref.company)

    # --- its end --------------------------------------------------------------------------------------------

    def _ended(self, attempt: Attempt, report: Report) -> None:
        """Whoever comes first says how the attempt ended; a second report of it is late."""
        attempt.spent_told = max(attempt.spent_told, report.spent or 0)
        if attempt.phase is Phase.FINALIZING:
            self._services.post(attempt.ref.company, report)
            return
        attempt.move(Phase.FINALIZING)
        attempt.report = report
        if report.illegal_phase is None:
            self._registry.forget_illegal(attempt)
        attempt.end()
        if self._registry.free_slot(attempt):
            self._slots.offer()
        self._services.post(attempt.ref.company, report)

    def _gone(self, attempt: Attempt) -> None:
        """Its child or thread is no more. If it was one too many of those left behind, others may start again."""
        held_up = self._slots.held_up
        self._registry.returned(attempt)
        if held_up and not self._slots.held_up:
            self._slots.offer()
            self._services.directory.wake_all()

    def _report(self, attempt: Attempt, end: AttemptEnd, **fields: Any) -> Report:
        node = None if attempt.spec is None else attempt.spec.name
        metered = attempt.spent or (attempt.spec is not None and attempt.spec.estimate)
        spent = attempt.spent if metered else None
        return Report(attempt.ref.key, end, node=node, spent=spent, **fields)

    def _failed(self, attempt: Attempt, error: BaseException, text: str | None = None) -> Report:
        """An error that came out of a cancelled handler is a way of ending, not a failure of its own."""
        end = AttemptEnd.FAILED if attempt.cancel_why is None else _END_OF[attempt.cancel_why]
        return self._report(attempt, end, error=text or describe(error))

    def _illegal(self, attempt: Attempt, error: IllegalMove) -> Report:
        """A move outside the table is our mistake: the attempt ends as interrupted, the third in a row of
        its node as failed.
        """
        last = self._registry.note_illegal(attempt) >= ILLEGAL_MAX
        end = AttemptEnd.FAILED if last else AttemptEnd.INTERRUPTED
        phase = str(error.before)
        return self._report(attempt, end, error=describe(error), give_up=last, illegal_phase=phase)

    def _why_text(self, attempt: Attempt, why: str) -> str | None:
        if why == "stalled" and attempt.spec is not None:
            return f"Stalled: said nothing for {attempt.spec.stall_s:g} s"
        if why == "timed_out" and attempt.spec is not None:
            return f"TimeOut: took longer than {attempt.spec.timeout_s:g} s"
        return "the runtime was closing" if why == "closing" else None

    def progress(self, attempt: Attempt, text: str) -> None:
        """Two assignments and a flag: a handler that reports all the time slows nobody. Safe in a worker
        thread.
        """
        attempt.progress = text
        attempt.active_s = self._clock()
        attempt.warned = False
        self._services.board.note(attempt)

    async def record_process(self, attempt: Attempt, pid: int, started: str) -> None:
        """Store durably which process works for the attempt."""
        claim = await self._services.directory.claim_of(attempt.ref.company)
        await self._services.store.commit(RecordProcess(claim, place_of(attempt.ref.key), pid, started))


class _WayBack:
    """What a handler says and asks, with the attempt that it is: `actors.handlers.WayBack`."""

    __slots__ = ("_attempt", "_executor")

    def __init__(self, executor: Executor, attempt: Attempt) -> None:
        self._executor = executor
        self._attempt = attempt

    def progress(self, text: str) -> None:
        self._executor.progress(self._attempt, text)

    def spend(self, units: int) -> None:
        self._executor.spending.spend(self._attempt, units)

    def waiting(self, reason: str) -> AbstractAsyncContextManager[None]:
        return self._executor.waiting(self._attempt, reason)

    async def record_process(self, pid: int, started: str) -> None:
        await self._executor.record_process(self._attempt, pid, started)

    @property
    def cancelled(self) -> bool:
        return self._attempt.cancel_why is not None or self._executor.closing

    @property
    def closing(self) -> bool:
        return self._executor.closing


async def _end_leaked_nurseries() -> None:
    """End the nurseries that a handler left open, the innermost first.

    An async generator that yields inside a nursery and is not read to its end is all it takes. Trio would
    make an error of the task out of it, and so of the whole runtime; it has no public way to prevent that.
    """
    task = trio.lowlevel.current_task()
    while task.child_nurseries:
        nursery = task.child_nurseries[-1]
        nursery.cancel_scope.cancel()
        await nursery._nested_child_finished(None)


class _LeftBehind(Exception):
    """The thread of a plain function was left behind; its report has been made."""


_END_OF = {
    "stopped": AttemptEnd.STOPPED,
    "timed_out": AttemptEnd.TIMED_OUT,
    "stalled": AttemptEnd.STALLED,
    "closing": AttemptEnd.INTERRUPTED,
    "superseded": AttemptEnd.SUPERSEDED,
}
