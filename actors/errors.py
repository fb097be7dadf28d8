"""Errors of the runtime. One root; each says whose fault it is and what to do, and carries fields.

Two roads never meet: a *refusal* is the sender's mistake and changes nothing; everything else is ours or
the machine's.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.codec import InvalidJson, InvalidName
from storage.errors import (
    BackupFailed,
    DatabaseInUse,
    ForkedProcess,
    InboxFull,
    MessageConflict,
    NotADatabase,
    OutcomeUnknown,
    SchemaTooNew,
    StorageError,
    StoreLost,
    StoreUnavailable,
    TurnkeeperError,
)

__all__ = [
    "ActorCrashed",
    "BackupFailed",
    "CompanyActive",
    "CompanyDeleted",
    "CompanyParked",
    "CompanyUnknown",
    "CursorTooOld",
    "DatabaseInUse",
    "DependencyCycle",
    "ForkedProcess",
    "GiveUp",
    "IdConflict",
    "IllegalMove",
    "InboxFull",
    "InvalidJson",
    "InvalidMessage",
    "InvalidName",
    "InvalidSpend",
    "KeyConflict",
    "MailboxFull",
    "MessageConflict",
    "MoveRefused",
    "NotADatabase",
    "OutcomeUnknown",
    "Refused",
    "RetryAfter",
    "RuntimeClosed",
    "ScheduleRefused",
    "SchemaTooNew",
    "StorageError",
    "StoreLost",
    "StoreUnavailable",
    "TaskUnknown",
    "TurnkeeperError",
    "UnknownGraph",
    "UnknownHandler",
    "UnknownSchedule",
    "UnknownUpstream",
    "WouldDeadlock",
]


class InvalidMessage(TurnkeeperError, ValueError):
    """A message was built from values it cannot carry. Raised where the message is built; nothing was sent."""


class InvalidSpend(TurnkeeperError, ValueError):
    """`Context.spend` was given what is no number of units. Raised in the handler; nothing was added."""


class Refused(TurnkeeperError):
    """A message was understood and refused: the sender's mistake. Nothing changed."""


class MoveRefused(Refused):
    """The message does not fit the state of the task's newest run.

    ``advice`` names the messages that would do instead; it can be empty.
    """

    def __init__(self, message: str, task: str, state: str, text: str, advice: Sequence[str] = ()) -> None:
        super().__init__(f"{message} refused: task {task} {text}")
        self.message = message
        self.task = task
        self.state = state
        self.text = text
        self.advice = tuple(advice)


class TaskUnknown(Refused):
    """No task of this company has this id."""

    def __init__(self, company: str, task: str) -> None:
        super().__init__(f"company {company!r} has no task {task!r}: check the id, or submit it first")
        self.company = company
        self.task = task


class UnknownUpstream(Refused):
    """``depends_on`` names tasks that do not exist in this company."""

    def __init__(self, task: str, missing: Sequence[str]) -> None:
        names = ", ".join(missing[:10])
        super().__init__(
            f"task {task!r} depends on unknown tasks: {names}. Submit them first, or in one SubmitMany"
        )
        self.task = task
        self.missing = tuple(missing)


class UnknownHandler(Refused):
    """A node names a handler that the host has not registered."""

    def __init__(self, handlers: Sequence[str]) -> None:
        super().__init__(
            f"no handler is registered as {', '.join(handlers)}: pass it to open_runtime(handlers=…)"
        )
        self.handlers = tuple(handlers)


class UnknownGraph(Refused):
    """``graph`` names no graph of this company."""

    def __init__(self, graph: str) -> None:
        super().__init__(f"no graph is defined as {graph!r}: send DefineGraph first")
        self.graph = graph


class UnknownSchedule(Refused):
    """The company has no schedule of this name."""

    def __init__(self, company: str, schedule: str) -> None:
        super().__init__(f"company {company!r} has no schedule {schedule!r}: send SetSchedule first")
        self.company = company
        self.schedule = schedule


class ScheduleRefused(Refused):
    """The message does not fit the schedule as it stands."""

    def __init__(self, message: str, schedule: str, text: str) -> None:
        super().__init__(f"{message} {schedule!r} refused: {text}")
        self.message = message
        self.schedule = schedule
        self.text = text


class DependencyCycle(Refused):
    """The dependencies would form a circle; ``path`` walks it once, first and last the same."""

    def __init__(self, path: Sequence[str]) -> None:
        shown = " → ".join(path if len(path) <= 12 else [*path[:6], "…", *path[-5:]])
        super().__init__(f"dependencies form a cycle: {shown}")
        self.path = tuple(path)


class KeyConflict(Refused):
    """The idempotency key belongs to a task with other content; ``task`` is its id."""

    def __init__(self, key: str, task: str) -> None:
        super().__init__(f"key {key!r} was used for task {task!r} with other content: choose another key")
        self.key = key
        self.task = task


class IdConflict(Refused):
    """The chosen task id belongs to a task with other content."""

    def __init__(self, task: str) -> None:
        super().__init__(
            f"task id {task!r} is taken by a task with other content: choose another id, or Rerun it"
        )
        self.task = task


class CompanyUnknown(Refused):
    """No company has this name. One comes to be with the first message to it."""

    def __init__(self, company: str) -> None:
        super().__init__(f"there is no company {company!r}: check the name")
        self.company = company


class CompanyActive(Refused):
    """A company cannot be deleted while runs of it are active, or attempts of it live or were left behind.

    ``tasks``: ids of the active ones (at most ten); ``attempts``: ``company/task/run/node/attempt``.
    """

    def __init__(self, company: str, tasks: Sequence[str], attempts: Sequence[str] = ()) -> None:
        what = ", ".join((*tasks, *attempts))
        super().__init__(
            f"company {company!r} is not deleted while something of it has begun and not ended: {what}. Stop that, "
            "with the process that runs the database or for the next one to do, and wait for its end"
        )
        self.company = company
        self.tasks = tuple(tasks)
        self.attempts = tuple(attempts)


class CompanyDeleted(TurnkeeperError):
    """The company was deleted before the message was taken: nothing happened. Sent again, it makes a new company."""

    def __init__(self, company: str) -> None:
        super().__init__(
            f"company {company!r} was deleted before this was taken: nothing happened; "
            "send it again if it is meant for a new company of that name"
        )
        self.company = company


class CursorTooOld(TurnkeeperError):
    """A reader of the log would go on behind a gap: lines after ``after`` are gone, up to the position ``floor``.

    Look at the facts themselves (``status``, ``tasks``), and then read on with ``after=floor``; or keep the log for
    longer than its slowest reader takes. Of a company that was deleted all lines are gone; ``floor`` is then the end
    of the log.
    """

    def __init__(self, after: int, floor: int, company: str | None = None) -> None:
        whose = "" if company is None else f" of company {company!r}"
        super().__init__(
            f"the log{whose} is gone up to position {floor}, so nobody can read on from {after} without a gap: "
            f"look at the facts and read on with after={floor}, or keep the log longer: Retention(events_s=…)"
        )
        self.after = after
        self.floor = floor
        self.company = company


class IllegalMove(TurnkeeperError):
    """A move outside its table: our mistake, never a sender's. Nothing was changed. ``story`` tells what
    led to it.
    """

    def __init__(
        self, machine: str, key: object, before: str | None, after: str, story: Sequence[str] = ()
    ) -> None:
        tail = f"; before that: {' → '.join(story)}" if story else ""
        super().__init__(f"{machine} {key}: no move from {before} to {after}{tail}")
        self.machine = machine
        self.key = key
        self.before = before
        self.after = after
        self.story = tuple(story)


class ActorCrashed(TurnkeeperError):
    """The company's actor failed on this message: our mistake. ``happened`` is false when nothing was changed."""

    def __init__(self, company: str, cause: str, *, happened: bool = False) -> None:
        outcome = "It may have happened" if happened else "Nothing was changed"
        super().__init__(f"the actor of company {company!r} failed: {cause}. {outcome}")
        self.company = company
        self.cause = cause
        self.happened = happened


class CompanyParked(TurnkeeperError):
    """The company's actor crashed too often and rests until ``until_s`` (Trio clock); `Unpark` ends the rest."""

    def __init__(self, company: str, cause: str, wait_s: float) -> None:
        super().__init__(
            f"company {company!r} is parked for {wait_s:.0f} s after: {cause}. Unpark tries at once"
        )
        self.company = company
        self.cause = cause
        self.wait_s = wait_s


class MailboxFull(TurnkeeperError):
    """``tell_nowait`` found no room. Use ``tell`` or ``ask``, which wait for it."""

    def __init__(self, company: str, limit: int) -> None:
        super().__init__(
            f"the mailbox of company {company!r} holds {limit} messages: await tell, or slow down"
        )
        self.company = company
        self.limit = limit


class RuntimeClosed(TurnkeeperError):
    """The runtime is closed or closing; the message was not taken, so nothing happened."""

    def __init__(self, what: str = "the runtime is closed") -> None:
        super().__init__(f"{what}: nothing was changed; open the runtime again")


class WouldDeadlock(TurnkeeperError):
    """A handler would wait for something that cannot happen before it returns."""

    def __init__(self, task: str, why: str) -> None:
        super().__init__(f"waiting for task {task!r} here would never end: {why}")
        self.task = task
        self.why = why


class GiveUp(Exception):
    """Raised by a handler: the node fails at once, whatever tries are left."""


class RetryAfter(Exception):
    """Raised by a handler: try again in ``seconds`` (at least 1) without counting a try."""

    def __init__(self, seconds: float, reason: str = "") -> None:
        super().__init__(reason or f"asked to be tried again in {seconds} s")
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"RetryAfter needs a finite number of seconds, not {seconds}")
        self.seconds = max(1.0, float(seconds))
