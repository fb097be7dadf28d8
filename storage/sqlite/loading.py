"""Loading companies and tasks; see `storage.contract.loading`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

from storage.columns import RUN_BEGINS, RUN_READ, TASK_READ, WHY, record_of
from storage.contract.loading import (
    FindTasks,
    FoundTasks,
    LoadCompany,
    LoadedCompany,
    LoadedGraph,
    LoadedTask,
    LoadSchedules,
    unreadable,
)
from storage.records import (
    CompanyRecord,
    Misfire,
    NodeRecord,
    Overlap,
    RunRecord,
    ScheduleRecord,
    TaskRecord,
)
from storage.values import names_of

from .companies import find_company
from .connection import Undecodable
from .engine import query
from .statements import SQL

Row = Sequence[Any]

_TASK, _RUN, _NODE = record_of(TaskRecord), record_of(RunRecord), record_of(NodeRecord)
_DEPENDS_ON = names_of(TaskRecord).index("depends_on")
_ARCHIVED_MS = TASK_READ.index("archived_ms")
_NUMBER = RUN_BEGINS + RUN_READ.index("number")
_ADMITTED_MS = RUN_BEGINS + RUN_READ.index("admitted_ms")


@query(LoadCompany)
def load(conn: sqlite3.Connection, asked: LoadCompany) -> LoadedCompany | None:
    company = find_company(conn, asked.name)
    return None if company is None else _load(conn, company, asked)


def _load(conn: sqlite3.Connection, company: CompanyRecord, asked: LoadCompany) -> LoadedCompany:
    company_id = company.company_id
    key = {"company_id": company_id}
    rows = conn.execute(SQL["load_tasks"], key).fetchall() + conn.execute(SQL["load_runless"], key).fetchall()
    edges = _group_edges(conn.execute(SQL["load_edges"], key).fetchall())
    tasks = _tasks(conn, company_id, rows, edges)
    more, missing = _upstreams(conn, company_id, tasks)
    return LoadedCompany(
        company,
        tuple(LoadedGraph(*row) for row in conn.execute(SQL["load_graphs"], key).fetchall()),
        (*tasks, *more),
        missing,
        schedules_of(conn, company_id) if asked.with_schedules else (),
        tasks_by_id(conn, company_id, asked.also),
    )


@query(FindTasks)
def find_tasks(conn: sqlite3.Connection, asked: FindTasks) -> tuple[CompanyRecord, FoundTasks] | None:
    company = find_company(conn, asked.name)
    return None if company is None else (company, tasks_by_id(conn, company.company_id, asked.ids))


@query(LoadSchedules)
def load_schedules(conn: sqlite3.Connection, asked: LoadSchedules) -> tuple[ScheduleRecord, ...]:
    company = find_company(conn, asked.name)
    return () if company is None else schedules_of(conn, company.company_id)


def schedules_of(conn: sqlite3.Connection, company_id: int) -> tuple[ScheduleRecord, ...]:
    """A company's schedules by name."""
    rows = conn.execute(SQL["load_schedules"], {"company_id": company_id}).fetchall()
    return tuple(_schedule(row) for row in rows)


def _schedule(row: Row) -> ScheduleRecord:
    fields = dict(zip(names_of(ScheduleRecord), row, strict=False))
    bad = "a text that is not UTF-8" if any(isinstance(value, Undecodable) for value in row) else None
    try:
        fields.update(overlap=Overlap(fields["overlap"]), misfire=Misfire(fields["misfire"]))
    except ValueError as error:
        fields.update(overlap=Overlap.SKIP, misfire=Misfire.SKIP)
        bad = str(error)
    return ScheduleRecord(**fields, bad=bad)


def tasks_by_id(conn: sqlite3.Connection, company_id: int, ids: Iterable[str]) -> FoundTasks:
    """Tasks by id in whatever state, with the upstreams of theirs that are not done."""
    wanted = sorted(ids)
    if not wanted:
        return FoundTasks((), frozenset(), frozenset())
    key = {"company_id": company_id, "ids": json.dumps(wanted)}
    rows = conn.execute(SQL["load_tasks_by_id"], key).fetchall()
    edges = _edges_of(conn, company_id, [row[0] for row in rows])
    tasks = _tasks(conn, company_id, rows, edges)
    more, missing = _upstreams(conn, company_id, tasks)
    known = frozenset(task.record.id for task in tasks)
    return FoundTasks((*tasks, *more), known, missing | (set(wanted) - known))


def _edges_of(conn: sqlite3.Connection, company_id: int, seqs: Sequence[int]) -> dict[int, list[str]]:
    key = {"company_id": company_id, "seqs": json.dumps(list(seqs))}
    return _group_edges(conn.execute(SQL["load_edges_of"], key).fetchall())


def _group_edges(rows: Iterable[Row]) -> dict[int, list[str]]:
    grouped: dict[int, list[str]] = {}
    for seq, upstream in sorted(rows, key=itemgetter(0, 1)):
        grouped.setdefault(seq, []).append(upstream)
    return grouped


def _tasks(
    conn: sqlite3.Connection, company_id: int, rows: Sequence[Row], edges: dict[int, list[str]]
) -> list[LoadedTask]:
    admitted = [[row[0], row[_NUMBER]] for row in rows if row[_ADMITTED_MS] is not None]
    nodes: dict[int, list[Row]] = {}
    key = {"company_id": company_id, "runs": json.dumps(admitted)}
    rows_of_nodes = conn.execute(SQL["load_nodes"], key).fetchall() if admitted else []
    for row in sorted(rows_of_nodes, key=itemgetter(0, 1, 2)):
        nodes.setdefault(row[0], []).append(row)
    return [_task(row, tuple(edges.get(row[0], ())), nodes.get(row[0], [])) for row in rows]


def _task(row: Row, upstreams: tuple[str, ...], node_rows: Sequence[Row]) -> LoadedTask:
    try:
        record = _TASK((*row[:_DEPENDS_ON], upstreams, *row[_DEPENDS_ON:RUN_BEGINS]))
        run = None if row[_NUMBER] is None else _run(row)
        nodes = None if run is None or run.admitted_ms is None else tuple(_NODE(item) for item in node_rows)
        _refuse_undecodable(record, nodes or ())
    except (ValueError, TypeError) as error:
        run = None if row[WHY] is None else _run_or_none(row)
        return unreadable(_name(row, upstreams), run, row[WHY], error)
    return LoadedTask(record, run, nodes, quarantined=row[WHY])


def _refuse_undecodable(task: TaskRecord, nodes: Sequence[NodeRecord]) -> None:
    texts: list[str | None] = [task.id, task.goal, task.graph, task.shape, task.schedule]
    for node in nodes:
        texts += (node.spec, node.error, node.feedback)
    if any(isinstance(text, Undecodable) for text in texts):
        raise ValueError("a text that is not UTF-8")


def _name(row: Row, upstreams: tuple[str, ...]) -> TaskRecord:
    """Just enough of a record to speak of a task whose rows cannot be read."""
    return TaskRecord(
        seq=row[0],
        id=row[1],
        priority=row[2],
        created_ms=row[3],
        depends_on=upstreams,
        archived_ms=row[_ARCHIVED_MS],
    )


def _run_or_none(row: Row) -> RunRecord | None:
    try:
        return None if row[_NUMBER] is None else _run(row)
    except ValueError:
        return None


def _run(row: Row) -> RunRecord:
    return _RUN((row[0], *row[RUN_BEGINS:WHY]))


def _upstreams(
    conn: sqlite3.Connection, company_id: int, tasks: Sequence[LoadedTask]
) -> tuple[list[LoadedTask], frozenset[str]]:
    """Upstreams that are not among the tasks themselves: those not done are loaded, those without a row are
    missing.

    One step up is enough: what is above an unsettled upstream is loaded with it, what is above a settled
    one does not matter.
    """
    present = {task.record.id for task in tasks}
    wanted = {up for task in tasks for up in task.record.depends_on} - present
    if not wanted:
        return [], frozenset()
    key = {"company_id": company_id, "ids": json.dumps(sorted(wanted))}
    found = conn.execute(SQL["standing_of"], key).fetchall()
    missing = frozenset(wanted) - {row[0] for row in found}
    pending = [row[0] for row in found if not row[1]]
    if not pending:
        return [], missing
    rows = conn.execute(
        SQL["load_tasks_by_id"], {"company_id": company_id, "ids": json.dumps(pending)}
    ).fetchall()
    edges = _edges_of(conn, company_id, [row[0] for row in rows])
    return _tasks(conn, company_id, rows, edges), missing
