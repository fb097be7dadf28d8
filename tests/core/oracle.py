"""What is derived of a company, defined from scratch: no counters, no worklist, no index, no heap.

Every definition looks at all facts and says what holds. It is slow and meant to be read beside section 5 of the design.
The engine moves the same answers along with each change; the tests compare the two after every step.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from typing import Any

import attrs

from actors.core.admission import OPEN, Live
from actors.core.state import CompanyState
from actors.messages.views import WorkState
from storage.records import (
    ACTIVE,
    SETTLED,
    CompanyRecord,
    Mode,
    NodeRecord,
    NodeStatus,
    RunRecord,
    RunStatus,
    ScheduleRecord,
    TaskRecord,
)
from storage.values import changed, names_of


@attrs.frozen
class Fact:
    """What is stored of one task."""

    task: TaskRecord
    run: RunRecord | None
    nodes: tuple[NodeRecord, ...] | None
    quarantined: str | None

    @property
    def queued(self) -> bool:
        return self.run is not None and self.run.status is RunStatus.QUEUED and self.task.archived_ms is None

    @property
    def admitted(self) -> bool:
        return self.run is not None and self.run.admitted_ms is not None

    @property
    def waits(self) -> bool:
        return self.queued and not self.admitted


@attrs.frozen
class Facts:
    """What is stored of one company, and the handlers of its host (``None``: all that there are)."""

    company: CompanyRecord
    tasks: Mapping[str, Fact]
    graphs: Mapping[str, str]
    """Name → text of the newest definition."""
    handlers: frozenset[str] | None
    now_ms: int = 0
    schedules: tuple[ScheduleRecord, ...] = ()

    @cached_property
    def blocked(self) -> set[str]:
        """Tasks that cannot start as things stand. A quarantined one has a state of its own."""
        free = not_blocked(self)
        return {
            task
            for task, fact in self.tasks.items()
            if fact.quarantined is None and (fact.run is None or (fact.queued and task not in free))
        }


# --- the facts ------------------------------------------------------------------------------------------------


def facts_in(
    conn: sqlite3.Connection, state: CompanyState, handlers: frozenset[str] | None, now_ms: int = 0
) -> Facts:
    """The facts as memory has them; of what memory does not hold, as the tables have them."""
    tasks = {fact.task.id: fact for fact in _stored(conn, state.company.company_id)}
    tasks.update((task, fact_of(state, task)) for task in state.entries)
    graphs = {name: graph.shape.text for name, graph in state.graphs.items()}
    schedules = tuple(state.schedules.by_name.values())
    return Facts(state.company, tasks, graphs, handlers, now_ms, schedules)


def fact_of(state: CompanyState, task: str) -> Fact:
    entry = state.entries[task]
    nodes = None if entry.nodes is None else tuple(entry.nodes)
    return Fact(entry.task, entry.run, nodes, entry.quarantined)


def _stored(conn: sqlite3.Connection, company_id: int) -> Iterator[Fact]:
    runs = {row["seq"]: row for row in _rows(conn, "runs", company_id)}  # the newest comes last
    nodes: dict[tuple[int, int], list[NodeRecord]] = {}
    spent = {
        (row["seq"], row["run"], row["pos"], row["number"]): row["spent"]
        for row in _rows(conn, "attempts", company_id)
    }
    for row in _rows(conn, "nodes", company_id):
        at = (row["seq"], row["run"], row["pos"], row["attempts"])
        node = NodeRecord(
            **{name: row[name] for name in _NODE_FIELDS},
            spent=spent.get(at, 0) if row["status"] == "running" else 0,
            status=NodeStatus(row["status"]),
            superseded=bool(row["superseded"]),
        )
        nodes.setdefault((node.seq, node.run), []).append(node)
    edges: dict[int, list[str]] = {}
    for row in _rows(conn, "edges", company_id):
        edges.setdefault(row["seq"], []).append(row["upstream"])
    why = {row["seq"]: row["why"] for row in _rows(conn, "quarantine", company_id)}
    for row in _rows(conn, "tasks", company_id):
        task = TaskRecord(
            **{name: row[name] for name in _TASK_FIELDS},
            mode=Mode(row["mode"]),
            fail_fast=bool(row["fail_fast"]),
            depends_on=tuple(edges.get(row["seq"], ())),
        )
        run = _run(runs[task.seq]) if task.seq in runs else None
        made = None if run is None or run.admitted_ms is None else nodes.get((task.seq, run.number), [])
        yield Fact(task, run, None if made is None else tuple(made), why.get(task.seq))


_NODE_FIELDS = set(names_of(NodeRecord)) - {"status", "superseded", "spent"}
_TASK_FIELDS = set(names_of(TaskRecord)) - {"mode", "fail_fast", "depends_on"}


def _run(row: Mapping[str, Any]) -> RunRecord:
    names = set(names_of(RunRecord)) - {"status", "started"}
    return RunRecord(
        **{name: row[name] for name in names}, status=RunStatus(row["status"]), started=bool(row["started"])
    )


_ALL = {
    "runs": "SELECT * FROM runs WHERE company_id = ? ORDER BY seq, number",
    "nodes": "SELECT * FROM nodes WHERE company_id = ? ORDER BY seq, run, pos",
    "attempts": "SELECT * FROM attempts WHERE company_id = ?",
    "edges": "SELECT * FROM edges WHERE company_id = ? ORDER BY seq, upstream",
    "quarantine": "SELECT * FROM quarantine WHERE company_id = ?",
    "tasks": "SELECT * FROM tasks WHERE company_id = ? ORDER BY seq",
}


def _rows(conn: sqlite3.Connection, table: str, company_id: int) -> Iterator[dict[str, Any]]:
    cursor = conn.execute(_ALL[table], (company_id,))
    names = [column[0] for column in cursor.description]
    return (dict(zip(names, row, strict=True)) for row in cursor.fetchall())


# --- what a task is to those that depend on it ------------------------------------------------------------------


def done(facts: Facts, task: str) -> bool:
    """Whether dependents have what they need of it."""
    fact = facts.tasks.get(task)
    return (
        fact is not None
        and fact.run is not None
        and fact.quarantined is None
        and fact.run.status is RunStatus.COMPLETED
    )


def dead_by_itself(facts: Facts, task: str) -> bool:
    """Whether it can only be done if somebody does something about it."""
    fact = facts.tasks.get(task)
    if fact is None or fact.run is None or fact.quarantined is not None:
        return True
    if fact.run.status is RunStatus.COMPLETED:
        return False
    halted = fact.run.status is RunStatus.HALTED and fact.run.reason == "budget"
    return halted or fact.run.status in SETTLED or fact.task.archived_ms is not None


def lacks_something(facts: Facts, fact: Fact) -> bool:
    """Whether a queued task could not start even with all its upstreams done: no graph, or a handler missing."""
    if fact.admitted and fact.nodes is not None:
        wanted = {
            _parsed(node.spec).get("handler")
            for node in fact.nodes
            if node.status is not NodeStatus.SUCCEEDED
        }
    else:
        text = fact.task.shape if fact.task.graph is None else facts.graphs.get(fact.task.graph)
        if text is None:
            return True
        wanted = {node.get("handler") for node in _parsed(text)}
    return facts.handlers is not None and not wanted - {None} <= facts.handlers


@cache
def _parsed(text: str) -> Any:
    return json.loads(text)


def not_blocked(facts: Facts) -> set[str]:
    """The unfinished tasks that can go on as things stand: the least fixed point, so no circle lifts itself into it."""
    free: set[str] = set()
    while True:
        more = {task for task, fact in facts.tasks.items() if task not in free and _free(facts, fact, free)}
        if not more:
            return free
        free |= more


def _free(facts: Facts, fact: Fact, free: set[str]) -> bool:
    if done(facts, fact.task.id) or dead_by_itself(facts, fact.task.id):
        return False
    if not fact.queued:
        return True
    if lacks_something(facts, fact):
        return False
    return fact.admitted or all(done(facts, up) or up in free for up in fact.task.depends_on)


def unfinished_upstreams(facts: Facts, fact: Fact) -> set[str]:
    return {up for up in fact.task.depends_on if not done(facts, up)}


def dead_upstreams(facts: Facts, fact: Fact) -> set[str]:
    """Upstreams that are dead, by themselves or because they are blocked."""
    stuck = facts.blocked
    return {up for up in unfinished_upstreams(facts, fact) if dead_by_itself(facts, up) or up in stuck}


# --- the queue ----------------------------------------------------------------------------------------------------


def place(fact: Fact) -> tuple[int, int, int]:
    """The order of the queue: StartNow (the latest first), priority, submission."""
    assert fact.run is not None
    return (-fact.run.front, fact.task.priority, fact.task.seq)


def open_tasks(facts: Facts) -> list[str]:
    """Queued tasks whose own gates are all open, in order."""
    stuck = facts.blocked
    lined = [
        fact
        for task, fact in facts.tasks.items()
        if fact.queued
        and fact.quarantined is None
        and task not in stuck
        and (fact.admitted or not unfinished_upstreams(facts, fact))
        and not early(facts, fact)
        and not held(fact)
        and has_room(fact.task, least_need(facts, fact))
    ]
    return [fact.task.id for fact in sorted(lined, key=place)]


def has_room(account: CompanyRecord | TaskRecord, need: int) -> bool:
    """Whether so much is neither spent nor reserved; a need of nothing always has room."""
    return account.budget is None or need == 0 or account.spent + account.reserved + need <= account.budget


def estimates(facts: Facts, fact: Fact) -> list[int]:
    """Of the nodes that would start first, if the task had a run slot now."""
    if fact.admitted:
        assert fact.nodes is not None
        return [_estimate(_parsed(fact.nodes[pos].spec)) for pos in may_start(fact, facts.now_ms)]
    text = fact.task.shape if fact.task.graph is None else facts.graphs.get(fact.task.graph)
    if fact.task.mode is Mode.STEP or text is None:
        return []
    firsts = [node for node in _parsed(text) if not node.get("after") and "gate" not in node]
    return [_estimate(node) for node in firsts]


def _estimate(node: Mapping[str, Any]) -> int:
    return int(node.get("estimate", 0))


def least_need(facts: Facts, fact: Fact) -> int:
    return min((max(1, estimate) for estimate in estimates(facts, fact)), default=0)


def short(facts: Facts, fact: Fact) -> bool:
    """Whether nodes could start, and what is spent is in the way of each of them."""
    needs = [max(1, estimate) for estimate in estimates(facts, fact)]
    accounts = (facts.company, fact.task)
    return bool(needs) and all(
        any(one.budget is not None and one.spent + need > one.budget for one in accounts) for need in needs
    )


def early(facts: Facts, fact: Fact) -> bool:
    """Whether the time before which it may not start has yet to come, and nobody has said to start it now."""
    due = fact.task.not_before_ms
    waits = fact.waits and fact.run is not None and not fact.run.front
    return due is not None and due > facts.now_ms and waits


def held(fact: Fact) -> bool:
    return fact.task.mode is Mode.MANUAL and fact.run is not None and not fact.run.started


def positions(facts: Facts) -> dict[str, int]:
    """1-based places of the queued tasks that are not blocked, whatever gates they have."""
    stuck = facts.blocked
    lined = [f for t, f in facts.tasks.items() if f.queued and f.quarantined is None and t not in stuck]
    return {fact.task.id: number for number, fact in enumerate(sorted(lined, key=place), start=1)}


def slots(facts: Facts) -> dict[int, str]:
    return {
        fact.run.slot: task
        for task, fact in facts.tasks.items()
        if fact.run is not None and fact.run.status in ACTIVE
    }


def company_holds(facts: Facts, fact: Fact, live: Live = OPEN) -> bool:
    """Whether something of the company or of its host keeps this task from starting."""
    if live.no_host or live.draining or live.parked is not None or live.store_down is not None:
        return True
    paused = facts.company.paused_ms is not None
    return paused and not (fact.run is not None and fact.run.front > 0)


def would_be_admitted(facts: Facts, live: Live = OPEN) -> list[str]:
    """Who gets a run slot if runs are admitted and nothing else happens."""
    room = facts.company.runs_max - len(slots(facts))
    able = [
        task
        for task in open_tasks(facts)
        if not company_holds(facts, facts.tasks[task], live)
        and has_room(facts.company, least_need(facts, facts.tasks[task]))
    ]
    return able[: max(0, room)]


# --- one task -----------------------------------------------------------------------------------------------------


def work_state(facts: Facts, task: str, live: Live = OPEN) -> WorkState:
    fact = facts.tasks[task]
    run = fact.run
    if fact.task.archived_ms is not None:
        return WorkState.ARCHIVED
    if fact.quarantined is not None and not (run is not None and run.status is RunStatus.STOPPED):
        return WorkState.QUARANTINED
    if run is not None and run.status is not RunStatus.QUEUED:
        return WorkState(run.status.value)
    if task in facts.blocked:
        return WorkState.BLOCKED
    if not fact.admitted and unfinished_upstreams(facts, fact):
        return WorkState.WAITING
    if early(facts, fact):
        return WorkState.SCHEDULED
    if held(fact):
        return WorkState.HELD
    quiet = changed(live, no_host=False)
    return WorkState.PAUSED if company_holds(facts, fact, quiet) else WorkState.QUEUED


def ready_nodes(fact: Fact, now_ms: int) -> set[int]:
    """Pending nodes of an admitted run whose upstream nodes have all succeeded and whose time has come; no gates."""
    return {
        node.pos
        for node in fact.nodes or ()
        if node.status is NodeStatus.PENDING
        and (node.not_before_ms is None or node.not_before_ms <= now_ms)
        and not _unmet(fact, node)
        and not _is_gate(node)
    }


def reached_gates(fact: Fact) -> set[int]:
    """Gates that wait for a person, be it said already or not."""
    return {
        node.pos
        for node in fact.nodes or ()
        if node.status is NodeStatus.PENDING and _is_gate(node) and not _unmet(fact, node)
    }


def unsaid_gates(fact: Fact) -> set[int]:
    assert fact.nodes is not None
    return {pos for pos in reached_gates(fact) if fact.nodes[pos].reached_ms is None}


def may_start(fact: Fact, now_ms: int) -> set[int]:
    """Ready nodes that need no person: step by step, only the one that was let through."""
    ready = ready_nodes(fact, now_ms)
    if fact.task.mode is Mode.STEP:
        assert fact.run is not None
        return ready & {fact.run.step}
    return ready


def _is_gate(node: NodeRecord) -> bool:
    return "gate" in _parsed(node.spec)


def _unmet(fact: Fact, node: NodeRecord) -> set[int]:
    assert fact.nodes is not None
    after = _parsed(node.spec).get("after", [])
    return {pos for pos in after if fact.nodes[pos].status is not NodeStatus.SUCCEEDED}


def unmet(fact: Fact) -> list[int]:
    return [len(_unmet(fact, node)) for node in fact.nodes or ()]


def resting_nodes(fact: Fact, now_ms: int) -> dict[int, int]:
    """Nodes that back off: position → until when."""
    return {
        node.pos: node.not_before_ms
        for node in fact.nodes or ()
        if node.status is NodeStatus.PENDING
        and node.not_before_ms is not None
        and node.not_before_ms > now_ms
    }


def startable(facts: Facts, now_ms: int) -> set[str]:
    """Running runs with a node that could start."""
    return {
        task
        for task, fact in facts.tasks.items()
        if fact.quarantined is None
        and fact.run is not None
        and fact.run.status is RunStatus.RUNNING
        and may_start(fact, now_ms)
    }


def to_be_said(facts: Facts) -> set[str]:
    """Running runs with a gate that is reached and has not been said to be."""
    return {
        task
        for task, fact in facts.tasks.items()
        if fact.quarantined is None
        and fact.run is not None
        and fact.run.status is RunStatus.RUNNING
        and unsaid_gates(fact)
    }


def next_due_ms(facts: Facts, now_ms: int) -> int | None:
    times = [
        due
        for fact in facts.tasks.values()
        if fact.quarantined is None and fact.run is not None and fact.run.status not in SETTLED
        for due in resting_nodes(fact, now_ms).values()
    ]
    times += [fact.task.not_before_ms or 0 for fact in facts.tasks.values() if early(facts, fact)]
    if facts.company.paused_ms is None:
        active = [one for one in facts.schedules if one.paused_ms is None and one.disabled is None]
        times += [one.missed_ms or one.due_ms or 0 for one in active]
    return min(times, default=None)


def at_its_end(facts: Facts, fact: Fact, now_ms: int) -> bool:
    """Whether an active run has nothing left to do but to be settled or halted."""
    if fact.quarantined is not None or fact.run is None or fact.run.status not in ACTIVE:
        return False
    nodes = fact.nodes or ()
    if any(node.status is NodeStatus.RUNNING for node in nodes):
        return False
    if fact.run.status is RunStatus.STOPPING:
        return True
    if all(node.status is NodeStatus.SUCCEEDED for node in nodes):
        return True
    gave_up = any(node.status is NodeStatus.FAILED for node in nodes)
    if gave_up and fact.task.fail_fast:
        return True
    can_go_on = (may_start(fact, now_ms) and not short(facts, fact)) or resting_nodes(fact, now_ms)
    return not can_go_on and (gave_up or bool(reached_gates(fact) or ready_nodes(fact, now_ms)))
