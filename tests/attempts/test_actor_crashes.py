"""An actor crashes at every place of its turn while an attempt is in every phase, and no one notices.

Places times phases, every cell a test. The next actor adopts what lives: nothing runs twice, nothing is lost, every
slot is free in the end, and no exit path forgot a registration.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from structlog.testing import capture_logs
from trio.testing import MockClock

import actors.core.turn
import actors.runtime.company
import actors.runtime.recovery
import storage.sqlite.unit_of_work
from actors import (
    ActorCrashed,
    AttemptEnd,
    Context,
    Message,
    Runtime,
    SetLimits,
    Start,
    Stop,
    Submit,
    TaskUnknown,
    WorkState,
)
from actors.runtime.company import CompanyActor
from actors.runtime.executor import Executor
from actors.runtime.publisher import Publisher
from storage.contract.companies import ClaimCompany
from storage.contract.loading import LoadCompany
from storage.contract.turns import CommitTurn, Prefetch
from storage.group_commit import Writer
from storage.sqlite.engine import OPERATIONS, QUERIES
from tests.inside import inside
from tests.runtime.support import GatedConnection, Wrapper, a_host, a_task, idle, of_kind, stored_events

# --- places -----------------------------------------------------------------------------------------------------


class Bug(Exception):
    """A mistake of ours."""


@attrs.define
class Faults:
    """How often each place still raises, and how often it has."""

    left: dict[str, int] = attrs.field(factory=dict)
    hits: list[str] = attrs.field(factory=list)

    def strike(self, place: str) -> None:
        if self.left.get(place, 0):
            self.left[place] -= 1
            self.hits.append(place)
            raise Bug(f"at {place}")


TURN = MappingProxyType(
    {
        "take": (CompanyActor, "_take"),
        "what to load": (actors.runtime.company, "needs_of"),
        "load": (QUERIES, Prefetch),
        "decide": (actors.core.turn, "decide"),
        "decide a report": (actors.core.turn, "decide_report"),
        "advance": (actors.core.turn, "advance"),
        "commit": (Writer, "submit"),
        "inside the commit": (storage.sqlite.unit_of_work, "_write_companies"),
        "publish": (Publisher, "published"),
        "act": (CompanyActor, "_perform"),
        "start": (Executor, "start"),
        "cancel": (Executor, "cancel"),
        "finish": (Executor, "finish"),
    }
)
"""Where a turn can go wrong: each is a function that raises instead of doing its part, or after it."""
LOAD = MappingProxyType(
    {
        "claim": (OPERATIONS, ClaimCompany),
        "facts": (QUERIES, LoadCompany),
        "state": (actors.runtime.company, "state_of"),
        "recover": (actors.runtime.recovery, "ending_runs"),
    }
)
"""Where an actor that begins can go wrong; the one before it crashed at its take."""


PLACES: dict[str, dict[str, int]] = {
    **{place: {place: 1} for place in TURN},
    **{f"{place}, done": {f"{place}, done": 1} for place in ("publish", "act", "inside the commit")},
    **{f"{place}, twice": {place: 2} for place in ("commit", "inside the commit")},
    **{
        f"load of the next actor: {when}": {"take": 1, when: 1}
        for place in LOAD
        for when in (place, f"{place}, done")
    },
}
"""Name → how often each place raises."""


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    """Every place, made so that it raises when it is armed."""
    made = Faults()
    places: list[tuple[str, tuple[Any, Any]]] = [*TURN.items(), *LOAD.items()]
    for place, (owner, name) in places:
        if isinstance(owner, dict):
            monkeypatch.setitem(owner, name, _breaking(made, place, owner[name]))
        else:
            monkeypatch.setattr(owner, name, _breaking(made, place, getattr(owner, name)))
    return made


def _breaking(faults: Faults, place: str, inner: Callable[..., Any]) -> Callable[..., Any]:
    about_units = place == "commit"  # what else is written is no turn's

    def broken(*args: Any, **options: Any) -> Any:
        if not about_units or isinstance(args[1], CommitTurn):
            faults.strike(place)
        value = inner(*args, **options)
        faults.strike(f"{place}, done")
        return value

    return broken


# --- phases -----------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Scene:
    """A company with one execution slot, and the attempt at task ``a`` that the crash is about."""

    gate: Wrapper
    starts: list[str] = attrs.field(factory=list)
    """Idempotency keys, one for each time that a handler began."""
    let_go: trio.Event = attrs.field(factory=trio.Event)
    """The attempt may go on to its end."""
    other_go: trio.Event = attrs.field(factory=trio.Event)
    """So may the one that holds the slot beside it."""
    cancelled: trio.Event = attrs.field(factory=trio.Event)
    may_end: trio.Event = attrs.field(factory=trio.Event)
    """It was cancelled and needs a while."""
    answers: list[object] = attrs.field(factory=list)
    runtime: Runtime = attrs.field(init=False)
    nursery: trio.Nursery = attrs.field(init=False)

    async def holds(self, ctx: Context) -> str:
        self.starts.append(ctx.key)
        try:
            await self.let_go.wait()
        except trio.Cancelled:
            self.cancelled.set()
            with trio.CancelScope(shield=True):
                await self.may_end.wait()
            raise
        return "a result"

    async def waits(self, ctx: Context) -> str:
        self.starts.append(ctx.key)
        async with ctx.waiting("to be let go"):
            await self.let_go.wait()
        return "a result"

    async def beside(self, ctx: Context) -> None:
        self.starts.append(ctx.key)
        await self.other_go.wait()

    async def say(self, message: Message[Any]) -> None:
        """Send a message and note how it was answered: it has to be."""
        try:
            self.answers.append(await self.runtime.company("k").ask(message))
        except ActorCrashed as error:
            self.answers.append(error)

    async def has(self, phase: str) -> None:
        """Wait until the attempt at ``a`` is in this phase."""
        await trio.testing.wait_all_tasks_blocked()
        phases = {
            attempt.ref.key.task: attempt.phase.value for attempt in inside(self.runtime).services.registry
        }
        assert phases["a"] == phase


Step = Callable[[Scene], Awaitable[None]]


@attrs.frozen
class Phase:
    """``reach`` brings the attempt there; ``meet`` is what the turn that crashes is about, besides a message."""

    reach: Step
    meet: Step
    asks: Message[Any] | None = None
    """What was asked of the task; whoever is told that it did not happen asks again."""

    @property
    def stopped(self) -> bool:
        return isinstance(self.asks, Stop)


async def _nothing(_scene: Scene) -> None:
    await trio.lowlevel.checkpoint()


async def _held(scene: Scene) -> None:
    await scene.say(a_task("holds", id="a", mode="manual"))


async def _executing(scene: Scene) -> None:
    await scene.say(a_task("holds", id="a"))
    await scene.has("executing")


async def _waiting(scene: Scene) -> None:
    await scene.say(a_task("waits", id="a"))
    await scene.has("waiting")


async def _wants_back(scene: Scene) -> None:
    await _waiting(scene)
    await scene.say(a_task("beside", id="b"))
    await trio.testing.wait_all_tasks_blocked()
    scene.let_go.set()
    await scene.has("waiting")


async def _cancelling(scene: Scene) -> None:
    await _executing(scene)
    await scene.say(Stop("a"))
    await scene.has("cancelling")
    assert scene.cancelled.is_set()


async def _start(scene: Scene) -> None:
    scene.nursery.start_soon(scene.say, Start("a"))
    await trio.lowlevel.checkpoint()


async def _stop(scene: Scene) -> None:
    scene.nursery.start_soon(scene.say, Stop("a"))
    await trio.lowlevel.checkpoint()


async def _return(scene: Scene) -> None:
    scene.let_go.set()
    await trio.testing.wait_all_tasks_blocked()


async def _reported(scene: Scene) -> None:
    """The handler has returned, and its report lies in the mailbox of an actor that is in a commit."""
    await _executing(scene)
    scene.gate.made.shut()
    scene.nursery.start_soon(scene.say, Submit("keeps the actor busy", nodes=[]))
    await scene.gate.made.is_asked()
    scene.let_go.set()
    await scene.has("finalizing")
    cell = inside(scene.runtime).services.directory.find("k")
    assert cell is not None
    assert cell.mailbox.depths == (0, 1)


async def _end_commit(scene: Scene) -> None:
    scene.gate.made.let_go()
    await trio.lowlevel.checkpoint()


PHASES = {
    "starting": Phase(_held, _start, Start("a")),
    "executing": Phase(_executing, _nothing),
    "waiting": Phase(_waiting, _nothing),
    "wanting its slot back": Phase(_wants_back, _nothing),
    "being stopped": Phase(_executing, _stop, Stop("a")),
    "cancelling": Phase(_cancelling, _nothing, Stop("a")),
    "reporting": Phase(_executing, _return),
    "reported": Phase(_reported, _end_commit),
}


# --- the table --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def a_scene(path: Path) -> AsyncIterator[Scene]:
    scene = Scene(Wrapper(GatedConnection))
    handlers = {"holds": scene.holds, "waits": scene.waits, "beside": scene.beside}
    async with (
        a_host(path, handlers, wrap=scene.gate, executions_max=1) as scene.runtime,
        trio.open_nursery() as scene.nursery,
    ):
        await scene.say(SetLimits(runs_max=2))
        try:
            yield scene
        finally:
            scene.gate.made.let_go()
            for event in (scene.let_go, scene.other_go, scene.may_end):
                event.set()


CELLS = [
    (place, phase) for place in PLACES for phase in PHASES if place != "cancel" or phase == "being stopped"
]


@pytest.mark.parametrize(("place", "phase"), CELLS)
async def test_a_crash_of_the_actor_runs_nothing_twice_and_loses_nothing(
    db_path: Path, autojump_clock: MockClock, faults: Faults, place: str, phase: str
) -> None:
    """C46 is among them: a crash right after the commit of the stop."""
    with capture_logs() as logs, trio.fail_after(600):
        async with a_scene(db_path) as scene:
            await PHASES[phase].reach(scene)
            faults.left.update(PLACES[place])
            await PHASES[phase].meet(scene)
            await scene.say(a_task(id="poke"))
            await _let_everything_end(scene, PHASES[phase].asks)
            assert faults.hits == [name for name, times in PLACES[place].items() for _ in range(times)]
            await _everything_is_as_if_nothing_had_been(scene, stopped=PHASES[phase].stopped)
            await _poked_exactly_if_it_was_answered(scene)
    assert [entry for entry in logs if entry["event"] == "attempt.leak"] == []
    assert of_kind(stored_events(db_path), "attempt.late", "task.quarantined") == []


async def _let_everything_end(scene: Scene, asks: Message[Any] | None) -> None:
    await trio.testing.wait_all_tasks_blocked()
    inside(scene.runtime).services.registry.check()
    scene.other_go.set()
    scene.may_end.set()
    if asks is not None and any(isinstance(answer, ActorCrashed) for answer in scene.answers):
        await scene.say(asks)
    if isinstance(asks, Stop):
        with trio.fail_after(5):  # long before the next sweep, and it is not let go
            await scene.cancelled.wait()
    scene.let_go.set()
    await idle(scene.runtime)


async def _everything_is_as_if_nothing_had_been(scene: Scene, *, stopped: bool) -> None:
    runtime, company = scene.runtime, scene.runtime.company("k")
    outcome = await company.when_settled("a")
    (node,) = (await company.status("a")).nodes
    *before, last = [view.end for view in await company.attempts("a")]
    if stopped:
        assert (outcome.status.value, outcome.result, last) == ("stopped", {}, AttemptEnd.STOPPED)
    else:
        assert (outcome.status.value, last) == ("completed", AttemptEnd.SUCCEEDED)
        assert outcome.result == {node.name: "a result"}
    assert set(before) <= {AttemptEnd.INTERRUPTED}, "one that was never begun"
    assert node.tries == 0
    assert len(scene.starts) == len(set(scene.starts)), "no handler began twice"
    assert scene.starts[0] == f"k/a/1/{node.name}/0"
    inside(runtime).services.registry.check()
    assert (len(inside(runtime).services.registry), inside(runtime).services.registry.abandoned) == (0, ())
    assert inside(runtime).services.slots.free == 1
    counted = runtime.statistics()
    assert (counted.active, counted.executing, counted.waiting, counted.mailbox_system) == (0, 0, 0, 0)
    await company.ask(a_task(id="afterwards"))
    assert (await company.when_settled("afterwards")).status.value == "completed"


async def _poked_exactly_if_it_was_answered(scene: Scene) -> None:
    """Also the message that met the crash is done once, or it is said that it was not."""
    company = scene.runtime.company("k")
    crashed = [answer for answer in scene.answers if isinstance(answer, ActorCrashed)]
    try:
        state = (await company.status("poke")).state
    except TaskUnknown:
        assert [answer.happened for answer in crashed] == [False]
        return
    assert state is WorkState.COMPLETED
