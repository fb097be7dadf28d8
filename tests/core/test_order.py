"""Who is next: priority, then submission, as numbers; and a run that went round keeps its place."""

from __future__ import annotations

from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from actors.core.order import OpenQueue
from actors.messages import Backoff, Edit, Node, Rerun, Retry, SetLimits, StartNow, Stop, Submit, SubmitMany
from storage.records import AttemptEnd, RunStatus

from .examples import examples
from .world import World


def started(world: World) -> list[str | None]:
    """The tasks in the order in which their attempts began."""
    return [event.task for event in world.told("attempt.started")]


def run_everything(world: World) -> None:
    while world.running:
        world.succeed(next(iter(world.running)).task)


def test_tasks_of_one_priority_and_one_millisecond_start_in_the_order_of_their_submission() -> None:
    """C26: as numbers; as text 10 would come after 1."""
    world = World(runs_max=0)
    for number in range(1, 13):
        world.ask(Submit("task", id=str(number), handler="work"))
    world.ask(SetLimits(runs_max=1))
    run_everything(world)
    assert started(world) == [str(number) for number in range(1, 13)]


def test_ids_given_by_the_queue_start_in_the_order_of_their_numbers() -> None:
    world = World(runs_max=0)
    world.ask(SubmitMany([Submit("task", handler="work") for _ in range(12)]))
    world.ask(SetLimits(runs_max=1))
    run_everything(world)
    assert started(world) == [f"@{number}" for number in range(1, 13)]


def test_priorities_are_numbers_so_10_comes_after_2() -> None:
    """C26: "P10" and "P2" are accepted and mean 10 and 2."""
    world = World(runs_max=0)
    for priority in (10, "P10", 2, "P2", -1, "p3", "4"):
        world.ask(Submit("task", id=f"{priority!r}", handler="work", priority=priority))
    world.ask(SetLimits(runs_max=1))
    run_everything(world)
    assert started(world) == ["-1", "2", "'P2'", "'p3'", "'4'", "10", "'P10'"]


def test_the_order_is_the_same_after_a_restart() -> None:
    world = World(runs_max=0)
    for number in range(1, 13):
        world.ask(Submit("task", id=str(number), handler="work", priority=number % 3))
    before = world.state.open.head(99)
    world.reload()
    assert (
        world.state.open.head(99) == before == ["3", "6", "9", "12", "1", "4", "7", "10", "2", "5", "8", "11"]
    )


def test_a_task_that_backs_off_keeps_its_slot_and_is_not_overtaken() -> None:
    """C28: while it waits others arrive steadily."""
    world = World(runs_max=1)
    node = Node("work", retry=Backoff(base_s=10, factor=1))
    for task in "ABC":
        world.ask(Submit("task", id=task, nodes=[node]))
    world.fail("A")
    for number in range(20):
        world.ask(Submit("task", id=f"D{number}", nodes=[node]))
        world.wait(0.5)
    world.wait(2)
    run_everything(world)
    assert started(world)[:4] == ["A", "A", "B", "C"]


@pytest.mark.parametrize("how", ["retry", "crash", "lost"])
def test_a_run_that_went_round_starts_at_its_old_place(how: str) -> None:
    """C28: by a retry, a restart, a process that died."""
    world = World(runs_max=1)
    for task in "ABC":
        world.ask(Submit("task", id=task, handler="work", tries_max=1))
    if how == "retry":
        world.ask(SetLimits(runs_max=0))
        world.fail("A")
        world.ask(Retry("A"))
        world.ask(SetLimits(runs_max=1))
    elif how == "crash":
        world.reload()
        world.end("A", AttemptEnd.INTERRUPTED)
    else:
        world.end("A", AttemptEnd.LOST)
    world.ask(Submit("task", id="D", handler="work"))
    run_everything(world)
    assert started(world) == ["A", "A", "B", "C", "D"]


def test_a_new_run_of_a_task_stands_where_the_task_stands() -> None:
    world = World(runs_max=1)
    for task in "ABC":
        world.ask(Submit("task", id=task, handler="work"))
    world.succeed("A")
    world.ask(Rerun("A"))
    run_everything(world)
    assert started(world) == ["A", "B", "A", "C"]


def test_start_now_goes_first_the_latest_of_them_before_the_others() -> None:
    world = World(runs_max=0)
    for task, priority in (("A", 1), ("B", 1), ("C", 9), ("D", 9)):
        world.ask(Submit("task", id=task, handler="work", priority=priority))
    world.ask(StartNow("C"))
    world.ask(StartNow("D"))
    assert [world.position(task) for task in "DCAB"] == [1, 2, 3, 4]
    world.ask(SetLimits(runs_max=1))
    run_everything(world)
    assert started(world) == ["D", "C", "A", "B"]


def test_start_now_counts_until_the_run_settles_and_not_for_the_next_one() -> None:
    world = World(runs_max=0)
    for task in "AB":
        world.ask(Submit("task", id=task, handler="work"))
    world.ask(StartNow("B"))
    world.reload()
    assert world.position("B") == 1
    world.ask(Stop("B"))
    world.ask(Retry("B"))
    assert world.position("B") == 2


def test_a_priority_counts_at_once() -> None:
    world = World(runs_max=0)
    for task in "ABC":
        world.ask(Submit("task", id=task, handler="work"))
    world.ask(Edit("C", priority=1))
    assert [world.position(task) for task in "CAB"] == [1, 2, 3]


def test_ready_nodes_of_a_run_start_in_the_order_of_the_graph() -> None:
    world = World(executions_max=1)
    world.ask(Submit("task", id="t", nodes=[Node(name) for name in ("c", "a", "b")]))
    run_everything(world)
    assert [event.node for event in world.told("attempt.started")] == ["c", "a", "b"]
    assert world.run("t").status is RunStatus.COMPLETED


@given(st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(0, 5)), max_size=200))
@examples(100)
def test_the_open_queue_is_a_sorted_list(moves: list[tuple[int, int | None]]) -> None:
    queue, plain = OpenQueue(), dict[str, tuple[int, int, int]]()
    for number, priority in moves:
        task = f"t{number}"
        if priority is None:
            queue.discard(task)
            plain.pop(task, None)
        else:
            plain[task] = (0, priority, number)
            queue.put(task, plain[task])
        ordered = sorted(plain, key=lambda name: plain[name])
        assert queue.first() == next(iter(ordered), None)
        assert queue.head(3) == ordered[:3]
        assert len(queue) == len(ordered)
        assert [name for name in sorted(plain) if name in queue] == sorted(plain)
        for name in ordered:
            place = ordered.index(name)
            assert queue.ahead_of(plain[name], 3) == (ordered[: min(place, 3)], place)


def test_the_open_queue_does_not_grow_with_what_has_left_it() -> None:
    queue, rng = OpenQueue(), Random(1)
    for _ in range(10_000):
        queue.put("t", (0, rng.randrange(1_000_000), 1))
    assert len(queue._heap) <= 67
