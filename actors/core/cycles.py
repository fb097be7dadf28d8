"""Circles among dependencies: refused at the edge, and found in a file that somebody else wrote. No recursion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from .draft import Draft
from .state import CompanyState


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


def path_to(
    start: str, goal: Iterable[str], upstreams: Callable[[str], Sequence[str]]
) -> tuple[str, ...] | None:
    """The way from ``start`` up the edges to ``goal``: what a new edge goal → start would close into a circle."""
    targets = set(goal)
    came: dict[str, str | None] = {start: None}
    work = [start]
    while work:
        task = work.pop()
        if task in targets:
            path = [task]
            while (before := came[path[-1]]) is not None:
                path.append(before)
            return tuple(reversed(path))
        for upstream in upstreams(task):
            if upstream not in came:
                came[upstream] = task
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
    state = draft.state
    members = [task for task, entry in state.entries.items() if entry.cycle is not None]
    if not members:
        return
    still = {task: path for path in find_cycles(_waiting_edges(state)) for task in path[:-1]}
    for task in members:
        draft.cycle(state.entries[task], still.get(task))


def _waiting_edges(state: CompanyState) -> dict[str, list[str]]:
    waiting = {
        task for task, entry in state.entries.items() if entry.waits_for_upstreams and entry.task.depends_on
    }
    return {task: [u for u in state.entries[task].task.depends_on if u in waiting] for task in waiting}


def _residue(edges: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """What is left when everything that can finish has finished: the circles and what hangs on them."""
    unmet = {task: sum(upstream in edges for upstream in ups) for task, ups in edges.items()}
    users: dict[str, list[str]] = {}
    for task, ups in edges.items():
        for upstream in ups:
            if upstream in edges:
                users.setdefault(upstream, []).append(task)
    free = [task for task, count in unmet.items() if count == 0]
    while free:
        task = free.pop()
        del unmet[task]
        for user in users.get(task, ()):
            unmet[user] -= 1
            if unmet[user] == 0:
                free.append(user)
    return {task: [upstream for upstream in edges[task] if upstream in unmet] for task in unmet}


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
