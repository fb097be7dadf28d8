"""Results that are sent back: what is reset, what is superseded, what is kept, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from actors.core.draft import AttemptKey, CancelAttempt, StartAttempt
from actors.core.reports import Report
from actors.errors import MoveRefused
from actors.messages import (
    SEND_BACKS_MAX_DEFAULT,
    Approve,
    Backoff,
    DefineGraph,
    Edit,
    Gate,
    Next,
    Node,
    Rerun,
    Retry,
    SendBack,
    SetLimits,
    Stop,
    Submit,
)
from actors.messages.views import ReasonKind, WorkState
from actors.runtime.recovery import Quarantine
from storage.records import AttemptEnd, NodeRecord, NodeStatus, RunStatus

from .agreement import watch
from .world import World, writing

DRAFTED: list[Node | Gate] = [
    Node("draft", "work"),
    Node("review", "work", after=["draft"]),
    Gate("approve", after=["review"]),
    Node("publish", "work", after=["approve"]),
    Node("aside", "work"),
]


@pytest.fixture
def world() -> World:
    """Compared with the definitions after every step."""
    world = World()
    watch(world)
    return world


def drafted(world: World, nodes: list[Node | Gate] | None = None, **fields: Any) -> None:
    """The draft is there, the review executes, and so does a node that has nothing to do with either."""
    world.ask(Submit("drafted", id="a", nodes=nodes or DRAFTED, **fields))
    world.succeed("a", "draft", '"first draft"')


def completed(world: World, **fields: Any) -> None:
    drafted(world, **fields)
    for node in ("review", "aside"):
        world.succeed("a", node, f'"{node}"')
    world.ask(Approve("a", "approve"))
    world.succeed("a", "publish", '"publish"')
    assert world.run("a").status is RunStatus.COMPLETED


def named(world: World) -> dict[str, NodeRecord]:
    names = [node.name for node in DRAFTED]
    return dict(zip(names, world.nodes("a"), strict=True))


def started(world: World) -> list[StartAttempt]:
    return list(world.running.values())


# --- in the place of its run ------------------------------------------------------------------------------------


def test_the_judged_node_and_every_node_that_used_its_result_are_reset_in_one_commit(world: World) -> None:
    drafted(world)
    world.succeed("a", "review")
    before = len(world.events)
    world.turn(SendBack("a", "draft", "shorter"), advancing=False)
    nodes = named(world)
    assert {name: (n.status.value, n.generation, n.feedback) for name, n in nodes.items()} == {
        "draft": ("pending", 1, "shorter"),
        "review": ("pending", 1, "shorter"),
        "approve": ("pending", 0, None),
        "publish": ("pending", 0, None),
        "aside": ("running", 0, None),
    }
    assert nodes["approve"].reached_ms is None
    assert world.stored("SELECT result FROM nodes WHERE result IS NOT NULL") == []
    (event,) = world.events[before:]
    assert (event.kind, event.node, event.before, event.after) == (
        "node.sent_back",
        "draft",
        "succeeded",
        "pending",
    )
    assert event.data == {
        "feedback": "shorter",
        "generation": 1,
        "send_backs": 1,
        "count": 2,
        "nodes": ["draft", "review"],
    }
    world.check_tables()


def test_what_is_done_again_is_a_new_generation_with_the_feedback_for_each_of_its_attempts(
    world: World,
) -> None:
    drafted(world)
    world.ask(SendBack("a", "draft", "shorter"))
    effect = world.running[world.attempt("a", "draft")]
    assert (effect.key.number, effect.generation, effect.feedback) == (2, 1, "shorter")
    world.fail("a", "draft")
    world.wait(10)
    world.end("a", AttemptEnd.INTERRUPTED, "draft")
    world.advance_until_quiet()
    effect = world.running[world.attempt("a", "draft")]
    assert (effect.key.number, effect.generation, effect.feedback) == (4, 1, "shorter")
    world.succeed("a", "draft")
    world.ask(SendBack("a", "draft", "longer"))
    effect = world.running[world.attempt("a", "draft")]
    assert (effect.generation, effect.feedback) == (2, "longer")
    generations = world.stored("SELECT number, generation FROM attempts WHERE pos = 0 ORDER BY number")
    assert generations == [(1, 0), (2, 1), (3, 1), (4, 1), (5, 2)]
    world.check_tables()


def test_a_halted_run_is_queued_at_its_old_place_and_its_gate_is_reached_again(world: World) -> None:
    drafted(world)
    world.succeed("a", "aside")
    world.succeed("a", "review")
    world.ask(Submit("behind it", id="b", handler="work"))
    assert world.run("a").status is RunStatus.HALTED
    moved = world.ask(SendBack("a", "review", "look again"))
    assert (moved.status, moved.run) == (RunStatus.QUEUED, 1)
    assert world.told("run.requeued")[-1].data == {"nodes": 1}
    assert world.position("a") == 1
    world.succeed("b")
    effect = world.running[world.attempt("a", "review")]
    assert effect.feedback == "look again"
    world.succeed("a", "review")
    assert world.run("a").status is RunStatus.HALTED
    assert len(world.told("gate.reached")) == 2
    assert named(world)["draft"].generation == 0, "what the judged node used is none of its business"


def test_an_approval_of_what_was_sent_back_does_not_count_any_more(world: World) -> None:
    drafted(world)
    world.succeed("a", "aside")
    world.succeed("a", "review")
    world.ask(Approve("a", "approve"))
    world.ask(SendBack("a", "draft", "shorter"))
    assert sorted(key.pos for key in world.running) == [0, 3], "the publication is being cancelled"
    world.end("a", AttemptEnd.SUPERSEDED, "publish")
    world.succeed("a", "draft")
    world.succeed("a", "review")
    assert world.run("a").status is RunStatus.HALTED
    assert named(world)["approve"].generation == 1
    world.ask(Approve("a", "approve"))
    assert world.running[world.attempt("a", "publish")].generation == 1
    world.check_tables()


def test_an_approval_can_be_taken_back_by_itself(world: World) -> None:
    drafted(world)
    world.succeed("a", "review")
    world.ask(Approve("a", "approve"))
    world.ask(SendBack("a", "approve", "I meant no"))
    world.end("a", AttemptEnd.SUPERSEDED, "publish")
    nodes = named(world)
    assert (nodes["approve"].status, nodes["approve"].feedback) == (NodeStatus.PENDING, None)
    assert nodes["publish"].feedback == "I meant no"
    world.succeed("a", "aside")
    assert world.run("a").status is RunStatus.HALTED


def test_tries_and_deaths_of_what_is_reset_are_forgotten_and_those_of_others_are_not(world: World) -> None:
    drafted(world, tries_max=3)
    world.fail("a", "review")
    world.fail("a", "aside")
    world.ask(SendBack("a", "draft", "shorter"))
    review = named(world)["review"]
    assert (review.tries, review.unclean, review.not_before_ms, review.error) == (0, 0, None, None)
    assert (review.generation, review.feedback) == (1, "shorter"), "it was tried, so it is done again"
    assert named(world)["aside"].tries == 1
    world.check_tables()


def test_a_failed_user_of_the_result_is_done_again_and_a_failed_node_beside_it_is_not(world: World) -> None:
    drafted(world, tries_max=1)
    world.fail("a", "aside")
    world.fail("a", "review")
    assert world.run("a").status is RunStatus.FAILED
    world.ask(SendBack("a", "draft", "so that it can be reviewed"))
    nodes = named(world)
    assert (nodes["review"].status, nodes["review"].generation) == (NodeStatus.PENDING, 1)
    assert nodes["aside"].status is NodeStatus.FAILED
    world.succeed("a", "draft")
    world.succeed("a", "review")
    world.ask(Approve("a", "approve"))
    world.succeed("a", "publish")
    assert world.run("a").status is RunStatus.FAILED
    world.check_tables()


def test_under_fail_fast_what_failed_gets_a_fresh_allowance_or_nothing_could_go_on(world: World) -> None:
    drafted(world, tries_max=1, fail_fast=True)
    world.fail("a", "aside")
    world.end("a", AttemptEnd.STOPPED, "review")
    assert world.run("a").status is RunStatus.FAILED
    world.ask(SendBack("a", "draft", "shorter"))
    assert {effect.spec.name for effect in started(world)} == {"draft", "aside"}
    assert world.told("run.requeued")[-1].data == {"nodes": 3}


def test_in_a_stopped_run_what_was_skipped_waits_again_with_the_tries_that_it_had(world: World) -> None:
    drafted(world)
    world.fail("a", "aside")
    world.ask(Stop("a"))
    world.end("a", AttemptEnd.STOPPED, "review")
    assert world.run("a").status is RunStatus.STOPPED
    world.ask(SendBack("a", "draft", "shorter"))
    nodes = named(world)
    assert nodes["aside"].tries == 1
    assert {n.status for n in nodes.values()} == {NodeStatus.PENDING, NodeStatus.RUNNING}
    assert nodes["review"].generation == 1
    world.wait(10)
    for node in ("draft", "aside", "review"):
        world.succeed("a", node)
    assert world.run("a").status is RunStatus.HALTED
    world.check_tables()


def test_a_kept_result_of_a_run_that_is_queued_again_is_reset_where_it_stands(world: World) -> None:
    drafted(world, tries_max=1)
    world.succeed("a", "aside")
    world.fail("a", "review")
    world.ask(SetLimits(runs_max=0))
    world.ask(Retry("a"))
    moved = world.ask(SendBack("a", "draft", "shorter"))
    assert (moved.status, world.run("a").status) == (RunStatus.QUEUED, RunStatus.QUEUED)
    assert world.told("run.requeued")[-1].reason == "retry", "it was queued already"
    world.ask(SetLimits(runs_max=1))
    assert [effect.feedback for effect in started(world)] == ["shorter"]


def test_a_queued_run_whose_kept_result_is_sent_back_needs_the_handler_of_that_node_again() -> None:
    world = World(handlers={"x", "y"}, runs_max=1)
    watch(world)
    world.ask(Submit("task", id="a", nodes=[Node("one", "x"), Node("two", "y", after=["one"])], tries_max=1))
    world.succeed("a", "one")
    world.fail("a", "two")
    world.ask(SetLimits(runs_max=0))
    world.ask(Retry("a"))
    world.handlers = frozenset({"y"})
    world.reload()
    assert world.where("a") is WorkState.QUEUED
    world.turn(SendBack("a", "one", "again"), commit=False)
    assert world.where("a") is WorkState.QUEUED, "taken back with all that follows from it"
    world.ask(SendBack("a", "one", "again"))
    assert world.where("a") is WorkState.BLOCKED
    assert world.reason("a", ReasonKind.HANDLER_MISSING).text == "x"


def test_step_by_step_what_is_done_again_waits_for_a_word_again(world: World) -> None:
    nodes: list[Node | Gate] = [Node("one", "work"), Node("two", "work", after=["one"])]
    world.ask(Submit("task", id="a", nodes=nodes, mode="step"))
    world.ask(Next("a"))
    world.succeed("a", "one")
    world.ask(SendBack("a", "one", "again"))
    assert world.running == {}
    assert world.run("a").status is RunStatus.HALTED
    assert world.reason("a", ReasonKind.STEP).nodes == ("one",)
    world.ask(Next("a"))
    assert [effect.feedback for effect in started(world)] == ["again"]


def test_ten_thousand_users_are_reset_in_one_message_without_recursion() -> None:
    world = World()
    nodes = [Node("n0", "work"), *(Node(f"n{i}", "work", after=[f"n{i - 1}"]) for i in range(1, 10_000))]
    world.ask(Submit("long", id="a", nodes=nodes))
    world.plant("UPDATE attempts SET ended_ms = 1, end = 'succeeded'")
    world.plant("UPDATE nodes SET status = 'succeeded', result = '1', attempts = 1 WHERE pos < 9999")
    world.running.clear()
    world.turn(SendBack("a", "n0", "again"), advancing=False)
    assert {node.generation for node in world.nodes("a")[:9999]} == {1}
    (event,) = world.told("node.sent_back")
    assert (event.data["count"], len(event.data["nodes"])) == (9999, 100)


# --- attempts that live with what was sent back -----------------------------------------------------------------


def test_a_live_attempt_at_a_user_is_superseded_and_runs_on_until_it_has_ended(world: World) -> None:
    drafted(world)
    world.turn(SendBack("a", "draft", "shorter"))
    review = world.attempt("a", "review")
    assert [(c.key, c.why) for c in world.cancelled] == [(review, "superseded")]
    node = named(world)["review"]
    assert (node.status, node.superseded, node.generation) == (NodeStatus.RUNNING, True, 1)
    world.check_tables()
    world.succeed("a", "draft")
    assert world.attempt("a", "review") == review, "no second attempt beside the first"
    world.end("a", AttemptEnd.SUPERSEDED, "review")
    effect = world.running[world.attempt("a", "review")]
    assert (effect.key.number, effect.generation, effect.feedback) == (2, 1, "shorter")
    assert world.stored("SELECT generation, end FROM attempts WHERE pos = 1 AND number = 1") == [
        (0, "superseded")
    ]
    (event,) = world.told("attempt.superseded")
    assert (event.node, event.attempt, event.before, event.after) == ("review", 1, "running", "pending")
    world.check_tables()


@pytest.mark.parametrize("end", [end for end in AttemptEnd if end is not AttemptEnd.SUPERSEDED])
def test_after_the_commit_of_a_send_back_an_attempts_own_end_does_not_count(
    world: World, end: AttemptEnd
) -> None:
    drafted(world, tries_max=1)
    world.ask(SendBack("a", "draft", "shorter"))
    world.succeed("a", "draft", '"second draft"')
    report = Report(world.attempt("a", "review"), end, result="1" if end is AttemptEnd.SUCCEEDED else None)
    world.report(report)
    assert world.stored("SELECT end FROM attempts WHERE pos = 1 AND number = 1") == [("superseded",)]
    node = named(world)["review"]
    assert (node.status, node.tries, node.unclean, node.superseded) == (NodeStatus.RUNNING, 0, 0, False)
    assert world.told("attempt.superseded")[0].reason == (
        f"it ended as {end.value} after it was superseded, which counts"
        if end in (AttemptEnd.SUCCEEDED, AttemptEnd.FAILED)
        else None
    )
    world.check_tables()


def test_that_an_attempt_is_superseded_survives_a_new_actor_and_a_new_process(world: World) -> None:
    drafted(world)
    world.ask(SendBack("a", "draft", "shorter"))
    world.succeed("a", "draft")
    world.reload()
    assert named(world)["review"].superseded
    world.report(Report(world.attempt("a", "review"), AttemptEnd.LOST))
    assert world.told("attempt.lost") == []
    assert world.attempt("a", "review").number == 2
    world.check_tables()


def test_a_second_send_back_before_the_first_has_ended_brings_its_own_feedback(world: World) -> None:
    drafted(world)
    world.ask(SendBack("a", "draft", "shorter"))
    world.succeed("a", "draft")
    world.ask(SendBack("a", "draft", "no, longer"))
    node = named(world)["review"]
    assert (node.generation, node.feedback) == (1, "no, longer"), "of that generation nothing was ever tried"
    world.end("a", AttemptEnd.SUPERSEDED, "review")
    world.succeed("a", "draft")
    assert world.running[world.attempt("a", "review")].feedback == "no, longer"
    world.check_tables()


def test_a_stop_while_an_attempt_is_being_superseded_skips_its_node(world: World) -> None:
    drafted(world)
    world.ask(SendBack("a", "draft", "shorter"))
    world.ask(Stop("a"))
    for node in ("draft", "review", "aside"):
        world.end("a", AttemptEnd.STOPPED, node)
    assert world.run("a").status is RunStatus.STOPPED
    skipped = named(world)["review"]
    assert (skipped.status, skipped.superseded, skipped.generation) == (NodeStatus.SKIPPED, False, 1)
    world.check_tables()


def test_a_quarantine_of_a_task_with_a_superseded_attempt_leaves_nothing_of_it(world: World) -> None:
    drafted(world)
    world.ask(SendBack("a", "draft", "shorter"))
    with writing(world.conn):
        Quarantine(world.name, "a", 1, "why", None, world.now_ms)(world.conn)
    world.running.clear()
    world.slots.held.clear()
    world.reload()
    node = named(world)["review"]
    assert (node.status, node.superseded, node.generation) == (NodeStatus.PENDING, False, 1)
    world.ask(Retry("a"))
    assert world.running[world.attempt("a", "draft")].feedback == "shorter"
    world.check_tables()


def test_a_result_and_the_send_back_of_what_it_is_made_of_in_one_turn(world: World) -> None:
    """The report comes first, so it was accepted and is discarded in the same commit."""
    drafted(world)
    review = Report(world.attempt("a", "review"), AttemptEnd.SUCCEEDED, result='"fine"')
    world.turn(review, SendBack("a", "draft", "shorter"))
    assert world.stored("SELECT end FROM attempts WHERE pos = 1") == [("succeeded",)]
    assert world.stored("SELECT result FROM nodes WHERE pos = 1") == [(None,)]
    assert named(world)["review"].generation == 1
    world.check_tables()


# --- how often ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "task", "limit"), [(None, None, SEND_BACKS_MAX_DEFAULT), (None, 2, 2), (1, 2, 1), (3, 0, 3)]
)
def test_a_result_is_sent_back_as_often_as_its_node_or_task_says_or_else_ten_times(
    world: World, node: int | None, task: int | None, limit: int
) -> None:
    nodes: list[Node | Gate] = [Node("n", "work", send_backs_max=node), Gate("gate", after=["n"])]
    world.ask(Submit("task", id="a", nodes=nodes, send_backs_max=task))
    for _ in range(limit):
        world.succeed("a", "n")
        world.ask(SendBack("a", "n", "again"))
    world.succeed("a", "n")
    with pytest.raises(MoveRefused, match=r"of \d+ \(send_backs_max\): use Rerun") as refusal:
        world.ask(SendBack("a", "n", "again"))
    assert refusal.value.advice == ("Rerun",)
    assert world.node("a").send_backs == limit
    assert world.run("a").status is RunStatus.HALTED
    world.check_tables()


def test_the_count_is_of_the_judged_node_alone_and_can_be_raised_at_once(world: World) -> None:
    drafted(world, send_backs_max=1)
    world.ask(SendBack("a", "draft", "shorter"))
    world.end("a", AttemptEnd.SUPERSEDED, "review")
    world.succeed("a", "draft")
    assert [node.send_backs for node in world.nodes("a")] == [1, 0, 0, 0, 0]
    with pytest.raises(MoveRefused, match="sent back once of 1"):
        world.ask(SendBack("a", "draft", "again"))
    world.ask(Edit("a", send_backs_max=2))
    world.ask(SendBack("a", "draft", "again"))
    assert world.node("a").send_backs == 2


# --- of a completed run: a new one --------------------------------------------------------------------------------


def test_a_completed_run_stays_as_it_is_and_a_new_one_keeps_the_results_that_were_not_judged(
    world: World,
) -> None:
    completed(world, payload="of the task")
    old = world.stored("SELECT pos, status, generation, result, feedback FROM nodes WHERE run = 1")
    moved = world.turn(SendBack("a", "review", "look again"), advancing=False)[0]
    assert (moved.run, moved.status) == (2, RunStatus.QUEUED)
    created, sent_back = world.events[-2:]
    assert (created.kind, created.run, created.before, created.reason) == (
        "run.created",
        2,
        "completed",
        "send back",
    )
    assert created.data == {"carried": 2}
    assert (sent_back.kind, sent_back.run) == ("node.sent_back", 2)
    assert sent_back.data["nodes"] == ["review", "approve", "publish"]
    rows = world.stored("SELECT pos, status, generation, result, feedback, attempts FROM nodes WHERE run = 2")
    assert rows == [
        (0, "succeeded", 0, '"first draft"', None, 0),
        (1, "pending", 1, None, "look again", 0),
        (2, "pending", 1, None, None, 0),
        (3, "pending", 1, None, "look again", 0),
        (4, "succeeded", 0, '"aside"', None, 0),
    ]
    assert old == world.stored("SELECT pos, status, generation, result, feedback FROM nodes WHERE run = 1")
    world.check_tables()
    world.advance_until_quiet()
    assert [effect.spec.name for effect in started(world)] == ["review"]
    world.succeed("a", "review")
    world.ask(Approve("a", "approve"))
    world.succeed("a", "publish")
    assert world.run("a").status is RunStatus.COMPLETED
    world.check_tables()


def test_the_count_of_send_backs_goes_on_in_the_new_run_and_begins_anew_with_a_rerun(world: World) -> None:
    completed(world, send_backs_max=1)
    world.ask(SendBack("a", "publish", "elsewhere"))
    world.succeed("a", "publish")
    assert world.run("a").number == 2
    with pytest.raises(MoveRefused, match="sent back once of 1"):
        world.ask(SendBack("a", "publish", "and elsewhere"))
    world.ask(Rerun("a", from_node="publish"))
    world.succeed("a", "publish")
    world.ask(SendBack("a", "publish", "now"))
    assert world.run("a").number == 4


def test_the_new_run_is_of_the_old_ones_nodes_payloads_and_tries_whatever_the_graph_is_now(
    world: World,
) -> None:
    old = [Node("one", "work", payload="old"), Node("two", "work", after=["one"], payload="older")]
    world.ask(DefineGraph("g", old))
    world.ask(Submit("task", id="a", graph="g"))
    world.succeed("a", "one")
    world.succeed("a", "two")
    world.ask(DefineGraph("g", [Node("three", "work", payload="new")]))
    world.ask(SendBack("a", "two", "again"))
    payloads = world.stored("SELECT pos, spec ->> 'name', payload FROM nodes WHERE run = 2 ORDER BY pos")
    assert payloads == [(0, "one", '"old"'), (1, "two", '"older"')]
    world.succeed("a", "two")
    world.ask(Rerun("a"))
    assert world.stored("SELECT spec ->> 'name' FROM nodes WHERE run = 3") == [("three",)]


def test_what_is_kept_needs_no_handler(world: World) -> None:
    world = World(handlers={"x", "y"})
    watch(world)
    world.ask(Submit("task", id="a", nodes=[Node("one", "x"), Node("two", "y", after=["one"])]))
    world.succeed("a", "one")
    world.succeed("a", "two")
    world.handlers = frozenset({"y"})
    world.reload()
    world.ask(SendBack("a", "two", "again"))
    assert world.told("tasks.blocked") == []
    assert world.attempt("a", "two").run == 2


def test_results_are_carried_over_also_if_they_were_accepted_in_the_very_same_turn(world: World) -> None:
    """The report, a stop, and a new run from the other node on: what is carried over is read after it is written."""
    world.ask(Submit("task", id="a", nodes=[Node("one", "work"), Node("two", "work", after=["one"])]))
    report = Report(world.attempt("a", "one"), AttemptEnd.SUCCEEDED, result='"one"')
    world.turn(report, Stop("a"), Rerun("a", from_node="two"), Stop("a"), Rerun("a", from_node="two"))
    assert world.stored("SELECT run, status, result FROM nodes WHERE pos = 0 ORDER BY run") == [
        (1, "succeeded", '"one"'),
        (2, "succeeded", '"one"'),
        (3, "succeeded", '"one"'),
    ]
    assert world.attempt("a", "two").run == 3
    world.check_tables()


# --- from a node on -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["completed", "failed", "stopped", "halted"])
def test_a_rerun_from_a_node_keeps_what_does_not_use_it_and_has_no_feedback(world: World, state: str) -> None:
    drafted(world, tries_max=1)
    world.succeed("a", "aside", '"aside"')
    if state == "failed":
        world.fail("a", "review")
    else:
        world.succeed("a", "review", '"review"')
    if state == "stopped":
        world.ask(Stop("a"))
    if state == "completed":
        world.ask(Approve("a", "approve"))
        world.succeed("a", "publish")
    moved = world.turn(Rerun("a", from_node="review"), advancing=False)[0]
    assert (moved.run, moved.status) == (2, RunStatus.QUEUED)
    rows = world.stored("SELECT status, result, feedback, tries FROM nodes WHERE run = 2 ORDER BY pos")
    assert rows == [
        ("succeeded", '"first draft"', None, 0),
        ("pending", None, None, 0),
        ("pending", None, None, 0),
        ("pending", None, None, 0),
        ("succeeded", '"aside"', None, 0),
    ]
    assert world.told("run.created")[-1].data == {"carried": 2}
    assert bool(world.told("run.stopped")) == (state in ("halted", "stopped"))
    assert world.told("node.sent_back") == []
    world.check_tables()


def test_a_rerun_from_a_node_can_have_another_payload_and_else_has_that_of_the_run_before(
    world: World,
) -> None:
    completed(world, payload="of the task")
    for payload, expected in (("first", '"first"'), (None, '"first"'), ("second", '"second"')):
        fields = {} if payload is None else {"payload": payload}
        world.ask(Rerun("a", from_node="publish", **fields))
        world.succeed("a", "publish")
        assert world.stored("SELECT payload FROM runs ORDER BY number DESC LIMIT 1") == [(expected,)]
    world.ask(SendBack("a", "publish", "again"))
    assert world.stored("SELECT payload FROM runs ORDER BY number DESC LIMIT 1") == [('"second"',)]


def test_a_rerun_from_a_node_that_is_not_there_changes_nothing(world: World) -> None:
    drafted(world)
    world.succeed("a", "aside")
    world.succeed("a", "review")
    with pytest.raises(MoveRefused, match=r"has no node 'nobody': its nodes are draft, review") as refusal:
        world.ask(Rerun("a", from_node="nobody"))
    assert refusal.value.state == "halted"
    assert world.run("a").status is RunStatus.HALTED


def test_a_rerun_from_a_node_of_a_run_that_never_began_is_refused(world: World) -> None:
    world.ask(SetLimits(runs_max=0))
    world.ask(Submit("task", id="a", handler="work"))
    world.ask(Stop("a"))
    with pytest.raises(MoveRefused, match="has no results that could be kept: use Rerun without from_node"):
        world.ask(Rerun("a", from_node="work"))


def test_a_new_run_from_a_node_on_is_not_held_up_by_what_its_upstreams_do_now(world: World) -> None:
    world.ask(Submit("upstream", id="up", handler="work"))
    world.ask(Submit("task", id="a", nodes=[Node("one", "work"), Node("two", "work")], depends_on=["up"]))
    world.succeed("up")
    world.succeed("a", "one")
    world.succeed("a", "two")
    world.ask(Rerun("up"))
    world.ask(SetLimits(runs_max=2))
    world.ask(SendBack("a", "two", "again"))
    assert world.attempt("a", "two").run == 2
    assert world.stored("SELECT pinned_run FROM edges") == [(1,)]


# --- refusals -----------------------------------------------------------------------------------------------------


STATES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "fails": ("has no result of node 'fails' to judge, it failed: use Retry", "running", ("Retry",)),
    "rests": ("has node 'rests' already queued for another attempt: let it settle", "running", ()),
    "runs": ("has node 'runs' in flight: let it settle, or use Stop", "running", ("Stop",)),
    "waits": ("has no result of node 'waits' yet: let it run first", "running", ()),
    "gate": (
        "has no result of gate 'gate' to judge: send back the node that the gate is about",
        "running",
        ("SendBack", "Approve"),
    ),
    "nobody": ("has no node 'nobody': its nodes are fails, rests, runs, waits, gate", "running", ()),
}


@pytest.mark.parametrize("node", STATES)
def test_a_node_without_a_result_cannot_be_sent_back_and_the_refusal_says_what_to_do(
    world: World, node: str
) -> None:
    nodes: list[Node | Gate] = [
        Node("fails", "work", tries_max=1),
        Node("rests", "work", retry=Backoff(base_s=60)),
        Node("runs", "work"),
        Node("waits", "work", after=["runs"]),
        Gate("gate"),
    ]
    world.ask(Submit("task", id="a", nodes=nodes))
    world.fail("a", "fails")
    world.fail("a", "rests")
    with pytest.raises(MoveRefused) as refusal:
        world.ask(SendBack("a", node, "again"))
    assert (refusal.value.text, refusal.value.state, refusal.value.advice) == STATES[node]


def test_what_was_superseded_is_in_flight_until_it_has_ended(world: World) -> None:
    drafted(world)
    world.ask(SendBack("a", "draft", "shorter"))
    with pytest.raises(MoveRefused, match="has node 'review' in flight"):
        world.ask(SendBack("a", "review", "look again"))


def test_effects_of_a_send_back_that_is_undone_are_never_performed(world: World) -> None:
    drafted(world)
    world.turn(SendBack("a", "draft", "shorter"), commit=False)
    assert world.cancelled == []
    assert isinstance(world.attempt("a", "review"), AttemptKey)
    world.turn(SendBack("a", "draft", "shorter"), SendBack("a", "nobody", "x"))
    assert [type(effect) for effect in world.cancelled] == [CancelAttempt]
