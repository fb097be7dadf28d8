"""Where a task stands and why: total, computed, never stored.

First match wins, in the order of `WorkState`. Unless the task is running or settled there is at least one
reason, with the ids, numbers and times concerned.
"""

from __future__ import annotations

import attrs

from actors.messages.views import IDS_SHOWN, Explanation, Reason, ReasonKind, WorkState
from storage.records import Halt, Mode, NodeRecord, NodeStatus, RunRecord, RunStatus

from .admission import OPEN, Live, company_gates, hold_gates, line_gate, task_gates
from .advance import is_suspect
from .budget import fits, halted_reason, limited, need_of, reason_of
from .halting import names_of
from .order import order_key
from .shape import spec_of
from .state import CompanyState
from .task_state import TaskState, halt_of

_SETTLED = {
    RunStatus.COMPLETED: (WorkState.COMPLETED, ReasonKind.COMPLETED),
    RunStatus.FAILED: (WorkState.FAILED, ReasonKind.FAILED),
    RunStatus.STOPPED: (WorkState.STOPPED, ReasonKind.STOPPED),
}

_BY_GATE = {
    ReasonKind.QUARANTINED: WorkState.QUARANTINED,
    ReasonKind.UPSTREAM_UNFINISHED: WorkState.WAITING,
    ReasonKind.NOT_BEFORE: WorkState.SCHEDULED,
    ReasonKind.MANUAL: WorkState.HELD,
    ReasonKind.COMPANY_PAUSED: WorkState.PAUSED,
    ReasonKind.COMPANY_PARKED: WorkState.PAUSED,
    ReasonKind.DRAINING: WorkState.PAUSED,
    ReasonKind.STORE_UNAVAILABLE: WorkState.PAUSED,
}
"""The state that a closed gate stands for. The blocking ones are `WorkState.BLOCKED`, all others leave it
queued.
"""


def work_state(
    state: CompanyState, entry: TaskState, live: Live = OPEN
) -> tuple[WorkState, tuple[Reason, ...]]:
    """The one state of the task and its reasons."""
    run = entry.run
    if entry.task.archived_ms is not None:
        return WorkState.ARCHIVED, (Reason(ReasonKind.ARCHIVED, at_ms=entry.task.archived_ms),)
    if entry.quarantined is not None and not (run is not None and run.status is RunStatus.STOPPED):
        return WorkState.QUARANTINED, (Reason(ReasonKind.QUARANTINED, text=entry.quarantined),)
    if run is None:
        return WorkState.BLOCKED, (Reason(ReasonKind.RUN_MISSING),)
    if run.status in _SETTLED:
        where, kind = _SETTLED[run.status]
        return where, (_settled_reason(entry, kind),)
    if run.status is RunStatus.HALTED:
        absent = (Reason(ReasonKind.NO_HOST),) if live.no_host else ()
        return WorkState.HALTED, (*_halted_reasons(state, entry, run), *absent)
    if run.status.active:
        where = WorkState.RUNNING if run.status is RunStatus.RUNNING else WorkState.STOPPING
        return where, _active_reasons(state, entry, live)
    gates = tuple(closed_gates(state, entry, live))
    return _queued_state(gates), gates or (_next(state),)


def explain(state: CompanyState, company: str, entry: TaskState, live: Live = OPEN) -> Explanation:
    """All closed gates of a task; for one that is not queued, the reasons of its state."""
    where, reasons = work_state(state, entry, live)
    if entry.queued and entry.quarantined is None:
        reasons = tuple(closed_gates(state, entry, live))
    return Explanation(company, entry.task.id, where, reasons)


def closed_gates(state: CompanyState, entry: TaskState, live: Live) -> list[Reason]:
    """Every closed gate of a queued task, in order. Empty exactly for what `advance` would admit before any
    other move.
    """
    gates = [*task_gates(state, entry), *company_gates(state, entry, live)]
    line = line_gate(state, entry)
    return gates if line is None else [*gates, line]


def _queued_state(gates: tuple[Reason, ...]) -> WorkState:
    for gate in gates:
        if gate.blocks:
            return WorkState.BLOCKED
        if gate.kind in _BY_GATE:
            return _BY_GATE[gate.kind]
    return WorkState.QUEUED


def _next(state: CompanyState) -> Reason:
    numbers = {"active": len(state.slots), "runs_max": state.company.runs_max}
    return Reason(ReasonKind.TASKS_AHEAD, count=0, numbers=numbers)


def _settled_reason(entry: TaskState, kind: ReasonKind) -> Reason:
    assert entry.run is not None
    nodes: tuple[str, ...] = ()
    numbers: dict[str, int] = {}
    text = entry.run.reason
    for node in entry.nodes or ():
        if kind is ReasonKind.FAILED and node.status is NodeStatus.FAILED:
            nodes = (*nodes, spec_of(node.spec).name)
            numbers.setdefault("tries", node.tries)
            text = text or node.error
    return Reason(
        kind,
        nodes=nodes[:IDS_SHOWN],
        count=len(nodes),
        numbers=numbers,
        at_ms=entry.run.settled_ms,
        text=text,
    )


def _halted_reasons(state: CompanyState, entry: TaskState, run: RunRecord) -> list[Reason]:
    """What a person has to say: which steps are ready, which gates are reached, or whatever else it is short of."""
    reasons: list[Reason] = []
    halt = None if entry.progress is None else halt_of(run)
    names = [] if entry.progress is None else names_of(entry, sorted(entry.progress.ready))
    if halt is Halt.STEP:
        reasons.append(_nodes(ReasonKind.STEP, names, run.halted_ms))
    if halt is Halt.BUDGET:
        reasons.append(halted_reason(state, entry, tuple(names), run.halted_ms))
    if halt is not None:
        reasons.extend(_gate_reasons(entry))
    return reasons or [Reason(ReasonKind.HALTED, at_ms=run.halted_ms, text=run.reason)]


def _gate_reasons(entry: TaskState) -> list[Reason]:
    """The gates that are reached, and since when the first of them is."""
    if entry.progress is None or not entry.progress.reached:
        return []
    places = sorted(entry.progress.reached)
    times = [since for pos in places if (since := _node_at(entry, pos).reached_ms) is not None]
    return [_nodes(ReasonKind.APPROVAL, names_of(entry, places), min(times, default=None))]


def _active_reasons(state: CompanyState, entry: TaskState, live: Live) -> tuple[Reason, ...]:
    """What the nodes of an active run are doing. A run between two moves says that it is about to end."""
    if live.no_host:
        return _without_host(entry)
    progress = entry.progress
    reasons: list[Reason] = []
    if progress is not None:
        names = [spec.name for spec in progress.specs]
        if progress.running:
            live_nodes = [names[pos] for pos in sorted(progress.running)]
            running = [name for name in live_nodes if (entry.task.id, name) not in live.waiting]
            said = [
                text for name in running if (text := live.progress.get((entry.task.id, name))) is not None
            ]
            if running:
                reasons.append(_nodes(ReasonKind.EXECUTING, running, text=said[0] if said else None))
            reasons.extend(_waiting_reasons(entry, live_nodes, live))
        if progress.resting and entry.run is not None and entry.run.status is RunStatus.RUNNING:
            pos, due = min(progress.resting.items(), key=lambda item: item[1])
            error = entry.nodes[pos].error if entry.nodes is not None else None
            reasons.append(
                _nodes(ReasonKind.BACKING_OFF, [names[p] for p in sorted(progress.resting)], due, error)
            )
        if progress.ready and entry.run is not None and entry.run.status is RunStatus.RUNNING:
            reasons.extend(_ready_reasons(state, entry, live))
        if entry.run is not None and entry.run.status is RunStatus.RUNNING:
            reasons.extend(_gate_reasons(entry))
    return tuple(reasons) or (Reason(ReasonKind.ENDING),)


def _without_host(entry: TaskState) -> tuple[Reason, ...]:
    """Nothing executes where no process runs the database, whatever was going on when the last one ended."""
    progress = entry.progress
    if progress is None or not progress.running:
        return (Reason(ReasonKind.NO_HOST),)
    return (_nodes(ReasonKind.NO_HOST, [progress.specs[pos].name for pos in sorted(progress.running)]),)


def _waiting_reasons(entry: TaskState, names: list[str], live: Live) -> list[Reason]:
    """Attempts that gave their execution slot back to wait; the run keeps its run slot."""
    waits = [
        (name, live.waiting[entry.task.id, name]) for name in names if (entry.task.id, name) in live.waiting
    ]
    return [
        Reason(ReasonKind.WAITING, nodes=(name,), count=1, at_ms=since, text=why)
        for name, (why, since) in waits
    ]


def _ready_reasons(state: CompanyState, entry: TaskState, live: Live) -> list[Reason]:
    """Why ready nodes of a running run are not executing."""
    assert entry.progress is not None
    specs = entry.progress.specs
    ready = sorted(entry.progress.ready)
    reasons: list[Reason] = []
    if entry.task.mode is Mode.STEP and entry.run is not None:
        step = entry.run.step
        steps = [specs[pos].name for pos in ready if pos != step]
        ready = [pos for pos in ready if pos == step]
        reasons += [_nodes(ReasonKind.STEP, steps)] if steps else []
    lacking = [specs[pos].handler for pos in ready if not state.has_handler(specs[pos].handler)]
    if lacking:
        reasons.append(
            Reason(ReasonKind.HANDLER_MISSING, text=", ".join(sorted(set(lacking))), count=len(lacking))
        )
    names = [specs[pos].name for pos in ready if state.has_handler(specs[pos].handler)]
    if not names:
        return reasons
    held = list(hold_gates(state, entry, live))
    if held:
        return reasons + held
    if limited(state.company, entry.task):
        poor = [pos for pos in ready if not fits(state.company, entry.task, specs[pos].estimate)]
        names = [name for name in names if name not in {specs[pos].name for pos in poor}]
        reasons += _poor_reasons(state, entry, poor)
        if not names:
            return reasons
    if live.suspect is not None:
        kept = [specs[pos].name for pos in ready if is_suspect(_node_at(entry, pos))]
        names = [name for name in names if name not in kept]
        if kept:
            reasons.append(_kept_back(kept, live.suspect))
        if not names:
            return reasons
    if not live.slots_free:
        holders = live.slot_holders
        return [
            *reasons,
            Reason(
                ReasonKind.EXECUTION_SLOT,
                tasks=holders[:IDS_SHOWN],
                count=len(holders),
                nodes=tuple(names[:IDS_SHOWN]),
            ),
        ]
    return [*reasons, _nodes(ReasonKind.NODE_READY, names)]


def _poor_reasons(state: CompanyState, entry: TaskState, poor: list[int]) -> list[Reason]:
    """For the budgets that have no room for these nodes; the estimate is the least of them."""
    if not poor:
        return []
    assert entry.progress is not None
    names = tuple(names_of(entry, poor))
    least = min(entry.progress.specs[pos].estimate for pos in poor)
    return [
        reason_of(account, least, names)
        for account in (state.company, entry.task)
        if account.budget is not None and account.spent + account.reserved + need_of(least) > account.budget
    ]


def _node_at(entry: TaskState, pos: int) -> NodeRecord:
    assert entry.nodes is not None
    return entry.nodes[pos]


def _kept_back(names: list[str], holder: str) -> Reason:
    """Nodes under which the process died before, while another such node executes."""
    text = "the process died while they executed: such nodes execute one at a time"
    return attrs.evolve(_nodes(ReasonKind.EXECUTION_SLOT, names, text=text), tasks=(holder,))


def _nodes(kind: ReasonKind, names: list[str], at_ms: int | None = None, text: str | None = None) -> Reason:
    return Reason(kind, nodes=tuple(names[:IDS_SHOWN]), count=len(names), at_ms=at_ms, text=text)


def positions(state: CompanyState) -> dict[str, int]:
    """The 1-based place of every queued task that is not blocked, in queue order, gates or not. A place,
    not a forecast.
    """
    lined = sorted(
        (order_key(entry.task, entry.run), task)
        for task, entry in state.entries.items()
        if entry.queued and entry.run is not None and not entry.blocked and entry.quarantined is None
    )
    return {task: place for place, (_, task) in enumerate(lined, start=1)}
