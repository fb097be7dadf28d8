"""Who may not act, does not; who comes at the wrong moment is not forgotten; what was rolled back was never there."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
from trio.testing import MockClock

import actors.runtime.log
from actors import (
    ActorCrashed,
    Context,
    Event,
    Node,
    Runtime,
    RuntimeClosed,
    Start,
    Submit,
    WorkState,
)
from actors.handlers import freeze
from actors.host import run_runtime
from actors.runtime.log import event_of
from actors.runtime.options import Options
from actors.testing import VirtualClock, run_until_idle
from storage.contract.companies import ClaimCompany
from storage.contract.events import LogPlace, ReadLog
from storage.contract.store import Query
from storage.sqlite.connection import Connection
from storage.sqlite.engine import carry_out
from tests.conftest import Opened
from tests.inside import inside
from tests.stores import Plain

from .harness import Kill, World, live
from .test_dying_processes import ONE

T = TypeVar("T")
R = TypeVar("R")


# --- C10: no work without a won compare-and-set -----------------------------------------------------------------


async def test_an_actor_whose_company_was_claimed_by_another_starts_nothing(
    opened: Opened, autojump_clock: MockClock
) -> None:
    worked: list[str] = []

    async def work(ctx: Context) -> None:
        worked.append(ctx.key)

    async with opened({"work": work}) as runtime:
        acme = runtime.company("acme")
        await acme.ask(Submit("a", handler="work", id="a", mode="manual"))
        events = await _log_of(runtime)
        await inside(runtime).services.store.commit(ClaimCompany("acme", create=True))
        with pytest.raises(RuntimeClosed, match="epoch"):
            await acme.ask(Start("a"))
        assert worked == []
        assert await _log_of(runtime) == events, "what was refused is not in the log"
        assert inside(runtime).services.directory.memory("acme") is None, (
            "an actor that was replaced is not started again"
        )
        # whoever asks next gets an actor that claims the company anew
        await acme.ask(Start("a"))
        await acme.when_settled("a")
        assert worked == ["acme/a/1/work/0"]


def test_of_two_that_recover_the_same_orphan_only_the_one_that_wins_acts(folder: Path) -> None:
    world = World()
    heir = live(ONE, folder / "a.db", world, Kill(3, after=True)).heir
    assert heir is not None
    worked: list[str] = []

    async def work(ctx: Context) -> None:
        worked.append(ctx.key)

    class Overtaken:
        """After the actor has claimed its company and before it records what it found, another claims it."""

        def __init__(self, inner: Connection) -> None:
            self._inner = inner
            self._works = 0

        async def run(self, work: Callable[[sqlite3.Connection], T], /) -> T:
            self._works += 1
            value = await self._inner.run(work)
            if self._works == 2:
                await self._inner.run(partial(carry_out, asked=ClaimCompany("acme", create=True)))
            return value

        async def aclose(self) -> None:
            await self._inner.aclose()

    async def main() -> None:
        options = Options(freeze({"step": work}), clock_ms=VirtualClock())
        async with run_runtime(heir, options, how="inline", wrap=Overtaken) as runtime:
            await run_until_idle(runtime)

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert worked == []
    with closing(sqlite3.connect(heir)) as raw:
        assert raw.execute("SELECT number, end FROM attempts").fetchall() == [(1, None)]
    live(ONE, heir, world)
    with closing(sqlite3.connect(heir)) as raw:
        assert raw.execute("SELECT number, end FROM attempts").fetchall() == [(1, "lost"), (2, "succeeded")]


# --- C19: an upstream that ends while its dependent is being stored ---------------------------------------------


class Gated:
    """The writer's connection, which stands still while it is shut."""

    def __init__(self, inner: Connection) -> None:
        self._inner = inner
        self.open = trio.Event()
        self.open.set()
        self.waiting = trio.Event()

    def shut(self) -> None:
        self.open, self.waiting = trio.Event(), trio.Event()

    async def run(self, work: Callable[[sqlite3.Connection], T], /) -> T:
        if not self.open.is_set():
            self.waiting.set()
            await self.open.wait()
        return await self._inner.run(work)

    async def aclose(self) -> None:
        await self._inner.aclose()


@pytest.mark.parametrize("ends", ["before", "as it is stored", "in the same turn", "as it is looked up"])
async def test_an_upstream_that_ends_while_its_dependent_is_stored_leaves_no_one_waiting(
    db_path: Path, autojump_clock: MockClock, ends: str
) -> None:
    go, gates = trio.Event(), list[Gated]()

    async def upstream(ctx: Context) -> None:
        await go.wait()

    async def work(ctx: Context) -> str:
        return "done"

    def wrap(connection: Connection) -> Connection:
        gates.append(Gated(connection))
        return gates[0]

    options = Options(freeze({"upstream": upstream, "work": work}), clock_ms=VirtualClock())
    async with run_runtime(db_path, options, how="inline", wrap=wrap) as runtime:
        acme, gate = runtime.company("acme"), gates[0]
        await acme.ask(Submit("a", handler="upstream", id="a"))
        dependent = Submit("b", handler="work", id="b", depends_on=["a"])
        if ends == "before":
            go.set()
            await acme.when_settled("a")
            await acme.ask(dependent)
        elif ends == "as it is stored":
            gate.shut()
            await acme.tell(dependent)
            await gate.waiting.wait()
            go.set()
            await trio.testing.wait_all_tasks_blocked()
            gate.open.set()
        elif ends == "in the same turn":
            gate.shut()
            await acme.tell(Submit("in the way", id="x"))
            await gate.waiting.wait()
            await acme.tell(dependent)
            go.set()
            await trio.testing.wait_all_tasks_blocked()
            gate.open.set()
        else:
            reading = Reading(runtime)
            object.__setattr__(inside(runtime).services, "store", reading)
            await acme.tell(dependent)
            await reading.waiting.wait()
            go.set()
            await trio.testing.wait_all_tasks_blocked()
            reading.open.set()
        await run_until_idle(runtime)
        status = await acme.status("b")
        assert (status.state, status.run) == (WorkState.COMPLETED, 1)


class Reading:
    """The database as an actor sees it, whose next reading stands still."""

    def __init__(self, runtime: Runtime) -> None:
        self._database = inside(runtime).services.store
        self.open, self.waiting = trio.Event(), trio.Event()

    async def fetch_with(self, query: Query[T], build: Callable[[T], R]) -> R:
        self.waiting.set()
        await self.open.wait()
        return await self._database.fetch_with(query, build)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


# --- C66: cursors ------------------------------------------------------------------------------------------------


async def test_nothing_of_a_unit_that_was_rolled_back_is_ever_seen(
    opened: Opened, autojump_clock: MockClock
) -> None:
    """Several companies share each transaction; in some units the file refuses a row, after others were written."""
    names = ["a", "b", "c", "d"]
    async with opened({}) as runtime, trio.open_nursery() as nursery:
        seen = list[Event]()
        await inside(runtime).services.store.commit(
            Plain(
                lambda conn: conn.execute(
                    "CREATE TRIGGER refuse BEFORE INSERT ON tasks WHEN NEW.title = 'poison'"
                    " BEGIN SELECT RAISE(ABORT, 'planted'); END"
                )
            )
        )

        async def follow() -> None:
            async for event in runtime.events():
                seen.append(event)

        async def submit(name: str, number: int) -> None:
            poisoned = number % 3 == names.index(name) % 3
            message = Submit("poison" if poisoned else "good", id=f"t{number}", mode="manual")
            if poisoned:
                with pytest.raises(ActorCrashed, match="planted"):
                    await runtime.company(name).ask(message)
            else:
                await runtime.company(name).ask(message)

        nursery.start_soon(follow)
        async with trio.open_nursery() as senders:
            for number in range(6):
                for name in names:
                    senders.start_soon(submit, name, number)
        await run_until_idle(runtime)
        assert inside(runtime).services.store.statistics.largest_batch_units > 1
        await inside(runtime).services.store.commit(Plain(lambda conn: conn.execute("DROP TRIGGER refuse")))
        for name in names:
            mine = [event for event in seen if event.company == name]
            good = {f"t{number}" for number in range(6) if number % 3 != names.index(name) % 3}
            assert {event.task for event in mine if event.kind == "task.submitted"} == good
            assert [event.seq for event in mine] == list(range(1, len(mine) + 1))
        nursery.cancel_scope.cancel()


async def test_readers_that_restart_from_their_cursors_see_every_event_once_and_in_order(
    opened: Opened, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors.runtime.log, "PAGE", 7)

    async def work(ctx: Context) -> None:
        await trio.sleep(0.1 * (ctx.attempt + len(ctx.node)))

    async with opened({"work": work}) as runtime:
        names = [None, "acme", "other", None]
        seen: list[list[Event]] = [[] for _ in names]

        async def follow(place: int) -> None:
            """Reads two or three events at a time and begins again after the last that it has."""
            company, mine = names[place], seen[place]
            while True:
                after = mine[-1].position if mine else 0
                await _read_some(runtime.events(company=company, after=after), 2 + place % 2, mine)

        async def write(company: str) -> None:
            nodes = [Node("n", "work"), Node("node", "work", after=["n"])]
            for number in range(10):
                await runtime.company(company).ask(Submit("t", id=f"t{number}", nodes=nodes))
                await trio.sleep(0.13)

        async with trio.open_nursery() as nursery:
            for place in range(len(names)):
                nursery.start_soon(follow, place)
            async with trio.open_nursery() as writers:
                for company in ("acme", "other"):
                    writers.start_soon(write, company)
            await run_until_idle(runtime)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        log = await _log_of(runtime)
        assert seen == [
            [event for event in log if company is None or event.company == company] for company in names
        ]
        assert [event.position for event in log] == sorted({event.position for event in log})


async def _read_some(events: AsyncIterator[Event], count: int, into: list[Event]) -> None:
    """Read the next events, and leave the reader."""
    async for event in events:
        into.append(event)
        count -= 1
        if count == 0:
            break


async def test_nothing_is_said_before_it_is_durable(
    opened: Opened, autojump_clock: MockClock, db_path: Path
) -> None:
    """Whatever is published, a bystander finds in the file at that very moment, under the same numbers."""
    async with opened({}) as runtime:
        publisher, said = inside(runtime).services.publisher, list[str]()
        publish = publisher.published

        def published(company: str, events: Any, committed: Any) -> None:
            with closing(sqlite3.connect(db_path)) as bystander:
                stored = bystander.execute(
                    "SELECT kind FROM events WHERE position >= ? ORDER BY position",
                    (committed.first_position,),
                ).fetchall()
            assert [row[0] for row in stored] == [event.kind for event in events]
            said.extend(event.kind for event in events)
            publish(company, events, committed)

        setattr(publisher, "published", published)  # noqa: B010 - a method of one instance
        acme = runtime.company("acme")
        await acme.ask(Submit("a", id="a", nodes=[]))
        await acme.ask(Submit("b", id="b", depends_on=["a"], mode="manual"))
        assert said == ["task.submitted", "run.admitted", "run.completed", "task.submitted"]


@pytest.mark.planted
async def test_a_cursor_never_comes_to_point_at_another_event(
    opened: Opened, autojump_clock: MockClock
) -> None:
    async with opened({}) as runtime:
        acme = runtime.company("acme")
        await acme.ask(Submit("a", id="a", mode="manual"))
        cursor = (await _log_of(runtime))[-1].position
        await inside(runtime).services.store.commit(
            Plain(lambda conn: conn.execute("DELETE FROM events WHERE position = ?", (cursor,)))
        )
        await acme.ask(Submit("b", id="b", mode="manual"))
        assert [event.task for event in await _log_of(runtime, after=cursor)] == ["b"]


async def _log_of(runtime: Runtime, after: int = 0) -> list[Event]:
    """The log as it is now."""
    read = await inside(runtime).services.store.fetch(ReadLog(None, LogPlace(after), 10_000))
    return [event_of(line) for line in read.lines]
