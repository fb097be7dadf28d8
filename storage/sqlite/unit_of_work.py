"""Turns: all that one changes, written in one go; see `storage.contract.turns`.

First comes the fence, which also hands out the event numbers. Rows go in an order in which every rule of the
schema holds after each statement: limits first, slots given up before slots taken.

What the turns of several companies write never meets in a row, so `write_together` takes one table after
the other for all of them: a statement is set up once for a hundred companies, not a hundred times.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from operator import attrgetter, itemgetter
from typing import Any

from storage.contract.turns import Committed, CommitTurn, Inputs, InputsOf
from storage.errors import StaleEpoch, UnitRefused
from storage.records import AttemptRecord, NodeRecord, RunRecord, TaskRecord

from .engine import operation
from .events import event_rows, insert_events
from .statements import SQL

Row = tuple[Any, ...]


@operation(CommitTurn, fences_itself=True)
def commit_turn(conn: sqlite3.Connection, turn: CommitTurn) -> Committed:
    (committed,) = write_together(conn, (turn,))
    return committed


def write_together(conn: sqlite3.Connection, units: Sequence[CommitTurn]) -> list[Committed]:
    """Write turns of different companies as if one after the other; what each has added, in their order.

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
        (*_new_task_row(u.claim.company_id, task), *_TEXTS(texts))
        for u in units
        for task, texts in u.new_tasks
    )
    _write(conn, "insert_task", new)
    _write(conn, "update_task", (_task_row(u.claim.company_id, task) for u in units for task in u.tasks))
    _write(conn, "keep_pins", ((u.claim.company_id, seq) for u in units for seq in u.repinned))
    edges = [(unit.claim.company_id, seq, upstreams) for unit in units for seq, upstreams in unit.edges]
    for company_id, seq, _ in edges:
        conn.execute(SQL["delete_edges"], {"company_id": company_id, "seq": seq})
    _write(conn, "insert_edge", ((company, seq, name) for company, seq, names in edges for name in names))


def _write_runs(conn: sqlite3.Connection, units: Sequence[CommitTurn]) -> None:
    changed = [_run_row(unit.claim.company_id, run) for unit in units for run in unit.runs]
    new = [_new_run_row(unit.claim.company_id, run) for unit in units for run in unit.new_runs]
    _write(conn, "update_run", (row for row in changed if not row[_SLOT]))
    _write(conn, "insert_run", (row for row in new if not row[_NEW_SLOT]))
    _write(conn, "update_run", (row for row in changed if row[_SLOT]))
    _write(conn, "insert_run", (row for row in new if row[_NEW_SLOT]))
    for unit in units:
        for seq in unit.pins:
            _pin_upstreams(conn, (unit.claim.company_id, seq))
        for statement, params in unit.writes:
            conn.execute(SQL[statement], {"company_id": unit.claim.company_id, **params})


def _pin_upstreams(conn: sqlite3.Connection, task: tuple[int, int]) -> None:
    conn.execute(SQL["pin_upstreams"], task)
    if loose := conn.execute(SQL["unpinned_upstreams"], task).fetchall():
        raise UnitRefused("TURNKEEPER_UPSTREAM", f"upstream {loose[0][0]!r} is not completed")


def _write_nodes(conn: sqlite3.Connection, units: Sequence[CommitTurn]) -> None:
    new = (_new_node_row(u.claim.company_id, node, result) for u in units for node, result in u.new_nodes)
    _write(conn, "insert_node", new)
    _write(
        conn,
        "update_node",
        (_node_row(u.claim.company_id, node, result) for u in units for node, result in u.nodes),
    )
    carried = (_new_node_row(u.claim.company_id, node, result) for u in units for node, result in u.carried)
    _write(conn, "carry_node", carried)  # after what the run before theirs has accepted in this very turn
    _write(
        conn, "insert_attempt", ((u.claim.company_id, *_BEGUN(attempt)) for u in units for attempt in u.begun)
    )
    _write(conn, "end_attempt", (_end_row(u.claim.company_id, attempt) for u in units for attempt in u.ended))


def _write_events(conn: sqlite3.Connection, units: Sequence[CommitTurn], first_seqs: Sequence[int]) -> int:
    """The position of the first event; the others follow it."""
    rows: list[Row] = []
    for unit, first_seq in zip(units, first_seqs, strict=True):
        rows.extend(event_rows(unit.claim.company_id, first_seq, unit.events))
    return insert_events(conn, rows)


# --- rows, in the order of the parameters of their statements ---------------------------------------------------


_COMPANY = attrgetter(
    "runs_max", "weight", "paused_ms", "task_seq", "front_seq", "budget", "spent", "reserved", "company_id"
)
_GRAPH = attrgetter("name", "version", "shape", "node_payloads")
_TEXTS = itemgetter("title", "payload", "node_payloads", "key", "content")
_BEGUN = attrgetter("seq", "run", "pos", "number", "generation", "host_id", "started_ms", "reserved")
_SLOT, _NEW_SLOT = 1, 5
"""Where the slot stands in the rows of a run: a changed one, and a new one."""


def _new_task_row(company_id: int, task: TaskRecord) -> Row:
    return (
        company_id,
        task.seq,
        task.id,
        task.priority,
        task.created_ms,
        task.mode.value,
        task.goal,
        task.graph,
        task.shape,
        task.attempts_max,
        int(task.fail_fast),
        task.archived_ms,
        task.send_backs_max,
        task.budget,
        task.spent,
        task.reserved,
    )


def _task_row(company_id: int, task: TaskRecord) -> Row:
    return (
        task.priority,
        task.mode.value,
        task.goal,
        task.graph,
        task.shape,
        task.attempts_max,
        int(task.fail_fast),
        task.archived_ms,
        task.send_backs_max,
        task.budget,
        task.spent,
        task.reserved,
        company_id,
        task.seq,
    )


def _run_row(company_id: int, run: RunRecord) -> Row:
    return (
        run.status.value,
        run.slot,
        run.admitted_ms,
        run.settled_ms,
        int(run.started),
        run.front,
        run.reason,
        run.step,
        run.halted_ms,
        company_id,
        run.seq,
        run.number,
    )


def _new_run_row(company_id: int, run: RunRecord) -> Row:
    return (company_id, run.seq, run.number, run.created_ms, *_run_row(company_id, run)[:9])


def _node_row(company_id: int, node: NodeRecord, result: str | None) -> Row:
    return (
        node.status.value,
        node.tries,
        node.unclean,
        node.generation,
        node.attempts,
        node.not_before_ms,
        node.error,
        node.feedback,
        node.send_backs,
        node.reached_ms,
        int(node.superseded),
        result,
        company_id,
        node.seq,
        node.run,
        node.pos,
    )


def _new_node_row(company_id: int, node: NodeRecord, result: str | None) -> Row:
    changed = _node_row(company_id, node, result)
    return (*changed[12:], node.spec, *changed[:12])


def _end_row(company_id: int, attempt: AttemptRecord) -> Row:
    end = None if attempt.end is None else attempt.end.value
    key = (company_id, attempt.seq, attempt.run, attempt.pos, attempt.number)
    return (attempt.ended_ms, end, attempt.error, attempt.spent, int(attempt.assumed), *key)


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
