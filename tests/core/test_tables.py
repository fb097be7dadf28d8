"""Section 3 of the design: every cell of the four tables of moves, walked. What is not in them changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import product
from typing import Any

import pytest

from actors.core.draft import Draft
from actors.core.journal import NodesLeft
from actors.core.transitions import NODE_MOVES, PHASE_MOVES, RUN_MOVES, SCHEDULE_MOVES, Phase, check_move
from actors.errors import IllegalMove
from actors.events import KINDS
from actors.messages import Node, Submit
from storage.records import NodeRecord, NodeStatus, RunRecord, RunStatus, ScheduleStatus

from .agreement import snapshot
from .world import World

LEGAL_RUN_MOVES = {
    (None, "queued"),
    ("queued", "running"),
    ("queued", "stopped"),
    ("running", "completed"),
    ("running", "failed"),
    ("running", "stopping"),
    ("running", "halted"),
    ("stopping", "stopped"),
    ("halted", "queued"),
    ("halted", "stopped"),
    ("failed", "queued"),
    ("stopped", "queued"),
}
LEGAL_NODE_MOVES = {
    (None, "pending"),
    ("pending", "running"),
    ("pending", "skipped"),
    ("pending", "succeeded"),
    ("running", "succeeded"),
    ("running", "failed"),
    ("running", "skipped"),
    ("running", "pending"),
    ("succeeded", "pending"),
    ("failed", "pending"),
    ("skipped", "pending"),
}
LEGAL_PHASE_MOVES = {
    (None, "claiming"),
    ("claiming", "persisting"),
    ("claiming", "finalizing"),
    ("persisting", "executing"),
    ("persisting", "finalizing"),
    ("executing", "waiting"),
    ("executing", "cancelling"),
    ("executing", "finalizing"),
    ("waiting", "executing"),
    ("waiting", "cancelling"),
    ("waiting", "finalizing"),
    ("cancelling", "finalizing"),
    ("finalizing", "finalizing"),
}
LEGAL_SCHEDULE_MOVES = {
    (None, "active"),
    ("active", "paused"),
    ("active", "disabled"),
    ("paused", "active"),
    ("paused", "disabled"),
    ("disabled", "active"),
    ("disabled", "paused"),
}

MACHINES: Mapping[str, tuple[Mapping[Any, Mapping[Any, str]], type[StrEnum], set[tuple[str | None, str]]]] = {
    "run": (RUN_MOVES, RunStatus, LEGAL_RUN_MOVES),
    "node": (NODE_MOVES, NodeStatus, LEGAL_NODE_MOVES),
    "attempt": (PHASE_MOVES, Phase, LEGAL_PHASE_MOVES),
    "schedule": (SCHEDULE_MOVES, ScheduleStatus, LEGAL_SCHEDULE_MOVES),
}
CELLS = [
    (machine, before, after)
    for machine, (_, states, _) in MACHINES.items()
    for before, after in product((None, *states), states)
]


@pytest.mark.parametrize(("machine", "before", "after"), CELLS)
def test_a_move_is_made_if_the_table_has_it_and_raises_if_not(
    machine: str, before: StrEnum | None, after: StrEnum
) -> None:
    table, _, legal = MACHINES[machine]
    if (before, after) in legal:
        check_move(machine, table, lambda: "key", before, after)
        assert table[before][after].strip()
        return
    with pytest.raises(IllegalMove) as caught:
        check_move(machine, table, lambda: "key", before, after, ["one thing", "another"])
    error = caught.value
    assert (error.machine, error.key, error.before, error.after) == (machine, "key", before, after)
    assert error.story == ("one thing", "another")
    assert str(error) == f"{machine} key: no move from {before} to {after}; before that: one thing → another"


@pytest.mark.parametrize("machine", MACHINES)
def test_a_table_has_a_row_for_every_state_and_none_for_others(machine: str) -> None:
    table, states, _ = MACHINES[machine]
    assert set(table) == {None, *states}


@pytest.mark.parametrize("machine", MACHINES)
def test_a_table_cannot_be_changed_at_any_level(machine: str) -> None:
    table: Any = MACHINES[machine][0]
    for before in table:
        _cannot_change(table, before, {})
        for after in table[before]:
            _cannot_change(table[before], after, "verb")
            assert type(table[before][after]) is str
    before = dict(table)
    assert (table | {}) is not table
    assert dict(table) == before


def test_the_table_of_events_cannot_be_changed_at_any_level() -> None:
    kinds: Any = KINDS
    for kind, row in kinds.items():
        _cannot_change(kinds, kind, row)
        assert type(row.fields) is tuple
        with pytest.raises(AttributeError):
            row.fields = ()


def _cannot_change(table: Any, key: object, value: object) -> None:
    with pytest.raises(TypeError):
        table[key] = value
    with pytest.raises(TypeError):
        del table[key]
    for method in ("clear", "pop", "popitem", "setdefault", "update"):
        assert not hasattr(table, method)


# --- the machines behind them -------------------------------------------------------------------------------------


def a_task(before: RunStatus, *nodes: NodeStatus) -> World:
    """A run planted in this state, with nodes in these."""
    world = World(runs_max=5, executions_max=0)
    world.ask(Submit("task", id="t", nodes=[Node("a"), Node("b")]))
    statuses = nodes or (NodeStatus.PENDING, NodeStatus.PENDING)
    for pos, status in enumerate(statuses):
        world.plant(
            "UPDATE nodes SET status = ?, result = CASE WHEN ? = 'succeeded' THEN '1' END WHERE pos = ?",
            *(status.value, status.value, pos),
        )
    world.plant(
        "UPDATE runs SET status = ?, slot = ?, settled_ms = ?",
        *(before.value, int(before.active), 1 if before.settled else None),
    )
    world.entry("t")
    return world


@pytest.mark.parametrize(("before", "after"), list(product(RunStatus, RunStatus)))
def test_a_run_moves_as_its_table_says_and_a_move_has_a_way_back(before: RunStatus, after: RunStatus) -> None:
    world = a_task(before)
    entry = world.state.entries["t"]
    was = snapshot(world)
    draft = Draft(world.state, world.now_ms)
    draft.event("task.edited", entry)
    draft.event("attempt.started", entry, node="a")
    if before is after or (before, after) in LEGAL_RUN_MOVES:
        draft.run(entry, status=after, slot=int(after.active))
        assert world.run("t").status is after
        draft.rollback(Draft(world.state, world.now_ms).mark())
    else:
        with pytest.raises(IllegalMove) as caught:
            draft.run(entry, status=after, slot=int(after.active))
        assert caught.value.story == ("task.edited", "attempt.started a")
        assert (caught.value.machine, caught.value.key) == ("run", "t/1")
        assert draft.journal == []
    assert snapshot(world) == was


@pytest.mark.parametrize(("before", "after"), list(product(NodeStatus, NodeStatus)))
def test_a_node_moves_as_its_table_says_and_a_move_has_a_way_back(
    before: NodeStatus, after: NodeStatus
) -> None:
    world = a_task(RunStatus.RUNNING, before, NodeStatus.RUNNING)
    entry = world.state.entries["t"]
    was = snapshot(world)
    draft = Draft(world.state, world.now_ms)
    draft.event("run.admitted", entry)
    if before is after or (before, after) in LEGAL_NODE_MOVES:
        draft.node(entry, 0, status=after)
        assert world.node("t").status is after
        draft.rollback(Draft(world.state, world.now_ms).mark())
    else:
        with pytest.raises(IllegalMove) as caught:
            draft.node(entry, 0, status=after)
        assert (caught.value.machine, caught.value.key) == ("node", "t/1/0")
        assert caught.value.story == ("run.admitted",)
        assert draft.journal == []
    assert snapshot(world) == was


@pytest.mark.parametrize("status", [status for status in RunStatus if status is not RunStatus.QUEUED])
def test_a_new_run_is_born_queued(status: RunStatus) -> None:
    world = a_task(RunStatus.COMPLETED, NodeStatus.SUCCEEDED, NodeStatus.SUCCEEDED)
    was = snapshot(world)
    draft = Draft(world.state, world.now_ms)
    with pytest.raises(IllegalMove):
        entry = world.state.entries["t"]
        draft.add_run(entry, RunRecord(entry.task.seq, 2, status, world.now_ms))
    assert [type(move) for move in draft.journal] == [NodesLeft]
    draft.undo()
    assert snapshot(world) == was


def test_a_new_node_is_born_pending() -> None:
    """All nodes of a run come at once, so the check is of all of them."""
    world = World(runs_max=0)
    world.ask(Submit("task", id="t", nodes=[Node("a"), Node("b")]))
    spec = '{"handler":"a","name":"a"}'
    nodes: Sequence[NodeRecord] = (
        NodeRecord(1, 1, 0, spec),
        NodeRecord(1, 1, 1, spec, status=NodeStatus.SUCCEEDED),
    )
    was = snapshot(world)
    draft = Draft(world.state, world.now_ms)
    with pytest.raises(IllegalMove):
        draft.add_nodes(world.state.entries["t"], tuple(nodes))
    assert snapshot(world) == was


def test_no_two_runs_are_in_one_slot() -> None:
    world = World(runs_max=5, executions_max=0)
    world.ask(Submit("task", id="a", handler="work"))
    world.ask(Submit("task", id="b", handler="work", mode="manual"))
    draft = Draft(world.state, world.now_ms)
    entry = world.state.entries["b"]
    run = entry.run
    assert isinstance(run, RunRecord)
    with pytest.raises(AssertionError, match="two runs in one slot"):
        draft.run(entry, status=RunStatus.RUNNING, slot=1)
