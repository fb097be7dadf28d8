"""People in the loop, from end to end: gates, steps, results that are sent back, over days, restarts and kills."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from actors import (
    Approve,
    AttemptEnd,
    Context,
    DefineGraph,
    Edit,
    Gate,
    Next,
    Node,
    NodeStatus,
    ReasonKind,
    Rerun,
    RunStatus,
    SendBack,
    SetLimits,
    Submit,
    WorkState,
)
from actors.handlers import Handler
from actors.runtime.executor import Executor
from tests.inside import inside
from tests.runtime.support import (
    Gated,
    Stubborn,
    a_host,
    a_task,
    idle,
    kinds,
    of_kind,
    quiet,
    settled,
    stored_events,
)

DAY_S = 86_400.0

JUDGED: list[Node | Gate] = [
    Node("draft", "ok"),
    Gate("approve", after=["draft"]),
    Node("publish", "ok", after=["approve"]),
]


# --- gates ------------------------------------------------------------------------------------------------------


async def test_a_company_whose_first_task_waits_three_days_for_a_person_loses_nothing(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """One run slot, a task at a gate, and behind it work for three days: none of it waits for the person."""
    ran: list[tuple[str, str]] = []

    async def work(ctx: Context) -> object:
        ran.append((ctx.task, ctx.node))
        await trio.sleep(1800)
        return {"inputs": dict(ctx.inputs)}

    nodes = (
        Node("draft", "work"),
        Gate("approve", after=["draft"]),
        Node("publish", "work", after=["draft", "approve"]),
    )
    with trio.fail_after(10 * DAY_S):
        result = await three_days(db_path, work, nodes)
    assert result["approve"] == {"approved": True, "note": "go"}
    assert result["publish"]["inputs"]["approve"] == {"approved": True, "note": "go"}
    assert ran[0] == ("first", "draft")
    assert ran[-2:] == [("first", "publish"), ("needs it", "work")]
    assert [task for task, _ in ran[1:-2]] == [f"t{number}" for number in range(60)]


async def three_days(db_path: Path, work: Handler, nodes: Sequence[Node | Gate]) -> Mapping[str, Any]:
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("acme")
        await company.ask(a_task(nodes=nodes, id="first"))
        await company.ask(a_task("work", id="needs it", depends_on=["first"]))
        for number in range(60):
            await company.ask(a_task("work", id=f"t{number}"))
        began_s = trio.current_time()
        for number in range(60):
            assert await settled(company, f"t{number}") == "completed"
        assert trio.current_time() - began_s <= 61 * 1800, "they ran one after the other, and at once"
        await trio.sleep(began_s + 3 * DAY_S - trio.current_time())
        status = await company.status("first")
        assert (status.state, status.run_status) == (WorkState.HALTED, RunStatus.HALTED)
        (reason,) = status.reasons
        assert (reason.kind, reason.nodes) == (ReasonKind.APPROVAL, ("approve",))
        assert reason.at_ms == status.nodes[1].reached_ms
        assert (await company.status("needs it")).state is WorkState.WAITING
        assert inside(runtime).services.directory.memory("acme") is None, (
            "nobody is kept in memory for a person who sleeps"
        )
        await company.ask(Approve("first", "approve", "go"))
        assert await settled(company, "needs it") == "completed"
        return await company.result("first")


async def test_a_halted_run_is_there_after_the_next_start_and_closing_does_not_wait_for_it(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path, drain_s=1000) as runtime:
        company = runtime.company("k")
        await company.ask(a_task(nodes=JUDGED, id="a"))
        await company.ask(a_task(nodes=[Node("one", "ok"), Node("two", "ok")], id="b", mode="step"))
        await idle(runtime)
        closing_s = trio.current_time()
    assert trio.current_time() - closing_s < 1
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await idle(runtime)
        assert [(await company.status(task)).state for task in "ab"] == [WorkState.HALTED] * 2
        await company.ask(Next("b"))
        await idle(runtime)
        await company.ask(Next("b"))
        await company.ask(Approve("a", "approve"))
        assert await settled(company, "a") == "completed"
        assert await settled(company, "b") == "completed"
    assert len(of_kind(stored_events(db_path), "run.halted")) == 3
    assert len(of_kind(stored_events(db_path), "gate.reached")) == 1


async def test_a_company_that_only_waits_for_a_person_is_left_alone_by_the_sweep(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        await runtime.company("k").ask(a_task(nodes=JUDGED, id="a"))
        await runtime.company("other").ask(a_task(id="b", mode="manual"))
        await trio.sleep(30)
        loaded: set[str] = set()
        for _ in range(20):
            await inside(runtime).sweeper.sweep()
            loaded.update(cell.name for cell in inside(runtime).services.directory.cells)
            await trio.sleep(30)
        assert loaded == {"other"}
        await runtime.company("k").ask(Approve("a", "approve"))
        assert await settled(runtime.company("k"), "a") == "completed"


async def test_the_whole_story_of_a_gate(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(a_task(nodes=JUDGED, id="a", payload="text"))
        await idle(runtime)
        await company.ask(SendBack("a", "draft", "shorter"))
        await idle(runtime)
        await company.ask(Approve("a", "approve"))
        await company.when_settled("a")
        story = [(event.kind, event.node) for event in await company.timeline("a")]
        (draft, gate, publish) = (await company.status("a")).nodes
    assert story == [
        ("task.submitted", None),
        ("run.admitted", None),
        ("attempt.started", "draft"),
        ("attempt.succeeded", "draft"),
        ("gate.reached", "approve"),
        ("run.halted", None),
        ("node.sent_back", "draft"),
        ("run.requeued", None),
        ("run.admitted", None),
        ("attempt.started", "draft"),
        ("attempt.succeeded", "draft"),
        ("gate.reached", "approve"),
        ("run.halted", None),
        ("gate.approved", "approve"),
        ("run.resumed", "approve"),
        ("run.admitted", None),
        ("attempt.started", "publish"),
        ("attempt.succeeded", "publish"),
        ("run.completed", None),
    ]
    assert (draft.feedback, draft.send_backs, draft.generation, draft.gate) == ("shorter", 1, 1, False)
    assert (gate.gate, gate.handler, gate.reached_ms, gate.attempts) == (True, "", None, 0)
    assert publish.status is NodeStatus.SUCCEEDED


async def test_many_people_approve_one_gate_at_once_and_one_of_them_does_it(
    db_path: Path, autojump_clock: MockClock
) -> None:
    answers: list[str] = []

    async def approve(company: Any) -> None:
        try:
            answers.append((await company.ask(Approve("a", "approve"))).status.value)
        except Exception as refusal:
            answers.append(type(refusal).__name__)

    async with a_host(db_path, {"gated": Gated()}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task(nodes=JUDGED, id="a"))
        await idle(runtime)
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(approve, company)
        await company.when_settled("a")
    assert sorted(answers) == ["MoveRefused"] * 19 + ["queued"]
    assert len(of_kind(stored_events(db_path), "gate.approved")) == 1


# --- the review loop ----------------------------------------------------------------------------------------------


async def test_a_review_sends_a_draft_back_twice_before_it_is_published(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C31's loop with nobody but handlers in it: the review asks its own company, and is superseded by its own word."""
    heard: list[tuple[str, int, str | None]] = []
    keys: list[str] = []

    async def draft(ctx: Context) -> str:
        heard.append(("draft", ctx.generation, ctx.feedback))
        keys.append(ctx.key)
        return "word " * (4 - ctx.generation)

    async def review(ctx: Context) -> str:
        heard.append(("review", ctx.generation, ctx.feedback))
        words = len(ctx.inputs["draft"].split())
        if words > 2:
            await ctx.company.ask(SendBack(ctx.task, "draft", f"{words} words are too many"))
            heard.append(("not reached: its own word has superseded it", 0, None))
        return "fine"

    async def publish(ctx: Context) -> object:
        return {"text": ctx.inputs["draft"].strip(), "feedback": ctx.feedback}

    nodes = [
        Node("draft"),
        Node("review", after=["draft"]),
        Node("publish", after=["draft", "review"]),
    ]
    handlers = {"draft": draft, "review": review, "publish": publish}
    async with a_host(db_path, handlers, timeless=True) as runtime:
        company = runtime.company("acme")
        await company.ask(a_task(nodes=nodes, id="post"))
        outcome = await company.when_settled("post")
        attempts = [(a.node, a.generation, a.end) for a in await company.attempts("post")]
        status = await company.status("post")
    assert outcome.status is RunStatus.COMPLETED
    assert outcome.result["publish"] == {"text": "word word", "feedback": None}
    assert heard == [
        ("draft", 0, None),
        ("review", 0, None),
        ("draft", 1, "4 words are too many"),
        ("review", 1, "4 words are too many"),
        ("draft", 2, "3 words are too many"),
        ("review", 2, "3 words are too many"),
    ]
    assert keys == [f"acme/post/1/draft/{generation}" for generation in range(3)]
    assert sorted(attempts) == sorted(
        [
            *(("draft", generation, AttemptEnd.SUCCEEDED) for generation in range(3)),
            ("review", 0, AttemptEnd.SUPERSEDED),
            ("review", 1, AttemptEnd.SUPERSEDED),
            ("review", 2, AttemptEnd.SUCCEEDED),
            ("publish", 0, AttemptEnd.SUCCEEDED),
        ]
    )
    assert [node.tries for node in status.nodes] == [0, 0, 0]
    assert "run.halted" not in kinds(stored_events(db_path))


async def test_a_new_run_of_a_completed_task_runs_only_what_was_judged_and_its_users(
    db_path: Path, autojump_clock: MockClock
) -> None:
    heard: list[Context] = []

    async def work(ctx: Context) -> object:
        heard.append(ctx)
        return [ctx.node, ctx.run, dict(ctx.inputs)]

    nodes = [Node("a", "work"), Node("b", "work", after=["a"]), Node("c", "work", after=["b"])]
    async with a_host(db_path, {"work": work}, timeless=True) as runtime:
        company = runtime.company("acme")
        await company.ask(a_task(nodes=nodes, id="t", payload="p"))
        first = await company.when_settled("t")
        await company.ask(SendBack("t", "b", "again"))
        second = await company.when_settled("t")
    assert [(ctx.node, ctx.key, ctx.feedback) for ctx in heard[3:]] == [
        ("b", "acme/t/2/b/1", "again"),
        ("c", "acme/t/2/c/1", "again"),
    ]
    assert [ctx.payload for ctx in heard] == ["p"] * 5
    assert (second.run, second.result["a"]) == (2, first.result["a"])
    assert heard[3].inputs == {"a": first.result["a"]}
    assert second.result["c"] == ["c", 2, {"b": second.result["b"]}]


# --- attempts that live with what was sent back -----------------------------------------------------------------


async def test_a_superseded_handler_that_hears_nothing_is_left_behind_and_only_then_does_it_run_again(
    db_path: Path, autojump_clock: MockClock
) -> None:
    review = Stubborn(result="of the first draft")
    async with a_host(db_path, {"review": review}, stop_grace_s=5) as runtime:
        company = runtime.company("k")
        nodes = [Node("draft", "ok"), Node("review", after=["draft"])]
        await company.ask(a_task(nodes=nodes, id="a"))
        await review.has_started()
        asked_s = trio.current_time()
        await company.ask(SendBack("a", "draft", "shorter"))
        await review.has_started(2)
        assert trio.current_time() - asked_s == pytest.approx(5)
        assert [ctx.generation for ctx in review.contexts] == [0, 1]
        review.open.set()
        assert await settled(company, "a") == "completed"
        await idle(runtime)
    events = stored_events(db_path)
    assert [event.attempt for event in of_kind(events, "attempt.abandoned", "attempt.superseded")] == [1, 1]
    assert [event.data["outcome"] for event in of_kind(events, "attempt.late")] == ["succeeded"]


async def test_a_superseded_attempt_may_finish_within_the_grace_and_its_result_does_not_count(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async def review(ctx: Context) -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(3)
        return f"of generation {ctx.generation}"

    async with a_host(db_path, {"review": review}, stop_grace_s=5) as runtime:
        company = runtime.company("k")
        await company.ask(a_task(nodes=[Node("draft", "ok"), Node("review", after=["draft"])], id="a"))
        await trio.sleep(1)
        await company.ask(SendBack("a", "draft", "shorter"))
        outcome = await company.when_settled("a")
    assert outcome.result["review"] == "of generation 1"
    (superseded,) = of_kind(stored_events(db_path), "attempt.superseded")
    assert superseded.reason == "it ended as succeeded after it was superseded, which counts"


@pytest.mark.parametrize("healer", ["the sweep", "the next actor"])
async def test_a_cancellation_that_was_lost_is_made_up_for(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, healer: str
) -> None:
    cancel: Callable[..., None] = Executor.cancel
    lost: list[str] = []

    def lose_one(executor: Executor, ref: Any, why: str) -> None:
        if why == "superseded" and not lost:
            lost.append(why)
            if healer == "the next actor":
                raise ZeroDivisionError("a mistake of ours")
            return
        cancel(executor, ref, why)

    monkeypatch.setattr(Executor, "cancel", lose_one)
    review = Gated()
    async with a_host(db_path, {"review": review}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task(nodes=[Node("draft", "ok"), Node("review", after=["draft"])], id="a"))
        await review.has_started()
        told_s = trio.current_time()
        await company.tell(SendBack("a", "draft", "shorter"))
        await review.has_started(2)
        assert trio.current_time() - told_s <= (61 if healer == "the sweep" else 5)
        review.open.set()
        assert await settled(company, "a") == "completed"
    assert lost == ["superseded"]
    assert (review.cancelled, [ctx.feedback for ctx in review.contexts]) == (1, [None, "shorter"])
    assert len(of_kind(stored_events(db_path), "actor.crashed")) == (healer == "the next actor")


# --- graphs -------------------------------------------------------------------------------------------------------


async def test_a_graph_that_is_redefined_counts_from_the_next_first_admission_on(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """One run executes, one waits at a gate, one waits in the line: only the last takes the new definition."""
    work = Gated()
    ran: list[tuple[str, int, str, Any]] = []

    async def step(ctx: Context) -> str:
        ran.append((ctx.task, ctx.run, ctx.node, ctx.payload))
        return ctx.node

    old: list[Node | Gate] = [
        Node("hold", "work"),
        Gate("gate"),
        Node("old", "step", after=["hold", "gate"], payload="old"),
    ]
    async with a_host(db_path, {"work": work, "step": step}) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=1))
        assert (await company.ask(DefineGraph("g", old))).version == 1
        await company.ask(a_task(graph="g", id="executes"))
        await company.ask(a_task(graph="g", id="waits"))
        await work.has_started()
        new = [Node("new", "step", payload="new")]
        assert (await company.ask(DefineGraph("g", new))).version == 2
        assert (await company.ask(DefineGraph("g", new))).changed is False
        assert [node.name for node in (await company.status("executes")).nodes] == ["hold", "gate", "old"]
        assert [node.name for node in (await company.status("waits")).nodes] == ["new"]
        work.open.set()
        await quiet(company)
        assert (await company.status("executes")).state is WorkState.HALTED
        assert await settled(company, "waits") == "completed"
        await company.ask(Approve("executes", "gate"))
        assert await settled(company, "executes") == "completed"
        await company.ask(SendBack("executes", "old", "once more"))
        assert await settled(company, "executes") == "completed"
        await company.ask(Rerun("executes"))
        assert await settled(company, "executes") == "completed"
    assert ran == [
        ("waits", 1, "new", "new"),
        ("executes", 1, "old", "old"),
        ("executes", 2, "old", "old"),
        ("executes", 3, "new", "new"),
    ]


async def test_a_graph_is_one_company_s_own(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_host(db_path) as runtime:
        await runtime.company("a").ask(DefineGraph("g", [Node("n", "ok")]))
        with pytest.raises(Exception, match="no graph is defined as 'g'"):
            await runtime.company("b").ask(a_task(graph="g"))
        await runtime.company("b").ask(DefineGraph("g", JUDGED))
        await runtime.company("a").ask(a_task(graph="g", id="t"))
        await runtime.company("b").ask(a_task(graph="g", id="t"))
        assert await settled(runtime.company("a"), "t") == "completed"
        await idle(runtime)
        assert (await runtime.company("b").status("t")).state is WorkState.HALTED


# --- results of upstream tasks ------------------------------------------------------------------------------------


class Upstreams:
    """A handler that remembers what it was given of the tasks before its own, and says something new each time."""

    def __init__(self) -> None:
        self.given: list[dict[str, dict[str, Any]]] = []
        self.calls = 0

    async def __call__(self, ctx: Context) -> str:
        self.given.append({task: dict(results) for task, results in ctx.upstream.items()})
        with pytest.raises(TypeError):
            ctx.upstream["x"] = {}  # type: ignore[index]
        self.calls += 1
        return f"{ctx.task} {ctx.run} {ctx.node}"


async def test_a_handler_is_given_the_results_of_the_upstream_tasks_by_task_and_node(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Upstreams()
    async with a_host(db_path, {"work": work}, timeless=True) as runtime:
        company = runtime.company("k")
        await company.ask(a_task(nodes=[Node("n", "work"), Node("m", "work")], id="two"))
        await company.ask(Submit("a milestone", id="none"))
        await company.ask(a_task(nodes=[Gate("gate")], id="judged"))
        await company.ask(a_task("work", id="t", depends_on=["two", "none", "judged"]))
        await quiet(company)
        await company.ask(Approve("judged", "gate", "yes"))
        await company.when_settled("t")
    assert work.given == [
        {},
        {},
        {
            "judged": {"gate": {"approved": True, "note": "yes"}},
            "none": {},
            "two": {"n": "two 1 n", "m": "two 1 m"},
        },
    ]


async def test_the_upstream_runs_are_pinned_at_the_first_admission(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """What an upstream does later is seen by the next run, and by that only if it begins from the beginning."""
    work = Upstreams()
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="up"))
        nodes = [Node("one", "work"), Gate("gate", after=["one"]), Node("two", "work", after=["gate"])]
        await company.ask(a_task(nodes=nodes, id="t", depends_on=["up"]))
        await quiet(company)
        await company.ask(Rerun("up"))
        await company.when_settled("up")
        await company.ask(Approve("t", "gate"))
        await company.when_settled("t")
        await company.ask(SendBack("t", "two", "again"))
        await company.when_settled("t")
        await company.ask(Rerun("t", from_node="two"))
        await company.when_settled("t")
        await company.ask(Rerun("t"))
        await quiet(company)
    first, second = {"up": {"work": "up 1 work"}}, {"up": {"work": "up 2 work"}}
    assert work.given == [{}, first, {}, first, first, first, second]


async def test_an_edit_of_the_dependencies_counts_from_the_next_run_on_also_for_their_results(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Upstreams()
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        for task in ("up", "other"):
            await company.ask(a_task("work", id=task))
        nodes = [Gate("gate"), Node("one", "work", after=["gate"])]
        await company.ask(a_task(nodes=nodes, id="t", depends_on=["up"]))
        await company.ask(a_task(nodes=nodes, id="free"))
        await quiet(company)
        assert (await company.ask(Edit("t", depends_on=["other"]))).note is not None
        await company.ask(Edit("t", depends_on=["other", "up"]))
        await company.ask(Edit("free", depends_on=["up"]))
        for task in ("t", "free"):
            await company.ask(Approve(task, "gate"))
            await company.when_settled(task)
            await company.ask(SendBack(task, "one", "again"))
            await company.when_settled(task)
            await company.ask(Rerun(task))
            await quiet(company)
            await company.ask(Approve(task, "gate"))
            await company.when_settled(task)
    up, other = {"work": "up 1 work"}, {"work": "other 1 work"}
    assert work.given[2:5] == [{"up": up}, {"up": up}, {"other": other, "up": up}]
    assert work.given[5:] == [{}, {}, {"up": up}]
