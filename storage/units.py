"""One unit of work: all that a turn changes, written in one go, fenced by the company's epoch.

A unit is a function of the connection alone, so the writer may run it again after an outage. It runs inside
the writer's transaction. Its first statement is the fence: an actor that was replaced can write nothing any
more (`StaleEpoch`). Rows go in an order in which every rule of the schema holds after each statement:
limits first, slots given up before slots taken.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from storage.errors import StaleEpoch, UnitRefused
from storage.records import AttemptRecord, CompanyRecord, EventRecord, NodeRecord, RunRecord, TaskRecord
from storage.statements import SQL


@attrs.frozen
class InputsOf:
    """Ask for what a starting attempt is given; ``after`` are the positions of the nodes whose results it
    uses.
    """

    seq: int
    run: int
    pos: int
    after: tuple[int, ...] = ()


@attrs.frozen
class Inputs:
    """JSON texts: the task's payload (or the run's in its place), the node's own, and the results in the
    order of ``after``.
    """

    payload: str | None
    node_payload: str | None
    results: tuple[str | None, ...]


@attrs.frozen
class GraphRow:
    name: str
    version: int
    shape: str
    node_payloads: str | None


@attrs.frozen
class Committed:
    """What the database added: the position of the first event and its number in the company, and the
    inputs asked for.
    """

    first_position: int
    first_seq: int
    inputs: Sequence[Inputs]


@attrs.frozen
class UnitOfWork:
    company_id: int
    company_name: str
    epoch: int
    due_ms: int | None = None
    company: CompanyRecord | None = None
    graphs: Sequence[GraphRow] = ()
    new_tasks: Sequence[tuple[TaskRecord, Mapping[str, Any]]] = ()
    tasks: Sequence[TaskRecord] = ()
    edges: Sequence[tuple[int, tuple[str, ...]]] = ()
    """(task seq, upstreams), in the place of what was there."""
    new_runs: Sequence[RunRecord] = ()
    runs: Sequence[RunRecord] = ()
    new_nodes: Sequence[tuple[NodeRecord, str | None]] = ()
    nodes: Sequence[tuple[NodeRecord, str | None]] = ()
    """With the JSON text of the result, where one was accepted in this turn."""
    begun: Sequence[AttemptRecord] = ()
    ended: Sequence[AttemptRecord] = ()
    pins: Sequence[int] = ()
    writes: Sequence[tuple[str, Mapping[str, Any]]] = ()
    events: Sequence[EventRecord] = ()
    inputs: Sequence[InputsOf] = ()

    def __call__(self, conn: sqlite3.Connection) -> Committed:
        """Write everything; raises `StaleEpoch`, or whatever SQLite says."""
        last_seq = self._fence(conn)
        self._write_company(conn)
        self._write_tasks(conn)
        self._write_runs(conn)
        for statement, params in self.writes:
            conn.execute(SQL[statement], {"company_id": self.company_id, **params})
        self._write_nodes(conn)  # after the payloads that new nodes copy
        first_position = self._write_events(conn, last_seq - len(self.events) + 1)
        inputs = [read_inputs(conn, self.company_id, asked) for asked in self.inputs]
        return Committed(first_position, last_seq - len(self.events) + 1, inputs)

    def _fence(self, conn: sqlite3.Connection) -> int:
        params = {
            "company_id": self.company_id,
            "epoch": self.epoch,
            "events": len(self.events),
            "due_ms": self.due_ms,
        }
        rows = conn.execute(SQL["fence"], params).fetchall()
        if not rows:
            raise StaleEpoch(self.company_name, self.epoch)
        return int(rows[0][0])

    def _write_company(self, conn: sqlite3.Connection) -> None:
        if self.company is not None:
            conn.execute(SQL["update_company"], _company_params(self.company))
        for graph in self.graphs:
            conn.execute(SQL["put_graph"], {"company_id": self.company_id, **_fields(graph)})

    def _write_tasks(self, conn: sqlite3.Connection) -> None:
        if self.new_tasks:
            rows = [{**self._task_params(task), **texts} for task, texts in self.new_tasks]
            conn.executemany(SQL["insert_task"], rows)
        if self.tasks:
            conn.executemany(SQL["update_task"], [self._task_params(task) for task in self.tasks])
        for seq, upstreams in self.edges:
            conn.execute(SQL["delete_edges"], {"company_id": self.company_id, "seq": seq})
            rows = [
                {"company_id": self.company_id, "seq": seq, "upstream": upstream} for upstream in upstreams
            ]
            conn.executemany(SQL["insert_edge"], rows)

    def _write_runs(self, conn: sqlite3.Connection) -> None:
        for active in (False, True):
            for statement, records in (("update_run", self.runs), ("insert_run", self.new_runs)):
                rows = [self._run_params(run) for run in records if (run.slot > 0) is active]
                if rows:
                    conn.executemany(SQL[statement], rows)
        for seq in self.pins:
            key = {"company_id": self.company_id, "seq": seq}
            conn.execute(SQL["pin_upstreams"], key)
            if loose := conn.execute(SQL["unpinned_upstreams"], key).fetchall():
                raise UnitRefused("TURNKEEPER_UPSTREAM", f"upstream {loose[0][0]!r} is not completed")

    def _write_nodes(self, conn: sqlite3.Connection) -> None:
        for statement, records in (("insert_node", self.new_nodes), ("update_node", self.nodes)):
            if records:
                conn.executemany(
                    SQL[statement], [self._node_params(node, result) for node, result in records]
                )
        if self.begun:
            conn.executemany(SQL["insert_attempt"], [self._attempt_params(attempt) for attempt in self.begun])
        if self.ended:
            conn.executemany(SQL["end_attempt"], [self._attempt_params(attempt) for attempt in self.ended])

    def _write_events(self, conn: sqlite3.Connection, first_seq: int) -> int:
        if not self.events:
            return 0
        return write_events(conn, self.company_id, first_seq, self.events)

    def _task_params(self, task: TaskRecord) -> dict[str, Any]:
        return {
            "company_id": self.company_id,
            "seq": task.seq,
            "id": task.id,
            "priority": task.priority,
            "created_ms": task.created_ms,
            "mode": task.mode.value,
            "goal": task.goal,
            "graph": task.graph,
            "shape": task.shape,
            "attempts_max": task.attempts_max,
            "fail_fast": int(task.fail_fast),
            "archived_ms": task.archived_ms,
        }

    def _run_params(self, run: RunRecord) -> dict[str, Any]:
        return {
            "company_id": self.company_id,
            "seq": run.seq,
            "number": run.number,
            "status": run.status.value,
            "created_ms": run.created_ms,
            "slot": run.slot,
            "admitted_ms": run.admitted_ms,
            "settled_ms": run.settled_ms,
            "started": int(run.started),
            "front": run.front,
            "reason": run.reason,
        }

    def _node_params(self, node: NodeRecord, result: str | None) -> dict[str, Any]:
        return {
            "company_id": self.company_id,
            "seq": node.seq,
            "run": node.run,
            "pos": node.pos,
            "spec": node.spec,
            "status": node.status.value,
            "tries": node.tries,
            "unclean": node.unclean,
            "generation": node.generation,
            "attempts": node.attempts,
            "not_before_ms": node.not_before_ms,
            "error": node.error,
            "result": result,
        }

    def _attempt_params(self, attempt: AttemptRecord) -> dict[str, Any]:
        return {
            "company_id": self.company_id,
            "seq": attempt.seq,
            "run": attempt.run,
            "pos": attempt.pos,
            "number": attempt.number,
            "generation": attempt.generation,
            "host_id": attempt.host_id,
            "started_ms": attempt.started_ms,
            "ended_ms": attempt.ended_ms,
            "end": None if attempt.end is None else attempt.end.value,
            "error": attempt.error,
        }


def _fields(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in attrs.fields(type(record))}


def _company_params(company: CompanyRecord) -> dict[str, Any]:
    return _fields(company)


def read_inputs(conn: sqlite3.Connection, company_id: int, asked: InputsOf) -> Inputs:
    """What an attempt is given. Read in the commit that starts it, so it costs no hop of its own."""
    key = {"company_id": company_id, "seq": asked.seq, "run": asked.run, "pos": asked.pos}
    payload, node_payload = conn.execute(SQL["attempt_payload"], key).fetchone() or (None, None)
    results = []
    for pos in asked.after:
        row = conn.execute(SQL["node_result"], {**key, "pos": pos}).fetchone()
        results.append(None if row is None else row[0])
    return Inputs(payload, node_payload, tuple(results))


def write_events(
    conn: sqlite3.Connection, company_id: int | None, first_seq: int | None, events: Sequence[EventRecord]
) -> int:
    """Append events; returns the position of the first. Inside one transaction positions follow each other."""
    rows = [
        (
            company_id,
            None if first_seq is None else first_seq + place,
            event.at_ms,
            event.kind,
            event.task,
            event.task_seq,
            event.run,
            event.node,
            event.attempt,
            event.before,
            event.after,
            event.reason,
            json.dumps(event.data, ensure_ascii=False, sort_keys=True) if event.data else None,
        )
        for place, event in enumerate(events)
    ]
    conn.executemany(SQL["insert_event"], rows)
    (last,) = conn.execute(SQL["last_insert_position"]).fetchone()
    return int(last) - len(rows) + 1
