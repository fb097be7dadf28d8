"""Actors exist only while there is something to do, and nobody who writes to an absent one is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from actors import Backoff, Context, Node, Runtime, SetLimits, Start, Submit, SubmitMany, WorkState
from actors.core.heap import HEAP_SLACK
from actors.runtime.company import CompanyActor
from actors.runtime.due_times import DueTimes
from actors.runtime.options import IDLE_S
from actors.testing import VirtualClock
from tests.inside import inside
from tests.runtime.support import Gated, Scripted, a_host, a_task, idle, quiet, settled


def present(runtime: Runtime) -> list[str]:
    return [cell.name for cell in inside(runtime).services.directory.cells]


# --- leaving --------------------------------------------------------------------------------------------------------


async def test_a_company_with_nothing_to_do_leaves_after_a_while_whatever_it_has_queued(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="done"))
        await company.ask(a_task("ok", id="held", mode="manual"))
        await company.ask(a_task("ok", id="waits", depends_on=["held"]))
        await idle(runtime)
        await trio.sleep(IDLE_S - 1)
        assert present(runtime) == ["k"]
        await trio.sleep(2)
        assert present(runtime) == []
        assert [status.state for status in await company.queue()] == [WorkState.HELD, WorkState.WAITING]
        await company.when_idle()
        await company.ask(Start("held"))
        assert await settled(company, "waits") == "completed"


async def test_one_in_conversation_stays(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(Submit("first"))
        actor = inside(runtime).services.directory.memory("k")
        for _ in range(5):
            await trio.sleep(IDLE_S - 1)
            await company.ask(Submit("another"))
        assert inside(runtime).services.directory.memory("k") is actor


async def test_one_with_an_attempt_under_way_or_waiting_for_a_slot_stays(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Gated()
    async with a_host(db_path, {"work": work}, executions_max=1) as runtime:
        await runtime.company("runs").ask(a_task("work"))
        await work.has_started()
        await runtime.company("wants").ask(a_task("work"))
        await trio.sleep(3600)
        assert sorted(present(runtime)) == ["runs", "wants"]
        work.open.set()
        await idle(runtime)
        await trio.sleep(IDLE_S + 1)
        assert present(runtime) == []


async def test_a_handle_of_a_company_that_left_is_as_good_as_a_new_one(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        for number in range(5):
            report = await company.ask(a_task("ok"))
            assert report.seq == number + 1
            assert await settled(company, report.id) == "completed"
            await trio.sleep(IDLE_S * 2)
            assert present(runtime) == []


# --- the race -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["ask", "tell", "tell_nowait", "wake"])
async def test_a_message_at_any_checkpoint_around_the_leaving_is_not_lost(
    db_path: Path, autojump_clock: MockClock, how: str
) -> None:
    """C68. The sender wakes at the very moment at which the actor does, and then some checkpoints later."""
    async with a_host(db_path) as runtime:
        for steps in range(25):
            company = runtime.company(f"k{steps}")
            await company.ask(Submit("so that it is there"))
            await quiet(company)
            await trio.sleep(IDLE_S)
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            if how == "ask":
                await company.ask(a_task("ok", id="a"))
            elif how == "tell":
                await company.tell(a_task("ok", id="a"))
            elif how == "tell_nowait":
                company.tell_nowait(a_task("ok", id="a"))
            else:
                inside(runtime).services.directory.wake(company.name)
                await company.ask(a_task("ok", id="a"))
        for steps in range(25):
            await quiet(runtime.company(f"k{steps}"))
            assert await settled(runtime.company(f"k{steps}"), "a") == "completed"


async def test_there_is_never_more_than_one_actor_of_a_company(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CompanyActor.run
    alive: dict[str, int] = {}
    most = 0

    async def counted(actor: CompanyActor) -> None:
        nonlocal most
        alive[actor.name] = alive.get(actor.name, 0) + 1
        most = max(most, alive[actor.name])
        try:
            await run(actor)
        finally:
            alive[actor.name] -= 1

    monkeypatch.setattr(CompanyActor, "run", counted)
    async with a_host(db_path, idle_s=0.001) as runtime:
        company = runtime.company("k")
        async with trio.open_nursery() as nursery:
            for number in range(60):
                nursery.start_soon(company.ask, a_task("ok"))
                if number % 3 == 0:
                    await trio.sleep(0.001 * (number % 5))
        await idle(runtime)
        assert len(await company.tasks()) == 60
    assert most == 1


# --- many -----------------------------------------------------------------------------------------------------------


async def test_after_hundreds_of_companies_every_registry_is_empty_again(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C68, scaled down."""
    async with a_host(db_path) as runtime:
        for start in range(0, 300, 50):
            async with trio.open_nursery() as nursery:
                for number in range(start, start + 50):
                    nursery.start_soon(runtime.company(f"k{number}").ask, a_task("ok"))
            await trio.sleep(1)
        await idle(runtime)
        await trio.sleep(600)
        assert present(runtime) == []
        assert len(inside(runtime).services.registry) == 0
        slots = inside(runtime).services.slots
        assert [len(getattr(slots, name)) for name in ("_line", "_offers")] == [0, 0]
        assert len(getattr(inside(runtime).services.registry, "_by_company")) == 0  # noqa: B009
        assert not inside(runtime).services.directory.due.working
        assert len(await runtime.companies()) == 300
        await runtime.company("k7").ask(a_task("ok", id="again"))
        assert await settled(runtime.company("k7"), "again") == "completed"


# --- coming back ----------------------------------------------------------------------------------------------------


async def test_a_company_that_left_is_brought_back_when_something_of_it_is_due(
    db_path: Path, autojump_clock: MockClock
) -> None:
    began: list[float] = []

    async def work(ctx: Context) -> None:
        began.append(trio.current_time())
        if ctx.attempt < 3:
            raise ValueError("no luck")

    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        node = Node("n", "work", retry=Backoff(base_s=3600, factor=1))
        await company.ask(a_task(nodes=[node], id="a"))
        await trio.sleep(IDLE_S + 1)
        assert present(runtime) == []
        assert await settled(company, "a") == "completed"
    for wait in (began[1] - began[0], began[2] - began[1]):
        assert 3600 <= wait <= 3600 * 1.1 + 1


async def test_due_times_of_the_last_process_are_known_at_the_start(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work, clock = Scripted([ValueError("no luck"), "done"]), VirtualClock()
    async with a_host(db_path, {"work": work}, clock=clock) as runtime:
        node = Node("n", "work", retry=Backoff(base_s=3600))
        await runtime.company("k").ask(a_task(nodes=[node], id="a"))
        await runtime.company("k").when_idle()
    began = trio.current_time()
    async with a_host(db_path, {"work": work}, clock=clock) as runtime:
        await trio.sleep(120)
        assert present(runtime) == []
        assert await settled(runtime.company("k"), "a") == "completed"
        assert 3600 <= trio.current_time() - began <= 3600 * 1.1 + 1


async def test_a_wall_clock_that_jumps_forward_is_noticed_within_a_minute(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work, clock = Scripted([ValueError("no luck"), "done"]), VirtualClock()
    async with a_host(db_path, {"work": work}, clock=clock) as runtime:
        company = runtime.company("k")
        await company.ask(
            a_task(nodes=[Node("n", "work", retry=Backoff(base_s=86_400, max_s=86_400))], id="a")
        )
        await trio.sleep(IDLE_S + 1)
        assert present(runtime) == []
        clock.jump(2 * 86_400)
        began = trio.current_time()
        assert await settled(company, "a") == "completed"
        assert trio.current_time() - began <= 60


async def test_a_wall_clock_that_jumps_back_makes_wait_and_nothing_runs_twice(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work, clock = Scripted([ValueError("no luck"), "done"]), VirtualClock()
    async with a_host(db_path, {"work": work}, clock=clock) as runtime:
        company = runtime.company("k")
        await company.ask(a_task(nodes=[Node("n", "work", retry=Backoff(base_s=100))], id="a"))
        await company.when_idle()
        clock.jump(-3600)
        await trio.sleep(1800)
        assert work.calls == 1
        assert await settled(company, "a") == "completed"
    assert work.calls == 2


async def test_many_that_are_due_at_once_all_come_back(db_path: Path, autojump_clock: MockClock) -> None:
    async def work(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError("no luck")

    async with a_host(db_path, {"work": work}) as runtime:
        for number in range(30):
            node = Node("n", "work", retry=Backoff(base_s=600))
            await runtime.company(f"k{number}").ask(a_task(nodes=[node], id="a"))
        await trio.sleep(60)
        assert present(runtime) == []
        for number in range(30):
            assert await settled(runtime.company(f"k{number}"), "a") == "completed"


# --- the due times themselves -----------------------------------------------------------------------------------------


def test_a_company_has_one_due_time_however_often_it_comes_and_goes() -> None:
    times = DueTimes()
    for due in range(1_000, 0, -1):
        times.note("k", due, works=True)
        times.note("k", due, works=True)
    assert times.first() == (1, "k")
    assert len(times) == 1
    assert len(times._heap) <= 2 + HEAP_SLACK + 1
    times.forget("k")
    assert times.first() is None


def test_the_earliest_due_time_of_all_is_first() -> None:
    times = DueTimes()
    for company, due in (("a", 30), ("b", 10), ("c", 20), ("b", 40)):
        times.note(company, due, works=True)
    order = []
    while (first := times.first()) is not None:
        order.append(first)
        times.forget(first[1])
    assert order == [(20, "c"), (30, "a"), (40, "b")]


async def test_limits_and_graphs_of_a_company_that_left_are_there_when_it_comes_back(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Gated()
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=3))
        await trio.sleep(IDLE_S * 2)
        assert present(runtime) == []
        await company.ask(SubmitMany([a_task("work") for _ in range(5)]))
        await work.has_started(3)
        await trio.testing.wait_all_tasks_blocked()
        assert work.running == 3
        work.open.set()
        await idle(runtime)
