"""The harness itself: a kill is a kill, and what it should notice it notices."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import attrs
import pytest
import trio

from actors import Context, Submit
from actors.handlers import Handler
from storage.contract.companies import ListCompanies
from storage.errors import StoreClosed
from tests.stores import sqlite_of

from .harness import Death, Kill, Killed, Life, Scenario, Script, World, deaths, exhaust, live
from .scenarios import CHAIN, handlers


def _positions(path: Path) -> int:
    with closing(sqlite3.connect(path)) as raw:
        return int(raw.execute("SELECT count(*) FROM events").fetchone()[0])


def test_a_kill_before_a_commit_leaves_out_what_a_kill_after_it_leaves_in(folder: Path) -> None:
    before = live(CHAIN, folder / "before.db", World(), Kill(3, after=False))
    after = live(CHAIN, folder / "after.db", World(), Kill(3, after=True))
    assert before.heir is not None
    assert after.heir is not None
    # the third is the submit of three tasks, which admits and starts the first of them
    assert (_positions(before.heir), _positions(after.heir)) == (1, 6)


def test_a_dead_process_reads_nothing_writes_nothing_and_does_nothing(folder: Path) -> None:
    tried: list[str] = []

    async def drive(script: Script) -> None:
        await script.ask(Submit("a", handler="dies", id="a"))
        await script.settled("a")

    def of(world: World) -> Mapping[str, Handler]:
        async def dies(ctx: Context) -> None:
            world.effect(ctx)
            life = world.life
            assert isinstance(life, Life)
            assert life.runtime is not None
            database = sqlite_of(life.runtime)
            with pytest.raises(Killed):
                life.die()
            with pytest.raises(Killed):
                await database._writing.run(lambda raw: raw.execute("DELETE FROM events"))
            tried.append("write")
            with pytest.raises(StoreClosed):
                await database.fetch(ListCompanies())
            tried.append("read")
            with pytest.raises(Killed):
                world.effect(ctx)
            tried.append("work")
            raise Killed

        return {"dies": dies}

    world = World()
    life = live(Scenario("dies", drive, of), folder / "a.db", world)
    assert tried == ["write", "read", "work"]
    assert life.heir is not None
    assert dict(world.effects) == {"acme/a/1/dies/0": 1}
    assert _positions(life.path) == _positions(life.heir), "the remains wrote something"


def test_kills_that_are_not_the_commits_counted_fail_the_harness(folder: Path) -> None:
    lives: list[World] = []

    async def drive(script: Script) -> None:
        if script.world not in lives:
            lives.append(script.world)
        if len(lives) == 1:  # the life in which commits are counted makes one more than all others
            await script.ask(Submit("once", id="once"))
        await script.ask(Submit("a", id="a"))

    found: list[Death] = []
    with pytest.raises(AssertionError, match="the kills that happened are not the commits"):
        found.extend(deaths(Scenario("uneven", drive, lambda _: {}), folder))
    assert [death.kill for death in found] == [Kill(n, a) for n in (1, 2, 3, 4) for a in (False, True)]


def test_an_answer_that_is_not_in_the_file_fails_the_harness(folder: Path) -> None:
    world = World()
    life = live(CHAIN, folder / "a.db", world, Kill(4, after=True))
    assert life.heir is not None
    with closing(sqlite3.connect(life.heir)) as raw:
        raw.execute("UPDATE events SET task = 'another' WHERE kind = 'task.submitted' AND task = 'b'")
        raw.commit()
    with pytest.raises(AssertionError, match="was forgotten"):
        live(CHAIN, life.heir, world)


def test_a_different_end_fails_the_harness(folder: Path) -> None:
    def of(world: World) -> Mapping[str, Handler]:
        async def step(ctx: Context) -> object:
            world.effect(ctx)
            await trio.sleep(1)
            return ctx.attempt  # differs when an earlier attempt died with its process

        return {**handlers(world), "step": step}

    with pytest.raises(AssertionError, match="killed after commit 3"):
        exhaust(attrs.evolve(CHAIN, handlers=of), folder)
