"""Taking in tasks: what comes in is there, once; what cannot come in leaves nothing behind."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from actors.errors import (
    IdConflict,
    KeyConflict,
    Refused,
    TaskUnknown,
    UnknownGraph,
    UnknownHandler,
    UnknownUpstream,
)
from actors.messages import (
    Archive,
    DefineGraph,
    Edit,
    Message,
    Node,
    Rerun,
    Retry,
    SetLimits,
    Start,
    Stop,
    Submit,
    SubmitMany,
    Submitted,
    Unarchive,
)
from actors.messages.views import WorkState
from storage.records import RunStatus

from .agreement import snapshot, watch
from .world import World

FULL = Submit(
    "title",
    id="t",
    key="k",
    nodes=[Node("n", "work", payload={"own": 1}), Node("m", "work", after=["n"])],
    payload={"p": 1},
    priority=5,
    mode="manual",
    goal="goal",
    tries_max=4,
    fail_fast=True,
    depends_on=["up", "other"],
)


def a_world() -> World:
    world = World(runs_max=0, handlers={"work", "n"})
    world.ask(SubmitMany([Submit("up", id="up"), Submit("up", id="other")]))
    return world


def test_a_task_is_stored_as_it_was_sent_and_told() -> None:
    world = a_world()
    assert world.ask(FULL) == Submitted("t", seq=3, run=1)
    row = (
        "SELECT id, title, payload, node_payloads, priority, mode, goal, tries_max, fail_fast, key FROM tasks"
    )
    assert world.stored(f"{row} WHERE seq = 3") == [
        ("t", "title", '{"p":1}', '[{"own":1},null]', 5, "manual", "goal", 4, 1, "k")
    ]
    assert world.stored("SELECT upstream FROM edges WHERE seq = 3") == [("other",), ("up",)]
    assert world.stored("SELECT number, status, started FROM runs WHERE seq = 3") == [(1, "queued", 0)]
    event = world.events[-1]
    assert (event.kind, event.task, event.run, event.after) == ("task.submitted", "t", 1, "queued")
    assert event.data == {
        "title": "title",
        "priority": 5,
        "mode": "manual",
        "goal": "goal",
        "depends_on": ["up", "other"],
    }


def test_ids_are_given_from_the_sequence_that_never_goes_back() -> None:
    world = World(runs_max=0)
    assert [world.ask(Submit("task")).id for _ in range(3)] == ["@1", "@2", "@3"]
    with pytest.raises(UnknownUpstream):
        world.ask(Submit("task", depends_on=["x"]))
    world.reload()
    assert world.ask(Submit("task", id="own")) == Submitted("own", seq=4, run=1)
    assert world.ask(Submit("task")).id == "@5"


# --- once: keys and ids -------------------------------------------------------------------------------------------

CHANGES: dict[str, Any] = {
    "title": "other",
    "nodes": [Node("n", "work", payload={"own": 2}), Node("m", "work", after=["n"])],
    "payload": {"p": 2},
    "priority": 6,
    "mode": "auto",
    "goal": None,
    "tries_max": None,
    "fail_fast": False,
    "depends_on": ["up"],
}


def test_the_same_again_is_the_task_that_is_there() -> None:
    world = a_world()
    first = world.ask(FULL)
    events = len(world.events)
    again = attrs.evolve(first, existing=True)
    assert world.ask(FULL) == again
    assert world.ask(attrs.evolve(FULL, depends_on=["other", "up"])) == again
    assert world.ask(attrs.evolve(FULL, key=None)) == again
    assert world.ask(attrs.evolve(FULL, id=None)) == again
    assert len(world.events) == events


@pytest.mark.parametrize("field", CHANGES)
def test_other_content_under_the_same_name_is_a_conflict_that_names_the_task(field: str) -> None:
    """C52."""
    world = a_world()
    world.ask(FULL)
    other = attrs.evolve(FULL, **{field: CHANGES[field]})
    with pytest.raises(KeyConflict) as by_key:
        world.ask(other)
    assert (by_key.value.key, by_key.value.task) == ("k", "t")
    with pytest.raises(IdConflict) as by_id:
        world.ask(attrs.evolve(other, key=None))
    assert by_id.value.task == "t"


def test_a_key_of_one_task_with_the_id_of_another_is_a_conflict_and_never_a_success_without_a_task() -> None:
    world = a_world()
    world.ask(FULL)
    with pytest.raises(KeyConflict):
        world.ask(attrs.evolve(FULL, id="another"))
    batch = SubmitMany([attrs.evolve(FULL, id="another"), Submit("user", id="user", depends_on=["another"])])
    with pytest.raises(KeyConflict):
        world.ask(batch)
    assert world.stored("SELECT id FROM tasks ORDER BY seq") == [("up",), ("other",), ("t",)]


STAGES: dict[str, list[Any]] = {
    "queued": [],
    "running": [Start("t")],
    "stopped": [Stop("t")],
    "archived": [Archive("t")],
    "back from the archive": [Archive("t"), Unarchive("t")],
    "edited": [Edit("t", title="edited", payload=None)],
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_reused_id_says_existing_or_conflict_at_every_stage(stage: str) -> None:
    """C52: never a success whose task does not exist."""
    world = World(runs_max=1)
    message = Submit("task", id="t", key="k", handler="work", mode="manual")
    first = world.ask(message)
    for step in STAGES[stage]:
        world.ask(step)
    world.reload()
    assert world.ask(message) == attrs.evolve(first, existing=True)
    with pytest.raises(KeyConflict):
        world.ask(attrs.evolve(message, title="another"))
    with pytest.raises(IdConflict):
        world.ask(attrs.evolve(message, title="another", key=None))


def test_a_reused_id_of_a_finished_and_evicted_task_names_its_newest_run() -> None:
    """C52."""
    world = World()
    message = Submit("task", id="t", handler="work")
    world.ask(message)
    world.succeed("t")
    assert "t" not in world.state.entries
    assert world.ask(message) == Submitted("t", 1, run=1, existing=True)
    world.ask(Rerun("t"))
    assert world.ask(message) == Submitted("t", 1, run=2, existing=True)
    assert len(world.attempts("t")) == 1


def test_the_same_twice_in_one_turn_is_one_task() -> None:
    world = World(runs_max=0)
    message = Submit("task", id="t", key="k")
    first, again, conflict, by_id = world.turn(
        message, message, attrs.evolve(message, title="x"), Submit("x", id="t")
    )
    assert (first, again) == (Submitted("t", 1, 1), Submitted("t", 1, 1, existing=True))
    assert [type(conflict), type(by_id)] == [KeyConflict, IdConflict]


def test_what_was_refused_in_a_turn_holds_no_name_for_what_comes_after_it() -> None:
    world = World(runs_max=0)
    refused, taken, other = world.turn(
        SubmitMany([Submit("a", id="a", key="k"), Submit("b", id="b", depends_on=["x"])]),
        Submit("another", id="a", key="k"),
        Submit("third", id="b"),
    )
    assert isinstance(refused, UnknownUpstream)
    assert (taken, other) == (Submitted("a", 1, 1), Submitted("b", 2, 1))


# --- all or none --------------------------------------------------------------------------------------------------


def test_a_batch_may_name_its_own_tasks_in_any_order() -> None:
    world = World(runs_max=5)
    watch(world)
    answers = world.ask(
        SubmitMany(
            [
                Submit("last", id="c", handler="work", depends_on=["b", "a"]),
                Submit("middle", id="b", handler="work", depends_on=["a"]),
                Submit("first", id="a", handler="work"),
                Submit("nameless", handler="work", depends_on=["c"]),
            ]
        )
    )
    assert [(answer.id, answer.seq) for answer in answers] == [("c", 1), ("b", 2), ("a", 3), ("@4", 4)]
    for task in ("a", "b", "c", "@4"):
        assert [key.task for key in world.running] == [task]
        world.succeed(task)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (Submit("x", depends_on=["nobody"]), UnknownUpstream),
        (Submit("x", handler="unknown"), UnknownHandler),
        (Submit("x", nodes=[Node("n", "unknown"), Node("m", "work")]), UnknownHandler),
        (Submit("x", graph="unknown"), UnknownGraph),
        (Submit("other content", id="up"), IdConflict),
    ],
)
def test_a_batch_with_one_bad_task_is_refused_as_a_whole(bad: Submit, error: type[Refused]) -> None:
    world = a_world()
    messages: list[Message[Any]] = [
        SubmitMany([Submit("a", id="a"), bad]),
        SubmitMany([bad, Submit("a", id="a")]),
        SubmitMany([Submit("a", id="a", depends_on=["b"]), bad, Submit("b", id="b")]),
        bad,
    ]
    world.look(messages)
    before, events = snapshot(world), len(world.events)
    for message in messages:
        with pytest.raises(error):
            world.ask(message)
        world.look(messages)
        assert snapshot(world) == before
    assert len(world.events) == events
    assert world.stored("SELECT count(*) FROM tasks") == [(2,)]


def test_a_batch_takes_what_is_there_already_as_there() -> None:
    world = World(runs_max=0)
    world.ask(Submit("a", id="a"))
    first, second = world.ask(SubmitMany([Submit("a", id="a"), Submit("b", id="b", depends_on=["a"])]))
    assert (first.existing, second.existing) == (True, False)


def test_refusals_carry_what_they_speak_of() -> None:
    world = a_world()
    with pytest.raises(UnknownHandler) as handler:
        world.ask(Submit("x", nodes=[Node("b"), Node("a"), Node("n")]))
    assert handler.value.handlers == ("a", "b")
    with pytest.raises(UnknownGraph) as graph:
        world.ask(Submit("x", graph="g"))
    assert graph.value.graph == "g"
    with pytest.raises(TaskUnknown) as task:
        world.ask(Retry("nobody"))
    assert (task.value.company, task.value.task) == ("acme", "nobody")
    with pytest.raises(UnknownUpstream) as upstream:
        world.ask(Submit("x", id="x", depends_on=["up", "p", "q"]))
    assert (upstream.value.task, upstream.value.missing) == ("x", ("p", "q"))


# --- upstreams ----------------------------------------------------------------------------------------------------


def test_a_task_may_depend_on_one_that_is_long_done() -> None:
    """C19: already finished before."""
    world = World()
    world.ask(Submit("up", id="up", handler="work"))
    world.succeed("up")
    assert world.state.entries == {}
    world.ask(Submit("task", id="t", handler="work", depends_on=["up"]))
    assert world.where("t") is WorkState.RUNNING
    assert world.stored("SELECT pinned_run FROM edges") == [(1,)]


def test_a_task_that_comes_in_the_turn_in_which_its_upstream_ends_is_ready_at_once() -> None:
    """C19: it finishes while the dependent is being stored."""
    world = World(runs_max=2)
    world.ask(Submit("up", id="up"))
    world.ask(Submit("slow", id="slow", handler="work"))
    world.turn(Submit("task", id="t", handler="work", depends_on=["slow"]), Stop("slow"))
    assert world.where("t") is WorkState.WAITING
    world.ask(Submit("last", id="last", handler="work", depends_on=["up"]))
    assert world.where("last") is WorkState.RUNNING


@pytest.mark.parametrize("state", ["failed", "stopped", "archived"])
def test_a_task_that_depends_on_one_that_is_dead_is_blocked_from_its_first_moment(state: str) -> None:
    world = World(runs_max=1)
    world.ask(Submit("up", id="up", handler="work", mode="manual"))
    if state == "failed":
        world.ask(Start("up"))
        world.give_up("up")
    else:
        world.ask(Stop("up") if state == "stopped" else Archive("up"))
    assert "up" not in world.state.entries
    watch(world)
    world.ask(Submit("task", id="t", depends_on=["up"]))
    assert world.where("t") is WorkState.BLOCKED
    assert world.told("tasks.blocked")[-1].data == {"cause": "t", "count": 1, "ids": ["t"]}


def test_an_upstream_that_is_run_again_makes_those_wait_that_were_not_admitted_yet() -> None:
    """C18, and section 4: once admitted a run does not notice what its upstreams do later."""
    world = World(runs_max=2)
    watch(world)
    world.ask(Submit("up", id="up", handler="work"))
    world.ask(Submit("in", id="in", handler="work", depends_on=["up"]))
    world.ask(Submit("held", id="held", handler="work", depends_on=["up"], mode="manual"))
    world.succeed("up")
    assert [world.where(task) for task in ("in", "held")] == [WorkState.RUNNING, WorkState.HELD]
    world.ask(Rerun("up"))
    assert [world.where(task) for task in ("in", "held")] == [WorkState.RUNNING, WorkState.WAITING]
    world.give_up("up")
    assert [world.where(task) for task in ("in", "held")] == [WorkState.RUNNING, WorkState.BLOCKED]
    world.ask(Retry("up"))
    world.succeed("up")
    assert world.where("held") is WorkState.HELD
    world.ask(Start("held"))
    world.succeed("in")
    pinned = "SELECT task.id, edge.pinned_run FROM edges AS edge JOIN tasks AS task USING (company_id, seq)"
    assert world.stored(pinned) == [("in", 1), ("held", 2)]


def test_a_failed_upstream_that_is_repaired_frees_its_dependents_and_theirs() -> None:
    """C18: by a retry, by a rerun; what has another dead upstream stays blocked and names it."""
    world = World(runs_max=9)
    watch(world)
    world.ask(Submit("a", id="a", handler="work"))
    world.ask(Submit("d", id="d", handler="work"))
    world.ask(Submit("b", id="b", handler="work", depends_on=["a"]))
    world.ask(Submit("c", id="c", handler="work", depends_on=["b"]))
    world.ask(Submit("both", id="both", handler="work", depends_on=["a", "d"]))
    for repair in (Retry("a"), Rerun("a")):
        world.give_up("a")
        assert [world.where(task) for task in ("b", "c", "both")] == [WorkState.BLOCKED] * 3
        world.ask(repair)
        assert [world.where(task) for task in ("b", "c", "both")] == [WorkState.WAITING] * 3
    world.give_up("d")
    world.succeed("a")
    assert [world.where(task) for task in ("b", "c", "both")] == [
        *(WorkState.RUNNING, WorkState.WAITING, WorkState.BLOCKED)
    ]
    assert world.reasons("both")[0].tasks == ("d",)
    world.succeed("b")
    assert world.where("c") is WorkState.RUNNING


def test_a_stopped_task_whose_own_upstream_failed_is_blocked_again_when_it_is_retried() -> None:
    """Its upstream is not needed while it is settled, so after a restart memory does not hold it."""
    world = World(runs_max=1)
    world.ask(Submit("v", id="v", handler="work"))
    world.ask(Submit("u", id="u", handler="work", depends_on=["v"]))
    world.ask(Submit("w", id="w", handler="work", depends_on=["u"]))
    world.give_up("v")
    world.ask(Stop("u"))
    world.reload()
    assert world.state.entries.keys() == {"u", "w"}
    watch(world)
    world.ask(Retry("u"))
    assert world.where("u") is WorkState.BLOCKED
    assert world.run("u").status is RunStatus.QUEUED


# --- graphs -------------------------------------------------------------------------------------------------------


def test_a_run_copies_the_newest_graph_at_its_first_admission_and_keeps_it() -> None:
    world = World(runs_max=1)
    world.ask(DefineGraph("g", [Node("old", "work", payload=1)]))
    world.ask(Submit("a", id="a", graph="g"))
    world.ask(Submit("b", id="b", graph="g"))
    answer = world.ask(
        DefineGraph("g", [Node("new", "work", payload=2), Node("newer", "work", after=["new"])])
    )
    assert (answer.version, answer.changed) == (2, True)
    world.give_up("a")
    world.ask(SetLimits(runs_max=2))
    world.ask(Retry("a"))
    names = "SELECT json_extract(spec, '$.name'), payload FROM nodes WHERE seq = ? AND run = ? ORDER BY pos"
    assert world.stored(names, 1, 1) == [("old", "1")]
    assert world.stored(names, 2, 1) == [("new", "2"), ("newer", "null")]
    world.succeed("a")
    world.ask(Rerun("a"))
    assert world.stored(names, 1, 2) == [("new", "2"), ("newer", "null")]


def test_the_same_definition_again_changes_nothing() -> None:
    world = World()
    nodes = [Node("n", "work", payload=1)]
    world.ask(DefineGraph("g", nodes))
    events = len(world.events)
    assert world.ask(DefineGraph("g", nodes)).changed is False
    assert len(world.events) == events
    assert world.ask(DefineGraph("g", [Node("n", "work", payload=2)])).version == 2


def test_a_graph_with_an_unknown_handler_is_refused_and_the_old_one_stays() -> None:
    world = World(handlers={"work"})
    world.ask(DefineGraph("g", [Node("n", "work")]))
    with pytest.raises(UnknownHandler):
        world.ask(DefineGraph("g", [Node("n", "unknown")]))
    assert world.state.graphs["g"].version == 1


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (
            Edit("t", nodes=[Node("x", "work", payload="mine"), Node("y", "work")]),
            [("x", '"mine"'), ("y", "null")],
        ),
        (Edit("t", handler="work"), [("work", None)]),
        (Edit("t", graph="plain"), [("one", None), ("two", None)]),
        (Edit("t", graph="loaded"), [("one", '"g"')]),
        (Edit("t", payload="only"), [("n", '"old"')]),
    ],
)
def test_an_edit_and_the_admission_in_one_turn_give_the_nodes_their_own_payloads(
    edit: Edit, expected: list[tuple[str, str | None]]
) -> None:
    world = World(runs_max=1)
    world.ask(DefineGraph("plain", [Node("one", "work"), Node("two", "work")]))
    world.ask(DefineGraph("loaded", [Node("one", "work", payload="g")]))
    world.ask(Submit("task", id="t", mode="manual", nodes=[Node("n", "work", payload="old")]))
    world.turn(edit, Start("t"))
    assert world.stored("SELECT json_extract(spec, '$.name'), payload FROM nodes ORDER BY pos") == expected


def test_an_edit_of_an_admitted_run_says_that_its_nodes_count_from_the_next_run_on() -> None:
    world = World()
    world.ask(Submit("task", id="t", handler="work"))
    world.give_up("t")
    answer = world.ask(Edit("t", handler="other"))
    assert (
        answer.note
        == "the nodes, upstreams and start of this run are fixed: the change counts from the next run on"
    )
    assert world.ask(Edit("t", title="x")).note is None
    world.ask(Retry("t"))
    assert world.attempts("t", "work")
    world.succeed("t")
    world.ask(Rerun("t"))
    assert world.attempts("t", "other")


def test_a_new_payload_raises_the_generation_of_what_was_tried_and_not_finished() -> None:
    world = World()
    world.ask(Submit("task", id="t", nodes=[Node("good"), Node("bad"), Node("later", after=["bad"])]))
    world.succeed("t", "good")
    world.give_up("t", "bad")
    world.ask(Edit("t", payload={"new": 1}))
    assert [node.generation for node in world.nodes("t")] == [0, 1, 0]
    world.ask(Retry("t"))
    (started,) = world.running.values()
    assert (started.spec.name, started.generation) == ("bad", 1)


def test_a_rerun_with_a_payload_leaves_the_tasks_own_as_it_is() -> None:
    world = World()
    world.ask(Submit("task", id="t", handler="work", payload="own"))
    world.succeed("t")
    world.ask(Rerun("t", payload="once"))
    world.succeed("t")
    world.ask(Rerun("t", payload=None))
    assert world.stored("SELECT payload FROM tasks") == [('"own"',)]
    assert world.stored("SELECT payload FROM runs ORDER BY number") == [(None,), ('"once"',), ("null",)]
