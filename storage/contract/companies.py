"""Companies: claiming, finding and listing them, and which of them have to look."""

from __future__ import annotations

from collections.abc import Sequence

from storage.records import CompanyRecord
from storage.values import value

from .store import Operation, Query


@value
class ClaimCompany(Operation[CompanyRecord | None]):
    """Become the company's actor: its epoch rises, so that every earlier claim ends.

    ``create``: make the company if there is none; without it the answer is ``None`` then.
    """

    name: str
    create: bool


@value
class FindCompany(Query[CompanyRecord | None]):
    """The company of this name; ``None`` if there is none."""

    name: str


@value
class ListCompanies(Query[tuple[str, ...]]):
    """Names of all companies, sorted."""


@value
class SweepCompanies:
    """``urgent``: names of companies in which something runs or whose time has come; ``waiting``: those that
    have unsettled runs which do not all wait for a person, the oldest-checked first.
    """

    urgent: tuple[str, ...]
    waiting: tuple[str, ...]


@value
class FindSweepCompanies(Query[SweepCompanies]):
    """Companies that the sweep has to ask. ``limit`` bounds those that are due and those that wait, not those in
    which something runs.
    """

    now_ms: int
    limit: int


@value
class MarkChecked(Operation[None]):
    """The sweep has looked at these companies. A note of the sweep's own, which no actor reads or writes, so it is
    made without a claim. Names that no company has are ignored.
    """

    names: Sequence[str]
    now_ms: int


@value
class DueCompany:
    """``due_ms``: the earliest time at which something in it becomes due; ``has_schedules``: it may be a schedule."""

    name: str
    due_ms: int
    has_schedules: bool


@value
class DueCompanies(Query[tuple[DueCompany, ...]]):
    """Companies that have a due time, the earliest first, at most ``limit``."""

    limit: int
