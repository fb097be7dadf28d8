"""The rows as values: what the tables hold, decoded.

Records do not change. A change is a new record put in the place of the old one, so a move always has both of
its ends and can be undone. Only facts stand here; whatever can be computed from them (blocked, position,
why something waits) is computed. Texts that no decision needs (titles, payloads, results) stay in the
database.

Durable times are integer milliseconds since the epoch, UTC (``_ms``); durations are seconds (``_s``).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from storage.values import value


class RunStatus(StrEnum):
    """Where a run stands. Running and stopping hold a run slot; completed, failed and stopped are settled."""

    QUEUED = "queued"
    RUNNING = "running"
    STOPPING = "stopping"
    HALTED = "halted"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def active(self) -> bool:
        """Whether a run of this status holds a run slot."""
        return self in ACTIVE

    @property
    def settled(self) -> bool:
        """Whether a run of this status moves only when somebody asks for it."""
        return self in SETTLED


ACTIVE = frozenset({RunStatus.RUNNING, RunStatus.STOPPING})
SETTLED = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.STOPPED})


class NodeStatus(StrEnum):
    """Where a node of a run stands."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"


class AttemptEnd(StrEnum):
    """How an attempt ended: exactly one of these."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    STALLED = "stalled"
    INTERRUPTED = "interrupted"
    STOPPED = "stopped"
    SUPERSEDED = "superseded"
    LOST = "lost"


class Mode(StrEnum):
    """How a task starts: by itself, when a person says `Start`, or node by node, each when a person says `Next`."""

    AUTO = "auto"
    MANUAL = "manual"
    STEP = "step"


class Halt(StrEnum):
    """What a halted run is short of, as far as the engine can say; the run's ``reason`` while it is halted."""

    APPROVAL = "approval"
    STEP = "step"
    BUDGET = "budget"


class Overlap(StrEnum):
    """What a schedule does at its time while a task of it is not settled: leave the fire out, or queue it."""

    SKIP = "skip"
    QUEUE = "queue"


class Misfire(StrEnum):
    """What becomes of fires that were missed: the latest is caught up, or none."""

    LATEST = "latest"
    SKIP = "skip"


class ScheduleStatus(StrEnum):
    """Where a schedule stands. A disabled one waits for a `SetSchedule` that can be carried out."""

    ACTIVE = "active"
    PAUSED = "paused"
    DISABLED = "disabled"


@value
class CompanyRecord:
    """A company's own settings and counters. ``event_seq`` is not here: the database counts events itself."""

    company_id: int
    name: str
    epoch: int
    runs_max: int = 1
    weight: int = 1
    paused_ms: int | None = None
    task_seq: int = 0
    """The last submission sequence given out."""
    front_seq: int = 0
    """The last rank given out by ``StartNow``; a higher rank goes first."""
    budget: int | None = None
    """What may be spent in all, in units of the host's choice; ``None``: no limit, 0: nothing starts."""
    spent: int = 0
    """What its attempts have spent, as far as it is booked."""
    reserved: int = 0
    """What those that live are expected to spend besides."""


@value
class TaskRecord:
    seq: int
    id: str
    priority: int
    created_ms: int
    mode: Mode = Mode.AUTO
    goal: str | None = None
    depends_on: tuple[str, ...] = ()
    graph: str | None = None
    """Name of a company graph; ``None`` when the shape was given with the task."""
    shape: str = "[]"
    """The nodes given with the task, as canonical JSON; equal texts are one object. See ``actors.core.shape``."""
    tries_max: int | None = None
    fail_fast: bool = False
    archived_ms: int | None = None
    not_before_ms: int | None = None
    """Before this time no run of it has its first admission, but for `StartNow`."""
    schedule: str | None = None
    """Name of the schedule that made it, by its time or by `RunNow`."""
    send_backs_max: int | None = None
    budget: int | None = None
    """As the company's; both hold."""
    spent: int = 0
    reserved: int = 0


@value
class RunRecord:
    seq: int
    number: int
    status: RunStatus
    created_ms: int
    slot: int = 0
    """Number of the run slot held, from 1; 0 while not active."""
    admitted_ms: int | None = None
    """First admission: from then on the nodes are rows and the upstreams are pinned."""
    settled_ms: int | None = None
    started: bool = False
    """A person opened the manual gate of this run."""
    front: int = 0
    """Rank by ``StartNow``, which also lets the run past a company pause; 0 for the ordinary order."""
    reason: str | None = None
    """Why it failed, stopped or halted, in a few words. Of a halted run it is the value of a `Halt`."""
    step: int | None = None
    """In a task that goes step by step: the position of the node that a person let start last."""
    halted_ms: int | None = None
    """Since when it is halted."""


@value
class NodeRecord:
    seq: int
    run: int
    pos: int
    spec: str
    """Canonical JSON of the node's definition, copied at the run's first admission."""
    status: NodeStatus = NodeStatus.PENDING
    tries: int = 0
    """Tries used since the last fresh allowance."""
    unclean: int = 0
    """Deaths of the process while this node executed, since its last success or fresh allowance. From two on it is
    a suspect."""
    generation: int = 0
    attempts: int = 0
    """The last attempt number given out; never reused."""
    not_before_ms: int | None = None
    error: str | None = None
    feedback: str | None = None
    """What was said when its last result was sent back: given to every attempt of this generation."""
    send_backs: int = 0
    """How often its own result was sent back."""
    reached_ms: int | None = None
    """Of a gate that waits for a person: since when."""
    superseded: bool = False
    """Of a node that runs: what its attempt works with was sent back, so the attempt is of the generation before
    and its result will be late."""
    spent: int = 0
    """Of a node that runs: what is booked of its attempt so far. It stands in the attempt's row."""


@value
class AttemptRecord:
    seq: int
    run: int
    pos: int
    number: int
    generation: int
    host_id: int
    started_ms: int
    ended_ms: int | None = None
    end: AttemptEnd | None = None
    error: str | None = None
    reserved: int = 0
    spent: int = 0
    assumed: bool = False
    """Nobody could say what it spent, so its estimate stands for it."""


NO_DATA: Mapping[str, Any] = MappingProxyType({})


@value
class EventRecord:
    """One line of the log before the database has given it its position and number."""

    kind: str
    at_ms: int
    task: str | None = None
    task_seq: int | None = None
    run: int | None = None
    node: str | None = None
    attempt: int | None = None
    before: str | None = None
    after: str | None = None
    reason: str | None = None
    data: Mapping[str, Any] = NO_DATA


@value
class ScheduleRecord:
    """A schedule: when, what, and how far it has come. Nominal times rise strictly while the wall clock does."""

    seq: int
    name: str
    template: str
    """JSON of the `Submit` that each fire carries out. See ``actors.codec``."""
    cron: str | None = None
    every_ms: int | None = None
    zone: str = "UTC"
    anchor_ms: int = 0
    """A nominal time of an interval, from which the others are reckoned."""
    overlap: Overlap = Overlap.SKIP
    misfire: Misfire = Misfire.LATEST
    jitter_ms: int = 0
    next_ms: int | None = None
    """The nominal time of the next fire; ``None`` exactly while it is disabled."""
    due_ms: int | None = None
    """When that fire is due: its nominal time, or earlier if the wall clock went back over times that have fired."""
    moved_ms: int = 0
    """The wall clock when the schedule last moved. A clock that shows less has gone back."""
    fired_ms: int | None = None
    """The nominal time of the last fire."""
    fired_task: str | None = None
    fired_to_ms: int | None = None
    """The latest nominal time that ever fired. Up to it a time may have fired already, and has to be looked up."""
    missed: int = 0
    """Fires that fell due under an earlier rule while it was held, and wait for the misfire rule."""
    missed_ms: int | None = None
    """The latest of them."""
    paused_ms: int | None = None
    disabled: str | None = None
    """Why it cannot fire."""
    bad: str | None = None
    """Why its row cannot be trusted, as found when it was read. No fact, and not stored."""

    @property
    def status(self) -> ScheduleStatus:
        if self.disabled is not None:
            return ScheduleStatus.DISABLED
        return ScheduleStatus.ACTIVE if self.paused_ms is None else ScheduleStatus.PAUSED
