"""``run``: execute a plan until only a person can make it continue, or with ``--stay`` until it is interrupted.

Every run submits the whole plan again. A stored task is recognised by its id, so running a plan again continues it,
adds its new tasks, and changes nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from actors import ClosingReport, Runtime, TaskStatus, open_reader, open_runtime
from actors.cli.interrupts import CostsNoTry, Interrupts
from actors.cli.options import RunOptions
from actors.cli.outcome import Tally, at_rest, goes_on, tally
from actors.cli.plan import COMMAND, Plan
from actors.cli.progress import View
from actors.cli.submission import move, require_tasks, submit

DRAIN_S: Final = 30.0
"""How long the first Ctrl-C waits for running attempts; then it acts like the second."""
HASTY_DRAIN_S: Final = 2.0
"""The same after SIGTERM. Together with the grace it is well below the ten seconds after which the most impatient
service managers send SIGKILL, which would count as an unclean death of the running attempts."""
STOP_GRACE_S: Final = 5.5
"""Slightly more than ending a command takes from SIGTERM to SIGKILL, as a person is waiting."""
LOOK_PAUSE_S: Final = 0.1
LOOK_SHARE: Final = 10
"""Looking at all tasks of a company costs more the more there are. While work continues, looking takes at most this
fraction of the time (one in ten); once nothing is in flight, it looks at once."""
STALE_S: Final = 2.0
"""A state can change without an event (a rest after crashes ends), so it looks again after this time."""

STAYS: Final = "nothing continues without a person: waiting for messages and schedules. Ctrl-C ends it"

Hook = Callable[[Runtime, Sequence[TaskStatus]], Awaitable[bool]]
"""Called when nothing continues by itself; returns whether it set something going."""


@attrs.frozen
class Ended:
    """How the run of a plan ended. ``interrupts`` counts the signals that asked for its end."""

    statuses: tuple[TaskStatus, ...]
    tallies: dict[str, Tally]
    interrupts: int
    report: ClosingReport


async def execute(plan: Plan, options: RunOptions, view: View, hook: Hook | None = None) -> Ended:
    """Open the database, submit the plan, see it to its end, close.

    Raises `TaskNotThere` before anything is written, `StorageError` if the database cannot be used. Signals
    end it in order: no lock is left, and nothing that was cut short has lost a try.
    """
    await require_tasks(plan, options)
    position = await last_position(options.db)
    limits: dict[str, Any] = {}
    if options.executions_max is not None:
        limits["executions_max"] = options.executions_max
    with Interrupts() as interrupts:
        command = CostsNoTry(plan.handlers[COMMAND], interrupts)
        async with open_runtime(
            options.db,
            handlers={**plan.handlers, COMMAND: command},
            durability=options.durability,
            drain_s=DRAIN_S,
            stop_grace_s=STOP_GRACE_S,
            **limits,
        ) as runtime:
            session = _Session(runtime, plan, options, view, interrupts, hook, position)
            await session.run()
            report = await runtime.aclose(now=interrupts.count > 0)
        await session.show_the_last_events()
        return Ended(session.statuses, session.tallies, interrupts.count, report)


@attrs.define(eq=False)
class _Session:
    """One run of a plan inside an open runtime."""

    _runtime: Runtime
    _plan: Plan
    _options: RunOptions
    _view: View
    _interrupts: Interrupts
    _hook: Hook | None
    _position: int
    _stays: bool = False
    _changed: set[str] = attrs.field(factory=set, init=False)
    _news: trio.Event = attrs.field(factory=trio.Event, init=False)
    _by_company: dict[str, tuple[TaskStatus, ...]] = attrs.field(factory=dict, init=False)
    tallies: dict[str, Tally] = attrs.field(factory=dict, init=False)

    @property
    def statuses(self) -> tuple[TaskStatus, ...]:
        return tuple(status for statuses in self._by_company.values() for status in statuses)

    async def run(self) -> None:
        working = trio.CancelScope()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow_events)
            nursery.start_soon(self._until_interrupted, working)
            with working:
                await self._submit()
                await self._until_rest()
            if self._interrupts.count:
                await self._drain()
            nursery.cancel_scope.cancel()

    # --- what is to be done ---------------------------------------------------------------------------------

    async def _submit(self) -> None:
        for company in self._plan.companies:
            await submit(self._runtime.company(company.name), company, self._view)
        await move(self._runtime, self._options, self._view)
        self._changed |= {
            *(company.name for company in self._plan.companies),
            *await self._runtime.companies(),
        }
        await self._look()
        self._say_what_is_not_in_the_plan()
        if not self._options.stay:
            await self._say_what_will_not_fire()

    async def _say_what_will_not_fire(self) -> None:
        for name in self._by_company:
            waiting = [one for one in await self._runtime.company(name).schedules() if one.due_ms is not None]
            active = [one for one in waiting if one.paused_ms is None]
            if active:
                which = "1 schedule fires" if len(active) == 1 else f"{len(active)} schedules fire"
                self._view.note(
                    f"{name}: {which} only while a host runs: use --stay to keep this one running"
                )

    def _say_what_is_not_in_the_plan(self) -> None:
        planned = {(company.name, task.id) for company in self._plan.companies for task in company.tasks}
        for company, statuses in self._by_company.items():
            more = sum(goes_on(status) for status in statuses if (company, status.id) not in planned)
            if more:
                which = "1 task that is" if more == 1 else f"{more} tasks that are"
                self._view.note(f"{company}: {which} not in this plan will continue too")

    async def _until_rest(self) -> None:
        while True:
            began_s = trio.current_time()
            await self._look()
            if at_rest(self.statuses) and self._runtime.inbox_quiet:
                if self._hook is not None and await self._hook(self._runtime, self.statuses):
                    self._changed |= set(self._by_company)
                elif not self._options.stay:
                    return
                elif not self._stays:
                    self._stays = True
                    self._view.note(STAYS)
            took_s = trio.current_time() - began_s
            await trio.sleep(LOOK_PAUSE_S)
            with trio.move_on_after(STALE_S) as waiting:
                await self._news.wait()
            if waiting.cancelled_caught:
                self._changed |= {name for name, those in self._by_company.items() if not at_rest(those)}
            with trio.move_on_after(LOOK_SHARE * took_s):
                await self._until_idle()

    async def _until_idle(self) -> None:
        for name in self._by_company:
            await self._runtime.company(name).when_idle()

    # --- interrupts -----------------------------------------------------------------------------------------

    async def _until_interrupted(self, working: trio.CancelScope) -> None:
        await self._interrupts.reach(1)
        limit = f" within {self._drain_s:g} s" if self._interrupts.hasty else ""
        self._view.note(
            f"interrupted: running attempts may finish{limit}, nothing new starts. Interrupt again to stop them now"
        )
        working.cancel()

    @property
    def _drain_s(self) -> float:
        return HASTY_DRAIN_S if self._interrupts.hasty else DRAIN_S

    async def _drain(self) -> None:
        """Let what executes finish, unless another signal comes first."""
        async with trio.open_nursery() as nursery:

            async def until_asked_again() -> None:
                await self._interrupts.reach(2)
                self._view.note("interrupted again: stopping now. A third interrupt leaves at once")
                nursery.cancel_scope.cancel()

            nursery.start_soon(until_asked_again)
            if not await self._runtime.drain(self._drain_s):
                self._view.note(f"not finished after {self._drain_s:g} s: stopping now")
            nursery.cancel_scope.cancel()
        self._changed |= set(self._by_company)
        await self._look()

    # --- what is shown --------------------------------------------------------------------------------------

    async def _follow_events(self) -> None:
        async for event in self._runtime.events(after=self._position):
            self._view.event(event)
            self._position = event.position
            if event.company is not None:
                self._changed.add(event.company)
                self._news.set()

    async def _look(self) -> None:
        """See where the tasks of every company that changed stand now."""
        changed, self._changed, self._news = self._changed, set(), trio.Event()
        for name in sorted(changed):
            statuses = await self._runtime.company(name).tasks()
            self._by_company[name] = statuses
            self.tallies[name] = tally(statuses)
        self._view.tallies(self.tallies)

    async def show_the_last_events(self) -> None:
        """What the closing said, and what was not shown yet when it began."""
        async with open_reader(self._runtime.path) as reader:
            async for event in reader.events(after=self._position):
                self._view.event(event)
            if self._interrupts.count:  # what executed was cut short: say how it stands, not how it stood
                for name in self._by_company:
                    statuses = self._by_company[name] = await reader.company(name).tasks()
                    self.tallies[name] = tally(statuses)


async def last_position(db: Path) -> int:
    """The position of the newest event in the database; 0 if there is none, or no database."""
    if not db.exists() or not db.stat().st_size:
        return 0
    async with open_reader(db) as reader:
        return await reader.last_position()
