"""C24: chains of 20,000 and fans of 10,000. Without recursion, and with so many steps as there are tasks to tell.

Seconds are not stable where tests run, so steps are counted: how often a task was derived anew, how many moves a turn
made, how many upstreams were looked at.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from actors.core.advance import MOVES_MAX
from actors.core.state import CompanyState
from actors.core.task_state import Standing, TaskState
from actors.core.work_state import positions
from actors.errors import DependencyCycle
from actors.messages import (
    DEPENDS_ON_MAX,
    NODES_MAX,
    Archive,
    Edit,
    Node,
    Rerun,
    Retry,
    SetLimits,
    StopGoal,
    Submit,
    SubmitMany,
    Unarchive,
)
from actors.messages.views import ReasonKind, WorkState
from storage.records import RunStatus

from .world import World

CHAIN = 20_000
FAN = 10_000
BATCH = 2_000
assert FAN == DEPENDS_ON_MAX


class Counted:
    """Steps taken by the state of a company."""

    derived = 0
    """Tasks derived anew."""
    looked_at = 0
    """Upstreams asked how they stand."""


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counts = Counted()
    derive, standing = CompanyState._derive, CompanyState.standing

    def counting_derive(state: CompanyState, entry: TaskState, cause: str) -> None:
        counts.derived += 1
        derive(state, entry, cause)

    def counting_standing(state: CompanyState, task: str) -> Standing:
        counts.looked_at += 1
        return standing(state, task)

    monkeypatch.setattr(CompanyState, "_derive", counting_derive)
    monkeypatch.setattr(CompanyState, "standing", counting_standing)
    return counts


@contextmanager
def at_most(counts: Counted, *, derived: int, looked_at: int) -> Iterator[None]:
    before = (counts.derived, counts.looked_at)
    yield
    assert counts.derived - before[0] <= derived
    assert counts.looked_at - before[1] <= looked_at


@contextmanager
def little_stack() -> Iterator[None]:
    """Too little for anything that calls itself once per task."""
    depth = sum(1 for _ in traceback.walk_stack(None))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 120)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def planted(tasks: int, edges: str, *, nodes: str, runs_max: int = 0) -> World:
    """So many queued tasks of one goal, their ids the numbers from 0; ``edges`` selects (seq, upstream) from them.

    Written as rows at once: submitting so many is not what is tested.
    """
    world = World(runs_max=0)
    numbers = "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?) "
    world.conn.execute(
        f"INSERT INTO tasks (company_id, seq, id, priority, created_ms, mode, goal, shape, fail_fast, title) {numbers}"
        "SELECT 1, i + 1, i, 2, 0, 'auto', 'goal', CASE i WHEN 0 THEN ? ELSE ? END, 0, 'task' FROM n",
        (tasks, NODE, nodes),
    )
    world.conn.execute(
        "INSERT INTO runs (company_id, seq, number, status, created_ms) SELECT 1, seq, 1, 'queued', 0 FROM tasks"
    )
    world.conn.execute(f"INSERT INTO edges (company_id, seq, upstream) SELECT 1, tasks.seq, {edges}")
    world.conn.execute("UPDATE companies SET task_seq = ?, runs_max = ?", (tasks, runs_max))
    world.reload()
    world.turn()
    return world


NODE = '[{"handler":"work","name":"work"}]'


def a_chain(length: int = CHAIN) -> World:
    """Task 0 is running, and each of the others comes after the one before it."""
    return planted(length, "CAST(seq - 2 AS TEXT) FROM tasks WHERE seq > 1", nodes=NODE, runs_max=1)


def test_a_chain_of_twenty_thousand_is_blocked_freed_and_put_away_without_recursion(counted: Counted) -> None:
    world = a_chain()
    state, last = world.state, str(CHAIN - 1)
    assert [key.task for key in world.running] == ["0"]
    with little_stack():
        with at_most(counted, derived=2 * CHAIN, looked_at=100):
            world.give_up("0")
        assert world.where(last) is WorkState.BLOCKED
        assert sum(entry.blocked for entry in state.entries.values()) == CHAIN - 1
        (told,) = world.told("tasks.blocked")
        assert (told.data["cause"], told.data["count"], len(told.data["ids"])) == ("0", CHAIN - 1, 100)

        with pytest.raises(DependencyCycle) as caught:
            world.ask(Edit("0", depends_on=[last]))
        assert caught.value.path == ("0", *map(str, reversed(range(CHAIN))))

        with at_most(counted, derived=2 * CHAIN, looked_at=100):
            world.ask(Retry("0"))
        assert world.where(last) is WorkState.WAITING
        assert not any(entry.blocked for entry in state.entries.values())
        (told,) = world.told("tasks.unblocked")
        assert told.data["count"] == CHAIN - 1

        with at_most(counted, derived=50, looked_at=100):
            world.succeed("0")
        assert world.where("1") is WorkState.RUNNING

        with at_most(counted, derived=20, looked_at=100):
            world.ask(Archive(last))
        assert world.where(last) is WorkState.ARCHIVED

        with at_most(counted, derived=2 * CHAIN, looked_at=100):
            world.give_up("1")
        with at_most(counted, derived=2 * CHAIN, looked_at=100):
            world.ask(Rerun("1"))
        assert world.where(str(CHAIN - 2)) is WorkState.WAITING


def test_a_chain_that_is_blocked_loads_as_such_and_is_stopped_as_a_goal_in_one_turn(counted: Counted) -> None:
    length = 5_000
    world = a_chain(length)
    world.give_up("0")
    with little_stack():
        with at_most(counted, derived=4 * length, looked_at=10 * length):
            world.reload()
        assert world.where(str(length - 1)) is WorkState.BLOCKED
        assert positions(world.state) == {}
        with at_most(counted, derived=3 * length, looked_at=2 * length):
            stopped = world.ask(StopGoal("goal"))
    assert stopped.tasks == tuple(str(n) for n in range(1, length))
    assert world.state.entries.keys() == set()


@pytest.mark.parametrize("order", ["forwards", "backwards", "from the middle"])
def test_a_batch_is_taken_in_with_the_same_few_steps_in_whatever_order_it_comes(
    counted: Counted, order: str
) -> None:
    numbers = list(range(BATCH))
    if order == "backwards":
        numbers.reverse()
    elif order == "from the middle":
        numbers.sort(key=lambda n: (abs(n - BATCH // 2), n))
    world = World(runs_max=0)
    tasks = [Submit("task", id=str(n), key=f"k{n}", depends_on=[str(n - 1)] if n else []) for n in numbers]
    with little_stack(), at_most(counted, derived=4 * BATCH, looked_at=4 * BATCH):
        answers = world.ask(SubmitMany(tasks))
    assert [answer.id for answer in answers] == [str(n) for n in numbers]
    assert [entry.unfinished for entry in world.state.entries.values()].count(1) == BATCH - 1
    assert world.state.open.head(2) == ["0"]


def test_a_batch_that_is_refused_at_its_end_is_undone_with_few_steps(counted: Counted) -> None:
    world = World(runs_max=0)
    tasks = [Submit("task", id=str(n), depends_on=[str(n - 1)] if n else []) for n in reversed(range(BATCH))]
    with (
        at_most(counted, derived=5 * BATCH, looked_at=5 * BATCH),
        pytest.raises(Exception, match="unknown tasks: x"),
    ):
        world.ask(SubmitMany([*tasks, Submit("task", id="bad", depends_on=["x"])]))
    assert world.state.entries == {}
    assert world.state.dependents == {}


def a_fan_in() -> World:
    """Task 0 comes after ten thousand others, which have no nodes: each is done when it is admitted."""
    edges = "CAST(other.seq - 1 AS TEXT) FROM tasks JOIN tasks AS other ON other.seq > 1 WHERE tasks.seq = 1"
    return planted(FAN + 1, edges, nodes="[]")


def test_a_fan_in_of_ten_thousand_counts_down_and_never_looks_at_all_of_them_again(counted: Counted) -> None:
    world = a_fan_in()
    assert world.reason("0", ReasonKind.UPSTREAM_UNFINISHED).count == FAN
    turns = 0
    with at_most(counted, derived=20 * FAN, looked_at=5 * FAN):
        world.turn(SetLimits(runs_max=1))
        while world.advanced.more:
            turns += 1
            world.turn()
    assert world.where("0") is WorkState.RUNNING
    assert turns == 2 * FAN // MOVES_MAX


def test_a_fan_in_is_blocked_by_the_first_dead_upstream_and_freed_by_the_last(counted: Counted) -> None:
    world = a_fan_in()
    world.turn(Edit("0", goal=None))
    with little_stack(), at_most(counted, derived=8 * FAN, looked_at=5 * FAN):
        world.ask(StopGoal("goal"))
    reason = world.reason("0", ReasonKind.UPSTREAM_STOPPED)
    assert (reason.count, len(reason.tasks)) == (FAN, 10)
    with at_most(counted, derived=20 * FAN, looked_at=5 * FAN):
        for start in range(1, FAN, 500):
            world.turn(*[Retry(str(number)) for number in range(start, start + 500)])
    assert world.where("0") is WorkState.WAITING


def test_a_fan_out_of_ten_thousand_is_freed_and_blocked_in_one_go(counted: Counted) -> None:
    world = planted(FAN + 1, "'0' FROM tasks WHERE seq > 1", nodes=NODE, runs_max=1)
    with at_most(counted, derived=2 * FAN, looked_at=100):
        world.give_up("0")
    assert sum(entry.blocked for entry in world.state.entries.values()) == FAN
    with at_most(counted, derived=2 * FAN, looked_at=100):
        world.ask(Retry("0"))
    with at_most(counted, derived=2 * FAN, looked_at=100):
        world.succeed("0")
    assert [key.task for key in world.running] == ["1"]
    assert len(world.state.open) == FAN - 1


def test_a_graph_of_ten_thousand_nodes_in_a_line_runs_from_its_beginning_to_its_end() -> None:
    world = World()
    nodes = [Node(f"n{n}", "work", after=[f"n{n - 1}"] if n else []) for n in range(NODES_MAX)]
    with little_stack():
        world.ask(Submit("task", id="t", nodes=nodes))
        for _ in range(3):
            world.succeed("t")
    assert [event.node for event in world.told("attempt.started")] == ["n0", "n1", "n2", "n3"]
    assert world.run("t").status is RunStatus.RUNNING


def test_thousands_of_runs_without_nodes_complete_in_bounded_turns_without_recursion() -> None:
    world = World(runs_max=0)
    world.ask(
        SubmitMany([Submit("task", id=str(n), depends_on=[str(n - 1)] if n else []) for n in range(2_000)])
    )
    with little_stack():
        world.turn(SetLimits(runs_max=1))
        moves = [len(world.events)]
        while world.advanced.more:
            before = len(world.events)
            world.turn()
            moves.append(len(world.events) - before)
    assert max(moves[1:]) <= MOVES_MAX
    assert len(world.told("run.completed")) == 2_000
    assert world.state.entries == {}


def test_archiving_and_unarchiving_the_foot_of_a_chain_tells_it_all_each_time(counted: Counted) -> None:
    world = a_chain(2_000)
    world.give_up("0")
    world.ask(Archive("0"))
    assert world.reasons("1")[0].kind is ReasonKind.UPSTREAM_ARCHIVED
    assert world.where("1999") is WorkState.BLOCKED
    with at_most(counted, derived=10_000, looked_at=100):
        world.turn(Unarchive("0"), Retry("0"))
    assert world.where("1999") is WorkState.WAITING
