"""Messages about the company: limits, pause, goals."""

from __future__ import annotations

import sqlite3

import pytest

from actors.messages import (
    CompanySettings,
    GoalStopped,
    Node,
    Pause,
    Retry,
    SetLimits,
    Start,
    StartNow,
    Stop,
    StopGoal,
    Submit,
    SubmitMany,
    Unpark,
    Unparked,
    Unpause,
)
from actors.messages.views import ReasonKind, WorkState
from storage.records import AttemptEnd, RunStatus

from .agreement import watch
from .world import World


def many(world: World, count: int, **fields: object) -> list[str]:
    names = [f"t{number}" for number in range(count)]
    world.ask(SubmitMany([Submit("task", id=name, handler="work", **fields) for name in names]))  # type: ignore[arg-type]
    return names


def active(world: World) -> list[str]:
    return [task for _, task in sorted(world.state.slots.items())]


def settings(
    *, paused: bool = False, runs_max: int = 1, weight: int = 1, changed: bool = True
) -> CompanySettings:
    return CompanySettings(paused, runs_max, weight, changed)


# --- limits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runs_max", [0, 1, 2, 5, 100])
def test_no_more_runs_are_active_than_may_be(runs_max: int) -> None:
    world = World(runs_max=runs_max)
    many(world, 6)
    assert len(active(world)) == min(runs_max, 6)
    assert sorted(world.state.slots) == list(range(1, min(runs_max, 6) + 1))


def test_a_raised_limit_lets_in_as_many_as_it_was_raised_by_in_order() -> None:
    world = World(runs_max=1)
    watch(world)
    many(world, 6)
    assert world.ask(SetLimits(runs_max=3)) == settings(runs_max=3)
    assert active(world) == ["t0", "t1", "t2"]
    (event,) = world.told("company.limits_changed")
    assert event.data == {"runs_max": 3, "weight": 1}


def test_a_lowered_limit_stops_nothing_and_lets_nothing_in_until_the_count_is_below() -> None:
    world = World(runs_max=3)
    watch(world)
    many(world, 6)
    world.ask(SetLimits(runs_max=1))
    assert active(world) == ["t0", "t1", "t2"]
    assert world.reason("t3", ReasonKind.RUN_SLOTS).numbers == {"active": 3, "runs_max": 1}
    world.succeed("t0")
    assert active(world) == ["t1", "t2"]
    world.succeed("t1")
    assert active(world) == ["t2"]
    world.succeed("t2")
    assert active(world) == ["t3"]
    world.check_tables()


def test_a_limit_of_nothing_holds_everything_and_stops_nothing() -> None:
    world = World(runs_max=1)
    many(world, 2)
    world.ask(SetLimits(runs_max=0))
    world.ask(StartNow("t1"))
    world.succeed("t0")
    assert active(world) == []
    world.ask(SetLimits(runs_max=1))
    assert active(world) == ["t1"]


def test_limits_raised_and_lowered_while_runs_are_active_hold_in_the_tables_too() -> None:
    world = World(runs_max=2)
    watch(world)
    names = many(world, 30)
    for turn, limit in enumerate([5, 1, 0, 3, 2, 4, 1, 6, 2, 30]):
        world.ask(SetLimits(runs_max=limit))
        before = len(active(world))
        assert before <= max(limit, before)
        if world.running:
            world.succeed(next(iter(world.running)).task)
        world.reload()
        assert len(active(world)) <= max(limit, before - 1), turn
    assert len(names) == 30
    world.check_tables()


def test_the_tables_refuse_one_more_run_than_may_be_whoever_asks() -> None:
    world = World(runs_max=1)
    many(world, 2)
    with pytest.raises(sqlite3.IntegrityError, match="runs_max reached"):
        world.conn.execute("UPDATE runs SET status = 'running', slot = 2, admitted_ms = 1 WHERE seq = 2")
    world.conn.execute("UPDATE companies SET runs_max = 5")
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE constraint failed"):
        world.conn.execute("UPDATE runs SET status = 'running', slot = 1, admitted_ms = 1 WHERE seq = 2")


def test_the_same_limit_again_changes_nothing() -> None:
    world = World(runs_max=2)
    assert world.ask(SetLimits(runs_max=2)) == settings(runs_max=2, changed=False)
    assert world.ask(SetLimits(weight=1)) == settings(runs_max=2, changed=False)
    assert world.events == []


def test_a_weight_is_stored_beside_the_limit() -> None:
    world = World(runs_max=2)
    assert world.ask(SetLimits(weight=7)) == settings(runs_max=2, weight=7)
    assert world.ask(SetLimits(runs_max=3)) == settings(runs_max=3, weight=7)
    world.reload()
    assert (world.state.company.runs_max, world.state.company.weight) == (3, 7)


def test_a_freed_slot_is_the_one_that_is_given_out_next() -> None:
    world = World(runs_max=3)
    many(world, 5)
    world.succeed("t1")
    assert world.state.slots == {1: "t0", 2: "t3", 3: "t2"}


# --- pause --------------------------------------------------------------------------------------------------------


def test_a_pause_stops_admission_and_new_attempts_and_lets_live_ones_finish() -> None:
    world = World(runs_max=2)
    watch(world)
    world.ask(Submit("task", id="a", nodes=[Node("one", "work"), Node("two", "work", after=["one"])]))
    assert world.ask(Pause()) == settings(paused=True, runs_max=2)
    world.ask(Submit("task", id="b", handler="work"))
    world.succeed("a")
    assert world.running == {}
    assert active(world) == ["a"]
    assert world.where("b") is WorkState.PAUSED
    assert world.reasons("a")[0].kind is ReasonKind.COMPANY_PAUSED
    assert world.ask(Unpause()) == settings(runs_max=2)
    assert sorted(key.task for key in world.running) == ["a", "b"]


def test_a_pause_survives_everything_but_unpause() -> None:
    world = World(runs_max=1)
    world.ask(Pause())
    many(world, 2)
    for message in (SetLimits(runs_max=5), Start("t0"), Stop("t0"), Retry("t0"), StopGoal("none"), Pause()):
        world.ask(message)
    world.reload()
    world.wait(100_000)
    assert active(world) == []
    world.ask(Unpause())
    assert active(world) == ["t0", "t1"]


def test_pausing_twice_changes_nothing_and_keeps_the_time() -> None:
    world = World()
    world.ask(Pause())
    since = world.state.company.paused_ms
    world.now_ms += 5
    assert world.ask(Pause()) == settings(paused=True, changed=False)
    assert world.state.company.paused_ms == since
    world.ask(Unpause())
    assert world.ask(Unpause()) == settings(changed=False)
    assert [event.kind for event in world.events] == ["company.paused", "company.unpaused"]


def test_the_run_that_was_started_now_goes_through_a_pause_until_it_settles() -> None:
    world = World(runs_max=2)
    world.ask(Pause())
    nodes = [Node("one", "work"), Node("two", "work", after=["one"])]
    world.ask(Submit("task", id="a", nodes=nodes))
    world.ask(StartNow("a"))
    world.reload()
    world.succeed("a", "one")
    assert [effect.spec.name for effect in world.running.values()] == ["two"]
    world.give_up("a", "two")
    world.ask(Retry("a"))
    assert world.where("a") is WorkState.PAUSED


def test_start_now_never_goes_past_dependencies_or_the_limit_and_names_who_holds_the_slots() -> None:
    world = World(runs_max=2)
    many(world, 2)
    world.ask(Submit("task", id="user", handler="work", depends_on=["t0"]))
    world.ask(Submit("task", id="free", handler="work", priority=9))
    assert world.ask(StartNow("user")).holders == ("t0", "t1")
    assert world.ask(StartNow("free")).holders == ("t0", "t1")
    assert world.where("user") is WorkState.WAITING
    world.ask(Submit("task", id="urgent", handler="work", priority=0))
    world.succeed("t1")
    assert active(world) == ["t0", "free"]


# --- goals --------------------------------------------------------------------------------------------------------


def test_a_goal_is_stopped_as_a_whole_in_one_turn_in_the_order_of_submission() -> None:
    world = World(runs_max=2)
    watch(world)
    many(world, 5, goal="g")
    world.ask(Submit("task", id="other", handler="work"))
    world.succeed("t0")
    world.ask(Stop("t1"))
    assert world.ask(StopGoal("g")) == GoalStopped("g", ("t2", "t3", "t4"))
    assert [world.run(f"t{n}").status.value for n in range(5)] == [
        *("completed", "stopping", "stopping", "stopped", "stopped")
    ]
    assert {event.reason for event in world.told("run.stopping")} == {"stop", "stop goal"}
    for task in ("t1", "t2"):
        world.end(task, AttemptEnd.STOPPED)
    assert world.where("other") is WorkState.RUNNING
    assert world.ask(StopGoal("g")) == GoalStopped("g", ())
    world.check_tables()


def test_stopping_a_goal_leaves_alone_what_has_no_goal_or_is_put_away() -> None:
    world = World(runs_max=0)
    many(world, 2)
    world.ask(Submit("task", id="with", goal="g"))
    assert world.ask(StopGoal("unknown")) == GoalStopped("unknown", ())
    assert world.ask(StopGoal("g")).tasks == ("with",)
    assert [world.run(task).status for task in ("t0", "t1")] == [RunStatus.QUEUED] * 2


def test_unparking_a_company_that_is_not_parked_says_so() -> None:
    assert World().ask(Unpark()) == Unparked(was_parked=False)
