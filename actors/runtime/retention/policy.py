"""How long things are kept, and what letting go of them came to."""

from __future__ import annotations

import math

import attrs

from storage.contract.retention import Cutoffs

FIELDS = ("events_s", "attempts_s", "tasks_s", "archived_s", "keys_s")


@attrs.frozen(kw_only=True)
class Retention:
    """How long things are kept, in seconds of the wall clock. ``None``, the default of each, is for ever.

    ``events_s``: lines of the log, from its beginning on, and with them the rows of past processes. Whoever reads
    from a position that is gone gets `CursorTooOld`.

    ``attempts_s``: attempts since their end, once their run is settled.

    ``tasks_s``: completed tasks since they were completed. Failed and stopped ones wait for a person, who may
    archive them. ``archived_s``: archived tasks since they were put away. A task goes with its runs, results and
    attempts. It stays, however old, while another task depends on it; while anything of it is unsettled, alive or
    left behind; and a completed one while it is quarantined.

    ``keys_s``: how long at least an idempotency key is remembered since its task was submitted. A key lives with
    its task, so a task that has one goes only when its key may. Without ``keys_s`` it never does.

    A task id is free again when its task is gone, and so is the identity that handlers were given as `Context.key`.

    Raises ``ValueError`` for what is not a number of seconds of at least 0.
    """

    events_s: float | None = None
    attempts_s: float | None = None
    tasks_s: float | None = None
    archived_s: float | None = None
    keys_s: float | None = None

    def __attrs_post_init__(self) -> None:
        for name in FIELDS:
            value = getattr(self, name)
            if value is not None and not _is_time(value):
                raise ValueError(f"{name} must be a number of seconds of at least 0 or None, not {value!r}")

    @property
    def keeps_all(self) -> bool:
        """Whether nothing ever goes. ``keys_s`` alone lets nothing go."""
        return all(value is None for value in (self.events_s, *self.walked))

    @property
    def walked(self) -> tuple[float | None, ...]:
        """What is looked for company by company."""
        return (self.attempts_s, self.tasks_s, self.archived_s)

    def cutoffs(self, now_ms: int) -> Cutoffs:
        """The moments before which things may go."""

        def before(age_s: float | None) -> int | None:
            return None if age_s is None else max(0, now_ms - round(age_s * 1000))

        return Cutoffs(
            now_ms,
            events_ms=before(self.events_s),
            attempts_ms=before(self.attempts_s),
            tasks_ms=before(self.tasks_s),
            archived_ms=before(self.archived_s),
            keys_ms=before(self.keys_s),
        )


def _is_time(value: object) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    )


@attrs.frozen
class PruneReport:
    """What one pass let go: lines of the log, attempts, tasks. ``errors``: companies that could not be pruned;
    the next pass tries again.
    """

    at_ms: int
    events: int = 0
    attempts: int = 0
    tasks: int = 0
    errors: int = 0


@attrs.frozen
class DeletedCompany:
    """What went with a company that was deleted: rows of all passes, also of processes that died in between."""

    name: str
    tasks: int
    attempts: int
    events: int
