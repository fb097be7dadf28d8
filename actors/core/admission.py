"""What stands between a queued task and its run slot: one list of gates, asked in one order.

Dispatch asks the gates and admits where none is closed; `Explain` asks the same gates and reports the
closed ones. So a task that nothing explains is a task that starts. A task's own gates depend on its facts
and its upstreams; the company's gates are the same for all its tasks (but for those a person let past a
pause); the last gate is the line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from actors.messages.views import IDS_SHOWN, Reason, ReasonKind
from storage.records import Mode, RunStatus
from storage.values import value

from .budget import room_in, starved_reasons
from .facts import Facts
from .order import order_key
from .task_state import Standing, TaskState, is_halted_on_budget

_NOBODY: Mapping[Any, Any] = MappingProxyType({})


@value
class Live:
    """What only the running host knows. The default is a host with nothing in the way."""

    draining: bool = False
    parked: str | None = None
    store_down: str | None = None
    no_host: bool = False
    alive: frozenset[tuple[str, int, int]] = frozenset()
    """Task, run and position of the nodes whose last attempt is still registered: another one has to wait."""
    slots_free: bool = True
    slot_holders: tuple[str, ...] = ()
    """Who holds the execution slots, as ``company/task/run/node/attempt``."""
    suspect: str | None = None
    """The attempt at a suspect that is alive in this process, in whatever company, in the same form."""
    abandoned: tuple[str, ...] = ()
    """Attempts that were left behind and live, if they are so many that nothing new starts."""
    waiting: Mapping[tuple[str, str], tuple[str, int]] = _NOBODY
    """(task, node) → what the live attempt waits for, and since when, ms."""
    progress: Mapping[tuple[str, str], str] = _NOBODY
    """(task, node) → what the live attempt last said of itself."""


OPEN = Live()


def task_gates(state: Facts, entry: TaskState) -> Iterator[Reason]:
    """The closed gates of the task itself, each with what it concerns."""
    for is_closed, reasons in _TASK_GATES:
        if is_closed(entry):
            yield from reasons(state, entry)


def is_open(entry: TaskState) -> bool:
    """Whether no gate of the task itself is closed. Looks at counters and never at edges, however many there are."""
    return not any(is_closed(entry) for is_closed, _ in _TASK_GATES)


def hold_gates(state: Facts, entry: TaskState, live: Live) -> Iterator[Reason]:
    """What keeps the company from starting anything, runs and attempts alike, as it is for this task."""
    if live.no_host:
        yield Reason(ReasonKind.NO_HOST)
    if live.draining:
        yield Reason(ReasonKind.DRAINING)
    if live.parked is not None:
        yield Reason(ReasonKind.COMPANY_PARKED, text=live.parked)
    if live.abandoned:
        shown = live.abandoned[:IDS_SHOWN]
        yield Reason(ReasonKind.ABANDONED_LIMIT, count=len(live.abandoned), text=", ".join(shown))
    if live.store_down is not None:
        yield Reason(ReasonKind.STORE_UNAVAILABLE, text=live.store_down)
    if state.company.paused_ms is not None and not (entry.run is not None and entry.run.front):
        yield Reason(ReasonKind.COMPANY_PAUSED, at_ms=state.company.paused_ms)


def company_gates(state: Facts, entry: TaskState, live: Live) -> Iterator[Reason]:
    """The closed gates of the company for a task that wants a run slot."""
    yield from hold_gates(state, entry, live)
    if state.slots_free == 0:
        holders = tuple(task for _, task in sorted(state.slots.items()))
        waits = [
            f"{task} waits for: {why}" for (task, _), (why, _) in live.waiting.items() if task in holders
        ]
        yield Reason(
            ReasonKind.RUN_SLOTS,
            tasks=holders[:IDS_SHOWN],
            count=len(holders),
            numbers={"active": len(holders), "runs_max": state.company.runs_max},
            text="; ".join(waits[:IDS_SHOWN]) or None,
        )
    if state.company.budget is not None:
        yield from starved_reasons(state, entry, state.company)


def line_gate(state: Facts, entry: TaskState) -> Reason | None:
    """Closed while as many tasks as there are free slots go first. For reads: it looks at every open task."""
    assert entry.run is not None
    key, room = order_key(entry.task, entry.run), room_in(state.company)
    if room is None:
        first, count = state.open.ahead_of(key, IDS_SHOWN)
    else:
        first, count = state.open_by_need.ahead_of(key, IDS_SHOWN, room)
    if count < max(1, state.slots_free):
        return None
    return Reason(ReasonKind.TASKS_AHEAD, tasks=tuple(first), count=count)


def admissible(state: Facts, live: Live) -> TaskState | None:
    """The first in order whose gates are all open: what `advance` admits next.

    Only the first can be it, of those that the company's budget has room for.
    Those let past a pause stand in front, so if the first one may not, nobody may.
    """
    if state.slots_free == 0:
        return None  # the gate that is closed most of the time, asked without building its reason
    room = room_in(state.company)
    first = state.open.first() if room is None else state.open_by_need.first(room)
    if first is None:
        return None
    entry = state.entries[first]
    return entry if next(company_gates(state, entry, live), None) is None else None


def dead_upstreams(state: Facts, entry: TaskState) -> Iterator[Reason]:
    """One reason per kind of dead upstream, each with the ids, in the order of the table of states."""
    groups: dict[ReasonKind, list[str]] = {}
    for upstream in entry.task.depends_on:
        kind = _dead_kind(state, upstream)
        if kind is not None:
            groups.setdefault(kind, []).append(upstream)
    for kind in _DEAD_ORDER:
        if kind in groups:
            ids = groups[kind]
            yield Reason(kind, tasks=tuple(ids[:IDS_SHOWN]), count=len(ids))


_DEAD_ORDER = (
    ReasonKind.UPSTREAM_FAILED,
    ReasonKind.UPSTREAM_STOPPED,
    ReasonKind.UPSTREAM_HALTED,
    ReasonKind.UPSTREAM_BLOCKED,
    ReasonKind.UPSTREAM_MISSING,
    ReasonKind.UPSTREAM_ARCHIVED,
    ReasonKind.UPSTREAM_QUARANTINED,
)


def _dead_kind(state: Facts, upstream: str) -> ReasonKind | None:
    if state.standing(upstream) is not Standing.DEAD:
        return None
    entry = state.entries.get(upstream)
    if entry is None:
        return ReasonKind.UPSTREAM_MISSING
    if entry.quarantined is not None:
        return ReasonKind.UPSTREAM_QUARANTINED
    if entry.task.archived_ms is not None:
        return ReasonKind.UPSTREAM_ARCHIVED
    if entry.run is not None and entry.run.status is RunStatus.FAILED:
        return ReasonKind.UPSTREAM_FAILED
    if entry.run is not None and entry.run.status is RunStatus.STOPPED:
        return ReasonKind.UPSTREAM_STOPPED
    if is_halted_on_budget(entry):
        return ReasonKind.UPSTREAM_HALTED
    return ReasonKind.UPSTREAM_BLOCKED


def unfinished_upstreams(state: Facts, entry: TaskState) -> Iterator[Reason]:
    ids = [upstream for upstream in entry.task.depends_on if state.standing(upstream) is Standing.UNFINISHED]
    yield Reason(ReasonKind.UPSTREAM_UNFINISHED, tasks=tuple(ids[:IDS_SHOWN]), count=len(ids))


_TaskGate = tuple[
    Callable[[TaskState], bool],
    Callable[["Facts", TaskState], Iterable[Reason]],
]
_TASK_GATES: tuple[_TaskGate, ...] = (
    (
        lambda entry: entry.quarantined is not None,
        lambda _, entry: [Reason(ReasonKind.QUARANTINED, text=entry.quarantined)],
    ),
    (
        lambda entry: entry.cause is not None,
        lambda _, entry: [] if entry.cause is None else [entry.cause],
    ),
    (
        lambda entry: not entry.admitted and entry.dead > 0,
        dead_upstreams,
    ),
    (
        lambda entry: not entry.admitted and entry.unfinished > entry.dead,
        unfinished_upstreams,
    ),
    (
        lambda entry: entry.early is not None,
        lambda _, entry: [Reason(ReasonKind.NOT_BEFORE, at_ms=entry.early)],
    ),
    (
        lambda entry: entry.task.mode is Mode.MANUAL and entry.run is not None and not entry.run.started,
        lambda _, entry: [
            Reason(ReasonKind.MANUAL, at_ms=None if entry.run is None else entry.run.created_ms)
        ],
    ),
    (
        lambda entry: entry.starved,
        lambda state, entry: starved_reasons(state, entry, entry.task),
    ),
)
"""In the order in which they are asked: whether the gate is closed, and what it says then."""
