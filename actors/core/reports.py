"""How an attempt ends, as far as the company is concerned: one function for every way in.

A report counts if it speaks of the attempt that the node is running. Any other is late: it is recorded and
changes nothing. After a stop was committed the attempt's own result does not count either; the node is
skipped, whatever the attempt says. Nor does it after what the attempt works with was sent back: the node is pending
again, in the generation that began then.
"""

from __future__ import annotations

from typing import Any

from actors.messages import TRIES_MAX_DEFAULT
from storage.records import AttemptEnd, AttemptRecord, EventRecord, NodeRecord, NodeStatus, RunStatus

from .advance import cancel_nodes, finish
from .booking import book_late, book_spending, settle
from .draft import Draft
from .effects import EndAttempt
from .inputs import Report, Spending
from .prefetch import NOTHING_FOUND, Prefetched
from .retry import backoff_s, due_ms
from .shape import spec_of
from .task_state import TaskState, current_node

UNCLEAN_MAX = 5
"""So many deaths of the process with a node executing and the node fails: it may be what kills the process."""

_COUNTS = frozenset({AttemptEnd.FAILED, AttemptEnd.TIMED_OUT, AttemptEnd.STALLED})


def decide_report(draft: Draft, report: Report, prefetched: Prefetched = NOTHING_FOUND) -> bool:
    """End the attempt; says whether the report counted."""
    key = report.key
    draft.about = key.task
    entry = draft.state.entries.get(key.task)
    node = None if entry is None else current_node(entry, key)
    draft.effects.append(EndAttempt(key))
    if entry is None or node is None:
        _note_late(draft, report)
        if report.spent is not None:
            book_late(draft, key, report.spent, report.node, prefetched.booked.get(key), final=True)
        return False
    assert entry.run is not None
    if report.abandoned_after_s is not None:
        name = spec_of(node.spec).name
        draft.event(
            "attempt.abandoned", entry, node=name, attempt=key.number, grace_s=report.abandoned_after_s
        )
    if report.illegal_phase is not None:
        name = spec_of(node.spec).name
        draft.event(
            "attempt.illegal",
            entry,
            node=name,
            attempt=key.number,
            reason=report.error,
            phase=report.illegal_phase,
        )
    if entry.run.status is RunStatus.STOPPING:
        _end_stopped(draft, entry, node, report)
    elif node.superseded:
        _supersede(draft, entry, node, report)
    elif report.end is AttemptEnd.SUCCEEDED:
        _succeed(draft, entry, node, report)
    elif report.end in _COUNTS:
        _fail(draft, entry, node, report)
    elif report.end is AttemptEnd.LOST:
        _lose(draft, entry, node, report)
    elif report.again_s is not None:
        _postpone(draft, entry, node, report, report.again_s)
    elif report.end is AttemptEnd.STOPPED:
        _end_stopped(draft, entry, node, report)
    else:
        _interrupt(draft, entry, node, report)
    # the next message of this turn has to find what it would find in the next one; but gates are said to be reached
    # first, only so many a turn, and `advance` does that
    if key.task not in draft.state.reached:
        finish(draft, entry)
    return True


def decide_spending(draft: Draft, spending: Spending, prefetched: Prefetched = NOTHING_FOUND) -> None:
    """Book what an attempt has spent so far."""
    key = spending.key
    draft.about = key.task
    entry = draft.state.entries.get(key.task)
    node = None if entry is None else current_node(entry, key)
    if entry is None or node is None:
        book_late(draft, key, spending.spent, spending.node, prefetched.booked.get(key), final=False)
    else:
        book_spending(draft, entry, node, spending.spent)


def _note_late(draft: Draft, report: Report) -> None:
    """The task may be gone from memory and its newest run another one: the report itself says whose it is."""
    key = report.key
    draft.events.append(
        EventRecord(
            "attempt.late",
            draft.now_ms,
            task=key.task,
            task_seq=key.seq,
            run=key.run,
            node=report.node,
            attempt=key.number,
            reason=report.error,
            data={"outcome": report.end.value},
        )
    )


def _end(
    draft: Draft, entry: TaskState, node: NodeRecord, report: Report, end: AttemptEnd, error: str | None
) -> None:
    alive = report.abandoned_after_s is not None  # it may spend yet
    assumed = report.assumed or alive or end is AttemptEnd.LOST
    spent = settle(draft, entry, node, report.spent, assume=assumed)
    draft.attempt(
        AttemptRecord(
            seq=entry.task.seq,
            run=node.run,
            pos=node.pos,
            number=node.attempts,
            generation=node.generation,
            host_id=0,
            started_ms=0,
            ended_ms=draft.now_ms,
            end=end,
            error=error,
            spent=spent,
            assumed=assumed,
        )
    )


def _event(
    draft: Draft,
    entry: TaskState,
    node: NodeRecord,
    kind: str,
    after: NodeStatus,
    reason: str | None,
    **data: Any,
) -> None:
    draft.event(
        kind,
        entry,
        node=spec_of(node.spec).name,
        attempt=node.attempts,
        before=NodeStatus.RUNNING,
        after=after,
        reason=reason,
        **data,
    )


def _succeed(draft: Draft, entry: TaskState, node: NodeRecord, report: Report) -> None:
    _end(draft, entry, node, report, AttemptEnd.SUCCEEDED, None)
    draft.results[(entry.task.seq, node.run, node.pos)] = report.result or "null"
    draft.node(entry, node.pos, status=NodeStatus.SUCCEEDED, unclean=0)
    _event(draft, entry, node, "attempt.succeeded", NodeStatus.SUCCEEDED, None)


def _fail(draft: Draft, entry: TaskState, node: NodeRecord, report: Report) -> None:
    """A try is used. It is tried again after a pause that grows, unless it was the last or the handler gave
    up.
    """
    spec = spec_of(node.spec)
    tries = node.tries + 1
    limit = spec.tries_max or entry.task.tries_max or TRIES_MAX_DEFAULT
    last = report.give_up or tries >= limit
    after = NodeStatus.FAILED if last else NodeStatus.PENDING
    due = None if last else due_ms(draft.now_ms, backoff_s(spec.backoff, tries, identity(draft, entry, node)))
    _end(draft, entry, node, report, report.end, report.error)
    draft.node(entry, node.pos, status=after, tries=tries, not_before_ms=due, error=report.error)
    _event(
        draft, entry, node, f"attempt.{report.end.value}", after, report.error, tries=tries, not_before_ms=due
    )
    if last and entry.task.fail_fast:
        cancel_nodes(draft, entry, "stopped")


def _postpone(draft: Draft, entry: TaskState, node: NodeRecord, report: Report, again_s: float) -> None:
    due = due_ms(draft.now_ms, again_s)
    _end(draft, entry, node, report, AttemptEnd.INTERRUPTED, report.error)
    draft.node(entry, node.pos, status=NodeStatus.PENDING, not_before_ms=due, error=report.error)
    _event(draft, entry, node, "attempt.postponed", NodeStatus.PENDING, report.error, not_before_ms=due)


def _interrupt(draft: Draft, entry: TaskState, node: NodeRecord, report: Report) -> None:
    """Shutdown, or a fault of ours: it runs again, costs nothing and overwrites no error."""
    _end(draft, entry, node, report, report.end, report.error)
    draft.node(entry, node.pos, status=NodeStatus.PENDING)
    _event(draft, entry, node, "attempt.interrupted", NodeStatus.PENDING, None, why=report.error)


def _end_stopped(draft: Draft, entry: TaskState, node: NodeRecord, report: Report) -> None:
    """The run is stopping, or another node of it gave up. If that one has been retried since, this one goes on too."""
    assert entry.run is not None
    assert entry.progress is not None
    stays = entry.run.status is RunStatus.STOPPING or entry.progress.counts[NodeStatus.FAILED] > 0
    after = NodeStatus.SKIPPED if stays else NodeStatus.PENDING
    _end(draft, entry, node, report, AttemptEnd.STOPPED, report.error)
    draft.node(entry, node.pos, status=after, superseded=False)
    reason = f"it ended as {report.end.value} after the stop, which counts" if _came_late(report) else None
    _event(draft, entry, node, "attempt.stopped", after, reason)


def _supersede(draft: Draft, entry: TaskState, node: NodeRecord, report: Report) -> None:
    """What it worked with was sent back: however it ends, it has ended so. The generation rose with that commit."""
    _end(draft, entry, node, report, AttemptEnd.SUPERSEDED, report.error)
    draft.node(entry, node.pos, status=NodeStatus.PENDING, superseded=False)
    late = _came_late(report)
    reason = f"it ended as {report.end.value} after it was superseded, which counts" if late else None
    _event(draft, entry, node, "attempt.superseded", NodeStatus.PENDING, reason)


def _came_late(report: Report) -> bool:
    return report.end in (AttemptEnd.SUCCEEDED, AttemptEnd.FAILED)


def _lose(draft: Draft, entry: TaskState, node: NodeRecord, report: Report) -> None:
    """The process died under it. No try is used, but a node that was there five times when it happened has
    had enough.
    """
    unclean = node.unclean + 1
    enough = unclean >= UNCLEAN_MAX
    error = f"process died {unclean} times" if enough else node.error
    after = NodeStatus.FAILED if enough else NodeStatus.PENDING
    _end(draft, entry, node, report, AttemptEnd.LOST, None)
    draft.node(entry, node.pos, status=after, unclean=unclean, error=error)
    _event(draft, entry, node, "attempt.lost", after, error if enough else None, unclean=unclean)
    if enough and entry.task.fail_fast:
        cancel_nodes(draft, entry, "stopped")


def identity(draft: Draft, entry: TaskState, node: NodeRecord) -> str:
    """The name of one attempt, the same in every process and at every time."""
    name = spec_of(node.spec).name
    return f"{draft.state.company.name}/{entry.task.id}/{node.run}/{name}/{node.attempts}"
