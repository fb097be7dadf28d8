"""A stop works in every phase of an attempt, twice is harmless, and ends within the grace in every case."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from actors import (
    AttemptEnd,
    Backoff,
    Company,
    Context,
    Node,
    NodeStatus,
    Pause,
    Retry,
    RunStatus,
    SetLimits,
    Start,
    Stop,
    StopGoal,
    WorkState,
)
from actors.runtime.execution import STOP_GRACE_S
from tests.runtime.support import (
    Gated,
    GatedConnection,
    Stubborn,
    Wrapper,
    a_host,
    a_task,
    idle,
    kinds,
    of_kind,
    settled,
    stored_events,
)


async def ends(company: Company, task: str = "a") -> list[AttemptEnd | None]:
    return [view.end for view in await company.attempts(task)]


async def slot_is_free(company: Company) -> None:
    """With one run slot: whatever comes next is completed."""
    with trio.fail_after(1):
        report = await company.ask(a_task())
        assert await settled(company, report.id) == "completed"


async def test_a_queued_task_is_stopped_on_the_spot_and_never_starts(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C46, while queued."""
    work = Gated()
    async with a_host(db_path, {"work": work}, timeless=True) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=0))
        await company.ask(a_task("work", id="a"))
        moved = await company.ask(Stop("a"))
        assert (moved.status, moved.changed) == (RunStatus.STOPPED, True)
        await company.ask(SetLimits(runs_max=1))
        await slot_is_free(company)
        assert await ends(company) == []
    assert work.contexts == []


async def test_a_stop_that_meets_the_commit_of_the_start_cancels_what_it_started(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C46, while persisting."""
    work, gate = Gated(), Wrapper(GatedConnection)
    async with a_host(db_path, {"work": work}, wrap=gate) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a", mode="manual"))
        await company.when_idle()
        gate.made.shut()
        await company.tell(Start("a"))
        await gate.made.is_asked()
        assert [attempt.phase.value for attempt in runtime.registry] == ["persisting"]
        await company.tell(Stop("a"))
        await trio.testing.wait_all_tasks_blocked()
        gate.made.let_go()
        assert await settled(company, "a") == "stopped"
        assert await ends(company) == [AttemptEnd.STOPPED]
        await slot_is_free(company)
    assert work.running == 0


async def test_an_executing_attempt_is_cancelled_and_what_it_has_not_reached_is_skipped(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Gated()
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        nodes = [Node("one", "ok"), Node("two", "work", after=["one"]), Node("three", "ok", after=["two"])]
        await company.ask(a_task(nodes=nodes, id="a"))
        await work.has_started()
        moved = await company.ask(Stop("a"))
        assert moved.status is RunStatus.STOPPING
        with trio.fail_after(1):
            outcome = await company.when_settled("a")
        assert (outcome.status, outcome.result) == (RunStatus.STOPPED, {"one": None})
        assert [node.status for node in (await company.status("a")).nodes] == [
            NodeStatus.SUCCEEDED,
            NodeStatus.SKIPPED,
            NodeStatus.SKIPPED,
        ]
        await slot_is_free(company)
    assert work.cancelled == 1


async def test_every_attempt_of_a_run_is_cancelled(db_path: Path, autojump_clock: MockClock) -> None:
    work = Gated()
    async with a_host(db_path, {"work": work}, timeless=True) as runtime:
        company = runtime.company("k")
        await company.ask(a_task(nodes=[Node(str(number), "work") for number in range(10)], id="a"))
        await work.has_started(10)
        await company.ask(Stop("a"))
        assert await settled(company, "a") == "stopped"
        assert await ends(company) == [AttemptEnd.STOPPED] * 10
    assert work.cancelled == 10


async def test_stopping_twice_changes_nothing_more(db_path: Path, autojump_clock: MockClock) -> None:
    work = Stubborn()
    async with a_host(db_path, {"work": work}, stop_grace_s=10) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await work.has_started()
        began = trio.current_time()
        first = await company.ask(Stop("a"))
        await trio.sleep(6)
        second = await company.ask(Stop("a"))
        assert (first.changed, second.changed, second.status) == (True, False, RunStatus.STOPPING)
        await company.when_settled("a")
        assert trio.current_time() - began == pytest.approx(10), "the second stop gives no new grace"
        third = await company.ask(Stop("a"))
        assert (third.changed, third.status) == (False, RunStatus.STOPPED)
        work.open.set()
        await idle(runtime)
    assert len(of_kind(stored_events(db_path), "run.stopping")) == 1
    assert len(of_kind(stored_events(db_path), "run.stopped")) == 1


async def test_a_stop_that_comes_after_the_result_finds_the_task_completed(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work, gate = Gated(), Wrapper(GatedConnection)
    async with a_host(db_path, {"work": work}, wrap=gate) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await work.has_started()
        gate.made.shut()
        work.open.set()
        await gate.made.is_asked()
        assert [attempt.phase.value for attempt in runtime.registry] == ["finalizing"]
        await company.tell(Stop("a"))
        await trio.testing.wait_all_tasks_blocked()
        gate.made.let_go()
        assert await settled(company, "a") == "completed"
        await slot_is_free(company)


async def test_a_result_after_the_commit_of_the_stop_does_not_count_and_the_log_says_what_it_was(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Stubborn("a result")
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await work.has_started()
        await company.ask(Stop("a"))
        work.open.set()
        outcome = await company.when_settled("a")
        assert (outcome.status, outcome.result) == (RunStatus.STOPPED, {})
        assert await ends(company) == [AttemptEnd.STOPPED]
    (event,) = of_kind(stored_events(db_path), "attempt.stopped")
    assert event.reason == "it ended as succeeded after the stop, which counts"


async def test_a_task_that_backs_off_is_stopped_on_the_spot(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(a_task(nodes=[Node("n", "fails", retry=Backoff(base_s=1000))], id="a"))
        await company.when_idle()
        moved = await company.ask(Stop("a"))
        assert await settled(company, "a") == "stopped"
        assert moved.changed
        await slot_is_free(company)
        await trio.sleep(2000)
        assert len(await ends(company)) == 1


async def test_a_task_that_waits_for_an_execution_slot_is_stopped_on_the_spot(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Gated()
    async with a_host(db_path, {"work": work}, executions_max=1) as runtime:
        await runtime.company("holder").ask(a_task("work", id="h"))
        await work.has_started()
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await company.ask(Stop("a"))
        with trio.fail_after(1):
            assert await settled(company, "a") == "stopped"
        work.open.set()
        await idle(runtime)
    assert work.started == ["h"]


async def test_a_task_of_a_paused_company_can_be_stopped(db_path: Path, autojump_clock: MockClock) -> None:
    work = Gated()
    async with a_host(db_path, {"work": work}, timeless=True) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await work.has_started()
        await company.ask(Pause())
        await company.ask(Stop("a"))
        assert await settled(company, "a") == "stopped"


async def test_a_goal_is_stopped_as_a_whole_in_one_commit(db_path: Path, autojump_clock: MockClock) -> None:
    work = Gated()
    async with a_host(db_path, {"work": work}, timeless=True) as runtime:
        company = runtime.company("k")
        for number in range(3):
            await company.ask(a_task("work", id=f"in {number}", goal="g"))
        await company.ask(a_task("ok", id="out", goal="other"))
        await work.has_started()
        stopped = await company.ask(StopGoal("g"))
        assert stopped.tasks == ("in 0", "in 1", "in 2")
        await idle(runtime)
        assert [(await company.status(f"in {number}")).state for number in range(3)] == [
            WorkState.STOPPED
        ] * 3
        assert (await company.status("out")).state is WorkState.COMPLETED
        assert (await company.ask(StopGoal("g"))).tasks == ()


# --- grace ----------------------------------------------------------------------------------------------------------


async def test_a_handler_that_does_not_hear_its_cancellation_is_left_behind_after_the_grace(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C46, C08: it ignores the stop, and its late end frees nothing."""
    work = Stubborn()
    async with a_host(db_path, {"work": work}, executions_max=1) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await company.ask(a_task("ok", id="b"))
        await work.has_started()
        began = trio.current_time()
        await company.ask(Stop("a"))
        assert await settled(company, "a") == "stopped"
        assert trio.current_time() - began == pytest.approx(STOP_GRACE_S)
        assert await settled(company, "b") == "completed", "both of its slots are free"
        assert [attempt.label for attempt in runtime.registry.abandoned] == ["k/a/1/work/1"]
        assert len(runtime.registry) == 0
        work.open.set()
        await idle(runtime)
        assert list(runtime.registry.abandoned) == []
    told = of_kind(
        stored_events(db_path), "attempt.abandoned", "attempt.stopped", "run.stopped", "attempt.late"
    )
    assert kinds(told) == ["attempt.abandoned", "attempt.stopped", "run.stopped", "attempt.late"]
    assert told[0].data == {"grace_s": STOP_GRACE_S}
    assert told[3].data == {"outcome": "succeeded"}


async def test_a_handler_that_needs_some_of_the_grace_gets_it(
    db_path: Path, autojump_clock: MockClock
) -> None:
    cleaned: list[float] = []

    async def work(_ctx: Context) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(4)
            cleaned.append(trio.current_time())

    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        await company.ask(Stop("a"))
        await company.when_settled("a")
        assert cleaned == [began + 4]
    assert of_kind(stored_events(db_path), "attempt.abandoned") == []


async def test_without_a_grace_it_is_left_behind_at_once(db_path: Path, autojump_clock: MockClock) -> None:
    work = Stubborn()
    async with a_host(db_path, {"work": work}, stop_grace_s=0) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await work.has_started()
        began = trio.current_time()
        await company.ask(Stop("a"))
        assert await settled(company, "a") == "stopped"
        assert trio.current_time() == began
        work.open.set()


async def test_what_was_left_behind_is_retried_beside_it_and_cannot_disturb_it(
    db_path: Path, autojump_clock: MockClock
) -> None:
    stubborn, second = Stubborn("of the first"), Gated("of the second")

    async def work(ctx: Context) -> object:
        return await (stubborn if ctx.attempt == 1 else second)(ctx)

    async with a_host(db_path, {"work": work}, stop_grace_s=1) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await stubborn.has_started()
        await company.ask(Stop("a"))
        await company.when_settled("a")
        await company.ask(Retry("a"))
        await second.has_started()
        stubborn.open.set()
        await trio.testing.wait_all_tasks_blocked()
        assert (await company.status("a")).state is WorkState.RUNNING
        second.open.set()
        assert (await company.when_settled("a")).result == {"work": "of the second"}


async def test_fail_fast_stops_the_others_with_their_grace_and_the_run_fails(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work, stubborn = Gated(), Stubborn()
    async with a_host(db_path, {"work": work, "stubborn": stubborn}, stop_grace_s=5) as runtime:
        company = runtime.company("k")
        nodes = [
            Node("hears", "work"),
            Node("deaf", "stubborn"),
            Node("bad", "fails", tries_max=1),
            Node("later", "ok", after=["hears"]),
        ]
        await company.ask(a_task(nodes=nodes, id="a", fail_fast=True))
        outcome = await company.when_settled("a")
        assert (outcome.status, outcome.reason) == (RunStatus.FAILED, "ValueError: no luck")
        ended = {view.node: view.end for view in await company.attempts("a")}
        assert ended == {
            "hears": AttemptEnd.STOPPED,
            "deaf": AttemptEnd.STOPPED,
            "bad": AttemptEnd.FAILED,
        }
        assert trio.current_time() >= 5
        stubborn.open.set()
        await slot_is_free(company)
