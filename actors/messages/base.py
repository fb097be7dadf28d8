"""What all messages have in common, and the limits of what they carry."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

R_co = TypeVar("R_co", covariant=True)

PRIORITY_DEFAULT = 2
PRIORITY_MAX = 1_000_000
TRIES_MAX_DEFAULT = 3
TRIES_MAX_LIMIT = 1_000
SEND_BACKS_MAX_DEFAULT = 10
"""For each node of a run. Otherwise a review that is never satisfied would loop for ever."""
SEND_BACKS_MAX_LIMIT = 1_000
FEEDBACK_CHARS_MAX = 10_000
"""A page or two: it is stored with every node that is redone. Put more in a file and name it."""
STALL_S_DEFAULT = 3600.0
"""An attempt that reports nothing for an hour counts as stalled."""
TITLE_CHARS_MAX = 500
NODES_MAX = 10_000
"""Nodes of one run. A message is handled in one turn, so its size is bounded."""
TASKS_MAX = 10_000
"""Tasks of one SubmitMany."""
DEPENDS_ON_MAX = 10_000
RUNS_MAX_LIMIT = 1_000_000
UNITS_MAX = 10**15
"""Limit of an estimate, and of what one attempt spends. SQLite's integers hold nine thousand times as much."""
LIMIT_MAX = 9 * 10**18
"""Limit of a budget, and of the amounts that are counted."""
WEIGHT_LIMIT = 1_000
SECONDS_LIMIT = 10 * 365 * 86_400.0
"""Ten years: a longer duration is a mistake, and sums of it stay exact."""
JITTER_S_LIMIT = 86_400.0
"""A day. A start that may be later than that needs another schedule."""


class Unset:
    """The type of `UNSET`: a field of `Edit` or `Rerun` that is left as it is."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset()


class Message(Generic[R_co]):
    """Base of all messages to a company. ``R_co`` is the type of its reply."""

    __slots__ = ()
    control: ClassVar[bool] = False
    """Control messages use the system lane, so they may overtake submits that were sent but not yet taken."""
