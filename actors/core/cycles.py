"""Circles among dependencies: refused at the edge, and found in a file that somebody else wrote. No recursion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter

from .draft import Draft
from .state import CompanyState
from .task_state import TaskState


def find_cycle(edges: Mapping[str, Sequence[str]]) -> tuple[str, ...] | None:
    """A circle in ``edges`` (task → upstreams), first and last the same; ``None`` if there is none."""
    residue = _residue(edges)
    return None if not residue else _walk_circle(residue, min(residue))


def find_cycles(edges: Mapping[str, Sequence[str]]) -> list[tuple[str, ...]]:
    """For every knot of circles one path through it; tasks that merely hang on a circle are not named."""
    residue = _residue(edges)
    paths = []
    while residue:
        path = _walk_circle(residue, min(residue))
        paths.append(path)
        gone = set(path)
        residue = _residue(
            {task: [u for u in ups if u not in gone] for task, ups in residue.items() if task not in gone}
        )
    return paths


def circle_through(task: str, upstreams: Callable[[str], Sequence[str]]) -> tuple[str, ...] | None:
    """A way from ``task`` up the edges back to itself, first and last the same; ``None`` if there is none."""
    below: dict[str, str] = {}
    work = [task]
    while work:
        current = work.pop()
        for upstream in upstreams(current):
            if upstream == task:
                path = [task]
                while current != task:
                    path.append(current)
                    current = below[current]
                return (task, *reversed(path))
            if upstream not in below:
                below[upstream] = current
                work.append(upstream)
    return None


def mark_cycles(state: CompanyState) -> None:
    """After loading: give the members of every circle their path. Changes no fact."""
    edges = _waiting_edges(state)
    for path in find_cycles(edges):
        for task in path[:-1]:
            entry = state.entries[task]
            entry.cycle = path
            state.refresh(entry, cause=task)


def recheck_cycles(draft: Draft) -> None:
    """A member of a circle changed: those whose circle is broken are free of it."""
    members = [task for task, entry in draft.state.entries.items() if entry.cycle is not None]
    if members:
        _mark_anew(draft, members)


def note_circle(draft: Draft, entry: TaskState) -> None:
    """A task waits for its upstreams again: it may close a circle that somebody planted while it was settled."""
    entries = draft.state.entries

    def waits(task: str) -> bool:
        return task in entries and entries[task].waits_for_upstreams

    def upstreams(task: str) -> Sequence[str]:
        return [up for up in entries[task].task.depends_on if waits(up)]

    task = entry.task.id
    if waits(task) and any(map(waits, draft.state.dependents.get(task, ()))):
        path = circle_through(task, upstreams)
        if path is not None:
            _mark_anew(draft, path)


def _mark_anew(draft: Draft, members: Iterable[str]) -> None:
    still = {task: path for path in find_cycles(_waiting_edges(draft.state)) for task in path[:-1]}
    for task in dict.fromkeys([*members, *still]):
        draft.cycle(draft.state.entries[task], still.get(task))


def _waiting_edges(state: CompanyState) -> dict[str, list[str]]:
    waiting = {
        task for task, entry in state.entries.items() if entry.waits_for_upstreams and entry.task.depends_on
    }
    return {task: [u for u in state.entries[task].task.depends_on if u in waiting] for task in waiting}


def _residue(edges: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """What is left when everything that can finish has finished: the circles and what hangs on them."""
    sorter = TopologicalSorter({task: [up for up in ups if up in edges] for task, ups in edges.items()})
    left = set(edges)
    with suppress(CycleError):  # it goes on as far as it can
        sorter.prepare()
    while ready := sorter.get_ready():
        left.difference_update(ready)
        sorter.done(*ready)
    return {
        task: [upstream for upstream in edges[task] if upstream in left] for task in edges if task in left
    }


def _walk_circle(residue: Mapping[str, Sequence[str]], start: str) -> tuple[str, ...]:
    """Every task of a residue has an upstream in it, so walking up must come round."""
    seen: dict[str, int] = {}
    walk: list[str] = []
    task = start
    while task not in seen:
        seen[task] = len(walk)
        walk.append(task)
        task = residue[task][0]
    return (*walk[seen[task] :], task)
