"""What all messages have in common, and the limits of what they carry."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

R_co = TypeVar("R_co", covariant=True)

PRIORITY_DEFAULT = 2
PRIORITY_MAX = 1_000_000
ATTEMPTS_MAX_DEFAULT = 3
ATTEMPTS_MAX_LIMIT = 1_000
SEND_BACKS_MAX_DEFAULT = 10
"""Of one node in one run: a review that is never content would otherwise go round for ever."""
SEND_BACKS_MAX_LIMIT = 1_000
FEEDBACK_CHARS_MAX = 10_000
"""A page or two: it stands in the row of every node that is done again. More belongs in a file that it names."""
STALL_S_DEFAULT = 3600.0
"""An hour without a word and an attempt counts as stalled."""
TITLE_CHARS_MAX = 500
NODES_MAX = 10_000
"""Nodes of one run. A message is decided in one go, so it has a bound."""
TASKS_MAX = 10_000
"""Tasks of one SubmitMany."""
DEPENDS_ON_MAX = 10_000
RUNS_MAX_LIMIT = 1_000_000
UNITS_MAX = 10**15
"""Of an estimate, or what one attempt spends. Nine thousand such sums fit into SQLite's integers."""
LIMIT_MAX = 9 * 10**18
"""Of a budget: as far as what is spent is counted."""
WEIGHT_LIMIT = 1_000
SECONDS_LIMIT = 10 * 365 * 86_400.0
"""Ten years: a longer duration is a mistake, and sums of it stay exact."""
JITTER_S_LIMIT = 86_400.0
"""A day: what is to start so much later than its time wants another time."""


class Unset:
    """The type of `UNSET`: a field of `Edit` or `Rerun` that is left as it is."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset()


class Message(Generic[R_co]):
    """Base of everything a company can be told. ``R_co`` is the type of its reply."""

    __slots__ = ()
    control: ClassVar[bool] = False
    """Control messages go by the system lane, so they may overtake submits that were sent but not yet taken."""
