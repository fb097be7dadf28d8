"""Tasks whose rows or moves cannot be trusted: set aside, and brought back by a person."""

from __future__ import annotations

import pytest

from actors.core.loading import check_texts
from actors.core.shape import shape_of, spec_of
from actors.errors import MoveRefused
from actors.messages import Archive, Node, Retry, Stop, Submit, Unarchive
from actors.messages.views import Reason, ReasonKind, WorkState
from actors.runtime.recovery import Quarantine
from storage.loading import find_company, load_company
from storage.records import NodeRecord, NodeStatus, RunStatus, TaskRecord

from .agreement import check_against_oracle
from .world import World, writing

GOOD = '[{"handler":"work","name":"work"}]'
BAD = "no JSON"


def set_aside(world: World, task: str = "t", why: str = "bad row") -> None:
    (row,) = world.stored("SELECT seq FROM tasks WHERE id = ?", task)
    with writing(world.conn):
        Quarantine(world.name, task, row[0], why, None, world.now_ms)(world.conn)
    for key in world.attempts(task):
        del world.running[key]
        world.slots.held.discard(key)
    world.reload()


def a_bad_row(*, active: bool = False) -> World:
    """Task t has a shape, or a node, that is not of our writing. It is set aside, and another task waits for it."""
    world = World(runs_max=1 if active else 0)
    world.ask(Submit("task", id="t", handler="work", priority=1))
    world.ask(Submit("task", id="user", handler="work", depends_on=["t"]))
    world.conn.execute(
        "UPDATE nodes SET spec = ?" if active else "UPDATE tasks SET shape = ? WHERE id = 't'", (BAD,)
    )
    set_aside(world)
    return world


@pytest.mark.parametrize("active", [False, True])
def test_a_task_with_bad_rows_stands_aside_and_whoever_waits_for_it_is_blocked(active: bool) -> None:
    world = a_bad_row(active=active)
    assert world.where("t") is WorkState.QUARANTINED
    assert world.reasons("t") == (Reason(ReasonKind.QUARANTINED, text="bad row"),)
    assert world.reasons("user")[0] == Reason(ReasonKind.UPSTREAM_QUARANTINED, tasks=("t",), count=1)
    assert world.run("t").status is (RunStatus.FAILED if active else RunStatus.QUEUED)
    assert world.state.slots == {}
    check_against_oracle(world)


@pytest.mark.parametrize("active", [False, True])
def test_a_retry_of_bad_rows_is_refused_until_they_are_mended(active: bool) -> None:
    """Else the name that stands for the task would run: a task without nodes."""
    world = a_bad_row(active=active)
    with pytest.raises(MoveRefused) as caught:
        world.ask(Retry("t"))
    assert caught.value.state == "quarantined"
    assert caught.value.advice == ("Archive",)
    assert "its rows still cannot be read" in caught.value.text
    world.conn.execute("UPDATE tasks SET shape = ? WHERE id = 't'", (GOOD,))
    world.conn.execute("UPDATE nodes SET spec = ?", (GOOD[1:-1],))
    world.ask(Retry("t"))
    assert world.state.entries["t"].task.priority == 1
    world.plant("UPDATE companies SET runs_max = 1")
    world.turn()
    assert world.where("t") is WorkState.RUNNING
    world.succeed("t")
    assert world.where("user") is WorkState.RUNNING


def test_putting_away_a_task_with_bad_rows_writes_nothing_over_them() -> None:
    world = a_bad_row()
    before = world.stored("SELECT shape, mode, priority, graph, tries_max FROM tasks WHERE id = 't'")
    world.ask(Archive("t"))
    assert world.where("t") is WorkState.ARCHIVED
    assert world.stored("SELECT shape, mode, priority, graph, tries_max FROM tasks WHERE id = 't'") == before
    world.ask(Unarchive("t"))
    assert world.stored("SELECT archived_ms FROM tasks WHERE id = 't'") == [(None,)]
    world.reload()
    assert world.reasons("user")[0].kind is ReasonKind.UPSTREAM_QUARANTINED
    assert before[0][0] == BAD


def test_a_task_with_bad_rows_can_be_stopped() -> None:
    world = a_bad_row()
    assert world.ask(Stop("t")).status is RunStatus.STOPPED
    assert world.where("t") is WorkState.STOPPED


def test_a_retry_lifts_the_quarantine_of_a_run_that_was_going_on_with_its_nodes_as_they_were() -> None:
    world = World(runs_max=1)
    world.ask(Submit("task", id="t", nodes=[Node("a"), Node("b", after=["a"]), Node("c")]))
    world.succeed("t", "a")
    set_aside(world)
    assert world.where("t") is WorkState.QUARANTINED
    answer = world.ask(Retry("t"))
    assert answer.status is RunStatus.QUEUED
    assert [node.status for node in world.nodes("t")] == [
        *(NodeStatus.SUCCEEDED, NodeStatus.RUNNING, NodeStatus.RUNNING)
    ]
    assert [node.attempts for node in world.nodes("t")] == [1, 2, 2]
    assert world.stored("SELECT count(*) FROM quarantine") == [(0,)]
    world.check_tables()


def test_a_stop_that_was_asked_for_stays_a_stop() -> None:
    world = World(runs_max=1)
    world.ask(Submit("task", id="t", handler="work"))
    world.ask(Stop("t"))
    set_aside(world)
    assert world.where("t") is WorkState.STOPPED
    assert world.told("run.stopped") == []  # the quarantine itself told it, in its own unit
    assert world.stored("SELECT kind FROM events WHERE kind LIKE 'run.st%' ORDER BY position") == [
        *(("run.stopping",), ("run.stopped",))
    ]


BAD_SHAPES = [
    *("", "{", "null", "1", '"x"', "{}", "[1]", "[null]", "[{}]", '[{"name":"n"}]', '[{"handler":"h"}]'),
    '[{"name":1,"handler":"h"}]',
    '[{"name":"n","handler":2}]',
    '[{"name":"n","handler":"h","after":0}]',
    '[{"name":"n","handler":"h","after":[7]}]',
    '[{"name":"n","handler":"h","retry":[1]}]x',
    '[{"name":"n","handler":"h","retry":"x"}]',
    '[{"name":"n","handler":"h","retry":[-1,2,3]}]',
]


@pytest.mark.parametrize("text", BAD_SHAPES)
def test_a_shape_that_nobody_of_ours_wrote_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        shape_of(text)
    with pytest.raises(ValueError):
        check_texts(TaskRecord(1, "t", 2, 0, shape=text), ())


@pytest.mark.parametrize(
    "text", ["", "[]", "1", "null", "{}", '{"name":"n"}', '{"name":"n","handler":"h","after":1}']
)
def test_a_node_that_nobody_of_ours_wrote_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        spec_of(text)


@pytest.mark.parametrize(
    "nodes",
    [
        [NodeRecord(1, 1, 1, GOOD[1:-1])],
        [NodeRecord(1, 1, 0, '{"after":[1],"handler":"h","name":"n"}')],
        [NodeRecord(1, 1, 0, '{"after":[-1],"handler":"h","name":"n"}')],
        [NodeRecord(1, 1, 0, BAD)],
    ],
)
def test_node_rows_that_form_no_graph_are_a_value_error(nodes: list[NodeRecord]) -> None:
    with pytest.raises(ValueError):
        check_texts(TaskRecord(1, "t", 2, 0, shape=GOOD), nodes)


def test_a_bad_row_is_reported_once_and_the_others_are_loaded() -> None:
    world = World(runs_max=0)
    for task in ("good", "t", "better"):
        world.ask(Submit("task", id=task, handler="work"))
    world.conn.execute("UPDATE tasks SET shape = ? WHERE id = 't'", (BAD,))
    company = find_company(world.conn, world.name)
    assert company is not None
    loaded = {task.record.id: task for task in load_company(world.conn, company, check_texts).tasks}
    assert [task for task, each in loaded.items() if each.bad is not None] == ["t"]
    assert not loaded["t"].readable
    assert loaded["t"].traceback is not None
    assert loaded["good"].run is not None
