"""The front door: `open_runtime`, and the `Runtime` that hosts may call."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from actors.handlers import Handler, freeze
from actors.messages.views import ClosingReport
from actors.runtime.handle import Company
from actors.runtime.kernel import Kernel, run_kernel
from actors.runtime.log import Events, follow_events
from actors.runtime.opening import Connection, Durability, How
from actors.runtime.options import (
    ABANDONED_MAX,
    DRAIN_S,
    EXECUTIONS_MAX,
    STOP_GRACE_S,
    WAITING_MAX,
    Options,
)
from actors.runtime.progress import ProgressReader
from actors.runtime.retention.policy import DeletedCompany, PruneReport, Retention
from actors.runtime.statistics import Statistics, statistics_of
from actors.runtime.sweep import SweepReport
from storage.codec import check_name
from storage.contract.companies import ListCompanies
from storage.errors import StoreLost


class Runtime:
    """A running task queue. Comes from `open_runtime`."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._services = kernel.services

    @property
    def path(self) -> str:
        """Where the database is."""
        return self._services.store.path

    @property
    def lost(self) -> StoreLost | None:
        """What became of the database's files, if they were deleted, moved or replaced: nothing is stored any more."""
        return self._services.store.lost

    @property
    def closing(self) -> bool:
        """Whether closing has gone past draining: messages are refused from then on."""
        return self._services.shutdown.closing

    def company(self, name: str) -> Company:
        """The handle of a company; one that does not exist comes to be with its first message. Raises
        `InvalidName`.
        """
        return Company(self._services, check_name(name, what="a company's name"))

    async def companies(self) -> tuple[str, ...]:
        """Names of all companies, sorted."""
        return await self._services.store.fetch(ListCompanies())

    def events(self, *, company: str | None = None, after: int | None = None) -> Events:
        """Every event after the position ``after``, in commit order, and then each new one as it is committed.
        Without ``after`` it begins with the oldest that is kept.

        ``company`` narrows it to one. Iterate over it with ``async for``; a loop may be left at any event.
        It ends when the runtime closes. A slow reader costs nobody anything: the log is what is read.

        Raises `CursorTooOld` in the loop if events after that position, or after the last one given out, are no
        longer kept: there is no gap that one is not told of.
        Cancellation: stops; go on later from the ``position`` of the last event seen.
        """
        return follow_events(self._services.store, self._services.notifier, company=company, after=after)

    def progress(self, *, company: str | None = None) -> ProgressReader:
        """What handlers say of themselves by `Context.progress`, from now on: the latest of each attempt, at
        most ten times a second. Live only, nothing of it is stored. Ends when the runtime closes.
        """
        return self._services.board.read(
            None if company is None else check_name(company, what="a company's name")
        )

    def statistics(self) -> Statistics:
        """One snapshot of what the runtime holds and does. Cheap: it reads nothing."""
        kernel = self._kernel
        return statistics_of(
            kernel.services, kernel.sweeper, kernel.intake, kernel.housekeeper, kernel.watchdog
        )

    @property
    def last_sweep(self) -> SweepReport | None:
        """What the last sweep found; the first one runs at start-up."""
        return self._kernel.sweeper.last

    @property
    def inbox_quiet(self) -> bool:
        """Whether nothing that other processes sent is under way. What waited at the start is taken before
        the block of `open_runtime` begins.
        """
        return self._kernel.intake.quiet

    @property
    def last_prune(self) -> PruneReport | None:
        """What the last pass of pruning let go; nothing where there is no `Retention` and nobody asked."""
        return self._kernel.housekeeper.last

    async def prune(self, retention: Retention | None = None) -> PruneReport:
        """Let go at once of what is old, by ``retention`` or else by that of the runtime, which does so by itself.

        In units of a few hundred rows, with pauses, so that others are not held up. Raises `StoreUnavailable`.
        Cancellation: stops between two units.
        """
        self._services.check_store()
        return await self._kernel.housekeeper.prune(retention)

    async def delete_company(self, name: str) -> DeletedCompany:
        """Delete a company with all its rows, its part of the log among them. There is no way back.

        The name is free as soon as that is committed, for a company that begins anew; the rows go after it, in
        small units. Returns when all are gone, and what is left in the log is one ``company.deleted`` of the
        runtime, with their numbers. Messages sent before and not yet taken get `CompanyDeleted`.

        Raises `CompanyUnknown`; `CompanyActive` while a run of it is active, or an attempt of it lives or was left
        behind; `CompanyParked`, `RuntimeClosed`. Cancellation: stops waiting; a deletion that has begun goes on, in
        the next process if need be.
        """
        self._services.check_store()
        return await self._kernel.housekeeper.delete_company(check_name(name, what="a company's name"))

    async def backup(self, target: str | os.PathLike[str]) -> int:
        """Write a copy of the database to ``target``, which must not exist, and return its size in bytes.

        The copy is one moment of the database, checked, private to its user, and whole or not there. Nothing is
        held up, but the write-ahead log grows for as long as it takes. Raises `BackupFailed`, `StoreUnavailable`.
        Of lost files (`StoreLost`) the copy is made from the open connection. Cancellation: stops the copying,
        that of lost files excepted.
        """
        self._services.guard.check()
        return await self._services.store.copy_to(target)

    async def drain(self, timeout_s: float | None = None) -> bool:
        """Start nothing new and wait until no attempt is alive; says whether that happened within
        ``timeout_s`` seconds.

        Submits are still stored. There is no way back: close the runtime afterwards. Cancellation: stops
        waiting; it goes on draining.
        """
        return await self._kernel.closing.drain(timeout_s)

    async def aclose(self, *, now: bool = False) -> ClosingReport:
        """Close: drain for at most ``drain_s`` seconds first, or with ``now`` not at all. A second call
        with ``now`` hurries the first.

        Returns when nothing of the runtime is left but threads named in the report. Shielded from
        cancellation, and bounded: the drain, the grace, and the time to commit. A handler that calls it
        would wait for itself: it gets `WouldDeadlock`.
        """
        return await self._kernel.closing.aclose(now=now)


@asynccontextmanager
async def open_runtime(
    path: str | os.PathLike[str],
    *,
    handlers: Mapping[str, Handler],
    executions_max: int = EXECUTIONS_MAX,
    stop_grace_s: float = STOP_GRACE_S,
    drain_s: float = DRAIN_S,
    waiting_max: int = WAITING_MAX,
    abandoned_max: int = ABANDONED_MAX,
    durability: Durability = "full",
    retention: Retention | None = None,
) -> AsyncIterator[Runtime]:
    """Open the database at ``path`` (created, private to its user, if there is none) and run its companies.

    ``handlers`` maps names to functions. ``executions_max``: attempts that execute at once in this process,
    0 holds everything. ``stop_grace_s``: seconds from cancelling an attempt to leaving it behind.
    ``drain_s``: how long leaving the block waits for live attempts. ``waiting_max``: attempts that may wait
    at once without their slot (`Context.waiting`). ``abandoned_max``: when so many attempts were left
    behind and still live, nothing new starts. ``durability="normal"`` may lose the last commits to a power
    cut, never to a crash. ``retention``: how long things are kept; without it, for ever.

    What ran when the last process died is found at once and runs again. Raises `DatabaseInUse`,
    `NotADatabase`, `SchemaTooNew`, `StoreUnavailable`. Leaving the block normally drains; an exception or
    cancellation closes now.
    """
    options = Options(
        freeze(handlers),
        executions_max,
        stop_grace_s,
        drain_s,
        waiting_max=waiting_max,
        abandoned_max=abandoned_max,
        retention=Retention() if retention is None else retention,
    )
    async with run_runtime(path, options, durability=durability) as runtime:
        yield runtime


@asynccontextmanager
async def run_runtime(
    path: str | os.PathLike[str],
    options: Options,
    *,
    durability: Durability = "full",
    how: How = "thread",
    wrap: Callable[[Connection], Connection] = lambda connection: connection,
) -> AsyncIterator[Runtime]:
    """`open_runtime` with everything that tests may want to choose; see `run_kernel`."""
    async with run_kernel(path, options, durability=durability, how=how, wrap=wrap) as kernel:
        yield Runtime(kernel)
