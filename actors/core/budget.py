"""Budgets: what a company, and a task besides, may spend, in whole units of the host's choice.

An account is three numbers of a record: the limit, what is spent, what is reserved. The commit that starts an attempt
reserves the node's estimate, and needs ``spent + reserved + estimate <= limit`` in both accounts; without an estimate
one unit has to be left. What an attempt says it spent is booked at once and comes off its reservation; its end books
the rest and frees what is left. So the two accounts are above their limits by no more than what attempts that live
spend beyond their estimates. Of an attempt of which nobody can say what it spent (its process died) the estimate
counts as spent, and its row says that this is assumed; if it does say something after all, that counts instead. So it
is with one that is left behind and lives: its estimate stays booked until it has returned and said what it was.

A task that has not started, or is queued to go on, waits until there is room, and holds up nobody who needs less. So
does a node of an active run while only what others have reserved is in its way. If it is in the way of what is spent,
and nothing else of the run can go on, the run halts; a person decides, by `Retry`. That a start is kept back is
derived, so it is no event: `explain` says it, with the numbers. What is one is that four fifths are spent; it is said
each time that a booking, or another limit, gets there.
"""

from __future__ import annotations

from collections.abc import Iterator

from actors.messages.views import IDS_SHOWN, Reason, ReasonKind
from storage.records import CompanyRecord, Mode, TaskRecord
from storage.values import value

from .facts import Facts
from .task_state import TaskState

Account = CompanyRecord | TaskRecord


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


def next_estimates(state: Facts, entry: TaskState) -> Iterator[int]:
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


def least_need(state: Facts, entry: TaskState) -> int:
    """What has to be left for the first attempt to start; 0 where none is to start first."""
    return min(map(need_of, next_estimates(state, entry)), default=0)


def is_starved(facts: Facts, entry: TaskState) -> bool:
    """Whether the task's own budget has no room for what it would start first."""
    room = room_in(entry.task)
    need = 0 if room is None or not entry.queued else least_need(facts, entry)
    return room is not None and need > 0 and need > room


def cannot_go_on(state: Facts, entry: TaskState) -> bool:
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
    state: Facts, entry: TaskState, *accounts: Account, names: tuple[str, ...] = ()
) -> Iterator[Reason]:
    """Of these accounts those that have no room for the first attempt of the task."""
    need = least_need(state, entry)
    estimate = min(next_estimates(state, entry), default=0)
    for account in accounts:
        room = room_in(account)
        if need and room is not None and room < need:
            yield reason_of(account, estimate, names)


def halted_reason(state: Facts, entry: TaskState, names: tuple[str, ...], at_ms: int | None) -> Reason:
    """Of a run that is halted on budget: the account that is short, as it stands now, or else the one with a limit."""
    estimate = min(next_estimates(state, entry), default=0)
    accounts: tuple[Account, ...] = (state.company, entry.task)
    rank = [(not is_short(one, estimate), one.budget is None, place) for place, one in enumerate(accounts)]
    return reason_of(accounts[min(rank)[2]], estimate, names, at_ms)


@value
class Booked:
    """What is booked of an attempt that has ended."""

    spent: int
    assumed: bool
