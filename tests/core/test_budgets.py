"""Budgets: what an attempt reserves, what is booked of it, who waits, who halts, and who goes on by itself."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from actors.core.effects import AttemptKey
from actors.core.inputs import Report, Spending
from actors.errors import InvalidMessage, MoveRefused
from actors.messages import (
    Approve,
    BudgetSettings,
    Edit,
    Gate,
    Next,
    Node,
    Rerun,
    Retry,
    SendBack,
    SetBudget,
    SetLimits,
    SetSchedule,
    StartNow,
    Stop,
    Submit,
)
from actors.messages.views import Reason, ReasonKind, WorkState
from storage.contract.recovery import Quarantine
from storage.records import AttemptEnd, NodeStatus, RunStatus
from storage.sqlite.engine import carry_out

from .agreement import check_against_file, snapshot, watch
from .world import World, writing


def a_world(limit: int | None = None, *, runs_max: int = 10) -> World:
    world = World(runs_max=runs_max, handlers={"work"})
    watch(world)
    if limit is not None:
        world.ask(SetBudget(limit))
    return world


def submit(world: World, task: str, estimate: int = 0, **fields: Any) -> None:
    world.ask(Submit("task", id=task, nodes=[Node("n", "work", estimate=estimate)], **fields))


def account(world: World) -> tuple[int, int]:
    """What the company has spent and reserved; the tables agree."""
    check_against_file(world)
    world.check_tables()
    return world.state.company.spent, world.state.company.reserved


def booked(world: World) -> list[tuple[Any, ...]]:
    """Spent and assumed, attempt by attempt."""
    return world.stored("SELECT spent, assumed FROM attempts ORDER BY seq, run, pos, number")


def numbers(spent: int, reserved: int, estimate: int, limit: int) -> dict[str, int]:
    return {"spent": spent, "reserved": reserved, "estimate": estimate, "limit": limit}


# --- starting ---------------------------------------------------------------------------------------------------


def test_an_attempt_starts_only_if_spent_reserved_and_its_estimate_are_within_the_limit() -> None:
    world = a_world(1000)
    for task in "abcd":
        submit(world, task, 300)
    assert [key.task for key in world.running] == ["a", "b", "c"]
    assert account(world) == (0, 900)
    assert world.where("d") is WorkState.QUEUED
    assert world.reasons("d") == (
        Reason(ReasonKind.BUDGET, numbers=numbers(0, 900, 300, 1000), text="company"),
    )


@pytest.mark.parametrize(("limit", "starts"), [(299, False), (300, True), (301, True)])
def test_the_limit_itself_may_be_reached(limit: int, starts: bool) -> None:
    world = a_world(limit)
    submit(world, "a", 300)
    assert bool(world.running) is starts


@pytest.mark.parametrize(("limit", "starts"), [(0, False), (1, True), (None, True)])
def test_without_an_estimate_one_unit_has_to_be_left_and_no_limit_is_not_a_limit_of_nothing(
    limit: int | None, starts: bool
) -> None:
    world = a_world(limit)
    submit(world, "a")
    assert bool(world.running) is starts
    world = a_world()
    submit(world, "a", budget=limit)
    assert bool(world.running) is starts


def test_what_starts_nothing_needs_no_budget() -> None:
    world = a_world(0)
    world.ask(Submit("milestone", id="a"))
    world.ask(Submit("gate first", id="b", nodes=[Gate("g"), Node("n", "work", after=["g"])]))
    assert world.run("a").status is RunStatus.COMPLETED
    assert world.run("b").reason == "approval"


def test_who_does_not_fit_holds_up_nobody_who_needs_less() -> None:
    world = a_world(1000)
    submit(world, "large", 5000, priority=1)
    submit(world, "small", 10, priority=3)
    assert [key.task for key in world.running] == ["small"]
    submit(world, "next", 990)
    assert [key.task for key in world.running] == ["small", "next"]


def test_the_task_s_own_budget_holds_beside_the_company_s() -> None:
    world = a_world(1000)
    submit(world, "a", 300, budget=200)
    submit(world, "b", 300, budget=300)
    assert [key.task for key in world.running] == ["b"]
    assert world.reasons("a") == (Reason(ReasonKind.BUDGET, numbers=numbers(0, 0, 300, 200), text="task"),)
    world.ask(Edit("a", budget=300))
    assert [key.task for key in world.running] == ["b", "a"]
    assert world.entry("a").task.reserved == 300


def test_nothing_opens_the_budget_also_not_a_person_who_wants_it_now() -> None:
    world = a_world(0)
    submit(world, "a")
    world.ask(StartNow("a"))
    assert world.running == {}
    assert world.gates("a") == [ReasonKind.BUDGET]


def test_a_task_that_has_not_started_opens_by_itself_when_the_limit_is_raised_or_taken_away() -> None:
    for limit in (300, None):
        world = a_world(0)
        submit(world, "a", 300)
        assert world.ask(SetBudget(limit)) == BudgetSettings(limit, 0, 0)
        assert [key.task for key in world.running] == ["a"]
        account(world)


def test_a_task_that_has_not_started_opens_by_itself_when_less_was_spent_than_reserved() -> None:
    world = a_world(500)
    submit(world, "a", 300)
    submit(world, "b", 300)
    world.succeed("a", spent=200)
    assert [key.task for key in world.running] == ["b"]
    assert account(world) == (200, 300)


def test_the_same_limit_again_changes_nothing() -> None:
    world = a_world(5)
    before = len(world.events)
    assert world.ask(SetBudget(5)) == BudgetSettings(5, 0, 0, changed=False)
    assert len(world.events) == before


def test_a_node_that_does_not_fit_waits_for_what_others_have_reserved() -> None:
    """Other nodes of its run that need less go first."""
    world = a_world(1000)
    submit(world, "other", 600)
    nodes = [Node("large", "work", estimate=500), Node("small", "work", estimate=100)]
    world.ask(Submit("task", id="t", nodes=nodes))
    assert [effect.spec.name for effect in world.running.values()] == ["n", "small"]
    assert world.reason("t", ReasonKind.BUDGET) == Reason(
        ReasonKind.BUDGET, nodes=("large",), count=1, numbers=numbers(0, 700, 500, 1000), text="company"
    )
    world.succeed("t", "small", spent=100)
    assert world.run("t").status is RunStatus.RUNNING
    world.succeed("other", spent=400)
    assert [effect.spec.name for effect in world.running.values()] == ["large"]
    assert account(world) == (500, 500)


# --- booking ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "end", [end for end in AttemptEnd if end not in (AttemptEnd.LOST, AttemptEnd.SUPERSEDED)]
)
def test_every_end_books_what_was_spent_and_frees_the_reservation(end: AttemptEnd) -> None:
    world = a_world(1000)
    submit(world, "a", 300, tries_max=1)
    world.ask(SetLimits(runs_max=0))
    if end is AttemptEnd.STOPPED:
        world.ask(Stop("a"))
    world.turn(Report(world.attempt("a"), end, spent=250), advancing=False)
    assert account(world) == (250, 0)
    assert (world.entry("a").task.spent, world.entry("a").task.reserved) == (250, 0)
    assert booked(world) == [(250, 0)]


def test_a_superseded_attempt_s_spend_is_booked() -> None:
    world = a_world(1000)
    nodes = [Node("draft", "work"), Node("check", "work", after=["draft"], estimate=10)]
    world.ask(Submit("task", id="t", nodes=nodes))
    world.succeed("t", "draft", spent=1)
    world.ask(SendBack("t", "draft", "again"))
    world.end("t", AttemptEnd.SUCCEEDED, "check", result="1", spent=40)
    assert account(world)[0] == 41


def test_what_is_said_while_it_runs_is_booked_at_once_and_comes_off_its_reservation() -> None:
    world = a_world(1000)
    submit(world, "a", 300)
    world.spends("a", 100)
    assert account(world) == (100, 200)
    world.spends("a", 400)
    assert account(world) == (400, 0)
    world.spends("a", 400)
    world.reload()
    world.succeed("a", spent=410)
    assert account(world) == (410, 0)
    assert [event.data["added"] for event in world.told("attempt.spent")] == [100, 300, 10]


@pytest.mark.parametrize(("known", "assumed"), [(0, 300), (100, 300), (400, 400)])
def test_the_death_of_the_process_books_what_is_known_or_the_estimate_whichever_is_more(
    known: int, assumed: int
) -> None:
    world = a_world(1000)
    submit(world, "a", 300)
    if known:
        world.spends("a", known)
    world.ask(SetBudget(0))
    world.reload()
    world.turn(Report(world.attempt("a"), AttemptEnd.LOST))
    assert account(world) == (assumed, 0)
    assert booked(world) == [(assumed, 1)]


def test_a_late_report_books_its_spend_and_changes_nothing_else() -> None:
    world = a_world(1000)
    submit(world, "a", 300)
    key = world.attempt("a")
    world.end("a", AttemptEnd.SUCCEEDED, result="1", spent=100, node="n")
    world.ask(SetLimits(runs_max=3))  # the task is not in memory any more
    world.turn(Report(key, AttemptEnd.FAILED, spent=150, node="n"))
    assert account(world) == (150, 0)
    world.turn(Report(key, AttemptEnd.FAILED, spent=150, node="n"), Spending(key, 170, "n"))
    assert account(world) == (170, 0)
    assert world.entry("a").task.spent == 170
    assert world.run("a").status is RunStatus.COMPLETED
    assert booked(world) == [(170, 0)]


def test_an_end_and_what_is_said_after_it_in_one_turn_are_booked_once() -> None:
    world = a_world(1000)
    submit(world, "a", 300)
    key = world.attempt("a")
    world.turn(
        Report(key, AttemptEnd.SUCCEEDED, result="1", spent=100, node="n"),
        Spending(key, 100, "n"),
        Spending(key, 130, "n"),
    )
    assert account(world) == (130, 0)


ABANDONED: dict[str, Any] = {"abandoned_after_s": 5.0, "error": "deaf", "give_up": True, "node": "n"}


def test_an_attempt_that_is_left_behind_keeps_its_estimate_booked_until_it_says_what_it_was() -> None:
    """It lives and may spend all of it yet: nobody else gets that, also if the host dies before it returns."""
    world = a_world(1000)
    submit(world, "a", 300)
    submit(world, "b", 750)
    key = world.attempt("a")
    world.turn(Report(key, AttemptEnd.TIMED_OUT, spent=50, **ABANDONED))
    assert account(world) == (300, 0)
    assert booked(world) == [(300, 1)]
    assert world.attempts("b") == []
    world.reload()
    world.turn(Spending(key, 200, "n"))
    assert account(world) == (300, 0), "it may spend more"
    world.turn(Spending(key, 310, "n"))
    assert account(world) == (310, 0)
    assert booked(world) == [(310, 1)]
    world.turn(Report(key, AttemptEnd.SUCCEEDED, result="1", spent=320, node="n"))
    assert account(world) == (320, 0)
    assert booked(world) == [(320, 0)]


def test_an_attempt_that_was_left_behind_gives_back_what_it_has_not_spent_when_it_returns() -> None:
    world = a_world(1000)
    submit(world, "a", 300)
    submit(world, "b", 750)
    key = world.attempt("a")
    world.turn(Report(key, AttemptEnd.TIMED_OUT, spent=50, **ABANDONED), Spending(key, 60, "n"))
    assert account(world) == (300, 0)
    assert booked(world) == [(300, 1)]
    world.turn(Report(key, AttemptEnd.SUCCEEDED, result="1", spent=70, node="n"))
    assert account(world) == (70, 750)
    assert booked(world)[0] == (70, 0)
    assert len(world.attempts("b")) == 1


def test_a_quarantine_books_the_estimate_until_the_attempt_says_what_it_was() -> None:
    world = a_world(1000)
    submit(world, "a", 300)
    world.spends("a", 50)
    key = world.attempt("a")
    with writing(world.conn):
        carry_out(
            world.conn, Quarantine(world.state.company.claim, "a", key.seq, "bad row", None, world.now_ms)
        )
    world.reload()
    assert account(world) == (300, 0)
    assert booked(world) == [(300, 1)]
    world.turn(Report(key, AttemptEnd.SUCCEEDED, result="1", spent=70, node="n"))
    assert account(world) == (70, 0)
    assert booked(world) == [(70, 0)]


def test_a_refused_turn_leaves_the_accounts_as_they_were() -> None:
    world = a_world(1000)
    submit(world, "a", 300)
    before = snapshot(world)
    report = Report(world.attempt("a"), AttemptEnd.SUCCEEDED, result="1", spent=5)
    world.turn(report, SetBudget(7), commit=False)
    assert snapshot(world) == before


def test_without_limits_estimates_and_spends_nothing_more_is_written_than_before() -> None:
    world = a_world()
    world.ask(SetLimits(runs_max=5))
    statements: list[str] = []
    world.conn.set_trace_callback(statements.append)
    submit(world, "a")
    world.conn.set_trace_callback(None)
    assert (
        sum(one.startswith("UPDATE companies SET runs_max") for one in statements) == 1
    )  # the task's number
    statements.clear()
    report = Report(world.attempt("a"), AttemptEnd.SUCCEEDED, result="1")
    world.conn.set_trace_callback(statements.append)
    world.report(report)
    world.conn.set_trace_callback(None)
    assert not [one for one in statements if one.startswith(("UPDATE companies SET runs", "UPDATE tasks"))]
    assert world.told("attempt.spent") == []


# --- halting ----------------------------------------------------------------------------------------------------


def short_run(world: World, **fields: Any) -> None:
    """One node has spent so much that the next does not fit."""
    nodes = [Node("one", "work", estimate=50), Node("two", "work", after=["one"], estimate=50)]
    world.ask(Submit("task", id="t", nodes=nodes, **fields))
    world.succeed("t", "one", spent=80)


def test_a_run_that_what_is_spent_keeps_from_going_on_halts_and_frees_its_slot() -> None:
    world = a_world(100, runs_max=1)
    world.ask(Submit("needs it", id="user", handler="work", depends_on=[]))
    world.succeed("user")
    short_run(world)
    world.ask(Submit("needs it", id="u", handler="work", depends_on=["t"]))
    run = world.run("t")
    assert (run.status, run.reason, run.slot) == (RunStatus.HALTED, "budget", 0)
    assert world.reasons("t") == (
        Reason(
            ReasonKind.BUDGET,
            nodes=("two",),
            count=1,
            numbers=numbers(80, 0, 50, 100),
            at_ms=world.now_ms,
            text="company",
        ),
    )
    assert world.where("u") is WorkState.BLOCKED
    assert world.gates("u")[0] is ReasonKind.UPSTREAM_HALTED
    (event,) = world.told("run.halted")
    assert (event.reason, event.data) == ("budget", {"count": 1, "nodes": ["two"]})
    account(world)


def test_a_halted_run_goes_on_by_retry_and_only_when_the_budget_is_no_longer_short() -> None:
    world = a_world(100)
    short_run(world)
    for message in (Retry("t"), StartNow("t")):
        with pytest.raises(MoveRefused, match="80 spent and 50 estimated, of 100: use SetBudget") as refusal:
            world.ask(message)
        assert refusal.value.advice == ("SetBudget",)
    world.ask(SetBudget(130))
    assert world.run("t").status is RunStatus.HALTED
    world.ask(Retry("t"))
    assert [effect.spec.name for effect in world.running.values()] == ["two"]
    world.succeed("t", spent=50)
    assert world.run("t").status is RunStatus.COMPLETED
    assert account(world) == (130, 0)


def test_a_task_that_has_used_up_its_own_budget_needs_another_one() -> None:
    world = a_world()
    short_run(world, budget=100)
    assert world.reasons("t")[0].text == "task"
    with pytest.raises(MoveRefused, match="its own is still short: 80 spent and 50 estimated, of 100"):
        world.ask(Retry("t"))
    world.ask(Edit("t", budget=None))
    world.ask(Retry("t"))
    assert len(world.running) == 1


def test_a_retry_while_others_have_reserved_the_rest_is_queued_and_waits() -> None:
    world = a_world(100)
    short_run(world)
    world.ask(SetBudget(130))
    submit(world, "other", 40)
    world.ask(Retry("t"))
    assert world.gates("t") == [ReasonKind.BUDGET]
    world.succeed("other", spent=0)
    assert [effect.spec.name for effect in world.running.values()] == ["two"]


def test_a_run_does_not_halt_while_something_of_it_lives_may_start_or_backs_off() -> None:
    world = a_world(100)
    nodes = [Node("one", "work"), Node("two", "work"), Node("big", "work", after=["one"], estimate=90)]
    world.ask(Submit("task", id="t", nodes=nodes))
    world.succeed("t", "one", spent=50)
    assert world.run("t").status is RunStatus.RUNNING
    world.fail("t", "two")
    assert world.run("t").status is RunStatus.RUNNING
    world.wait(60)
    world.succeed("t", "two")
    assert world.run("t").reason == "budget"
    account(world)


def test_a_run_that_is_short_of_budget_names_its_gate_too_and_a_step_needs_budget_once_it_is_let_through() -> (
    None
):
    world = a_world(100)
    nodes: list[Node | Gate] = [
        Node("one", "work"),
        Gate("gate", after=["one"]),
        Node("two", "work", after=["one"], estimate=90),
    ]
    world.ask(Submit("task", id="t", nodes=nodes))
    world.succeed("t", "one", spent=50)
    assert world.run("t").reason == "budget"
    assert [reason.kind for reason in world.reasons("t")] == [ReasonKind.BUDGET, ReasonKind.APPROVAL]
    world.ask(Submit("steps", id="s", mode="step", nodes=[Node("one", "work", estimate=90)]))
    assert world.run("s").reason == "step"
    world.ask(Next("s"))
    assert world.gates("s") == [ReasonKind.BUDGET]
    world.ask(SetBudget(140))
    assert [key.task for key in world.running] == ["s"]


@pytest.mark.parametrize(("estimate", "status"), [(50, RunStatus.RUNNING), (51, RunStatus.HALTED)])
def test_a_gate_is_answered_while_another_branch_is_short_and_the_run_goes_on_if_that_leads_to_anything(
    estimate: int, status: RunStatus
) -> None:
    world = a_world(100)
    nodes: list[Node | Gate] = [
        Node("one", "work"),
        Node("dear", "work", after=["one"], estimate=90),
        Gate("gate", after=["one"]),
        Node("behind", "work", after=["gate"], estimate=estimate),
    ]
    world.ask(Submit("task", id="t", nodes=nodes))
    world.succeed("t", "one", spent=50)
    assert world.run("t").reason == "budget"
    world.ask(Approve("t", "gate"))
    assert world.node("t", 2).status is NodeStatus.SUCCEEDED
    assert world.run("t").status is status
    if status is RunStatus.HALTED:
        world.ask(SetBudget(101))
        world.ask(Retry("t"))
    assert world.attempts("t", "behind")
    account(world)


def test_a_new_run_of_a_task_goes_on_with_the_same_account() -> None:
    world = a_world()
    submit(world, "a", budget=100)
    world.succeed("a", spent=100)
    world.ask(Rerun("a"))
    assert world.gates("a") == [ReasonKind.BUDGET]


# --- the warning ------------------------------------------------------------------------------------------------


def test_four_fifths_are_said_once_for_each_limit() -> None:
    world = a_world(1000)
    submit(world, "a")
    for spent in (799, 800, 900):
        world.spends("a", spent)
    (event,) = world.told("budget.warned")
    assert (event.task, event.data) == (None, {"limit": 1000, "spent": 800, "reserved": 0})
    world.ask(SetBudget(2000))
    world.ask(SetBudget(1100))
    assert [event.data["limit"] for event in world.told("budget.warned")] == [1000, 1100]
    world.ask(Edit("a", budget=901))
    assert [event.task for event in world.told("budget.warned")] == [None, None, "a"]


# --- concurrency ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_the_limit_is_exceeded_by_no_more_than_live_attempts_spend_beyond_their_estimates(seed: int) -> None:
    """At random: any number live at once, spend as they like, say it or not, end well or badly."""
    rng = Random(seed)
    world = World(runs_max=20)
    world.ask(SetBudget(2_000))
    said: dict[AttemptKey, int] = {}
    excess: dict[AttemptKey, int] = {}
    for number in range(60):
        estimate = rng.choice([0, 50, 100, 300])
        submit(world, f"t{number}", estimate, tries_max=2)
        for key in list(world.running):
            said[key] = said.get(key, 0) + rng.choice([0, 20, 60])
            excess[key] = max(0, said[key] - world.running[key].spec.estimate)
            turn = rng.choice(["says", "nothing", "ends", "dies"])
            if turn == "says":
                world.turn(Spending(key, said[key]))
            elif turn == "ends":
                world.report(Report(key, AttemptEnd.SUCCEEDED, result="1", spent=said[key]))
            elif turn == "dies":
                world.report(Report(key, AttemptEnd.LOST))
        company = world.state.company
        assert company.spent + company.reserved <= 2_000 + sum(excess.values())
    assert world.state.company.spent > 1_000
    world.check_tables()


@pytest.mark.parametrize("limit", [-1, 1.5, True, "5", 9 * 10**18 + 1])
def test_a_budget_is_a_whole_number_of_units_or_nothing(limit: Any) -> None:
    for build in (
        lambda: SetBudget(limit),
        lambda: Submit("x", budget=limit),
        lambda: Node("n", estimate=limit),
        lambda: Edit("t", budget=limit),
    ):
        with pytest.raises(InvalidMessage):
            build()


def test_an_account_counts_as_far_as_the_file_can_and_a_limit_goes_as_far() -> None:
    world = a_world()
    submit(world, "a", budget=9 * 10**18)
    for table in ("companies", "tasks"):
        world.plant(f"UPDATE {table} SET spent = 8999999999999999999")
    world.succeed("a", spent=10**15)
    assert (world.state.company.spent, world.entry("a").task.spent) == (9 * 10**18, 9 * 10**18)
    assert world.ask(SetBudget(9 * 10**18)).limit == 9 * 10**18


def test_the_tasks_of_a_schedule_have_its_budget_and_estimates() -> None:
    world = a_world()
    task = Submit("t", nodes=[Node("n", "work", estimate=7)], budget=70)
    world.ask(SetSchedule("s", every=10, task=task))
    world.wait(10)
    assert world.entry("@1").task.budget == 70
    assert account(world) == (0, 7)
