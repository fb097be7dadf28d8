"""Tries, pauses between them, and what does not count as one. Exact counts and exact times."""

from __future__ import annotations

import math
import zlib

import hypothesis.strategies as st
import pytest
from hypothesis import given

from actors.core.restart import add_crash, delay_s
from actors.core.retry import backoff_s, due_ms
from actors.core.state import DUE_SLACK
from actors.errors import InvalidMessage, MoveRefused, RetryAfter
from actors.messages import Backoff, Edit, Node, Pause, Retry, Stop, Submit, Unpause
from actors.messages.views import WorkState
from storage.records import AttemptEnd, NodeStatus, RunStatus

from .examples import examples
from .world import World

FIXED = Backoff(base_s=10, factor=1)


def fail_until_it_gives_up(world: World, task: str = "t") -> int:
    """How often it was tried."""
    tries = 0
    while world.attempts(task):
        tries += 1
        world.fail(task, error=f"E: {tries}")
        world.wait(7200)
    return tries


# --- counts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cap", [1, 2, 3, 7])
def test_a_node_that_always_fails_is_tried_exactly_as_often_as_it_may(cap: int) -> None:
    """C29: the cap counts tries, the first included."""
    world = World()
    world.ask(Submit("task", id="t", nodes=[Node("work", tries_max=cap)]))
    assert fail_until_it_gives_up(world) == cap
    assert world.where("t") is WorkState.FAILED
    assert (world.node("t").tries, world.node("t").attempts) == (cap, cap)
    assert world.node("t").error == f"E: {cap}"


def test_no_tries_at_all_are_refused_where_the_message_is_built() -> None:
    """C29: 0."""
    for build in (lambda: Node("n", tries_max=0), lambda: Submit("task", tries_max=0)):
        with pytest.raises(InvalidMessage, match="tries_max must be from 1 to 1000, not 0"):
            build()


def test_the_cap_is_the_nodes_own_or_else_the_tasks_or_else_three() -> None:
    world = World(runs_max=3)
    world.ask(Submit("task", id="own", nodes=[Node("work", tries_max=1)], tries_max=5))
    world.ask(Submit("task", id="task's", handler="work", tries_max=2))
    world.ask(Submit("task", id="default", handler="work"))
    assert [fail_until_it_gives_up(world, task) for task in ("own", "task's", "default")] == [1, 2, 3]


def test_a_cap_lowered_under_the_tries_that_are_used_leaves_no_further_attempt() -> None:
    """C29: lowered to 1 while attempt 2 runs."""
    world = World()
    world.ask(Submit("task", id="t", handler="work", tries_max=5))
    world.fail("t")
    world.wait(7200)
    world.ask(Edit("t", tries_max=1))
    world.fail("t")
    assert world.where("t") is WorkState.FAILED
    assert world.node("t").attempts == 2


def test_a_cap_raised_after_exhaustion_starts_nothing_until_somebody_retries() -> None:
    """C29."""
    world = World()
    world.ask(Submit("task", id="t", handler="work", tries_max=1))
    world.fail("t")
    world.ask(Edit("t", tries_max=2))
    world.wait(7200)
    assert world.where("t") is WorkState.FAILED
    world.ask(Retry("t"))
    assert fail_until_it_gives_up(world) == 2


def test_a_retry_of_a_failed_run_gives_what_did_not_succeed_a_fresh_allowance_and_keeps_the_rest() -> None:
    world = World()
    nodes = [Node("good"), Node("bad", tries_max=2), Node("after", after=["good", "bad"])]
    world.ask(Submit("task", id="t", nodes=nodes))
    world.succeed("t", "good")
    world.fail("t", "bad")
    world.wait(2)
    world.fail("t", "bad")
    assert world.where("t") is WorkState.FAILED
    world.ask(Retry("t"))
    good, bad, after = world.nodes("t")
    assert (good.status, good.attempts) == (NodeStatus.SUCCEEDED, 1)
    assert (bad.status, bad.tries, bad.attempts, bad.generation) == (NodeStatus.RUNNING, 0, 3, 0)
    assert after.status is NodeStatus.PENDING
    world.fail("t", "bad")
    world.wait(2)
    world.succeed("t", "bad")
    world.succeed("t", "after")
    assert world.where("t") is WorkState.COMPLETED


def test_a_failure_shows_until_the_next_attempt_starts_and_an_interruption_does_not_overwrite_it() -> None:
    world = World()
    world.ask(Submit("task", id="t", handler="work"))
    world.fail("t", error="E: first")
    assert (world.node("t").status, world.node("t").error) == (NodeStatus.PENDING, "E: first")
    world.wait(2)
    assert (world.node("t").status, world.node("t").error) == (NodeStatus.RUNNING, None)
    world.fail("t", error="E: second")
    world.turn(Pause())
    world.wait(3)
    assert world.node("t").error == "E: second"
    world.turn(Unpause())
    world.slots.free = 0
    world.end("t", AttemptEnd.INTERRUPTED, error="the runtime was closing")
    assert (world.node("t").status, world.node("t").error) == (NodeStatus.PENDING, None)


@pytest.mark.parametrize("end", [AttemptEnd.FAILED, AttemptEnd.TIMED_OUT, AttemptEnd.STALLED])
def test_failing_timing_out_and_stalling_use_a_try(end: AttemptEnd) -> None:
    world = World()
    world.ask(Submit("task", id="t", handler="work", tries_max=2))
    world.end("t", end, error="E")
    assert (world.node("t").tries, world.node("t").status) == (1, NodeStatus.PENDING)
    world.wait(2)
    world.end("t", end, error="E")
    assert world.where("t") is WorkState.FAILED


@pytest.mark.parametrize("end", [AttemptEnd.INTERRUPTED, AttemptEnd.LOST])
def test_an_interruption_and_a_death_of_the_process_use_no_try(end: AttemptEnd) -> None:
    world = World()
    world.ask(Submit("task", id="t", handler="work", tries_max=1))
    world.end("t", end)
    assert (world.node("t").tries, world.node("t").attempts) == (0, 2)
    world.fail("t")
    assert world.where("t") is WorkState.FAILED


def test_giving_up_fails_at_once_whatever_tries_are_left() -> None:
    world = World()
    world.ask(Submit("task", id="t", handler="work", tries_max=9))
    world.give_up("t")
    assert (world.where("t"), world.node("t").tries) == (WorkState.FAILED, 1)


def test_being_asked_to_come_back_costs_no_try_and_does_not_lengthen_the_backoff() -> None:
    world = World()
    world.ask(Submit("task", id="t", nodes=[Node("work", tries_max=2)]))
    for _ in range(6):
        world.end("t", AttemptEnd.INTERRUPTED, error="RetryAfter", again_s=60.0)
        assert world.node("t").not_before_ms == world.now_ms + 60_000
        world.wait(59.999)
        assert world.attempts("t") == []
        world.wait(0.001)
    world.fail("t")
    due = world.node("t").not_before_ms
    assert due is not None
    assert 1_000 <= due - world.now_ms <= 1_100
    assert world.node("t").tries == 1


def test_the_fifth_death_of_the_process_fails_the_node_and_says_so() -> None:
    """C03."""
    world = World()
    world.ask(Submit("task", id="t", handler="work"))
    for deaths in range(1, 5):
        world.end("t", AttemptEnd.LOST)
        assert world.node("t").unclean == deaths
        assert world.where("t") is WorkState.RUNNING
    world.end("t", AttemptEnd.LOST)
    assert world.where("t") is WorkState.FAILED
    assert (world.node("t").error, world.node("t").tries) == ("process died 5 times", 0)
    assert world.run("t").reason == "process died 5 times"
    world.check_tables()


def test_a_success_or_a_persons_retry_forgets_the_deaths() -> None:
    world = World()
    nodes = [Node("a"), Node("b", after=["a"])]
    world.ask(Submit("task", id="t", nodes=nodes))
    for _ in range(4):
        world.end("t", AttemptEnd.LOST, "a")
    world.succeed("t", "a")
    assert world.node("t", 0).unclean == 0
    for _ in range(5):
        world.end("t", AttemptEnd.LOST, "b")
    assert world.where("t") is WorkState.FAILED
    world.ask(Retry("t"))
    assert world.node("t", 1).unclean == 0
    assert world.where("t") is WorkState.RUNNING


# --- retrying a run that is going on ------------------------------------------------------------------------------


def test_a_retry_of_a_node_that_backs_off_makes_it_due_and_keeps_its_tries() -> None:
    """C32: and when the old time comes, nothing happens."""
    world = World()
    world.ask(Submit("task", id="t", nodes=[Node("work", retry=Backoff(base_s=30, factor=1))]))
    world.fail("t")
    world.wait(6)
    world.ask(Retry("t"))
    assert (world.node("t").status, world.node("t").tries, world.node("t").attempts) == (
        NodeStatus.RUNNING,
        1,
        2,
    )
    world.wait(60)
    assert world.node("t").attempts == 2
    assert len(world.running) == 1
    assert world.state.next_due_ms() is None


def test_times_far_away_that_no_node_waits_for_any_more_are_not_kept() -> None:
    world = World(runs_max=4, executions_max=9)
    far = Backoff(base_s=3_600, factor=1)
    for task in ("t", "a", "b", "c"):
        world.ask(Submit("task", id=task, nodes=[Node("work", retry=far, tries_max=1_000)]))
    for task in ("a", "b", "c"):
        world.fail(task)
    awaited = [world.node(task).not_before_ms for task in ("a", "b", "c")]
    longest = 0
    for _ in range(400):
        world.fail("t")
        world.ask(Retry("t"))
        longest = max(longest, len(world.state._due))
    assert longest <= 2 * (3 + 1) + DUE_SLACK + 1
    assert world.node("t").attempts == 401
    assert world.state.next_due_ms() == min(filter(None, awaited)), (
        "and nothing that is waited for is forgotten"
    )
    world.wait(2 * 3_600)
    assert sorted((key.task, key.number) for key in world.running) == [
        ("a", 2),
        ("b", 2),
        ("c", 2),
        ("t", 401),
    ]


def test_a_pause_during_a_backoff_starts_nothing_and_its_end_starts_one_attempt() -> None:
    """C32."""
    world = World()
    world.ask(Submit("task", id="t", nodes=[Node("work", retry=Backoff(base_s=30, factor=1))]))
    world.fail("t")
    world.ask(Pause())
    world.wait(60)
    assert world.running == {}
    world.ask(Unpause())
    assert [key.number for key in world.running] == [2]
    world.wait(60)
    assert [key.number for key in world.running] == [2]


def test_a_stopped_and_retried_run_does_not_hear_its_old_timer() -> None:
    """C32."""
    world = World()
    world.ask(Submit("task", id="t", nodes=[Node("work", retry=Backoff(base_s=30, factor=1))]))
    world.fail("t")
    world.ask(Stop("t"))
    assert world.state.next_due_ms() is None
    world.ask(Retry("t"))
    world.wait(31)
    assert [key.number for key in world.running] == [2]
    assert world.node("t").tries == 0


def test_a_retry_of_a_run_in_which_nothing_failed_is_refused() -> None:
    world = World()
    world.ask(Submit("task", id="t", handler="work"))
    with pytest.raises(MoveRefused, match="is in flight: nothing of it has failed"):
        world.ask(Retry("t"))


def test_a_failed_node_of_a_run_that_goes_on_is_retried_while_the_others_run() -> None:
    world = World()
    world.ask(Submit("task", id="t", nodes=[Node("a", tries_max=1), Node("b")]))
    world.fail("t", "a")
    assert world.where("t") is WorkState.RUNNING
    world.ask(Retry("t"))
    world.succeed("t", "a")
    world.succeed("t", "b")
    assert world.run("t").status is RunStatus.COMPLETED


# --- arithmetic ---------------------------------------------------------------------------------------------------


def test_the_pause_grows_by_its_factor_up_to_its_most_and_jitter_adds_at_most_a_tenth() -> None:
    waits = [backoff_s(Backoff(), tries, "k/t/1/n/1") for tries in range(1, 16)]
    plain = [min(3600.0, 2.0**n) for n in range(15)]
    for wait, floor in zip(waits, plain, strict=True):
        assert floor <= wait <= floor * 1.1


def test_jitter_derives_from_the_attempts_name_and_nothing_else() -> None:
    for number in range(50):
        name = f"acme/t/1/n/{number}"
        fraction = zlib.crc32(name.encode()) / 2**32
        assert backoff_s(FIXED, 1, name) == backoff_s(FIXED, 9, name) == 10 * (1 + 0.1 * fraction)


def test_jitter_spreads_the_attempts_of_one_moment() -> None:
    waits = {backoff_s(FIXED, 1, f"acme/t{number}/1/n/1") for number in range(1_000)}
    assert len(waits) > 990
    assert min(waits) < 10.02
    assert max(waits) > 10.98


def test_the_stored_time_is_that_of_the_attempt_that_failed() -> None:
    world = World(company="acme")
    world.ask(Submit("task", id="t", nodes=[Node("work", retry=FIXED)]))
    world.fail("t")
    expected = due_ms(world.now_ms, backoff_s(FIXED, 1, "acme/t/1/work/1"))
    assert world.node("t").not_before_ms == expected == world.state.next_due_ms()
    assert world.told("attempt.failed")[0].data == {"tries": 1, "not_before_ms": expected}
    assert world.stored("SELECT due_ms FROM companies") == [(expected,)]


def test_no_pause_is_no_pause() -> None:
    assert backoff_s(Backoff(base_s=0), 3, "x") == 0
    assert backoff_s(Backoff(base_s=5, max_s=0), 3, "x") == 0


seconds = st.floats(0, 10 * 365 * 86_400.0)


@given(
    st.builds(Backoff, base_s=seconds, factor=st.floats(1, 1_000), max_s=seconds),
    st.integers(1, 1_000),
    st.integers(0, 2**62),
)
@examples(100)
def test_no_numbers_overflow(backoff: Backoff, tries: int, now_ms: int) -> None:
    wait = backoff_s(backoff, tries, "identity")
    assert 0 <= wait <= backoff.max_s * 1.1 + 1e-6
    assert wait <= backoff_s(backoff, tries + 1, "identity") + 1e-6
    due = due_ms(now_ms, wait)
    assert min(now_ms, 2**62) <= due <= 2**62


@pytest.mark.parametrize("base_s", [5e-324, 1e-300, 1e-9])
def test_a_tiny_pause_that_grows_for_ever_ends_at_its_most(base_s: float) -> None:
    backoff = Backoff(base_s=base_s, factor=1_000, max_s=3600)
    assert 3600 <= backoff_s(backoff, 1_000, "x") <= 3960


@pytest.mark.parametrize("wait_s", [1e9, 1e300, 1.7e308])
def test_whatever_a_handler_asks_for_its_time_fits_into_the_table(wait_s: float) -> None:
    world = World()
    world.ask(Submit("task", id="t", handler="work"))
    world.end("t", AttemptEnd.INTERRUPTED, error="later", again_s=RetryAfter(wait_s).seconds)
    due = world.node("t").not_before_ms
    assert due is not None
    assert world.now_ms < due <= 2**62
    world.reload()
    assert world.state.next_due_ms() == due


def test_a_time_is_never_rounded_to_before_it() -> None:
    assert due_ms(0, 1.0001) == 1001
    assert due_ms(5, 0.0) == 5
    assert due_ms(0, math.nextafter(1.0, 2.0)) == 1001


@pytest.mark.parametrize("asked", [-1, math.nan, math.inf])
def test_a_handler_cannot_ask_for_a_time_that_is_none(asked: float) -> None:
    with pytest.raises(ValueError, match="RetryAfter needs a finite number of seconds"):
        RetryAfter(asked)


def test_a_handler_waits_at_least_a_second() -> None:
    assert [RetryAfter(asked).seconds for asked in (0, 0.2, 1, 7)] == [1.0, 1.0, 1.0, 7.0]


# --- actors that crash --------------------------------------------------------------------------------------------


def test_a_crashed_actor_rests_longer_each_time_up_to_a_minute() -> None:
    assert [delay_s(crashes) for crashes in range(1, 12)] == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert delay_s(10**9) == 60


def test_a_quiet_minute_forgets_the_crashes() -> None:
    crashes: tuple[float, ...] = ()
    for now in (0.0, 1.0, 2.0):
        crashes = add_crash(crashes, now)
    assert len(crashes) == 3
    assert len(add_crash(crashes, 63.9)) == 4
    assert add_crash(crashes, 64.0) == (64.0,)
