"""Turns: all that one changes, written in one go; see `storage.contract.turns`.

First comes the fence, which also hands out the event numbers. Rows go in an order in which every rule of the
schema holds after each statement: limits first, slots given up before slots taken.

What the turns of several companies write never meets in a row, so `write_together` takes one table after
the other for all of them: a statement is set up once for a hundred companies, not a hundred times.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from storage.columns import (
    END_ATTEMPT,
    INSERT_ATTEMPT,
    INSERT_NODE,
    INSERT_RUN,
    INSERT_TASK,
    UPDATE_COMPANY,
    UPDATE_NODE,
    UPDATE_RUN,
    UPDATE_TASK,
    Row,
    row_of,
)
from storage.contract.turns import Committed, CommitTurn, GraphRow, Inputs, InputsOf
from storage.errors import StaleEpoch, UnitRefused
from storage.records import (
    AttemptRecord,
    CompanyRecord,
    NodeRecord,
    RunRecord,
    ScheduleRecord,
    TaskRecord,
)
from storage.values import names_of
from storage.writes import (
    ArchivedSet,
    AttemptBooked,
    InboxAnswered,
    NodePayloadsSet,
    NotBeforeSet,
    PayloadSet,
    Released,
    RunCarried,
    RunPayloadSet,
    SchedulePut,
    ScheduleRemoved,
    TaskBooked,
    TaskFire,
    TitleSet,
    Write,
)

from .engine import operation
from .events import event_rows, insert_events
from .statements import SQL


@operation(CommitTurn, fences_itself=True)
def commit_turn(conn: sqlite3.Connection, turn: CommitTurn) -> Committed:
    (committed,) = write_together(conn, (turn,))
    return committed


def write_together(conn: sqlite3.Connection, units: Sequence[CommitTurn]) -> list[Committed]:
    """Write units of different companies as if one after the other; what each has added, in their order.

    Raises `StaleEpoch`, or whatever SQLite says, and does not tell whose fault it is: the caller rolls back
    and asks them one by one.
    """
    first_seqs = [_fence(conn, unit) for unit in units]
    _write_companies(conn, units)
    _write_tasks(conn, units)
    _write_runs(conn, units)
    _write_nodes(conn, units)  # after the payloads that new nodes copy
    position = _write_events(conn, units, first_seqs)
    committed = []
    for unit, first_seq in zip(units, first_seqs, strict=True):
        inputs = (
            [read_inputs(conn, unit.claim.company_id, asked) for asked in unit.inputs] if unit.inputs else ()
        )
        committed.append(Committed(position, first_seq, inputs))
        position += len(unit.events)
    return committed


def _fence(conn: sqlite3.Connection, unit: CommitTurn) -> int:
    """The number of the unit's first event in its company."""
    events = len(unit.events)
    rows = conn.execute(
        SQL["fence"], (events, unit.due_ms, unit.claim.company_id, unit.claim.epoch)
    ).fetchall()
    if not rows:
        raise StaleEpoch(unit.claim.name, unit.claim.epoch)
    return int(rows[0][0]) - events + 1


def _write(conn: sqlite3.Connection, statement: str, rows: Iterable[Row]) -> None:
    """All rows of one statement; nothing is asked of the database if there are none."""
    if rows := list(rows):
        conn.executemany(SQL[statement], rows)


def _write_companies(conn: sqlite3.Connection, units: Sequence[CommitTurn]) -> None:
    _write(conn, "update_company", (_COMPANY(unit.company) for unit in units if unit.company is not None))
    _write(conn, "put_graph", ((u.claim.company_id, *_GRAPH(graph)) for u in units for graph in u.graphs))


def _write_tasks(conn: sqlite3.Connection, units: Sequence[CommitTurn]) -> None:
    new = (
        (*_NEW_TASK(task, u.claim.company_id), *_TEXTS(texts)) for u in units for task, texts in u.new_tasks
    )
    _write(conn, "insert_task", new)
    _write(conn, "update_task", (_TASK(task, u.claim.company_id) for u in units for task in u.tasks))
    _write(conn, "keep_pins", ((u.claim.company_id, seq) for u in units for seq in u.repinned))
    edges = [(unit.claim.company_id, seq, upstreams) for unit in units for seq, upstreams in unit.edges]
    for company_id, seq, _ in edges:
        conn.execute(SQL["delete_edges"], {"company_id": company_id, "seq": seq})
    _write(conn, "insert_edge", ((company, seq, name) for company, seq, names in edges for name in names))


def _write_runs(conn: sqlite3.Connection, units: Sequence[CommitTurn]) -> None:
    changed = [(unit.claim.company_id, run) for unit in units for run in unit.runs]
    new = [(unit.claim.company_id, run) for unit in units for run in unit.new_runs]
    for takes_slot in (False, True):
        _write(
            conn,
            "update_run",
            (_RUN(run, company) for company, run in changed if bool(run.slot) is takes_slot),
        )
        _write(
            conn,
            "insert_run",
            (_NEW_RUN(run, company) for company, run in new if bool(run.slot) is takes_slot),
        )
    for unit in units:
        for seq in unit.pins:
            _pin_upstreams(conn, (unit.claim.company_id, seq))
        for write in unit.writes:
            statement, params = _statement_of(write)
            conn.execute(SQL[statement], {"company_id": unit.claim.company_id, **params})


_STATEMENTS: Mapping[type, str] = MappingProxyType(
    {
        TaskFire: "set_task_fire",
        TitleSet: "set_title",
        PayloadSet: "set_payload",
        NodePayloadsSet: "set_node_payloads",
        NotBeforeSet: "set_not_before",
        ArchivedSet: "archive_task",
        Released: "delete_quarantine",
        RunPayloadSet: "set_run_payload",
        RunCarried: "carry_run",
        AttemptBooked: "book_attempt",
        TaskBooked: "book_task",
        InboxAnswered: "inbox_answer",
        ScheduleRemoved: "delete_schedule",
    }
)
"""Their fields are the parameters of these statements."""


def _statement_of(write: Write) -> tuple[str, Mapping[str, Any]]:
    """The statement that writes it, and its parameters."""
    if isinstance(write, SchedulePut):
        return _put_schedule(write.record)
    return _STATEMENTS[type(write)], {name: getattr(write, name) for name in names_of(type(write))}


def _put_schedule(record: ScheduleRecord) -> tuple[str, Mapping[str, Any]]:
    """What is wrong in a row that cannot be trusted stays as it is."""
    if record.bad is not None:
        held = {"seq": record.seq, "paused_ms": record.paused_ms, "disabled": record.disabled}
        return "hold_schedule", held
    fields = {name: getattr(record, name) for name in names_of(ScheduleRecord) if name != "bad"}
    return "put_schedule", {**fields, "overlap": record.overlap.value, "misfire": record.misfire.value}


def _pin_upstreams(conn: sqlite3.Connection, task: tuple[int, int]) -> None:
    conn.execute(SQL["pin_upstreams"], task)
    if loose := conn.execute(SQL["unpinned_upstreams"], task).fetchall():
        raise UnitRefused("TURNKEEPER_UPSTREAM", f"upstream {loose[0][0]!r} is not completed")


def _write_nodes(conn: sqlite3.Connection, units: Sequence[CommitTurn]) -> None:
    new = (_NEW_NODE(node, u.claim.company_id, result) for u in units for node, result in u.new_nodes)
    _write(conn, "insert_node", new)
    _write(
        conn,
        "update_node",
        (_NODE(node, u.claim.company_id, result) for u in units for node, result in u.nodes),
    )
    carried = (_NEW_NODE(node, u.claim.company_id, result) for u in units for node, result in u.carried)
    _write(conn, "carry_node", carried)  # after what the run before theirs has accepted in this very turn
    _write(
        conn, "insert_attempt", (_BEGUN(attempt, u.claim.company_id) for u in units for attempt in u.begun)
    )
    _write(conn, "end_attempt", (_ENDED(attempt, u.claim.company_id) for u in units for attempt in u.ended))


def _write_events(conn: sqlite3.Connection, units: Sequence[CommitTurn], first_seqs: Sequence[int]) -> int:
    """The position of the first event; the others follow it."""
    rows: list[Row] = []
    for unit, first_seq in zip(units, first_seqs, strict=True):
        rows.extend(event_rows(unit.claim.company_id, first_seq, unit.events))
    return insert_events(conn, rows)


# --- rows, in the order of the parameters of their statements ---------------------------------------------------


_COMPANY = row_of(CompanyRecord, UPDATE_COMPANY)
_GRAPH = row_of(GraphRow, names_of(GraphRow))
_TEXTS = attrgetter("title", "payload", "node_payloads", "key", "content")
_NEW_TASK = row_of(TaskRecord, INSERT_TASK, "company_id")
_TASK = row_of(TaskRecord, UPDATE_TASK, "company_id")
_NEW_RUN = row_of(RunRecord, INSERT_RUN, "company_id")
_RUN = row_of(RunRecord, UPDATE_RUN, "company_id")
_NEW_NODE = row_of(NodeRecord, INSERT_NODE, "company_id", "result")
_NODE = row_of(NodeRecord, UPDATE_NODE, "company_id", "result")
_BEGUN = row_of(AttemptRecord, INSERT_ATTEMPT, "company_id")
_ENDED = row_of(AttemptRecord, END_ATTEMPT, "company_id")


# --- inputs -----------------------------------------------------------------------------------------------------


def read_inputs(conn: sqlite3.Connection, company_id: int, asked: InputsOf) -> Inputs:
    """What an attempt is given. Read in the commit that starts it, so it costs no hop of its own."""
    run = (company_id, asked.seq, asked.run)
    found = conn.execute(SQL["attempt_payload"], (*run, asked.pos)).fetchone()
    payload, node_payload, pins = found or (None, None, None)
    results = []
    for pos in asked.after:
        row = conn.execute(SQL["node_result"], (*run, pos)).fetchone()
        results.append(None if row is None else row[0])
    upstream: Sequence[tuple[str, str | None, str | None]] = ()
    if pins is not None:
        upstream = conn.execute(SQL["pinned_results"], (company_id, pins)).fetchall()
    elif asked.upstream:
        upstream = conn.execute(SQL["upstream_results"], (company_id, asked.seq)).fetchall()
    return Inputs(payload, node_payload, tuple(results), upstream)
