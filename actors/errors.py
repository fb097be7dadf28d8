"""Errors of the runtime. All derive from `TurnkeeperError`, say what to do, and carry fields.

A *refusal* (`Refused`) is the sender's mistake and changes nothing. Every other error is a fault of this program or
of the machine.
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
    """A message was built from values that it does not allow. Raised by the constructor; nothing was sent."""


class InvalidSpend(TurnkeeperError, ValueError):
    """`Context.spend` was given something other than a number of units. Raised in the handler; nothing was added."""


class Refused(TurnkeeperError):
    """A message was valid but refused. It is the sender's mistake; nothing changed."""


class MoveRefused(Refused):
    """The message does not fit the state of the task's newest run.

    ``advice`` names the messages to send instead; it can be empty.
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
    """The dependencies would form a cycle. ``path`` walks it once and ends where it began."""

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
            f"task id {task!r} belongs to a task with other content: choose another id, or Rerun that task"
        )
        self.task = task


class CompanyUnknown(Refused):
    """No company has this name. The first message to a company creates it."""

    def __init__(self, company: str) -> None:
        super().__init__(f"there is no company {company!r}: check the name")
        self.company = company


class CompanyActive(Refused):
    """A company cannot be deleted while it has active runs, or attempts that are alive or were abandoned.

    ``tasks``: ids of the active ones (at most ten); ``attempts``: ``company/task/run/node/attempt``.
    """

    def __init__(self, company: str, tasks: Sequence[str], attempts: Sequence[str] = ()) -> None:
        what = ", ".join((*tasks, *attempts))
        super().__init__(
            f"company {company!r} cannot be deleted while work of it is under way: {what}. Stop that work and "
            "wait until it has ended; if no process runs the database, the next one ends it"
        )
        self.company = company
        self.tasks = tuple(tasks)
        self.attempts = tuple(attempts)


class CompanyDeleted(TurnkeeperError):
    """The company was deleted before it took the message: nothing happened. Sending it again creates a new company."""

    def __init__(self, company: str) -> None:
        super().__init__(
            f"company {company!r} was deleted before it took the message: nothing happened; "
            "send it again to create a new company of that name"
        )
        self.company = company


class CursorTooOld(TurnkeeperError):
    """The log has a gap after the position ``after``: its lines up to the position ``floor`` were pruned.

    Read the current state (``status``, ``tasks``), and then continue with ``after=floor``; or keep the log for
    longer than its slowest reader needs. If a company was deleted, all its lines are gone, and ``floor`` is the end
    of the log.
    """

    def __init__(self, after: int, floor: int, company: str | None = None) -> None:
        whose = "" if company is None else f" of company {company!r}"
        super().__init__(
            f"the log{whose} was pruned up to position {floor}, so reading on from {after} would skip lines: "
            f"read the current state and continue with after={floor}, or keep the log longer: Retention(events_s=…)"
        )
        self.after = after
        self.floor = floor
        self.company = company


class IllegalMove(TurnkeeperError):
    """A move that its table does not allow: a fault of this program, never of a sender. Nothing was changed.
    ``story`` lists the moves before it.
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
    """The company's actor failed on this message, by a fault of this program. ``happened`` is false if nothing was
    changed."""

    def __init__(self, company: str, cause: str, *, happened: bool = False) -> None:
        outcome = "It may have happened" if happened else "Nothing was changed"
        super().__init__(f"the actor of company {company!r} failed: {cause}. {outcome}")
        self.company = company
        self.cause = cause
        self.happened = happened


class CompanyParked(TurnkeeperError):
    """The company's actor crashed too often and rests for ``wait_s`` seconds; `Unpark` ends the rest."""

    def __init__(self, company: str, cause: str, wait_s: float) -> None:
        super().__init__(
            f"company {company!r} is parked for {wait_s:.0f} s after: {cause}. Unpark tries at once"
        )
        self.company = company
        self.cause = cause
        self.wait_s = wait_s


class MailboxFull(TurnkeeperError):
    """``tell_nowait`` found the mailbox full. Use ``tell`` or ``ask``, which wait for room."""

    def __init__(self, company: str, limit: int) -> None:
        super().__init__(
            f"the mailbox of company {company!r} holds {limit} messages: await tell, or slow down"
        )
        self.company = company
        self.limit = limit


class RuntimeClosed(TurnkeeperError):
    """The runtime is closed or closing. The message was not taken, so nothing happened."""

    def __init__(self, what: str = "the runtime is closed") -> None:
        super().__init__(f"{what}: nothing was changed; open the runtime again")


class WouldDeadlock(TurnkeeperError):
    """A handler would wait for something that cannot happen until it returns."""

    def __init__(self, task: str, why: str) -> None:
        super().__init__(f"waiting for task {task!r} here would never end: {why}")
        self.task = task
        self.why = why


class GiveUp(Exception):
    """Raised by a handler: the node fails at once, even if it has tries left."""


class RetryAfter(Exception):
    """Raised by a handler: try again in ``seconds`` (at least 1) without counting a try."""

    def __init__(self, seconds: float, reason: str = "") -> None:
        super().__init__(reason or f"asked to be tried again in {seconds} s")
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"RetryAfter needs a finite number of seconds, not {seconds}")
        self.seconds = max(1.0, float(seconds))
