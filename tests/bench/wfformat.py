"""Reading recorded workflows in WfFormat 1.4 (https://wfcommons.org/format): tasks, their parents and run times."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from actors.messages import PRIORITY_MAX


class BadWorkflow(Exception):
    """The file is not a workflow that can be replayed; says why in one line."""


@attrs.frozen
class Step:
    """One recorded task. ``parents`` are places in the workflow; a higher ``priority`` ran first."""

    name: str
    parents: tuple[int, ...]
    runtime_s: float
    priority: int | None = None


def read_workflow(path: Path) -> tuple[Step, ...]:
    """The steps of the file, in its order; raises `BadWorkflow`."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BadWorkflow(f"{path} cannot be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise BadWorkflow(f"{path} is not JSON: {error}") from None
    try:
        return steps_of(content)
    except BadWorkflow as error:
        raise BadWorkflow(f"{path}: {error}") from None


def steps_of(content: object) -> tuple[Step, ...]:
    """The steps of a decoded file; raises `BadWorkflow` also for parents that are unknown or go in a circle."""
    workflow = content.get("workflow") if isinstance(content, dict) else None
    tasks = workflow.get("tasks") if isinstance(workflow, dict) else None
    if not isinstance(tasks, list):
        raise BadWorkflow("not WfFormat 1.4: there is no list workflow.tasks")
    if not tasks:
        raise BadWorkflow("the workflow has no tasks")
    for place, task in enumerate(tasks):
        if not isinstance(task, dict):
            raise BadWorkflow(f"task {place} is not an object")
    places = _places(tasks)
    steps = tuple(_step(task, place, places) for place, task in enumerate(tasks))
    in_order(steps)
    return steps


def _places(tasks: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Where each name, and each id that is nobody's name, stands."""
    places: dict[str, int] = {}
    for place, task in enumerate(tasks):
        if not isinstance(task.get("name", task.get("id")), str):
            raise BadWorkflow(f"task {place} has neither a name nor an id")
    for field in ("name", "id"):
        mine: dict[str, int] = {}
        for place, task in enumerate(tasks):
            called = task.get(field)
            if not isinstance(called, str):
                continue
            if field == "name" and called in mine and "id" not in task:
                raise BadWorkflow(f"two tasks are named {called!r}")
            mine.setdefault(called, place)
        places |= {called: place for called, place in mine.items() if called not in places}
    return places


def _step(task: Mapping[str, Any], place: int, places: Mapping[str, int]) -> Step:
    name = task.get("name", task.get("id"))
    assert isinstance(name, str)
    parents = task.get("parents", [])
    if not isinstance(parents, list):
        raise BadWorkflow(f"parents of {name!r} are not a list")
    for parent in parents:
        if not isinstance(parent, str) or parent not in places:
            raise BadWorkflow(f"{name!r} has the parent {parent!r}, which is not a task of the workflow")
    above = tuple(dict.fromkeys(places[parent] for parent in parents))
    return Step(name, above, _runtime(task, name), _priority(task, name))


def _runtime(task: Mapping[str, Any], name: str) -> float:
    value = task.get("runtimeInSeconds", task.get("runtime"))
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise BadWorkflow(f"runtimeInSeconds of {name!r} must be a number of at least 0, not {value!r}")
    return float(value)


def _priority(task: Mapping[str, Any], name: str) -> int | None:
    value = task.get("priority")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > PRIORITY_MAX:
        raise BadWorkflow(
            f"priority of {name!r} must be a whole number within ±{PRIORITY_MAX}, not {value!r}"
        )
    return value


def in_order(steps: Sequence[Step]) -> list[int]:
    """The places in an order in which every step comes after its parents; raises `BadWorkflow` for a circle."""
    unmet = [len(step.parents) for step in steps]
    children: list[list[int]] = [[] for _ in steps]
    for place, step in enumerate(steps):
        for parent in step.parents:
            children[parent].append(place)
    order = [place for place, count in enumerate(unmet) if count == 0]
    for place in order:
        for child in children[place]:
            unmet[child] -= 1
            if unmet[child] == 0:
                order.append(child)
    if len(order) < len(steps):
        stuck = sorted(steps[place].name for place, count in enumerate(unmet) if count)
        raise BadWorkflow(f"parents go in a circle among: {', '.join(stuck[:5])}")
    return order
