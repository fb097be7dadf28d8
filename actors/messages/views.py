"""What reads return: the derived state of a task, the reasons why it is not running, and all other views.

Nothing here is stored. `actors.core.work_state` computes it from the facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import attrs

from storage.records import AttemptEnd, Misfire, NodeStatus, Overlap, RunStatus


class WorkState(StrEnum):
    """The state of a task, exactly one of these. From RUNNING on, each comes with at least one `Reason`."""

    ARCHIVED = "archived"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    QUARANTINED = "quarantined"
    RUNNING = "running"
    STOPPING = "stopping"
    HALTED = "halted"
    BLOCKED = "blocked"
    WAITING = "waiting"
    SCHEDULED = "scheduled"
    HELD = "held"
    PAUSED = "paused"
    QUEUED = "queued"


class ReasonKind(StrEnum):
    """What a `Reason` is about."""

    # settled and out of the way
    ARCHIVED = "archived"
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    QUARANTINED = "quarantined"
    # running, stopping
    EXECUTING = "executing"
    BACKING_OFF = "backing_off"
    WAITING = "waiting"
    EXECUTION_SLOT = "execution_slot"
    NODE_READY = "node_ready"
    ENDING = "ending"
    # running, halted: it waits for a person
    APPROVAL = "approval"
    STEP = "step"
    HALTED = "halted"
    # blocked: it cannot start as things stand
    UPSTREAM_FAILED = "upstream_failed"
    UPSTREAM_STOPPED = "upstream_stopped"
    UPSTREAM_HALTED = "upstream_halted"
    UPSTREAM_BLOCKED = "upstream_blocked"
    UPSTREAM_MISSING = "upstream_missing"
    UPSTREAM_ARCHIVED = "upstream_archived"
    UPSTREAM_QUARANTINED = "upstream_quarantined"
    DEPENDENCY_CYCLE = "dependency_cycle"
    RUN_MISSING = "run_missing"
    HANDLER_MISSING = "handler_missing"
    GRAPH_MISSING = "graph_missing"
    # it can, but not yet
    UPSTREAM_UNFINISHED = "upstream_unfinished"
    NOT_BEFORE = "not_before"
    MANUAL = "manual"
    COMPANY_PAUSED = "company_paused"
    COMPANY_PARKED = "company_parked"
    DRAINING = "draining"
    STORE_UNAVAILABLE = "store_unavailable"
    ABANDONED_LIMIT = "abandoned_limit"
    RUN_SLOTS = "run_slots"
    BUDGET = "budget"
    TASKS_AHEAD = "tasks_ahead"
    NO_HOST = "no_host"


@attrs.frozen
class Reason:
    """One reason, with what it concerns.

    ``tasks``: ids (at most `IDS_SHOWN`, ``count`` says how many there are); ``nodes``: names; ``numbers``:
    by name; ``at_ms``: since when, or until when for a wait that ends by itself; ``text``: the error, or
    the names missing.
    """

    kind: ReasonKind
    tasks: tuple[str, ...] = ()
    count: int = 0
    nodes: tuple[str, ...] = ()
    numbers: Mapping[str, int] = attrs.field(factory=dict)
    at_ms: int | None = None
    text: str | None = None

    @property
    def blocks(self) -> bool:
        """Whether the task cannot start as things stand, rather than not yet."""
        return self.kind in BLOCKING


IDS_SHOWN = 10
"""Ids listed in one reason; its ``count`` is the total."""

BLOCKING = frozenset(
    {
        ReasonKind.UPSTREAM_FAILED,
        ReasonKind.UPSTREAM_STOPPED,
        ReasonKind.UPSTREAM_HALTED,
        ReasonKind.UPSTREAM_BLOCKED,
        ReasonKind.UPSTREAM_MISSING,
        ReasonKind.UPSTREAM_ARCHIVED,
        ReasonKind.UPSTREAM_QUARANTINED,
        ReasonKind.DEPENDENCY_CYCLE,
        ReasonKind.RUN_MISSING,
        ReasonKind.HANDLER_MISSING,
        ReasonKind.GRAPH_MISSING,
    }
)


@attrs.frozen
class NodeView:
    """One node of the newest run. ``error`` is that of the last failed attempt, until the next one starts.

    ``feedback`` is what was said when its result was last sent back, which happened ``send_backs`` times. A ``gate``
    has no handler (an empty name); ``reached_ms`` is since when it waits for a person.
    """

    name: str
    handler: str
    status: NodeStatus = NodeStatus.PENDING
    tries: int = 0
    attempts: int = 0
    generation: int = 0
    error: str | None = None
    not_before_ms: int | None = None
    feedback: str | None = None
    send_backs: int = 0
    gate: bool = False
    reached_ms: int | None = None
    estimate: int = 0


@attrs.frozen
class TaskStatus:
    """A task as it stands. ``position`` is the 1-based place among queued, not blocked tasks; 0 otherwise.

    ``budget`` is its own limit (``None``: none), ``spent`` what all its runs have spent, ``reserved`` what its attempts
    that live are expected to spend besides.
    """

    company: str
    id: str
    seq: int
    title: str
    priority: int
    goal: str | None
    run: int
    run_status: RunStatus | None
    state: WorkState
    reasons: tuple[Reason, ...]
    position: int
    created_ms: int
    settled_ms: int | None
    depends_on: tuple[str, ...]
    nodes: tuple[NodeView, ...] = ()
    not_before_ms: int | None = None
    schedule: str | None = None
    """The schedule that made it."""
    budget: int | None = None
    spent: int = 0
    reserved: int = 0


@attrs.frozen
class Explanation:
    """Every gate that is closed for a task, in the order in which they are checked; empty if nothing blocks it."""

    company: str
    task: str
    state: WorkState
    gates: tuple[Reason, ...]


@attrs.frozen
class AttemptView:
    """One attempt of any run of a task. ``end`` is ``None`` while it is alive.

    ``spent`` is what is booked of it; ``assumed``: what it spent is unknown, so ``spent`` is its estimate, or the
    amount known if that is more. ``reserved`` is what is left of its estimate, while it is alive.
    """

    run: int
    node: str
    number: int
    generation: int
    started_ms: int
    ended_ms: int | None
    end: AttemptEnd | None
    error: str | None
    reserved: int = 0
    spent: int = 0
    assumed: bool = False


@attrs.frozen
class BudgetView:
    """What a company may spend (``limit``; ``None``: no limit), what it has spent, and what the attempts that live
    have reserved.
    """

    limit: int | None
    spent: int
    reserved: int


@attrs.frozen
class LimitsView:
    """How many tasks of a company may be active at once (``runs_max``), its weight among the others, and since when it
    is paused (ms UTC; ``None``: it is not).
    """

    runs_max: int = 1
    weight: int = 1
    paused_ms: int | None = None


@attrs.frozen
class ScheduleView:
    """A schedule as it stands; times are ms UTC.

    ``next_ms``: the nominal time of the next fire; while it is paused, of the first that waits for the misfire rule.
    ``due_ms``: when that fire is due by the wall clock, which is earlier if the clock went back. ``fired_ms`` and
    ``fired_task``: the last fire by its time; `RunNow` leaves both as they are. ``disabled``: why it cannot fire.
    """

    company: str
    name: str
    title: str
    cron: str | None
    every_s: float | None
    zone: str
    overlap: Overlap
    misfire: Misfire
    jitter_s: float
    next_ms: int | None
    due_ms: int | None
    fired_ms: int | None
    fired_task: str | None
    paused_ms: int | None
    disabled: str | None


@attrs.frozen
class Outcome:
    """How a run settled. ``result`` maps the names of the succeeded nodes to their results."""

    task: str
    run: int
    status: RunStatus
    result: Mapping[str, Any]
    reason: str | None = None


@attrs.frozen
class ClosingReport:
    """What closing interrupted. ``interrupted``: attempts that will run again, at no cost of tries.

    ``abandoned``: attempts that did not end within the grace, whether closing cancelled them or a stop or a
    limit had before; a plain function among them still runs in its thread. Both name attempts as
    ``company/task/run/node/attempt``.
    """

    interrupted: tuple[str, ...] = ()
    abandoned: tuple[str, ...] = ()
