"""Budgets: what a company, and a task besides, may spend, in whole units of the host's choice.

An account is three numbers of a record: the limit, what is spent, what is reserved. The commit that starts an attempt
reserves the node's estimate, and needs ``spent + reserved + estimate <= limit`` in both accounts; without an estimate
one unit has to be left. What an attempt says it spent is booked at once and comes off its reservation; its end books
the rest and frees what is left. So the two accounts are above their limits by no more than what attempts that live
spend beyond their estimates. Of an attempt of which nobody can say what it spent (its process died) the estimate
counts as spent, and its row says that this is assumed; if it does say something after all, that counts instead. One
that is left behind has ended: what it spends yet is booked late, and was not reserved.

A task that has not started, or is queued to go on, waits until there is room, and holds up nobody who needs less. So
does a node of an active run while only what others have reserved is in its way. If it is in the way of what is spent,
and nothing else of the run can go on, the run halts; a person decides, by `Retry`. That a start is kept back is
derived, so it is no event: `explain` says it, with the numbers. What is one is that four fifths are spent; it is said
each time that a booking, or another limit, gets there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from actors.messages.views import IDS_SHOWN, Reason, ReasonKind
from storage.records import CompanyRecord, EventRecord, Halt, Mode, NodeRecord, TaskRecord
from storage.values import value

from .entry import Entry, halt_of
from .shape import spec_of

if TYPE_CHECKING:
    from .draft import AttemptKey, Draft
    from .state import CompanyState

Account = CompanyRecord | TaskRecord

SPENT_MAX = 9 * 10**18
"""An account does not count further: SQLite's integers end there, and no limit goes beyond."""
WARN_NUM, WARN_DEN = 4, 5
"""Four fifths: late enough to mean something, early enough to do something about it."""


def need_of(estimate: int) -> int:
    """What has to be left for an attempt to start: with an estimate of nothing one unit, or nothing would stop it."""
    return max(1, estimate)


def limited(company: CompanyRecord, task: TaskRecord) -> bool:
    return company.budget is not None or task.budget is not None


def room_in(account: Account) -> int | None:
    """What is neither spent nor reserved; ``None``: no limit. Below zero where more was spent than estimated."""
    return None if account.budget is None else account.budget - account.spent - account.reserved


def fits(company: CompanyRecord, task: TaskRecord, estimate: int) -> bool:
    """Whether an attempt of this estimate may start now."""
    need = need_of(estimate)
    return all((room := room_in(account)) is None or need <= room for account in (company, task))


def is_short(account: Account, estimate: int) -> bool:
    """Whether it could not start even if nobody else had reserved anything."""
    return account.budget is not None and account.spent + need_of(estimate) > account.budget


def next_estimates(state: CompanyState, entry: Entry) -> Iterator[int]:
    """The estimates of the nodes that may start first; none where nothing of it can start without a person, or ever."""
    progress, run = entry.progress, entry.run
    step = entry.task.mode is Mode.STEP
    if progress is None:
        shape = None if step else state.shape(entry)
        yield from () if shape is None else shape.first_estimates
    elif not step:
        for pos in progress.ready:
            yield progress.specs[pos].estimate
    elif run is not None and run.step in progress.ready:
        assert run.step is not None
        yield progress.specs[run.step].estimate


def least_need(state: CompanyState, entry: Entry) -> int:
    """What has to be left for the first attempt to start; 0 where none is to start first."""
    return min(map(need_of, next_estimates(state, entry)), default=0)


def cannot_go_on(state: CompanyState, entry: Entry) -> bool:
    """Whether what is spent keeps every node from starting that could otherwise."""
    accounts = (state.company, entry.task)
    return all(
        any(is_short(account, estimate) for account in accounts) for estimate in next_estimates(state, entry)
    )


# --- reasons ------------------------------------------------------------------------------------------------


def reason_of(
    account: Account, estimate: int, names: tuple[str, ...] = (), at_ms: int | None = None
) -> Reason:
    """The numbers of an account; ``text`` says whose it is."""
    numbers = {"spent": account.spent, "reserved": account.reserved, "estimate": estimate}
    if account.budget is not None:
        numbers["limit"] = account.budget
    whose = "company" if isinstance(account, CompanyRecord) else "task"
    return Reason(
        ReasonKind.BUDGET,
        nodes=names[:IDS_SHOWN],
        count=len(names),
        numbers=numbers,
        at_ms=at_ms,
        text=whose,
    )


def starved_reasons(
    state: CompanyState, entry: Entry, *accounts: Account, names: tuple[str, ...] = ()
) -> Iterator[Reason]:
    """Of these accounts those that have no room for the first attempt of the task."""
    need = least_need(state, entry)
    estimate = min(next_estimates(state, entry), default=0)
    for account in accounts:
        room = room_in(account)
        if need and room is not None and room < need:
            yield reason_of(account, estimate, names)


def halted_reason(state: CompanyState, entry: Entry, names: tuple[str, ...], at_ms: int | None) -> Reason:
    """Of a run that is halted on budget: the account that is short, as it stands now, or else the one with a limit."""
    estimate = min(next_estimates(state, entry), default=0)
    accounts: tuple[Account, ...] = (state.company, entry.task)
    rank = [(not is_short(one, estimate), one.budget is None, place) for place, one in enumerate(accounts)]
    return reason_of(accounts[min(rank)[2]], estimate, names, at_ms)


# --- booking ------------------------------------------------------------------------------------------------


@value
class Spending:
    """What a live attempt has spent since it began, as far as it has said. ``node`` is the node's name."""

    key: AttemptKey
    spent: int
    node: str | None = None


@value
class Booked:
    """What is booked of an attempt that has ended."""

    spent: int
    assumed: bool


def reserve(draft: Draft, entry: Entry, estimate: int) -> None:
    _book(draft, entry, 0, -estimate)


def settle(draft: Draft, entry: Entry, node: NodeRecord, spent: int | None, *, assume: bool) -> int:
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


def book_spending(draft: Draft, entry: Entry, node: NodeRecord, spent: int) -> None:
    """A live attempt has spent more: so much less is reserved."""
    if spent <= node.spent:
        return
    estimate = spec_of(node.spec).estimate
    kept = max(0, estimate - spent)
    _book(draft, entry, spent - node.spent, max(0, estimate - node.spent) - kept)
    draft.write(
        "book_attempt",
        seq=entry.task.seq,
        run=node.run,
        pos=node.pos,
        number=node.attempts,
        spent=spent,
        reserved=kept,
    )
    _say(draft, entry, node, spent, spent - node.spent, False)
    draft.node(entry, node.pos, spent=spent)


def book_late(draft: Draft, key: AttemptKey, spent: int, name: str | None, stored: Booked | None) -> None:
    """An attempt whose end is committed says what it spent. Nothing is booked if its row is gone."""
    booked = draft.booked.get(key, stored)
    if booked is None or (spent <= booked.spent and not booked.assumed):
        return
    added = spent - booked.spent
    draft.booked[key] = Booked(spent, False)
    entry = draft.state.entries.get(key.task)
    _book_company(draft, added, 0)
    if entry is not None and entry.readable and entry.task.seq == key.seq:
        _book_task(draft, entry, added, 0)
    else:
        draft.write("book_task", seq=key.seq, added=added)
    if not draft.attempt_spent(key, spent):
        draft.write(
            "book_attempt", seq=key.seq, run=key.run, pos=key.pos, number=key.number, spent=spent, reserved=0
        )
    draft.events.append(
        EventRecord(
            "attempt.spent",
            draft.now_ms,
            task=key.task,
            task_seq=key.seq,
            run=key.run,
            node=name,
            attempt=key.number,
            data={"spent": spent, "added": added, "assumed": False},
        )
    )


def _say(draft: Draft, entry: Entry, node: NodeRecord, spent: int, added: int, assumed: bool) -> None:
    draft.event(
        "attempt.spent",
        entry,
        node=spec_of(node.spec).name,
        attempt=node.attempts,
        spent=spent,
        added=added,
        assumed=assumed,
    )


def _book(draft: Draft, entry: Entry, added: int, freed: int) -> None:
    if added or freed:
        _book_company(draft, added, freed)
        _book_task(draft, entry, added, freed)


def _book_company(draft: Draft, added: int, freed: int) -> None:
    before = draft.state.company
    spent = min(before.spent + added, SPENT_MAX)
    after = draft.company(spent=spent, reserved=before.reserved - freed)
    warn(draft, None, before, after)


def _book_task(draft: Draft, entry: Entry, added: int, freed: int) -> None:
    before = entry.task
    spent = min(before.spent + added, SPENT_MAX)
    draft.task(entry, spent=spent, reserved=before.reserved - freed)
    warn(draft, entry, before, entry.task)


def warn(draft: Draft, entry: Entry | None, before: Account, after: Account) -> None:
    """Say that four fifths of the limit are spent, if they were not before, or not of this limit."""
    if after.budget is None or not _spent_much(after):
        return
    if before.budget != after.budget or not _spent_much(before):
        draft.event("budget.warned", entry, limit=after.budget, spent=after.spent, reserved=after.reserved)


def _spent_much(account: Account) -> bool:
    return bool(account.budget) and account.spent * WARN_DEN >= (account.budget or 0) * WARN_NUM


def is_halted_on_budget(entry: Entry) -> bool:
    return entry.run is not None and halt_of(entry.run) is Halt.BUDGET
