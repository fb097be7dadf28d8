"""What the sweep and an actor that begins ask of a company: is what should run there, is what should end told so?"""

from __future__ import annotations

from storage.records import AttemptEnd, NodeStatus, RunRecord, RunStatus

from .advance import attempt_key, cancel_nodes
from .draft import Draft
from .effects import AttemptKey, CancelAttempt
from .inputs import Report, Sweep
from .reports import decide_report
from .state import CompanyState
from .task_state import TaskState

LOOKED_MAX = 1_000
"""Tasks that one sweep derives anew in one company: a few milliseconds, however long its backlog is."""
GONE = "found by the sweep: nobody was running it"


def running_attempts(state: CompanyState, only: TaskState | None = None) -> list[AttemptKey]:
    """The attempts that the rows say are running; with ``only`` those of one run."""
    keys: list[AttemptKey] = []
    for entry in _active(state) if only is None else [only]:
        if entry.progress is not None and entry.nodes is not None:
            keys.extend(attempt_key(entry, entry.nodes[pos]) for pos in sorted(entry.progress.running))
    return keys


def superseded_attempts(state: CompanyState) -> list[AttemptKey]:
    """Running attempts that work with what was sent back: they too were told to end."""
    return [
        attempt_key(entry, entry.nodes[pos])
        for entry in _active(state)
        if entry.progress is not None and entry.nodes is not None
        for pos in sorted(entry.progress.running)
        if entry.nodes[pos].superseded
    ]


def ending_runs(state: CompanyState) -> list[TaskState]:
    """Active runs whose attempts were told to end: asking them again is harmless, forgetting them is not."""
    return [entry for entry in _active(state) if entry.run is not None and _is_ending(entry, entry.run)]


def _active(state: CompanyState) -> list[TaskState]:
    return [state.entries[task] for task in state.slots.values()]


def _is_ending(entry: TaskState, run: RunRecord) -> bool:
    failed = entry.progress is not None and entry.progress.counts[NodeStatus.FAILED] > 0
    return run.status is RunStatus.STOPPING or (entry.task.fail_fast and failed)


def look_again(draft: Draft, sweep: Sweep) -> bool:
    """End what should run and is not there, and tell again what should end; says whether something was not there.

    What waits is derived anew in turn, a bounded number at a time.
    """
    state = draft.state
    gone = [key for key in running_attempts(state) if key not in sweep.alive]
    for key in gone:
        decide_report(draft, Report(key, AttemptEnd.INTERRUPTED, error=GONE, assumed=True))
    for entry in ending_runs(state):
        cancel_nodes(draft, entry, "stopped")
    draft.effects.extend(CancelAttempt(key, "superseded") for key in superseded_attempts(state))
    _derive_anew(state)
    return bool(gone)


def _derive_anew(state: CompanyState) -> None:
    unseen = state.unseen
    if not unseen:
        unseen.extend(reversed(state.entries))
    for _ in range(min(len(unseen), LOOKED_MAX)):
        seen = state.entries.get(unseen.pop())
        if seen is None or seen.run is None:
            continue
        if seen.run.status is RunStatus.QUEUED or seen.run.status.active:
            state.refresh(seen, cause=seen.task.id)
