"""How attempts end and what each ending costs: failures, time-outs, giving up, postponing, illegal moves."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from actors import (
    AttemptEnd,
    Backoff,
    Context,
    Edit,
    GiveUp,
    InvalidMessage,
    MoveRefused,
    Node,
    ReasonKind,
    Rerun,
    Retry,
    RetryAfter,
    Stop,
    WorkState,
)
from actors.core.retry import backoff_s
from actors.core.transitions import Phase
from actors.errors import IllegalMove
from actors.testing import EPOCH_MS, VirtualClock
from tests.runtime.support import (
    Gated,
    Scripted,
    Stubborn,
    a_host,
    a_node,
    a_task,
    idle,
    kinds,
    of_kind,
    settled,
    stored_events,
)

# --- tries ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tries_max", [1, 2, 3, 7])
async def test_a_node_that_always_fails_is_tried_exactly_tries_max_times(
    db_path: Path, autojump_clock: MockClock, tries_max: int
) -> None:
    work = Scripted([ValueError("no luck")])
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a", tries_max=tries_max))
        assert await settled(company, "a") == "failed"
        (node,) = (await company.status("a")).nodes
        assert (node.tries, node.attempts, node.error) == (tries_max, tries_max, "ValueError: no luck")
    assert work.calls == tries_max
    assert [ctx.attempt for ctx in work.contexts] == list(range(1, tries_max + 1))


async def test_zero_attempts_are_refused_where_the_message_is_built() -> None:
    for build in (lambda: a_task(tries_max=0), lambda: a_node(tries_max=0)):
        with pytest.raises(InvalidMessage, match="tries_max must be from 1 to 1000, not 0"):
            build()


async def test_the_node_s_own_number_of_tries_comes_before_the_task_s_and_three_is_the_default(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Scripted([ValueError("no luck")])
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        nodes = [a_node("own", "work", tries_max=2), a_node("task's", "work")]
        await company.ask(a_task(nodes=nodes, id="a", tries_max=4))
        await company.ask(a_task("work", id="b"))
        await idle(runtime)
        tries = {node.name: node.tries for node in (await company.status("a")).nodes}
        assert tries == {"own": 2, "task's": 4}
        assert [node.tries for node in (await company.status("b")).nodes] == [3]


async def test_lowering_the_cap_while_an_attempt_runs_makes_it_the_last_one_and_raising_it_later_starts_nothing(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C29."""
    first = Gated()

    async def work(ctx: Context) -> None:
        if ctx.attempt == 2:
            await first(ctx)
        raise ValueError("no luck")

    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a", tries_max=5))
        await first.has_started()
        await company.ask(Edit("a", tries_max=1))
        first.open.set()
        assert await settled(company, "a") == "failed"
        assert len(await company.attempts("a")) == 2
        await company.ask(Edit("a", tries_max=9))
        await idle(runtime)
        assert len(await company.attempts("a")) == 2, "only a person's Retry starts it again"
        await company.ask(Retry("a"))
        assert await settled(company, "a") == "failed"
        assert len(await company.attempts("a")) == 2 + 9


async def test_a_retry_waits_longer_each_time_and_the_jitter_is_the_attempt_s_own(
    db_path: Path, autojump_clock: MockClock
) -> None:
    began: list[float] = []

    async def work(_ctx: Context) -> None:
        began.append(trio.current_time())
        raise ValueError("no luck")

    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        node = a_node("n", "work", tries_max=4, retry=Backoff(base_s=2, factor=3, max_s=10))
        await company.ask(a_task(nodes=[node], id="a"))
        await company.when_settled("a")
    waits = [later - earlier for earlier, later in itertools.pairwise(began)]
    wanted = [backoff_s(Backoff(2, 3, 10), tries, f"k/a/1/n/{tries}") for tries in (1, 2, 3)]
    assert waits == pytest.approx(wanted, abs=0.002)
    for wait, base in zip(waits, (2, 6, 10), strict=True):
        assert base <= wait <= base * 1.1 + 0.002


async def test_while_it_backs_off_the_error_is_shown_until_the_next_attempt_starts(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Gated()

    async def once(ctx: Context) -> object:
        if ctx.attempt == 1:
            raise ValueError("first time")
        return await work(ctx)

    async with a_host(db_path, {"once": once}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("once", id="a"))
        await company.when_idle()
        status = await company.status("a")
        (reason,) = status.reasons
        assert (status.state, reason.kind, reason.text) == (
            WorkState.RUNNING,
            ReasonKind.BACKING_OFF,
            "ValueError: first time",
        )
        assert reason.at_ms == status.nodes[0].not_before_ms
        assert status.nodes[0].error == "ValueError: first time"
        await work.has_started()
        assert (await company.status("a")).nodes[0].error is None
        work.open.set()
        assert await settled(company, "a") == "completed"


async def test_a_retry_without_a_pause_starts_only_when_the_last_attempt_is_gone(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Scripted([ValueError("1"), ValueError("2"), "third time"])
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        node = a_node("n", "work", retry=Backoff(base_s=0))
        await company.ask(a_task(nodes=[node], id="a"))
        outcome = await company.when_settled("a")
        assert outcome.result == {"n": "third time"}
    assert of_kind(stored_events(db_path), "actor.crashed") == []


async def test_retry_of_a_node_that_backs_off_makes_it_due_now_and_keeps_its_tries(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C32, with "retry now": the time that was set before is gone with the row it stood in."""
    work = Scripted([ValueError("1"), ValueError("2"), ValueError("3"), "never"])
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        node = a_node("n", "work", tries_max=3, retry=Backoff(base_s=30))
        await company.ask(a_task(nodes=[node], id="a"))
        await company.when_idle()
        began = trio.current_time()
        await company.ask(Retry("a"))
        await company.when_idle()
        assert trio.current_time() == began
        assert work.calls == 2
        assert (await company.status("a")).nodes[0].tries == 2
        assert await settled(company, "a") == "failed"
    assert work.calls == 3


async def test_a_run_stopped_while_it_backs_off_and_retried_at_once_does_not_meet_its_old_time(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C32: stop during the backoff, go on at once, and let the time pass at which the old retry was due."""
    work = Gated()

    async def first_fails(ctx: Context) -> object:
        if ctx.attempt == 1:
            raise ValueError("no luck")
        return await work(ctx)

    clock = VirtualClock()
    async with a_host(db_path, {"work": first_fails}, clock=clock) as runtime:
        company = runtime.company("k")
        node = a_node("n", "work", retry=Backoff(base_s=30))
        await company.ask(a_task(nodes=[node], id="a"))
        await company.when_idle()
        await trio.sleep(5)
        await company.ask(Stop("a"))
        await trio.sleep(1)
        await company.ask(Retry("a"))
        await work.has_started()
        assert clock() == EPOCH_MS + 6_000
        await trio.sleep(60)
        assert len(work.contexts) == 1
        assert [(view.number, view.end) for view in await company.attempts("a")] == [
            (1, AttemptEnd.FAILED),
            (2, None),
        ]
        work.open.set()
        assert await settled(company, "a") == "completed"


# --- what a handler can ask for -----------------------------------------------------------------------------------


async def test_giving_up_fails_the_node_at_once_whatever_tries_are_left(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Scripted([GiveUp("the account is closed")])
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a", tries_max=50))
        outcome = await company.when_settled("a")
        assert (outcome.status.value, outcome.reason) == ("failed", "GiveUp: the account is closed")
        assert (await company.status("a")).nodes[0].tries == 1
    assert work.calls == 1


async def test_giving_up_inside_a_nursery_is_still_giving_up(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async def child() -> None:
        raise GiveUp("the account is closed")

    async def work(_ctx: Context) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)
            nursery.start_soon(trio.sleep_forever)

    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        outcome = await company.when_settled("a")
        assert (outcome.status.value, outcome.reason) == ("failed", "GiveUp: the account is closed")
        assert len(await company.attempts("a")) == 1


async def test_retry_after_postpones_and_counts_no_try(db_path: Path, autojump_clock: MockClock) -> None:
    script = [RetryAfter(40, "busy"), RetryAfter(0), ValueError("a real failure"), "done"]
    work = Scripted(script)
    began: list[float] = []

    async def timed(ctx: Context) -> object:
        began.append(trio.current_time())
        return await work(ctx)

    async with a_host(db_path, {"work": timed}) as runtime:
        company = runtime.company("k")
        node = a_node("n", "work", tries_max=2, retry=Backoff(base_s=5, max_s=5))
        await company.ask(a_task(nodes=[node], id="a"))
        assert await settled(company, "a") == "completed"
        views = await company.attempts("a")
    assert [view.end for view in views] == [
        AttemptEnd.INTERRUPTED,
        AttemptEnd.INTERRUPTED,
        AttemptEnd.FAILED,
        AttemptEnd.SUCCEEDED,
    ]
    waits = [later - earlier for earlier, later in itertools.pairwise(began)]
    assert waits[:2] == pytest.approx([40, 1]), "a second is the least"
    assert 5 <= waits[2] <= 5.51, "the backoff is that of the first failure"
    postponed = of_kind(stored_events(db_path), "attempt.postponed")
    assert [event.reason for event in postponed] == [
        "RetryAfter: busy",
        "RetryAfter: asked to be tried again in 0 s",
    ]


@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan")])
def test_a_time_that_is_none_is_refused_where_retry_after_is_built(seconds: float) -> None:
    with pytest.raises(ValueError, match="finite number of seconds"):
        RetryAfter(seconds)


# --- time-outs ----------------------------------------------------------------------------------------------------


async def test_an_attempt_that_takes_too_long_is_cancelled_and_tried_again(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Gated()
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task(nodes=[a_node("n", "work", timeout_s=5, tries_max=2)], id="a"))
        outcome = await company.when_settled("a")
        assert (outcome.status.value, outcome.reason) == ("failed", "TimeOut: took longer than 5 s")
        views = await company.attempts("a")
        assert [view.end for view in views] == [AttemptEnd.TIMED_OUT] * 2
        for view in views:
            assert view.ended_ms is not None
            assert view.ended_ms - view.started_ms == 5_000
    assert work.cancelled == 2


async def test_a_result_in_time_leaves_nothing_of_the_time_out(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(a_task(nodes=[a_node("n", "ok", timeout_s=5)], id="a"))
        assert await settled(company, "a") == "completed"
        await trio.sleep(60)
    assert kinds(of_kind(stored_events(db_path), "attempt.timed_out", "attempt.late")) == []


async def test_the_time_out_bounds_each_attempt_and_not_the_run(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async def slow(ctx: Context) -> int:
        await trio.sleep(4)
        if ctx.attempt < 3:
            raise ValueError("again")
        return ctx.attempt

    async with a_host(db_path, {"slow": slow}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task(nodes=[a_node("n", "slow", timeout_s=5)], id="a"))
        assert (await company.when_settled("a")).result == {"n": 3}


async def test_after_a_time_out_the_old_attempt_walks_no_further(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C11's half of one process: it ignores its cancellation and returns success when a retry has long begun."""
    stubborn, second, after = Stubborn("of the first"), Gated("of the second"), Gated()
    after.open.set()

    async def work(ctx: Context) -> object:
        return await (stubborn if ctx.attempt == 1 else second)(ctx)

    async with a_host(db_path, {"work": work, "after": after}, stop_grace_s=2) as runtime:
        company = runtime.company("k")
        nodes = [Node("n1", "work", timeout_s=5, retry=Backoff(base_s=1)), Node("n2", "after", after=["n1"])]
        await company.ask(a_task(nodes=nodes, id="a"))
        await second.has_started()
        stubborn.open.set()
        await trio.testing.wait_all_tasks_blocked()
        assert after.contexts == []
        second.open.set()
        outcome = await company.when_settled("a")
        assert outcome.result == {"n1": "of the second", "n2": "done"}
    assert [ctx.inputs for ctx in after.contexts] == [{"n1": "of the second"}]
    told = of_kind(stored_events(db_path), "attempt.abandoned", "attempt.timed_out", "attempt.late")
    assert [(event.kind, event.node, event.attempt) for event in told] == [
        ("attempt.abandoned", "n1", 1),
        ("attempt.timed_out", "n1", 1),
        ("attempt.late", "n1", 1),
    ]
    assert told[-1].data == {"outcome": "succeeded"}


async def test_an_error_out_of_a_cancelled_handler_is_a_way_of_ending_and_no_failure_of_its_own(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async def work(_ctx: Context) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("the connection was lost")

    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task(nodes=[a_node("n", "work", timeout_s=5, tries_max=1)], id="a"))
        await company.when_settled("a")
        (view,) = await company.attempts("a")
        assert (view.end, view.error) == (AttemptEnd.TIMED_OUT, "ValueError: the connection was lost")


async def test_a_result_that_comes_between_the_time_out_and_its_commit_counts(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """First commit wins: the cancellation is not committed, its end is."""

    async def work(_ctx: Context) -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(7)
        return "just in time"

    async with a_host(db_path, {"work": work}, stop_grace_s=10) as runtime:
        company = runtime.company("k")
        await company.ask(a_task(nodes=[a_node("n", "work", timeout_s=5)], id="a"))
        assert (await company.when_settled("a")).result == {"n": "just in time"}


# --- late ---------------------------------------------------------------------------------------------------------


async def test_a_late_result_of_an_older_run_is_told_as_that_run_s(
    db_path: Path, autojump_clock: MockClock
) -> None:
    stubborn = Stubborn("too late")

    async def work(ctx: Context) -> object:
        return await stubborn(ctx) if ctx.run == 1 else "second run"

    async with a_host(db_path, {"work": work}, stop_grace_s=1) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await stubborn.has_started()
        await company.ask(Stop("a"))
        await company.when_settled("a")
        await company.ask(Rerun("a"))
        await company.when_settled("a")
        before = await company.status("a")
        stubborn.open.set()
        await idle(runtime)
        assert await company.status("a") == before
        assert await company.result("a") == {"work": "second run"}
    (late,) = of_kind(stored_events(db_path), "attempt.late")
    assert (late.task, late.run, late.node, late.attempt) == ("a", 1, "work", 1)
    assert late.data == {"outcome": "succeeded"}


async def test_a_late_failure_changes_as_little_as_a_late_success(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C12: after a forced stop the handler fails, too; what is stopped stays stopped."""

    class FailsLate(Stubborn):
        async def __call__(self, ctx: Context) -> object:
            await super().__call__(ctx)
            raise ValueError("too late")

    work = FailsLate()
    async with a_host(db_path, {"work": work}, stop_grace_s=1) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await company.ask(a_task("ok", id="b", depends_on=["a"]))
        await work.has_started()
        await company.ask(Stop("a"))
        await company.when_settled("a")
        facts = await company.status("a"), await company.attempts("a")
        work.open.set()
        await idle(runtime)
        assert (await company.status("a"), await company.attempts("a")) == facts
        assert (await company.status("b")).state is WorkState.BLOCKED
    (late,) = of_kind(stored_events(db_path), "attempt.late")
    assert late.data["outcome"] == "stopped"
    assert late.reason == "ValueError: too late"


# --- our own mistakes -----------------------------------------------------------------------------------------------


async def test_an_illegal_phase_move_ends_only_its_attempt_and_the_third_in_a_row_fails_the_node(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async def work(ctx: Context) -> None:
        raise IllegalMove("attempt", ctx.key, Phase.CANCELLING, Phase.WAITING, ["executing"])

    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a", tries_max=1))
        await company.ask(a_task(id="b"))
        assert await settled(company, "a") == "failed"
        assert await settled(company, "b") == "completed"
        assert [view.end for view in await company.attempts("a")] == [
            AttemptEnd.INTERRUPTED,
            AttemptEnd.INTERRUPTED,
            AttemptEnd.FAILED,
        ]
    events = stored_events(db_path)
    assert [event.data for event in of_kind(events, "attempt.illegal")] == [{"phase": "cancelling"}] * 3
    assert of_kind(events, "actor.crashed") == []


async def test_nothing_of_a_failed_attempt_is_waited_for_by_a_person_who_asks_retry_too_early(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Gated()
    async with a_host(db_path, {"work": work}, timeless=True) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await work.has_started()
        with pytest.raises(MoveRefused, match="is in flight"):
            await company.ask(Retry("a"))
        work.open.set()
        assert await settled(company, "a") == "completed"
