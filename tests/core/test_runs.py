"""One run from its admission to its end: nodes, stops, failures, late reports."""

from __future__ import annotations

from typing import Any

import pytest

from actors.core.draft import AttemptKey, EndAttempt, StartAttempt
from actors.core.reports import Report
from actors.core.shape import NodeSpec
from actors.messages import (
    Archive,
    Edit,
    Node,
    Pause,
    Rerun,
    Retry,
    SetLimits,
    StartNow,
    Stop,
    Submit,
    Unarchive,
)
from actors.messages.views import WorkState
from storage.records import AttemptEnd, NodeStatus, RunStatus

from .agreement import watch
from .world import World

PENDING, RUNNING, SUCCEEDED, FAILED, SKIPPED = (
    *(NodeStatus.PENDING, NodeStatus.RUNNING, NodeStatus.SUCCEEDED, NodeStatus.FAILED, NodeStatus.SKIPPED),
)


def a_run(*nodes: Node, **fields: Any) -> World:
    world = World(**fields.pop("world", {}))
    watch(world)
    world.ask(Submit("task", id="t", nodes=nodes, **fields))
    return world


def statuses(world: World) -> list[NodeStatus]:
    return [node.status for node in world.nodes("t")]


# --- going well ---------------------------------------------------------------------------------------------------


def test_a_run_without_nodes_completes_in_the_turn_of_its_admission() -> None:
    world = a_run()
    assert [event.kind for event in world.events] == ["task.submitted", "run.admitted", "run.completed"]
    assert world.run("t").status is RunStatus.COMPLETED
    assert world.nodes("t") == []


def test_a_node_starts_when_all_before_it_have_succeeded() -> None:
    world = a_run(Node("a"), Node("b"), Node("both", after=["a", "b"]), Node("end", after=["both"]))
    assert statuses(world) == [RUNNING, RUNNING, PENDING, PENDING]
    world.succeed("t", "a")
    assert statuses(world) == [SUCCEEDED, RUNNING, PENDING, PENDING]
    world.succeed("t", "b")
    assert statuses(world) == [SUCCEEDED, SUCCEEDED, RUNNING, PENDING]
    world.succeed("t", "both")
    world.succeed("t", "end")
    assert world.run("t").status is RunStatus.COMPLETED
    world.check_tables()


def test_an_attempt_is_given_what_it_needs_and_its_inputs_by_name() -> None:
    node = Node("end", "work", after=["b", "a"], timeout_s=5, tries_max=2)
    world = a_run(Node("a"), Node("b"), node)
    world.succeed("t", "a", result='"A"')
    world.succeed("t", "b", result='"B"')
    (effect,) = world.running.values()
    assert effect == StartAttempt(
        AttemptKey("t", seq=1, run=1, pos=2, number=1),
        NodeSpec("end", "work", after=(1, 0), tries_max=2, timeout_s=5.0),
        generation=0,
        input_names=("b", "a"),
    )
    assert world.stored("SELECT result FROM nodes ORDER BY pos") == [('"A"',), ('"B"',), (None,)]


def test_finishing_one_run_and_starting_the_next_is_one_turn() -> None:
    world = World(runs_max=1)
    for task in "ab":
        world.ask(Submit("task", id=task, handler="work"))
    before = len(world.events)
    world.turn(Report(world.attempt("a"), AttemptEnd.SUCCEEDED, result="1"))
    assert [event.kind for event in world.events[before:]] == [
        *("attempt.succeeded", "run.completed", "run.admitted", "attempt.started")
    ]


def test_every_event_of_a_run_has_its_task_its_run_its_node_and_both_ends() -> None:
    world = a_run(Node("n"))
    world.succeed("t")
    shown = [(e.kind, e.task, e.run, e.node, e.attempt, e.before, e.after, e.reason) for e in world.events]
    assert shown == [
        ("task.submitted", "t", 1, None, None, None, "queued", None),
        ("run.admitted", "t", 1, None, None, "queued", "running", None),
        ("attempt.started", "t", 1, "n", 1, "pending", "running", None),
        ("attempt.succeeded", "t", 1, "n", 1, "running", "succeeded", None),
        ("run.completed", "t", 1, None, None, "running", "completed", None),
    ]


def test_a_node_without_a_handler_here_does_not_hold_up_those_that_have_one() -> None:
    world = World(handlers={"x", "y"}, executions_max=0)
    world.ask(Submit("task", id="t", nodes=[Node("first", "x"), Node("second", "y")]))
    world.handlers = frozenset({"y"})
    world.reload()
    world.slots.free = 5
    world.turn()
    assert [effect.spec.name for effect in world.running.values()] == ["second"]


# --- failing ------------------------------------------------------------------------------------------------------


def test_a_run_fails_when_a_node_gave_up_and_nothing_else_can_go_on() -> None:
    world = a_run(Node("bad"), Node("slow"), Node("rest"), Node("never", after=["bad"]))
    world.fail("t", "rest")
    world.give_up("t", "bad")
    world.succeed("t", "slow")
    assert world.where("t") is WorkState.RUNNING  # one of them backs off
    world.wait(2)
    world.succeed("t", "rest")
    assert world.where("t") is WorkState.FAILED
    assert statuses(world) == [FAILED, SUCCEEDED, SUCCEEDED, PENDING]
    (event,) = world.told("run.failed")
    assert (event.reason, event.data) == ("E: no", {"nodes": ["bad"]})
    world.check_tables()


def test_fail_fast_stops_the_others_first_and_starts_nothing_more() -> None:
    world = a_run(Node("bad"), Node("alive"), Node("ready"), fail_fast=True, world={"executions_max": 2})
    world.give_up("t", "bad")
    assert [(c.key.pos, c.why) for c in world.cancelled] == [(1, "stopped")]
    assert statuses(world) == [FAILED, RUNNING, PENDING]
    world.end("t", AttemptEnd.STOPPED, "alive")
    assert world.where("t") is WorkState.FAILED
    assert statuses(world) == [FAILED, SKIPPED, PENDING]
    world.check_tables()


def test_under_fail_fast_what_backs_off_is_not_waited_for() -> None:
    world = a_run(Node("bad"), Node("rest"), fail_fast=True)
    world.fail("t", "rest")
    assert world.state.next_due_ms() is not None
    world.give_up("t", "bad")
    assert world.where("t") is WorkState.FAILED
    assert world.state.next_due_ms() is None


@pytest.mark.parametrize(
    "end", [AttemptEnd.SUCCEEDED, AttemptEnd.FAILED, AttemptEnd.TIMED_OUT, AttemptEnd.LOST]
)
def test_under_fail_fast_an_attempt_may_still_end_in_its_own_way_before_it_is_stopped(
    end: AttemptEnd,
) -> None:
    world = a_run(Node("bad"), Node("alive"), fail_fast=True)
    world.give_up("t", "bad")
    world.end("t", end, "alive", error="E")
    assert world.where("t") is WorkState.FAILED
    world.check_tables()


def test_a_fifth_death_stops_the_others_under_fail_fast() -> None:
    world = a_run(Node("bad"), Node("alive"), fail_fast=True)
    for _ in range(5):
        world.end("t", AttemptEnd.LOST, "bad")
    assert [(c.key.pos, c.why) for c in world.cancelled] == [(1, "stopped")]


def test_a_retry_while_the_others_are_being_stopped_lets_all_of_them_go_on() -> None:
    """Whoever was stopped for a failure that is no more runs again; the run does not hang on a skipped node."""
    world = a_run(Node("bad"), Node("early"), Node("late"), fail_fast=True)
    world.give_up("t", "bad")
    world.end("t", AttemptEnd.STOPPED, "early")
    world.ask(Retry("t"))
    assert [event.node for event in world.told("node.reset")] == ["bad", "early"]
    world.end("t", AttemptEnd.STOPPED, "late")
    assert world.told("attempt.stopped")[-1].after == "pending"
    for name in ("bad", "early", "late"):
        world.succeed("t", name)
    assert world.run("t").status is RunStatus.COMPLETED
    world.check_tables()


# --- stopping -----------------------------------------------------------------------------------------------------


def test_a_stop_holds_the_slot_until_nothing_is_alive() -> None:
    world = a_run(Node("a"), Node("b"), Node("c", after=["a"]))
    world.ask(Submit("task", id="next", handler="work"))
    world.ask(Stop("t"))
    assert [(c.key.pos, c.why) for c in world.cancelled] == [(0, "stopped"), (1, "stopped")]
    assert world.where("t") is WorkState.STOPPING
    world.end("t", AttemptEnd.STOPPED, "a")
    assert world.where("next") is WorkState.QUEUED
    world.end("t", AttemptEnd.STOPPED, "b")
    assert statuses(world) == [SKIPPED, SKIPPED, SKIPPED]
    assert world.where("t") is WorkState.STOPPED
    assert world.where("next") is WorkState.RUNNING
    (event,) = world.told("run.stopped")
    assert (event.before, event.reason, event.data) == ("stopping", "stop", {"skipped": 1})
    world.check_tables()


def test_a_stop_of_a_run_with_nothing_alive_ends_it_in_the_same_turn() -> None:
    world = a_run(Node("a"), world={"executions_max": 0})
    world.turn(Stop("t"), advancing=False)
    assert [event.kind for event in world.events[-2:]] == ["run.stopping", "run.stopped"]
    assert statuses(world) == [SKIPPED]


@pytest.mark.parametrize("end", [*AttemptEnd])
def test_after_the_commit_of_a_stop_an_attempts_own_end_does_not_count(end: AttemptEnd) -> None:
    """First commit wins, and what came late is said."""
    world = a_run(Node("a"))
    world.ask(Stop("t"))
    result = "1" if end is AttemptEnd.SUCCEEDED else None
    world.end("t", end, result=result, error="E", give_up=True)
    assert (world.where("t"), statuses(world)) == (WorkState.STOPPED, [SKIPPED])
    assert (world.node("t").tries, world.node("t").unclean) == (0, 0)
    assert world.stored("SELECT end FROM attempts") == [("stopped",)]
    late = end in (AttemptEnd.SUCCEEDED, AttemptEnd.FAILED)
    told = f"it ended as {end.value} after the stop, which counts" if late else None
    assert world.told("attempt.stopped")[0].reason == told
    world.check_tables()


def test_a_stop_twice_is_harmless() -> None:
    world = a_run(Node("a"))
    assert world.ask(Stop("t")).changed
    assert not world.ask(Stop("t")).changed
    assert len(world.cancelled) == 1
    world.end("t", AttemptEnd.STOPPED)
    assert not world.ask(Stop("t")).changed


# --- late reports -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [*AttemptEnd])
@pytest.mark.parametrize(
    "stage", ["a later attempt runs", "the run is settled", "the task is forgotten", "a new run"]
)
def test_a_late_report_changes_nothing_and_says_whose_it_was(stage: str, end: AttemptEnd) -> None:
    world = World()
    world.ask(Submit("task", id="t", nodes=[Node("a", tries_max=2)]))
    old = world.attempt("t")
    world.end("t", AttemptEnd.INTERRUPTED)
    if stage != "a later attempt runs":
        world.give_up("t")
    if stage == "a new run":
        world.ask(Rerun("t"))
    if stage == "the task is forgotten":
        assert "t" not in world.state.entries
    before = world.stored("SELECT * FROM runs"), world.stored("SELECT * FROM nodes")
    attempts = world.stored("SELECT * FROM attempts")
    counted = world.turn(Report(old, end, result="9", error="E: late", give_up=True, node="a"))
    assert counted == [False]
    assert (world.stored("SELECT * FROM runs"), world.stored("SELECT * FROM nodes")) == before
    assert world.stored("SELECT * FROM attempts") == attempts
    (event,) = world.told("attempt.late")
    assert (event.task, event.run, event.node, event.attempt, event.reason) == ("t", 1, "a", 1, "E: late")
    assert event.data == {"outcome": end.value}


def test_a_report_is_consumed_whether_it_counts_or_not() -> None:
    world = a_run(Node("a"))
    key = world.attempt("t")
    world.turn(Report(key, AttemptEnd.SUCCEEDED, result="1"), Report(key, AttemptEnd.FAILED, error="E"))
    assert world.run("t").status is RunStatus.COMPLETED
    assert [event.kind for event in world.events if event.kind.startswith("attempt.")] == [
        *("attempt.started", "attempt.succeeded", "attempt.late")
    ]
    assert EndAttempt(key) == EndAttempt(key._replace())


@pytest.mark.parametrize(
    "wrong", [{"number": 2}, {"run": 2}, {"pos": 1}, {"pos": 9}, {"seq": 2}, {"task": "other"}]
)
def test_a_report_counts_only_for_just_the_attempt_that_runs(wrong: dict[str, Any]) -> None:
    world = a_run(Node("a"), Node("b", after=["a"]))
    key = world.attempt("t")._replace(**wrong)
    assert world.turn(Report(key, AttemptEnd.SUCCEEDED, result="1")) == [False]
    assert statuses(world) == [RUNNING, PENDING]


def test_what_an_abandoned_attempt_left_behind_is_said_and_its_end_counts() -> None:
    world = a_run(Node("a", tries_max=1))
    world.end("t", AttemptEnd.TIMED_OUT, error="TimeOut", abandoned_after_s=10.0)
    (event,) = world.told("attempt.abandoned")
    assert (event.node, event.attempt, event.data) == ("a", 1, {"grace_s": 10.0})
    assert world.where("t") is WorkState.FAILED


# --- again --------------------------------------------------------------------------------------------------------


def test_a_new_run_begins_from_the_beginning_and_the_old_one_stays_as_it_ended() -> None:
    world = a_run(Node("a"), Node("b", after=["a"]))
    world.succeed("t", "a")
    world.succeed("t", "b")
    answer = world.ask(Rerun("t"))
    assert (answer.run, answer.status) == (2, RunStatus.QUEUED)
    assert statuses(world) == [RUNNING, PENDING]
    assert world.stored("SELECT number, status FROM runs ORDER BY number") == [
        (1, "completed"),
        (2, "running"),
    ]
    assert world.attempt("t").number == 1
    world.check_tables()


def test_a_new_run_of_a_manual_task_needs_no_second_start() -> None:
    world = a_run(Node("a"), mode="manual")
    world.ask(Stop("t"))
    world.ask(Rerun("t"))
    assert world.where("t") is WorkState.RUNNING


def test_start_now_revives_and_goes_first() -> None:
    world = World(runs_max=1)
    for task in "abc":
        world.ask(Submit("task", id=task, handler="work"))
    world.ask(Stop("c"))
    answer = world.ask(StartNow("c"))
    assert (answer.status, answer.holders) == (RunStatus.QUEUED, ("a",))
    world.succeed("a")
    assert [key.task for key in world.running] == ["c"]


def test_what_is_put_away_is_in_no_queue_and_comes_back_as_it_was() -> None:
    world = World(runs_max=0)
    watch(world)
    world.ask(Submit("task", id="t", handler="work"))
    world.ask(Archive("t"))
    assert "t" not in world.state.entries
    world.ask(SetLimits(runs_max=1))
    world.reload()
    assert world.state.entries == {}
    assert world.where("t") is WorkState.ARCHIVED
    world.ask(Unarchive("t"))
    assert world.where("t") is WorkState.STOPPED
    world.ask(Retry("t"))
    assert world.where("t") is WorkState.RUNNING


def test_a_completed_task_that_is_put_away_still_counts_as_done() -> None:
    world = World(runs_max=1)
    watch(world)
    world.ask(Submit("up", id="up"))
    world.ask(Archive("up"))
    world.ask(Submit("task", id="t", handler="work", depends_on=["up"]))
    assert world.where("t") is WorkState.RUNNING


def test_a_suspect_waits_for_the_other_one_and_the_innocent_go_on() -> None:
    world = a_run(Node("x"), Node("y"), Node("z"))
    for name in ("x", "x", "y", "y"):
        world.end("t", AttemptEnd.LOST, name)
    alive = sorted(effect.spec.name for effect in world.running.values())
    assert alive in (["x", "z"], ["y", "z"])
    (first,) = {"x", "y"} & set(alive)
    world.succeed("t", first)
    assert sorted(effect.spec.name for effect in world.running.values()) == sorted({"x", "y", "z"} - {first})


def test_a_pause_and_an_edit_of_the_cap_leave_a_live_attempt_alone() -> None:
    world = a_run(Node("a"))
    key = world.attempt("t")
    world.ask(Pause())
    world.ask(Edit("t", tries_max=1))
    assert world.attempt("t") == key
    assert world.cancelled == []
