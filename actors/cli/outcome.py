"""What the states of all tasks amount to: does anything continue by itself, how did it end, what can a person do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from actors import ReasonKind, TaskStatus, WorkState
from actors.cli.advice import command_line
from actors.sentences import reason_sentence

TASKS_LISTED: Final = 20
"""Of the tasks that did not complete, in a summary: what fits on one screen."""
NODES_LISTED: Final = 3

_BY_THEMSELVES: Final = frozenset(
    {
        ReasonKind.EXECUTING,
        ReasonKind.BACKING_OFF,
        ReasonKind.NODE_READY,
        ReasonKind.ENDING,
        ReasonKind.COMPANY_PARKED,
        ReasonKind.STORE_UNAVAILABLE,
        ReasonKind.DRAINING,
    }
)
"""What passes without a person. Waiting for other tasks is not among them: those tasks answer for themselves."""

_FOR_A_PERSON: Final = frozenset({ReasonKind.MANUAL, ReasonKind.COMPANY_PAUSED})
"""What a task whose time has come would still wait for."""

_ORDER: Final = (
    WorkState.COMPLETED,
    WorkState.RUNNING,
    WorkState.STOPPING,
    WorkState.QUEUED,
    WorkState.WAITING,
    WorkState.SCHEDULED,
    WorkState.HELD,
    WorkState.PAUSED,
    WorkState.BLOCKED,
    WorkState.HALTED,
    WorkState.FAILED,
    WorkState.STOPPED,
    WorkState.QUARANTINED,
    WorkState.ARCHIVED,
)


def word(state: WorkState) -> str:
    """The state, as a plan calls it."""
    return "manual" if state is WorkState.HELD else state.value


@attrs.frozen
class Tally:
    """How many tasks of one company are in which state, and which are executing now."""

    states: Mapping[WorkState, int]
    executing: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        return sum(self.states.values())

    @property
    def completed(self) -> int:
        return self.states.get(WorkState.COMPLETED, 0)

    def words(self) -> str:
        """The states other than completed, most promising first."""
        counts = ((state, self.states.get(state, 0)) for state in _ORDER if state is not WorkState.COMPLETED)
        return ", ".join(f"{count} {word(state)}" for state, count in counts if count)

    def sentence(self) -> str:
        words = self.words()
        return f"{self.completed} of {self.total} completed" + (f", {words}" if words else "")


def tally(statuses: Iterable[TaskStatus]) -> Tally:
    states: Counter[WorkState] = Counter()
    executing: list[str] = []
    for status in statuses:
        states[status.state] += 1
        for reason in status.reasons:
            if reason.kind is ReasonKind.EXECUTING and len(executing) < NODES_LISTED:
                executing.append(status.id)
    return Tally(states, tuple(executing))


def goes_on(status: TaskStatus) -> bool:
    """Whether something will happen to this task without a person and without any other task."""
    if status.state is WorkState.SCHEDULED:
        return not any(reason.kind in _FOR_A_PERSON for reason in status.reasons)
    if status.state not in (WorkState.RUNNING, WorkState.STOPPING, WorkState.QUEUED, WorkState.PAUSED):
        return False
    for reason in status.reasons:
        if reason.kind in _BY_THEMSELVES:
            return True
        if reason.kind is ReasonKind.EXECUTION_SLOT and reason.tasks:
            return True  # without holders there is no slot at all
        if reason.kind is ReasonKind.TASKS_AHEAD and not reason.tasks:
            return True  # it is the next to start
    return False


def at_rest(statuses: Iterable[TaskStatus]) -> bool:
    """Whether nothing continues without a person."""
    return not any(goes_on(status) for status in statuses)


def all_completed(statuses: Iterable[TaskStatus]) -> bool:
    return all(status.state is WorkState.COMPLETED for status in statuses)


def unfinished(statuses: Iterable[TaskStatus]) -> list[TaskStatus]:
    """What did not complete, the causes before what they hold up."""
    causes = (WorkState.FAILED, WorkState.QUARANTINED, WorkState.STOPPED)
    rank = dict.fromkeys(causes, 0) | {WorkState.HELD: 1, WorkState.HALTED: 1}
    left = [status for status in statuses if status.state is not WorkState.COMPLETED]
    return sorted(left, key=lambda status: rank.get(status.state, 2))


def name_of(status: TaskStatus) -> str:
    return f"{status.company}/{status.id}"


def why(status: TaskStatus, now_ms: int) -> str:
    """The first reason of a task, or its state if it has none."""
    return reason_sentence(status.reasons[0], now_ms) if status.reasons else status.state.value


def summary_lines(tallies: Mapping[str, Tally], statuses: Sequence[TaskStatus], now_ms: int) -> list[str]:
    """How every company ended, and the tasks that did not complete with their reasons."""
    width = max((len(company) for company in tallies), default=0)
    lines = [f"{company:<{width}}  {one.sentence()}" for company, one in tallies.items()]
    left = unfinished(statuses)
    if left:
        lines.append("")
    lines += [f"{name_of(status)} {why(status, now_ms)}" for status in left[:TASKS_LISTED]]
    if len(left) > TASKS_LISTED:
        lines.append(f"… and {len(left) - TASKS_LISTED} more")
    return lines


def next_steps(statuses: Iterable[TaskStatus], plan: Path, db: Path) -> list[str]:
    """Commands that move what a person can move; one for each kind of move, with the first task it fits."""
    steps = []
    left = unfinished(statuses)
    for states, option in (
        ((WorkState.FAILED, WorkState.STOPPED), "--retry"),
        ((WorkState.HELD,), "--start"),
    ):
        fitting = next((status for status in left if status.state in states), None)
        if fitting is not None:
            steps.append(command_line(("run", str(plan), option, name_of(fitting)), db))
    blocked = next((status for status in left if status.state is WorkState.BLOCKED), None)
    if blocked is not None:
        steps.append(command_line(("explain", name_of(blocked)), db))
    return steps
