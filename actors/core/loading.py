"""From loaded rows to entries: texts inside the rows are checked here, so a bad row is found before it can
do harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from storage.contract.loading import FoundTasks, LoadedCompany, LoadedTask, unreadable
from storage.records import NodeRecord, TaskRecord
from storage.values import changed

from .cycles import mark_cycles
from .shape import shape_of, spec_of, users_of
from .state import CompanyState
from .task_state import Graph, TaskState


def check_texts(task: TaskRecord, nodes: Sequence[NodeRecord]) -> None:
    """Raise ``ValueError`` if the shape or a node's definition is not of our writing."""
    shape_of(task.shape)
    if any(node.pos != place for place, node in enumerate(nodes)):
        raise ValueError("node rows are not numbered from 0 without a gap")
    users_of([spec_of(node.spec) for node in nodes])


def check_company(loaded: LoadedCompany) -> LoadedCompany:
    """The same, with each task whose texts cannot be read marked as bad."""
    return changed(loaded, tasks=_checked(loaded.tasks), also=check_found(loaded.also))


def check_found(found: FoundTasks) -> FoundTasks:
    """The same, with each task whose texts cannot be read marked as bad."""
    return changed(found, tasks=_checked(found.tasks))


def _checked(tasks: Iterable[LoadedTask]) -> tuple[LoadedTask, ...]:
    return tuple([_check(task) for task in tasks])


def _check(task: LoadedTask) -> LoadedTask:
    if not task.readable:
        return task
    try:
        check_texts(task.record, task.nodes or ())
    except (ValueError, TypeError) as error:
        return unreadable(task.record, task.run, task.quarantined, error)
    return task


def entries_of(loaded: Iterable[LoadedTask]) -> list[TaskState]:
    """Entries for all of them, in the order of their sequence. Bad ones come as quarantined."""
    return [_entry(task) for task in sorted(loaded, key=lambda task: task.record.seq)]


def _entry(task: LoadedTask) -> TaskState:
    entry = TaskState(task.record)
    entry.run = task.run
    entry.quarantined = task.quarantined if task.quarantined is not None else task.bad
    entry.readable = task.readable
    return entry


def take_in(state: CompanyState, loaded: Iterable[LoadedTask], missing: frozenset[str]) -> None:
    """Add loaded tasks that are not in memory yet; what is derived of the others moves along. A task whose rows
    could not be read takes the place of the name that stood for it once they can.
    """
    tasks = [task for task in loaded if _is_news(state, task)]
    for task in tasks:
        state.forget(task.record.id)
    needed = {upstream for task in tasks for upstream in task.record.depends_on}
    for name in missing - state.entries.keys():
        if name in needed or name in state.dependents:
            state.note_missing(name)
    nodes = {task.record.id: task.nodes for task in tasks}
    entries = entries_of(tasks)
    for entry in entries:
        if entry.readable:
            state.set_nodes(entry, nodes[entry.task.id])
    state.load(entries)
    state.flips.clear()


def _is_news(state: CompanyState, task: LoadedTask) -> bool:
    entry = state.entries.get(task.record.id)
    return entry is None or (task.readable and not entry.readable)


def state_of(loaded: LoadedCompany, handlers: frozenset[str] | None) -> CompanyState:
    """A company's state from its rows."""
    state = CompanyState(loaded.company, handlers)
    for graph in loaded.graphs:
        with suppress(ValueError):  # one that cannot be read is as if it were not defined: define it again
            shape = shape_of(graph.shape)
            state.graphs[graph.name] = Graph(graph.name, graph.version, shape, graph.node_payloads)
    take_in(state, loaded.tasks, loaded.missing)
    mark_cycles(state)
    state.schedules.load(loaded.schedules)
    state.flips.clear()
    return state
