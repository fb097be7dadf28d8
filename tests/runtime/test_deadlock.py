"""A handler that would wait for itself is told so at once; one that only has to be patient is not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from actors import Company, Context, Outcome, Runtime, SetLimits, Stop
from tests.runtime.support import Gated, a_host, a_task, idle, settled

Waiting = Callable[[Context], Awaitable[object]]


def waits_for(task: str) -> Waiting:
    async def work(ctx: Context) -> str:
        with trio.fail_after(1):
            return (await ctx.company.when_settled(task)).status.value

    return work


async def why_it_failed(company: Company, task: str) -> str:
    with trio.fail_after(60):
        reason = (await company.when_settled(task)).reason
    assert reason is not None
    return reason


async def test_waiting_for_one_s_own_task_would_never_end(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_host(db_path, {"work": waits_for("a")}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a", tries_max=1))
        assert await why_it_failed(company, "a") == (
            "WouldDeadlock: waiting for task 'a' here would never end: it is the task of the handler that waits"
        )


async def test_waiting_for_a_task_that_needs_one_s_own_run_slot_would_never_end(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path, {"work": waits_for("b")}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="b", mode="manual"))
        await company.ask(a_task("work", id="a", tries_max=1))
        assert "it needs a run slot, and the run of 'a' that waits for it holds one" in await why_it_failed(
            company, "a"
        )


async def test_waiting_for_a_task_that_depends_on_one_s_own_would_never_end(
    db_path: Path, autojump_clock: MockClock
) -> None:
    gate = Gated()

    async def work(ctx: Context) -> str:
        await gate(ctx)
        return str(await waits_for("c")(ctx))

    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=5))
        await company.ask(a_task("work", id="a", tries_max=1))
        await company.ask(a_task("ok", id="b", depends_on=["a"]))
        await company.ask(a_task("ok", id="c", depends_on=["b"]))
        gate.open.set()
        assert "it waits in turn for 'a'" in await why_it_failed(company, "a")


async def test_of_two_handlers_that_wait_for_each_other_one_is_told(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async def work(ctx: Context) -> str:
        other = "b" if ctx.task == "a" else "a"
        return (await ctx.company.when_settled(other)).status.value

    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=2))
        for task in ("a", "b"):
            await company.ask(a_task("work", id=task, tries_max=1))
        with trio.fail_after(1):
            ends = sorted([await settled(company, "a"), await settled(company, "b")])
        assert ends == ["completed", "failed"]


async def test_handlers_of_two_companies_that_wait_for_each_other_are_told_as_well(
    db_path: Path, autojump_clock: MockClock
) -> None:
    companies: dict[str, Company] = {}

    async def work(ctx: Context) -> str:
        other = companies["b" if ctx.company.name == "a" else "a"]
        return (await other.when_settled("t")).status.value

    async with a_host(db_path, {"work": work}) as runtime:
        companies.update({name: runtime.company(name) for name in ("a", "b")})
        for company in companies.values():
            await company.ask(a_task("work", id="t", tries_max=1))
        with trio.fail_after(1):
            ends = sorted([await settled(company, "t") for company in companies.values()])
        assert ends == ["completed", "failed"]


async def test_waiting_for_a_task_that_will_get_the_slot_of_a_third_is_only_patience(
    db_path: Path, autojump_clock: MockClock
) -> None:
    third, before = Gated(), Gated()

    async def work(ctx: Context) -> str:
        await before(ctx)
        return (await ctx.company.when_settled("b")).status.value

    async with a_host(db_path, {"work": work, "third": third}) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=2))
        await company.ask(a_task("work", id="a", tries_max=1))
        await company.ask(a_task("third", id="c"))
        await company.ask(a_task("ok", id="b"))
        before.open.set()
        await trio.testing.wait_all_tasks_blocked()
        third.open.set()
        assert (await company.when_settled("a")).result == {"work": "completed"}


async def test_a_handler_may_wait_for_a_task_of_another_company(
    db_path: Path, autojump_clock: MockClock
) -> None:
    others: list[Company] = []

    async def work(_ctx: Context) -> str:
        (other,) = others
        return (await other.when_settled("b")).status.value

    async with a_host(db_path, {"work": work}, timeless=True) as runtime:
        others.append(runtime.company("other"))
        await others[0].ask(a_task("ok", id="b"))
        await runtime.company("k").ask(a_task("work", id="a"))
        assert (await runtime.company("k").when_settled("a")).result == {"work": "completed"}


async def test_what_was_waited_for_before_is_forgotten(db_path: Path, autojump_clock: MockClock) -> None:
    """One who gave up waiting keeps nobody from waiting for him."""
    gave_up = trio.Event()
    outcome: list[Outcome] = []

    async def first(ctx: Context) -> None:
        with trio.move_on_after(1):
            await ctx.company.when_settled("b")
        gave_up.set()
        await trio.sleep(5)

    async def second(ctx: Context) -> None:
        await gave_up.wait()
        outcome.append(await ctx.company.when_settled("a"))

    async with a_host(db_path, {"first": first, "second": second}) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=2))
        await company.ask(a_task("first", id="a"))
        await company.ask(a_task("second", id="b"))
        await idle(runtime)
        assert await settled(company, "b") == "completed"
    assert [each.status.value for each in outcome] == ["completed"]


async def test_waiting_until_one_s_own_company_is_idle_would_never_end(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async def work(ctx: Context) -> None:
        await ctx.company.when_idle()

    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a", tries_max=1))
        assert "the handler that waits is itself in flight" in await why_it_failed(company, "a")


@pytest.mark.parametrize("what", ["drain", "aclose"])
async def test_a_handler_that_closes_the_runtime_would_wait_for_itself(
    db_path: Path, autojump_clock: MockClock, what: str
) -> None:
    hosts: list[Runtime] = []

    async def work(_ctx: Context) -> None:
        with trio.fail_after(1):
            await getattr(hosts[0], what)()

    async with a_host(db_path, {"work": work}) as runtime:
        hosts.append(runtime)
        await runtime.company("k").ask(a_task("work", id="a", tries_max=1))
        assert f"{what} waits for the handler that calls it" in await why_it_failed(runtime.company("k"), "a")
        assert not runtime.closing


async def test_the_host_itself_may_wait_for_anything(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=0))
        await company.ask(a_task("ok", id="a"))
        with trio.move_on_after(100) as scope:
            await company.when_settled("a")
        assert scope.cancelled_caught
        await company.ask(Stop("a"))
