"""A soak: many companies, handlers that misbehave in every listed way, actors that crash at random, hours of it.

In the end everything is settled, every slot is free, nobody is left behind and memory is back. The seed is in the
test's name; the clock is virtual, so the hours are seconds.
"""

from __future__ import annotations

import gc
import random
from typing import Any

import pytest
import structlog
import trio
from trio.testing import MockClock

import actors.runtime.company
from actors import (
    Archive,
    Context,
    Edit,
    GiveUp,
    Node,
    Pause,
    Refused,
    Retry,
    RetryAfter,
    Runtime,
    SetLimits,
    Stop,
    StopGoal,
    Submit,
    TurnkeeperError,
    Unpark,
    Unpause,
    WorkState,
)
from actors.runtime.attempts import Attempt
from actors.testing import run_until_idle
from tests.conftest import Opened

COMPANIES = 12
ROUNDS = 40
EVERY_S = 120.0
AT_REST = {
    WorkState.COMPLETED,
    WorkState.FAILED,
    WorkState.STOPPED,
    WorkState.BLOCKED,
    WorkState.ARCHIVED,
    WorkState.QUARANTINED,
}


class Misbehaviour:
    """A handler for each way in which one can go wrong, drawn from one seeded source."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.ended = False
        self.ran = 0

    async def work(self, ctx: Context) -> Any:
        self.ran += 1
        kinds = (
            self.good,
            self.raises,
            self.hangs,
            self.swallows,
            self.waits,
            self.chatters,
            self.asks,
            self.lies,
        )
        kind = self.good if self.ended else self.random.choice(kinds)
        return await kind(ctx)

    async def good(self, _ctx: Context) -> str:
        await trio.sleep(self.random.uniform(0, 30))
        return "good"

    async def raises(self, _ctx: Context) -> None:
        await trio.sleep(self.random.uniform(0, 5))
        raise self.random.choice(
            [
                ValueError("bad \0 text"),
                GiveUp("enough"),
                RetryAfter(20),
                SystemExit(3),
                ExceptionGroup("g", [OSError()]),
            ]
        )

    async def hangs(self, _ctx: Context) -> None:
        await trio.sleep_forever()

    async def swallows(self, _ctx: Context) -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(self.random.uniform(0, 300))
        return "late, perhaps"

    async def waits(self, ctx: Context) -> str:
        with trio.move_on_after(self.random.uniform(1, 200)):
            async with ctx.waiting("somebody"):
                await trio.sleep(self.random.uniform(1, 200))
        return "waited"

    async def chatters(self, ctx: Context) -> str:
        for step in range(200):
            ctx.progress(f"step {step}")
            await trio.sleep(1)
        return "done"

    async def asks(self, ctx: Context) -> str:
        with trio.move_on_after(60):
            try:
                await ctx.company.ask(Submit("child", handler="work", goal="children"))
            except TurnkeeperError:
                return "refused"
        return "asked"

    async def lies(self, _ctx: Context) -> object:
        return self.random.choice([float("nan"), {1, 2}, object(), "x" * 2_000_000])


class Saboteur:
    """Makes actors crash at random: while they decide, and after a commit."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.random = random.Random(seed)
        self.on = True
        self.crashes = 0
        actor = actors.runtime.company.CompanyActor
        for name in ("_take", "_decide", "_act"):
            monkeypatch.setattr(actor, name, self._wrap(getattr(actor, name)))

    def _wrap(self, method: Any) -> Any:
        def wrapped(actor: Any, *args: Any, **options: Any) -> Any:
            if self.on and self.random.random() < 0.01:
                self.crashes += 1
                raise RuntimeError("sabotage")
            return method(actor, *args, **options)

        return wrapped


async def one_round(runtime: Runtime, dice: random.Random) -> None:
    """A few messages to a few companies. Refusals are part of life."""
    for _ in range(4):
        company = runtime.company(f"c{dice.randrange(COMPANIES)}")
        tasks = [status.id for status in await company.tasks()]
        one = dice.choice(tasks) if tasks else "none"
        shape = [Node("a", "work", stall_s=60, timeout_s=dice.choice([None, 20.0, 90.0]))]
        shape += [Node(f"b{n}", "work", after=["a"], stall_s=60) for n in range(dice.randrange(3))]
        message = dice.choice(
            [
                Submit("x", nodes=shape, goal=dice.choice(["g", None]), depends_on=[one] if tasks else []),
                Submit("y", nodes=shape, fail_fast=True, priority=dice.randrange(4)),
                Submit("z", handler="work"),
                Stop(one),
                Retry(one),
                Edit(one, tries_max=dice.randrange(1, 4)),
                StopGoal("g"),
                Pause(),
                Unpause(),
                SetLimits(runs_max=dice.randrange(4), weight=dice.randrange(1, 4)),
                Archive(one),
            ]
        )
        with trio.move_on_after(EVERY_S):
            try:
                await company.ask(message)
            except (Refused, TurnkeeperError):
                continue


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_after_hours_of_misbehaviour_everything_is_settled_and_every_slot_is_free(
    seed: int, opened: Opened, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers, dice = Misbehaviour(seed), random.Random(seed)
    saboteur = Saboteur(seed, monkeypatch)
    options: dict[str, Any] = {"executions_max": 5, "stop_grace_s": 5, "abandoned_max": 4, "waiting_max": 3}
    with structlog.testing.capture_logs():
        await soak(opened, handlers, saboteur, dice, options)


async def soak(
    opened: Opened, handlers: Misbehaviour, saboteur: Saboteur, dice: random.Random, options: dict[str, Any]
) -> None:
    before = attempts_in_memory()  # of other tests, which may hold to what they like
    async with opened({"work": handlers.work}, **options) as runtime:
        for _ in range(ROUNDS):
            await one_round(runtime, dice)
            await trio.sleep(EVERY_S * dice.random())
            runtime.registry.check()
            assert runtime.registry.slots_in_use <= 5
            assert runtime.registry.waiting <= 3
        handlers.ended, saboteur.on = True, False
        await trio.sleep(200)
        for name in await runtime.companies():
            company = runtime.company(name)
            await company.ask(Unpark())
            await company.ask(SetLimits(runs_max=2))
            await company.ask(Unpause())
        await run_until_idle(runtime)
        await trio.sleep(400)  # those left behind come home
        await run_until_idle(runtime)
        states = [
            status.state
            for name in await runtime.companies()
            for status in await runtime.company(name).tasks()
        ]
        assert set(states) <= AT_REST
        assert len(states) > COMPANIES
        assert handlers.ran > ROUNDS
        assert saboteur.crashes > 0
        counted = runtime.statistics()
        assert (counted.executing, counted.waiting, counted.abandoned, counted.active) == (0, 0, 0, 0)
        assert len(runtime.registry) == 0
        await trio.sleep(3_600)  # the last stall limit has passed, and every actor has left
        with trio.fail_after(120):
            while runtime.supervisor.cells:  # a sweep may have one of them look just now
                await trio.sleep(1)
        assert attempts_in_memory() <= before


def attempts_in_memory() -> int:
    gc.collect()
    return sum(isinstance(thing, Attempt) for thing in gc.get_objects())
