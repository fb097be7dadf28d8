"""The law of `Explain`: it is the code that dispatches, so a task that nothing explains is a task that starts."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from actors.core.advance import advance
from actors.core.draft import Draft
from actors.core.gates import OPEN, Live
from actors.core.reports import Report
from actors.core.work_state import closed_gates
from actors.messages import (
    DefineGraph,
    Message,
    Pause,
    SetBudget,
    SetLimits,
    Start,
    StartNow,
    Submit,
    Unpause,
)
from actors.messages.views import Reason, ReasonKind, WorkState
from storage.values import changed

from . import oracle
from .agreement import snapshot
from .examples import examples
from .walking import GRAPHS, Walk
from .world import ExecutionSlots, World

LIVES = (
    OPEN,
    OPEN,
    OPEN,
    OPEN,
    Live(draining=True),
    Live(parked="crashed"),
    Live(store_down="full"),
    Live(no_host=True),
    Live(abandoned=("acme/a/1/n/1",)),
)


@given(st.randoms(use_true_random=False))
@examples(30)
def test_nothing_is_closed_exactly_for_the_tasks_that_advance_admits_before_any_other_move(
    rng: Random,
) -> None:
    walk = Walk(rng, graphs=GRAPHS[1:])  # a run without nodes ends in the move after its admission
    walk.world.watchers.clear()
    walk.world.turn(DefineGraph("g", GRAPHS[2]), walk.everything(), advancing=False)
    for _ in range(5):
        check_the_law(walk.world, walk.pick(LIVES))
        contents: list[Report | Message[Any]] = [*walk.some_outcomes(2), walk.message(), walk.message()]
        walk.world.turn(*contents, advancing=walk.maybe())
        walk.world.turn(walk.message(), advancing=False)


def check_the_law(world: World, live: Live) -> None:
    state = world.state
    unexplained = {
        task for task, entry in state.entries.items() if entry.queued and not closed_gates(state, entry, live)
    }
    before = snapshot(world)
    draft = Draft(state, world.now_ms)
    if state.ended or state.reached:
        return  # what is over ends first; only then the question is asked
    advance(draft, ExecutionSlots(free=0), live, host_id=1)
    kinds = [event.kind for event in draft.events]
    assert set(kinds) <= {"run.admitted", "gate.reached", "run.halted"}
    admitted = [event.task for event in draft.events if event.kind == "run.admitted"]
    assert set(admitted[: len(unexplained)]) == unexplained
    # one that halts at once, for a person, gives its slot to whoever is next
    assert len(admitted) <= len(unexplained) + kinds.count("run.halted")
    facts = oracle.facts_in(world.conn, state, world.handlers)
    for change in reversed(draft.changes):
        state.undo(change)
    assert snapshot(world) == before
    assert facts.company == state.company


def test_every_closed_gate_is_named_in_the_order_in_which_it_is_asked() -> None:
    world = World(runs_max=1, handlers={"work"})
    world.ask(Submit("holder", id="holder", handler="work"))
    world.ask(Submit("first", id="first", handler="work"))
    world.ask(Submit("dead", id="dead", handler="work", tries_max=1, mode="manual"))
    world.ask(Submit("late", id="late", handler="work", mode="manual"))
    later = datetime(2026, 1, 1, tzinfo=UTC)
    world.ask(
        Submit(
            "task",
            id="t",
            handler="work",
            mode="manual",
            depends_on=["dead", "late"],
            not_before=later,
            budget=0,
        )
    )
    world.ask(SetBudget(0))
    world.ask(Pause())
    world.plant("UPDATE runs SET status = 'stopped', settled_ms = 5 WHERE seq = 3")
    world.live = Live(no_host=True, draining=True, parked="crashed", store_down="full", abandoned=("a",))
    assert world.gates("t") == [
        ReasonKind.UPSTREAM_STOPPED,
        ReasonKind.UPSTREAM_UNFINISHED,
        ReasonKind.NOT_BEFORE,
        ReasonKind.MANUAL,
        ReasonKind.BUDGET,
        ReasonKind.NO_HOST,
        ReasonKind.DRAINING,
        ReasonKind.COMPANY_PARKED,
        ReasonKind.ABANDONED_LIMIT,
        ReasonKind.STORE_UNAVAILABLE,
        ReasonKind.COMPANY_PAUSED,
        ReasonKind.RUN_SLOTS,
        ReasonKind.BUDGET,
    ]


def test_a_task_behind_others_is_told_how_many_and_the_first_ten() -> None:
    world = World(runs_max=0)
    for number in range(1, 14):
        world.ask(Submit("task", id=f"t{number}", handler="work"))
    assert world.gates("t1") == [ReasonKind.RUN_SLOTS]
    assert world.reason("t13", ReasonKind.TASKS_AHEAD) == Reason(
        ReasonKind.TASKS_AHEAD, tasks=tuple(f"t{number}" for number in range(1, 11)), count=12
    )


def test_the_line_is_closed_only_for_those_that_free_slots_cannot_reach() -> None:
    world = World(runs_max=0)
    for task in "abc":
        world.ask(Submit("task", id=task, handler="work"))
    world.turn(SetLimits(runs_max=2), advancing=False)
    assert [world.gates(task) for task in "abc"] == [[], [], [ReasonKind.TASKS_AHEAD]]
    world.turn()
    assert [world.where(task) for task in "abc"] == [WorkState.RUNNING, WorkState.RUNNING, WorkState.QUEUED]


def test_full_run_slots_name_their_holders_and_the_numbers() -> None:
    world = World(runs_max=2)
    for task in "abc":
        world.ask(Submit("task", id=task, handler="work"))
    assert world.reasons("c") == (
        Reason(ReasonKind.RUN_SLOTS, tasks=("a", "b"), count=2, numbers={"active": 2, "runs_max": 2}),
    )


def test_a_held_task_or_a_blocked_one_does_not_hold_up_the_line() -> None:
    world = World(runs_max=1)
    world.ask(SetLimits(runs_max=0))
    world.ask(Submit("held", id="held", handler="work", mode="manual", priority=1))
    world.ask(Submit("waits", id="waits", handler="work", depends_on=["held"], priority=1))
    world.ask(Submit("free", id="free", handler="work", priority=3))
    world.ask(SetLimits(runs_max=1))
    assert [world.where(task) for task in ("held", "waits", "free")] == [
        WorkState.HELD,
        WorkState.WAITING,
        WorkState.RUNNING,
    ]


def test_a_pause_is_named_with_its_time_and_lifted_for_the_run_that_was_started_now() -> None:
    world = World(runs_max=1)
    world.ask(Pause())
    since = world.now_ms
    world.now_ms += 7
    world.ask(Submit("a", id="a", handler="work"))
    world.ask(Submit("b", id="b", handler="work", mode="manual"))
    assert world.reasons("a")[0] == Reason(ReasonKind.COMPANY_PAUSED, at_ms=since)
    world.ask(Start("b"))
    assert world.where("b") is WorkState.PAUSED
    world.ask(StartNow("b"))
    assert world.where("b") is WorkState.RUNNING
    assert [key.task for key in world.running] == ["b"]
    world.ask(Unpause())
    world.succeed("b")
    assert world.where("a") is WorkState.RUNNING


@pytest.mark.parametrize(
    ("live", "kind"),
    [
        (Live(draining=True), ReasonKind.DRAINING),
        (Live(parked="crashed"), ReasonKind.COMPANY_PARKED),
        (Live(store_down="full"), ReasonKind.STORE_UNAVAILABLE),
        (Live(abandoned=("a/b/1/n/1",)), ReasonKind.ABANDONED_LIMIT),
        (Live(no_host=True), ReasonKind.NO_HOST),
    ],
)
def test_what_holds_the_whole_host_holds_every_queued_task_and_every_new_attempt(
    live: Live, kind: ReasonKind
) -> None:
    world = World(runs_max=1, executions_max=0)
    world.ask(Submit("a", id="a", handler="work"))
    world.ask(Submit("b", id="b", handler="work"))
    world.slots.free = 5
    world.live = live
    world.advance_until_quiet()
    assert world.running == {}
    assert world.gates("b")[0] is kind
    assert [reason.kind for reason in world.reasons("a")] == [kind]
    world.live = changed(OPEN)
    world.advance_until_quiet()
    assert [key.task for key in world.running] == ["a"]
