"""Where a task stands: total, one state for every combination of facts, and a reason wherever one is owed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import attrs

from actors.core.entry import Entry
from actors.core.gates import OPEN, Live
from actors.core.shape import shape_text
from actors.core.state import CompanyState
from actors.core.work_state import explain, positions, work_state
from actors.messages import Archive, DefineGraph, Edit, Node, Pause, Retry, Stop, Submit, SubmitMany
from actors.messages.views import BLOCKING, Reason, ReasonKind, WorkState
from storage.records import (
    AttemptEnd,
    CompanyRecord,
    Mode,
    NodeRecord,
    NodeStatus,
    RunRecord,
    RunStatus,
    TaskRecord,
)

from . import oracle
from .agreement import standing
from .world import World

R = ReasonKind
REASONS: dict[WorkState, set[ReasonKind]] = {
    WorkState.ARCHIVED: {R.ARCHIVED},
    WorkState.COMPLETED: {R.COMPLETED},
    WorkState.FAILED: {R.FAILED},
    WorkState.STOPPED: {R.STOPPED},
    WorkState.QUARANTINED: {R.QUARANTINED},
    WorkState.RUNNING: {
        *(R.EXECUTING, R.BACKING_OFF, R.NODE_READY, R.EXECUTION_SLOT, R.HANDLER_MISSING, R.ENDING),
        *(R.COMPANY_PAUSED, R.COMPANY_PARKED, R.DRAINING, R.STORE_UNAVAILABLE, R.NO_HOST),
        *(R.APPROVAL, R.STEP, R.BUDGET),
    },
    WorkState.STOPPING: {R.EXECUTING, R.ENDING},
    WorkState.HALTED: {R.HALTED, R.APPROVAL, R.STEP, R.BUDGET},
    WorkState.BLOCKED: {*BLOCKING},
    WorkState.WAITING: {R.UPSTREAM_UNFINISHED},
    WorkState.SCHEDULED: {R.NOT_BEFORE},
    WorkState.HELD: {R.MANUAL},
    WorkState.PAUSED: {R.COMPANY_PAUSED, R.COMPANY_PARKED, R.DRAINING, R.STORE_UNAVAILABLE, R.NO_HOST},
    WorkState.QUEUED: {R.NO_HOST, R.RUN_SLOTS, R.TASKS_AHEAD, R.BUDGET},
}
"""What the first reason of each state may be."""

UPSTREAMS = {"none": (), "done": ("done",), "going": ("going",), "dead": ("dead",), "gone": ("gone",)}
NODES = (Node("n", "known"), Node("m", "known", after=["n"]))
LIVES = (Live(no_host=True), Live(draining=True), Live(parked="p"), Live(store_down="s"))
LIVES_OF_NODES = (OPEN, Live(slots_free=False, slot_holders=("x/y/1/n/1",)), Live(draining=True))
STATUSES: tuple[RunStatus | None, ...] = (None, *RunStatus)


@attrs.frozen
class Combination:
    status: RunStatus | None
    admitted: bool
    archived: bool
    quarantined: bool
    manual: bool
    upstreams: str
    handler: str
    company: str
    early: bool


def combinations() -> Iterator[Combination]:
    booleans = (False, True)
    for made in product(
        *(STATUSES, booleans, booleans, booleans, booleans),
        *(UPSTREAMS, ("known", "unknown"), ("open", "paused", "paused, but not for this one", "full")),
        booleans,
    ):
        one = Combination(*made)
        if one.status in (RunStatus.QUEUED, RunStatus.STOPPED, RunStatus.FAILED, None) or one.admitted:
            yield one


def company_of(one: Combination) -> CompanyState:
    paused, front = one.company.startswith("paused"), one.company.endswith("this one")
    runs_max = 0 if one.company == "full" else 2
    company = CompanyRecord(1, "acme", 1, runs_max=runs_max, paused_ms=5 if paused else None, task_seq=9)
    state = CompanyState(company, frozenset({"known"}))
    state.note_missing("gone")
    state.load(
        [
            an_entry(TaskRecord(1, "going", 2, 0, mode=Mode.MANUAL), RunStatus.QUEUED),
            an_entry(TaskRecord(2, "dead", 2, 0), RunStatus.FAILED),
            an_entry(TaskRecord(3, "done", 2, 0), RunStatus.COMPLETED),
        ]
    )
    entry = Entry(
        TaskRecord(
            4,
            "t",
            2,
            0,
            mode=Mode.MANUAL if one.manual else Mode.AUTO,
            depends_on=UPSTREAMS[one.upstreams],
            shape=shape_text([Node("n", one.handler)]),
            archived_ms=7 if one.archived else None,
            not_before_ms=8 if one.early else None,
        )
    )
    if one.status is not None:
        entry.run = a_run(4, one.status, admitted=one.admitted, front=int(front))
        if one.admitted:
            state.set_nodes(entry, [NodeRecord(4, 1, 0, shape_text([Node("n", one.handler)])[1:-1])])
    entry.quarantined = "why" if one.quarantined else None
    state.load([entry])
    return state


def an_entry(task: TaskRecord, status: RunStatus) -> Entry:
    entry = Entry(task)
    entry.run = a_run(task.seq, status)
    return entry


def a_run(seq: int, status: RunStatus, *, admitted: bool = False, front: int = 0) -> RunRecord:
    return RunRecord(
        seq,
        1,
        status,
        created_ms=0,
        slot=1 if status.active else 0,
        admitted_ms=3 if admitted or status.active else None,
        settled_ms=4 if status.settled else None,
        front=front,
    )


def test_every_combination_of_facts_gives_one_state_and_a_reason_that_belongs_to_it() -> None:
    seen: set[WorkState] = set()
    for number, one in enumerate(combinations()):
        state = company_of(one)
        entry = state.entries["t"]
        tasks = {task: oracle.fact_of(state, task) for task in state.entries}
        facts = oracle.Facts(state.company, tasks, {}, frozenset({"known"}))
        assert state.standing("t") is standing(facts, "t"), one
        for live in (OPEN, LIVES[number % len(LIVES)]):
            where, reasons = work_state(state, entry, live)
            assert where is oracle.work_state(facts, "t", live), (one, live)
            assert reasons, (one, live)
            expected = REASONS[where] | ({R.NO_HOST} if live.no_host else set())
            assert reasons[0].kind in expected, (one, live, reasons)
            gates = explain(state, "acme", entry, live).gates
            assert gates == reasons or (where is WorkState.QUEUED and gates == ()), (one, live)
            seen.add(where)
    assert seen == set(WorkState)


def test_every_combination_of_nodes_gives_an_active_run_a_reason() -> None:
    n = shape_text([Node("n", "known")])[1:-1]
    kinds = ('{"after":[0],"handler":"known","name":"m"}', '{"after":[0],"gate":true,"name":"m"}')
    lives = product((None, 9), (RunStatus.RUNNING, RunStatus.STOPPING), LIVES_OF_NODES)
    for m, mode, (due, status, live) in product(kinds, (Mode.AUTO, Mode.STEP), list(lives)):
        specs = [n, m]
        for statuses in product(NodeStatus, repeat=2):
            state = CompanyState(CompanyRecord(1, "acme", 1), frozenset({"known"}))
            entry = an_entry(TaskRecord(1, "t", 2, 0, mode=mode), status)
            nodes = [
                NodeRecord(
                    1, 1, pos, specs[pos], each, not_before_ms=due if each is NodeStatus.PENDING else None
                )
                for pos, each in enumerate(statuses)
            ]
            state.set_nodes(entry, nodes)
            state.load([entry])
            where, reasons = work_state(state, entry, live)
            assert where.value == status.value
            assert reasons
            assert reasons[0].kind in REASONS[where] | ({R.NO_HOST} if live.no_host else set())


# --- what the reasons carry ---------------------------------------------------------------------------------------


def test_a_failed_task_says_which_node_after_how_many_tries_and_with_what_error() -> None:
    world = World()
    world.ask(Submit("task", id="t", handler="work", tries_max=2))
    world.fail("t", error="E: one")
    world.wait(2)
    world.fail("t", error="E: two")
    assert world.where("t") is WorkState.FAILED
    assert world.reasons("t") == (
        Reason(R.FAILED, nodes=("work",), count=1, numbers={"tries": 2}, at_ms=world.now_ms, text="E: two"),
    )


def test_a_run_says_what_its_nodes_are_doing() -> None:
    world = World(executions_max=2)
    world.ask(Submit("t", id="t", nodes=[Node("a"), Node("b"), Node("c"), Node("d", after=["a"])]))
    world.fail("t", "a", error="E: once")
    world.advance_until_quiet()
    world.live = Live(slots_free=False, slot_holders=("acme/t/1/b/1", "acme/t/1/c/1"))
    (executing, resting) = world.reasons("t")
    assert executing == Reason(R.EXECUTING, nodes=("b", "c"), count=2)
    assert resting == Reason(
        R.BACKING_OFF, nodes=("a",), count=1, at_ms=world.node("t").not_before_ms, text="E: once"
    )
    world.now_ms += 5_000
    world.turn()
    assert world.reason("t", R.EXECUTION_SLOT) == Reason(
        R.EXECUTION_SLOT, tasks=("acme/t/1/b/1", "acme/t/1/c/1"), count=2, nodes=("a",)
    )


def test_every_kind_of_dead_upstream_is_named_with_its_ids() -> None:
    """C21: nothing waits for what is failed, stopped, archived, blocked or not there; what is done counts as done."""
    world = World(runs_max=9)
    names = ["done", "failed", "stopped", "archived", "kept", "aside"]
    world.ask(SubmitMany([Submit("up", id=name, handler="work") for name in names]))
    world.ask(Submit("up", id="under", handler="work", depends_on=["failed"]))
    world.ask(Submit("task", id="t", handler="work", depends_on=[*names, "under"]))
    assert world.where("t") is WorkState.WAITING
    assert world.reasons("t")[0] == Reason(
        R.UPSTREAM_UNFINISHED,
        tasks=tuple(sorted([*names, "under"])),
        count=7,
    )
    for name in ("done", "kept"):
        world.succeed(name)
    world.give_up("failed")
    for name in ("stopped", "archived"):
        world.ask(Stop(name))
        world.end(name, AttemptEnd.STOPPED)
    world.ask(Archive("archived"))
    world.ask(Archive("kept"))
    world.plant("INSERT INTO quarantine (company_id, seq, at_ms, why) VALUES (1, 6, 0, 'bad row')")
    world.plant("INSERT INTO edges (company_id, seq, upstream) VALUES (1, 8, 'ghost')")
    assert world.where("t") is WorkState.BLOCKED
    assert world.reasons("t")[:6] == (
        Reason(R.UPSTREAM_FAILED, tasks=("failed",), count=1),
        Reason(R.UPSTREAM_STOPPED, tasks=("stopped",), count=1),
        Reason(R.UPSTREAM_BLOCKED, tasks=("under",), count=1),
        Reason(R.UPSTREAM_MISSING, tasks=("ghost",), count=1),
        Reason(R.UPSTREAM_ARCHIVED, tasks=("archived",), count=1),
        Reason(R.UPSTREAM_QUARANTINED, tasks=("aside",), count=1),
    )
    assert world.position("t") == 0


def test_a_blocked_task_is_freed_when_the_last_of_its_dead_upstreams_is_revived_or_detached() -> None:
    """C21: reviving or detaching unblocks."""
    world = World(runs_max=9)
    for name in ("failed", "stopped"):
        world.ask(Submit("up", id=name, handler="work"))
    world.ask(Submit("task", id="t", handler="work", depends_on=["failed", "stopped"]))
    world.give_up("failed")
    world.ask(Stop("stopped"))
    world.end("stopped", AttemptEnd.STOPPED)
    assert world.where("t") is WorkState.BLOCKED
    world.ask(Retry("failed"))
    assert world.reasons("t")[0] == Reason(R.UPSTREAM_STOPPED, tasks=("stopped",), count=1)
    world.ask(Edit("t", depends_on=["failed"]))
    assert world.where("t") is WorkState.WAITING
    world.succeed("failed")
    assert world.where("t") is WorkState.RUNNING


def test_what_blocks_and_what_frees_is_told_once_per_cause_with_the_ids() -> None:
    world = World(runs_max=9)
    world.ask(Submit("up", id="up", handler="work"))
    world.ask(SubmitMany([Submit("task", id=name, depends_on=["up"]) for name in "abc"]))
    world.ask(Submit("task", id="d", depends_on=["c"]))
    world.give_up("up")
    (told,) = world.told("tasks.blocked")
    assert {**told.data, "ids": sorted(told.data["ids"])} == {"cause": "up", "count": 4, "ids": list("abcd")}
    world.ask(Retry("up"))
    (told,) = world.told("tasks.unblocked")
    assert {**told.data, "ids": sorted(told.data["ids"])} == {"cause": "up", "count": 4, "ids": list("abcd")}


def test_what_is_blocked_and_freed_in_the_same_turn_is_not_told() -> None:
    world = World(runs_max=9)
    world.ask(Submit("up", id="up", handler="work"))
    world.ask(Submit("task", id="t", depends_on=["up"]))
    world.fail("up")
    world.turn(Stop("up"), Retry("up"))
    assert [event.kind for event in world.events[-5:]] == [
        *("run.stopping", "run.stopped", "run.requeued", "run.admitted", "attempt.started")
    ]


def test_a_graph_that_is_not_defined_and_a_handler_that_is_not_there_block() -> None:
    world = World(handlers={"work"})
    world.ask(Pause())
    world.ask(DefineGraph("g", [Node("n", "work")]))
    world.ask(Submit("task", id="by graph", graph="g"))
    world.ask(Submit("task", id="by handler", handler="work"))
    world.handlers = frozenset({"other"})
    world.reload()
    for task in ("by graph", "by handler"):
        assert world.where(task) is WorkState.BLOCKED
        assert world.reasons(task)[0] == Reason(R.HANDLER_MISSING, text="work", count=1)
    world.plant("DELETE FROM graphs")
    assert world.reasons("by graph")[0] == Reason(R.GRAPH_MISSING, text="g")


def test_a_task_whose_run_is_gone_is_blocked_and_so_is_whoever_waits_for_it() -> None:
    world = World(runs_max=0)
    world.ask(Submit("task", id="a"))
    world.ask(Submit("task", id="b", depends_on=["a"]))
    world.plant("DELETE FROM runs WHERE seq = 1")
    assert world.where("a") is WorkState.BLOCKED
    assert world.reasons("a") == (Reason(R.RUN_MISSING),)
    assert world.reasons("b")[0].kind is R.UPSTREAM_BLOCKED


def test_a_position_is_a_place_among_the_queued_that_are_not_blocked_whatever_their_gates() -> None:
    world = World(runs_max=0)
    world.ask(Submit("task", id="later", priority=3))
    world.ask(Submit("task", id="held", mode="manual", priority=2))
    world.ask(Submit("task", id="waits", depends_on=["held"], priority=1))
    world.ask(Submit("task", id="dead"))
    world.ask(Stop("dead"))
    world.ask(Submit("task", id="blocked", depends_on=["dead"], priority=0))
    assert positions(world.state) == {"waits": 1, "held": 2, "later": 3}
    assert [world.position(task) for task in ("blocked", "dead")] == [0, 0]


def test_without_a_host_nothing_is_said_to_execute() -> None:
    """Whoever reads after the process died must not be told that its work goes on."""
    world = World()
    world.ask(Submit("task", id="t", handler="work"))
    where, reasons = work_state(world.state, world.entry("t"), Live(no_host=True))
    assert (where, reasons) == (WorkState.RUNNING, (Reason(R.NO_HOST, nodes=("work",), count=1),))
