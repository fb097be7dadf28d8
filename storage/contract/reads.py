"""What readers ask for besides a company's state: texts that no decision needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storage.records import AttemptRecord
from storage.values import value

from .store import Query


@value
class TaskIds(Query[tuple[str, ...]]):
    """Ids of a company's tasks in the order of creation; none if there is no such company."""

    company: str
    archived: bool
    """Whether archived ones are among them."""


@value
class Titles(Query[Mapping[str, str]]):
    """Titles by task id; ids that no task has are left out."""

    company_id: int
    ids: Sequence[str]


@value
class TaskAttempts(Query[Sequence[tuple[str, AttemptRecord]] | None]):
    """Every attempt of every run of a task, oldest first, each with the JSON text of its node's definition;
    ``None`` if there is no such task.
    """

    company: str
    task: str


@value
class Results(Query[Sequence[tuple[str, str]]]):
    """Of the succeeded nodes of a run, in their order: the JSON texts of the definition and of the result."""

    company_id: int
    seq: int
    run: int
