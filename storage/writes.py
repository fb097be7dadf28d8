"""Parts of a unit of work that change less than a row of a task, a run or an attempt.

A company's memory holds no titles and no payloads, and not every task: what a turn writes of them comes as one of
these values. ``seq`` is the task's number in its company; texts of payloads are JSON.
"""

from __future__ import annotations

from storage.records import ScheduleRecord
from storage.values import value


@value
class TaskTexts:
    """What a new task has besides its record. ``content`` is the digest of the whole request."""

    title: str
    payload: str | None = None
    node_payloads: str | None = None
    key: str | None = None
    content: str | None = None


@value
class TaskFire:
    """The schedule that made a new task; ``nominal_ms``: for which of its times, ``None`` if a person asked for it."""

    seq: int
    schedule: str
    nominal_ms: int | None


@value
class TitleSet:
    seq: int
    title: str


@value
class PayloadSet:
    seq: int
    payload: str | None


@value
class NodePayloadsSet:
    """A JSON array of the nodes' payloads by position."""

    seq: int
    node_payloads: str | None


@value
class NotBeforeSet:
    seq: int
    not_before_ms: int | None


@value
class ArchivedSet:
    """For a task whose row cannot be read: what is wrong in it stays as it is."""

    seq: int
    archived_ms: int | None


@value
class Released:
    """The task is quarantined no more."""

    seq: int


@value
class RunPayloadSet:
    """The payload of one run, in the place of the task's."""

    seq: int
    number: int
    payload: str


@value
class RunCarried:
    """The run has payload and pins of the one before it; ``payload``, if there is one, goes before that."""

    seq: int
    number: int
    payload: str | None


@value
class AttemptBooked:
    """What an attempt has spent so far, or said after its end; and what it still has reserved. ``assumed``: nobody
    could say what it spent in all.
    """

    seq: int
    run: int
    pos: int
    number: int
    spent: int
    reserved: int
    assumed: bool = False


@value
class TaskBooked:
    """More was spent for a task that is not in memory."""

    seq: int
    added: int


@value
class InboxAnswered:
    """The answer to a message of the inbox, by its number; refused if it has one already."""

    number: int
    answered_ms: int
    answer: str


@value
class SchedulePut:
    """The whole row; of one that cannot be trusted only whether it is held."""

    record: ScheduleRecord


@value
class ScheduleRemoved:
    seq: int


Write = (
    TaskFire
    | TitleSet
    | PayloadSet
    | NodePayloadsSet
    | NotBeforeSet
    | ArchivedSet
    | Released
    | RunPayloadSet
    | RunCarried
    | AttemptBooked
    | TaskBooked
    | InboxAnswered
    | SchedulePut
    | ScheduleRemoved
)
