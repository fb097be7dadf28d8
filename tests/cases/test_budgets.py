"""A budget is checked and taken in one commit, so calls beside each other do not all see the same room left."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import trio
from trio.testing import MockClock

from actors import BudgetView, Context, Node, ReasonKind, SetBudget, SetLimits, Submit, WorkState
from tests.runtime.support import Wrapper, a_host, idle, sql
from tests.storage.connections import Flaky, sqlite_error

BUDGET = "SELECT spent, reserved FROM companies WHERE name = 'acme'"


async def test_of_ten_that_are_ready_three_start_and_a_crash_keeps_what_they_have_reserved(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C67: budget 1,000, ten runs ready of 300 each, limit 10; they use 250 to 400, and one dies after it spent."""
    uses = {"t1": 250, "t2": 400, "t3": 120}
    doors = {task: trio.Event() for task in uses}
    started: list[str] = []

    async def work(ctx: Context) -> None:
        started.append(ctx.task)
        for _ in range(10):
            ctx.spend(uses[ctx.task] // 10)
        await doors[ctx.task].wait()

    tasks = [f"t{number}" for number in range(1, 11)]
    wrapper = Wrapper(Flaky)
    async with a_host(db_path, {"work": work}, drain_s=0, wrap=wrapper) as runtime:
        company = runtime.company("acme")
        await company.ask(SetLimits(runs_max=10))
        await company.ask(SetBudget(1000))
        for task in tasks:
            await company.ask(Submit("ready", id=task, nodes=[Node("n", "work", estimate=300)]))
        assert started == ["t1", "t2", "t3"]
        await trio.sleep(2)
        assert await company.budget() == BudgetView(1000, 770, 50 + 180)
        for task in ("t1", "t2"):
            doors[task].set()
            await company.when_settled(task)
        assert await company.budget() == BudgetView(1000, 770, 180)
        assert started == ["t1", "t2", "t3"]
        wrapper.made.down = sqlite_error(sqlite3.SQLITE_IOERR)
        await runtime.aclose()
    assert sql(db_path, BUDGET) == [(770, 180)]  # nobody has resolved it yet

    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("acme")
        await idle(runtime)
        assert await company.budget() == BudgetView(1000, 950, 0)
        assert (await company.status("t3")).state is WorkState.HALTED
        states = [await company.status(task) for task in tasks[3:]]
        assert {status.state for status in states} == {WorkState.QUEUED}
        assert {status.reasons[0].kind for status in states} == {ReasonKind.BUDGET}
        assert started == ["t1", "t2", "t3"]
        assert [(one.spent, one.assumed) for one in await company.attempts("t3")] == [(300, True)]


async def test_a_budget_of_nothing_is_not_a_budget_that_is_missing(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C67: 0 starts nothing, without one everything starts."""
    async with a_host(db_path) as runtime:
        for name, limit, state in (
            ("zero", 0, WorkState.QUEUED),
            ("missing", None, WorkState.COMPLETED),
        ):
            company = runtime.company(name)
            await company.ask(SetBudget(limit))
            await company.ask(Submit("t", id="t", nodes=[Node("n", "ok", estimate=300)]))
            await idle(runtime)
            assert (await company.status("t")).state is state
