"""A result that comes late is consumed and recorded, and changes nothing, whatever has become of its task.

Phases times outcomes, every cell a test: the attempt was left behind, its task went on, and now it returns. The rows
of the file, what the company says of itself and what executes are the same before and after; one ``attempt.late`` has
come to the log.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from structlog.testing import capture_logs
from trio.testing import MockClock

import actors.core.decide
from actors import (
    ActorCrashed,
    Archive,
    Backoff,
    Company,
    Context,
    GiveUp,
    Node,
    Pause,
    Rerun,
    Retry,
    RetryAfter,
    Runtime,
    SetLimits,
    Stop,
    Submit,
    Unpause,
    WorkState,
)
from actors.core.draft import Draft
from actors.core.needs import Looked
from tests.runtime.support import Gated, Stubborn, a_host, a_task, idle, of_kind, stored_events

TIMEOUT_S = 5.0
GRACE_S = 1.0
TABLES = ("tasks", "edges", "runs", "nodes", "attempts", "quarantine", "graphs")


@pytest.fixture(autouse=True)
def said() -> Iterator[None]:
    """What the crashes say is not to be rendered."""
    with capture_logs():
        yield


# --- the scene --------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Scene:
    """A company whose task ``a`` was begun by a handler that hears nothing and ends as ``outcome``."""

    runtime: Runtime = attrs.field(init=False)
    outcome: object = "too late"
    first: Stubborn = attrs.field(factory=Stubborn)
    second: Gated = attrs.field(factory=lambda: Gated("of the second"))
    """Every later attempt."""
    hears: bool = True
    """Whether those hear their cancellation."""
    began: list[str] = attrs.field(factory=list)
    crashes: int = 0
    """How often the actor is still to crash."""

    @property
    def company(self) -> Company:
        return self.runtime.company("k")

    async def work(self, ctx: Context) -> object:
        self.began.append(f"{ctx.key} #{ctx.attempt}")
        if (ctx.run, ctx.attempt) != (1, 1):
            with trio.CancelScope(shield=not self.hears):
                return await self.second(ctx)
        await self.first(ctx)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    async def after(self, ctx: Context) -> object:
        self.began.append(ctx.key)
        return dict(ctx.inputs)

    async def submit(self, **node: Any) -> None:
        """Task ``a``, and one that depends on it."""
        nodes = [Node("n", "work", **node), Node("then", "after", after=["n"])]
        await self.company.ask(Submit("a", id="a", nodes=nodes))
        await self.company.ask(a_task("after", id="b", depends_on=["a"]))
        await self.first.has_started()

    async def is_left_behind(self) -> None:
        """Wait until the first attempt was given up."""
        await trio.sleep(TIMEOUT_S + GRACE_S + 0.5)
        assert len(self.runtime.registry.abandoned) == 1

    async def settle(self) -> None:
        await trio.testing.wait_all_tasks_blocked()

    async def state(self) -> WorkState:
        return (await self.company.status("a")).state

    def let_all_go(self) -> None:
        self.first.open.set()
        self.second.open.set()


def facts_of(path: Path) -> dict[str, list[Any]]:
    """Every row that says something of the company's work. Its epoch is its actor's affair, its numbers the log's."""
    with closing(sqlite3.connect(path)) as raw:
        tables = {table: sorted(map(repr, raw.execute(f"SELECT * FROM {table}"))) for table in TABLES}
        columns = "name, runs_max, weight, paused_ms, task_seq, front_seq, due_ms"
        tables["companies"] = raw.execute(f"SELECT {columns} FROM companies").fetchall()
    return tables


async def what_there_is(scene: Scene, path: Path) -> dict[str, Any]:
    """All that must not change."""
    registry = scene.runtime.registry
    return {
        "file": facts_of(path),
        "tasks": await scene.company.tasks(archived=True),
        "result": await scene.company.result("a"),
        "explained": [await scene.company.explain(task) for task in ("a", "b")],
        "attempts": [(attempt.label, attempt.phase, attempt.slot) for attempt in registry],
        "began": list(scene.began),
        "free": scene.runtime.slots.free,
    }


@asynccontextmanager
async def a_scene(
    path: Path, monkeypatch: pytest.MonkeyPatch, outcome: object = "too late"
) -> AsyncIterator[Scene]:
    scene = Scene(outcome)
    decide = actors.core.decide.decide

    def bad_decide(draft: Draft, message: Any, looked: Looked) -> object:
        if scene.crashes:
            scene.crashes -= 1
            raise ZeroDivisionError("a mistake of ours")
        return decide(draft, message, looked)

    monkeypatch.setattr("actors.runtime.company.decide", bad_decide)
    handlers = {"work": scene.work, "after": scene.after}
    async with a_host(path, handlers, executions_max=2, stop_grace_s=GRACE_S, idle_s=1.0) as scene.runtime:
        try:
            yield scene
        finally:
            scene.let_all_go()


# --- phases -----------------------------------------------------------------------------------------------------


async def _pending_again(scene: Scene) -> None:
    await scene.submit(timeout_s=TIMEOUT_S, retry=Backoff(base_s=0))
    await scene.company.ask(Pause())
    await scene.is_left_behind()


async def _executing_again(scene: Scene) -> None:
    await scene.submit(timeout_s=TIMEOUT_S, retry=Backoff(base_s=0))
    await scene.is_left_behind()
    assert scene.second.running == 1


async def _backing_off(scene: Scene) -> None:
    await scene.submit(timeout_s=TIMEOUT_S, retry=Backoff(base_s=1_000))
    await scene.is_left_behind()


async def _stopping(scene: Scene) -> None:
    scene.hears = False
    await _executing_again(scene)
    await scene.company.ask(Stop("a"))


async def _stopped(scene: Scene) -> None:
    await scene.submit()
    await scene.company.ask(Stop("a"))
    await scene.is_left_behind()


async def _failed(scene: Scene) -> None:
    await scene.submit(timeout_s=TIMEOUT_S, tries_max=1)
    await scene.is_left_behind()


async def _completed(scene: Scene) -> None:
    await _executing_again(scene)
    scene.second.open.set()


async def _archived(scene: Scene) -> None:
    await _stopped(scene)
    await scene.company.ask(Archive("a"))


async def _queued_again(scene: Scene) -> None:
    await _stopped(scene)
    await scene.company.ask(SetLimits(runs_max=0))
    await scene.company.ask(Retry("a"))


async def _retried(scene: Scene) -> None:
    await _stopped(scene)
    await scene.company.ask(Retry("a"))


async def _rerun_queued(scene: Scene) -> None:
    await _stopped(scene)
    await scene.company.ask(SetLimits(runs_max=0))
    await scene.company.ask(Rerun("a"))


async def _rerun_executing(scene: Scene) -> None:
    """The new attempt stands at the same node and has the same number."""
    await _stopped(scene)
    await scene.company.ask(Rerun("a"))
    await scene.second.has_started()


async def _rerun_completed(scene: Scene) -> None:
    await _rerun_executing(scene)
    scene.second.open.set()


@attrs.frozen
class Phase:
    reach: Callable[[Scene], Awaitable[None]]
    state: WorkState
    alive: bool = False
    """Whether another attempt at the task executes, so that the actor cannot leave."""
    final: str = "completed"
    """What the task comes to in the end, when all that held it up is gone."""


PHASES = {
    "pending again": Phase(_pending_again, WorkState.RUNNING),
    "executing again": Phase(_executing_again, WorkState.RUNNING, alive=True),
    "backing off": Phase(_backing_off, WorkState.RUNNING),
    "stopping": Phase(_stopping, WorkState.STOPPING, alive=True, final="stopped"),
    "stopped": Phase(_stopped, WorkState.STOPPED, final="stopped"),
    "failed": Phase(_failed, WorkState.FAILED, final="failed"),
    "completed": Phase(_completed, WorkState.COMPLETED),
    "archived": Phase(_archived, WorkState.ARCHIVED, final="stopped"),
    "queued again": Phase(_queued_again, WorkState.QUEUED),
    "retried, executing": Phase(_retried, WorkState.RUNNING, alive=True),
    "rerun, queued": Phase(_rerun_queued, WorkState.QUEUED),
    "rerun, executing": Phase(_rerun_executing, WorkState.RUNNING, alive=True),
    "rerun, completed": Phase(_rerun_completed, WorkState.COMPLETED),
}


# --- the table --------------------------------------------------------------------------------------------------


OUTCOMES: dict[str, Callable[[], object]] = {
    "a success": lambda: "too late",
    "a failure": lambda: ValueError("too late"),
    "giving up": lambda: GiveUp("too late"),
    "asking for later": lambda: RetryAfter(3, "too late"),
    "what is no JSON": lambda: float("nan"),
}
"""Made anew each time: an error that was raised keeps what it came through."""


async def _comes_late(scene: Scene, path: Path, *, meanwhile: Callable[[Scene], Awaitable[None]]) -> None:
    """Let the first attempt return, and compare."""
    await scene.settle()
    before, told = await what_there_is(scene, path), len(stored_events(path))
    await meanwhile(scene)
    scene.first.open.set()
    await scene.settle()
    assert await what_there_is(scene, path) == before
    (late,) = [event for event in stored_events(path)[told:] if event.kind != "actor.crashed"]
    assert (late.kind, late.company, late.task, late.run) == ("attempt.late", "k", "a", 1)
    assert (late.node, late.attempt, late.before, late.after) == ("n", 1, None, None)
    assert (late.reason is None) == (scene.outcome == "too late")
    expected = {str: {"succeeded"}, GiveUp: {"failed"}, RetryAfter: {"interrupted"}}
    cancelled_as = {"timed_out", "stopped"}  # an error out of a cancelled handler is a way of ending
    assert late.data["outcome"] in expected.get(type(scene.outcome), cancelled_as)
    assert scene.runtime.registry.abandoned == (), "it is consumed"
    scene.runtime.registry.check()


async def _goes_on(scene: Scene, final: str) -> None:
    """Whatever held the task up is gone: it comes to its end without the late one."""
    await scene.company.ask(Unpause())
    await scene.company.ask(SetLimits(runs_max=2))
    scene.second.open.set()
    await idle(scene.runtime)
    status = await scene.company.status("a")
    assert (status.run_status or "").lower() == final
    if final == "completed":
        result = await scene.company.result("a")
        assert result == {"n": "of the second", "then": {"n": "of the second"}}
        assert (await scene.company.status("b")).state is WorkState.COMPLETED
    else:
        assert (await scene.company.status("b")).state is WorkState.BLOCKED
    assert len(scene.began) == len(set(scene.began)), "nothing began twice"
    assert scene.runtime.slots.free == 2
    assert len(of_kind(stored_events(Path(scene.runtime.path)), "attempt.late")) == 1


async def _nothing(_scene: Scene) -> None:
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("phase", PHASES)
async def test_a_late_result_is_recorded_and_changes_nothing(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, phase: str, outcome: str
) -> None:
    """C08, C11, C12."""
    async with a_scene(db_path, monkeypatch, OUTCOMES[outcome]()) as scene:
        await PHASES[phase].reach(scene)
        await scene.settle()
        assert await scene.state() is PHASES[phase].state
        await _comes_late(scene, db_path, meanwhile=_nothing)
        await _goes_on(scene, PHASES[phase].final)


async def _until_it_left(scene: Scene) -> None:
    """The actor has nothing to do and leaves; whoever speaks to the company next loads it anew."""
    with trio.fail_after(120):
        while scene.runtime.supervisor.cells:
            await trio.sleep(0.25)


@pytest.mark.parametrize("outcome", ["a success", "giving up"])
@pytest.mark.parametrize("phase", [name for name, phase in PHASES.items() if not phase.alive])
async def test_a_late_result_is_recorded_by_a_company_that_is_loaded_anew(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, phase: str, outcome: str
) -> None:
    async with a_scene(db_path, monkeypatch, OUTCOMES[outcome]()) as scene:
        await PHASES[phase].reach(scene)
        await scene.settle()
        await _comes_late(scene, db_path, meanwhile=_until_it_left)
        assert len(scene.runtime.supervisor.cells) == 1
        await _goes_on(scene, PHASES[phase].final)


async def _crash(scene: Scene) -> None:
    """The next actor begins and adopts what executes."""
    scene.crashes = 1
    with pytest.raises(ActorCrashed):
        await scene.company.ask(Pause())
    await scene.settle()


@pytest.mark.parametrize("phase", PHASES)
async def test_a_late_result_is_recorded_by_the_actor_that_came_after_a_crash(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    async with a_scene(db_path, monkeypatch) as scene:
        await PHASES[phase].reach(scene)
        await scene.settle()
        await _comes_late(scene, db_path, meanwhile=_crash)
        await _goes_on(scene, PHASES[phase].final)


@pytest.mark.parametrize("phase", ["stopped", "failed", "backing off", "completed", "rerun, executing"])
async def test_a_late_result_that_comes_while_there_is_no_actor_is_kept_for_the_next(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    """After some crashes the actor rests; the result lies in the mailbox until it begins again, and is not dropped
    as one that the registry tells.
    """

    async def meanwhile(scene: Scene) -> None:
        for _ in range(3):
            await _crash(scene)
            await trio.sleep(0)
        scene.first.open.set()
        await scene.settle()
        cell = scene.runtime.supervisor.find("k")
        assert cell is not None
        assert (cell.actor, cell.mailbox.depths) == (None, (0, 1))
        await trio.sleep(3)

    async with a_scene(db_path, monkeypatch) as scene:
        await PHASES[phase].reach(scene)
        await scene.settle()
        await _comes_late(scene, db_path, meanwhile=meanwhile)
        await _goes_on(scene, PHASES[phase].final)
