"""The loop's one question: what may start now?

`advance` brings a company to its fixed point: gates that are reached are said to be, runs that are at their end are
finished or halted, nodes whose time has come are ready, the first in order are admitted while there are run slots, and
ready nodes start while there are execution slots. Start-up, retry, unblocking, a freed slot and the sweep all end here;
there is no second path. It makes a bounded number of moves and says when more are left.
"""

from __future__ import annotations

from typing import Any, Protocol

from storage.records import AttemptRecord, Mode, NodeRecord, NodeStatus, RunStatus
from storage.values import value

from .admission import Live, admissible, hold_gates
from .booking import reserve
from .budget import fits, limited
from .draft import Draft
from .effects import AttemptKey, CancelAttempt, EndAttempt, StartAttempt
from .halting import halt_run, say_reached
from .prefetch import NOTHING_FOUND, Prefetched
from .schedules.moves import NONE_DUE, fire_due
from .shape import spec_of
from .task_state import TaskState

MOVES_MAX = 200
"""Moves of one turn: a bound on how long one company can keep the event loop and the writer."""
SUSPECT_FROM = 2
"""So many deaths of the process with a node executing make it a suspect. Suspects of all companies execute one at a
time, so that the innocent ones come through and only the guilty one dies often enough to fail.
"""


class ExecutionSlots(Protocol):
    """The process's execution slots, as a turn sees them."""

    def reserve(self, key: AttemptKey, *, suspect: bool = False) -> bool:
        """Take a slot for this attempt, if this company may have one now. An attempt that is not committed
        gives it back.
        """
        ...


@value
class Advanced:
    """``more``: the bound was reached, look again. ``wants_slot``: a ready node found no execution slot.

    ``kept_back``: a ready node is a suspect and waits for the end of another one. ``on_time``: a schedule
    fired whose time has just come.
    """

    more: bool
    wants_slot: bool
    kept_back: bool = False
    on_time: bool = False


def advance(
    draft: Draft,
    slots: ExecutionSlots,
    live: Live,
    *,
    host_id: int,
    moves_max: int = MOVES_MAX,
    prefetched: Prefetched = NOTHING_FOUND,
) -> Advanced:
    """Make every move that may be made now, at most ``moves_max``."""
    state = draft.state
    state.wake_due(draft.now_ms)
    limit = draft.moves + moves_max
    due = fire_due(draft, prefetched, limit) if state.schedules.by_name else NONE_DUE
    wants_slot = False
    budgeted = state.company.budget is not None  # then nobody is admitted for what others are about to spend
    while draft.moves < limit:
        if state.reached:
            say_reached(draft, state.entries[next(iter(state.reached))])
            continue
        if state.ended:
            finish(draft, state.entries[next(iter(state.ended))])
            continue
        started = False
        if budgeted:
            started, wants_slot = _start_one(draft, slots, live, host_id)
            if started:
                continue
        entry = admissible(state, live)
        if entry is not None:
            admit(draft, entry)
            continue
        if not budgeted:
            started, wants_slot = _start_one(draft, slots, live, host_id)
        if not started:
            more = due.more or _ready_again(draft)
            return Advanced(more, wants_slot, kept_back=_kept_back(draft, live), on_time=due.on_time)
    return Advanced(more=True, wants_slot=wants_slot, on_time=due.on_time)


# --- runs ---------------------------------------------------------------------------------------------------


def admit(draft: Draft, entry: TaskState) -> None:
    """Give the run a slot. The first admission also copies the nodes and pins the upstreams; later ones do
    not.
    """
    assert entry.run is not None
    draft.about = entry.task.id
    state = draft.state
    slot = state.free_slot()
    first = entry.run.admitted_ms is None
    if first:
        shape = state.shape(entry)
        assert shape is not None
        seq, run = entry.task.seq, entry.run.number
        draft.add_nodes(
            entry, tuple(NodeRecord(seq, run, pos, spec.text) for pos, spec in enumerate(shape.nodes))
        )
    admitted = draft.now_ms if first else entry.run.admitted_ms
    draft.run(entry, status=RunStatus.RUNNING, slot=slot, admitted_ms=admitted)
    draft.event("run.admitted", entry, before=RunStatus.QUEUED, after=RunStatus.RUNNING, slot=slot)
    draft.moves += 1


def finish(draft: Draft, entry: TaskState) -> None:
    """Settle the run if it is at its end, or halt it if a person could make it go on; nothing otherwise."""
    if not entry.at_its_end:
        return
    assert entry.run is not None
    draft.about = entry.task.id
    if entry.run.status is RunStatus.STOPPING:
        skipped = skip_pending(draft, entry)
        _settle(draft, entry, RunStatus.STOPPED, "run.stopped", entry.run.reason, skipped=skipped)
        return
    failed = [node for node in entry.nodes or () if node.status is NodeStatus.FAILED]
    halt = entry.short_of
    if halt is not None:
        halt_run(draft, entry, halt)
    elif failed:
        names = [spec_of(node.spec).name for node in failed[:100]]
        _settle(draft, entry, RunStatus.FAILED, "run.failed", failed[0].error, nodes=names)
    else:
        _settle(draft, entry, RunStatus.COMPLETED, "run.completed", None)


def _settle(
    draft: Draft, entry: TaskState, status: RunStatus, kind: str, reason: str | None, **data: Any
) -> None:
    assert entry.run is not None
    before = entry.run.status
    draft.run(entry, status=status, slot=0, settled_ms=draft.now_ms, reason=reason, front=0)
    draft.event(kind, entry, before=before, after=status, reason=reason, **data)
    draft.moves += 1


def skip_pending(draft: Draft, entry: TaskState) -> int:
    """Unstarted nodes of a stopped run become skipped; says how many."""
    pending = [node for node in entry.nodes or () if node.status is NodeStatus.PENDING]
    for node in pending:
        draft.node(entry, node.pos, status=NodeStatus.SKIPPED, not_before_ms=None, reached_ms=None)
    return len(pending)


def cancel_nodes(draft: Draft, entry: TaskState, why: str) -> None:
    """Ask every live attempt of the run to end."""
    assert entry.run is not None
    for node in entry.nodes or ():
        if node.status is NodeStatus.RUNNING:
            draft.effects.append(CancelAttempt(attempt_key(entry, node), why))


def attempt_key(entry: TaskState, node: NodeRecord) -> AttemptKey:
    return AttemptKey(entry.task.id, entry.task.seq, node.run, node.pos, node.attempts)


# --- nodes --------------------------------------------------------------------------------------------------


def _start_one(draft: Draft, slots: ExecutionSlots, live: Live, host_id: int) -> tuple[bool, bool]:
    """Start the next ready node of the active runs; says (whether one started, whether one wants a slot)."""
    state = draft.state
    for task in state.startable:
        entry = state.entries[task]
        if not _may_start(draft, entry, live):
            continue
        pos = _next_node(draft, entry, live)
        if pos is None:
            continue
        assert entry.nodes is not None
        node = entry.nodes[pos]
        key = AttemptKey(task, entry.task.seq, node.run, pos, node.attempts + 1)
        draft.about = task
        if not slots.reserve(key, suspect=is_suspect(node)):
            return False, True
        _start_node(draft, entry, key, host_id)
        return True, False
    return False, False


def _may_start(draft: Draft, entry: TaskState, live: Live) -> bool:
    """Whether new attempts of this active run may begin: not through a pause, not after a node gave up
    under fail_fast.
    """
    assert entry.progress is not None
    if entry.task.fail_fast and entry.progress.counts[NodeStatus.FAILED]:
        return False
    return next(hold_gates(draft.state, entry, live), None) is None


def _next_node(draft: Draft, entry: TaskState, live: Live) -> int | None:
    """The first ready node whose handler this host has, whose last attempt is gone, that is not kept back, and that the
    budgets have room for.
    """
    assert entry.progress is not None
    assert entry.nodes is not None
    nodes, specs, task = entry.nodes, entry.progress.specs, entry.task.id
    company = draft.state.company
    has_limit = limited(company, entry.task)

    def able(pos: int) -> bool:
        gone = not nodes[pos].attempts or (task, nodes[pos].run, pos) not in live.alive
        kept_back = is_suspect(nodes[pos]) and _suspect_alive(draft, live)
        paid = not has_limit or fits(company, entry.task, specs[pos].estimate)
        return gone and paid and not kept_back and draft.state.has_handler(specs[pos].handler)

    if entry.task.mode is Mode.STEP and entry.run is not None:
        let = entry.run.step
        return let if let is not None and able(let) else None
    first = entry.progress.next_ready()
    if first is None or able(first):
        return first
    return min(filter(able, entry.progress.ready), default=None)


def is_suspect(node: NodeRecord) -> bool:
    """Whether the process died so often under the node that it may be what kills it."""
    return node.unclean >= SUSPECT_FROM


def _suspect_alive(draft: Draft, live: Live) -> bool:
    """Whether an attempt at a suspect is alive in the process, or begins in this turn."""
    return live.suspect is not None or any(
        isinstance(effect, StartAttempt) and effect.suspect for effect in draft.effects
    )


def _kept_back(draft: Draft, live: Live) -> bool:
    """Whether a suspect that is ready waits for another one. Looks at nodes only while one is alive, which is rare."""
    return _suspect_alive(draft, live) and any(
        is_suspect(entry.nodes[pos])
        for entry in (draft.state.entries[task] for task in draft.state.startable)
        if entry.nodes is not None and entry.progress is not None
        for pos in entry.progress.ready
    )


def _ready_again(draft: Draft) -> bool:
    """Whether a node whose attempt ends in this very turn is ready: the next turn, in which it is gone, starts it."""
    for effect in draft.effects:
        if isinstance(effect, EndAttempt):
            entry = draft.state.entries.get(effect.key.task)
            if entry is not None and entry.progress is not None and effect.key.pos in entry.progress.ready:
                return True
    return False


def _start_node(draft: Draft, entry: TaskState, key: AttemptKey, host_id: int) -> None:
    assert entry.progress is not None
    node = draft.node(
        entry, key.pos, status=NodeStatus.RUNNING, attempts=key.number, not_before_ms=None, error=None
    )
    spec = entry.progress.specs[key.pos]
    if spec.estimate:
        reserve(draft, entry, spec.estimate)
    draft.attempt(
        AttemptRecord(
            key.seq,
            key.run,
            key.pos,
            key.number,
            node.generation,
            host_id,
            started_ms=draft.now_ms,
            reserved=spec.estimate,
        )
    )
    draft.event(
        "attempt.started",
        entry,
        node=spec.name,
        attempt=key.number,
        before=NodeStatus.PENDING,
        after=NodeStatus.RUNNING,
        generation=node.generation,
    )
    names = tuple(entry.progress.specs[pos].name for pos in spec.after)
    upstream = bool(entry.task.depends_on)
    draft.effects.append(
        StartAttempt(key, spec, node.generation, is_suspect(node), names, node.feedback, upstream)
    )
    draft.moves += 1
