"""From a draft to the rows it writes: changes of one row become one write, its last version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from storage.contract.turns import CommitTurn, GraphRow, InputsOf
from storage.records import CompanyRecord, NodeRecord, RunRecord, RunStatus, ScheduleRecord, TaskRecord
from storage.values import changed, names_of

from .draft import Draft, StartAttempt
from .entry import Change, Graph


class _Rows:
    """Rows by key, each with whether it is new and what it is in the end."""

    def __init__(self) -> None:
        self.company: CompanyRecord | None = None
        self.graphs: dict[str, Graph] = {}
        self.tasks: dict[str, tuple[bool, TaskRecord]] = {}
        self.edges: dict[int, tuple[str, ...]] = {}
        self.runs: dict[tuple[int, int], tuple[bool, RunRecord]] = {}
        self.slots: dict[tuple[int, int], int] = {}
        """The slots that runs had before the turn."""
        self.nodes: dict[tuple[int, int, int], tuple[bool, NodeRecord]] = {}
        self.not_before: dict[int, int | None] = {}
        self.schedules: dict[int, ScheduleRecord | None] = {}
        self.carried: set[tuple[int, int]] = set()
        """Runs whose nodes begin as those of the run before."""
        self.repinned: list[int] = []

    def take(self, change: Change) -> None:
        before, after = change.before, change.after
        if isinstance(after, CompanyRecord):
            self.company = after
        elif isinstance(after, Graph):
            self.graphs[after.name] = after
        elif isinstance(after, TaskRecord):
            self._take_task(before, after)
        elif isinstance(after, RunRecord):
            self._take_run(before, after)
        elif isinstance(after, NodeRecord):
            where = (after.seq, after.run, after.pos)
            self.nodes[where] = (self.nodes.get(where, (False, after))[0], after)
        elif change.kind in ("nodes", "carried") and isinstance(after, tuple):
            for node in after:
                self.nodes[(node.seq, node.run, node.pos)] = (True, node)
                if change.kind == "carried":
                    self.carried.add((node.seq, node.run))
        elif isinstance(after, ScheduleRecord):
            self.schedules[after.seq] = after
        elif change.kind == "schedule" and isinstance(before, ScheduleRecord):
            self.schedules[before.seq] = None

    def _take_run(self, before: object, after: RunRecord) -> None:
        key = (after.seq, after.number)
        same = isinstance(before, RunRecord) and before.number == after.number
        if key not in self.runs and isinstance(before, RunRecord) and same:
            self.slots[key] = before.slot
        self.runs[key] = (not same or self.runs.get(key, (False, after))[0], after)

    def freed(self) -> list[RunRecord]:
        """Runs that gave up the slot they had and took another: in between they are queued, or two of them
        might meet in one slot.
        """
        return [
            changed(run, status=RunStatus.QUEUED, slot=0)
            for key, (_, run) in self.runs.items()
            if run.slot and self.slots.get(key, 0) not in (0, run.slot)
        ]

    def _take_task(self, before: object, after: TaskRecord) -> None:
        is_new = before is None or self.tasks.get(after.id, (False, after))[0]
        self.tasks[after.id] = (is_new, after)
        old = before.depends_on if isinstance(before, TaskRecord) else ()
        if after.depends_on != old:
            self.edges[after.seq] = after.depends_on
            if not is_new:
                self.repinned.append(after.seq)
        if after.not_before_ms != (before.not_before_ms if isinstance(before, TaskRecord) else None):
            self.not_before[after.seq] = after.not_before_ms


def unit_of(draft: Draft) -> CommitTurn:
    """Everything the draft changes, as one unit of work under the company's epoch."""
    rows = _Rows()
    for change in draft.changes:
        rows.take(change)
    company = draft.state.company
    unit = CommitTurn(
        company.claim,
        due_ms=draft.state.next_due_ms(),
        company=rows.company,
        events=tuple(draft.events),
    )
    # most turns have no rows of most kinds
    if rows.graphs:
        unit.graphs = [GraphRow(g.name, g.version, g.shape.text, g.payloads) for g in rows.graphs.values()]
    if rows.tasks or draft.extra:
        _take_tasks(unit, draft, rows)
    if rows.schedules:
        unit.writes = [*unit.writes, *map(_schedule_write, rows.schedules.items())]
    if rows.runs:
        unit.new_runs = tuple([run for is_new, run in rows.runs.values() if is_new])
        unit.runs = (*rows.freed(), *[run for is_new, run in rows.runs.values() if not is_new])
    if rows.nodes:
        unit.new_nodes = _nodes(draft, rows, new=True)
        unit.nodes = _nodes(draft, rows, new=False)
        if rows.carried:
            both = unit.new_nodes
            unit.new_nodes = [row for row in both if (row[0].seq, row[0].run) not in rows.carried]
            unit.carried = [row for row in both if (row[0].seq, row[0].run) in rows.carried]
    if draft.attempts:
        unit.begun = tuple([attempt for attempt in draft.attempts if attempt.end is None])
        unit.ended = tuple([attempt for attempt in draft.attempts if attempt.end is not None])
        unit.inputs = tuple(
            [
                InputsOf(effect.key.seq, effect.key.run, effect.key.pos, effect.spec.after, effect.upstream)
                for effect in draft.effects
                if isinstance(effect, StartAttempt)
            ]
        )
    return unit


def _take_tasks(unit: CommitTurn, draft: Draft, rows: _Rows) -> None:
    """What the turn does to tasks, and what else it writes."""
    texts: dict[int, Mapping[str, Any]] = {}
    pins: list[int] = []
    writes: list[tuple[str, Mapping[str, Any]]] = []
    for write in draft.extra:
        if write.statement == "set_task_texts":
            texts[write.params["seq"]] = write.params
        elif write.statement == "pin_upstreams":
            pins.append(write.params["seq"])
        else:
            writes.append((write.statement, write.params))
    tasks = [task for is_new, task in rows.tasks.values() if not is_new]
    unreadable = [task for task in tasks if not draft.state.entries[task.id].readable]
    writes += [("set_not_before", {"seq": seq, "not_before_ms": ms}) for seq, ms in rows.not_before.items()]
    writes += [("archive_task", {"seq": t.seq, "archived_ms": t.archived_ms}) for t in unreadable]
    unit.new_tasks = [(task, texts[task.seq]) for is_new, task in rows.tasks.values() if is_new]
    unit.tasks = [task for task in tasks if task not in unreadable]
    unit.edges, unit.repinned = list(rows.edges.items()), rows.repinned
    unit.pins, unit.writes = pins, writes


def _schedule_write(row: tuple[int, ScheduleRecord | None]) -> tuple[str, Mapping[str, Any]]:
    """What is wrong in a row that cannot be trusted stays as it is."""
    seq, record = row
    if record is None:
        return "delete_schedule", {"seq": seq}
    if record.bad is not None:
        return "hold_schedule", {"seq": seq, "paused_ms": record.paused_ms, "disabled": record.disabled}
    fields = {name: getattr(record, name) for name in names_of(ScheduleRecord) if name != "bad"}
    return "put_schedule", {**fields, "overlap": record.overlap.value, "misfire": record.misfire.value}


def _nodes(draft: Draft, rows: _Rows, *, new: bool) -> tuple[tuple[NodeRecord, str | None], ...]:
    results = draft.results
    return tuple(
        [
            (node, results.get((node.seq, node.run, node.pos)) if results else None)
            for is_new, node in rows.nodes.values()
            if is_new is new
        ]
    )
