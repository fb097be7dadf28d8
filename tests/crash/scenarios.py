"""What is going on when the process is killed. Each script may be begun again from the top by the next process."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from actors import (
    Approve,
    Archive,
    Context,
    DefineGraph,
    Edit,
    Gate,
    GiveUp,
    Next,
    Node,
    NodeStatus,
    NodeView,
    Pause,
    PauseSchedule,
    ReasonKind,
    RemoveSchedule,
    Rerun,
    ResumeSchedule,
    Retention,
    Retry,
    RunNow,
    RunStatus,
    SendBack,
    SetBudget,
    SetLimits,
    SetSchedule,
    Start,
    StartNow,
    Stop,
    Submit,
    SubmitMany,
    TaskStatus,
    Unarchive,
    Unpause,
    WorkState,
)
from actors.handlers import Handler
from actors.testing import EPOCH_MS

from .harness import Scenario, Script, World


def handlers(world: World) -> Mapping[str, Handler]:
    async def step(ctx: Context) -> object:
        """A second of work that says what it was given."""
        world.effect(ctx)
        await trio.sleep(1)
        upstream = {task: dict(results) for task, results in ctx.upstream.items()}
        given = {"payload": ctx.payload, "inputs": dict(ctx.inputs), "upstream": upstream}
        return given if ctx.feedback is None else given | {"feedback": ctx.feedback}

    async def shaky(ctx: Context) -> object:
        """Fails twice and then succeeds, going by what is durable."""
        world.effect(ctx)
        status = await ctx.company.status(ctx.task)
        tries = status.nodes[0].tries
        if tries < 2:
            raise RuntimeError(f"no luck, {tries} times before")
        return "at last"

    async def broken(ctx: Context) -> object:
        """Fails for good until the world is mended."""
        world.effect(ctx)
        if not world.facts.get("mended"):
            raise GiveUp("the service is down")
        return "mended"

    async def endless(ctx: Context) -> object:
        world.effect(ctx)
        await trio.sleep_forever()

    async def door(ctx: Context) -> object:
        """Works until its door is open."""
        world.effect(ctx)
        while not world.facts.get(ctx.task):
            await trio.sleep(1)
        return ctx.task

    async def costly(ctx: Context) -> object:
        """Spends something when it begins, and four times as much when it ends."""
        world.effect(ctx)
        ctx.spend(20)
        await trio.sleep(2)
        ctx.spend(80)
        return ctx.task

    return {
        "costly": costly,
        "step": step,
        "shaky": shaky,
        "broken": broken,
        "endless": endless,
        "door": door,
    }


def _executing(status: TaskStatus) -> bool:
    return any(node.status is NodeStatus.RUNNING for node in status.nodes) or _over(status)


def _over(status: TaskStatus) -> bool:
    return status.run_status is not None and status.run_status.settled


async def chain(script: Script) -> None:
    await script.ask(
        SubmitMany(
            [
                Submit("last", handler="step", id="c", depends_on=["b"]),
                Submit("first", handler="step", id="a", payload=1),
                Submit("middle", handler="step", id="b", key="the middle one", depends_on=["a"]),
            ]
        )
    )
    await script.settled("a", "b", "c")


async def fan_out(script: Script) -> None:
    """A graph that splits and joins, run by two tasks side by side, and tasks that need one, the other, or both."""
    await script.ask(SetLimits(runs_max=2))
    nodes = [
        Node("split", "step"),
        Node("left", "step", after=["split"], payload="l"),
        Node("right", "step", after=["split"], payload="r"),
        Node("join", "step", after=["left", "right"]),
    ]
    await script.ask(DefineGraph("fan", nodes))
    await script.ask(
        SubmitMany(
            [
                Submit("one", graph="fan", id="one", payload=1),
                Submit("two", graph="fan", id="two", payload=2, priority=1),
                Submit("after one", handler="step", id="after one", depends_on=["one"]),
                Submit("after both", id="after both", depends_on=["one", "two", "after one"]),
            ]
        )
    )
    await script.settled("one", "two", "after one", "after both")


async def retry(script: Script) -> None:
    await script.ask(Submit("shaky", handler="shaky", id="a"))
    await script.ask(Submit("behind it", handler="step", id="b"))
    await script.settled("a", "b")


async def stop(script: Script) -> None:
    await script.ask(Submit("never ends", handler="endless", id="a"))
    await script.ask(Submit("waits", handler="step", id="b"))
    await script.ask(Submit("comes after", handler="step", id="c"))
    await script.until("a", _executing)
    await script.ask(Stop("b"))
    await script.ask(Stop("a"))
    await script.settled("a", "b", "c")
    await script.ask(Stop("a"))


async def rerun(script: Script) -> None:
    await script.ask(Submit("twice", handler="step", id="a", payload="first"))
    await script.ask(Submit("needs it", handler="step", id="b", mode="manual", depends_on=["a"]))
    await script.settled("a")
    if (await script.until("a", lambda _: True)).run == 1:
        await script.ask(Rerun("a", payload="second"))
    await script.settled("a")
    await script.ask(Start("b"))
    await script.settled("b")


async def blocked_and_freed(script: Script) -> None:
    await script.ask(
        SubmitMany(
            [
                Submit("broken", handler="broken", id="a"),
                Submit("needs it", handler="step", id="b", depends_on=["a"]),
                Submit("needs that", handler="step", id="c", depends_on=["b"]),
            ]
        )
    )
    await script.settled("a")
    if (await script.until("a", _over)).run_status is RunStatus.FAILED:
        assert (await script.until("c", lambda _: True)).state is WorkState.BLOCKED
        script.world.facts["mended"] = True
        await script.ask(Retry("a"))
    await script.settled("a", "b", "c")


async def archive(script: Script) -> None:
    await script.ask(Submit("done", handler="step", id="a"))
    await script.ask(Submit("held", handler="step", id="b", mode="manual"))
    await script.ask(Submit("brought back", handler="step", id="c", mode="manual"))
    await script.ask(Archive("b"))
    await script.ask(Archive("c"))
    await script.settled("a")
    await script.ask(Archive("a"))
    await script.ask(Unarchive("c"))
    if (await script.until("c", lambda _: True)).run_status is RunStatus.STOPPED:
        await script.ask(Retry("c"))
    await script.ask(Submit("needs what was put away", handler="step", id="d", depends_on=["a", "c"]))
    await script.settled("c", "d")


async def limits(script: Script) -> None:
    """Lowered while more runs are active than are then allowed, and raised again."""
    tasks = ["a", "b", "c", "d"]
    await script.ask(SetLimits(runs_max=2))
    await script.ask(SubmitMany([Submit(task, handler="door", id=task) for task in tasks]))
    await script.until("a", _executing)
    await script.until("b", _executing)
    await script.ask(SetLimits(runs_max=1))
    script.world.facts["a"] = True
    await script.settled("a")
    script.world.facts["b"] = True
    await script.settled("b")
    await script.until("c", _executing)
    await script.ask(SetLimits(runs_max=3))
    await script.until("d", _executing)
    script.world.facts.update(c=True, d=True)
    await script.settled(*tasks)


async def pause(script: Script) -> None:
    """What is under way finishes, what waits goes on waiting, and so does what a kill has interrupted."""
    await script.ask(Submit("under way", handler="door", id="a"))
    await script.ask(Submit("waits", handler="step", id="b"))
    await script.until("a", lambda status: _executing(status) or _paused(status))
    await script.ask(Pause())
    script.world.facts["a"] = True
    await script.until("a", lambda status: _over(status) or _paused(status))
    if not await script.told("company.unpaused"):
        await trio.sleep(10)
        assert _paused(await script.until("b", lambda _: True)), "it started in spite of the pause"
    await script.ask(Unpause())
    await script.settled("a", "b")


async def prune(script: Script) -> None:
    """Two tasks go together, then an attempt of a third; what comes after is not hurt."""
    facts = script.world.facts
    if not facts.get("all settled"):  # from then on they may be gone
        await script.ask(
            SubmitMany(
                [
                    Submit("first", handler="step", id="a"),
                    Submit("second", handler="step", id="b", depends_on=["a"]),
                    Submit("stays", handler="broken", id="f"),
                ]
            )
        )
        await script.settled("a", "b", "f")
        facts["all settled"] = True
    while not facts.get("all gone"):
        await trio.sleep(100)
        facts["all gone"] = await script.count("tasks") == 1 and await script.count("attempts") == 0
    await script.ask(Submit("comes after", handler="step", id="c"))
    await script.settled("c")


async def delete(script: Script) -> None:
    """A company goes in several units, another one does not notice, and the name begins anew."""
    doomed = script.runtime.company("doomed")
    begun = await script.count("deletions") > 0 or await script.told("company.deleted")
    if not begun:
        tasks = [Submit(f"task {n}", handler="step", id=f"t{n}") for n in range(2)]
        await doomed.ask(SubmitMany([*tasks, Submit("held", id="held", mode="manual", depends_on=["t0"])]))
        await script.settled("t0", "t1", company="doomed")
        await script.ask(Submit("of the other", handler="step", id="x"), company="other")
        await script.settled("x", company="other")
        await script.runtime.delete_company("doomed")
    while await script.count("deletions") > 0:
        await trio.sleep(1)
    await script.ask(Submit("of the next", handler="step", id="t0"), company="doomed")
    await script.settled("t0", company="doomed")


async def cut_log(script: Script) -> None:
    """The log is let go behind companies that work. What was answered goes as well, so no answers are remembered."""
    for number in range(4):
        for name in ("j", "k"):
            await script.runtime.company(name).ask(Submit("x", handler="step", id=f"t{number}"))
            await script.settled(f"t{number}", company=name)
        await trio.sleep(100)


def _paused(status: TaskStatus) -> bool:
    return any(reason.kind is ReasonKind.COMPANY_PAUSED for reason in status.reasons)


async def edit(script: Script) -> None:
    await script.ask(Submit("in the way", handler="door", id="a"))
    await script.ask(Submit("late", handler="step", id="b", payload="old"))
    await script.ask(Submit("later", handler="step", id="c"))
    await script.until("a", _executing)
    if (await script.until("c", lambda _: True)).priority != 0:
        await script.ask(Edit("c", priority=0))
    if (await script.until("b", lambda _: True)).title != "better":
        await script.ask(Edit("b", payload="new", title="better", depends_on=["c"]))
    script.world.facts["a"] = True
    await script.settled("a", "b", "c")


async def without_a_slot(script: Script) -> None:
    """A run that holds its run slot while others keep it from executing."""
    await script.ask(Submit("in the way", handler="door", id="x"), company="other")
    await script.until("x", _executing, company="other")
    await script.ask(SubmitMany([Submit("a", handler="step", id="a"), Submit("b", handler="step", id="b")]))
    script.world.facts["x"] = True
    await script.settled("a", "b")
    await script.settled("x", company="other")


EVERY_100_S = SetSchedule("s", every=100, task=Submit("at its time", handler="step", payload=1))


async def schedule(script: Script) -> None:
    """C37: fires by the clock and by hand, and every message about a schedule."""
    await script.ask(EVERY_100_S)
    await script.until_fired(2)
    if not await script.fired(by_hand=True):
        await script.ask(RunNow("s"))
    await script.until_fired(3)
    await script.ask(PauseSchedule("s"))
    await script.ask(SetSchedule("s", every=50, task=Submit("changed", handler="step")))
    if not await script.told("schedule.resumed"):
        await trio.sleep(20)
        assert await script.fired() == 3, "it fired in spite of the pause"
    await script.ask(ResumeSchedule("s"))
    await script.until_fired(4)
    await script.settled(*[f"@{n}" for n in range(1, 6)])
    if not await script.told("schedule.removed"):
        await script.ask(RemoveSchedule("s"))


async def catching_up(script: Script) -> None:
    """C37: ten nominal times pass at once. One is caught up, nine are counted, and it goes on."""
    await script.ask(EVERY_100_S)
    await script.until_fired(1)
    await script.settled("@1")
    script.jump(1_010)  # somebody looks within a minute: before the eleventh
    await script.until_fired(3)
    await script.settled("@1", "@2", "@3")
    assert await script.told("schedule.skipped")
    await script.ask(PauseSchedule("s"))


async def later_starts(script: Script) -> None:
    """One waits for its time, one is started before it, one is told another."""
    await script.ask(Submit("waits", handler="step", id="a", not_before="2026-01-01T00:01:00Z"))
    await script.ask(Submit("started", handler="step", id="b", not_before="2027-01-01T00:00:00Z"))
    await script.ask(Submit("changed", handler="step", id="c", not_before="2027-01-01T00:00:00Z"))
    if (await script.until("b", lambda _: True)).state is WorkState.SCHEDULED:
        await script.ask(StartNow("b"))
    if (await script.until("c", lambda _: True)).not_before_ms != EPOCH_MS + 40_000:
        await script.ask(Edit("c", not_before="2026-01-01T00:00:40Z"))
    await script.settled("a", "b", "c")


# --- people in the loop -----------------------------------------------------------------------------------------


def _halted(status: TaskStatus) -> bool:
    return status.run_status is RunStatus.HALTED


def _node(status: TaskStatus, name: str) -> NodeView:
    return next(node for node in status.nodes if node.name == name)


async def gates(script: Script) -> None:
    """One run waits for two people; what is behind it in the line does not, and what depends on it does."""
    nodes: list[Node | Gate] = [
        Node("draft", "step"),
        Gate("first", after=["draft"]),
        Gate("second", after=["draft"]),
        Node("publish", "step", after=["first", "second"]),
    ]
    await script.ask(Submit("judged", nodes=nodes, id="a"))
    await script.ask(Submit("behind it", handler="step", id="b"))
    await script.ask(Submit("needs it", handler="step", id="c", depends_on=["a", "b"]))
    for gate in ("first", "second"):
        status = await script.until("a", lambda status: _halted(status) or _over(status))
        if _node(status, gate).status is NodeStatus.PENDING:
            await script.ask(Approve("a", gate, f"yes to the {gate}"))
    await script.settled("a", "b", "c")


async def stepping(script: Script) -> None:
    nodes = [Node("one", "step"), Node("two", "shaky"), Node("end", "step", after=["one", "two"])]
    await script.ask(Submit("step by step", nodes=nodes, id="a", mode="step"))
    await script.ask(Submit("behind it", handler="step", id="b"))
    while not _over(await script.until("a", lambda status: _halted(status) or _over(status))):
        await script.ask(Next("a"))
    await script.settled("a", "b")


async def send_back(script: Script) -> None:
    """A draft is sent back while its review executes, and again while its run waits at the gate."""
    nodes: list[Node | Gate] = [
        Node("draft", "step"),
        Node("review", "door", after=["draft"]),
        Gate("approve", after=["review"]),
        Node("publish", "step", after=["approve"]),
    ]
    await script.ask(Submit("judged", nodes=nodes, id="a"))
    status = await script.until(
        "a", lambda status: _node(status, "review").status is not NodeStatus.PENDING or _sent_back(status) > 0
    )
    if not _sent_back(status):
        await script.ask(SendBack("a", "draft", "shorter"))
    script.world.facts["a"] = True
    status = await script.until("a", lambda status: _halted(status) or _sent_back(status) > 1)
    if _sent_back(status) == 1:
        await script.ask(SendBack("a", "draft", "longer"))
    status = await script.until("a", lambda status: _halted(status) or _over(status))
    if _halted(status):
        await script.ask(Approve("a", "approve"))
    await script.settled("a")


def _sent_back(status: TaskStatus) -> int:
    return status.nodes[0].send_backs


async def from_a_node_on(script: Script) -> None:
    """New runs that keep results: one because of what was judged, one with another payload; and what needs them."""
    nodes = [Node("draft", "step"), Node("aside", "step"), Node("publish", "step", after=["draft"])]
    await script.ask(Submit("upstream", handler="step", id="up", payload=0))
    await script.ask(Submit("judged", nodes=nodes, id="a", payload=1, depends_on=["up"]))
    await script.ask(Submit("needs it", handler="step", id="b", mode="manual", depends_on=["a"]))
    await script.settled("up", "a")
    if (await script.until("a", lambda _: True)).run == 1:
        await script.ask(SendBack("a", "draft", "shorter"))
    await script.settled("a")
    if (await script.until("a", lambda _: True)).run == 2:
        await script.ask(Rerun("a", from_node="publish", payload=2))
    await script.settled("a")
    await script.ask(Start("b"))
    await script.settled("b")


# --- budgets ----------------------------------------------------------------------------------------------------


async def budget(script: Script) -> None:
    """What steps spend is booked wherever they are killed. The run halts, one waits, and both go on."""
    await script.ask(SetLimits(runs_max=2))
    if not script.world.facts.get("raised"):
        await script.ask(SetBudget(125))
    nodes = [Node("one", "costly", estimate=20), Node("two", "costly", after=["one"], estimate=60)]
    await script.ask(Submit("spends too much", nodes=nodes, id="a"))
    await script.ask(Submit("waits for the budget", nodes=[Node("n", "costly", estimate=200)], id="b"))
    if not script.world.facts.get("raised"):
        await script.until("a", _halted)
        assert _waits_for_budget(await script.until("b", lambda _: True))
        script.world.facts["raised"] = True
    await script.ask(SetBudget(100_000))
    if _halted(await script.until("a", lambda _: True)):
        await script.ask(Retry("a"))
    await script.settled("a", "b")


def _waits_for_budget(status: TaskStatus) -> bool:
    return any(reason.kind is ReasonKind.BUDGET for reason in status.reasons)


SCENARIOS = [
    Scenario(drive.__name__, drive, handlers)
    for drive in (
        *(chain, fan_out, retry, stop, rerun, blocked_and_freed, archive, limits, pause, edit),
        *(schedule, catching_up, later_starts),
        *(gates, stepping, send_back, from_a_node_on),
        budget,
    )
]
SCENARIOS.append(Scenario("without_a_slot", without_a_slot, handlers, executions_max=1))
SCENARIOS.append(Scenario("prune", prune, handlers, retention=Retention(tasks_s=300, attempts_s=2000)))
DELETE = Scenario("delete", delete, handlers, commits_min=14)
SCENARIOS.append(DELETE)
CUT_LOG = Scenario("cut_log", cut_log, handlers, retention=Retention(events_s=120), commits_min=14)
CHAIN = SCENARIOS[0]
