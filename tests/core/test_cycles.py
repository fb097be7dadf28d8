"""C23: circles of dependencies are refused with their path, and found in a file that somebody else wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from actors.core.cycles import circle_through, find_cycle, find_cycles
from actors.errors import DependencyCycle, InvalidMessage, UnknownUpstream
from actors.messages import Edit, Message, Rerun, Retry, SetLimits, Stop, Submit, SubmitMany
from actors.messages.views import Reason, ReasonKind, WorkState

from .agreement import check_against_file, check_against_oracle, snapshot, watch
from .examples import examples
from .world import World


def a_line(*names: str, runs_max: int = 0, last: Sequence[str] = ()) -> World:
    """Tasks, each depending on the one before it."""
    world = World(runs_max=runs_max)
    ups: list[str] = list(last)
    for name in names:
        world.ask(Submit("task", id=name, handler="work", depends_on=ups))
        ups = [name]
    return world


def refused_path(world: World, message: Message[object]) -> tuple[str, ...]:
    """The circle that is named; nothing changed."""
    world.look([message])
    before, events = snapshot(world), len(world.events)
    with pytest.raises(DependencyCycle) as caught:
        world.ask(message)
    world.look([message])
    assert snapshot(world) == before
    assert len(world.events) == events
    assert "dependencies form a cycle: " in str(caught.value)
    return caught.value.path


def plant_edge(world: World, task: str, upstream: str) -> None:
    world.plant("INSERT INTO edges SELECT 1, seq, ?, NULL FROM tasks WHERE id = ?", upstream, task)


def waiting_for_circle(world: World, tasks: str) -> dict[str, tuple[str, ...]]:
    """Those among the tasks that say they are part of a circle: its path."""
    return {
        task: world.reasons(task)[0].tasks
        for task in tasks
        if world.reasons(task)[0].kind is ReasonKind.DEPENDENCY_CYCLE
    }


# --- refused ------------------------------------------------------------------------------------------------------


def test_a_task_cannot_depend_on_itself() -> None:
    with pytest.raises(InvalidMessage, match="task 'a' depends on itself"):
        Submit("task", id="a", depends_on=["a"])
    assert refused_path(a_line("a"), Edit("a", depends_on=["a"])) == ("a", "a")


def test_a_circle_of_two_by_an_edit_is_refused() -> None:
    assert refused_path(a_line("a", "b"), Edit("a", depends_on=["b"])) == ("a", "b", "a")


def test_a_circle_of_three_by_an_edit_is_refused_with_its_whole_path() -> None:
    world = a_line("a", "b", "c")
    world.ask(Submit("task", id="d"))
    assert refused_path(world, Edit("a", depends_on=["d", "c"])) == ("a", "c", "b", "a")


def test_of_two_edits_in_one_turn_that_close_a_circle_together_the_second_is_refused() -> None:
    """Each is legal alone."""
    world = World(runs_max=0)
    world.ask(SubmitMany([Submit("task", id=name) for name in "abc"]))
    first, second, third = world.turn(
        Edit("a", depends_on=["b"]), Edit("b", depends_on=["c"]), Edit("c", depends_on=["a"])
    )
    assert [first.changed, second.changed] == [True, True]
    assert isinstance(third, DependencyCycle)
    assert third.path == ("c", "a", "b", "c")
    check_against_file(world)


def test_a_circle_of_a_thousand_is_refused_and_shown_from_both_its_ends() -> None:
    names = [f"t{number}" for number in range(1_000)]
    world = a_line(*names)
    path = refused_path(world, Edit("t0", depends_on=["t999"]))
    assert path == ("t0", *reversed(names))
    error = DependencyCycle(path)
    assert str(error).startswith("dependencies form a cycle: t0 → t999 → t998 → ")
    assert str(error).endswith(" → … → t4 → t3 → t2 → t1 → t0")


@pytest.mark.parametrize("size", [2, 3, 1_000])
def test_a_batch_with_a_circle_is_refused_as_a_whole(size: int) -> None:
    world = World(runs_max=0)
    tasks = [
        Submit("task", id=f"t{number}", depends_on=[f"t{(number + 1) % size}"]) for number in range(size)
    ]
    path = refused_path(world, SubmitMany([Submit("innocent", id="innocent"), *tasks]))
    assert len(path) == size + 1
    assert path[0] == path[-1]
    assert world.stored("SELECT count(*) FROM tasks") == [(0,)]


def test_a_circle_through_tasks_that_are_done_and_gone_from_memory_is_refused() -> None:
    world = a_line("a", "b", "c", runs_max=1)
    for task in "abc":
        world.succeed(task)
    assert world.state.entries == {}
    world.ask(Rerun("a"))
    world.give_up("a")
    assert refused_path(world, Edit("a", depends_on=["c"])) == ("a", "c", "b", "a")


def test_a_circle_through_a_task_submitted_in_the_same_turn_and_others_long_done_is_refused() -> None:
    world = a_line("a", "b", "c", runs_max=1)
    for task in "abc":
        world.succeed(task)
    world.ask(Rerun("a"))
    world.give_up("a")
    _, refusal = world.turn(Submit("task", id="new", depends_on=["c"]), Edit("a", depends_on=["new"]))
    assert isinstance(refusal, DependencyCycle)
    assert refusal.path == ("a", "new", "c", "b", "a")
    world.check_tables()


def test_an_edge_that_only_comes_near_a_circle_is_taken() -> None:
    world = a_line("a", "b", "c")
    world.ask(Edit("c", depends_on=["a", "b"]))
    assert world.entry("c").unfinished == 2


# --- planted ------------------------------------------------------------------------------------------------------


def test_a_planted_circle_is_reported_and_its_members_are_blocked_while_others_run() -> None:
    world = a_line("a", "b", "c", runs_max=1)
    world.ask(Submit("task", id="hanging", depends_on=["c"]))
    world.ask(Submit("task", id="other", handler="work", mode="manual"))
    world.plant("UPDATE companies SET runs_max = 0")
    world.succeed("a")
    world.ask(Rerun("a"))
    plant_edge(world, "a", "c")
    watch(world)
    assert waiting_for_circle(world, "abc") == dict.fromkeys("abc", ("a", "c", "b", "a"))
    assert world.reasons("a")[0] == Reason(ReasonKind.DEPENDENCY_CYCLE, tasks=("a", "c", "b", "a"), count=3)
    assert [world.where(task) for task in ("a", "b", "c", "hanging")] == [WorkState.BLOCKED] * 4
    assert world.reasons("hanging")[0] == Reason(ReasonKind.UPSTREAM_BLOCKED, tasks=("c",), count=1)
    world.plant("UPDATE companies SET runs_max = 1")
    world.turn(Edit("other", mode="auto"))
    assert world.where("other") is WorkState.RUNNING


@pytest.mark.parametrize("size", [1, 2, 3, 1_000])
def test_a_planted_circle_of_any_size_is_found_and_dissolves_when_one_of_it_is_cut_off(size: int) -> None:
    world = World(runs_max=0)
    world.ask(SubmitMany([Submit("task", id=f"t{number}") for number in range(size)]))
    for number in range(size):
        world.conn.execute(
            "INSERT INTO edges VALUES (1, ?, ?, NULL)", (number + 1, f"t{(number + 1) % size}")
        )
    world.reload()
    assert all(world.where(f"t{number}") is WorkState.BLOCKED for number in range(size))
    world.ask(Edit("t0", depends_on=[]))
    assert [entry.cycle for entry in world.state.entries.values()] == [None] * size
    assert [world.where(task) for task in world.state.entries].count(WorkState.BLOCKED) == 0
    check_against_file(world)


def test_a_planted_circle_dissolves_when_a_member_is_stopped_and_is_found_again_when_it_is_retried() -> None:
    world = a_line("a", "b")
    plant_edge(world, "a", "b")
    watch(world)
    world.ask(Stop("a"))
    assert waiting_for_circle(world, "ab") == {}
    assert world.reasons("b")[0] == Reason(ReasonKind.UPSTREAM_STOPPED, tasks=("a",), count=1)
    world.ask(Retry("a"))
    assert set(waiting_for_circle(world, "ab")) == {"a", "b"}
    check_against_file(world)


def test_a_planted_circle_is_found_when_a_settled_member_waits_again() -> None:
    """At loading one of it was stopped, so it was no circle of tasks that wait."""
    world = a_line("a", "b")
    world.ask(Stop("a"))
    plant_edge(world, "a", "b")
    assert waiting_for_circle(world, "ab") == {}
    world.ask(Retry("a"))
    assert set(waiting_for_circle(world, "ab")) == {"a", "b"}
    check_against_oracle(world)
    check_against_file(world)


def test_of_two_planted_circles_through_one_task_the_second_is_named_once_the_first_is_cut() -> None:
    world = World(runs_max=0)
    world.ask(SubmitMany([Submit("task", id=name) for name in "abc"]))
    for task, upstream in ("ab", "ba", "bc", "cb"):
        plant_edge(world, task, upstream)
    watch(world)
    assert set(waiting_for_circle(world, "abc")) == {"a", "b"}
    assert world.where("c") is WorkState.BLOCKED
    world.ask(Edit("a", depends_on=[]))
    assert waiting_for_circle(world, "abc") == {"b": ("b", "c", "b"), "c": ("b", "c", "b")}
    world.ask(Edit("c", depends_on=[]))
    assert waiting_for_circle(world, "abc") == {}
    check_against_file(world)


def test_a_new_task_whose_id_planted_rows_wait_for_cannot_close_a_circle() -> None:
    world = a_line("a", "b")
    plant_edge(world, "a", "ghost")
    assert world.reasons("a")[0] == Reason(ReasonKind.UPSTREAM_MISSING, tasks=("ghost",), count=1)
    assert refused_path(world, Submit("task", id="ghost", depends_on=["b"])) == ("ghost", "b", "a", "ghost")
    batch = SubmitMany([Submit("t", id="ghost", depends_on=["new"]), Submit("t", id="new", depends_on=["b"])])
    assert refused_path(world, batch) == ("ghost", "new", "b", "a", "ghost")
    world.ask(Submit("task", id="ghost"))
    assert world.where("a") is WorkState.WAITING


def test_an_upstream_that_was_missing_is_done_once_it_is_done_though_memory_lets_go_of_it() -> None:
    world = a_line("a")
    plant_edge(world, "a", "ghost")
    watch(world)
    world.ask(Submit("task", id="ghost", priority=1))
    world.ask(Submit("task", id="first", priority=1, handler="work"))
    world.ask(SetLimits(runs_max=1))
    assert "ghost" not in world.state.entries
    assert world.where("a") is WorkState.QUEUED
    world.succeed("first")
    assert world.where("a") is WorkState.RUNNING


def test_a_settled_task_that_waits_again_is_blocked_by_an_upstream_that_is_not_there() -> None:
    """While it was settled nobody had to know that its upstream is missing."""
    world = a_line("a", "b")
    world.ask(Stop("a"))
    plant_edge(world, "a", "ghost")
    watch(world)
    world.ask(Retry("a"))
    assert world.reasons("a")[0] == Reason(ReasonKind.UPSTREAM_MISSING, tasks=("ghost",), count=1)


def test_an_unknown_upstream_is_refused_with_all_their_names() -> None:
    world = a_line("a")
    for message in (Submit("task", id="b", depends_on=["x", "a", "y"]), Edit("a", depends_on=["x", "y"])):
        with pytest.raises(UnknownUpstream) as caught:
            world.ask(message)
        assert caught.value.missing == ("x", "y")


# --- the search ---------------------------------------------------------------------------------------------------

edges = st.dictionaries(
    st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdefg"), unique=True, max_size=3)
)


def reaches_itself(graph: Mapping[str, Sequence[str]], start: str) -> bool:
    """From scratch: grow what can be reached until nothing is added."""
    seen = set(graph.get(start, ()))
    while True:
        more = seen | {up for task in seen for up in graph.get(task, ())}
        if more == seen:
            return start in seen
        seen = more


@given(edges)
@examples(100)
def test_a_circle_is_found_exactly_if_there_is_one(graph: dict[str, list[str]]) -> None:
    members = {task for task in graph if reaches_itself(graph, task)}
    path = find_cycle(graph)
    assert (path is None) == (not members)
    for found in [*find_cycles(graph), *([path] if path else [])]:
        assert found[0] == found[-1]
        assert len(set(found)) == len(found) - 1
        assert all(up in graph[task] for task, up in pairwise(found))
    for task in graph:
        way = circle_through(task, lambda name: graph.get(name, ()))
        assert (way is not None) == (task in members)
        if way is not None:
            assert way[0] == way[-1] == task
            assert all(up in graph[below] for below, up in pairwise(way))


@given(edges)
@examples(100)
def test_what_is_left_without_the_circles_that_were_found_has_none(graph: dict[str, list[str]]) -> None:
    gone = {task for path in find_cycles(graph) for task in path}
    left = {task: [up for up in ups if up not in gone] for task, ups in graph.items() if task not in gone}
    assert not any(reaches_itself(left, task) for task in left)
