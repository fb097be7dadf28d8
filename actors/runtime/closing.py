"""How a runtime ends: it drains, or it closes now.

Draining starts nothing new and waits for the attempts that began. Closing cancels what is left; a result inside the
grace still counts, the rest is interrupted at no cost and runs again next time. Either way the actors commit what
there is to commit, every ``ask`` is answered, and nothing of the runtime runs afterwards except the threads named in
the report.
"""

from __future__ import annotations

import math

import trio

from actors.errors import RuntimeClosed, WouldDeadlock
from actors.messages.views import ClosingReport
from storage.contract.hosts import EndHost
from storage.errors import StorageError
from storage.logging import get_logger
from storage.records import EventRecord

from .current import current_attempt
from .executor import Executor
from .services import Services

SAY_AGAIN_S = 5.0
SETTLE_S = 30.0
"""How long closing waits for actors to commit the ends of attempts, if the store is away."""
SAY_STOPPED_S = 5.0

_log = get_logger("turnkeeper")


class Closing:
    """``nursery`` holds the actors and attempts, and ``gone`` is set when it has ended."""

    def __init__(
        self, nursery: trio.Nursery, gone: trio.Event, services: Services, executor: Executor
    ) -> None:
        self._nursery = nursery
        self._gone = gone
        self._services = services
        self._shutdown = services.shutdown
        self._executor = executor
        self._under_way: trio.Event | None = None
        self._report: ClosingReport | None = None

    async def drain(self, timeout_s: float | None) -> bool:
        """See `Runtime.drain`."""
        _refuse_waiting_for_oneself("drain")
        registry, notifier = self._services.registry, self._services.notifier
        self._shutdown.draining = True
        notifier.notify()
        with trio.move_on_after(math.inf if timeout_s is None else timeout_s):
            while len(registry):
                news = notifier.news
                if len(registry):
                    await news.wait()
            return True
        return False

    async def aclose(self, *, now: bool) -> ClosingReport:
        """See `Runtime.aclose`."""
        _refuse_waiting_for_oneself("aclose")
        if now:
            self._shutdown.hurry.set()
        while self._under_way is not None:
            await self._under_way.wait()
            if self._report is not None:
                return self._report
        under_way = self._under_way = trio.Event()
        try:
            with trio.CancelScope(shield=True):
                if (
                    not self._shutdown.hurry.is_set() and self._services.store.lost is None
                ):  # no end could be stored
                    await self._drain_or_hurry()
                report = self._report = await self._close_now()
        finally:
            if self._report is None:  # a Ctrl-C: the next caller begins anew
                self._under_way = None
            under_way.set()
        return report

    async def _drain_or_hurry(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_when_hurried, nursery.cancel_scope)
            await self.drain(self._services.options.drain_s)
            nursery.cancel_scope.cancel()

    async def _cancel_when_hurried(self, scope: trio.CancelScope) -> None:
        await self._shutdown.hurry.wait()
        scope.cancel()

    async def _close_now(self) -> ClosingReport:
        services, registry = self._services, self._services.registry
        self._shutdown.draining = self._shutdown.closing = True
        alive = tuple(registry)
        if self._children_live:
            for attempt in registry:
                self._executor.cancel_attempt(attempt, "closing")
            for cell in services.directory.cells:
                cell.unpark.set()  # a parked company tries once more, so that ends of attempts are committed
        await self._settle()
        again = self._shutdown.interrupted | {attempt.label for attempt in registry}  # ends not committed
        report = ClosingReport(
            tuple(attempt.label for attempt in alive if attempt.label in again),
            tuple(attempt.label for attempt in registry.abandoned),
        )
        services.directory.closed = True
        for cell in services.directory.cells:
            cell.mailbox.close(RuntimeClosed())
        await self._say_stopped(report)
        services.board.close()
        await services.notifier.aclose()
        self._nursery.cancel_scope.cancel()
        await self._wait_until_gone()
        return report

    async def _settle(self) -> None:
        """Wait until every end is committed and every message that was taken is answered."""
        settle_s = SETTLE_S if self._services.store.lost is None else 0
        with trio.move_on_after(self._services.options.stop_grace_s + settle_s):
            while self._children_live and not self._still():
                news = self._services.notifier.news
                with trio.move_on_after(0.05):
                    await news.wait()

    def _still(self) -> bool:
        return not len(self._services.registry) and all(
            cell.mailbox.unused and (cell.memory is None or cell.memory.resting)
            for cell in self._services.directory.cells
            if cell.parked is None
        )

    @property
    def _children_live(self) -> bool:
        return not self._nursery.cancel_scope.cancel_called

    async def _say_stopped(self, report: ClosingReport) -> None:
        host_id, now_ms = self._services.host_id, self._services.now_ms()
        data = {
            "host_id": host_id,
            "interrupted": len(report.interrupted),
            "abandoned": len(report.abandoned),
        }
        event = EventRecord("process.stopped", now_ms, data=data)
        try:
            with trio.move_on_after(SAY_STOPPED_S):
                position = await self._services.store.commit(EndHost(host_id, now_ms, event))
                self._services.publisher.told(position, event)
        except StorageError as error:
            _log.warning("process.stopped", stored=False, cause=str(error))

    async def _wait_until_gone(self) -> None:
        """An async handler that swallows cancellation for ever keeps the runtime from ending: say which it is."""
        registry = self._services.registry
        while not self._gone.is_set():
            with trio.move_on_after(SAY_AGAIN_S):
                await self._gone.wait()
                return
            alive = [a.label for a in (*registry, *registry.abandoned) if not a.in_thread]
            _log.warning("closing.waits", attempts=alive)


def _refuse_waiting_for_oneself(what: str) -> None:
    me = current_attempt.get(None)
    if me is not None:
        raise WouldDeadlock(me.key.task, f"{what} waits for the handler that calls it")
