"""Runs that wait for a person: how they halt, and how they go on.

A run halts when it is short of something and nothing of it is alive, may start or backs off; its run slot is free from
that commit on. What it is short of is a `Halt`, kept as the run's reason. Going on is halted → queued: the run stands
in the line where it stood, past a company pause if a person had put it there, and its nodes keep their tries.

A gate is said to be reached once, when its run runs; since when it waits stays in its record until it is answered, or
what it judges is done again.
"""

from __future__ import annotations

from typing import Any

from storage.records import Halt, NodeStatus, RunStatus

from .draft import Draft
from .task_state import TaskState

NAMES_SHOWN = 100
"""Nodes named in one event; the count beside them is the whole."""


def say_reached(draft: Draft, entry: TaskState) -> None:
    """Enter since when the first gate that was reached, and has not been said to be, waits for a person."""
    assert entry.progress is not None
    draft.about = entry.task.id
    pos = min(entry.progress.unsaid)
    draft.node(entry, pos, reached_ms=draft.now_ms)
    draft.event(
        "gate.reached",
        entry,
        node=entry.progress.specs[pos].name,
        before=NodeStatus.PENDING,
        after=NodeStatus.PENDING,
    )
    draft.moves += 1


def halt_run(draft: Draft, entry: TaskState, halt: Halt) -> None:
    """The run gives its slot back until a person lets it go on."""
    assert entry.run is not None
    names = names_of(entry, waiting_for(entry, halt))
    before = entry.run.status
    draft.run(entry, status=RunStatus.HALTED, slot=0, reason=halt.value, halted_ms=draft.now_ms)
    draft.event(
        "run.halted",
        entry,
        before=before,
        after=RunStatus.HALTED,
        reason=halt.value,
        count=len(names),
        nodes=names[:NAMES_SHOWN],
    )
    draft.moves += 1


def waiting_for(entry: TaskState, halt: Halt) -> list[int]:
    """Positions of the nodes that a run short of this could go on with, in the order of the graph."""
    assert entry.progress is not None
    return sorted(entry.progress.ready if halt in (Halt.STEP, Halt.BUDGET) else entry.progress.reached)


def names_of(entry: TaskState, places: list[int]) -> list[str]:
    assert entry.progress is not None
    return [entry.progress.specs[pos].name for pos in places]


def resume_run(draft: Draft, entry: TaskState, reason: str, node: str, **fields: Any) -> None:
    """A halted run goes on at its old place."""
    assert entry.run is not None
    before = entry.run.status
    draft.run(entry, status=RunStatus.QUEUED, reason=None, halted_ms=None, **fields)
    draft.event("run.resumed", entry, node=node, before=before, after=RunStatus.QUEUED, reason=reason)
