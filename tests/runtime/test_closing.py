"""Closing: a normal end drains, anything else closes now; whoever waits is answered, and nothing of ours is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from actors import (
    AttemptEnd,
    Backoff,
    ClosingReport,
    Company,
    Context,
    Event,
    Node,
    NodeStatus,
    RunStatus,
    Runtime,
    RuntimeClosed,
    SetLimits,
    Start,
    Stop,
    Submit,
    TurnkeeperError,
    WorkState,
)
from actors.handlers import Handler
from actors.runtime.execution import STOP_GRACE_S, Executor
from actors.testing import VirtualClock
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

# --- drain ----------------------------------------------------------------------------------------------------------


async def test_leaving_normally_waits_for_what_began_and_starts_nothing_more(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async def slow(_ctx: Context) -> str:
        await trio.sleep(20)
        return "done"

    async with a_host(db_path, {"slow": slow}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task(nodes=[Node("a", "slow"), Node("b", "ok", after=["a"])], id="t"))
        await trio.testing.wait_all_tasks_blocked()
    assert trio.current_time() == pytest.approx(20)
    report = await runtime.aclose()
    assert (report.interrupted, report.abandoned) == ((), ())
    async with a_host(db_path, {"slow": slow}) as runtime:
        company = runtime.company("k")
        assert next(node.status for node in (await company.status("t")).nodes) is NodeStatus.SUCCEEDED
        assert await settled(company, "t") == "completed"
        assert len(await company.attempts("t")) == 2


async def test_draining_waits_for_no_backoff_and_no_person(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(a_task(nodes=[Node("n", "fails", retry=Backoff(base_s=1000))], id="a"))
        await company.ask(a_task(id="b", mode="manual"))
        await company.when_idle()
        began = trio.current_time()
    assert trio.current_time() == began


async def test_what_waits_for_an_execution_slot_does_not_start_in_a_drain(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C44."""
    work = Gated()
    async with a_host(db_path, {"work": work}, executions_max=1) as runtime:
        await runtime.company("one").ask(a_task("work", id="a"))
        await work.has_started()
        await runtime.company("two").ask(a_task("work", id="b"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.drain)
            await trio.testing.wait_all_tasks_blocked()
            status = await runtime.company("two").status("b")
            assert [reason.kind.value for reason in status.reasons] == ["draining"]
            work.open.set()
    assert work.started == ["a"]


async def test_while_it_drains_messages_are_taken_also_those_of_handlers_that_still_run(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Gated()
    answers: list[object] = []

    async def asks(ctx: Context) -> None:
        await work(ctx)
        answers.append(await ctx.company.ask(a_task("ok", id="from the handler")))

    async with a_host(db_path, {"asks": asks}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("asks", id="a"))
        await work.has_started()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.aclose)
            await trio.testing.wait_all_tasks_blocked()
            await company.ask(a_task("ok", id="from outside"))
            work.open.set()
        assert runtime.closing
    assert len(answers) == 1
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        assert await settled(company, "from the handler") == "completed"
        assert await settled(company, "from outside") == "completed"
        assert await settled(company, "a") == "completed"


async def test_draining_without_closing_says_whether_everything_ended_in_time(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Gated()
    async with a_host(db_path, {"work": work}) as runtime:
        await runtime.company("k").ask(a_task("work", id="a"))
        await work.has_started()
        assert not await runtime.drain(5)
        assert trio.current_time() == pytest.approx(5)
        assert work.cancelled == 0
        work.open.set()
        assert await runtime.drain()
        await runtime.company("k").ask(a_task("ok", id="b"))
        await runtime.company("k").when_idle()
        assert (await runtime.company("k").status("b")).state is WorkState.PAUSED


async def test_at_its_limit_the_drain_becomes_now(db_path: Path, autojump_clock: MockClock) -> None:
    work = Gated()
    async with a_host(db_path, {"work": work}, drain_s=30) as runtime:
        await runtime.company("k").ask(a_task("work", id="a"))
        await work.has_started()
    assert trio.current_time() == pytest.approx(30)
    assert work.cancelled == 1
    assert (await runtime.aclose()).interrupted == ("k/a/1/work/1",)


async def test_a_second_call_hurries_the_first(db_path: Path, autojump_clock: MockClock) -> None:
    """C45's half of one process."""
    work = Gated()
    async with a_host(db_path, {"work": work}, drain_s=1000) as runtime:
        await runtime.company("k").ask(a_task("work", id="a"))
        await work.has_started()
        reports = []

        async def close(*, now: bool) -> None:
            reports.append(await runtime.aclose(now=now))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: close(now=False))
            await trio.sleep(5)
            nursery.start_soon(lambda: close(now=False))
            await trio.sleep(5)
            assert work.cancelled == 0
            nursery.start_soon(lambda: close(now=True))
        assert trio.current_time() == pytest.approx(10)
        assert [report.interrupted for report in reports] == [("k/a/1/work/1",)] * 3


# --- now ------------------------------------------------------------------------------------------------------------


class Boom(Exception):
    pass


async def test_an_exception_closes_now_and_comes_out_as_it_is(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Gated()
    with pytest.raises(Boom):
        async with a_host(db_path, {"work": work}) as runtime:
            await runtime.company("k").ask(a_task("work", id="a"))
            await work.has_started()
            raise Boom
    assert trio.current_time() == 0
    assert work.cancelled == 1


async def test_a_cancellation_closes_now(db_path: Path, autojump_clock: MockClock) -> None:
    work = Gated()
    with trio.CancelScope() as scope:
        async with a_host(db_path, {"work": work}) as runtime:
            await runtime.company("k").ask(a_task("work", id="a"))
            await work.has_started()
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert trio.current_time() == 0
    events = stored_events(db_path)
    (event,) = of_kind(events, "process.stopped")
    assert (event.data["interrupted"], event.data["abandoned"]) == (1, 0)
    assert len(of_kind(events, "attempt.interrupted")) == 1, (
        "and its end is written down: nobody calls it lost"
    )


async def test_a_cancellation_gives_the_grace_like_any_other_way_of_closing_now(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async def work(_ctx: Context) -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(STOP_GRACE_S - 1)
        return "saved"

    with trio.CancelScope() as scope:
        async with a_host(db_path, {"work": work}) as runtime:
            await runtime.company("k").ask(a_task("work", id="a"))
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            await trio.sleep_forever()
    async with a_host(db_path) as runtime:
        assert await runtime.company("k").result("a") == {"work": "saved"}


async def test_a_host_that_is_cancelled_while_it_closes_still_closes(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Gated()
    with trio.CancelScope() as scope:
        async with a_host(db_path, {"work": work}, drain_s=20) as runtime:
            await runtime.company("k").ask(a_task("work", id="a"))
            await work.has_started()
            scope.deadline = trio.current_time() + 5
    assert trio.current_time() == pytest.approx(20)
    assert len(of_kind(stored_events(db_path), "attempt.interrupted")) == 1


async def _interrupted(_timeout_s: float | None = None) -> bool:
    """Where a Ctrl-C arrives: at a checkpoint of the main task, shielded or not."""
    raise KeyboardInterrupt


async def test_a_closing_that_a_ctrl_c_ended_is_begun_again_and_closes_now(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Gated()
    with pytest.raises(BaseExceptionGroup) as raised:
        async with a_host(db_path, {"work": work}) as runtime:
            await runtime.company("k").ask(a_task("work", id="a"))
            await work.has_started()
            setattr(runtime, "drain", _interrupted)  # noqa: B010
            with trio.fail_after(60):
                await runtime.aclose()
    assert raised.group_contains(KeyboardInterrupt)
    assert len(of_kind(stored_events(db_path), "attempt.interrupted")) == 1


async def test_what_is_interrupted_costs_no_try_and_no_backoff_and_runs_again_by_itself(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C44."""
    work = Gated()

    async def second_time(ctx: Context) -> object:
        if ctx.attempt == 1:
            raise ValueError("the first one failed")
        return await work(ctx)

    node, clock = Node("n", "work", tries_max=2, retry=Backoff(base_s=1)), VirtualClock()
    async with a_host(db_path, {"work": second_time}, clock=clock, drain_s=0) as runtime:
        await runtime.company("k").ask(a_task(nodes=[node], id="a"))
        await work.has_started()
    async with a_host(db_path, {"work": second_time}, clock=clock) as runtime:
        company = runtime.company("k")
        began = trio.current_time()
        await work.has_started(2)
        assert trio.current_time() == began
        (status,) = (await company.status("a")).nodes
        assert (status.tries, status.attempts) == (1, 3)
        work.open.set()
        assert await settled(company, "a") == "completed"
        assert [view.end for view in await company.attempts("a")] == [
            AttemptEnd.FAILED,
            AttemptEnd.INTERRUPTED,
            AttemptEnd.SUCCEEDED,
        ]
    (event,) = of_kind(stored_events(db_path), "attempt.interrupted")
    assert event.data == {"why": "the runtime was closing"}


async def test_a_result_inside_the_grace_counts(db_path: Path, autojump_clock: MockClock) -> None:
    async def work(_ctx: Context) -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(STOP_GRACE_S - 1)
        return "saved"

    async with a_host(db_path, {"work": work}) as runtime:
        await runtime.company("k").ask(a_task("work", id="a"))
        await trio.testing.wait_all_tasks_blocked()
        report = await runtime.aclose(now=True)
        assert (report.interrupted, report.abandoned) == ((), ())
    async with a_host(db_path) as runtime:
        assert await runtime.company("k").result("a") == {"work": "saved"}


async def test_a_failure_inside_the_grace_is_an_interruption(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async def work(_ctx: Context) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("torn off")

    async with a_host(db_path, {"work": work}) as runtime:
        await runtime.company("k").ask(a_task("work", id="a", tries_max=1))
        await trio.testing.wait_all_tasks_blocked()
        report = await runtime.aclose(now=True)
        assert report.interrupted == ("k/a/1/work/1",)
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        (view,) = await company.attempts("a")
        assert (view.end, view.error) == (AttemptEnd.INTERRUPTED, "ValueError: torn off")
        await company.ask(Stop("a"))


async def test_the_report_names_what_was_interrupted_and_what_was_left_behind(
    db_path: Path, autojump_clock: MockClock
) -> None:
    hears, deaf = Gated(), Stubborn()
    async with a_host(db_path, {"hears": hears, "deaf": deaf}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task(nodes=[Node("a", "hears"), Node("b", "deaf"), Node("c", "ok")], id="t"))
        await hears.has_started()
        await deaf.has_started()
        async with trio.open_nursery() as nursery:

            async def close() -> None:
                report = await runtime.aclose(now=True)
                assert report.interrupted == ("k/t/1/a/1", "k/t/1/b/1")
                assert report.abandoned == ("k/t/1/b/1",)

            nursery.start_soon(close)
            await trio.sleep(STOP_GRACE_S + 50)
            deaf.open.set()
    events = stored_events(db_path)
    (stopped,) = of_kind(events, "process.stopped")
    assert (stopped.data["interrupted"], stopped.data["abandoned"]) == (2, 1)
    assert kinds(event for event in events if event.node == "b") == [
        "attempt.started",
        "attempt.abandoned",
        "attempt.interrupted",
    ]


async def test_closing_says_for_whom_it_waits_if_a_handler_does_not_end(
    db_path: Path, autojump_clock: MockClock, logs: list[dict[str, object]]
) -> None:
    """C45: what swallows its cancellation for ever cannot be ended, but it is named."""
    work = Stubborn()
    async with a_host(db_path, {"work": work}) as runtime:
        await runtime.company("k").ask(a_task("work", id="a"))
        await work.has_started()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: runtime.aclose(now=True))
            await trio.sleep(STOP_GRACE_S + 100)
            work.open.set()
    said = [entry for entry in logs if entry["event"] == "closing.waits"]
    assert said
    assert all(entry["attempts"] == ["k/a/1/work/1"] for entry in said)


async def test_a_child_that_starts_while_the_runtime_closes_does_no_work(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work, gate = Gated(), Wrapper(GatedConnection)
    async with a_host(db_path, {"work": work}, wrap=gate) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a", mode="manual"))
        await company.when_idle()
        gate.made.shut()
        await company.tell(Start("a"))
        await gate.made.is_asked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: runtime.aclose(now=True))
            await trio.testing.wait_all_tasks_blocked()
            gate.made.let_go()
        assert (await runtime.aclose()).interrupted == ("k/a/1/work/1",)
    assert work.contexts == []
    work.open.set()
    async with a_host(db_path, {"work": work}) as runtime:
        assert await settled(runtime.company("k"), "a") == "completed"
        ends = [view.end for view in await runtime.company("k").attempts("a")]
        assert ends == [AttemptEnd.INTERRUPTED, AttemptEnd.SUCCEEDED]


@pytest.mark.parametrize("plain", [False, True], ids=["async", "in a thread"])
async def test_a_child_that_was_started_and_has_not_begun_when_closing_begins_does_no_work(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, plain: bool
) -> None:
    began: list[str] = []
    start = Executor.start

    async def work(ctx: Context) -> None:
        began.append(ctx.task)

    def in_a_thread(ctx: Context) -> None:
        began.append(ctx.task)

    handlers: dict[str, Handler] = {"work": in_a_thread if plain else work}
    async with a_host(db_path, handlers) as runtime:

        def start_and_close(executor: Executor, *args: Any) -> None:
            """Closing begins in the step in which the child was started, and gets to its first checkpoint."""
            start(executor, *args)
            setattr(runtime, "_draining", True)  # noqa: B010
            executor.closing = True

        company = runtime.company("k")
        await company.ask(a_task("work", id="a", mode="manual"))
        monkeypatch.setattr(Executor, "start", start_and_close)
        await company.tell(Start("a"))
        await trio.testing.wait_all_tasks_blocked()
        monkeypatch.undo()
        await runtime.aclose(now=True)
    assert began == []
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        assert await settled(company, "a") == "completed"
        assert [view.end for view in await company.attempts("a")] == [
            AttemptEnd.INTERRUPTED,
            AttemptEnd.SUCCEEDED,
        ]
        assert (await company.status("a")).nodes[0].tries == 0
    assert began == ["a"]


async def test_nothing_starts_in_the_grace_whatever_makes_it_ready(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C44: a result makes the next node ready, a slot becomes free, a backoff ends: it all waits for the next host."""
    began: list[str] = []

    async def lingers(ctx: Context) -> str:
        began.append(ctx.task)
        with trio.CancelScope(shield=True):
            await trio.sleep(8)
        return "inside the grace"

    async def work(ctx: Context) -> object:
        began.append(ctx.task)
        return dict(ctx.inputs)

    handlers: dict[str, Handler] = {"lingers": lingers, "work": work}
    async with a_host(db_path, handlers, executions_max=2) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=9))
        await company.ask(a_task(nodes=[Node("n", "fails", retry=Backoff(base_s=4))], id="due"))
        await company.ask(a_task(nodes=[Node("a", "lingers"), Node("b", "work", after=["a"])], id="next"))
        await company.ask(a_task("lingers", id="beside"))
        await company.ask(a_task("work", id="wants a slot"))
        await trio.testing.wait_all_tasks_blocked()
        report = await runtime.aclose(now=True)
        assert report == ClosingReport()
    assert sorted(began) == ["beside", "next"]
    assert len(of_kind(stored_events(db_path), "attempt.started")) == 3
    async with a_host(db_path, handlers) as runtime:
        company = runtime.company("k")
        assert await settled(company, "next") == "completed"
        assert await company.result("next") == {"a": "inside the grace", "b": {"a": "inside the grace"}}
        assert await settled(company, "wants a slot") == "completed"
        assert len(await company.attempts("next")) == 2


async def test_the_report_names_exactly_what_closing_cut_short(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work, other, stopped, back = Gated(), Gated(), Stubborn(), trio.Event()
    gate = Wrapper(GatedConnection)

    async def waits(ctx: Context) -> None:
        async with ctx.waiting("the world"):
            await back.wait() if ctx.task == "wants back" else await trio.sleep_forever()
        await trio.sleep_forever()

    async def saves(ctx: Context) -> str:
        try:
            async with ctx.waiting("the world"):
                await trio.sleep_forever()
        except trio.Cancelled:
            return "what there was"
        raise AssertionError("nobody cancelled it")

    handlers: dict[str, Handler] = {
        "work": work,
        "other": other,
        "deaf": stopped,
        "waits": waits,
        "saves": saves,
    }
    async with a_host(db_path, handlers, executions_max=3, wrap=gate) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=9))
        for task, handler in (("waits", "waits"), ("wants back", "waits"), ("saves", "saves")):
            await company.ask(a_task(handler, id=task))
            await trio.testing.wait_all_tasks_blocked()
        for task, handler in (("executes", "work"), ("is stopped", "deaf"), ("has returned", "other")):
            await company.ask(a_task(handler, id=task))
        await company.ask(a_task(nodes=[Node("n", "fails", retry=Backoff(base_s=1000))], id="never begun"))
        await trio.testing.wait_all_tasks_blocked()
        await company.ask(Stop("is stopped"))
        back.set()
        await trio.testing.wait_all_tasks_blocked()
        gate.made.shut()
        await company.tell(SetLimits(weight=2))
        await gate.made.is_asked()
        other.open.set()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: runtime.aclose(now=True))
            await trio.testing.wait_all_tasks_blocked()
            gate.made.let_go()
            await trio.sleep(STOP_GRACE_S + 10)
            stopped.open.set()
        report = await runtime.aclose()
        interrupted = ("k/executes/1/work/1", "k/waits/1/waits/1", "k/wants back/1/waits/1")
        assert tuple(sorted(report.interrupted)) == interrupted, "these run again, and no other"
        assert report.abandoned == ("k/is stopped/1/deaf/1",)
    async with a_host(db_path, {**handlers, "work": ok_again, "waits": ok_again}) as runtime:
        company = runtime.company("k")
        for task in ("executes", "waits", "wants back"):
            assert await settled(company, task) == "completed"
            assert len(await company.attempts(task)) == 2
        assert (await company.status("is stopped")).state is WorkState.STOPPED
        assert await company.result("saves") == {"saves": "what there was"}
        assert await company.result("has returned") == {"other": "done"}


async def ok_again(_ctx: Context) -> str:
    return "again"


# --- who waits ------------------------------------------------------------------------------------------------------


async def outcomes_of_asking(company: Company, count: int, outcomes: list[object]) -> None:
    async def ask(number: int) -> None:
        try:
            outcomes.append(await company.ask(Submit(f"task {number}")))
        except TurnkeeperError as error:
            outcomes.append(error)

    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(ask, number)


async def test_every_ask_is_answered_also_when_the_runtime_closes_under_it(
    db_path: Path, autojump_clock: MockClock
) -> None:
    outcomes: list[object] = []
    async with a_host(db_path) as runtime, trio.open_nursery() as nursery:
        company = runtime.company("k")
        nursery.start_soon(outcomes_of_asking, company, 2_500, outcomes)
        for _ in range(6):
            await trio.lowlevel.checkpoint()
        with trio.fail_after(1):
            await runtime.aclose(now=True)
    assert len(outcomes) == 2_500
    done = [outcome for outcome in outcomes if not isinstance(outcome, Exception)]
    assert {type(outcome) for outcome in outcomes} <= {type(done[0]), RuntimeClosed}
    stored = of_kind(stored_events(db_path), "task.submitted")
    assert len(stored) == len(done), "what was answered is stored, and nothing else"


@pytest.mark.parametrize("waiting", ["when_settled", "when_idle"])
async def test_waiting_does_not_hang_over_a_close(
    db_path: Path, autojump_clock: MockClock, waiting: str
) -> None:
    work = Gated()
    async with a_host(db_path, {"work": work}, drain_s=0) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await work.has_started()

        async def wait() -> None:
            if waiting == "when_idle":
                await company.when_idle()  # all is over when its attempt was interrupted
            else:
                with pytest.raises(RuntimeClosed, match="the runtime closed before the task settled"):
                    await company.when_settled("a")

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked()
                await runtime.aclose()


async def test_whoever_waits_for_a_task_that_ends_in_the_drain_is_told_how(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async def slow(_ctx: Context) -> str:
        await trio.sleep(5)
        return "done"

    ended: list[object] = []
    async with trio.open_nursery() as nursery, a_host(db_path, {"slow": slow}) as runtime:
        await runtime.company("k").ask(a_task("slow", id="a"))

        async def wait() -> None:
            ended.append((await runtime.company("k").when_settled("a")).result)

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        await runtime.aclose()
        await trio.testing.wait_all_tasks_blocked()
    assert ended == [{"slow": "done"}]


async def test_a_reader_of_the_log_sees_its_last_line_and_then_its_end(
    db_path: Path, autojump_clock: MockClock
) -> None:
    seen: list[Event] = []

    async def read(runtime: Runtime) -> None:
        async for event in runtime.events():
            seen.append(event)

    async with trio.open_nursery() as nursery, a_host(db_path) as runtime:
        nursery.start_soon(read, runtime)
        await runtime.company("k").ask(a_task(id="a"))
        await idle(runtime)
    assert seen == stored_events(db_path)
    assert seen[-1].kind == "process.stopped"


async def test_after_closing_every_way_of_sending_says_so_and_reads_still_work(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(a_task(id="a"))
        await company.when_settled("a")
        await runtime.aclose()
        with pytest.raises(RuntimeClosed):
            await company.ask(a_task())
        with pytest.raises(RuntimeClosed):
            await company.tell(a_task())
        with pytest.raises(RuntimeClosed):
            company.tell_nowait(a_task())
        with pytest.raises(RuntimeClosed):
            await runtime.company("new").ask(a_task())
        assert (await company.status("a")).run_status is RunStatus.COMPLETED
        for waiting in (company.when_settled("a"), company.when_idle()):
            with pytest.raises(RuntimeClosed):
                await waiting


async def test_after_closing_nothing_of_ours_runs(db_path: Path, autojump_clock: MockClock) -> None:
    work = Gated()
    tasks = trio.lowlevel.current_statistics().tasks_living
    async with a_host(db_path, {"work": work}) as runtime:
        for number in range(20):
            await runtime.company(f"k{number}").ask(a_task("work"))
        await work.has_started(16)
        await runtime.aclose(now=True)
        assert work.running == 0
        # what is left serves the block: the writer's loop
        assert trio.lowlevel.current_statistics().tasks_living <= tasks + 1
    assert trio.lowlevel.current_statistics().tasks_living == tasks
