"""Everything that lives while a database is open, made in its order and wired together."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from actors.commands import clear_inputs
from storage.contract.companies import DueCompanies
from storage.contract.events import LastEventTime
from storage.contract.hosts import BeginHost
from storage.contract.store import Store
from storage.errors import StoreLost
from storage.forks import ForkGuard
from storage.nursery import bare_nursery

from . import opening
from .attempts import Registry
from .closing import Closing
from .directory import Directory
from .executor import Executor
from .inbox_host import POLL_S, InboxHost
from .notifier import Notifier
from .options import Options
from .progress import ProgressBoard
from .publisher import Publisher
from .retention.housekeeping import Housekeeper
from .services import Services
from .shutdown import Shutdown
from .slots import Slots
from .supervisor import Supervisor
from .sweep import Sweeper
from .watchdog import Watchdog

DUE_MAX = 1_000_000
"""Absent companies whose due times are kept in memory."""


@attrs.frozen(eq=False)
class Kernel:
    """The parts of a runtime. Hosts see none of them: `actors.host.Runtime` is what they may call."""

    services: Services
    executor: Executor
    supervisor: Supervisor
    sweeper: Sweeper
    intake: InboxHost
    housekeeper: Housekeeper
    watchdog: Watchdog
    closing: Closing

    @property
    def idle(self) -> bool:
        """Whether nothing can go on by itself now or later. Schedules that wait for their time are not asked: they
        never end.
        """
        directory = self.services.directory
        return (
            not len(self.services.registry)
            and not directory.due.working
            and self.intake.quiet
            and all(
                cell.idle and cell.memory is not None and not cell.memory.works for cell in directory.cells
            )
        )


def make_kernel(
    nursery: trio.Nursery, gone: trio.Event, store: Store, host_id: int, options: Options
) -> Kernel:
    """Make the parts, the lowest first. Nothing runs yet."""
    registry, directory, notifier, shutdown = Registry(), Directory(), Notifier(), Shutdown()
    slots = Slots(options.executions_max, registry, directory.wake, abandoned_max=options.abandoned_max)
    services = Services(
        store=store,
        options=options,
        host_id=host_id,
        private_folder=private_folder(store.path),
        guard=ForkGuard(),
        notifier=notifier,
        shutdown=shutdown,
        registry=registry,
        directory=directory,
        slots=slots,
        publisher=Publisher(store, notifier, shutdown),
        board=ProgressBoard(),
    )
    executor = Executor(nursery, services)
    return Kernel(
        services=services,
        executor=executor,
        supervisor=Supervisor(nursery, services, executor),
        sweeper=Sweeper(services),
        intake=InboxHost(services),
        housekeeper=Housekeeper(services),
        watchdog=Watchdog(),
        closing=Closing(nursery, gone, services, executor),
    )


@asynccontextmanager
@trio.lowlevel.enable_ki_protection
async def run_kernel(
    path: str | os.PathLike[str],
    options: Options,
    *,
    durability: opening.Durability = "full",
    how: opening.How = "thread",
    wrap: Callable[[opening.Connection], opening.Connection] = lambda connection: connection,
) -> AsyncIterator[Kernel]:
    """Open the database and run its companies until the block is left; see `actors.host.open_runtime`.

    ``how`` and ``wrap`` as `opening.open_store`: tests run inline, and put something round the writer's connection.
    """
    hooks = opening.Hooks()
    async with opening.open_store(path, durability=durability, how=how, hooks=hooks, wrap=wrap) as store:
        clear_inputs(private_folder(store.path))
        began = await store.commit(BeginHost(os.getpid(), options.clock_ms()))
        async with bare_nursery() as outer:
            gone = trio.Event()
            # The children have a nursery of their own: closing ends them and not the block of the closer.
            nursery = await outer.start(_hold_children, gone)
            try:
                kernel = make_kernel(nursery, gone, store, began.host_id, options)
                _listen_to_store(hooks, kernel.services)
                kernel.services.publisher.told(began.position, began.event)
                nursery.start_soon(kernel.supervisor.bring_back)
                nursery.start_soon(kernel.executor.watch_stalls)
                if how == "thread":
                    nursery.start_soon(kernel.watchdog.run)
                try:
                    await _begin(kernel, began.position)
                    nursery.start_soon(kernel.sweeper.run)
                    nursery.start_soon(kernel.intake.run, POLL_S if how == "thread" else None)
                    nursery.start_soon(kernel.housekeeper.run)
                    yield kernel
                    await kernel.closing.aclose(now=False)
                except BaseException:  # the block's, or a Ctrl-C in the drain
                    await kernel.closing.aclose(now=True)
                    raise
            finally:
                nursery.cancel_scope.cancel()  # also if a Ctrl-C ended the closing


def _listen_to_store(hooks: opening.Hooks, services: Services) -> None:
    hooks.on_outage = lambda error: services.publisher.store_down(error, services.now_ms())

    def recovered(outage_s: float) -> None:
        services.publisher.store_up(outage_s, services.now_ms())
        services.slots.offer()
        services.directory.wake_all()

    def lost(error: StoreLost) -> None:
        services.publisher.store_lost(error)
        services.slots.offer()
        services.directory.wake_all()

    hooks.on_recovery = recovered
    hooks.on_loss = lost


@trio.lowlevel.enable_ki_protection
async def _hold_children(gone: trio.Event, task_status: trio.TaskStatus[trio.Nursery]) -> None:
    """The nursery of actors and attempts. A Ctrl-C goes to the host's own code, never into the middle of a
    turn; and what cancels the host only makes it close, or nothing could be saved in the grace.
    """
    try:
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                task_status.started(nursery)
                await trio.sleep_forever()
    finally:
        gone.set()


def private_folder(path: str) -> Path:
    """Beside the file itself, wherever a link to it may be."""
    return Path(f"{path}.inputs")


async def _begin(kernel: Kernel, position: int) -> None:
    """Start-up is a sweep; then the due times of the companies that are not there, and what waits in the inbox.

    ``position`` is that of the event that tells of this process.
    """
    store, directory = kernel.services.store, kernel.services.directory
    for due in await store.fetch(DueCompanies(DUE_MAX)):
        directory.note_due(due.name, due.due_ms, works=not due.has_schedules)
    last_ms = await store.fetch(LastEventTime(position))
    if last_ms is not None:
        kernel.supervisor.clock_showed(last_ms)
    await kernel.sweeper.sweep()
    await kernel.intake.look()
