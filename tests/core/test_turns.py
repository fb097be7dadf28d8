"""A turn as a whole: it is bounded, it is one unit, and if it is refused nothing of it happened."""

from __future__ import annotations

import pytest

from actors.core.advance import MOVES_MAX, Advanced
from actors.core.draft import Draft
from actors.core.inputs import Report
from actors.core.reports import decide_report
from actors.core.to_rows import unit_of
from actors.errors import MoveRefused
from actors.messages import (
    Archive,
    Backoff,
    Edit,
    Message,
    Node,
    Pause,
    Rerun,
    Retry,
    SetLimits,
    Stop,
    Submit,
    SubmitMany,
    Unpause,
)
from actors.messages.views import WorkState
from storage.errors import StaleEpoch, UnitRefused
from storage.records import AttemptEnd, RunStatus
from storage.sqlite.engine import carry_out
from storage.writes import TitleSet

from .agreement import check_against_file, snapshot, watch
from .world import World, writing


def many(count: int, **fields: object) -> SubmitMany:
    return SubmitMany([Submit("task", id=f"t{n}", **fields) for n in range(count)])  # type: ignore[arg-type]


# --- bounds -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moves_max", [1, 2, 3, 7, MOVES_MAX])
def test_whatever_the_bound_of_a_turn_all_is_done_in_the_end(moves_max: int) -> None:
    """A run that reached its end in the last move of a turn is settled in the next one."""
    world = World(runs_max=3)
    watch(world)
    world.turn(many(5), many(5, handler="work"), moves_max=moves_max)  # the second is a conflict
    world.turn(Submit("task", id="node", handler="work", priority=1), moves_max=moves_max)
    turns = 0
    while world.advanced.more:
        before = len(world.events)
        world.turn(moves_max=moves_max)
        assert len(world.events) - before <= moves_max
        turns += 1
        assert turns < 100
    assert [world.run(f"t{n}").status for n in range(5)] == [RunStatus.COMPLETED] * 5
    assert world.where("node") is WorkState.RUNNING
    world.check_tables()


def test_hundreds_of_reports_in_one_turn_all_lead_to_their_ends() -> None:
    world = World(runs_max=500)
    world.ask(many(500, handler="work"))
    world.advance_until_quiet()
    reports = [Report(key, AttemptEnd.SUCCEEDED, result="1") for key in world.running]
    assert len(reports) == 500
    world.report(*reports)
    assert world.stored("SELECT status, count(*) FROM runs GROUP BY 1") == [("completed", 500)]


def test_a_report_that_is_decided_in_a_turn_that_does_not_advance_is_not_forgotten() -> None:
    """While the guilty one of a refused turn is looked for, reports are committed alone."""
    world = World()
    world.ask(Submit("task", id="t", nodes=[Node("a", "work"), Node("b", "work", after=["a"])]))
    world.turn(Report(world.attempt("t", "a"), AttemptEnd.SUCCEEDED, result="1"), advancing=False)
    assert world.attempts("t") == []
    world.turn(moves_max=1)
    assert world.where("t") is WorkState.RUNNING
    assert len(world.attempts("t", "b")) == 1


def test_what_is_said_in_the_turn_in_which_a_run_ends_finds_it_ended() -> None:
    """One by one or together, messages have the same answers: the report came first."""
    world = World()
    world.ask(Submit("task", id="t", handler="work"))
    done = Report(world.attempt("t"), AttemptEnd.SUCCEEDED, result="1")
    _, moved, again, archived = world.turn(done, Stop("t"), Retry("t"), Archive("t"))
    assert (moved.status, moved.changed) == (RunStatus.COMPLETED, False)
    assert (type(again), again.state) == (MoveRefused, "completed")
    assert archived.status is RunStatus.COMPLETED
    assert world.where("t") is WorkState.ARCHIVED


def test_at_its_fixed_point_a_turn_makes_no_move() -> None:
    world = World(runs_max=2, executions_max=1)
    world.ask(many(5, handler="work"))
    world.advance_until_quiet()
    draft = Draft(world.state, world.now_ms)
    assert world.advance(draft) == Advanced(more=False, wants_slot=True)
    draft.note_flips()
    assert draft.empty
    assert draft.moves == 0


def test_no_more_attempts_begin_than_there_are_slots_and_it_says_that_it_wants_one() -> None:
    world = World(runs_max=9, executions_max=3)
    world.ask(many(9, handler="work"))
    assert (len(world.running), world.advanced.wants_slot) == (3, True)
    world.slots.free = 0
    world.succeed("t0")
    assert (len(world.running), world.advanced.wants_slot) == (2, True)
    world.slots.free = 9
    world.turn()
    assert (len(world.running), world.advanced.wants_slot) == (8, False)


def test_a_node_that_is_due_now_starts_in_this_turn_and_one_that_is_not_waits() -> None:
    world = World()
    world.ask(Submit("task", id="t", nodes=[Node("a", retry=Backoff(base_s=5, factor=1))]))
    world.fail("t")
    due = world.state.next_due_ms()
    assert due is not None
    world.now_ms = due - 1
    world.turn()
    assert world.running == {}
    world.now_ms = due
    world.turn()
    assert len(world.running) == 1


def test_a_clock_that_goes_back_starts_nothing_twice() -> None:
    world = World()
    world.ask(Submit("task", id="t", nodes=[Node("a", retry=Backoff(base_s=5, factor=1))]))
    world.fail("t")
    world.wait(10)
    world.now_ms -= 1_000_000
    world.turn()
    world.fail("t")
    world.wait(10)
    assert world.node("t").attempts == 3
    assert len(world.running) == 1


# --- undoing ------------------------------------------------------------------------------------------------------


def test_a_refused_message_takes_back_its_own_moves_and_no_others() -> None:
    world = World(runs_max=0)
    first, second, third = world.turn(
        Submit("task", id="a", key="k"),
        SubmitMany([Submit("task", id="b"), Submit("task", id="c", depends_on=["nobody"])]),
        Submit("task", id="d", depends_on=["a"]),
    )
    assert isinstance(second, Exception)
    assert (first.seq, third.seq) == (1, 2)
    assert [event.task for event in world.events] == ["a", "d"]
    assert world.stored("SELECT id FROM tasks ORDER BY seq") == [("a",), ("d",)]


def test_a_draft_taken_back_to_its_mark_knows_nothing_of_what_came_after() -> None:
    world = World(runs_max=2)
    world.ask(Submit("task", id="t", nodes=[Node("a"), Node("b")]))
    draft = Draft(world.state, world.now_ms)
    was = snapshot(world)
    mark = draft.mark()
    decide_report(draft, Report(world.attempt("t", "a"), AttemptEnd.SUCCEEDED, result="1"))
    decide_report(draft, Report(world.attempt("t", "b"), AttemptEnd.FAILED, error="E", give_up=True))
    draft.note_submitted("x", "k", "c")
    draft.writes.append(TitleSet(1, "x"))
    world.advance(draft)
    assert draft.mark() != mark
    draft.rollback(mark)
    assert draft.mark() == mark
    assert [*draft.journal, *draft.events, *draft.writes] == []
    assert (draft.results, draft.effects, draft.attempts, draft.contents, draft.keys) == ({}, [], [], {}, {})
    assert snapshot(world) == was
    unit = unit_of(draft)
    assert [*unit.runs, *unit.nodes, *unit.begun, *unit.ended, *unit.events, *unit.writes] == []


def test_what_backs_off_is_due_again_after_the_end_of_its_run_is_undone() -> None:
    world = World()
    world.ask(Submit("task", id="t", nodes=[Node("bad"), Node("rest")], fail_fast=True))
    world.fail("t", "rest")
    due = world.state.next_due_ms()
    assert due is not None
    was = snapshot(world)
    world.turn(Report(world.attempt("t", "bad"), AttemptEnd.FAILED, error="E", give_up=True), commit=False)
    assert snapshot(world) == was
    assert world.state.next_due_ms() == due
    world.now_ms = due
    world.turn()
    assert world.attempts("t", "rest")


MESSAGES: list[Message[object]] = [
    Submit("task", id="new", depends_on=["b"]),
    Stop("a"),
    Rerun("done"),
    Retry("failed"),
    Edit("b", depends_on=["failed"]),
    SetLimits(runs_max=7),
    Pause(),
    Unpause(),
]


def test_a_refused_unit_leaves_memory_as_it_was_and_the_same_turn_can_be_made_again() -> None:
    world = World(runs_max=2)
    watch(world)
    for task in ("done", "failed", "a"):
        world.ask(Submit("task", id=task, handler="work"))
    world.ask(Submit("task", id="b", handler="work", depends_on=["a"]))
    world.succeed("done")
    world.give_up("failed")
    world.look(MESSAGES)
    world.look(MESSAGES)
    was = snapshot(world)
    world.turn(*MESSAGES, commit=False)
    assert snapshot(world) == was
    world.turn(*MESSAGES)
    check_against_file(world)
    world.check_tables()


# --- the unit -----------------------------------------------------------------------------------------------------


def test_runs_that_change_slots_within_one_turn_do_not_meet_in_one() -> None:
    world = World(runs_max=2, executions_max=0)
    watch(world)
    world.ask(Submit("task", id="a", handler="work", priority=2))
    world.ask(Submit("task", id="b", handler="work", priority=1))
    assert world.state.slots == {1: "a", 2: "b"}
    world.turn(Stop("a"), Stop("b"), Retry("a"), Retry("b"))
    assert world.state.slots == {1: "b", 2: "a"}
    assert world.stored("SELECT seq, slot FROM runs ORDER BY seq") == [(1, 2), (2, 1)]
    world.check_tables()


def test_a_run_that_comes_back_within_one_turn_passes_the_limit_that_is_then_in_force() -> None:
    world = World(runs_max=3, executions_max=0)
    watch(world)
    for task in "abc":
        world.ask(Submit("task", id=task, handler="work"))
    world.turn(SetLimits(runs_max=1), Stop("a"), Retry("a"), Stop("b"), Retry("b"), Stop("c"), Retry("c"))
    assert world.state.slots == {1: "a"}
    world.check_tables()


def test_a_task_that_is_submitted_edited_started_and_stopped_in_one_turn_is_written_once_as_it_ended() -> (
    None
):
    world = World(runs_max=0)
    world.turn(
        Submit("task", id="t", nodes=[Node("a", payload=1)], payload="p"),
        Edit("t", title="new", payload="q", nodes=[Node("b", payload=2)], depends_on=[]),
        Stop("t"),
        Retry("t"),
        Rerun("t"),
        SetLimits(runs_max=1),
    )
    assert world.stored("SELECT title, payload, node_payloads FROM tasks") == [("new", '"q"', "[2]")]
    assert world.stored("SELECT number, status FROM runs") == [(1, "running")]
    assert world.stored("SELECT pos, payload FROM nodes") == [(0, "2")]
    world.check_tables()


def test_two_runs_of_one_task_in_one_turn_are_both_written() -> None:
    world = World(runs_max=1)
    world.ask(Submit("task", id="t", handler="work"))
    world.turn(Report(world.attempt("t"), AttemptEnd.SUCCEEDED, result="1"))
    world.turn(Rerun("t"), Stop("t"), Rerun("t"))
    assert world.stored("SELECT number, status FROM runs ORDER BY number") == [
        *((1, "completed"), (2, "stopped"), (3, "running"))
    ]
    world.check_tables()


def test_an_actor_that_was_replaced_can_write_nothing() -> None:
    world = World()
    world.conn.execute("UPDATE companies SET epoch = epoch + 1")
    before = world.stored("SELECT * FROM companies")
    with pytest.raises(StaleEpoch):
        world.ask(Submit("task"))
    assert world.stored("SELECT * FROM companies") == before
    assert world.stored("SELECT count(*) FROM tasks") == [(0,)]


def test_an_admission_before_its_upstreams_are_done_is_refused_by_the_tables() -> None:
    world = World(runs_max=0)
    world.ask(Submit("up", id="up", handler="work"))
    world.ask(Submit("task", id="t", handler="work", depends_on=["up"]))
    world.state.entries["t"].unfinished = 0
    world.state.refresh(world.state.entries["t"], cause="t")
    draft = Draft(world.state, world.now_ms)
    draft.company(runs_max=2)
    world.advance(draft)
    unit = unit_of(draft)
    with pytest.raises(UnitRefused, match="upstream 'up' is not completed"), writing(world.conn):
        carry_out(world.conn, unit)
    assert world.stored("SELECT DISTINCT status FROM runs") == [("queued",)]


def test_memory_lets_go_of_what_is_settled_and_of_what_only_that_needed() -> None:
    world = World(runs_max=1)
    world.ask(Submit("task", id="a", handler="work"))
    world.ask(Submit("task", id="b", handler="work", depends_on=["a"]))
    world.ask(Submit("task", id="c", handler="work", depends_on=["b"]))
    world.give_up("a")
    assert world.state.entries.keys() == {"a", "b", "c"}
    world.ask(Stop("b"))
    assert world.state.entries.keys() == {"a", "b", "c"}
    world.ask(Stop("c"))
    assert world.state.entries == {}
    assert (world.state.dependents, world.state.missing, world.state.slots) == ({}, set(), {})
