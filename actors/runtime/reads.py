"""Reads. They use no mailbox and change nothing.

A company with an actor is read from its memory, between two turns, so a read sees only what is committed
and costs no loading. One without is read from the tables into a state of the same kind, by the same code,
in this process or in any other.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import attrs
import trio

from actors.core.entry import Entry
from actors.core.gates import Live
from actors.core.loading import check_texts, state_of, take_in
from actors.core.schedules import checked
from actors.core.shape import spec_of
from actors.core.state import CompanyState
from actors.core.template import template_of
from actors.core.work_state import explain, positions, work_state
from actors.errors import TaskUnknown
from actors.events import Event
from actors.states import AttemptView, BudgetView, Explanation, LimitsView, NodeView, ScheduleView, TaskStatus
from storage.codec import decode
from storage.database import Database
from storage.loading import find_company, find_tasks, load_company, load_schedules
from storage.records import AttemptEnd, CompanyRecord, ScheduleRecord
from storage.statements import SQL

from .log import event_of

if TYPE_CHECKING:
    from .company import CompanyActor


class Source(Protocol):
    """Where a company is read from."""

    database: Database

    def check(self) -> None: ...
    def actor(self, company: str) -> CompanyActor | None: ...
    def live_in_words(self, company: str) -> Live: ...
    def now_ms(self) -> int: ...
    @property
    def handlers_known(self) -> frozenset[str] | None: ...


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
        actor = source.actor(name)
        if actor is None or actor.state is None or not await _between_turns(source, name, actor):
            break
        if source.actor(name) is actor and actor.between_turns.is_set():
            state = actor.state
            if tasks is None or all(task in state.entries for task in tasks):
                return View(name, state, source.live_in_words(name))
            settled = await _read_settled(source, name, tasks)
            if settled is not None:
                return View(name, settled, source.live_in_words(name))
    return View(name, await _read_company(source, name, tasks), source.live_in_words(name))


async def _between_turns(source: Source, name: str, actor: CompanyActor) -> bool:
    """Wait until the actor's memory holds nothing that is not committed; false if that has to wait for a
    store that is away, so that the tables are asked instead.
    """
    for _ in range(MEMORY_TRIES):
        with trio.move_on_after(OUTAGE_LOOK_S):
            await actor.between_turns.wait()
        if actor.between_turns.is_set():
            return True
        if source.live_in_words(name).store_down is not None:
            return False
    return False


async def _read_settled(source: Source, name: str, tasks: Sequence[str]) -> CompanyState | None:
    """Only these tasks, if they are all settled: nothing else in the company matters to what they are."""

    def read(conn: sqlite3.Connection) -> CompanyState | None:
        company = find_company(conn, name)
        if company is None:
            return None
        found = find_tasks(conn, company.company_id, tasks, check_texts)
        state = CompanyState(company, source.handlers_known)
        take_in(state, found.tasks, found.missing)
        state.wake_due(source.now_ms())
        quiet = all(
            entry.task.archived_ms is not None or (entry.run is not None and entry.run.status.settled)
            for entry in (state.entries[task] for task in tasks if task in state.entries)
        )
        return state if quiet else None

    return await source.database.read(read)


async def _read_company(source: Source, name: str, tasks: Sequence[str] | None) -> CompanyState | None:
    def read(conn: sqlite3.Connection) -> CompanyState | None:
        company = find_company(conn, name)
        if company is None:
            return None
        loaded = load_company(conn, company, check_texts, with_schedules=False)
        state = state_of(loaded, source.handlers_known)
        if tasks:
            found = find_tasks(conn, company.company_id, tasks, check_texts)
            take_in(state, found.tasks, found.missing)
        state.wake_due(source.now_ms())
        return state

    return await source.database.read(read)


def entry_in(seen: View, task: str) -> tuple[CompanyState, Entry]:
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

    def place(entry: Entry) -> tuple[Any, ...]:
        if entry.run is None:
            return (2, (0, 0, entry.task.seq))
        return (0 if entry.run.status.active else 1, order_key(entry.task, entry.run))

    places = positions(state)
    made = [_status(seen, state, entry, places) for entry in sorted(entries, key=place)]
    return tuple(await _with_titles(source, state.company, made))


async def tasks(source: Source, name: str, *, archived: bool) -> tuple[TaskStatus, ...]:
    """Every task, in the order of creation."""

    def ids_of(conn: sqlite3.Connection) -> list[str]:
        company = find_company(conn, name)
        if company is None:
            return []
        params = {"company_id": company.company_id, "archived": archived}
        return [row[0] for row in conn.execute(SQL["all_task_ids"], params).fetchall()]

    ids = await source.database.read(ids_of)
    state = await _read_company(source, name, ids)
    if state is None:
        return ()
    seen = View(name, state, source.live_in_words(name))
    places = positions(state)
    made = [_status(seen, state, state.entries[task], places) for task in ids if task in state.entries]
    return tuple(await _with_titles(source, state.company, made))


async def schedules(source: Source, name: str) -> tuple[ScheduleView, ...]:
    """Every schedule by name. All of it is stored, so it is read from the tables."""
    source.check()

    def read(conn: sqlite3.Connection) -> tuple[ScheduleRecord, ...]:
        company = find_company(conn, name)
        return () if company is None else load_schedules(conn, company.company_id)

    return tuple(_schedule(name, checked(record)) for record in await source.database.read(read))


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
    rows = await _of_task(source, name, task, "events_task", "task_seq")
    return tuple(event_of(row) for row in rows)


async def attempts(source: Source, name: str, task: str) -> tuple[AttemptView, ...]:
    """Every attempt of every run of the task, oldest first."""
    rows = await _of_task(source, name, task, "attempts_of", "seq")
    return tuple(
        AttemptView(
            run=row[0],
            node=_node_name(row[1]),
            number=row[2],
            generation=row[3],
            started_ms=row[4],
            ended_ms=row[5],
            end=None if row[6] is None else AttemptEnd(row[6]),
            error=row[7],
            reserved=row[8],
            spent=row[9],
            assumed=bool(row[10]),
        )
        for row in rows
    )


async def result(source: Source, name: str, task: str) -> Mapping[str, Any]:
    """Results of the succeeded nodes of the newest run, by node."""
    seen = await view(source, name, [task])
    state, entry = entry_in(seen, task)
    run = 0 if entry.run is None else entry.run.number
    return await results_of_run(source.database, state.company.company_id, entry.task.seq, run)


async def results_of_run(database: Database, company_id: int, seq: int, run: int) -> dict[str, Any]:
    params = {"company_id": company_id, "seq": seq, "run": run}
    rows = await database.read(lambda conn: conn.execute(SQL["results"], params).fetchall())
    return {_node_name(spec): decode(text) for spec, text in rows}


async def _of_task(source: Source, name: str, task: str, statement: str, seq_name: str) -> list[Any]:
    def read(conn: sqlite3.Connection) -> list[Any]:
        row = conn.execute(SQL["task_seq"], {"company": name, "id": task}).fetchone()
        company = find_company(conn, name)
        if row is None or company is None:
            raise TaskUnknown(name, task)
        params = {"company_id": company.company_id, "name": name, seq_name: row[0]}
        return conn.execute(SQL[statement], params).fetchall()

    return await source.database.read(read)


def _node_name(spec: str) -> str:
    try:
        return spec_of(spec).name
    except ValueError:
        return "?"


def _status(seen: View, state: CompanyState, entry: Entry, places: Mapping[str, int]) -> TaskStatus:
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


def _nodes(state: CompanyState, entry: Entry) -> tuple[NodeView, ...]:
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
    params = {"company_id": company.company_id, "ids": json.dumps([status.id for status in statuses])}
    rows = await source.database.read(lambda conn: conn.execute(SQL["titles"], params).fetchall())
    titles = dict(rows)
    return [attrs.evolve(status, title=titles.get(status.id, "")) for status in statuses]
