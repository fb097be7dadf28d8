"""The runtime: everything that lives while a database is open, and how it closes.

Leaving `open_runtime` normally drains: nothing new starts, attempts that began finish. An exception or a
cancellation closes *now*: attempts are cancelled, a result inside the grace still counts, the rest is
interrupted at no cost and runs again next time. Either way the actors commit what there is to commit, every
``ask`` is answered, and nothing of ours runs afterwards except the threads named in the report.
"""

from __future__ import annotations

import logging
import math
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import attrs
import structlog
import trio

from actors.commands import clear_inputs
from actors.core.budget import Spending
from actors.core.gates import Live
from actors.core.reports import Report
from actors.errors import RuntimeClosed, StoreUnavailable, WouldDeadlock
from actors.events import KINDS
from actors.handlers import Handler, freeze
from actors.retention import DeletedCompany, PruneReport, Retention
from actors.states import ClosingReport
from storage.codec import check_name
from storage.database import Database, Hooks, open_database
from storage.errors import StorageError, StoreLost
from storage.nursery import bare_nursery
from storage.opening import Durability
from storage.ownership import ForkGuard
from storage.records import EventRecord
from storage.statements import SQL
from storage.store import Connection
from storage.units import Committed, write_events
from storage.values import changed

from .attempts import Attempt, AttemptRef, Registry
from .company import IDLE_S, CompanyActor
from .context import current_attempt
from .execution import STOP_GRACE_S, WAITING_MAX, Executor
from .handle import Company
from .housekeeping import Housekeeper
from .hub import Hub
from .intake import POLL_S, Intake
from .log import Events, follow_events
from .mailbox import Envelope
from .maintenance import copy_of
from .progress import ProgressBoard, ProgressReader
from .slots import ABANDONED_MAX, Slots
from .statistics import Statistics, statistics_of
from .supervisor import Supervisor
from .sweep import Sweeper, SweepReport
from .wall import wall_clock_ms
from .watchdog import Watchdog

EXECUTIONS_MAX = 16
"""Attempts that execute at once. Agent steps mostly wait for others' machines; what computes wants fewer."""
DRAIN_S = 30.0
SAY_AGAIN_S = 5.0
SETTLE_S = 30.0
"""How long closing waits for actors to commit the ends of attempts, if the store is away."""

_log = structlog.get_logger("turnkeeper")


@attrs.define
class Surroundings:
    """What the actors see of the runtime."""

    database: Database
    registry: Registry
    slots: Slots
    executor: Executor
    handlers: frozenset[str]
    host_id: int
    idle_s: float
    runtime: Runtime

    def now_ms(self) -> int:
        return self.runtime.now_ms()

    def live(self, company: str) -> Live:
        return self.runtime.live(company)

    def published(self, company: str, events: tuple[EventRecord, ...], committed: Committed) -> None:
        self.runtime.published(company, events, committed)

    def quiet(self, company: str) -> None:
        self.runtime.hub.notify(company)

    def leave(self, company: str, due_ms: int | None, *, works: bool) -> bool:
        cell = self.runtime.supervisor.find(company)
        return cell is not None and self.runtime.supervisor.leave(cell, due_ms, works=works)


class Runtime:
    """A running task queue. Comes from `open_runtime`."""

    def __init__(
        self, nursery: trio.Nursery, gone: trio.Event, database: Database, host_id: int, options: Options
    ) -> None:
        self.path = database.path
        self.private_folder = _private_folder(database.path)
        self.database = database
        self.options = options
        self.host_id = host_id
        self.guard = ForkGuard()
        self.hub = Hub()
        self.registry = Registry()
        self.supervisor = Supervisor(nursery, self)
        self.slots = Slots(
            options.executions_max, self.registry, self._wake, abandoned_max=options.abandoned_max
        )
        self.board = ProgressBoard()
        self.executor = Executor(
            nursery,
            self.registry,
            self.slots,
            options.handlers,
            self,
            stop_grace_s=options.stop_grace_s,
            waiting_max=options.waiting_max,
        )
        self.surroundings = Surroundings(
            database,
            self.registry,
            self.slots,
            self.executor,
            frozenset(options.handlers),
            host_id,
            options.idle_s,
            self,
        )
        self.sweeper = Sweeper(self)
        self.intake = Intake(self)
        self.housekeeper = Housekeeper(self)
        self.watchdog = Watchdog()
        self._nursery = nursery
        self._gone = gone
        self._draining = False
        self._closing: trio.Event | None = None
        self._closed = False
        self._report = ClosingReport()
        self._outage: EventRecord | None = None

    # --- public ---------------------------------------------------------------------------------------------

    def company(self, name: str) -> Company:
        """The handle of a company; one that does not exist comes to be with its first message. Raises
        `InvalidName`.
        """
        return Company(self, check_name(name, what="a company's name"))

    async def companies(self) -> tuple[str, ...]:
        """Names of all companies, sorted."""
        rows = await self.database.read(lambda conn: conn.execute(SQL["list_companies"]).fetchall())
        return tuple(row[0] for row in rows)

    def events(self, *, company: str | None = None, after: int | None = None) -> Events:
        """Every event after the position ``after``, in commit order, and then each new one as it is committed.
        Without ``after`` it begins with the oldest that is kept.

        ``company`` narrows it to one. Iterate over it with ``async for``; a loop may be left at any event.
        It ends when the runtime closes. A slow reader costs nobody anything: the log is what is read.

        Raises `CursorTooOld` in the loop if events after that position, or after the last one given out, are no
        longer kept: there is no gap that one is not told of.
        Cancellation: stops; go on later from the ``position`` of the last event seen.
        """
        return follow_events(self.database, self.hub, company=company, after=after)

    def progress(self, *, company: str | None = None) -> ProgressReader:
        """What handlers say of themselves by `Context.progress`, from now on: the latest of each attempt, at
        most ten times a second. Live only, nothing of it is stored. Ends when the runtime closes.
        """
        return self.board.read(None if company is None else check_name(company, what="a company's name"))

    def statistics(self) -> Statistics:
        """One snapshot of what the runtime holds and does. Cheap: it reads nothing."""
        return statistics_of(self)

    @property
    def last_sweep(self) -> SweepReport | None:
        """What the last sweep found; the first one runs at start-up."""
        return self.sweeper.last

    @property
    def inbox_quiet(self) -> bool:
        """Whether nothing that other processes sent is under way. What waited at the start is taken before
        the block of `open_runtime` begins.
        """
        return self.intake.quiet

    @property
    def last_prune(self) -> PruneReport | None:
        """What the last pass of pruning let go; nothing where there is no `Retention` and nobody asked."""
        return self.housekeeper.last

    async def prune(self, retention: Retention | None = None) -> PruneReport:
        """Let go at once of what is old, by ``retention`` or else by that of the runtime, which does so by itself.

        In units of a few hundred rows, with pauses, so that others are not held up. Raises `StoreUnavailable`.
        Cancellation: stops between two units.
        """
        self.check_stores()
        return await self.housekeeper.prune(retention)

    async def delete_company(self, name: str) -> DeletedCompany:
        """Delete a company with all its rows, its part of the log among them. There is no way back.

        The name is free as soon as that is committed, for a company that begins anew; the rows go after it, in
        small units. Returns when all are gone, and what is left in the log is one ``company.deleted`` of the
        runtime, with their numbers. Messages sent before and not yet taken get `CompanyDeleted`.

        Raises `CompanyUnknown`; `CompanyActive` while a run of it is active, or an attempt of it lives or was left
        behind; `CompanyParked`, `RuntimeClosed`. Cancellation: stops waiting; a deletion that has begun goes on, in
        the next process if need be.
        """
        self.check_stores()
        return await self.housekeeper.delete_company(check_name(name, what="a company's name"))

    async def backup(self, target: str | os.PathLike[str]) -> int:
        """Write a copy of the database to ``target``, which must not exist, and return its size in bytes.

        The copy is one moment of the database, checked, private to its user, and whole or not there. Nothing is
        held up, but the write-ahead log grows for as long as it takes. Raises `BackupFailed`, `StoreUnavailable`.
        Of lost files (`StoreLost`) the copy is made from the open connection. Cancellation: stops the copying,
        that of lost files excepted.
        """
        self.check()
        return await copy_of(self.database, target)

    @property
    def lost(self) -> StoreLost | None:
        """What became of the database's files, if they were deleted, moved or replaced: nothing is stored any more."""
        return self.database.writer.lost

    async def drain(self, timeout_s: float | None = None) -> bool:
        """Start nothing new and wait until no attempt is alive; says whether that happened within
        ``timeout_s`` seconds.

        Submits are still stored. There is no way back: close the runtime afterwards. Cancellation: stops
        waiting; it goes on draining.
        """
        self._refuse_waiting_for_oneself("drain")
        self._draining = True
        self.hub.notify()
        with trio.move_on_after(math.inf if timeout_s is None else timeout_s):
            while len(self.registry):
                news = self.hub.news
                if len(self.registry):
                    await news.wait()
            return True
        return False

    async def aclose(self, *, now: bool = False) -> ClosingReport:
        """Close: drain for at most ``drain_s`` seconds first, or with ``now`` not at all. A second call
        with ``now`` hurries the first.

        Returns when nothing of the runtime is left but threads named in the report. Shielded from
        cancellation, and bounded: the drain, the grace, and the time to commit. A handler that calls it
        would wait for itself: it gets `WouldDeadlock`.
        """
        self._refuse_waiting_for_oneself("aclose")
        if now:
            self._hurry.set()
        while self._closing is not None:
            await self._closing.wait()
            if self._closed:
                return self._report
        closing = self._closing = trio.Event()
        try:
            with trio.CancelScope(shield=True):
                if not self._hurry.is_set() and self.lost is None:  # no end of an attempt could be stored
                    await self._drain_or_hurry()
                self._report = await self._close_now()
            self._closed = True
        finally:
            if not self._closed:  # a Ctrl-C: whoever comes next begins anew
                self._closing = None
            closing.set()
        return self._report

    @property
    def closing(self) -> bool:
        """Whether closing has gone past draining: messages are refused from then on."""
        return self.executor.closing

    @property
    def idle(self) -> bool:
        """Whether nothing can go on by itself now or later. Schedules that wait for their time are not asked: they
        never end.
        """
        return (
            not len(self.registry)
            and not self.supervisor.has_due
            and self.intake.quiet
            and all(
                cell.mailbox.unused
                and not cell.mailbox.woken
                and cell.actor is not None
                and cell.actor.resting
                and not cell.actor.works
                for cell in self.supervisor.cells
            )
        )

    @property
    def handlers_known(self) -> frozenset[str]:
        return self.surroundings.handlers

    @staticmethod
    def _refuse_waiting_for_oneself(what: str) -> None:
        me = current_attempt.get(None)
        if me is not None:
            raise WouldDeadlock(me.key.task, f"{what} waits for the handler that calls it")

    # --- closing --------------------------------------------------------------------------------------------

    @property
    def _hurry(self) -> trio.Event:
        return self.options.hurry

    async def _drain_or_hurry(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_when_hurried, nursery.cancel_scope)
            await self.drain(self.options.drain_s)
            nursery.cancel_scope.cancel()

    async def _cancel_when_hurried(self, scope: trio.CancelScope) -> None:
        await self._hurry.wait()
        scope.cancel()

    async def _close_now(self) -> ClosingReport:
        self._draining = True
        self.executor.closing = True
        alive = tuple(self.registry)
        if self._children_live:
            for attempt in self.registry:
                self.executor.cancel_attempt(attempt, "closing")
            self.supervisor.hurry()
        with trio.move_on_after(self.options.stop_grace_s + (SETTLE_S if self.lost is None else 0)):
            while self._children_live and not self._still():
                news = self.hub.news
                with trio.move_on_after(0.05):
                    await news.wait()
        abandoned = tuple(attempt.label for attempt in self.registry.abandoned)
        again = self._interrupted | {attempt.label for attempt in self.registry}  # whose end is not committed
        report = ClosingReport(tuple(a.label for a in alive if a.label in again), abandoned)
        self.supervisor.closed = True
        for cell in self.supervisor.cells:
            cell.mailbox.close(RuntimeClosed())
        await self._say_stopped(report)
        self.board.close()
        await self.hub.aclose()
        self._nursery.cancel_scope.cancel()
        await self._wait_until_gone()
        return report

    async def _wait_until_gone(self) -> None:
        """An async handler that swallows cancellation for ever keeps the runtime from ending: say which it is."""
        while not self._gone.is_set():
            with trio.move_on_after(SAY_AGAIN_S):
                await self._gone.wait()
                return
            alive = [
                attempt.label
                for attempt in (*self.registry, *self.registry.abandoned)
                if not attempt.in_thread
            ]
            _log.warning("closing.waits", attempts=alive)

    def _still(self) -> bool:
        """Whether every end is committed and every message that was taken is answered."""
        return not len(self.registry) and all(
            cell.mailbox.unused and (cell.actor is None or cell.actor.resting)
            for cell in self.supervisor.cells
            if cell.parked is None
        )

    @property
    def _children_live(self) -> bool:
        return not self._nursery.cancel_scope.cancel_called

    async def _say_stopped(self, report: ClosingReport) -> None:
        data = {
            "host_id": self.host_id,
            "interrupted": len(report.interrupted),
            "abandoned": len(report.abandoned),
        }
        host_id, now_ms = self.host_id, self.now_ms()
        event = EventRecord("process.stopped", now_ms, data=data)

        def say(conn: sqlite3.Connection) -> int:
            conn.execute(SQL["host_end"], {"host_id": host_id, "ended_ms": now_ms})
            return write_events(conn, None, None, [event])

        try:
            with trio.move_on_after(5.0):
                position = await self.database.writer.commit(say)
                self._emit(None, None, position, event)
        except StorageError as error:
            _log.warning("process.stopped", stored=False, cause=str(error))

    # --- what actors and children use -----------------------------------------------------------------------

    def now_ms(self) -> int:
        return self.options.clock_ms()

    def live(self, company: str) -> Live:
        """What only this process knows about what the company may do now."""
        cell = self.supervisor.find(company)
        cause = self.database.writer.cause
        return Live(
            draining=self._draining,
            parked=None if cell is None else cell.parked,
            store_down=None if cause is None else cause.cause,
            abandoned=tuple(a.label for a in self.registry.abandoned) if self.slots.held_up else (),
            alive=frozenset(
                (key.task, key.run, key.pos)
                for key in (attempt.ref.key for attempt in self.registry.of_company(company))
            ),
            suspect=None if self.registry.suspect is None else self.registry.suspect.label,
        )

    def live_in_words(self, company: str) -> Live:
        """`live`, with what only readers want to know."""
        return changed(
            self.live(company),
            slots_free=self.slots.free > 0,
            slot_holders=tuple(attempt.label for attempt in self.registry.holders),
            waiting={
                (a.ref.key.task, a.spec.name): (a.waiting, a.waiting_since_ms)
                for a in self.registry.of_company(company)
                if a.spec is not None and a.waiting is not None
            },
            progress={
                (a.ref.key.task, a.spec.name): a.progress
                for a in self.registry.of_company(company)
                if a.spec is not None and a.progress is not None
            },
        )

    def published(self, company: str, events: tuple[EventRecord, ...], committed: Committed) -> None:
        """These events are durable: tell structlog, and wake the readers of the log."""
        for place, event in enumerate(events):
            if self.executor.closing and event.kind == "attempt.interrupted" and event.task is not None:
                self._interrupted.add(f"{company}/{event.task}/{event.run}/{event.node}/{event.attempt}")
            self._emit(company, committed.first_seq + place, committed.first_position + place, event)
        self.hub.notify(company)

    @property
    def _interrupted(self) -> set[str]:
        return self.options.interrupted

    def _emit(self, company: str | None, seq: int | None, position: int, event: EventRecord) -> None:
        try:
            self._say(company, seq, position, event)
        except Exception:  # the host's own processors or its stream; the log itself is stored already
            logging.getLogger("turnkeeper").exception("structlog failed on an event")

    @staticmethod
    def _say(company: str | None, seq: int | None, position: int, event: EventRecord) -> None:
        kind = KINDS[event.kind]
        if not structlog.is_configured() and kind.level == "info":
            return  # an unconfigured structlog prints to standard output, which is the host's
        fields = {
            "company": company,
            "task": event.task,
            "run": event.run,
            "node": event.node,
            "attempt": event.attempt,
            "before": event.before,
            "after": event.after,
            "reason": event.reason,
        }
        said = {name: value for name, value in fields.items() if value is not None}
        clash = {f"data_{name}" if name in fields else name: value for name, value in event.data.items()}
        getattr(_log, kind.level)(event.kind, position=position, seq=seq, at_ms=event.at_ms, **said, **clash)

    async def record_event(self, event: EventRecord) -> None:
        """Store an event of the runtime itself."""
        position = await self.database.writer.commit(lambda conn: write_events(conn, None, None, [event]))
        self.told(position, event)

    def told(self, position: int, event: EventRecord) -> None:
        """An event of the runtime itself is durable."""
        self._emit(None, None, position, event)
        self.hub.notify()

    async def record_company_event(self, company: str, event: EventRecord) -> None:
        """Store an event about a company's actor, which needs no actor to be stored."""

        def write(conn: sqlite3.Connection) -> Committed:
            row = conn.execute(SQL["find_company"], {"name": company}).fetchone()
            seq = conn.execute(SQL["number_events"], {"company_id": row[0], "events": 1}).fetchone()[0]
            return Committed(write_events(conn, row[0], seq, [event]), seq, ())

        committed = await self.database.writer.commit(write)
        self.published(company, (event,), committed)

    def company_handle(self, company: str) -> Company:
        return Company(self, company)

    def post_report(self, company: str, report: Report | Spending) -> None:
        """Tell the company of an attempt that ended or spent something. When all is closed, nobody is left to tell."""
        self.hub.notify(company)
        try:
            self.supervisor.cell(company).mailbox.put_nowait(Envelope(report))
        except RuntimeClosed:
            _log.info("attempt.unheard", company=company, task=report.key.task)

    async def record_process(self, ref: AttemptRef, pid: int, started: str) -> None:
        key, company = ref.key, ref.company
        params = {"seq": key.seq, "run": key.run, "pos": key.pos, "number": key.number}

        def write(conn: sqlite3.Connection) -> None:
            company_id = conn.execute(SQL["find_company"], {"name": company}).fetchone()[0]
            stored = {"company_id": company_id, "pid": pid, "pid_started": started, **params}
            conn.execute(SQL["set_attempt_process"], stored)

        await self.database.writer.commit(write)

    def wake_all(self) -> None:
        """Something that held up everybody is over."""
        self.slots.offer()
        for cell in self.supervisor.cells:
            cell.mailbox.wake()

    def notify(self, company: str) -> None:
        self.hub.notify(company)

    def note_progress(self, attempt: Attempt) -> None:
        self.board.note(attempt)

    def note_quiet(self, attempt: Attempt, quiet_s: float) -> None:
        """Half of the stall limit is over: say so while there is still time to look."""
        key, spec = attempt.ref.key, attempt.spec
        assert spec is not None
        event = EventRecord(
            "attempt.quiet",
            self.now_ms(),
            task=key.task,
            task_seq=key.seq,
            run=key.run,
            node=spec.name,
            attempt=key.number,
            data={"quiet_s": round(quiet_s, 3), "stall_s": spec.stall_s},
        )
        self._nursery.start_soon(self._record_quietly, attempt.ref.company, event)

    async def _record_quietly(self, company: str, event: EventRecord) -> None:
        try:
            await self.record_company_event(company, event)
        except StorageError as error:
            _log.warning("event.unstored", kind=event.kind, cause=str(error))

    def check(self) -> None:
        """Raise `ForkedProcess` in a forked child, which has only a copy of all this."""
        self.guard.check()

    def check_stores(self) -> None:
        """`check`, and raise `StoreLost` once nothing can be stored any more."""
        self.check()
        if self.lost is not None:
            raise self.lost

    def actor(self, company: str) -> CompanyActor | None:
        """The company's actor, if one is loaded."""
        cell = self.supervisor.find(company)
        return None if cell is None or cell.actor is None or cell.actor.state is None else cell.actor

    def _wake(self, company: str) -> None:
        self.supervisor.wake(company)

    # --- the store ------------------------------------------------------------------------------------------

    def store_down(self, error: StoreUnavailable) -> None:
        """Said at once, stored when that is possible again."""
        self._outage = EventRecord(
            "store.unavailable", self.now_ms(), reason=error.cause, data={"cause": error.cause}
        )
        _log.error("store.unavailable", cause=error.cause)
        self.hub.notify()

    def store_lost(self, error: StoreLost) -> None:
        """Said in the log only: there is nothing left in which it could be stored."""
        _log.error("store.lost", cause=error.cause, advice=error.advice)
        self.hub.notify()
        self.wake_all()

    def store_up(self, outage_s: float) -> None:
        began, self._outage = self._outage, None
        over = EventRecord("store.recovered", self.now_ms(), data={"outage_s": round(outage_s, 3)})
        events = [event for event in (began, over) if event is not None]
        self.database.writer.submit(lambda conn: write_events(conn, None, None, events))
        _log.info("store.recovered", outage_s=outage_s)
        self.hub.notify()
        self.wake_all()


@attrs.define
class Options:
    """What `open_runtime` was given."""

    handlers: Mapping[str, Handler]
    executions_max: int = EXECUTIONS_MAX
    stop_grace_s: float = STOP_GRACE_S
    drain_s: float = DRAIN_S
    idle_s: float = IDLE_S
    waiting_max: int = WAITING_MAX
    abandoned_max: int = ABANDONED_MAX
    retention: Retention = attrs.field(factory=Retention)
    clock_ms: Callable[[], int] = wall_clock_ms
    hurry: trio.Event = attrs.field(factory=trio.Event)
    interrupted: set[str] = attrs.field(factory=set)

    def __attrs_post_init__(self) -> None:
        if (
            isinstance(self.executions_max, bool)
            or not isinstance(self.executions_max, int)
            or self.executions_max < 0
        ):
            raise ValueError(
                f"executions_max must be a whole number of at least 0, not {self.executions_max!r}"
            )
        if not isinstance(self.retention, Retention):
            raise ValueError(f"retention must be a Retention, not {self.retention!r}")
        for name in ("stop_grace_s", "drain_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
                raise ValueError(f"{name} must be a number of seconds of at least 0, not {value!r}")


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
    async with run_database(path, options, durability=durability) as runtime:
        yield runtime


@asynccontextmanager
@trio.lowlevel.enable_ki_protection
async def run_database(
    path: str | os.PathLike[str],
    options: Options,
    *,
    durability: Durability = "full",
    how: Literal["thread", "inline"] = "thread",
    wrap: Callable[[Connection], Connection] = lambda connection: connection,
) -> AsyncIterator[Runtime]:
    """`open_runtime` with everything that tests may want to replace."""
    hooks = Hooks()
    async with open_database(path, durability=durability, how=how, hooks=hooks, wrap=wrap) as database:
        clear_inputs(_private_folder(database.path))
        host_id, position, began = await database.writer.commit(_begin_host(options.clock_ms()))
        async with bare_nursery() as outer:
            gone = trio.Event()
            # The children have a nursery of their own: closing ends them and not the block of whoever closes.
            nursery = await outer.start(_hold_children, gone)
            try:
                runtime = Runtime(nursery, gone, database, host_id, options)
                hooks.on_outage, hooks.on_recovery = runtime.store_down, runtime.store_up
                hooks.on_loss = runtime.store_lost
                runtime._emit(None, None, position, began)
                nursery.start_soon(runtime.supervisor.bring_back)
                nursery.start_soon(runtime.executor.watch_stalls)
                if how == "thread":
                    nursery.start_soon(runtime.watchdog.run)
                try:
                    await _begin(runtime, position)
                    nursery.start_soon(runtime.sweeper.run)
                    nursery.start_soon(runtime.intake.run, POLL_S if how == "thread" else None)
                    nursery.start_soon(runtime.housekeeper.run)
                    yield runtime
                    await runtime.aclose()
                except BaseException:  # the block's, or a Ctrl-C in the drain
                    await runtime.aclose(now=True)
                    raise
            finally:
                nursery.cancel_scope.cancel()  # also if a Ctrl-C ended the closing


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


def _private_folder(path: str) -> Path:
    """Beside the file itself, wherever a link to it may be."""
    return Path(f"{path}.inputs")


def _begin_host(now_ms: int) -> Callable[[sqlite3.Connection], tuple[int, int, EventRecord]]:
    """The unit that enters this process as the owner: its id, and the event with its position."""
    pid = os.getpid()

    def begin(conn: sqlite3.Connection) -> tuple[int, int, EventRecord]:
        (row,) = conn.execute(SQL["host_begin"], {"pid": pid, "started_ms": now_ms}).fetchall()
        event = EventRecord("process.started", now_ms, data={"pid": pid, "host_id": row[0]})
        return int(row[0]), write_events(conn, None, None, [event]), event

    return begin


async def _begin(runtime: Runtime, position: int) -> None:
    """Start-up is a sweep; then the due times of the companies that are not there, and what waits in the inbox.

    ``position`` is that of the event that tells of this process.
    """

    def read(conn: sqlite3.Connection) -> tuple[list[Any], list[Any]]:
        due = conn.execute(SQL["earliest_due"], {"limit": 1_000_000}).fetchall()
        return due, conn.execute(SQL["latest_event_ms"], {"before": position}).fetchall()

    due, showed = await runtime.database.read(read)
    for name, due_ms, has_schedules in due:
        runtime.supervisor.note_due(name, due_ms, works=not has_schedules)
    for (last_ms,) in showed:
        runtime.supervisor.clock_showed(last_ms)
    await runtime.sweeper.sweep()
    await runtime.intake.look()
