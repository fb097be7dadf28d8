"""An attempt that says nothing for its stall limit is warned of, cancelled, and left behind if it will not go."""

from __future__ import annotations

import gc

import trio
from trio.testing import MockClock

from actors import AttemptEnd, Context, Node, Stop, Submit, WorkState
from actors.core.reports import Report
from actors.testing import run_until_idle
from tests.conftest import Opened


def stalling(stall_s: float | None, *, tries_max: int = 1) -> Submit:
    return Submit("x", nodes=[Node("n", "work", stall_s=stall_s, tries_max=tries_max)])


async def test_progress_keeps_an_attempt_alive_and_silence_ends_it(
    opened: Opened, autojump_clock: MockClock
) -> None:
    """C07: the first reports every 20 s for 3,000 s at a limit of 300 s; the second says nothing."""

    async def work(ctx: Context) -> str:
        if ctx.task == "talks":
            for step in range(150):
                ctx.progress(f"step {step}")
                await trio.sleep(20)
            return "done"
        await trio.sleep(3000)
        return "never"

    async with opened({"work": work}) as runtime:
        talks, silent = runtime.company("a"), runtime.company("b")
        nodes = [Node("n", "work", stall_s=300, tries_max=1)]
        await talks.ask(Submit("t", nodes=nodes, id="talks"))
        await silent.ask(Submit("s", nodes=nodes, id="silent"))
        await run_until_idle(runtime)
        assert (await talks.status("talks")).state is WorkState.COMPLETED
        assert len(await talks.attempts("talks")) == 1
        (attempt,) = await silent.attempts("silent")
        assert (attempt.end, attempt.error) == (AttemptEnd.STALLED, "Stalled: said nothing for 300 s")
        assert attempt.ended_ms is not None
        assert attempt.ended_ms - attempt.started_ms == 300_000
        kinds = [event.kind for event in await silent.timeline("silent")]
        assert kinds == [
            "task.submitted",
            "run.admitted",
            "attempt.started",
            "attempt.quiet",
            "attempt.stalled",
            "run.failed",
        ]


async def test_half_of_the_limit_is_warned_of_once_until_it_gets_on(
    opened: Opened, autojump_clock: MockClock
) -> None:
    async def work(ctx: Context) -> None:
        await trio.sleep(70)
        ctx.progress("again")
        await trio.sleep(70)

    async with opened({"work": work}) as runtime:
        task = await runtime.company("a").ask(stalling(100))
        await run_until_idle(runtime)
        quiet = [
            event for event in await runtime.company("a").timeline(task.id) if event.kind == "attempt.quiet"
        ]
        assert [dict(event.data) for event in quiet] == [{"quiet_s": 50.0, "stall_s": 100.0}] * 2


async def test_the_result_of_an_attempt_is_not_kept_while_its_stall_limit_runs_on(
    opened: Opened, autojump_clock: MockClock
) -> None:
    """The watch looks at an attempt only when its time comes, which may be hours after its end."""

    async def work(_ctx: Context) -> str:
        return "x" * 1_000_000

    def reports() -> int:
        gc.collect()
        return sum(isinstance(thing, Report) for thing in gc.get_objects())

    before = reports()  # of other tests, which may hold to what they like
    async with opened({"work": work}) as runtime:
        await runtime.company("a").ask(stalling(7_200))
        await run_until_idle(runtime)
        await trio.sleep(60)
        assert reports() <= before
        assert len(runtime.executor._watch._heap) == 1


async def test_waiting_is_not_silence(opened: Opened, autojump_clock: MockClock) -> None:
    async def work(ctx: Context) -> None:
        async with ctx.waiting("two hours"):
            await trio.sleep(7_200)
        await trio.sleep(50)

    async with opened({"work": work}) as runtime:
        task = await runtime.company("a").ask(stalling(100))
        await run_until_idle(runtime)
        assert (await runtime.company("a").status(task.id)).state is WorkState.COMPLETED


async def test_without_a_limit_silence_may_last(opened: Opened, autojump_clock: MockClock) -> None:
    async def work(_ctx: Context) -> None:
        await trio.sleep(7_200)

    async with opened({"work": work}) as runtime:
        task = await runtime.company("a").ask(stalling(None))
        await run_until_idle(runtime)
        assert (await runtime.company("a").status(task.id)).state is WorkState.COMPLETED


async def test_one_that_swallows_cancellation_is_left_behind_and_its_late_result_changes_nothing(
    opened: Opened, autojump_clock: MockClock
) -> None:
    """C07, C11: the attempt that was released must not walk on through the graph."""
    ran: list[str] = []

    async def stubborn(ctx: Context) -> str:
        ran.append(f"n1 #{ctx.attempt}")
        if ctx.attempt == 1:
            with trio.CancelScope(shield=True):
                await trio.sleep(60)
            return "late"
        return "in time"

    async def after(ctx: Context) -> object:
        ran.append(f"n2 {ctx.inputs['n1']}")
        return ctx.inputs["n1"]

    nodes = [Node("n1", "stubborn", stall_s=5, tries_max=2), Node("n2", "after", after=["n1"])]
    async with opened({"stubborn": stubborn, "after": after}, stop_grace_s=1) as runtime:
        company = runtime.company("a")
        task = await company.ask(Submit("x", nodes=nodes))
        outcome = await company.when_settled(task.id)
        assert outcome.result == {"n1": "in time", "n2": "in time"}
        assert runtime.statistics().abandoned == 1
        await trio.sleep(100)
        assert runtime.statistics().abandoned == 0
        late = [event for event in await company.timeline(task.id) if event.kind == "attempt.late"]
        assert [(event.attempt, event.data["outcome"]) for event in late] == [(1, "succeeded")]
        assert (await company.result(task.id)) == {"n1": "in time", "n2": "in time"}
    assert ran == ["n1 #1", "n1 #2", "n2 in time"]


async def test_at_abandoned_max_nothing_new_starts_and_explain_says_why(
    opened: Opened, autojump_clock: MockClock
) -> None:
    async def stubborn(_ctx: Context) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(1000)

    async def fine(_ctx: Context) -> str:
        return "ran"

    handlers = {"stubborn": stubborn, "fine": fine}
    async with opened(handlers, stop_grace_s=1, abandoned_max=2, executions_max=10) as runtime:
        for name in ("a", "b"):
            task = await runtime.company(name).ask(Submit("x", handler="stubborn"))
            await trio.sleep(1)
            await runtime.company(name).ask(Stop(task.id))
            await runtime.company(name).when_settled(task.id)
        assert runtime.statistics().abandoned == 2
        held = await runtime.company("c").ask(Submit("y", handler="fine"))
        await trio.sleep(10)
        (gate,) = (await runtime.company("c").explain(held.id)).gates
        assert (gate.kind.value, gate.count) == ("abandoned_limit", 2)
        assert gate.text is not None
        assert "a/@1/1/stubborn/1" in gate.text
        outcome = await runtime.company("c").when_settled(held.id)
        assert outcome.result == {"fine": "ran"}, "when the first of them has gone, it starts"
