"""What messages are answered with."""

from __future__ import annotations

import attrs

from storage.records import RunStatus


@attrs.frozen
class Submitted:
    """A task is stored. ``existing`` is true when an equal one was already there under the same key or id."""

    id: str
    seq: int
    run: int
    existing: bool = False


@attrs.frozen
class Moved:
    """Where the task stands now. ``changed`` is false when there was nothing to do.

    ``holders`` names the tasks whose runs hold the run slots when `StartNow` found the company full.
    ``note`` says what else the sender should know.
    """

    id: str
    run: int
    status: RunStatus
    changed: bool = True
    holders: tuple[str, ...] = ()
    note: str | None = None


@attrs.frozen
class CompanySettings:
    """The company's settings after the message."""

    paused: bool
    runs_max: int
    weight: int
    changed: bool = True


@attrs.frozen
class BudgetSettings:
    """The company's budget after the message: the limit (``None``: none), what is spent, and what the attempts that
    live have reserved.
    """

    limit: int | None
    spent: int
    reserved: int
    changed: bool = True


@attrs.frozen
class GoalStopped:
    """Ids of the tasks of the goal that were stopped, or are stopping, by this message."""

    goal: str
    tasks: tuple[str, ...]


@attrs.frozen
class GraphDefined:
    """The graph's newest version; it rises with each definition that differs."""

    name: str
    version: int
    changed: bool = True


@attrs.frozen
class ScheduleSettings:
    """A schedule after the message. ``next_ms``: the nominal time of its next fire, ms UTC; ``None`` if it was
    removed, or is ``disabled``, which says why.
    """

    name: str
    next_ms: int | None
    paused: bool = False
    disabled: str | None = None
    changed: bool = True


@attrs.frozen
class Unparked:
    """Whether the company was parked."""

    was_parked: bool
