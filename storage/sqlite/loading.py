"""Reading rows back as records. One bad row is reported as such and never keeps the others from being read."""

from __future__ import annotations

import json
import sqlite3
import traceback
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

import attrs

from storage.columns import RUN_BEGINS, RUN_READ, TASK_READ, WHY, record_of
from storage.records import (
    CompanyRecord,
    Misfire,
    NodeRecord,
    Overlap,
    RunRecord,
    ScheduleRecord,
    TaskRecord,
)
from storage.sqlite.connection import Undecodable
from storage.sqlite.statements import SQL
from storage.values import names_of

Row = Sequence[Any]

_TASK, _RUN, _NODE = record_of(TaskRecord), record_of(RunRecord), record_of(NodeRecord)
_DEPENDS_ON = names_of(TaskRecord).index("depends_on")
_ARCHIVED_MS = TASK_READ.index("archived_ms")
_NUMBER = RUN_BEGINS + RUN_READ.index("number")
_ADMITTED_MS = RUN_BEGINS + RUN_READ.index("admitted_ms")

Check = Callable[[TaskRecord, Sequence[NodeRecord]], None]
"""Raises ``ValueError`` for texts inside the records that nobody of ours wrote."""


@attrs.define
class LoadedTask:
    """A task as the tables have it. ``bad`` says why its rows cannot be trusted, if nobody has set it aside for
    it yet. Where rows are not ``readable`` the record is only a name for the task.
    """

    record: TaskRecord
    run: RunRecord | None = None
    nodes: tuple[NodeRecord, ...] | None = None
    quarantined: str | None = None
    bad: str | None = None
    traceback: str | None = None
    readable: bool = True


@attrs.frozen
class LoadedGraph:
    name: str
    version: int
    shape: str
    node_payloads: str | None


@attrs.frozen
class LoadedCompany:
    company: CompanyRecord
    graphs: tuple[LoadedGraph, ...]
    tasks: tuple[LoadedTask, ...]
    missing: frozenset[str]
    """Upstream ids that no task has: planted rows."""
    schedules: tuple[ScheduleRecord, ...] = ()


@attrs.frozen
class FoundTasks:
    tasks: tuple[LoadedTask, ...]
    known: frozenset[str]
    """Of the ids that were asked for, those that are a task's."""
    missing: frozenset[str]
    """Of them and of the upstreams, those that are not."""


def company_record(row: Row) -> CompanyRecord:
    return CompanyRecord(*row)


def find_company(conn: sqlite3.Connection, name: str) -> CompanyRecord | None:
    row = conn.execute(SQL["find_company"], {"name": name}).fetchone()
    return None if row is None else company_record(row)


def claim_company(conn: sqlite3.Connection, name: str) -> CompanyRecord:
    """The company with a new epoch; it is made if there is none. Runs in a writing transaction."""
    claimed = claim_existing(conn, name)
    if claimed is not None:
        return claimed
    (row,) = conn.execute(SQL["insert_company"], {"name": name}).fetchall()
    return company_record(row)


def claim_existing(conn: sqlite3.Connection, name: str) -> CompanyRecord | None:
    """`claim_company` that makes none."""
    rows = conn.execute(SQL["claim_company"], {"name": name}).fetchall()
    return company_record(rows[0]) if rows else None


def load_company(
    conn: sqlite3.Connection, company: CompanyRecord, check: Check, *, with_schedules: bool = True
) -> LoadedCompany:
    """Everything an actor begins with: the unsettled tasks, the upstreams of theirs that are not done, and the
    schedules.
    """
    key = {"company_id": company.company_id}
    rows = conn.execute(SQL["load_tasks"], key).fetchall() + conn.execute(SQL["load_runless"], key).fetchall()
    edges = _group_edges(conn.execute(SQL["load_edges"], key).fetchall())
    tasks = _tasks(conn, company.company_id, rows, edges, check)
    more, missing = _upstreams(conn, company.company_id, tasks, check)
    graphs = tuple(LoadedGraph(*row) for row in conn.execute(SQL["load_graphs"], key).fetchall())
    schedules = load_schedules(conn, company.company_id) if with_schedules else ()
    return LoadedCompany(company, graphs, (*tasks, *more), missing, schedules)


def load_schedules(conn: sqlite3.Connection, company_id: int) -> tuple[ScheduleRecord, ...]:
    """A company's schedules by name, each with what is wrong with its row if something is."""
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


def find_tasks(conn: sqlite3.Connection, company_id: int, ids: Iterable[str], check: Check) -> FoundTasks:
    """Tasks by id in whatever state, with the upstreams of theirs that are not done."""
    wanted = sorted(ids)
    key = {"company_id": company_id, "ids": json.dumps(wanted)}
    rows = conn.execute(SQL["load_tasks_by_id"], key).fetchall()
    edges = _edges_of(conn, company_id, [row[0] for row in rows])
    tasks = _tasks(conn, company_id, rows, edges, check)
    more, missing = _upstreams(conn, company_id, tasks, check)
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
    conn: sqlite3.Connection, company_id: int, rows: Sequence[Row], edges: dict[int, list[str]], check: Check
) -> list[LoadedTask]:
    admitted = [[row[0], row[_NUMBER]] for row in rows if row[_ADMITTED_MS] is not None]
    nodes: dict[int, list[Row]] = {}
    key = {"company_id": company_id, "runs": json.dumps(admitted)}
    rows_of_nodes = conn.execute(SQL["load_nodes"], key).fetchall() if admitted else []
    for row in sorted(rows_of_nodes, key=itemgetter(0, 1, 2)):
        nodes.setdefault(row[0], []).append(row)
    return [_task(row, tuple(edges.get(row[0], ())), nodes.get(row[0], []), check) for row in rows]


def _task(row: Row, upstreams: tuple[str, ...], node_rows: Sequence[Row], check: Check) -> LoadedTask:
    try:
        record = _TASK((*row[:_DEPENDS_ON], upstreams, *row[_DEPENDS_ON:RUN_BEGINS]))
        run = None if row[_NUMBER] is None else _run(row)
        nodes = None if run is None or run.admitted_ms is None else tuple(_NODE(item) for item in node_rows)
        _refuse_undecodable(record, nodes or ())
        check(record, nodes or ())
    except (ValueError, TypeError) as error:
        if row[WHY] is None:
            shown = "".join(traceback.format_exception(error))
            return LoadedTask(
                _nameplate(row, upstreams), bad=f"bad row: {error}", traceback=shown, readable=False
            )
        return LoadedTask(_nameplate(row, upstreams), _run_or_none(row), quarantined=row[WHY], readable=False)
    return LoadedTask(record, run, nodes, quarantined=row[WHY])


def _refuse_undecodable(task: TaskRecord, nodes: Sequence[NodeRecord]) -> None:
    texts: list[str | None] = [task.id, task.goal, task.graph, task.shape, task.schedule]
    for node in nodes:
        texts += (node.spec, node.error, node.feedback)
    if any(isinstance(text, Undecodable) for text in texts):
        raise ValueError("a text that is not UTF-8")


def _nameplate(row: Row, upstreams: tuple[str, ...]) -> TaskRecord:
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
    conn: sqlite3.Connection, company_id: int, tasks: Sequence[LoadedTask], check: Check
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
    return _tasks(conn, company_id, rows, edges, check), missing
