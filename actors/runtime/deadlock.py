"""Seeing beforehand that a handler would wait for itself.

A handler that waits for a task's end keeps its own task from ending. So does one that waits for a task
which waits for it in turn: by a dependency, by a handler of its own that waits, or for a run slot when
every run that holds one waits for the handler's own task. None of these can end by itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from actors.core.state import CompanyState
from actors.errors import WouldDeadlock

from .attempts import AttemptRef
from .services import Services

TaskName = tuple[str, str]
"""Company and id."""


def refuse_deadlock(services: Services, me: AttemptRef, target: TaskName) -> None:
    """Raise `WouldDeadlock` if the attempt ``me`` would wait for ever for the end of ``target``."""
    mine, (company, task) = (me.company, me.key.task), target
    if target == mine:
        raise WouldDeadlock(task, "it is the task of the handler that waits")
    if _waits_for(services, target, mine):
        raise WouldDeadlock(task, f"it waits in turn for {me.key.task!r}, whose handler waits for it")
    state = _state(services, company)
    entry = None if state is None else state.entries.get(task)
    if state is None or entry is None or not entry.queued or company != me.company or state.slots_free:
        return
    holders = [(company, holder) for holder in state.slots.values()]
    if holders and all(holder == mine or _waits_for(services, holder, mine) for holder in holders):
        raise WouldDeadlock(
            task, f"it needs a run slot, and the run of {me.key.task!r} that waits for it holds one"
        )


def _waits_for(services: Services, task: TaskName, other: TaskName) -> bool:
    """Whether the end of ``task`` has to wait for that of ``other``, at whatever distance."""
    seen = {task}
    work = [task]
    while work:
        for name in _waited_for(services, work.pop()):
            if name == other:
                return True
            if name not in seen:
                seen.add(name)
                work.append(name)
    return False


def _waited_for(services: Services, task: TaskName) -> Iterator[TaskName]:
    """Whose ends come before this one's: what its handlers wait for, and its upstreams before it is admitted."""
    company, name = task
    for attempt in services.registry.of_company(company):
        if attempt.ref.key.task == name:
            yield from attempt.waits_for
    state = _state(services, company)
    entry = None if state is None else state.entries.get(name)
    if entry is not None and entry.waits_for_upstreams:
        yield from ((company, upstream) for upstream in entry.task.depends_on)


def _state(services: Services, company: str) -> CompanyState | None:
    memory = services.directory.memory(company)
    return None if memory is None else memory.state
