"""Outages, sweeps and absent companies: one company's trouble is its own, and nothing is kept for ever."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import structlog
import trio
from trio.testing import MockClock

from actors import Context, StoreUnavailable, Submit, WorkState
from actors.handlers import freeze
from actors.host import run_runtime
from actors.runtime.options import Options
from actors.testing import VirtualClock, run_until_idle
from storage.sqlite.connection import Connection
from tests.conftest import Opened
from tests.inside import inside
from tests.stores import sqlite_of

T = TypeVar("T")


class Outage:
    """The writer's connection; while ``down`` every transaction fails as a locked database does."""

    def __init__(self) -> None:
        self.down = False
        self.tries = 0
        self._inner: Connection | None = None

    def __call__(self, inner: Connection) -> Connection:
        self._inner = inner
        return self

    async def run(self, work: Callable[[sqlite3.Connection], T], /) -> T:
        assert self._inner is not None
        if self.down:
            self.tries += 1
            await trio.lowlevel.checkpoint()
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            error.sqlite_errorname = "SQLITE_BUSY"
            raise error
        return await self._inner.run(work)

    async def aclose(self) -> None:
        assert self._inner is not None
        await self._inner.aclose()


async def work(_ctx: Context) -> str:
    await trio.sleep(1)
    return "done"


async def test_two_minutes_without_a_store_crash_no_actor_and_lose_nothing(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C61, C56: fifty companies; attempts go on, admission stands still, all is back by itself."""
    outage = Outage()
    options = Options(freeze({"work": work}), clock_ms=VirtualClock(), executions_max=50)
    with structlog.testing.capture_logs() as lines:
        async with run_runtime(db_path, options, how="inline", wrap=outage) as runtime:
            names = [f"k{number}" for number in range(50)]
            for name in names:
                await runtime.company(name).ask(Submit("first", handler="work", id="first"))
                await runtime.company(name).ask(Submit("second", handler="work", id="second"))
            outage.down = True
            await trio.sleep(119)
            assert not runtime.statistics().store_available
            assert outage.tries < 60, "it is asked with growing pauses"
            asked: list[Any] = []

            async def ask() -> None:
                asked.append(await runtime.company("k0").ask(Submit("third", handler="work", id="third")))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await trio.sleep(1)
                assert asked == [], "ask waits"
                outage.down = False
                up_s = trio.current_time()
            await run_until_idle(runtime)
            assert trio.current_time() - up_s < 60
            for name in names:
                for task in ("first", "second"):
                    assert (await runtime.company(name).status(task)).state is WorkState.COMPLETED
            kinds = [event.kind for event in await drain(runtime)]
            assert kinds.count("store.unavailable") == 1
            assert kinds.count("store.recovered") == 1
            assert "actor.crashed" not in kinds
    assert not [line for line in lines if line["event"] == "actor.crashed"]


async def drain(runtime: Any) -> list[Any]:
    """The log so far."""
    seen: list[Any] = []
    with trio.move_on_after(1):
        async for event in runtime.events():
            seen.append(event)
    return seen


async def test_the_sweep_heals_one_orphan_behind_five_hundred_that_are_well(
    opened: Opened, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C64: more than one page of companies that it must not touch stands before the one that needs it."""

    async def long(_ctx: Context) -> str:
        await trio.sleep(100_000)
        return "done"

    async with opened({"long": long, "work": work}, executions_max=1_000) as runtime:
        for number in range(300):
            await runtime.company(f"k{number:03}").ask(Submit("x", handler="long"))
        orphan = runtime.company("zz")
        await orphan.ask(Submit("x", handler="work", id="x"))
        (attempt,) = inside(runtime).services.registry.of_company("zz")
        monkeypatch.setattr(
            inside(runtime).executor, "_ended", lambda _attempt, _report: None
        )  # its report is lost
        await trio.sleep(2)
        monkeypatch.undo()
        inside(runtime).services.registry.free_slot(attempt)
        inside(runtime).services.registry.finish(attempt.ref)  # and so is it
        report = await inside(runtime).sweeper.sweep()
        assert (report.companies, report.healed) == (301, 1)
        assert (await orphan.when_settled("x")).result == {"work": "done"}
        assert len(await orphan.attempts("x")) == 2
        assert inside(runtime).services.registry.slots_in_use == 300
        assert [len(await runtime.company(f"k{n:03}").attempts("@1")) for n in (0, 299)] == [1, 1]
        await runtime.aclose(now=True)


async def test_companies_with_nothing_to_do_leave_nothing_behind_and_come_back_when_spoken_to(
    opened: Opened, autojump_clock: MockClock
) -> None:
    """C68, with as many as are quick."""
    async with opened({"work": work}) as runtime:
        for number in range(400):
            await runtime.company(f"k{number}").tell(Submit("x", handler="work", id="x"))
        await run_until_idle(runtime)
        await trio.sleep(600)
        assert inside(runtime).services.directory.cells == ()
        assert len(inside(runtime).services.registry) == 0
        assert not inside(runtime).services.directory.due.working
        assert inside(runtime).services.slots.free == inside(runtime).services.slots.executions_max
        back = runtime.company("k123")
        await back.ask(Submit("again", handler="work", id="y"))
        assert (await back.when_settled("y")).result == {"work": "done"}
        assert len(inside(runtime).services.directory.cells) == 1


async def test_a_company_that_backs_off_may_leave_and_is_brought_back_when_its_time_comes(
    opened: Opened, autojump_clock: MockClock
) -> None:
    from actors import RetryAfter

    async def later(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise RetryAfter(300)
        return "at last"

    async with opened({"later": later}) as runtime:
        company = runtime.company("k")
        await company.ask(Submit("x", handler="later", id="x"))
        await trio.sleep(45)
        assert inside(runtime).services.directory.cells == ()
        assert (await company.status("x")).reasons[0].kind.value == "backing_off"
        await trio.sleep(260)
        assert (await company.result("x")) == {"later": "at last"}


async def test_reading_while_the_store_is_away_says_so(db_path: Path, autojump_clock: MockClock) -> None:
    options = Options(freeze({"work": work}), clock_ms=VirtualClock())
    async with run_runtime(db_path, options, how="inline") as runtime:

        async def locked(_body: object) -> None:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error

        reader = sqlite_of(runtime).reader
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(reader), "run", lambda _self, body: locked(body))
            with pytest.raises(StoreUnavailable):
                await runtime.company("k").tasks()
