"""Execution slots are shared round robin, weight by weight; no company waits more than one round for another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio
from trio.testing import MockClock

from actors import Context, Node, SetLimits, Submit, SubmitMany, WorkState
from actors.testing import run_until_idle
from tests.conftest import Opened
from tests.inside import inside

SLOTS = 4


def recorder(starts: list[str]) -> Callable[[Context], Awaitable[Any]]:
    """A handler that notes whose attempt starts, and takes a second."""

    async def work(ctx: Context) -> None:
        starts.append(ctx.company.name)
        await trio.sleep(1)

    return work


def wide(title: str, nodes: int) -> Submit:
    return Submit(title, nodes=[Node(f"n{place}", "work") for place in range(nodes)])


async def test_newcomers_start_within_one_round_of_a_company_with_a_thousand_ready_nodes(
    opened: Opened, autojump_clock: MockClock
) -> None:
    """C17."""
    starts: list[str] = []
    async with opened({"work": recorder(starts)}, executions_max=SLOTS) as runtime:
        await runtime.company("k1").ask(wide("a thousand", 1_000))
        await trio.sleep(10.5)
        assert len(starts) == 11 * SLOTS, "alone it uses all"
        came_at = len(starts)
        for name in ("k2", "k3", "k4", "k5"):
            await runtime.company(name).ask(wide("one", 1))
        await trio.sleep(3)
        for name in ("k2", "k3", "k4", "k5"):
            before = starts[came_at:].index(name)
            assert starts[came_at : came_at + before].count("k1") <= SLOTS
        await runtime.aclose(now=True)


async def test_a_heavier_company_gets_its_share(opened: Opened, autojump_clock: MockClock) -> None:
    starts: list[str] = []
    async with opened({"work": recorder(starts)}, executions_max=1) as runtime:
        await runtime.company("heavy").ask(SetLimits(weight=3))
        for name in ("heavy", "light"):
            await runtime.company(name).ask(wide(name, 100))
        await trio.sleep(80.5)
        counted = starts[1:81]
        assert abs(counted.count("heavy") - 60) <= 3
        assert "light, light" not in ", ".join(counted), "the light one has one turn a round"
        assert max(len(run) for run in "".join(name[0] for name in counted).split("l")) == 3
        await runtime.aclose(now=True)


async def test_a_company_alone_uses_every_slot_whatever_its_weight(
    opened: Opened, autojump_clock: MockClock
) -> None:
    starts: list[str] = []
    async with opened({"work": recorder(starts)}, executions_max=8) as runtime:
        await runtime.company("only").ask(wide("only", 40))
        await trio.sleep(0.5)
        assert len(starts) == 8
        await run_until_idle(runtime)
    assert len(starts) == 40


async def test_zero_execution_slots_hold_everything_and_explain_says_so(
    opened: Opened, autojump_clock: MockClock
) -> None:
    starts: list[str] = []
    async with opened({"work": recorder(starts)}, executions_max=0) as runtime:
        task = await runtime.company("k").ask(wide("held", 1))
        await trio.sleep(200)
        status = await runtime.company("k").status(task.id)
        assert (status.state, [reason.kind.value for reason in status.reasons]) == (
            WorkState.RUNNING,
            ["execution_slot"],
        )
        assert starts == []
        await runtime.aclose(now=True)


async def test_no_run_slots_hold_everything_and_explain_says_so(
    opened: Opened, autojump_clock: MockClock
) -> None:
    starts: list[str] = []
    async with opened({"work": recorder(starts)}) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=0))
        task = await company.ask(wide("held", 1))
        await trio.sleep(200)
        (gate,) = (await company.explain(task.id)).gates
        assert (gate.kind.value, dict(gate.numbers)) == ("run_slots", {"active": 0, "runs_max": 0})
        await company.ask(SetLimits(runs_max=1))
        assert (await company.when_settled(task.id)).status.value == "completed"
    assert starts == ["k"]


async def test_slots_are_never_more_than_the_limit_with_many_companies(
    opened: Opened, autojump_clock: MockClock
) -> None:
    live = high = 0

    async def work(ctx: Context) -> None:
        nonlocal live, high
        live += 1
        high = max(high, live)
        await trio.sleep(0.1 * (1 + ctx.attempt % 3))
        live -= 1

    async with opened({"work": work}, executions_max=3) as runtime:
        for number in range(12):
            await runtime.company(f"c{number}").ask(
                SubmitMany([Submit("x", handler="work") for _ in range(5)])
            )
        await run_until_idle(runtime)
        assert inside(runtime).services.registry.slots_in_use == 0
    assert high == 3
