"""From a draft to the rows it writes: moves of one row become one write, its last version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from storage.contract.turns import CommitTurn, GraphRow, InputsOf
from storage.records import CompanyRecord, NodeRecord, RunRecord, RunStatus, ScheduleRecord, TaskRecord
from storage.values import changed
from storage.writes import (
    ArchivedSet,
    NotBeforeSet,
    Released,
    RunCarried,
    RunPayloadSet,
    SchedulePut,
    ScheduleRemoved,
    TaskFire,
    TaskTexts,
    Write,
)

from .draft import Draft
from .effects import StartAttempt
from .journal import (
    CompanyChanged,
    CycleFound,
    GraphChanged,
    NodeChanged,
    NodesCreated,
    NodesLeft,
    QuarantineLifted,
    RunAdded,
    RunChanged,
    ScheduleChanged,
    TaskAdded,
    TaskChanged,
)
from .task_state import Graph

NodeWithResult = tuple[NodeRecord, str | None]


class _Rows:
    """Rows by key, each as it is in the end; the keys of those that are new."""

    def __init__(self) -> None:
        self.company: CompanyRecord | None = None
        self.graphs: dict[str, Graph] = {}
        self.new_tasks: dict[int, TaskTexts] = {}
        self.tasks: dict[int, TaskRecord] = {}
        self.edges: dict[int, tuple[str, ...]] = {}
        self.repinned: list[int] = []
        self.not_before: dict[int, int | None] = {}
        self.new_runs: set[tuple[int, int]] = set()
        self.runs: dict[tuple[int, int], RunRecord] = {}
        self.slots: dict[tuple[int, int], int] = {}
        """The slots that runs had before the turn."""
        self.new_nodes: set[tuple[int, int]] = set()
        """Runs whose nodes are new."""
        self.carried: set[tuple[int, int]] = set()
        """Runs whose nodes are new, and begin as those of the run before."""
        self.nodes: dict[tuple[int, int, int], NodeRecord] = {}
        self.pins: list[int] = []
        self.schedules: dict[int, ScheduleRecord | None] = {}
        self.writes: list[Write] = []

    def take_company(self, move: CompanyChanged) -> None:
        self.company = move.after

    def take_graph(self, move: GraphChanged) -> None:
        self.graphs[move.after.name] = move.after

    def take_new_task(self, move: TaskAdded) -> None:
        task = move.after
        self.new_tasks[task.seq] = move.texts
        self.tasks[task.seq] = task
        if task.depends_on:
            self.edges[task.seq] = task.depends_on
        if task.not_before_ms is not None:
            self.not_before[task.seq] = task.not_before_ms
        if task.schedule is not None:
            self.writes.append(TaskFire(task.seq, task.schedule, move.nominal_ms))

    def take_task(self, move: TaskChanged) -> None:
        before, task = move.before, move.after
        self.tasks[task.seq] = task
        if task.depends_on != before.depends_on:
            self.edges[task.seq] = task.depends_on
            if task.seq not in self.new_tasks:
                self.repinned.append(task.seq)
        if task.not_before_ms != before.not_before_ms:
            self.not_before[task.seq] = task.not_before_ms

    def take_new_run(self, move: RunAdded) -> None:
        run = move.after
        self.new_runs.add((run.seq, run.number))
        self.runs[run.seq, run.number] = run
        if move.carried:
            self.writes.append(RunCarried(run.seq, run.number, move.payload))
        elif move.payload is not None:
            self.writes.append(RunPayloadSet(run.seq, run.number, move.payload))

    def take_run(self, move: RunChanged) -> None:
        key = (move.after.seq, move.after.number)
        if key not in self.runs:
            self.slots[key] = move.before.slot
        self.runs[key] = move.after

    def take_new_nodes(self, move: NodesCreated) -> None:
        for node in move.nodes:
            self.nodes[node.seq, node.run, node.pos] = node
        (self.carried if move.carried else self.new_nodes).add((move.seq, move.run))
        if move.pins:
            self.pins.append(move.seq)

    def take_node(self, move: NodeChanged) -> None:
        node = move.after
        self.nodes[node.seq, node.run, node.pos] = node

    def take_release(self, move: QuarantineLifted) -> None:
        self.writes.append(Released(move.seq))

    def take_schedule(self, move: ScheduleChanged) -> None:
        if move.after is not None:
            self.schedules[move.after.seq] = move.after
        elif move.before is not None:
            self.schedules[move.before.seq] = None

    def take_nothing(self, move: NodesLeft | CycleFound) -> None:
        """It changes no row."""

    def freed(self) -> list[RunRecord]:
        """Runs that gave up the slot they had and took another: in between they are queued, or two of them
        might meet in one slot.
        """
        return [
            changed(run, status=RunStatus.QUEUED, slot=0)
            for key, run in self.runs.items()
            if run.slot and self.slots.get(key, 0) not in (0, run.slot)
        ]


_TAKE: Mapping[type, Callable[[_Rows, Any], None]] = MappingProxyType(
    {
        CompanyChanged: _Rows.take_company,
        GraphChanged: _Rows.take_graph,
        TaskAdded: _Rows.take_new_task,
        TaskChanged: _Rows.take_task,
        RunAdded: _Rows.take_new_run,
        RunChanged: _Rows.take_run,
        NodesCreated: _Rows.take_new_nodes,
        NodesLeft: _Rows.take_nothing,
        NodeChanged: _Rows.take_node,
        QuarantineLifted: _Rows.take_release,
        CycleFound: _Rows.take_nothing,
        ScheduleChanged: _Rows.take_schedule,
    }
)


def unit_of(draft: Draft) -> CommitTurn:
    """Everything the draft changes, as one unit of work under the company's epoch."""
    rows = _Rows()
    for move in draft.journal:
        _TAKE[type(move)](rows, move)
    company = draft.state.company
    unit = CommitTurn(
        company.claim,
        due_ms=draft.state.next_due_ms(),
        company=rows.company,
        pins=rows.pins,
        events=tuple(draft.events),
        writes=[*draft.writes, *rows.writes],
    )
    # most turns have no rows of most kinds
    if rows.graphs:
        unit.graphs = [GraphRow(g.name, g.version, g.shape.text, g.payloads) for g in rows.graphs.values()]
    if rows.tasks:
        _take_tasks(unit, draft, rows)
    if rows.schedules:
        unit.writes = [*unit.writes, *map(_schedule, rows.schedules.items())]
    if rows.runs:
        unit.new_runs = [run for key, run in rows.runs.items() if key in rows.new_runs]
        unit.runs = [*rows.freed(), *[run for key, run in rows.runs.items() if key not in rows.new_runs]]
    if rows.nodes:
        _take_nodes(unit, draft, rows)
    if draft.attempts:
        _take_attempts(unit, draft)
    return unit


def _take_tasks(unit: CommitTurn, draft: Draft, rows: _Rows) -> None:
    unit.new_tasks = [(rows.tasks[seq], texts) for seq, texts in rows.new_tasks.items()]
    old = [task for seq, task in rows.tasks.items() if seq not in rows.new_tasks]
    unit.tasks = [task for task in old if draft.state.entries[task.id].readable]
    unreadable = [task for task in old if not draft.state.entries[task.id].readable]
    unit.edges, unit.repinned = list(rows.edges.items()), rows.repinned
    unit.writes = [
        *unit.writes,
        *[NotBeforeSet(seq, due_ms) for seq, due_ms in rows.not_before.items()],
        *[ArchivedSet(task.seq, task.archived_ms) for task in unreadable],
    ]


def _schedule(row: tuple[int, ScheduleRecord | None]) -> Write:
    seq, record = row
    return ScheduleRemoved(seq) if record is None else SchedulePut(record)


def _take_nodes(unit: CommitTurn, draft: Draft, rows: _Rows) -> None:
    """Each with the result that was accepted of it."""
    results = draft.results
    new: list[NodeWithResult] = []
    carried: list[NodeWithResult] = []
    old: list[NodeWithResult] = []
    for where, node in rows.nodes.items():
        run = where[:2]
        kind = carried if run in rows.carried else new if run in rows.new_nodes else old
        kind.append((node, results.get(where)))
    unit.new_nodes, unit.carried, unit.nodes = new, carried, old


def _take_attempts(unit: CommitTurn, draft: Draft) -> None:
    unit.begun = [attempt for attempt in draft.attempts if attempt.end is None]
    unit.ended = [attempt for attempt in draft.attempts if attempt.end is not None]
    unit.inputs = [
        InputsOf(effect.key.seq, effect.key.run, effect.key.pos, effect.spec.after, effect.upstream)
        for effect in draft.effects
        if isinstance(effect, StartAttempt)
    ]
