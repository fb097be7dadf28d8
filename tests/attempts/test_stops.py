"""A stop ends a task in every phase, by every way of sending it, twice; and against its end, and without a store.

Phases times ways, every cell a test. `tests/runtime/test_stop.py` looks closer at single phases.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from actors import (
    Archive,
    AttemptEnd,
    Backoff,
    Company,
    Context,
    GiveUp,
    GoalStopped,
    Message,
    Moved,
    NodeStatus,
    OutcomeUnknown,
    ReasonKind,
    Runtime,
    SetLimits,
    Stop,
    StopGoal,
    Submit,
    SubmitMany,
    TaskStatus,
    WorkState,
)
from actors.runtime.company import CompanyActor, Turn
from tests.runtime.support import (
    Gated,
    GatedConnection,
    Stubborn,
    Wrapper,
    a_host,
    a_node,
    a_task,
    idle,
    kinds,
    of_kind,
    settled,
    stored_events,
)
from tests.storage.connections import Flaky, sqlite_error

GRACE_S = 10.0


def busy() -> sqlite3.Error:
    return sqlite_error(sqlite3.SQLITE_BUSY, "database is locked")


# --- the scene --------------------------------------------------------------------------------------------------


@attrs.define(eq=False, slots=False)
class Scene:
    """A company with two slots of each kind. One is held by a handler that says what it is told to say."""

    hears: Gated = attrs.field(factory=Gated)
    deaf: Stubborn = attrs.field(factory=Stubborn)
    beside: Gated = attrs.field(factory=Gated)
    back: trio.Event = attrs.field(factory=trio.Event)
    """What a handler waits for outside is there."""
    turns: list[list[str]] = attrs.field(factory=list)
    """What each turn was about."""
    sent: int = 0
    runtime: Runtime = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.orders, self._ordered = trio.open_memory_channel[Message[Any]](1)
        self._answer, self.answered = trio.open_memory_channel[object](1)

    @property
    def company(self) -> Company:
        return self.runtime.company("k")

    async def boss(self, ctx: Context) -> None:
        async for message in self._ordered:
            await self._answer.send(await ctx.company.ask(message))

    async def waits(self, ctx: Context) -> None:
        async with ctx.waiting("the world"):
            await self.back.wait()

    async def submit(self, handler: str = "hears", task: str = "a", **fields: Any) -> None:
        await self.company.ask(a_task(handler, id=task, goal="g" if task == "a" else None, **fields))
        await trio.testing.wait_all_tasks_blocked()

    async def reasons(self) -> list[ReasonKind]:
        return [reason.kind for reason in (await self.company.status("a")).reasons]

    def phase(self) -> list[str]:
        """Phases of the attempts at ``a``."""
        return [attempt.phase.value for attempt in self.runtime.registry if attempt.ref.key.task == "a"]

    def let_all_go(self) -> None:
        self.orders.close()
        for event in (self.hears.open, self.deaf.open, self.beside.open, self.back):
            event.set()


@asynccontextmanager
async def a_scene(path: Path) -> AsyncIterator[Scene]:
    scene = Scene()
    handlers = {name: getattr(scene, name) for name in ("hears", "deaf", "beside", "boss", "waits")}
    async with a_host(path, handlers, executions_max=2, stop_grace_s=GRACE_S) as scene.runtime:
        await scene.company.ask(SetLimits(runs_max=2))
        await scene.submit("boss", "boss")
        try:
            yield scene
        finally:
            scene.let_all_go()


# --- phases -----------------------------------------------------------------------------------------------------


@attrs.frozen
class Phase:
    """How to bring task ``a`` there, and what a stop does then: what it answers, and how it ends after how long."""

    reach: Callable[[Scene], Awaitable[None]]
    answer: str = "stopped"
    ends: tuple[AttemptEnd, ...] = ()
    after_s: float = 0.0
    final: str = "stopped"
    changes: bool = True
    held_slot: bool = True
    """Whether the run is or was active, so that it has to be stopping first."""
    late: int = 0
    """Results that come when everything is let go."""


async def _queued(scene: Scene) -> None:
    await scene.submit("beside", "holds the other run slot")
    await scene.submit()
    assert await scene.reasons() == [ReasonKind.RUN_SLOTS]


async def _waiting_for_upstream(scene: Scene) -> None:
    await scene.submit("ok", "up", mode="manual")
    await scene.submit(depends_on=["up"])
    assert await scene.reasons() == [ReasonKind.UPSTREAM_UNFINISHED]


async def _blocked(scene: Scene) -> None:
    await scene.submit("ok", "up", mode="manual")
    await scene.company.ask(Stop("up"))
    await scene.submit(depends_on=["up"])
    assert await scene.reasons() == [ReasonKind.UPSTREAM_STOPPED]


async def _held(scene: Scene) -> None:
    await scene.submit(mode="manual")
    assert await scene.reasons() == [ReasonKind.MANUAL]


async def _backing_off(scene: Scene) -> None:
    await scene.submit(nodes=[a_node("n", "fails", retry=Backoff(base_s=1000))])
    assert await scene.reasons() == [ReasonKind.BACKING_OFF]


async def _hog(scene: Scene) -> None:
    """Another company holds the other execution slot."""
    await scene.runtime.company("other").ask(a_task("beside", id="hog"))
    await scene.beside.has_started()


async def _wanting_a_slot(scene: Scene) -> None:
    await _hog(scene)
    await scene.submit()
    assert await scene.reasons() == [ReasonKind.EXECUTION_SLOT]


async def _executing(scene: Scene) -> None:
    await scene.submit()
    assert scene.phase() == ["executing"]


async def _waiting(scene: Scene) -> None:
    await scene.submit("waits")
    assert scene.phase() == ["waiting"]


async def _returning(scene: Scene) -> None:
    await _waiting(scene)
    await _hog(scene)
    scene.back.set()
    await trio.testing.wait_all_tasks_blocked()
    assert scene.phase() == ["waiting"]
    assert scene.runtime.slots.free == 0


async def _stalled(scene: Scene) -> None:
    await scene.submit(nodes=[a_node("n", "deaf", stall_s=20)])
    await trio.sleep(24)
    assert scene.phase() == ["cancelling"]


async def _stopping(scene: Scene) -> None:
    await scene.submit("deaf")
    await scene.company.ask(Stop("a"))
    await trio.sleep(3)
    assert scene.phase() == ["cancelling"]


async def _left_behind(scene: Scene) -> None:
    await scene.submit(nodes=[a_node("n", "deaf", timeout_s=5, retry=Backoff(base_s=1000))])
    await trio.sleep(5 + GRACE_S + 1)
    assert len(scene.runtime.registry.abandoned) == 1
    assert await scene.reasons() == [ReasonKind.BACKING_OFF]


async def _left_behind_and_tried_again(scene: Scene) -> None:
    await scene.submit(nodes=[a_node("n", "deaf", timeout_s=100, retry=Backoff(base_s=1))])
    await trio.sleep(100 + GRACE_S + 2)
    assert len(scene.runtime.registry.abandoned) == 1
    assert scene.phase() == ["executing"]


async def _completed(scene: Scene) -> None:
    await scene.submit("ok")


async def _failed(scene: Scene) -> None:
    await scene.submit(nodes=[a_node("n", "fails", tries_max=1)])


async def _stopped(scene: Scene) -> None:
    await _executing(scene)
    await scene.company.ask(Stop("a"))
    await trio.testing.wait_all_tasks_blocked()


FAILED, STOPPED, TIMED_OUT = AttemptEnd.FAILED, AttemptEnd.STOPPED, AttemptEnd.TIMED_OUT
PHASES = {
    "queued": Phase(_queued, held_slot=False),
    "waiting for an upstream": Phase(_waiting_for_upstream, held_slot=False),
    "blocked": Phase(_blocked, held_slot=False),
    "held": Phase(_held, held_slot=False),
    "backing off": Phase(_backing_off, ends=(FAILED,)),
    "wanting an execution slot": Phase(_wanting_a_slot),
    "executing": Phase(_executing, "stopping", (STOPPED,)),
    "waiting": Phase(_waiting, "stopping", (STOPPED,)),
    "returning from waiting": Phase(_returning, "stopping", (STOPPED,)),
    "stalled, in its grace": Phase(_stalled, "stopping", (STOPPED,), after_s=GRACE_S - 4, late=1),
    "stopping already": Phase(_stopping, "stopping", (STOPPED,), after_s=GRACE_S - 3, changes=False, late=1),
    "left behind, backing off": Phase(_left_behind, ends=(TIMED_OUT,), late=1),
    "left behind, tried again": Phase(
        _left_behind_and_tried_again, "stopping", (TIMED_OUT, STOPPED), after_s=GRACE_S, late=2
    ),
    "completed": Phase(_completed, "completed", (AttemptEnd.SUCCEEDED,), final="completed", changes=False),
    "failed": Phase(_failed, "failed", (FAILED,), final="failed", changes=False),
    "stopped": Phase(_stopped, ends=(STOPPED,), changes=False),
}


# --- ways of sending it -----------------------------------------------------------------------------------------

Answer = Moved | GoalStopped | None
"""What the sender hears; nothing if it told."""


async def _ask(scene: Scene) -> Answer:
    return await scene.company.ask(Stop("a"))


async def _tell(scene: Scene) -> Answer:
    await scene.company.tell(Stop("a"))
    return None


async def _tell_nowait(scene: Scene) -> Answer:
    scene.company.tell_nowait(Stop("a"))
    return None


async def _goal(scene: Scene) -> Answer:
    return await scene.company.ask(StopGoal("g"))


async def _handler(scene: Scene) -> Answer:
    """A handler of the same company asks."""
    await scene.orders.send(Stop("a"))
    answer = await scene.answered.receive()
    assert isinstance(answer, Moved)
    return answer


async def _with_dependents(scene: Scene) -> Answer:
    """In the turn in which it stops it gets dependents."""
    scene.sent += 1
    more = [a_task("ok", id=f"after {scene.sent}", depends_on=["a"]), a_task("ok", id=f"free {scene.sent}")]
    scene.company.tell_nowait(SubmitMany(more))
    answer = await scene.company.ask(Stop("a"))
    assert any({"Stop", "SubmitMany"} <= set(turn) for turn in scene.turns)
    scene.turns.clear()
    return answer


WAYS = {
    "ask": _ask,
    "tell": _tell,
    "tell_nowait": _tell_nowait,
    "StopGoal": _goal,
    "from a handler": _handler,
    "with SubmitMany in one turn": _with_dependents,
}


def _says(answer: Answer, *statuses: str, changed: bool) -> bool:
    """Whether the answer, if there is one, says where the task is and whether it was this stop that did it."""
    if isinstance(answer, Moved):
        return answer.id == "a" and answer.status.value in statuses and answer.changed is changed
    return answer is None or answer == GoalStopped("g", ("a",) if changed else ())


# --- the table --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("phase", PHASES)
async def test_a_stop_ends_the_task_within_the_grace_and_twice_is_harmless(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, phase: str, way: str
) -> None:
    """C46."""
    cell, stop = PHASES[phase], WAYS[way]
    async with a_scene(db_path) as scene:
        _note_turns(scene, monkeypatch)
        await cell.reach(scene)
        starts = len(scene.hears.contexts) + len(scene.deaf.contexts)
        began_s = trio.current_time()
        assert _says(await stop(scene), cell.answer, changed=cell.changes)
        assert _says(await stop(scene), cell.answer, cell.final, changed=False)
        await trio.testing.wait_all_tasks_blocked()
        facts = await _facts(scene)
        assert _says(await stop(scene), facts[0].state.value, changed=False)
        assert await _facts(scene) == facts
        assert await settled(scene.company, "a") == cell.final
        assert trio.current_time() - began_s == pytest.approx(cell.after_s)
        assert tuple(view.end for view in await scene.company.attempts("a")) == cell.ends
        facts = await _facts(scene)
        assert _says(await stop(scene), cell.final, changed=False)
        assert await _facts(scene) == facts
        await _everything_else_goes_on(scene)
        assert len(scene.hears.contexts) + len(scene.deaf.contexts) == starts, "nothing of it begins any more"
    events = [event for event in stored_events(db_path, "k") if event.task == "a"]
    ended = cell.final == "stopped"
    assert len(of_kind(events, "run.stopping")) == (ended and cell.held_slot)
    assert len(of_kind(events, "run.stopped")) == ended
    assert len(of_kind(events, "attempt.late")) == cell.late
    assert of_kind(stored_events(db_path), "message.refused", "actor.crashed") == []


def _note_turns(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    take = CompanyActor._take

    def noted(actor: CompanyActor) -> Turn:
        turn = take(actor)
        scene.turns.append([type(envelope.content).__name__ for envelope in turn.envelopes])
        return turn

    monkeypatch.setattr(CompanyActor, "_take", noted)


async def _facts(scene: Scene) -> tuple[TaskStatus, tuple[object, ...], tuple[object, ...]]:
    await trio.testing.wait_all_tasks_blocked()
    company = scene.company
    return await company.status("a"), await company.attempts("a"), await company.timeline("a")


async def _everything_else_goes_on(scene: Scene) -> None:
    """Every slot is free again, dependents hear of it, and what comes next runs."""
    scene.let_all_go()
    await idle(scene.runtime)
    assert (len(scene.runtime.registry), scene.runtime.registry.abandoned) == (0, ())
    assert scene.runtime.slots.free == 2
    with trio.fail_after(1):
        await scene.submit("ok", "next")
        assert await settled(scene.company, "next") == "completed"
    done = (await scene.company.status("a")).state is WorkState.COMPLETED
    for number in range(1, scene.sent + 1):
        assert await settled(scene.company, f"free {number}") == "completed"
        after = await scene.company.status(f"after {number}")
        assert after.state is (WorkState.COMPLETED if done else WorkState.BLOCKED)


async def test_a_stop_that_overtakes_its_own_submit_is_refused_and_one_that_follows_the_answer_is_not(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """Control goes before submits that were sent and not taken; who waits for an answer notices nothing."""
    async with a_scene(db_path) as scene:
        for task in ("told", "told too"):
            scene.company.tell_nowait(SubmitMany([a_task("hears", id=task)]))
            scene.company.tell_nowait(Stop(task))
        await trio.testing.wait_all_tasks_blocked()
        assert scene.phase() == []
        assert [status.state for status in await scene.company.tasks()] == [
            WorkState.RUNNING,
            WorkState.RUNNING,
            WorkState.QUEUED,
        ]
        await scene.company.ask(SubmitMany([a_task("hears", id="asked")]))
        assert (await scene.company.ask(Stop("asked"))).status.value == "stopped"
    refused = of_kind(stored_events(db_path), "message.refused")
    assert [(event.data["message"], event.reason) for event in refused] == [
        ("Stop", "company 'k' has no task 'told': check the id, or submit it first"),
        ("Stop", "company 'k' has no task 'told too': check the id, or submit it first"),
    ]


# --- against its end --------------------------------------------------------------------------------------------


@attrs.frozen
class End:
    """How a handler ends, and what a stop behind it finds."""

    outcome: Callable[[], object]
    tries_max: int
    final: str
    end: AttemptEnd
    changes: bool = False
    """Whether there is anything left to stop."""


ENDS = {
    "a success": End(lambda: "a result", 3, "completed", AttemptEnd.SUCCEEDED),
    "a failure that is retried": End(lambda: ValueError("no luck"), 3, "stopped", FAILED, changes=True),
    "the last failure": End(lambda: ValueError("no luck"), 1, "failed", FAILED),
    "giving up": End(lambda: GiveUp("enough"), 3, "failed", FAILED),
}


@attrs.define(eq=False)
class Race:
    """An attempt, a gate before the commits, and a stop that somebody asks for."""

    gate: Wrapper
    work: Gated
    runtime: Runtime
    nursery: trio.Nursery
    answers: list[Moved] = attrs.field(factory=list)

    async def returns(self) -> None:
        self.work.open.set()
        await trio.testing.wait_all_tasks_blocked()

    async def stops(self) -> None:
        self.nursery.start_soon(self._ask)
        await trio.testing.wait_all_tasks_blocked()

    async def _ask(self) -> None:
        self.answers.append(await self.runtime.company("k").ask(Stop("a")))

    async def the_actor_is_busy(self) -> None:
        await self.runtime.company("k").tell(Submit("something else", nodes=[]))
        await self.gate.made.is_asked()


ORDERS: dict[str, tuple[Callable[[Race], Awaitable[None]], ...]] = {
    "its end in a commit of its own, then the stop": (Race.returns, Race.stops),
    "the stop in a commit of its own, then its end": (Race.stops, Race.returns),
    "its end and then the stop in one commit": (Race.the_actor_is_busy, Race.returns, Race.stops),
    "the stop and then its end in one commit": (Race.the_actor_is_busy, Race.stops, Race.returns),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("order", ORDERS)
async def test_of_a_stop_and_an_end_the_first_counts(
    db_path: Path, autojump_clock: MockClock, order: str, end: str
) -> None:
    """C46, while finalizing: the first to be committed counts, and in one commit the first to be taken."""
    ends, stop_is_first = ENDS[end], order.startswith("the stop")

    class Ends(Gated):
        async def __call__(self, ctx: Context) -> object:
            with trio.CancelScope(shield=True):  # it ends as it wanted to, whatever it hears
                await super().__call__(ctx)
            outcome = ends.outcome()
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

    work, gate = Ends(), Wrapper(GatedConnection)
    async with (
        a_host(db_path, {"work": work}, wrap=gate, executions_max=1) as runtime,
        trio.open_nursery() as nursery,
    ):
        company, race = runtime.company("k"), Race(gate, work, runtime, nursery)
        await company.ask(a_task("work", id="a", tries_max=ends.tries_max))
        await work.has_started()
        gate.made.shut()
        for step in ORDERS[order]:
            await step(race)
        gate.made.let_go()
        outcome = await company.when_settled("a")
        (view,) = await company.attempts("a")
        (node,) = (await company.status("a")).nodes
        await idle(runtime)
    (answer,) = race.answers
    if stop_is_first:
        assert (outcome.status.value, outcome.result, view.end, answer.changed) == (
            "stopped",
            {},
            STOPPED,
            True,
        )
        assert (node.status, node.tries) == (NodeStatus.SKIPPED, 0)
    else:
        assert (outcome.status.value, view.end, answer.changed) == (ends.final, ends.end, ends.changes)
        assert (answer.status.value, node.tries) == (ends.final, int(ends.end is FAILED))
        assert outcome.result == ({"work": "a result"} if ends.final == "completed" else {})
    told = kinds(event for event in stored_events(db_path) if event.task == "a")
    assert told.count(f"run.{outcome.status.value}") == 1
    assert ("run.stopping" in told) == (outcome.status.value == "stopped")


# --- without a store --------------------------------------------------------------------------------------------


async def _before_it_starts(company: Company) -> None:
    await company.ask(a_task("work", id="a", mode="manual"))


async def _while_it_executes(company: Company) -> None:
    await company.ask(a_task("work", id="a"))


async def _while_it_waits(company: Company) -> None:
    await company.ask(a_task("waits", id="a"))


async def _while_it_backs_off(company: Company) -> None:
    await company.ask(a_task(nodes=[a_node("n", "fails", retry=Backoff(base_s=100_000))], id="a"))


@pytest.mark.parametrize("ends_meanwhile", [False, True], ids=["", "it ends meanwhile"])
@pytest.mark.parametrize(
    "reach", [_before_it_starts, _while_it_executes, _while_it_waits, _while_it_backs_off]
)
async def test_a_stop_while_the_store_is_away_is_done_when_it_is_back_and_not_before(
    db_path: Path,
    autojump_clock: MockClock,
    reach: Callable[[Company], Awaitable[None]],
    ends_meanwhile: bool,
) -> None:
    work, back, store = Gated(), trio.Event(), Wrapper(Flaky)

    async def waits(ctx: Context) -> None:
        async with ctx.waiting("the world"):
            await back.wait()

    answers: dict[int, Moved] = {}
    async with a_host(db_path, {"work": work, "waits": waits}, wrap=store, executions_max=1) as runtime:
        company = runtime.company("k")
        await reach(company)
        await trio.testing.wait_all_tasks_blocked()

        async def ask(number: int) -> None:
            answers[number] = await company.ask(Stop("a"))

        before = stored_events(db_path)
        async with trio.open_nursery() as nursery:
            store.made.down = busy()
            for number in range(2):
                nursery.start_soon(ask, number)
                await trio.sleep(300)
            await company.tell(Stop("a"))
            assert (answers, work.cancelled) == ({}, 0), (
                "what is not durable is neither answered nor acted upon"
            )
            assert stored_events(db_path) == before
            if ends_meanwhile:
                work.open.set()
                back.set()
                await trio.sleep(100)
            store.made.down = None
        began_s = trio.current_time()
        assert await settled(company, "a") == "stopped"
        assert trio.current_time() - began_s <= GRACE_S
        assert [answers[number].changed for number in range(2)] == [True, False]
        await company.ask(a_task("ok", id="next"))
        assert await settled(company, "next") == "completed"
        assert runtime.slots.free == 1
    assert len(of_kind(stored_events(db_path), "run.stopped")) == 1
    assert of_kind(stored_events(db_path), "actor.crashed", "message.refused") == []


async def test_a_stop_that_was_sent_into_an_outage_and_a_close_is_done_or_told_as_unknown(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work, store = Gated(), Wrapper(Flaky)
    outcomes: list[object] = []
    async with a_host(db_path, {"work": work}, wrap=store) as runtime, trio.open_nursery() as nursery:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await work.has_started()
        store.made.down = busy()

        async def ask() -> None:
            try:
                outcomes.append(await company.ask(Stop("a")))
            except Exception as error:
                outcomes.append(error)

        nursery.start_soon(ask)
        await trio.sleep(10)
        report = await runtime.aclose(now=True)
        assert report.interrupted == ("k/a/1/work/1",)
    (outcome,) = outcomes
    assert isinstance(outcome, OutcomeUnknown)
    work.open.set()
    async with a_host(db_path, {"work": work}) as runtime:
        assert await settled(runtime.company("k"), "a") == "completed", "it was not done, so it runs again"


# --- a goal over many -------------------------------------------------------------------------------------------

STAYS = {
    "done": (20, WorkState.COMPLETED),
    "failed": (20, WorkState.FAILED),
    "put away": (5, WorkState.ARCHIVED),
    "another": (5, WorkState.RUNNING),
}
"""Kind of task → how many, and what they are after the stop as well as before."""
STOPS = {
    "backing off": 20,
    "executing": 30,
    "deaf": 5,
    "wants a slot": 30,
    "queued": 1_000,
    "behind": 200,
    "blocked": 200,
}


def _one(kind: str, number: int) -> Submit:
    fields: dict[str, Any] = {"goal": "g", "id": f"{kind} {number}", "handler": "work"}
    if kind == "done":
        fields |= {"handler": "ok"}
    elif kind == "failed":
        fields |= {"handler": "fails", "tries_max": 1}
    elif kind == "put away":
        fields |= {"mode": "manual"}
    elif kind == "another":
        fields |= {"goal": "another"}
    elif kind == "deaf":
        fields |= {"handler": "deaf"}
    elif kind == "backing off":
        node = a_node("n", "fails", retry=Backoff(base_s=100_000))
        return Submit(kind, goal="g", id=fields["id"], nodes=[node])
    elif kind == "behind":
        fields |= {"depends_on": [f"executing {number % STOPS['executing']}"]}
    elif kind == "blocked":
        fields |= {"depends_on": [f"failed {number % STAYS['failed'][0]}"]}
    return Submit(kind, **fields)


async def _a_crowd(company: Company, work: Gated) -> None:
    """Tasks of the goal in every phase, and some of another."""
    await company.ask(SetLimits(runs_max=120))
    for kind in ("done", "failed", "backing off", "put away", "another"):
        count = STOPS[kind] if kind in STOPS else STAYS[kind][0]
        await company.ask(SubmitMany([_one(kind, number) for number in range(count)]))
        await trio.testing.wait_all_tasks_blocked()
    for number in range(STAYS["put away"][0]):
        await company.ask(Archive(f"put away {number}"))
    for kind in ("executing", "deaf", "wants a slot", "queued", "behind", "blocked"):
        await company.ask(SubmitMany([_one(kind, number) for number in range(STOPS[kind])]))
        await trio.testing.wait_all_tasks_blocked()
    assert work.running == STAYS["another"][0] + STOPS["executing"]


async def test_a_goal_of_many_tasks_in_every_phase_is_stopped_in_one_commit(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work, deaf = Gated(), Stubborn()
    wanted = tuple(f"{kind} {number}" for kind, count in STOPS.items() for number in range(count))
    handlers, slots = {"work": work, "deaf": deaf}, STAYS["another"][0] + STOPS["executing"] + STOPS["deaf"]
    async with a_host(db_path, handlers, executions_max=slots, stop_grace_s=GRACE_S) as runtime:
        company = runtime.company("k")
        try:
            await _a_crowd(company, work)
            before = len(stored_events(db_path))
            assert await company.ask(StopGoal("g")) == GoalStopped("g", wanted), "in order of submission"
            assert (await company.ask(StopGoal("g"))).tasks == (), "what is stopping is not stopped again"
            await trio.sleep(GRACE_S + 1)
            states = {status.id: status.state for status in await company.tasks(archived=True)}
            assert {states.pop(task) for task in wanted} == {WorkState.STOPPED}
            for kind, (count, state) in STAYS.items():
                assert {states.pop(f"{kind} {number}") for number in range(count)} == {state}
            assert states == {}
            assert len(runtime.registry.abandoned) == STOPS["deaf"]
            assert (await company.ask(StopGoal("g"))).tasks == ()
        finally:
            work.open.set()
            deaf.open.set()
        await idle(runtime)
        assert runtime.slots.free == slots
    assert (len(work.contexts), work.cancelled) == (35, 30), "nothing of it began any more"
    told = stored_events(db_path)[before:]
    stopped = of_kind(told, "run.stopped")
    assert sorted(str(event.task) for event in stopped) == sorted(wanted), "each of them once"
    before_any_end = told[: kinds(told).index("attempt.stopped")]
    assert {e.task for e in of_kind(before_any_end, "run.stopping", "run.stopped")} == set(wanted)
