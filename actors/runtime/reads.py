"""Reads. They use no mailbox and change nothing.

A company with an actor is read from its memory, between two turns, so a read sees only what is committed
and costs no loading. One without is read from the tables into a state of the same kind, by the same code,
in this process or in any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
import trio

from actors.codec import template_of
from actors.core.admission import Live
from actors.core.loading import check_company, check_found, state_of, take_in
from actors.core.schedules.state import checked
from actors.core.shape import spec_of
from actors.core.state import CompanyState
from actors.core.task_state import TaskState
from actors.core.work_state import explain, positions, work_state
from actors.errors import TaskUnknown
from actors.events import Event
from actors.messages.views import (
    AttemptView,
    BudgetView,
    Explanation,
    LimitsView,
    NodeView,
    ScheduleView,
    TaskStatus,
)
from storage.codec import decode
from storage.contract.events import TaskEvents
from storage.contract.loading import FindTasks, FoundTasks, LoadCompany, LoadedCompany, LoadSchedules
from storage.contract.reads import Results, TaskAttempts, TaskIds, Titles
from storage.contract.store import ReadStore
from storage.forks import ForkGuard
from storage.records import CompanyRecord, ScheduleRecord

from .directory import Directory, Memory
from .log import event_of


@attrs.frozen
class Source:
    """Where companies are read from: a runtime, or a database that another process may run.

    ``live`` says what only the host knows. ``handlers``: the names that the host has registered, ``None`` where
    that is not known. ``directory``: the companies in memory, where there are any.
    """

    database: ReadStore
    now_ms: Callable[[], int]
    live: Callable[[str], Live]
    handlers: frozenset[str] | None = None
    directory: Directory | None = None
    guard: ForkGuard | None = None

    def check(self) -> None:
        """Raise `ForkedProcess` in a forked child, which has only a copy of what is in memory."""
        if self.guard is not None:
            self.guard.check()

    def memory(self, company: str) -> Memory | None:
        return None if self.directory is None else self.directory.memory(company)


MEMORY_TRIES = 10
"""An actor that is never found between two turns, or does not know of a row, is not waited for for ever."""
OUTAGE_LOOK_S = 0.5


@attrs.frozen
class View:
    """A company's state as it is committed, and what only the host knows."""

    name: str
    state: CompanyState | None
    live: Live


async def view(source: Source, name: str, tasks: Sequence[str] | None = None) -> View:
    """The company's state; ``tasks`` are ids that must be in it whatever their state. No such company: no
    state.
    """
    source.check()
    for _ in range(MEMORY_TRIES):
        memory = source.memory(name)
        if memory is None or not await _between_turns(source, name, memory):
            break
        if source.memory(name) is memory and memory.between_turns.is_set():
            state = memory.state
            if tasks is None or all(task in state.entries for task in tasks):
                return View(name, state, source.live(name))
            settled = await _read_settled(source, name, tasks)
            if settled is not None:
                return View(name, settled, source.live(name))
    return View(name, await _read_company(source, name, tasks), source.live(name))


async def _between_turns(source: Source, name: str, memory: Memory) -> bool:
    """Wait until the memory holds nothing that is not committed; false if that has to wait for a
    store that is away, so that the tables are asked instead.
    """
    for _ in range(MEMORY_TRIES):
        with trio.move_on_after(OUTAGE_LOOK_S):
            await memory.between_turns.wait()
        if memory.between_turns.is_set():
            return True
        if source.live(name).store_down is not None:
            return False
    return False


async def _read_settled(source: Source, name: str, tasks: Sequence[str]) -> CompanyState | None:
    """Only these tasks, if they are all settled: nothing else in the company matters to what they are."""

    def build(read: tuple[CompanyRecord, FoundTasks] | None) -> CompanyState | None:
        if read is None:
            return None
        company, found = read[0], check_found(read[1])
        state = CompanyState(company, source.handlers)
        take_in(state, found.tasks, found.missing)
        state.wake_due(source.now_ms())
        quiet = all(
            entry.task.archived_ms is not None or (entry.run is not None and entry.run.status.settled)
            for entry in (state.entries[task] for task in tasks if task in state.entries)
        )
        return state if quiet else None

    return await source.database.fetch_with(FindTasks(name, tasks), build)


async def _read_company(source: Source, name: str, tasks: Sequence[str] | None) -> CompanyState | None:
    def build(read: LoadedCompany | None) -> CompanyState | None:
        if read is None:
            return None
        loaded = check_company(read)
        state = state_of(loaded, source.handlers)
        take_in(state, loaded.also.tasks, loaded.also.missing)
        state.wake_due(source.now_ms())
        return state

    return await source.database.fetch_with(LoadCompany(name, tasks or (), with_schedules=False), build)


def entry_in(seen: View, task: str) -> tuple[CompanyState, TaskState]:
    """The task in the view; raises `TaskUnknown`."""
    entry = None if seen.state is None else seen.state.entries.get(task)
    if seen.state is None or entry is None:
        raise TaskUnknown(seen.name, task)
    return seen.state, entry


# --- the reads ----------------------------------------------------------------------------------------------


async def status(source: Source, name: str, task: str) -> TaskStatus:
    seen = await view(source, name, [task])
    state, entry = entry_in(seen, task)
    made = _status(seen, state, entry, positions(state))
    return (await _with_titles(source, state.company, [made]))[0]


async def queue(source: Source, name: str, goal: str | None) -> tuple[TaskStatus, ...]:
    """Unsettled tasks: those that hold a run slot first, then in queue order, blocked ones where they would
    stand.
    """
    from actors.core.order import order_key

    seen = await view(source, name)
    state = seen.state
    if state is None:
        return ()
    entries = [
        entry
        for entry in state.entries.values()
        if entry.task.archived_ms is None
        and not (entry.run is not None and entry.run.status.settled)
        and (goal is None or entry.task.goal == goal)
    ]

    def place(entry: TaskState) -> tuple[Any, ...]:
        if entry.run is None:
            return (2, (0, 0, entry.task.seq))
        return (0 if entry.run.status.active else 1, order_key(entry.task, entry.run))

    places = positions(state)
    made = [_status(seen, state, entry, places) for entry in sorted(entries, key=place)]
    return tuple(await _with_titles(source, state.company, made))


async def tasks(source: Source, name: str, *, archived: bool) -> tuple[TaskStatus, ...]:
    """Every task, in the order of creation."""

    ids = await source.database.fetch(TaskIds(name, archived))
    state = await _read_company(source, name, ids)
    if state is None:
        return ()
    seen = View(name, state, source.live(name))
    places = positions(state)
    made = [_status(seen, state, state.entries[task], places) for task in ids if task in state.entries]
    return tuple(await _with_titles(source, state.company, made))


async def schedules(source: Source, name: str) -> tuple[ScheduleView, ...]:
    """Every schedule by name. All of it is stored, so it is read from the tables."""
    source.check()

    records = await source.database.fetch(LoadSchedules(name))
    return tuple(_schedule(name, checked(record)) for record in records)


def _schedule(company: str, record: ScheduleRecord) -> ScheduleView:
    """The schedule as it stands; one that cannot be trusted is as good as disabled, though nobody has looked yet."""
    good = record.bad is None
    return ScheduleView(
        company=company,
        name=record.name,
        title=template_of(record.template).title if good else "",
        cron=record.cron,
        every_s=None if record.every_ms is None else record.every_ms / 1000,
        zone=record.zone,
        overlap=record.overlap,
        misfire=record.misfire,
        jitter_s=record.jitter_ms / 1000,
        next_ms=record.next_ms if good else None,
        due_ms=record.due_ms if good else None,
        fired_ms=record.fired_ms,
        fired_task=record.fired_task,
        paused_ms=record.paused_ms,
        disabled=record.disabled if record.disabled is not None else record.bad,
    )


async def budget(source: Source, name: str) -> BudgetView:
    seen = await view(source, name)
    if seen.state is None:
        return BudgetView(None, 0, 0)
    company = seen.state.company
    return BudgetView(company.budget, company.spent, company.reserved)


async def limits(source: Source, name: str) -> LimitsView:
    seen = await view(source, name)
    if seen.state is None:
        return LimitsView()
    company = seen.state.company
    return LimitsView(company.runs_max, company.weight, company.paused_ms)


async def explanation(source: Source, name: str, task: str) -> Explanation:
    seen = await view(source, name, [task])
    state, entry = entry_in(seen, task)
    return explain(state, name, entry, seen.live)


async def timeline(source: Source, name: str, task: str) -> tuple[Event, ...]:
    """Every event of the task, oldest first."""
    lines = await source.database.fetch(TaskEvents(name, task))
    if lines is None:
        raise TaskUnknown(name, task)
    return tuple(event_of(line) for line in lines)


async def attempts(source: Source, name: str, task: str) -> tuple[AttemptView, ...]:
    """Every attempt of every run of the task, oldest first."""
    found = await source.database.fetch(TaskAttempts(name, task))
    if found is None:
        raise TaskUnknown(name, task)
    return tuple(
        AttemptView(
            run=attempt.run,
            node=_node_name(spec),
            number=attempt.number,
            generation=attempt.generation,
            started_ms=attempt.started_ms,
            ended_ms=attempt.ended_ms,
            end=attempt.end,
            error=attempt.error,
            reserved=attempt.reserved,
            spent=attempt.spent,
            assumed=attempt.assumed,
        )
        for spec, attempt in found
    )


async def result(source: Source, name: str, task: str) -> Mapping[str, Any]:
    """Results of the succeeded nodes of the newest run, by node."""
    seen = await view(source, name, [task])
    state, entry = entry_in(seen, task)
    run = 0 if entry.run is None else entry.run.number
    return await results_of_run(source.database, state.company.company_id, entry.task.seq, run)


async def results_of_run(database: ReadStore, company_id: int, seq: int, run: int) -> dict[str, Any]:
    """Results of a run's succeeded nodes, by node."""
    found = await database.fetch(Results(company_id, seq, run))
    return {_node_name(spec): decode(text) for spec, text in found}


def _node_name(spec: str) -> str:
    try:
        return spec_of(spec).name
    except ValueError:
        return "?"


def _status(seen: View, state: CompanyState, entry: TaskState, places: Mapping[str, int]) -> TaskStatus:
    where, reasons = work_state(state, entry, seen.live)
    run = entry.run
    return TaskStatus(
        company=seen.name,
        id=entry.task.id,
        seq=entry.task.seq,
        title="",
        priority=entry.task.priority,
        goal=entry.task.goal,
        run=0 if run is None else run.number,
        run_status=None if run is None else run.status,
        state=where,
        reasons=reasons,
        position=places.get(entry.task.id, 0),
        created_ms=entry.task.created_ms,
        settled_ms=None if run is None else run.settled_ms,
        depends_on=entry.task.depends_on,
        nodes=_nodes(state, entry),
        not_before_ms=entry.task.not_before_ms,
        schedule=entry.task.schedule,
        budget=entry.task.budget,
        spent=entry.task.spent,
        reserved=entry.task.reserved,
    )


def _nodes(state: CompanyState, entry: TaskState) -> tuple[NodeView, ...]:
    """The run's nodes; before its first admission, those that it would have."""
    if entry.nodes is not None:
        return tuple(
            NodeView(
                name=spec_of(node.spec).name,
                handler=spec_of(node.spec).handler,
                status=node.status,
                tries=node.tries,
                attempts=node.attempts,
                generation=node.generation,
                error=node.error,
                not_before_ms=node.not_before_ms,
                feedback=node.feedback,
                send_backs=node.send_backs,
                gate=spec_of(node.spec).gate,
                reached_ms=node.reached_ms,
                estimate=spec_of(node.spec).estimate,
            )
            for node in entry.nodes
        )
    shape = state.shape(entry) if entry.quarantined is None else None
    if shape is None:
        return ()
    return tuple(
        NodeView(spec.name, spec.handler, gate=spec.gate, estimate=spec.estimate) for spec in shape.nodes
    )


async def _with_titles(
    source: Source, company: CompanyRecord, made: Iterable[TaskStatus]
) -> list[TaskStatus]:
    statuses = list(made)
    ids = [status.id for status in statuses]
    titles = await source.database.fetch(Titles(company.company_id, ids))
    return [attrs.evolve(status, title=titles.get(status.id, "")) for status in statuses]
