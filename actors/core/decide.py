"""What each message does: state + message + now → moves and a reply. No await, no clock, no input or output.

A refusal is raised as a `Refused` error; the caller takes the draft back to where it was before the
message. The refusals that depend on where the newest run stands are tables in `actors.core.refusals`; the
messages' own functions do the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from actors.errors import MoveRefused
from actors.messages import (
    Approve,
    Archive,
    BudgetSettings,
    CompanySettings,
    DefineGraph,
    Edit,
    GoalStopped,
    GraphDefined,
    Message,
    Moved,
    Next,
    Pause,
    PauseSchedule,
    RemoveSchedule,
    Rerun,
    ResumeSchedule,
    Retry,
    RunNow,
    SendBack,
    SetBudget,
    SetLimits,
    SetSchedule,
    Start,
    StartNow,
    Stop,
    StopGoal,
    Submit,
    SubmitMany,
    Unarchive,
    Unpark,
    Unparked,
    Unpause,
    Unset,
)
from storage.records import CompanyRecord, Mode, NodeStatus, RunStatus, TaskRecord

from .advance import cancel_nodes, finish, skip_pending
from .booking import warn
from .budget import cannot_go_on, is_short, next_estimates
from .cycles import note_circle, recheck_cycles
from .draft import Draft, fresh_run
from .edit import decide_edit
from .prefetch import Prefetched
from .refusals import entry_for, entry_of
from .review import approve, let_through, place_of_rerun, rerun_from, send_back
from .schedules.moves import (
    decide_pause_schedule,
    decide_remove_schedule,
    decide_resume_schedule,
    decide_run_now,
    decide_set_schedule,
)
from .shape import node_payloads, shape_of, shape_text, spec_of
from .submit import check_handlers, decide_submit, decide_submit_many
from .task_state import Graph, TaskState, is_halted_on_budget


def decide(draft: Draft, message: Message[Any], prefetched: Prefetched) -> object:
    """Make the message's moves and return its reply; raises `Refused` for a sender's mistake."""
    return _DECIDERS[type(message)](draft, message, prefetched)


def moved(
    entry: TaskState, *, changed: bool = True, holders: tuple[str, ...] = (), note: str | None = None
) -> Moved:
    assert entry.run is not None
    return Moved(entry.task.id, entry.run.number, entry.run.status, changed, holders, note)


# --- one task -----------------------------------------------------------------------------------------------


def _start(draft: Draft, message: Start, _prefetched: Prefetched) -> Moved:
    entry = entry_for(draft, message, message.task)
    assert entry.run is not None
    if entry.run.status is RunStatus.RUNNING or entry.run.started or entry.task.mode is not Mode.MANUAL:
        return moved(entry, changed=False)
    draft.run(entry, started=True)
    draft.event("task.started", entry)
    return moved(entry)


def _start_now(draft: Draft, message: StartNow, _prefetched: Prefetched) -> Moved:
    entry = entry_for(draft, message, message.task)
    assert entry.run is not None
    if entry.run.status is RunStatus.RUNNING:
        return moved(entry, changed=False)
    if entry.run.status is not RunStatus.QUEUED:
        _requeue_within_budget(draft, entry, message, "start now")
    front = draft.state.company.front_seq + 1
    draft.company(front_seq=front)
    draft.run(entry, started=True, front=front)
    draft.event("task.moved_first", entry, front=front)
    holders = () if draft.state.slots_free else tuple(task for _, task in sorted(draft.state.slots.items()))
    return moved(entry, holders=holders)


def _stop(draft: Draft, message: Stop, _prefetched: Prefetched) -> Moved:
    entry = entry_for(draft, message, message.task)
    return moved(entry, changed=stop_entry(draft, entry, "stop"))


def stop_entry(draft: Draft, entry: TaskState, reason: str) -> bool:
    """Stop the newest run, whatever it does; says whether anything changed."""
    assert entry.run is not None
    status = entry.run.status
    if status.settled or status is RunStatus.STOPPING:
        return False
    if status is RunStatus.RUNNING:
        draft.run(entry, status=RunStatus.STOPPING, reason=reason)
        draft.event("run.stopping", entry, before=status, after=RunStatus.STOPPING, reason=reason)
        cancel_nodes(draft, entry, "stopped")
        finish(draft, entry)
        return True
    skipped = skip_pending(draft, entry)
    draft.run(
        entry, status=RunStatus.STOPPED, settled_ms=draft.now_ms, halted_ms=None, reason=reason, front=0
    )
    draft.event("run.stopped", entry, before=status, after=RunStatus.STOPPED, reason=reason, skipped=skipped)
    if entry.cycle is not None:
        recheck_cycles(draft)
    return True


def _retry(draft: Draft, message: Retry, _prefetched: Prefetched) -> Moved:
    entry = entry_of(draft, message.task)
    if entry.quarantined is not None and entry.task.archived_ms is None:
        return _release(draft, entry)
    entry = entry_for(draft, message, message.task)
    assert entry.run is not None
    if entry.run.status is RunStatus.RUNNING:
        return _retry_running(draft, entry)
    _requeue_within_budget(draft, entry, message, "retry")
    return moved(entry)


def _requeue_within_budget(draft: Draft, entry: TaskState, message: Retry | StartNow, reason: str) -> None:
    """`_requeue`, unless the run was halted on a budget that is still short: then raises `MoveRefused` with the
    numbers.
    """
    was_short = is_halted_on_budget(entry)
    _requeue(draft, entry, reason)
    if not was_short or not cannot_go_on(draft.state, entry):
        return
    estimates = tuple(next_estimates(draft.state, entry))
    accounts: tuple[CompanyRecord | TaskRecord, ...] = (draft.state.company, entry.task)
    for account in accounts:
        if estimates and is_short(account, min(estimates)):
            company = isinstance(account, CompanyRecord)
            whose, advice = ("the company's", "SetBudget") if company else ("its own", "Edit")
            text = (
                f"is halted on budget, and {whose} is still short: {account.spent} spent and "
                f"{min(estimates)} estimated, of {account.budget}: use {advice} to raise it first"
            )
            raise MoveRefused(type(message).__name__, entry.task.id, RunStatus.HALTED.value, text, (advice,))


def _retry_running(draft: Draft, entry: TaskState) -> Moved:
    """In a run that is still going: failed nodes, and those that were stopped for them, get a fresh allowance;
    without any, what backs off is due now.
    """
    nodes = entry.nodes or []
    failed = [node for node in nodes if node.status in (NodeStatus.FAILED, NodeStatus.SKIPPED)]
    resting = [node for node in nodes if node.status is NodeStatus.PENDING and node.not_before_ms is not None]
    for node in failed:
        draft.node(entry, node.pos, status=NodeStatus.PENDING, tries=0, unclean=0)
        name = spec_of(node.spec).name
        draft.event("node.reset", entry, node=name, before=node.status, after=NodeStatus.PENDING)
    for node in resting if not failed else ():
        draft.node(entry, node.pos, not_before_ms=None)
        name = spec_of(node.spec).name
        draft.event("node.due", entry, node=name, before=NodeStatus.PENDING, after=NodeStatus.PENDING)
    if not failed and not resting:
        raise MoveRefused(
            "Retry",
            entry.task.id,
            RunStatus.RUNNING.value,
            "is in flight: nothing of it has failed",
            ("Stop",),
        )
    return moved(entry)


def _requeue(draft: Draft, entry: TaskState, reason: str) -> None:
    """A failed, stopped or halted run goes on at its old place: kept results stay, the rest gets a fresh
    allowance.
    """
    assert entry.run is not None
    before = entry.run.status
    names: list[str] = []
    for node in tuple(entry.nodes or ()):
        if node.status is not NodeStatus.SUCCEEDED:
            names.append(spec_of(node.spec).name)
            draft.node(entry, node.pos, status=NodeStatus.PENDING, tries=0, unclean=0, not_before_ms=None)
    draft.run(entry, status=RunStatus.QUEUED, settled_ms=None, halted_ms=None, reason=None, started=True)
    draft.event("run.requeued", entry, before=before, after=RunStatus.QUEUED, reason=reason, nodes=len(names))
    note_circle(draft, entry)


def _release(draft: Draft, entry: TaskState) -> Moved:
    """Lift a quarantine. If the task's rows could not be read, the turn has read them afresh."""
    if entry.run is None:
        raise MoveRefused("Retry", entry.task.id, "run_missing", "has no run: its rows are incomplete", ())
    if not entry.readable:
        text = f"is quarantined ({entry.quarantined}), and its rows still cannot be read: mend or Archive it"
        raise MoveRefused("Retry", entry.task.id, "quarantined", text, ("Archive",))
    draft.lift_quarantine(entry)
    draft.event("task.released", entry)
    if entry.run.status in (RunStatus.FAILED, RunStatus.STOPPED):
        _requeue(draft, entry, "retry")
    return moved(entry)


def _rerun(draft: Draft, message: Rerun, _prefetched: Prefetched) -> Moved:
    entry = entry_for(draft, message, message.task)
    assert entry.run is not None
    pos = None if message.from_node is None else place_of_rerun(message, entry, message.from_node)
    if entry.run.status is RunStatus.HALTED:
        stop_entry(draft, entry, "rerun")
    if pos is not None:
        rerun_from(draft, entry, message, pos)
        return moved(entry)
    run = fresh_run(entry.task, entry.run.number + 1, draft.now_ms, started=True)
    before = entry.run.status
    draft.add_run(entry, run, message.payload_text)
    draft.event("run.created", entry, before=before, after=RunStatus.QUEUED, reason="rerun", carried=0)
    note_circle(draft, entry)
    return moved(entry)


def _word_to(act: Callable[[Draft, TaskState, Any], object]) -> Callable[[Draft, Any, Prefetched], Moved]:
    """A person's word to a run: it is carried out, or it is refused."""

    def decide_word(draft: Draft, message: Any, _prefetched: Prefetched) -> Moved:
        entry = entry_for(draft, message, message.task)
        act(draft, entry, message)
        return moved(entry)

    return decide_word


def _archive(draft: Draft, message: Archive, _prefetched: Prefetched) -> Moved:
    entry = entry_for(draft, message, message.task)
    if entry.task.archived_ms is not None:
        return moved(entry, changed=False)
    stop_entry(draft, entry, "archive")
    draft.task(entry, archived_ms=draft.now_ms)
    draft.event("task.archived", entry)
    return moved(entry)


def _unarchive(draft: Draft, message: Unarchive, _prefetched: Prefetched) -> Moved:
    entry = entry_for(draft, message, message.task)
    if entry.task.archived_ms is None:
        return moved(entry, changed=False)
    draft.task(entry, archived_ms=None)
    draft.event("task.unarchived", entry)
    return moved(entry)


# --- the company --------------------------------------------------------------------------------------------


def _settings(draft: Draft, *, changed: bool) -> CompanySettings:
    company = draft.state.company
    return CompanySettings(company.paused_ms is not None, company.runs_max, company.weight, changed)


def _pause(draft: Draft, _message: Pause, _prefetched: Prefetched) -> CompanySettings:
    if draft.state.company.paused_ms is not None:
        return _settings(draft, changed=False)
    draft.company(paused_ms=draft.now_ms)
    draft.event("company.paused")
    return _settings(draft, changed=True)


def _unpause(draft: Draft, _message: Unpause, _prefetched: Prefetched) -> CompanySettings:
    if draft.state.company.paused_ms is None:
        return _settings(draft, changed=False)
    draft.company(paused_ms=None)
    draft.event("company.unpaused")
    return _settings(draft, changed=True)


def _set_limits(draft: Draft, message: SetLimits, _prefetched: Prefetched) -> CompanySettings:
    company = draft.state.company
    runs_max = company.runs_max if isinstance(message.runs_max, Unset) else message.runs_max
    weight = company.weight if isinstance(message.weight, Unset) else message.weight
    if (runs_max, weight) == (company.runs_max, company.weight):
        return _settings(draft, changed=False)
    draft.company(runs_max=runs_max, weight=weight)
    draft.event("company.limits_changed", runs_max=runs_max, weight=weight)
    return _settings(draft, changed=True)


def _set_budget(draft: Draft, message: SetBudget, _prefetched: Prefetched) -> BudgetSettings:
    before = draft.state.company
    if message.limit != before.budget:
        after = draft.company(budget=message.limit)
        draft.event("company.budget_changed", limit=message.limit, spent=after.spent, reserved=after.reserved)
        warn(draft, None, before, after)
    return BudgetSettings(
        message.limit, before.spent, before.reserved, changed=message.limit != before.budget
    )


def _stop_goal(draft: Draft, message: StopGoal, _prefetched: Prefetched) -> GoalStopped:
    stopped = []
    members = [entry for entry in draft.state.entries.values() if entry.task.goal == message.goal]
    for entry in sorted(members, key=lambda entry: entry.task.seq):
        draft.about = entry.task.id
        if entry.run is not None and entry.task.archived_ms is None and stop_entry(draft, entry, "stop goal"):
            stopped.append(entry.task.id)
    return GoalStopped(message.goal, tuple(stopped))


def _define_graph(draft: Draft, message: DefineGraph, _prefetched: Prefetched) -> GraphDefined:
    shape = shape_of(shape_text(message.nodes))
    check_handlers(draft.state, shape)
    payloads = node_payloads(message.nodes)
    old = draft.state.graphs.get(message.name)
    if old is not None and old.shape.text == shape.text and old.payloads == payloads:
        return GraphDefined(message.name, old.version, changed=False)
    version = 1 if old is None else old.version + 1
    draft.graph(Graph(message.name, version, shape, payloads))
    draft.event("company.graph_defined", name=message.name, version=version, nodes=len(shape.nodes))
    return GraphDefined(message.name, version)


def _unpark(_draft: Draft, _message: Unpark, _prefetched: Prefetched) -> Unparked:
    """Taken before the mailbox while the company rests; here it is not parked."""
    return Unparked(was_parked=False)


_DECIDERS: Mapping[type, Callable[[Draft, Any, Prefetched], object]] = MappingProxyType(
    {
        Submit: decide_submit,
        SubmitMany: decide_submit_many,
        Start: _start,
        StartNow: _start_now,
        Stop: _stop,
        Retry: _retry,
        Rerun: _rerun,
        Next: _word_to(let_through),
        Approve: _word_to(approve),
        SendBack: _word_to(send_back),
        Edit: decide_edit,
        Archive: _archive,
        Unarchive: _unarchive,
        Pause: _pause,
        Unpause: _unpause,
        SetLimits: _set_limits,
        SetBudget: _set_budget,
        StopGoal: _stop_goal,
        DefineGraph: _define_graph,
        Unpark: _unpark,
        SetSchedule: decide_set_schedule,
        PauseSchedule: decide_pause_schedule,
        ResumeSchedule: decide_resume_schedule,
        RemoveSchedule: decide_remove_schedule,
        RunNow: decide_run_now,
    }
)
