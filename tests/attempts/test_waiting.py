"""`Context.waiting` gives the execution slot to others and takes one back before anything new starts."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from actors import Context, Node, Stop, Submit, SubmitMany, WorkState
from actors.testing import run_until_idle
from tests.conftest import Opened
from tests.inside import inside


async def test_who_waits_frees_its_slot_and_comes_back_before_new_attempts(
    opened: Opened, autojump_clock: MockClock
) -> None:
    said: list[str] = []
    answer = trio.Event()

    async def asks(ctx: Context) -> str:
        said.append("asks")
        async with ctx.waiting("the answer"):
            await answer.wait()
        said.append("goes on")
        return "answered"

    async def works(ctx: Context) -> None:
        said.append(f"works {ctx.task}")
        if len([line for line in said if line.startswith("works")]) == 2:
            answer.set()
        await trio.sleep(1)

    async with opened({"asks": asks, "works": works}, executions_max=1) as runtime:
        first = await runtime.company("a").ask(Submit("asks", handler="asks", id="q"))
        await runtime.company("b").ask(
            SubmitMany([Submit("w", handler="works", id=f"w{n}") for n in range(4)])
        )
        await run_until_idle(runtime)
        assert (await runtime.company("a").result(first.id)) == {"asks": "answered"}
    assert said == ["asks", "works w0", "works w1", "goes on", "works w2", "works w3"]


async def test_explain_names_what_is_waited_for_to_the_run_and_to_those_it_holds_up(
    opened: Opened, autojump_clock: MockClock
) -> None:
    async def asks(ctx: Context) -> None:
        async with ctx.waiting("a person"):
            await trio.sleep_forever()

    async with opened({"asks": asks}) as runtime:
        company = runtime.company("a")
        first = await company.ask(Submit("first", handler="asks"))
        second = await company.ask(Submit("second", handler="asks"))
        await trio.sleep(1)
        (reason,) = (await company.status(first.id)).reasons
        assert (reason.kind.value, reason.nodes, reason.text) == ("waiting", ("asks",), "a person")
        assert reason.at_ms == 1_767_225_600_000
        gate = (await company.explain(second.id)).gates[0]
        assert (gate.kind.value, gate.tasks, gate.text) == (
            "run_slots",
            (first.id,),
            f"{first.id} waits for: a person",
        )
        assert runtime.statistics().waiting == 1
        assert runtime.statistics().executing == 0
        await runtime.aclose(now=True)


async def test_an_attempt_that_waits_can_be_stopped(opened: Opened, autojump_clock: MockClock) -> None:
    async def asks(ctx: Context) -> None:
        async with ctx.waiting("for ever"):
            await trio.sleep_forever()

    async with opened({"asks": asks}, executions_max=1) as runtime:
        company = runtime.company("a")
        task = await company.ask(Submit("x", handler="asks"))
        await trio.sleep(1)
        await company.ask(Stop(task.id))
        assert (await company.when_settled(task.id)).status.value == "stopped"
        assert inside(runtime).services.registry.slots_in_use == 0


async def test_an_attempt_can_be_stopped_while_it_wants_its_slot_back(
    opened: Opened, autojump_clock: MockClock
) -> None:
    wants_back = trio.Event()

    async def asks(ctx: Context) -> None:
        try:
            async with ctx.waiting("a moment"):
                await trio.sleep(1)
                wants_back.set()
        finally:
            assert ctx.cancel_requested

    async def hogs(_ctx: Context) -> None:
        await trio.sleep(100)

    async with opened({"asks": asks, "hogs": hogs}, executions_max=1) as runtime:
        a, b = runtime.company("a"), runtime.company("b")
        task = await a.ask(Submit("x", handler="asks"))
        await b.ask(Submit("y", handler="hogs"))
        await wants_back.wait()
        await trio.sleep(1)
        await a.ask(Stop(task.id))
        with trio.fail_after(1):
            assert (await a.when_settled(task.id)).status.value == "stopped"
        assert inside(runtime).services.registry.slots_in_use == 1
        await runtime.aclose(now=True)


async def test_a_time_limit_of_the_handlers_own_does_not_leave_it_without_a_slot(
    opened: Opened, autojump_clock: MockClock
) -> None:
    async def asks(ctx: Context) -> str:
        with trio.move_on_after(5):
            async with ctx.waiting("too long"):
                await trio.sleep_forever()
        return "gave up waiting"

    async def hogs(_ctx: Context) -> None:
        await trio.sleep(20)

    async with opened({"asks": asks, "hogs": hogs}, executions_max=1) as runtime:
        task = await runtime.company("a").ask(Submit("x", handler="asks"))
        await runtime.company("b").ask(Submit("y", handler="hogs"))
        began_s = trio.current_time()
        assert (await runtime.company("a").when_settled(task.id)).result == {"asks": "gave up waiting"}
        assert trio.current_time() - began_s >= 20, "it had to wait for the slot that it had given away"


async def test_waiting_inside_waiting_counts_once(opened: Opened, autojump_clock: MockClock) -> None:
    async def asks(ctx: Context) -> int:
        async with ctx.waiting("outer"), ctx.waiting("inner"):
            await trio.sleep(1)
        return runtime_slots()

    def runtime_slots() -> int:
        return inside(runtime).services.registry.slots_in_use

    async with opened({"asks": asks}) as runtime:
        task = await runtime.company("a").ask(Submit("x", handler="asks"))
        assert (await runtime.company("a").when_settled(task.id)).result == {"asks": 1}


async def test_past_waiting_max_an_attempt_that_waits_keeps_its_slot(
    opened: Opened, autojump_clock: MockClock
) -> None:
    async def asks(ctx: Context) -> None:
        async with ctx.waiting("an hour"):
            await trio.sleep(3600)

    async with opened({"asks": asks}, executions_max=5, waiting_max=2) as runtime:
        company = runtime.company("a")
        task = await company.ask(Submit("x", nodes=[Node(f"n{n}", "asks") for n in range(4)]))
        await trio.sleep(1)
        assert (runtime.statistics().waiting, runtime.statistics().executing) == (2, 2)
        kinds = sorted(reason.kind.value for reason in (await company.status(task.id)).reasons)
        assert kinds == ["executing", "waiting", "waiting"]
        await run_until_idle(runtime)
        assert (await company.status(task.id)).state is WorkState.COMPLETED
