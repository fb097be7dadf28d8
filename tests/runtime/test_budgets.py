"""Budgets in a runtime: what handlers say that they spend, from whatever thread, and what a host reads of it."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from actors import (
    AttemptEnd,
    BudgetView,
    Context,
    InvalidSpend,
    MoveRefused,
    Node,
    ReasonKind,
    Retry,
    SetBudget,
    SetLimits,
    Stop,
    WorkState,
    open_reader,
)
from actors.core.draft import Draft
from tests.runtime.support import (
    Gated,
    Stubborn,
    Wrapper,
    a_host,
    a_task,
    idle,
    of_kind,
    settled,
    sql,
    stored_events,
)
from tests.storage.connections import Flaky, sqlite_error


def of_attempts(path: Path) -> list[Any]:
    return sql(path, "SELECT reserved, spent, assumed FROM attempts ORDER BY seq, number")


async def test_what_a_handler_spends_is_booked_with_its_end_and_shown_everywhere(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async def work(ctx: Context) -> None:
        ctx.spend(100)
        ctx.spend(0)
        ctx.spend(50)

    async with a_host(db_path, {"work": work}, timeless=True) as runtime:
        company = runtime.company("acme")
        assert await company.budget() == BudgetView(None, 0, 0)
        await company.ask(SetBudget(1000))
        await company.ask(a_task(nodes=[Node("n", "work", estimate=300)], id="a", budget=400))
        await company.when_settled("a")
        status = await company.status("a")
        assert (status.budget, status.spent, status.reserved) == (400, 150, 0)
        assert status.nodes[0].estimate == 300
        (attempt,) = await company.attempts("a")
        assert (attempt.spent, attempt.reserved, attempt.assumed) == (150, 0, False)
        assert await company.budget() == BudgetView(1000, 150, 0)
    async with open_reader(db_path) as reader:
        assert await reader.company("acme").budget() == BudgetView(1000, 150, 0)
        assert (await reader.company("acme").status("a")).spent == 150


async def test_what_is_spent_while_it_runs_is_told_at_once_and_then_once_a_second(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async def work(ctx: Context) -> None:
        for _ in range(100):
            ctx.spend(1)
            ctx.spend(1)
            await trio.sleep(0.1)
        ctx.spend(5)

    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("acme")
        await company.ask(a_task(nodes=[Node("n", "work", estimate=100)], id="a"))
        await trio.sleep(4.95)
        spent, reserved = sql(db_path, "SELECT spent, reserved FROM companies")[0]
        assert 80 <= spent <= 100
        assert spent + reserved == 100
        await company.when_settled("a")
    told = of_kind(stored_events(db_path), "attempt.spent")
    assert 10 <= len(told) <= 13
    assert told[0].data["spent"] == 2
    assert told[-1].data["spent"] == 205
    assert of_attempts(db_path) == [(0, 205, 0)]


async def test_a_plain_function_spends_from_its_thread_and_from_threads_of_its_own(
    db_path: Path,
) -> None:
    def work(ctx: Context) -> None:
        def spend() -> None:
            for _ in range(500):
                ctx.spend(1)

        threads = [threading.Thread(target=spend) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    async with a_host(db_path, {"work": work}) as runtime:
        await runtime.company("acme").ask(a_task("work", id="a"))
        assert await settled(runtime.company("acme"), "a") == "completed"
    assert of_attempts(db_path) == [(0, 2000, 0)]


@pytest.mark.parametrize("units", [-1, 1.0, True, "5", None, 10**15 + 1])
async def test_what_is_no_number_of_units_is_refused_and_adds_nothing(
    db_path: Path, autojump_clock: MockClock, units: Any
) -> None:
    refused: list[str] = []

    async def work(ctx: Context) -> None:
        ctx.spend(3)
        with pytest.raises(InvalidSpend) as caught:
            ctx.spend(units)
        refused.append(str(caught.value))

    async with a_host(db_path, {"work": work}, timeless=True) as runtime:
        await runtime.company("acme").ask(a_task("work", id="a"))
        assert await settled(runtime.company("acme"), "a") == "completed"
    assert len(refused) == 1
    assert of_attempts(db_path) == [(0, 3, 0)]


async def test_a_failure_a_time_out_and_a_stop_are_booked_like_a_success(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async def fails(ctx: Context) -> None:
        ctx.spend(10)
        raise ValueError("no luck")

    async def forever(ctx: Context) -> None:
        ctx.spend(20)
        await trio.sleep_forever()

    async with a_host(db_path, {"fails": fails, "forever": forever}) as runtime:
        company = runtime.company("acme")
        await company.ask(SetLimits(runs_max=3))
        await company.ask(a_task("fails", id="a", tries_max=2))
        await company.ask(a_task(nodes=[Node("n", "forever", timeout_s=5, tries_max=1)], id="b"))
        await company.ask(a_task("forever", id="c"))
        await trio.sleep(1)
        await company.ask(Stop("c"))
        await idle(runtime)
        ends = [(one.end, one.spent) for task in "abc" for one in await company.attempts(task)]
        assert ends == [
            (AttemptEnd.FAILED, 10),
            (AttemptEnd.FAILED, 10),
            (AttemptEnd.TIMED_OUT, 20),
            (AttemptEnd.STOPPED, 20),
        ]
        assert await company.budget() == BudgetView(None, 60, 0)


async def test_the_estimate_of_an_attempt_that_was_left_behind_is_booked_until_it_returns(
    db_path: Path, autojump_clock: MockClock
) -> None:
    deaf = Stubborn()

    async def work(ctx: Context) -> None:
        ctx.spend(10)
        await deaf(ctx)
        ctx.spend(7)

    async with a_host(db_path, {"work": work}, stop_grace_s=1) as runtime:
        company = runtime.company("acme")
        await company.ask(a_task(nodes=[Node("n", "work", estimate=100)], id="a"))
        await deaf.has_started()
        await company.ask(Stop("a"))
        await company.when_settled("a")
        left_behind = await company.budget()
        deaf.contexts[0].spend(5)
        await trio.sleep(2)
        said_less = await company.budget()
        deaf.contexts[0].spend(90)
        await trio.sleep(2)
        said_more = await company.budget()
        deaf.open.set()
        await trio.sleep(2)
        assert await company.budget() == BudgetView(None, 112, 0)
        assert (await company.status("a")).spent == 112
    assert left_behind == said_less == BudgetView(None, 100, 0)
    assert said_more == BudgetView(None, 105, 0)
    assert len(of_kind(stored_events(db_path), "attempt.late")) == 1


async def test_a_process_that_dies_is_charged_what_is_known_or_the_estimate(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work, wrapper = Gated(), Wrapper(Flaky)
    nodes = [Node("n", "work", estimate=100)]
    async with a_host(db_path, {"work": work}, drain_s=0, wrap=wrapper) as runtime:
        company = runtime.company("acme")
        await company.ask(SetLimits(runs_max=2))
        await company.ask(a_task(nodes=nodes, id="a"))
        await company.ask(a_task(nodes=nodes, id="b"))
        await work.has_started(2)
        work.contexts[0].spend(30)
        work.contexts[1].spend(130)
        await trio.sleep(1)
        assert await company.budget() == BudgetView(None, 160, 70)
        wrapper.made.down = sqlite_error(sqlite3.SQLITE_IOERR)
        await runtime.aclose()
    work.open.set()
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("acme")
        await idle(runtime)
        assert await company.budget() == BudgetView(None, 230, 0)
    assert of_attempts(db_path) == [(0, 100, 1), (0, 0, 0), (0, 130, 1), (0, 0, 0)]


async def test_an_actor_that_crashes_and_comes_back_books_everything_once(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Gated()
    say, crashes = Draft.event, [0]

    def event(draft: Draft, kind: str, *args: Any, **fields: Any) -> None:
        say(draft, kind, *args, **fields)
        if kind == "attempt.spent" and crashes[0] < 1:
            crashes[0] += 1
            raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr(Draft, "event", event)
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("acme")
        await company.ask(a_task(nodes=[Node("n", "work", estimate=100)], id="a"))
        await work.has_started()
        work.contexts[0].spend(30)
        await trio.sleep(2)
        work.contexts[0].spend(5)
        work.open.set()
        await idle(runtime)
        assert crashes == [1]
        assert await company.budget() == BudgetView(None, 35, 0)


async def test_a_company_out_of_budget_says_so_and_goes_on_when_it_is_raised(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async def work(ctx: Context) -> None:
        ctx.spend(ctx.payload)

    nodes = [Node("one", "work", payload=80), Node("two", "work", after=["one"], payload=1, estimate=50)]
    async with a_host(db_path, {"work": work}, timeless=True) as runtime:
        company = runtime.company("acme")
        await company.ask(SetBudget(100))
        await company.ask(a_task(nodes=nodes, id="a"))
        await company.ask(a_task("work", id="b", payload=20))
        await company.ask(a_task("work", id="c", payload=20))
        await company.when_idle()
        assert (await company.status("a")).state is WorkState.HALTED
        assert (await company.status("b")).state is WorkState.COMPLETED
        why = await company.explain("c")
        assert why.state is WorkState.QUEUED
        assert [(gate.kind, dict(gate.numbers)) for gate in why.gates] == [
            (ReasonKind.BUDGET, {"spent": 100, "reserved": 0, "estimate": 0, "limit": 100})
        ]
        with pytest.raises(MoveRefused, match="100 spent and 50 estimated, of 100"):
            await company.ask(Retry("a"))
        await company.ask(SetBudget(None))
        await company.when_settled("c")
        await company.ask(Retry("a"))
        assert await settled(company, "a") == "completed"
        assert await company.budget() == BudgetView(None, 121, 0)


@pytest.mark.parametrize("seed", range(3))
async def test_beside_each_other_attempts_exceed_the_limit_by_no_more_than_their_own_estimates(
    db_path: Path, autojump_clock: MockClock, seed: int
) -> None:
    """Forty tasks at once spend at their own pace, well or badly; the account is looked at all the time."""
    limit, rng = 1_500, Random(seed)
    estimates = {f"t{number}": rng.choice([0, 40, 100]) for number in range(40)}
    spent: dict[str, int] = {}
    worst: list[int] = []

    async def work(ctx: Context) -> None:
        for _ in range(rng.randrange(1, 6)):
            await trio.sleep(rng.random() * 3)
            units = rng.randrange(0, 40)
            ctx.spend(units)
            spent[ctx.key + str(ctx.attempt)] = spent.get(ctx.key + str(ctx.attempt), 0) + units
        if rng.random() < 0.3:
            raise ValueError("no luck")

    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("acme")
        await company.ask(SetLimits(runs_max=12))
        await company.ask(SetBudget(limit))
        for task, estimate in estimates.items():
            nodes = [Node("n", "work", estimate=estimate, tries_max=2)]
            await company.ask(a_task(nodes=nodes, id=task))
        for _ in range(120):
            await trio.sleep(0.5)
            over = await company.budget()
            excess = 0
            for task, estimate in estimates.items():
                spends = [one.spent for one in await company.attempts(task)]
                excess += sum(max(0, units - estimate) for units in spends)
            worst.append(over.spent + over.reserved - limit - excess)
        await idle(runtime)
        assert (await company.budget()) == BudgetView(limit, sum(spent.values()), 0)
    assert max(worst) <= 0
    assert sum(spent.values()) > limit // 2
