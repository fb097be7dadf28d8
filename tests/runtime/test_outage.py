"""A store that is away is not a crash: attempts go on, nothing is admitted, who asks waits, and it all comes back."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from actors import (
    Context,
    OutcomeUnknown,
    ReasonKind,
    Runtime,
    RuntimeClosed,
    Start,
    StoreUnavailable,
    Submit,
    SubmitMany,
    WorkState,
)
from actors.handlers import Handler
from tests.inside import inside
from tests.runtime.support import (
    Gated,
    Wrapper,
    a_host,
    a_task,
    idle,
    kinds,
    of_kind,
    quiet,
    settled,
    sql,
    stored_events,
)
from tests.storage.connections import Flaky, sqlite_error
from tests.stores import sqlite_of

BUSY = sqlite_error(sqlite3.SQLITE_BUSY, "database is locked")
FULL = sqlite_error(sqlite3.SQLITE_FULL, "database or disk is full")
IOERR = sqlite_error(sqlite3.SQLITE_IOERR, "disk I/O error")


@attrs.define
class Store:
    """The store of a host, which the test takes away and gives back."""

    runtime: Runtime
    wrapper: Wrapper

    @property
    def flaky(self) -> Flaky:
        flaky: Flaky = self.wrapper.made
        return flaky

    def away(self, error: sqlite3.Error = BUSY, *, for_reading: bool = False) -> None:
        """Nothing can be written from now on; with ``for_reading`` nothing can be read either."""
        self.flaky.down = error
        if for_reading:

            async def run(_work: object) -> Any:
                await trio.lowlevel.checkpoint()
                raise error

            setattr(sqlite_of(self.runtime).reader, "run", run)  # noqa: B010 - of one instance

    def back(self) -> None:
        self.flaky.down = None
        vars(sqlite_of(self.runtime).reader).pop("run", None)


@asynccontextmanager
async def a_store(
    path: Path, handlers: dict[str, Handler] | None = None, **options: Any
) -> AsyncIterator[Store]:
    wrapper = Wrapper(Flaky)
    async with a_host(path, handlers, wrap=wrapper, **options) as runtime:
        store = Store(runtime, wrapper)
        try:
            yield store
        except BaseException:
            store.back()
            raise


@pytest.mark.parametrize("error", [BUSY, FULL, IOERR], ids=["busy", "full", "input/output"])
async def test_who_asks_while_the_store_is_away_waits_and_is_answered_when_it_is_back(
    db_path: Path, autojump_clock: MockClock, error: sqlite3.Error
) -> None:
    async with a_store(db_path) as store:
        company = store.runtime.company("k")
        store.away(error)
        answers: list[str] = []

        async def ask() -> None:
            answers.append((await company.ask(Submit("x", id="x"))).id)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(600)
            assert answers == []
            store.back()
        assert answers == ["x"]
        assert await settled(company, "x") == "completed"
    assert of_kind(stored_events(db_path), "actor.crashed") == []


async def test_an_outage_has_one_event_at_its_start_and_one_at_its_end_however_many_suffer(
    db_path: Path, autojump_clock: MockClock, logs: list[dict[str, Any]]
) -> None:
    """C61, C56: fifty companies, two minutes; and no flood of alarms."""
    work = Gated()
    async with a_store(db_path, {"work": work}, executions_max=50) as store:
        companies = [store.runtime.company(f"k{number}") for number in range(50)]
        for company in companies:
            await company.ask(a_task("work", id="a"))
        await work.has_started(50)
        hops = len(store.flaky.hops_at_s)
        store.away()
        for company in companies:
            await company.tell(a_task("ok", id="b"))
        work.open.set()
        await trio.sleep(120)
        assert len(store.flaky.hops_at_s) - hops < 60, "the tries are few"
        store.back()
        began = trio.current_time()
        for company in companies:
            await quiet(company)
            assert await settled(company, "b") == "completed"
        assert trio.current_time() - began < 60
    events = stored_events(db_path)
    about = of_kind(events, "store.unavailable", "store.recovered")
    assert kinds(about) == ["store.unavailable", "store.recovered"]
    assert about[0].data == {"cause": "database is locked"}
    assert 119 < about[1].data["outage_s"] < 130
    assert about[1].at_ms - about[0].at_ms > 119_000
    assert of_kind(events, "actor.crashed", "company.parked") == []
    said = [entry["event"] for entry in logs if str(entry["event"]).startswith("store.")]
    assert said == ["store.unavailable", "store.recovered"], (
        "said at once, and not again when they are stored"
    )


async def test_attempts_go_on_and_their_results_are_kept_until_they_can_be_written(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C56: full during settle."""
    work = Gated("a result")
    async with a_store(db_path, {"work": work}) as store:
        company = store.runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await work.has_started()
        store.away(FULL)
        await trio.sleep(60)
        assert work.running == 1
        work.open.set()
        await trio.sleep(600)
        assert inside(store.runtime).services.registry.slots_in_use == 0
        assert sql(db_path, "SELECT status FROM nodes") == [("running",)], "no half transition"
        store.back()
        assert (await company.when_settled("a")).result == {"work": "a result"}
        assert len(await company.attempts("a")) == 1


async def test_nothing_is_admitted_while_the_store_is_away_and_explain_says_why(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C56: full during admission."""
    work = Gated()
    async with a_store(db_path, {"work": work}) as store:
        company = store.runtime.company("k")
        await company.ask(
            SubmitMany([a_task("work", id="a", mode="manual"), a_task("ok", id="b", mode="manual")])
        )
        await quiet(company)
        store.away(FULL)
        await company.tell(Start("a"))
        await trio.sleep(600)
        assert work.contexts == []
        assert sql(db_path, "SELECT count(*) FROM runs WHERE slot > 0") == [(0,)]
        gates = [reason.kind for reason in (await company.explain("b")).gates]
        assert ReasonKind.STORE_UNAVAILABLE in gates
        assert (await company.status("a")).state is WorkState.HELD, "what is not committed is not shown"
        store.back()
        await work.has_started()
        work.open.set()
        assert await settled(company, "a") == "completed"


async def test_reads_are_told_that_the_store_is_away(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_store(db_path) as store:
        company = store.runtime.company("k")
        await company.ask(a_task("ok", id="a"))
        await idle(store.runtime)
        store.away(for_reading=True)
        await company.tell(Submit("waits in the middle of a turn"))
        await trio.sleep(1)
        reads = [
            lambda: company.status("a"),
            lambda: company.explain("a"),
            company.queue,
            company.tasks,
            lambda: company.timeline("a"),
            lambda: company.result("a"),
            lambda: company.attempts("a"),
            store.runtime.companies,
        ]
        for read in reads:
            with trio.fail_after(5), pytest.raises(StoreUnavailable):
                await read()
        store.back()
        assert (await company.status("a")).state is WorkState.COMPLETED


async def test_whoever_waits_for_a_task_waits_through_the_outage(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Gated("after all")
    results: list[object] = []
    async with a_store(db_path, {"work": work}) as store:
        company = store.runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await work.has_started()

        async def wait() -> None:
            results.append((await company.when_settled("a")).result)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            store.away(for_reading=True)
            work.open.set()
            await trio.sleep(300)
            nursery.start_soon(wait)
            await trio.sleep(300)
            assert results == []
            store.back()
        assert results == [{"work": "after all"}] * 2


async def test_an_actor_that_cannot_even_load_is_no_crash(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_store(db_path) as store:
        company = store.runtime.company("k")
        store.away(for_reading=True)
        await company.tell(a_task("ok", id="a"))
        await trio.sleep(300)
        store.back()
        await trio.sleep(60)
        assert await settled(company, "a") == "completed"
    assert of_kind(stored_events(db_path), "actor.crashed", "company.parked") == []


async def test_an_actor_that_cannot_read_what_a_message_names_is_no_crash(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """Only the reading fails, in the middle of a turn; the message is taken again."""
    async with a_store(db_path) as store:
        company = store.runtime.company("k")
        await company.ask(a_task("ok", id="up"))
        await idle(store.runtime)
        store.away(for_reading=True)
        store.flaky.down = None
        await company.tell(a_task("ok", id="a", depends_on=["up"]))
        await trio.sleep(30)
        store.back()
        await trio.sleep(60)
        assert await settled(company, "a") == "completed"
    assert of_kind(stored_events(db_path), "actor.crashed") == []


async def test_a_sweep_that_meets_an_outage_is_repeated(
    db_path: Path, autojump_clock: MockClock, logs: list[dict[str, Any]]
) -> None:
    """C56: full during the sweep, for ten minutes."""
    async with a_store(db_path) as store:
        await store.runtime.company("k").ask(a_task("ok", id="a", mode="manual"))
        store.away(FULL, for_reading=True)
        await trio.sleep(600)
        store.back()
        last = store.runtime.last_sweep
        await trio.sleep(130)
        assert store.runtime.last_sweep is not last
        assert store.runtime.last_sweep is not None
        assert store.runtime.last_sweep.errors == 0
    failed = [entry for entry in logs if entry["event"] == "sweep.failed"]
    assert 1 <= len(failed) <= 11


async def test_due_times_that_pass_in_an_outage_are_kept(db_path: Path, autojump_clock: MockClock) -> None:
    async def second(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise ValueError("no luck")
        return ctx.attempt

    async with a_store(db_path, {"second": second}) as store:
        company = store.runtime.company("k")
        await company.ask(a_task("second", id="a"))
        await company.when_idle()
        store.away()
        await trio.sleep(300)
        assert len(await company.attempts("a")) == 1
        store.back()
        assert (await company.when_settled("a")).result == {"second": 2}


async def test_closing_waits_the_grace_for_a_store_that_is_away_and_then_says_outcome_unknown(
    db_path: Path, autojump_clock: MockClock
) -> None:
    answers: list[object] = []
    async with a_store(db_path) as store:
        company = store.runtime.company("k")
        await company.ask(a_task("ok", id="a"))
        await idle(store.runtime)

        async def ask(title: str) -> None:
            try:
                answers.append(await company.ask(Submit(title)))
            except Exception as error:
                answers.append(error)

        async with trio.open_nursery() as nursery:
            store.away()
            nursery.start_soon(ask, "in the middle of a turn")
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(ask, "behind it")
            await trio.testing.wait_all_tasks_blocked()
            began = trio.current_time()
            await store.runtime.aclose(now=True)
            assert trio.current_time() - began < 60
        store_was_away_at_s = trio.current_time()
    assert trio.current_time() - store_was_away_at_s < 10
    assert {type(answer) for answer in answers} == {OutcomeUnknown, RuntimeClosed}


async def test_what_was_interrupted_by_closing_in_an_outage_is_found_by_the_next_host(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Gated()
    async with a_store(db_path, {"work": work}, drain_s=0) as store:
        await store.runtime.company("k").ask(a_task("work", id="a"))
        await work.has_started()
        store.away()
        report = await store.runtime.aclose()
        assert report.interrupted == ("k/a/1/work/1",)
    work.open.set()
    async with a_host(db_path, {"work": work}) as runtime:
        assert await settled(runtime.company("k"), "a") == "completed"
