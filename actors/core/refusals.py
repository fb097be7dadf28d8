"""What may be said to a task as it stands: where its newest run is decides, by tables."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from actors.errors import MoveRefused, TaskUnknown
from actors.messages import (
    Approve,
    Archive,
    Message,
    Next,
    Rerun,
    Retry,
    SendBack,
    Start,
    StartNow,
    Stop,
    Unarchive,
)
from storage.records import Halt, RunRecord, RunStatus

from .draft import Draft
from .task_state import TaskState, halt_of

Refusal = tuple[str, tuple[str, ...]]
"""What the task is or does (as the end of a sentence), and the messages that would do instead."""

Q, RUN, ING, HALT, DONE, FAIL, OFF = (
    RunStatus.QUEUED,
    RunStatus.RUNNING,
    RunStatus.STOPPING,
    RunStatus.HALTED,
    RunStatus.COMPLETED,
    RunStatus.FAILED,
    RunStatus.STOPPED,
)

_STOPPING: Refusal = ("is stopping: wait until it has stopped", ())
_COMPLETED: Refusal = ("is completed: use Rerun to do it again", ("Rerun",))
_FINAL: Refusal = ("is completed: use Rerun or SendBack to do it again", ("Rerun", "SendBack"))
_HALTED: Refusal = ("is halted: use Retry", ("Retry",))
_STEP: Refusal = ("is halted before a step: use Next", ("Next",))
_BUDGET: Refusal = ("is halted on budget: use Retry", ("Retry",))
_GATE: Refusal = ("is halted at a gate: use Approve or SendBack", ("Approve", "SendBack"))
_SETTLED: Mapping[RunStatus, Refusal] = MappingProxyType(
    {
        FAIL: ("has failed, so nothing of it waits for you: use Retry", ("Retry",)),
        OFF: ("was stopped, so nothing of it waits for you: use Retry", ("Retry",)),
        DONE: ("is completed, so nothing of it waits for you: use Rerun or SendBack", ("Rerun", "SendBack")),
    }
)

REFUSALS: Mapping[type, Mapping[RunStatus, Refusal]] = MappingProxyType(
    {
        Start: MappingProxyType(
            {
                ING: _STOPPING,
                HALT: _HALTED,
                FAIL: ("has failed: use Retry", ("Retry",)),
                OFF: ("was stopped: use Retry", ("Retry",)),
                DONE: _COMPLETED,
            }
        ),
        StartNow: MappingProxyType({ING: _STOPPING, DONE: _COMPLETED}),
        Next: MappingProxyType(
            {
                Q: ("has not started: no step of it waits for you yet", ()),
                RUN: ("is running: no step of it waits for you", ()),
                ING: _STOPPING,
                HALT: _HALTED,
                **_SETTLED,
            }
        ),
        Approve: MappingProxyType({ING: _STOPPING, HALT: _HALTED, **_SETTLED}),
        Stop: MappingProxyType({}),
        Retry: MappingProxyType({Q: ("is already queued", ()), ING: _STOPPING, DONE: _FINAL}),
        SendBack: MappingProxyType({ING: _STOPPING}),
        Rerun: MappingProxyType(
            {
                Q: ("has not run: use Edit to change it", ("Edit",)),
                RUN: ("is running: stop it first", ("Stop",)),
                ING: _STOPPING,
            }
        ),
        Archive: MappingProxyType({RUN: ("is running: stop it first", ("Stop",)), ING: _STOPPING}),
        Unarchive: MappingProxyType({}),
    }
)
"""message → status of the newest run → why not. What is absent here is done, or answered with the state as
it is, or depends on the node that it names.
"""

AGAIN_REFUSALS: Mapping[type, Refusal] = MappingProxyType(
    {
        Next: ("is queued to go on: no step of it waits for you", ()),
        Rerun: ("is queued to go on: stop it first", ("Stop",)),
    }
)
"""The same for a run that is queued to go on with what it has begun, where "not started" would not be true."""

HALT_REFUSALS: Mapping[type, Mapping[Halt, Refusal]] = MappingProxyType(
    {
        Start: MappingProxyType({Halt.STEP: _STEP, Halt.APPROVAL: _GATE, Halt.BUDGET: _BUDGET}),
        StartNow: MappingProxyType({Halt.STEP: _STEP, Halt.APPROVAL: _GATE}),
        Retry: MappingProxyType({Halt.STEP: _STEP, Halt.APPROVAL: _GATE}),
        Next: MappingProxyType({Halt.APPROVAL: _GATE, Halt.BUDGET: _BUDGET}),
    }
)
"""The same for a halted run, by what it is short of: a person has to say just that. It goes before `REFUSALS` where it
is known what the run is short of.
"""


def entry_of(draft: Draft, task: str) -> TaskState:
    """The task a message names; raises `TaskUnknown`."""
    entry = draft.state.entries.get(task)
    if entry is None:
        raise TaskUnknown(draft.state.company.name, task)
    draft.about = task
    return entry


def entry_for(draft: Draft, message: Message[Any], task: str) -> TaskState:
    """The task, if the message may be said to it as it stands; else raises `MoveRefused`."""
    entry = entry_of(draft, task)
    name = type(message).__name__
    if entry.task.archived_ms is not None and not isinstance(message, Archive | Unarchive):
        raise MoveRefused(name, task, "archived", "is archived: use Unarchive first", ("Unarchive",))
    if entry.quarantined is not None and not isinstance(message, Stop | Retry | Archive | Unarchive):
        text = f"is quarantined ({entry.quarantined}): use Retry, Stop or Archive"
        raise MoveRefused(name, task, "quarantined", text, ("Retry", "Stop", "Archive"))
    if entry.run is None:
        raise MoveRefused(name, task, "run_missing", "has no run: its rows are incomplete", ())
    refusal = _refusal(type(message), entry.run)
    if refusal is not None:
        raise MoveRefused(name, task, entry.run.status.value, *refusal)
    return entry


def _refusal(message: type, run: RunRecord) -> Refusal | None:
    halt = halt_of(run)
    if halt is not None:
        return HALT_REFUSALS.get(message, {}).get(halt)
    if run.status is Q and run.admitted_ms is not None and message in AGAIN_REFUSALS:
        return AGAIN_REFUSALS[message]
    return REFUSALS[message].get(run.status)
