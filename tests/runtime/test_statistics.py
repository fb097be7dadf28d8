"""`Runtime.statistics`: every gauge against a scene in which each has a value of its own."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

import actors.core.decide
from actors import (
    ActorCrashed,
    Backoff,
    Context,
    Message,
    Pause,
    Runtime,
    SetLimits,
    Stop,
    Submit,
    SubmitMany,
    Unpause,
)
from actors.core.draft import Draft
from actors.core.prefetch import Prefetched
from actors.handlers import Handler
from tests.inside import inside
from tests.runtime.support import Gated, GatedConnection, Stubborn, Wrapper, a_host, a_node, a_task
from tests.storage.connections import Flaky, sqlite_error

QUEUED, EXECUTING, WAITING, BACKING_OFF, ABANDONED = 5, 7, 3, 4, 2
OTHERS, BATCH, LARGEST = 8, 6, 8
USER, SYSTEM, INBOX, SLOTS = 12, 13, 31, 40


async def a_company_that_has_all_of_it(runtime: Runtime) -> None:
    company = runtime.company("busy")
    await company.ask(SetLimits(runs_max=30))
    for number in range(ABANDONED):
        await company.ask(a_task("deaf", id=f"deaf {number}"))
        await trio.testing.wait_all_tasks_blocked()
        await company.ask(Stop(f"deaf {number}"))
        await company.when_settled(f"deaf {number}")
    retried = a_node("n", "fails", retry=Backoff(base_s=1_000))
    await company.ask(SubmitMany([Submit("fails", nodes=[retried]) for _ in range(BACKING_OFF)]))
    await company.ask(SubmitMany([a_task("waits") for _ in range(WAITING)]))
    await company.ask(SubmitMany([a_task("work") for _ in range(EXECUTING)]))
    await company.ask(SubmitMany([a_task("ok", mode="manual") for _ in range(QUEUED)]))
    await trio.testing.wait_all_tasks_blocked()


async def a_company_that_is_parked(runtime: Runtime) -> None:
    for _ in range(5):
        with pytest.raises(ActorCrashed):
            await runtime.company("crashes").ask(Submit("x"))
    await trio.testing.wait_all_tasks_blocked()


async def a_batch(runtime: Runtime, gate: GatedConnection, units: int, message: Message[Any]) -> None:
    """So many companies commit together, after one that they had to wait for."""
    gate.shut()
    await runtime.company("busy").tell(SetLimits(weight=units))
    await gate.is_asked()
    for number in range(units):
        await runtime.company(f"other {number}").tell(message)
    await trio.testing.wait_all_tasks_blocked()
    gate.let_go()
    await trio.testing.wait_all_tasks_blocked()


async def a_company_that_is_in_a_commit(runtime: Runtime, gate: GatedConnection) -> None:
    company = runtime.company("other 0")
    gate.shut()
    await company.tell(SetLimits(runs_max=3))
    await gate.is_asked()
    for _ in range(USER):
        company.tell_nowait(Submit("has to wait"))
    for _ in range(SYSTEM):
        company.tell_nowait(Unpause())


async def test_every_gauge_shows_what_it_is_named_for(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, deaf, back, wrapper = Gated(), Stubborn(), trio.Event(), Wrapper(GatedConnection)
    decide = actors.core.decide.decide

    async def waits(ctx: Context) -> None:
        async with ctx.waiting("the world"):
            await back.wait()

    def bad_decide(draft: Draft, message: Any, prefetched: Prefetched) -> object:
        if draft.state.company.name == "crashes":
            raise ZeroDivisionError("a mistake of ours")
        return decide(draft, message, prefetched)

    monkeypatch.setattr("actors.core.turn.decide", bad_decide)
    handlers: dict[str, Handler] = {"work": work, "deaf": deaf, "waits": waits}
    options: dict[str, Any] = {"executions_max": SLOTS, "stop_grace_s": 0, "idle_s": 3_600, "wrap": wrapper}
    async with a_host(db_path, handlers, **options) as runtime:
        gate: GatedConnection = wrapper.made
        try:
            await a_company_that_has_all_of_it(runtime)
            await a_company_that_is_parked(runtime)
            for number in range(OTHERS):
                await runtime.company(f"other {number}").ask(Pause())
            pruned = await runtime.prune()
            swept = await inside(runtime).sweeper.sweep()
            await a_batch(runtime, gate, LARGEST, Unpause())
            await a_batch(runtime, gate, BATCH, Pause())
            await a_company_that_is_in_a_commit(runtime, gate)
            inside(
                runtime
            ).watchdog.lag_s = 0.375  # measured only beside threads; see tests/attempts/test_watchdog.py
            monkeypatch.setattr(
                inside(runtime).intake, "_under_way", {"k": INBOX - 1, "other": 1}
            )  # see tests/inbox
            seen = runtime.statistics()
            monkeypatch.setattr(inside(runtime).intake, "_under_way", {})
            wal_bytes, hops = os.stat(f"{db_path}-wal").st_size, gate.done
        finally:
            gate.let_go()
            deaf.open.set()
            work.open.set()
            back.set()
        await runtime.aclose(now=True)
        after = runtime.statistics()
    counts = {
        "companies": 2 + OTHERS,
        "queued": QUEUED,
        "active": EXECUTING + WAITING + BACKING_OFF,
        "executing": EXECUTING,
        "waiting": WAITING,
        "abandoned": ABANDONED,
        "executions_max": SLOTS,
        "mailbox_user": USER,
        "mailbox_system": SYSTEM,
        "inbox": INBOX,
        "wal_bytes": wal_bytes,
    }
    told = attrs.asdict(seen, recurse=False)
    assert {name: told.pop(name) for name in counts} == counts
    assert len(set(counts.values())) == len(counts), "no two are mistaken for one another"
    assert 0 not in counts.values()
    written = told.pop("writer")
    assert told == {
        "parked": ("crashes",),
        "last_sweep": swept,
        "last_prune": pruned,
        "store_available": True,
        "loop_lag_s": 0.375,
    }
    assert swept.companies > 0
    assert (written.last_batch_units, written.largest_batch_units) == (BATCH, LARGEST)
    assert written.batches == hops
    assert written.units >= written.batches + BATCH + LARGEST - 2
    assert 0 < written.last_commit_s < written.total_commit_s
    assert (after.executing, after.waiting, after.abandoned, after.mailbox_user) == (0, 0, 0, 0)


async def test_it_says_whether_the_store_is_away(db_path: Path, autojump_clock: MockClock) -> None:
    wrapper = Wrapper(Flaky)
    async with a_host(db_path, wrap=wrapper) as runtime:
        wrapper.made.down = sqlite_error(sqlite3.SQLITE_BUSY, "database is locked")
        await runtime.company("k").tell(Submit("x"))
        await trio.sleep(1)
        assert not runtime.statistics().store_available
        wrapper.made.down = None
        await trio.sleep(10)
        assert runtime.statistics().store_available


async def test_of_a_runtime_with_nothing_to_do_everything_is_nothing(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        seen = runtime.statistics()
    idle = (
        "companies",
        "queued",
        "active",
        "executing",
        "waiting",
        "abandoned",
        "mailbox_user",
        "mailbox_system",
        "inbox",
    )
    assert [getattr(seen, name) for name in idle] == [0] * len(idle)
    assert (seen.parked, seen.loop_lag_s) == ((), 0.0)
