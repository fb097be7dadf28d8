"""Retention: pruning what is old, and deleting a company.

Nothing here is found and removed in one step. A query finds what may go, in pages, and an operation removes it. The
operation asks again, inside its transaction, whether each thing may still go, and passes by what may not. Each
operation removes at most `ROWS_MAX` rows, so that others wait for milliseconds; only a task goes whole, however
many rows it has. Each records what it did in the log, in the same transaction, and answers with that event.

*Fencing.* An operation on a company names a `Claim`. Where an actor of the company lives it is the actor's claim, so
the actor knows what goes and no turn is under way. Where none lives nobody owns the company. Then the claim holds the
epoch that was read in the same snapshot as the rows. An actor that begins raises the epoch, so the operation either
comes before anything that the actor reads, or it raises `StaleEpoch` and changes nothing. Marking a company for
deletion raises the epoch too: from then on only the claim of the deletion itself is valid. Company ids are never
used again. The log as a whole belongs to no company; only the owner of the database prunes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Generic, TypeVar

from storage.errors import StorageError
from storage.records import Claim, EventRecord
from storage.values import value

from .store import CompanyOperation, Operation, Query

T = TypeVar("T")
K = TypeVar("K")

ROWS_MAX: Final = 500
"""Rows that one operation removes; a task goes whole even if it has more."""
IDS_SHOWN: Final = 100
"""Ids in one ``tasks.pruned`` event; the count beside them is complete."""
ACTIVE_SHOWN: Final = 10
"""Ids of active tasks in one `StillActive`."""


@value
class Cutoffs:
    """Rows from before these times may go, integer UTC milliseconds; where there is none, nothing goes."""

    now_ms: int
    events_ms: int | None = None
    attempts_ms: int | None = None
    tasks_ms: int | None = None
    archived_ms: int | None = None
    keys_ms: int | None = None

    @property
    def any_task_ms(self) -> int | None:
        """No task that was made at or after this time can go."""
        given = [ms for ms in (self.tasks_ms, self.archived_ms) if ms is not None]
        return max(given, default=None)


@value
class Page(Generic[T, K]):
    """Some of what was looked for, and where to continue; ``after`` is ``None`` at the end."""

    found: Sequence[T]
    after: K | None


@value
class Logged:
    """An event that an operation recorded. ``seq`` is its number in its company; ``None`` if it belongs to none."""

    event: EventRecord
    position: int
    seq: int | None = None


# --- the log ------------------------------------------------------------------------------------------------


@value
class FindOldLogEnd(Query[int | None]):
    """The position up to which the log may go in one step: its first lines, as far as they are old.

    ``None`` if there are none, or only ``log.pruned`` events, which are not worth another. A time in the future was
    written by a wrong clock: the next line with a credible time says how old such a line is.
    """

    cutoffs: Cutoffs


@value
class PrunedLog:
    count: int
    logged: Logged


@value
class PruneLog(Operation[PrunedLog | None]):
    """Remove the beginning of the log up to the position ``last``, and rows of past hosts that began before.

    Raises the floors, so that a reader with an older cursor is told. Records ``log.pruned``. Answers ``None``, and
    has changed nothing, if no line was left to remove. Belongs to no company.
    """

    last: int
    before_ms: int
    now_ms: int


# --- attempts and tasks -------------------------------------------------------------------------------------

AttemptKey = tuple[int, int, int, int]
"""Task, run, node and number."""
FIRST_ATTEMPT: Final[AttemptKey] = (0, 0, 0, 0)


@value
class OldCompany:
    """A company in which something may be old: tasks, and attempts of tasks, with numbers below these."""

    company_id: int
    name: str
    tasks_before: int
    attempts_before: int


@value
class FindOldCompanies(Query[Page[OldCompany, int]]):
    """The next companies, after the id ``after``, in which something may be old."""

    cutoffs: Cutoffs
    after: int = 0


@value
class Found(Generic[T]):
    """What may go, and the epoch of the company in the same snapshot."""

    epoch: int
    items: T


@value
class FindOldAttempts(Query[Page[Found[Sequence[AttemptKey]], AttemptKey]]):
    """The next attempts after ``after`` whose run is settled and that ended before ``before_ms``.

    At most one `Found`; none if the company is gone.
    """

    company: OldCompany
    before_ms: int
    after: AttemptKey = FIRST_ATTEMPT


@value
class PrunedAttempts:
    count: int
    logged: Logged


@value
class PruneAttempts(CompanyOperation[PrunedAttempts | None]):
    """Remove those of the attempts that may still go, and record ``attempts.pruned``; ``None`` if there were none.

    Raises `StaleEpoch`.
    """

    claim: Claim
    keys: Sequence[AttemptKey]
    before_ms: int
    now_ms: int


@value
class FindOldTasks(Query[Page[int, int]]):
    """Numbers of the next tasks that are old enough to go, apart from others that may depend on them."""

    company: OldCompany
    cutoffs: Cutoffs
    after: int = 0


@value
class FindPrunableTasks(Query[Found[Mapping[int, str]] | None]):
    """Old tasks that can go in this order, beginning with any of ``starts``: each after all that depend on it.

    Number → id, at most ``limit``, and ``None`` if the company is gone. Not all that can go: what the bounds leave
    out is found from the same starts when these are gone.
    """

    company_id: int
    cutoffs: Cutoffs
    starts: Sequence[int]
    limit: int


@value
class PrunedTasks:
    """``freed``: numbers of tasks on which those that went depended; they may be the next."""

    seqs: frozenset[int]
    freed: Sequence[int]
    logged: Logged


@value
class PruneTasks(CompanyOperation[PrunedTasks | None]):
    """Remove tasks in this order, each whole, and record ``tasks.pruned``; ``None`` if none may go any more.

    A task on which another depends stays, whatever its age. Raises `StaleEpoch`.
    """

    claim: Claim
    seqs: Sequence[int]
    cutoffs: Cutoffs
    now_ms: int


# --- deleting a company -------------------------------------------------------------------------------------


class StillActive(StorageError):
    """The company has active runs, or attempts live; it was not marked. ``tasks``: ids, at most `ACTIVE_SHOWN`."""

    def __init__(self, tasks: Sequence[str], attempts: Sequence[str]) -> None:
        super().__init__(f"still active: {', '.join((*tasks, *attempts))}")
        self.tasks = tuple(tasks)
        self.attempts = tuple(attempts)


@value
class Marked:
    """A company whose deletion has begun; ``claim`` is that of the deletion."""

    claim: Claim
    logged: Logged


@value
class MarkDeleted(CompanyOperation[Marked]):
    """Take the company's name away, and begin its deletion.

    From then on no query finds the company, the name is free, and no earlier claim is valid. Each message that
    waits for it in the inbox is answered with ``inbox_answer``. Records ``company.deleting``.

    ``attempts``: labels of attempts that live in the caller's process, of which the database may not know. Raises
    `StillActive` if there are any, or if runs of the company are active; `StaleEpoch`.
    """

    claim: Claim
    attempts: Sequence[str]
    inbox_answer: str
    now_ms: int


@value
class Deleted:
    """The end of a deletion: how many rows went in all its steps, and the event."""

    name: str
    tasks: int
    attempts: int
    events: int
    logged: Logged


@value
class DeleteSome(CompanyOperation[Deleted | None]):
    """Remove some rows of a marked company. ``None`` while more are left.

    The last step removes the company and records ``company.deleted``, which belongs to no company. Raises
    `StaleEpoch` unless ``claim`` is that of a deletion that is not finished.
    """

    claim: Claim
    now_ms: int


@value
class ListDeletions(Query[Sequence[Claim]]):
    """Claims of all deletions that are not finished, the oldest company first."""
