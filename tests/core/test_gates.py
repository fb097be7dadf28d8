"""Gates and steps: how a run halts for a person, what goes on meanwhile, and how it goes on."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import pytest

from actors.core.entry import Standing
from actors.core.reports import Report
from actors.errors import MoveRefused
from actors.messages import (
    Approve,
    Backoff,
    Edit,
    Gate,
    Next,
    Node,
    Pause,
    Retry,
    SetLimits,
    StartNow,
    Stop,
    Submit,
    Unpause,
)
from actors.messages.views import Reason, ReasonKind, WorkState
from actors.runtime.recovery import Quarantine
from storage.records import AttemptEnd, NodeStatus, RunStatus

from .agreement import watch
from .world import World, writing

JUDGED: list[Node | Gate] = [
    Node("draft", "work"),
    Gate("approve", after=["draft"]),
    Node("publish", "work", after=["approve"]),
]


@pytest.fixture
def world() -> World:
    """Compared with the definitions after every step."""
    world = World()
    watch(world)
    return world


def told(world: World, since: int = 0) -> list[tuple[str, str | None, str | None]]:
    return [(event.kind, event.node, event.reason) for event in world.events[since:]]


# --- a gate is reached ------------------------------------------------------------------------------------------


def test_a_run_that_reaches_a_gate_halts_and_its_slot_is_free_in_the_same_turn(world: World) -> None:
    world.ask(Submit("judged", id="a", nodes=JUDGED, priority=1))
    world.ask(Submit("behind it", id="b", handler="work"))
    before = len(world.events)
    world.now_ms += 7
    world.succeed("a", "draft")
    assert told(world, before) == [
        ("attempt.succeeded", "draft", None),
        ("gate.reached", "approve", None),
        ("run.halted", None, "approval"),
        ("run.admitted", None, None),
        ("attempt.started", "work", None),
    ]
    halted = world.told("run.halted")[0]
    assert (halted.before, halted.after) == ("running", "halted")
    assert halted.data == {"count": 1, "nodes": ["approve"]}
    assert (world.run("a").status, world.run("a").slot) == (RunStatus.HALTED, 0)
    assert world.run("b").status is RunStatus.RUNNING
    assert world.where("a") is WorkState.HALTED
    assert world.reasons("a") == (
        Reason(ReasonKind.APPROVAL, nodes=("approve",), count=1, at_ms=world.now_ms),
    )
    assert world.gates("a") == [ReasonKind.APPROVAL]
    world.check_tables()


def test_an_approved_run_goes_on_at_its_old_place_and_the_answer_is_the_gates_result(world: World) -> None:
    world.ask(Submit("judged", id="a", nodes=JUDGED))
    world.ask(Submit("in between", id="b", handler="work"))
    world.ask(Submit("behind it", id="c", handler="work"))
    world.succeed("a", "draft")
    before = len(world.events)
    moved = world.ask(Approve("a", "approve", "well done"))
    assert (moved.status, moved.changed) == (RunStatus.QUEUED, True)
    assert told(world, before) == [("gate.approved", "approve", None), ("run.resumed", "approve", "approve")]
    approved = world.told("gate.approved")[0]
    assert (approved.before, approved.after, approved.data) == ("pending", "succeeded", {"note": "well done"})
    assert (world.position("a"), world.position("c")) == (1, 2)
    world.succeed("b")
    assert world.attempt("a", "publish").number == 1
    (row,) = world.stored("SELECT result FROM nodes WHERE pos = 1 AND seq = 1")
    assert json.loads(row[0]) == {"approved": True, "note": "well done"}
    world.succeed("a", "publish")
    assert world.run("a").status is RunStatus.COMPLETED
    world.check_tables()


def test_an_approval_without_a_note_says_so(world: World) -> None:
    world.ask(Submit("judged", id="a", nodes=[Gate("approve")]))
    world.ask(Approve("a", "approve"))
    (row,) = world.stored("SELECT result FROM nodes")
    assert json.loads(row[0]) == {"approved": True, "note": None}
    assert world.run("a").status is RunStatus.COMPLETED


@pytest.mark.parametrize("other", ["executes", "is ready", "backs off"])
def test_a_run_does_not_halt_while_another_branch_goes_on(world: World, other: str) -> None:
    world.ask(Submit("judged", id="a", nodes=[*JUDGED, Node("side", "work", retry=Backoff(base_s=60))]))
    if other == "is ready":
        world.slots.free = 1
        world.turn(Report(world.attempt("a", "side"), AttemptEnd.INTERRUPTED))
    elif other == "backs off":
        world.fail("a", "side")
    world.succeed("a", "draft")
    if other == "is ready":
        world.slots.free = 0
        world.turn(Report(world.attempt("a", "side"), AttemptEnd.INTERRUPTED))
    assert world.run("a").status is RunStatus.RUNNING
    assert world.told("gate.reached", "a")
    assert world.told("run.halted") == []
    assert world.reason("a", ReasonKind.APPROVAL).nodes == ("approve",)
    world.ask(Approve("a", "approve"))
    assert world.told("run.resumed") == []
    assert world.run("a").status is RunStatus.RUNNING
    assert ReasonKind.APPROVAL not in {reason.kind for reason in world.reasons("a")}


def test_a_gate_that_is_approved_while_others_run_lets_its_users_start_at_once(world: World) -> None:
    world.ask(Submit("judged", id="a", nodes=[*JUDGED, Node("side", "work")]))
    world.succeed("a", "draft")
    world.ask(Approve("a", "approve"))
    assert world.attempt("a", "publish").number == 1
    world.succeed("a", "side")
    world.succeed("a", "publish")
    assert world.told("run.halted") == []
    assert world.run("a").status is RunStatus.COMPLETED


def test_a_run_with_two_gates_halts_again_for_the_other_one(world: World) -> None:
    nodes: list[Node | Gate] = [Gate("one"), Gate("two"), Node("end", "work", after=["one", "two"])]
    world.ask(Submit("judged", id="a", nodes=nodes))
    assert world.reason("a", ReasonKind.APPROVAL).nodes == ("one", "two")
    world.ask(Approve("a", "two"))
    assert world.run("a").status is RunStatus.HALTED
    assert world.reason("a", ReasonKind.APPROVAL).nodes == ("one",)
    with pytest.raises(MoveRefused, match=r"gate 'two' is approved already: one waits for you") as refusal:
        world.ask(Approve("a", "two"))
    assert refusal.value.advice == ("Approve",)
    world.ask(Approve("a", "one"))
    world.succeed("a", "end")
    assert len(world.told("gate.reached")) == 2
    assert len(world.told("run.halted")) == 2


def test_a_gate_can_be_approved_while_the_run_waits_for_its_slot_again(world: World) -> None:
    world.ask(Submit("judged", id="a", nodes=[Gate("one"), Gate("two")]))
    world.ask(Submit("in the way", id="b", handler="work"))
    world.ask(Approve("a", "one"))
    assert world.run("a").status is RunStatus.QUEUED
    world.ask(Approve("a", "two"))
    assert world.run("a").status is RunStatus.QUEUED
    world.succeed("b")
    assert world.run("a").status is RunStatus.COMPLETED
    assert len(world.told("run.halted")) == 1


def test_a_gate_is_reached_only_when_all_before_it_have_succeeded(world: World) -> None:
    nodes: list[Node | Gate] = [Node("a", "work"), Node("b", "work"), Gate("gate", after=["a", "b"])]
    world.ask(Submit("judged", id="t", nodes=nodes))
    world.succeed("t", "a")
    with pytest.raises(MoveRefused, match=r"gate 'gate' is not reached yet: nothing waits for you"):
        world.ask(Approve("t", "gate"))
    assert world.told("gate.reached") == []
    world.succeed("t", "b")
    assert world.run("t").status is RunStatus.HALTED


def test_an_open_gate_comes_before_failed(world: World) -> None:
    world.ask(Submit("judged", id="a", nodes=[*JUDGED, Node("side", "work", tries_max=1)]))
    world.fail("a", "side")
    world.succeed("a", "draft")
    assert world.run("a").status is RunStatus.HALTED
    with pytest.raises(MoveRefused, match="use Approve or SendBack"):
        world.ask(Retry("a"))
    world.ask(Approve("a", "approve"))
    world.succeed("a", "publish")
    assert world.run("a").status is RunStatus.FAILED
    assert [node.status for node in world.nodes("a")] == [
        *[NodeStatus.SUCCEEDED] * 3,
        NodeStatus.FAILED,
    ]
    world.check_tables()


def test_under_fail_fast_a_gate_is_not_waited_for(world: World) -> None:
    nodes = [*JUDGED, Node("side", "work", tries_max=1)]
    world.ask(Submit("judged", id="a", nodes=nodes, fail_fast=True))
    world.succeed("a", "draft")
    world.fail("a", "side")
    assert world.run("a").status is RunStatus.FAILED
    world.ask(Retry("a"))
    world.succeed("a", "side")
    assert world.run("a").status is RunStatus.HALTED
    assert len(world.told("gate.reached")) == 1
    world.check_tables()


def test_dependents_of_a_halted_task_wait_and_are_not_blocked(world: World) -> None:
    world.ask(Submit("judged", id="a", nodes=[Gate("gate")]))
    world.ask(Submit("needs it", id="b", handler="work", depends_on=["a"]))
    world.ask(Submit("needs that", id="c", handler="work", depends_on=["b"]))
    assert world.state.standing("a") is Standing.UNFINISHED
    assert [world.where(task) for task in "abc"] == [
        WorkState.HALTED,
        WorkState.WAITING,
        WorkState.WAITING,
    ]
    assert world.told("tasks.blocked") == []
    world.ask(Approve("a", "gate"))
    assert world.attempt("b").number == 1


def test_a_halted_run_can_be_stopped_and_its_gate_is_reached_anew_after_a_retry(world: World) -> None:
    world.ask(Submit("judged", id="a", nodes=JUDGED))
    world.succeed("a", "draft")
    first = world.node("a", 1).reached_ms
    world.ask(Stop("a"))
    assert [node.status.value for node in world.nodes("a")] == ["succeeded", "skipped", "skipped"]
    assert (world.run("a").halted_ms, world.node("a", 1).reached_ms) == (None, None)
    world.now_ms += 5_000
    world.ask(Retry("a"))
    assert world.run("a").status is RunStatus.HALTED
    assert world.node("a", 1).reached_ms == world.now_ms != first
    assert len(world.told("gate.reached")) == 2
    world.check_tables()


def test_a_halted_run_that_is_quarantined_is_halted_again_when_it_is_released(world: World) -> None:
    world.ask(Submit("judged", id="a", nodes=[Gate("gate")]))
    world.ask(Submit("needs it", id="b", handler="work", depends_on=["a"]))
    with writing(world.conn):
        Quarantine(world.name, "a", 1, "why", None, world.now_ms)(world.conn)
    world.reload()
    assert world.where("a") is WorkState.QUARANTINED
    assert world.where("b") is WorkState.BLOCKED
    with pytest.raises(MoveRefused, match="is quarantined"):
        world.ask(Approve("a", "gate"))
    world.ask(Retry("a"))
    assert [world.where(task) for task in "ab"] == [WorkState.HALTED, WorkState.WAITING]
    world.ask(Approve("a", "gate"))
    assert world.attempt("b").number == 1
    world.check_tables()


def test_a_person_s_word_to_a_halted_run_survives_a_new_actor(world: World) -> None:
    world.ask(Submit("judged", id="a", nodes=JUDGED))
    world.succeed("a", "draft")
    before = world.reasons("a")
    world.reload()
    world.advance_until_quiet()
    assert world.reasons("a") == before
    assert len(world.told("gate.reached")) == len(world.told("run.halted")) == 1
    world.ask(Approve("a", "approve"))
    world.reload()
    world.succeed("a", "publish")
    assert world.run("a").status is RunStatus.COMPLETED


def test_a_run_that_was_put_in_front_past_a_pause_is_so_also_after_it_was_halted(world: World) -> None:
    world.ask(Pause())
    world.ask(Submit("judged", id="a", nodes=JUDGED))
    world.ask(StartNow("a"))
    world.succeed("a", "draft")
    world.ask(Approve("a", "approve"))
    assert world.attempt("a", "publish").number == 1
    world.succeed("a", "publish")
    assert world.run("a").front == 0


def test_during_a_pause_what_is_approved_waits_for_its_end(world: World) -> None:
    world.ask(Submit("judged", id="a", nodes=JUDGED))
    world.succeed("a", "draft")
    world.ask(Pause())
    world.ask(Approve("a", "approve"))
    assert world.where("a") is WorkState.PAUSED
    world.ask(Unpause())
    assert world.attempt("a", "publish").number == 1


def test_a_gate_needs_no_handler(world: World) -> None:
    world = World(handlers={"work"})
    world.ask(Submit("judged", id="a", nodes=JUDGED))
    world.handlers = frozenset()
    world.succeed("a", "draft")
    world.reload()
    world.ask(Approve("a", "approve"))
    assert world.where("a") is WorkState.BLOCKED, "the node behind the gate has lost its handler"
    world.handlers = frozenset({"work"})
    world.reload()
    world.advance_until_quiet()
    assert world.attempt("a", "publish").number == 1


def test_a_thousand_gates_are_said_in_bounded_turns(world: World) -> None:
    world = World()
    world.turn(Submit("judged", id="a", nodes=[Gate(f"g{n}") for n in range(1000)]), moves_max=200)
    assert world.advanced.more
    assert len(world.told("gate.reached")) < 200
    world.advance_until_quiet()
    assert len(world.told("gate.reached")) == 1000
    (halted,) = world.told("run.halted")
    assert (halted.data["count"], len(halted.data["nodes"])) == (1000, 100)
    reason = world.reason("a", ReasonKind.APPROVAL)
    assert (reason.count, len(reason.nodes)) == (1000, 10)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE runs SET status = 'halted', slot = 0",
        "UPDATE runs SET halted_ms = 1",
        "UPDATE nodes SET reached_ms = 1 WHERE pos = 0",
        "UPDATE nodes SET superseded = 1 WHERE pos = 1",
        "UPDATE nodes SET superseded = 2",
        "UPDATE nodes SET send_backs = -1",
        "UPDATE tasks SET send_backs_max = -1",
    ],
)
def test_the_file_itself_refuses_what_no_run_can_be(world: World, statement: str) -> None:
    world.ask(Submit("judged", id="a", nodes=JUDGED))
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        world.conn.execute(statement)


# --- step by step -------------------------------------------------------------------------------------------------


STEPS: list[Node | Gate] = [
    Node("one", "work"),
    Node("two", "work"),
    Node("end", "work", after=["one", "two"]),
]


def a_stepping_task(world: World, nodes: list[Node | Gate] | None = None, **fields: Any) -> None:
    world.ask(Submit("step by step", id="a", mode="step", nodes=nodes or STEPS, **fields))


def test_a_run_that_goes_step_by_step_halts_before_each_node_and_next_lets_one_start(world: World) -> None:
    a_stepping_task(world)
    assert world.told("run.admitted", "a")
    for number, node in enumerate(("one", "two", "end")):
        assert world.run("a").status is RunStatus.HALTED
        assert world.running == {}
        ready = ("one", "two") if number == 0 else (node,)
        assert world.reasons("a") == (
            Reason(ReasonKind.STEP, nodes=ready, count=len(ready), at_ms=world.now_ms),
        )
        assert world.told("run.halted")[-1].data == {"count": len(ready), "nodes": list(ready)}
        moved = world.ask(Next("a"))
        assert moved.status is RunStatus.QUEUED
        assert (world.told("run.resumed")[-1].node, world.told("run.resumed")[-1].reason) == (node, "next")
        assert [key.pos for key in world.running] == [number]
        world.now_ms += 1000
        world.succeed("a", node)
    assert world.run("a").status is RunStatus.COMPLETED
    assert len(world.told("run.halted")) == 3
    world.check_tables()


def test_while_a_step_executes_the_others_are_not_let_in(world: World) -> None:
    a_stepping_task(world)
    world.ask(Next("a"))
    assert world.where("a") is WorkState.RUNNING
    assert [reason.kind for reason in world.reasons("a")] == [ReasonKind.EXECUTING, ReasonKind.STEP]
    assert world.reason("a", ReasonKind.STEP).nodes == ("two",)
    with pytest.raises(MoveRefused, match="no step of it waits for you"):
        world.ask(Next("a"))


def test_the_further_tries_of_a_step_need_no_further_word(world: World) -> None:
    a_stepping_task(world, [Node("one", "work", retry=Backoff(base_s=60)), Node("two", "work")])
    world.ask(Next("a"))
    world.fail("a", "one")
    assert world.where("a") is WorkState.RUNNING, "it backs off, so it does not halt"
    assert world.running == {}
    world.wait(120)
    world.end("a", AttemptEnd.INTERRUPTED, "one")
    world.advance_until_quiet()
    world.end("a", AttemptEnd.LOST, "one")
    world.advance_until_quiet()
    assert world.attempt("a", "one").number == 4
    world.succeed("a", "one")
    assert world.run("a").status is RunStatus.HALTED
    assert world.reason("a", ReasonKind.STEP).nodes == ("two",)


def test_what_becomes_ready_while_a_step_rests_waits_for_a_word_of_its_own(world: World) -> None:
    """It stands before the step in the graph, and still it is the step that is tried again."""
    nodes: list[Node | Gate] = [Node("behind", "work", after=["gate"]), Gate("gate"), Node("one", "work")]
    a_stepping_task(world, nodes)
    world.ask(Next("a"))
    world.fail("a", "one")
    world.ask(Approve("a", "gate"))
    world.wait(10)
    assert [effect.spec.name for effect in world.running.values()] == ["one"]
    assert world.reason("a", ReasonKind.STEP).nodes == ("behind",)
    world.succeed("a", "one")
    assert world.run("a").status is RunStatus.HALTED


def test_a_retry_goes_on_with_the_step_that_failed_and_with_no_other(world: World) -> None:
    a_stepping_task(world, [Node("one", "work"), Node("two", "work", after=["one"])], tries_max=1)
    world.ask(Next("a"))
    world.fail("a", "one")
    assert world.run("a").status is RunStatus.FAILED
    world.ask(Retry("a"))
    world.succeed("a", "one")
    assert world.run("a").status is RunStatus.HALTED


def test_a_failed_step_does_not_end_the_run_while_another_could_be_let_through(world: World) -> None:
    a_stepping_task(world, [Node("one", "work"), Node("two", "work")], tries_max=1)
    world.ask(Next("a"))
    world.fail("a", "one")
    assert world.run("a").status is RunStatus.HALTED
    world.ask(Next("a"))
    world.succeed("a", "two")
    assert world.run("a").status is RunStatus.FAILED


def test_a_step_and_a_gate_wait_side_by_side_and_each_has_its_own_answer(world: World) -> None:
    a_stepping_task(world, [Gate("gate"), Node("one", "work"), Node("end", "work", after=["gate", "one"])])
    assert [reason.kind for reason in world.reasons("a")] == [ReasonKind.STEP, ReasonKind.APPROVAL]
    world.ask(Approve("a", "gate"))
    assert world.run("a").status is RunStatus.HALTED
    assert [reason.kind for reason in world.reasons("a")] == [ReasonKind.STEP]
    world.ask(Next("a"))
    world.succeed("a", "one")
    world.ask(Next("a"))
    world.succeed("a", "end")
    assert world.run("a").status is RunStatus.COMPLETED


def test_a_step_that_was_let_through_waits_in_the_line_like_everybody(world: World) -> None:
    a_stepping_task(world)
    world.ask(Submit("in the way", id="b", handler="work"))
    world.ask(Next("a"))
    assert world.where("a") is WorkState.QUEUED
    with pytest.raises(MoveRefused, match="is queued to go on"):
        world.ask(Next("a"))
    world.succeed("b")
    assert world.attempt("a", "one").number == 1


def test_a_task_can_be_made_to_go_step_by_step_and_to_stop_doing_so(world: World) -> None:
    world.ask(SetLimits(runs_max=0))
    world.ask(Submit("task", id="a", nodes=STEPS))
    world.ask(Edit("a", mode="step"))
    world.ask(SetLimits(runs_max=1))
    assert world.reason("a", ReasonKind.STEP).count == 2
    world.ask(Edit("a", mode="auto"))
    assert world.run("a").status is RunStatus.HALTED, "it counts from the next admission on"
    world.ask(Next("a"))
    assert sorted(key.pos for key in world.running) == [0, 1]


def test_a_run_without_nodes_has_no_step_to_wait_for(world: World) -> None:
    world.ask(Submit("milestone", id="a", mode="step"))
    assert world.run("a").status is RunStatus.COMPLETED
