"""What attempts reserve, spend and free: booked in both accounts, in the commit in which it becomes known."""

from __future__ import annotations

from storage.records import EventRecord, NodeRecord
from storage.writes import AttemptBooked, TaskBooked

from .budget import Account, Booked
from .draft import Draft
from .effects import AttemptKey
from .shape import spec_of
from .task_state import TaskState

SPENT_MAX = 9 * 10**18
"""An account does not count further: SQLite's integers end there, and no limit goes beyond."""
WARN_NUM, WARN_DEN = 4, 5
"""Four fifths: late enough to mean something, early enough to do something about it."""


def reserve(draft: Draft, entry: TaskState, estimate: int) -> None:
    _book(draft, entry, 0, -estimate)


def settle(draft: Draft, entry: TaskState, node: NodeRecord, spent: int | None, *, assume: bool) -> int:
    """The attempt has ended: book what is not booked yet and free what it had reserved; says what it spent in all."""
    estimate = spec_of(node.spec).estimate
    total = max(spent or 0, node.spent, estimate if assume else 0)
    if not (total or estimate):
        return 0
    assert entry.run is not None
    key = (entry.task.id, entry.task.seq, node.run, node.pos, node.attempts)
    draft.booked[key] = Booked(total, assume)
    _book(draft, entry, total - node.spent, max(0, estimate - node.spent))
    if total > node.spent:
        _say(draft, entry, node, total, total - node.spent, assume)
    if node.spent:
        draft.node(entry, node.pos, spent=0)
    return total


def book_spending(draft: Draft, entry: TaskState, node: NodeRecord, spent: int) -> None:
    """A live attempt has spent more: so much less is reserved."""
    if spent <= node.spent:
        return
    estimate = spec_of(node.spec).estimate
    kept = max(0, estimate - spent)
    _book(draft, entry, spent - node.spent, max(0, estimate - node.spent) - kept)
    where = (entry.task.seq, node.run, node.pos, node.attempts)
    draft.writes.append(AttemptBooked(*where, spent=spent, reserved=kept))
    _say(draft, entry, node, spent, spent - node.spent, False)
    draft.node(entry, node.pos, spent=spent)


def book_late(
    draft: Draft, key: AttemptKey, spent: int, name: str | None, stored: Booked | None, *, final: bool
) -> None:
    """An attempt whose end is committed says what it spent. Nothing is booked if its row is gone. Unless what it says
    is ``final``, it may spend more: what is assumed of it stands until then.
    """
    booked = draft.booked.get(key, stored)
    if booked is None:
        return
    assumed = booked.assumed and not final
    total = spent if booked.assumed and final else max(spent, booked.spent)
    if (total, assumed) == (booked.spent, booked.assumed):
        return
    added = total - booked.spent
    draft.booked[key] = Booked(total, assumed)
    entry = draft.state.entries.get(key.task)
    _book_company(draft, added, 0)
    if entry is not None and entry.readable and entry.task.seq == key.seq:
        _book_task(draft, entry, added, 0)
    else:
        draft.writes.append(TaskBooked(key.seq, added))
    if not draft.attempt_spent(key, total, assumed=assumed):
        draft.writes.append(AttemptBooked(*key[1:], spent=total, reserved=0, assumed=assumed))
    draft.events.append(
        EventRecord(
            "attempt.spent",
            draft.now_ms,
            task=key.task,
            task_seq=key.seq,
            run=key.run,
            node=name,
            attempt=key.number,
            data={"spent": total, "added": added, "assumed": assumed},
        )
    )


def _say(draft: Draft, entry: TaskState, node: NodeRecord, spent: int, added: int, assumed: bool) -> None:
    draft.event(
        "attempt.spent",
        entry,
        node=spec_of(node.spec).name,
        attempt=node.attempts,
        spent=spent,
        added=added,
        assumed=assumed,
    )


def _book(draft: Draft, entry: TaskState, added: int, freed: int) -> None:
    if added or freed:
        _book_company(draft, added, freed)
        _book_task(draft, entry, added, freed)


def _book_company(draft: Draft, added: int, freed: int) -> None:
    before = draft.state.company
    spent = min(before.spent + added, SPENT_MAX)
    after = draft.company(spent=spent, reserved=before.reserved - freed)
    warn(draft, None, before, after)


def _book_task(draft: Draft, entry: TaskState, added: int, freed: int) -> None:
    before = entry.task
    spent = min(before.spent + added, SPENT_MAX)
    draft.task(entry, spent=spent, reserved=before.reserved - freed)
    warn(draft, entry, before, entry.task)


def warn(draft: Draft, entry: TaskState | None, before: Account, after: Account) -> None:
    """Say that four fifths of the limit are spent, if they were not before, or not of this limit."""
    if after.budget is None or not _spent_much(after):
        return
    if before.budget != after.budget or not _spent_much(before):
        draft.event("budget.warned", entry, limit=after.budget, spent=after.spent, reserved=after.reserved)


def _spent_much(account: Account) -> bool:
    return bool(account.budget) and account.spent * WARN_DEN >= (account.budget or 0) * WARN_NUM
