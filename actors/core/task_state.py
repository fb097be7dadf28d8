"""One task in memory, and what is derived of it."""

from __future__ import annotations

from enum import Enum

import attrs

from actors.messages.views import Reason
from storage.records import Halt, Mode, NodeRecord, NodeStatus, RunRecord, RunStatus, TaskRecord
from storage.values import value

from .effects import AttemptKey
from .progress import Progress
from .shape import Shape


class Standing(Enum):
    """What a task is to those that depend on it."""

    DONE = "done"
    UNFINISHED = "unfinished"
    DEAD = "dead"


class TaskState:
    """One task in memory."""

    __slots__ = (
        "blocked",
        "cause",
        "counted",
        "cycle",
        "dead",
        "early",
        "nodes",
        "progress",
        "quarantined",
        "readable",
        "run",
        "short",
        "standing",
        "starved",
        "task",
        "unfinished",
        "was_missing",
    )

    def __init__(self, task: TaskRecord) -> None:
        self.task = task
        self.run: RunRecord | None = None
        self.nodes: list[NodeRecord] | None = None
        self.progress: Progress | None = None
        self.quarantined: str | None = None
        self.readable = True
        """Whether ``task`` is what its row says, and not only a name for a row that cannot be read."""
        self.cycle: tuple[str, ...] | None = None
        self.unfinished = 0
        self.dead = 0
        self.cause: Reason | None = None
        self.blocked = False
        self.early: int | None = None
        """The time before which it may not start, while the clock has not shown it."""
        self.standing = Standing.UNFINISHED
        self.starved = False
        """Whether its own budget has no room for what it would start first."""
        self.short = False
        """Whether nodes of its running run are ready, and what is spent keeps every one of them from starting."""
        self.was_missing = False
        self.counted = False
        """Whether it is among those that `CompanyState.queued` counts."""

    @property
    def queued(self) -> bool:
        return self.run is not None and self.run.status is RunStatus.QUEUED and self.task.archived_ms is None

    @property
    def admitted(self) -> bool:
        """Whether the newest run was admitted once: from then on it does not notice what its upstreams do."""
        return self.run is not None and self.run.admitted_ms is not None

    @property
    def waits_for_upstreams(self) -> bool:
        return self.queued and not self.admitted

    @property
    def may_start(self) -> bool:
        """Whether a node is ready, and let through if the task goes step by step."""
        assert self.run is not None
        assert self.progress is not None
        ready = self.progress.ready
        return bool(ready) if self.task.mode is not Mode.STEP else self.run.step in ready

    @property
    def short_of(self) -> Halt | None:
        """What keeps a running run from going on, if nothing of it is alive, may start or backs off. Asked before
        whether it has failed: what a person lets go may do without the node that gave up. Not under fail_fast, where
        nothing does.
        """
        progress = self.progress
        if progress is None or (self.task.fail_fast and progress.counts[NodeStatus.FAILED]):
            return None
        if self.short:
            return Halt.BUDGET
        if progress.ready:
            return Halt.STEP
        return Halt.APPROVAL if progress.reached else None

    @property
    def at_its_end(self) -> bool:
        """Whether the run is active and has nothing left to do but to be settled or halted."""
        run, progress = self.run, self.progress
        if run is None or not run.status.active or (progress is not None and progress.running):
            return False
        if run.status is RunStatus.STOPPING or progress is None:
            return run.status is RunStatus.STOPPING
        if progress.counts[NodeStatus.SUCCEEDED] == len(progress.specs):
            return True
        gave_up = progress.counts[NodeStatus.FAILED] > 0
        if gave_up and self.task.fail_fast:
            return True
        if (self.may_start and not self.short) or progress.resting:
            return False
        return gave_up or self.short_of is not None


def halt_of(run: RunRecord) -> Halt | None:
    """What a halted run is short of, if it is something that the engine knows."""
    if run.status is not RunStatus.HALTED:
        return None
    return next((halt for halt in Halt if halt.value == run.reason), None)


def current_node(entry: TaskState, key: AttemptKey) -> NodeRecord | None:
    """The node that is running just this attempt."""
    if entry.run is None or entry.run.number != key.run or entry.nodes is None or entry.task.seq != key.seq:
        return None
    if key.pos >= len(entry.nodes):
        return None
    node = entry.nodes[key.pos]
    return node if node.status is NodeStatus.RUNNING and node.attempts == key.number else None


@attrs.frozen
class Graph:
    """A company graph's newest definition."""

    name: str
    version: int
    shape: Shape
    payloads: str | None = None
    """JSON array of the nodes' payloads by position."""


@value
class Flip:
    """A task became blocked, or stopped being so. ``cause`` is the task whose change led to it."""

    task: str
    blocked: bool
    cause: str


def is_halted_on_budget(entry: TaskState) -> bool:
    return entry.run is not None and halt_of(entry.run) is Halt.BUDGET


def standing_of(entry: TaskState) -> Standing:
    run = entry.run
    if entry.quarantined is not None or run is None:
        return Standing.DEAD
    if run.status is RunStatus.COMPLETED:
        return Standing.DONE
    if run.status.settled or entry.blocked or entry.task.archived_ms is not None:
        return Standing.DEAD
    if is_halted_on_budget(entry):
        return Standing.DEAD
    return Standing.UNFINISHED
