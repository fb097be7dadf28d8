"""Tasks and schedules that cannot be trusted, and the processes that attempts leave behind."""

from __future__ import annotations

from storage.records import Claim, EventRecord
from storage.values import value

from .store import CompanyOperation, Query
from .turns import AttemptPlace, Committed

Told = tuple[Committed, tuple[EventRecord, ...]]
"""Where the log has taken the events of a change, and the events."""


@value
class Quarantine(CompanyOperation[Told]):
    """Set a task aside without decoding any row of it: attempts interrupted, an active run failed, its slot free."""

    claim: Claim
    task: str
    seq: int
    why: str
    traceback: str | None
    now_ms: int


@value
class DisableSchedule(CompanyOperation[Told]):
    """Disable a schedule that cannot be moved; no events if it is disabled already, or gone."""

    claim: Claim
    schedule: str
    why: str
    now_ms: int


@value
class RecordProcess(CompanyOperation[None]):
    """Note which process works for an attempt, so that a restart can end it. ``started`` tells it from a later
    process of the same id.
    """

    claim: Claim
    attempt: AttemptPlace
    pid: int
    started: str


@value
class AttemptProcess:
    """Who worked for an attempt. ``pid`` and ``started`` are none unless it was a process of its own."""

    host_id: int | None = None
    pid: int | None = None
    started: str | None = None


@value
class FindProcesses(Query[tuple[AttemptProcess, ...]]):
    """Who worked for these attempts of a company, in their order; one without a row has nothing set."""

    company_id: int
    attempts: tuple[AttemptPlace, ...]


@value
class TaskStanding:
    """A task as those who set it aside see it."""

    seq: int
    quarantined: bool


@value
class FindTask(Query[TaskStanding | None]):
    """The task of this id; ``None`` if there is none. Decodes nothing but the id."""

    company: str
    task: str
