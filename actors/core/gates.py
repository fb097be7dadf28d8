"""What stands between a queued task and its run slot: one list of gates, asked in one order.

Dispatch asks the gates and admits where none is closed; `Explain` asks the same gates and reports the
closed ones. So a task that nothing explains is a task that starts. A task's own gates depend on its facts
and its upstreams; the company's gates are the same for all its tasks (but for those a person let past a
pause); the last gate is the line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import attrs

from actors.states import IDS_SHOWN, Reason, ReasonKind
from storage.records import Mode, RunStatus

from .entry import Entry, Standing
from .order import order_key

if TYPE_CHECKING:
    from .state import CompanyState


@attrs.frozen
class Live:
    """What only the running host knows. The default is a host with nothing in the way."""

    draining: bool = False
    parked: str | None = None
    store_down: str | None = None
    no_host: bool = False
    slots_free: bool = True
    slot_holders: tuple[str, ...] = ()
    """Who holds the execution slots, as ``company/task/run/node/attempt``."""
    progress: Mapping[tuple[str, str], str] = attrs.field(factory=dict)
    """(task, node) → what the live attempt last said of itself."""


OPEN = Live()


def task_gates(state: CompanyState, entry: Entry) -> Iterator[Reason]:
    """The closed gates of the task itself. Cheap to ask for the first one: the counters are looked at
    before the edges.
    """
    if entry.quarantined is not None:
        yield Reason(ReasonKind.QUARANTINED, text=entry.quarantined)
    if entry.cause is not None:
        yield entry.cause
    if not entry.admitted:
        if entry.dead:
            yield from dead_upstreams(state, entry)
        if entry.unfinished > entry.dead:
            yield unfinished_upstreams(state, entry)
    if entry.task.mode is Mode.MANUAL and entry.run is not None and not entry.run.started:
        yield Reason(ReasonKind.MANUAL)


def hold_gates(state: CompanyState, entry: Entry, live: Live) -> Iterator[Reason]:
    """What keeps the company from starting anything, runs and attempts alike, as it is for this task."""
    if live.no_host:
        yield Reason(ReasonKind.NO_HOST)
    if live.draining:
        yield Reason(ReasonKind.DRAINING)
    if live.parked is not None:
        yield Reason(ReasonKind.COMPANY_PARKED, text=live.parked)
    if live.store_down is not None:
        yield Reason(ReasonKind.STORE_UNAVAILABLE, text=live.store_down)
    if state.company.paused_ms is not None and not (entry.run is not None and entry.run.front):
        yield Reason(ReasonKind.COMPANY_PAUSED, at_ms=state.company.paused_ms)


def company_gates(state: CompanyState, entry: Entry, live: Live) -> Iterator[Reason]:
    """The closed gates of the company for a task that wants a run slot."""
    yield from hold_gates(state, entry, live)
    if state.slots_free == 0:
        holders = tuple(task for _, task in sorted(state.slots.items()))
        yield Reason(
            ReasonKind.RUN_SLOTS,
            tasks=holders[:IDS_SHOWN],
            count=len(holders),
            numbers={"active": len(holders), "runs_max": state.company.runs_max},
        )


def line_gate(state: CompanyState, entry: Entry) -> Reason | None:
    """Closed while as many tasks as there are free slots go first. For reads: it looks at every open task."""
    assert entry.run is not None
    ahead = state.open.ahead_of(order_key(entry.task, entry.run))
    if len(ahead) < max(1, state.slots_free):
        return None
    return Reason(ReasonKind.TASKS_AHEAD, tasks=tuple(ahead[:IDS_SHOWN]), count=len(ahead))


def admissible(state: CompanyState, live: Live) -> Entry | None:
    """The first in order whose gates are all open: what `advance` admits next.

    Only the first can be it. Those let past a pause stand in front, so if the first one may not, nobody may.
    """
    first = state.open.first()
    if first is None:
        return None
    entry = state.entries[first]
    return entry if next(company_gates(state, entry, live), None) is None else None


def dead_upstreams(state: CompanyState, entry: Entry) -> Iterator[Reason]:
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


def _dead_kind(state: CompanyState, upstream: str) -> ReasonKind | None:
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
    return ReasonKind.UPSTREAM_BLOCKED


def unfinished_upstreams(state: CompanyState, entry: Entry) -> Reason:
    ids = [upstream for upstream in entry.task.depends_on if state.standing(upstream) is Standing.UNFINISHED]
    return Reason(ReasonKind.UPSTREAM_UNFINISHED, tasks=tuple(ids[:IDS_SHOWN]), count=len(ids))
