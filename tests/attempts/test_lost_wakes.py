"""Nothing stands still that could go on. The sweep is switched off in all of these, so it cannot help."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import actors.runtime.sweep
from actors import AttemptEnd, Context, Node, Submit, WorkState
from actors.handlers import freeze
from actors.runtime.hub import Hub
from actors.runtime.runtime import Options, run_database
from actors.testing import VirtualClock, run_until_idle
from tests.cases.test_supervision import Outage
from tests.conftest import Opened


@pytest.fixture(autouse=True)
def no_sweep() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(actors.runtime.sweep, "EVERY_S", 1e9)
        yield


async def two_wait(ctx: Context) -> str:
    """Two children of one handler wait, and want back at different times."""

    async def one() -> None:
        async with ctx.waiting("a"):
            await trio.sleep(1)

    async def other() -> None:
        await trio.sleep(2)
        async with ctx.waiting("b"):
            await trio.sleep(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(one)
        nursery.start_soon(other)
    return "both back"


async def test_two_children_of_one_handler_come_back_from_waiting_together(
    opened: Opened, autojump_clock: MockClock
) -> None:
    async def busy(_ctx: Context) -> None:
        await trio.sleep(10)

    async with opened({"two": two_wait, "busy": busy}, executions_max=1) as runtime:
        await runtime.company("a").ask(Submit("x", handler="two", id="x"))
        await trio.sleep(0.1)
        await runtime.company("b").ask(Submit("y", handler="busy"))
        with trio.fail_after(30):
            assert (await runtime.company("a").when_settled("x")).result == {"two": "both back"}


@pytest.mark.parametrize("slots", [1, 2])
async def test_entering_again_in_the_moment_of_coming_back_asks_for_no_second_slot(
    slots: int, opened: Opened, autojump_clock: MockClock
) -> None:
    async def two(ctx: Context) -> str:
        async def one() -> None:
            async with ctx.waiting("a"):
                await trio.sleep(1)

        async def other() -> None:
            await trio.sleep(1)
            async with ctx.waiting("b"):
                pass

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one)
            nursery.start_soon(other)
        return "done"

    async def busy(_ctx: Context) -> None:
        await trio.sleep(1.5)

    async with opened({"two": two, "busy": busy}, executions_max=slots) as runtime:
        for number in range(5):
            await runtime.company("a").ask(Submit("x", handler="two", id=f"x{number}"))
            await runtime.company("b").ask(Submit("y", handler="busy"))
        with trio.fail_after(60):
            await run_until_idle(runtime)
        states = [task.state for task in await runtime.company("a").tasks()]
        assert states == [WorkState.COMPLETED] * 5
        assert {attempt.end for attempt in await runtime.company("a").attempts("x0")} == {
            AttemptEnd.SUCCEEDED
        }


async def test_a_slot_given_away_while_waiting_is_not_taken_back_beside_its_new_holder(
    opened: Opened, autojump_clock: MockClock
) -> None:
    live = high = 0

    async def blinks(ctx: Context) -> None:
        nonlocal live, high
        for _ in range(20):
            async with ctx.waiting("a moment"):
                pass
            live += 1
            high = max(high, live)
            await trio.sleep(0.01)
            live -= 1

    async with opened({"blinks": blinks}, executions_max=1) as runtime:
        for name in ("a", "b", "c"):
            await runtime.company(name).ask(Submit("x", handler="blinks", id="x"))
        while any([(await runtime.company(n).status("x")).state is not WorkState.COMPLETED for n in "abc"]):
            await trio.sleep(0.005)
            assert runtime.registry.slots_in_use <= 1
    assert high == 1


async def test_a_slot_that_was_promised_to_a_company_is_not_given_to_one_that_comes_back_before_it_was_used(
    opened: Opened, autojump_clock: MockClock
) -> None:
    """It comes back in the very step in which its slot was promised to the next in line."""
    held: list[int] = []
    order: list[str] = []

    async def blinks(ctx: Context) -> None:
        await trio.sleep(1)  # the others stand in line
        async with ctx.waiting("a moment"):
            pass
        held.append(runtime.registry.slots_in_use)
        order.append("blinks")
        await trio.sleep(1)

    async def works(ctx: Context) -> None:
        held.append(runtime.registry.slots_in_use)
        order.append(ctx.company.name)
        await trio.sleep(1)

    async with opened({"blinks": blinks, "works": works}, executions_max=1) as runtime:
        await runtime.company("a").ask(Submit("x", handler="blinks"))
        for name in ("b", "c"):
            await runtime.company(name).ask(Submit("y", handler="works"))
        await run_until_idle(runtime)
    assert held == [1, 1, 1]
    assert order == ["b", "blinks", "c"], "then it comes before those that are new"


async def test_a_time_out_in_the_moment_of_coming_back_is_a_time_out(
    opened: Opened, autojump_clock: MockClock
) -> None:
    async def waits(ctx: Context) -> None:
        async with ctx.waiting("x"):
            await trio.sleep(5)
        await trio.sleep(1)

    async with opened({"waits": waits}) as runtime:
        company = runtime.company("a")
        for number in range(8):
            node = Node("n", "waits", timeout_s=5.0, tries_max=1)
            await company.ask(Submit("x", nodes=[node], id=f"x{number}"))
        await run_until_idle(runtime)
        ends = {attempt.end for number in range(8) for attempt in await company.attempts(f"x{number}")}
        assert ends == {AttemptEnd.TIMED_OUT}


async def test_what_was_held_up_by_attempts_left_behind_starts_when_they_are_gone(
    opened: Opened, autojump_clock: MockClock
) -> None:
    gone = trio.Event()

    async def stubborn(_ctx: Context) -> None:
        with trio.CancelScope(shield=True):
            await gone.wait()

    async def fine(_ctx: Context) -> str:
        return "ran"

    async with opened({"stubborn": stubborn, "fine": fine}, abandoned_max=1, stop_grace_s=1) as runtime:
        node = Node("n", "stubborn", timeout_s=1, tries_max=1)
        await runtime.company("a").ask(Submit("x", nodes=[node]))
        await trio.sleep(5)
        await runtime.company("b").ask(Submit("y", handler="fine", id="y"))
        await trio.sleep(60)
        gone.set()
        with trio.fail_after(5):
            assert (await runtime.company("b").when_settled("y")).result == {"fine": "ran"}


async def test_what_became_due_while_the_store_was_away_starts_when_it_is_back(
    db_path: Path, autojump_clock: MockClock
) -> None:
    from actors import RetryAfter

    async def later(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise RetryAfter(8)
        return "ran"

    outage = Outage()
    options = Options(freeze({"later": later}), clock_ms=VirtualClock())
    async with run_database(db_path, options, how="inline", wrap=outage) as runtime:
        await runtime.company("a").ask(Submit("x", handler="later", id="x"))
        await trio.sleep(4)
        outage.down = True
        await runtime.company("b").tell(Submit("y"))  # somebody has to notice
        await trio.sleep(125)
        outage.down = False
        with trio.fail_after(20):
            assert (await runtime.company("a").when_settled("x")).result == {"later": "ran"}


async def test_of_two_suspects_the_second_starts_when_the_first_ends_in_the_very_moment_it_becomes_ready(
    opened: Opened, autojump_clock: MockClock, db_path: Path
) -> None:
    async def quick(_ctx: Context) -> None:
        await trio.sleep(1)

    async with opened({"quick": quick}) as runtime:
        for round_number in range(6):
            a, b = runtime.company(f"a{round_number}"), runtime.company(f"b{round_number}")
            await a.ask(Submit("x", nodes=[Node("s", "quick")], id="x"))
            await b.ask(Submit("y", nodes=[Node("go", "quick"), Node("s", "quick", after=["go"])], id="y"))
            began_s = trio.current_time()
            await a.when_settled("x")
            await b.when_settled("y")
            assert trio.current_time() - began_s < 5


async def test_a_change_between_taking_the_event_and_waiting_for_it_is_not_missed() -> None:
    """A reader takes the event, reads for a while, and only then waits."""
    hub = Hub()
    news = hub.news
    hub.notify()
    assert news.is_set()
    again = hub.news
    assert not again.is_set()
    hub.notify()
    hub.notify()
    assert again.is_set()


async def test_who_follows_one_company_hears_of_it_and_of_what_concerns_all_and_of_nothing_else() -> None:
    hub = Hub()
    with hub.following("a") as first, hub.following("a") as second:
        news = first.event
        assert second.event is news
        hub.notify("b")
        assert not news.is_set()
        hub.notify("a")
        assert news.is_set()
        again = first.event
        hub.notify()
        assert again.is_set()
    with hub.following("a") as third:
        assert third is not first, "nothing is kept of a company that nobody follows"


async def test_reads_are_answered_while_a_company_is_flooded(
    db_path: Path, autojump_clock: MockClock
) -> None:
    options = Options(freeze({}), clock_ms=VirtualClock())
    async with run_database(db_path, options, how="inline") as runtime, trio.open_nursery() as nursery:
        company = runtime.company("a")
        first = await company.ask(Submit("x", mode="manual", id="first"))

        async def flood() -> None:
            while True:
                await company.tell(Submit("y"))

        nursery.start_soon(flood)
        for _ in range(3):
            with trio.fail_after(5):
                assert (await company.status(first.id)).state is WorkState.HELD
                await company.explain(first.id)
        nursery.cancel_scope.cancel()
    assert sqlite3.connect(db_path).execute("SELECT count(*) FROM tasks").fetchone()[0] > 3
