"""Loading companies and tasks. One bad row is reported as such and never keeps the others from being read."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

import attrs

from storage.records import CompanyRecord, NodeRecord, RunRecord, ScheduleRecord, TaskRecord
from storage.values import value

from .store import Query


@value
class LoadedTask:
    """A task as the tables have it. ``bad`` says why its rows cannot be trusted, if it is not in quarantine for
    it yet. Where rows are not ``readable`` the record is only a name for the task.
    """

    record: TaskRecord
    run: RunRecord | None = None
    nodes: tuple[NodeRecord, ...] | None = None
    """From the run's first admission on."""
    quarantined: str | None = None
    bad: str | None = None
    traceback: str | None = None
    readable: bool = True


def unreadable(
    record: TaskRecord, run: RunRecord | None, quarantined: str | None, error: BaseException
) -> LoadedTask:
    """A task whose rows cannot be read; of ``record`` only what names it is used, of ``run`` only in quarantine."""
    name = TaskRecord(
        seq=record.seq,
        id=record.id,
        priority=record.priority,
        created_ms=record.created_ms,
        depends_on=record.depends_on,
        archived_ms=record.archived_ms,
    )
    if quarantined is not None:
        return LoadedTask(name, run, quarantined=quarantined, readable=False)
    shown = "".join(traceback.format_exception(error))
    return LoadedTask(name, bad=f"bad row: {error}", traceback=shown, readable=False)


@value
class LoadedGraph:
    """A company graph; its texts are not checked."""

    name: str
    version: int
    shape: str
    node_payloads: str | None


@value
class FoundTasks:
    """Tasks that were asked for by id, and those upstreams of theirs that are not done."""

    tasks: tuple[LoadedTask, ...]
    known: frozenset[str]
    """Of the ids that were asked for, those that are a task's."""
    missing: frozenset[str]
    """Of them and of the upstreams, those that are not."""


@value
class LoadedCompany:
    """What an actor begins with."""

    company: CompanyRecord
    graphs: tuple[LoadedGraph, ...]
    tasks: tuple[LoadedTask, ...]
    missing: frozenset[str]
    """Upstream ids that no task has: planted rows."""
    schedules: tuple[ScheduleRecord, ...] = ()
    also: FoundTasks = attrs.field(factory=lambda: FoundTasks((), frozenset(), frozenset()))
    """What was asked for besides."""


@value
class LoadCompany(Query[LoadedCompany | None]):
    """A company with its unsettled tasks, the upstreams of theirs that are not done, its graphs and schedules;
    ``None`` if there is no company of this name. The cost does not grow with the tasks that are settled.

    ``also``: ids of tasks to load besides, in whatever state. Without ``with_schedules`` the schedules are left out.
    """

    name: str
    also: Sequence[str] = ()
    with_schedules: bool = True


@value
class FindTasks(Query[tuple[CompanyRecord, FoundTasks] | None]):
    """Tasks of a company by id, in whatever state; ``None`` if there is no company of this name."""

    name: str
    ids: Sequence[str]


@value
class LoadSchedules(Query[tuple[ScheduleRecord, ...]]):
    """A company's schedules by name, each with what is wrong with its row if something is."""

    name: str
