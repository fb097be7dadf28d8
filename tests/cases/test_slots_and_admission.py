"""Slots are counted from what lives, never given back twice; the database refuses what the code must not do."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from actors import Context, Node, SetLimits, Stop, Submit, SubmitMany, WorkState
from actors.core.state import CompanyState
from actors.testing import run_until_idle
from storage.errors import classify
from tests.conftest import Opened


class Overlap:
    """A handler that counts how many of it run at once."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.seconds = seconds
        self.live = self.high = 0
        self.ran: list[str] = []

    async def __call__(self, ctx: Context) -> None:
        self.live += 1
        self.high = max(self.high, self.live)
        self.ran.append(ctx.task)
        await trio.sleep(self.seconds)
        self.live -= 1


async def test_an_attempt_that_was_given_up_frees_nothing_when_it_comes_back(
    opened: Opened, autojump_clock: MockClock
) -> None:
    """C08: force-released, the next is admitted, then the first one settles after all."""
    live = high = 0

    async def work(ctx: Context) -> str:
        nonlocal live, high
        if ctx.task == "first":
            with trio.CancelScope(shield=True):
                await trio.sleep(100)
            return "far too late"
        live += 1
        high = max(high, live)
        await trio.sleep(50)
        live -= 1
        return "ran"

    async with opened({"work": work}, stop_grace_s=5, executions_max=1) as runtime:
        company = runtime.company("k")
        await company.ask(Submit("first", nodes=[Node("n", "work", timeout_s=10, tries_max=1)], id="first"))
        await company.ask(SubmitMany([Submit("x", handler="work", id=f"t{n}") for n in range(4)]))
        while (await company.status("t3")).state is not WorkState.COMPLETED:
            await trio.sleep(1)
            assert runtime.registry.slots_in_use <= 1
            runtime.registry.check()
        late = [
            event.data["outcome"] for event in await company.timeline("first") if event.kind == "attempt.late"
        ]
        assert late == ["succeeded"]
        assert (await company.status("first")).state is WorkState.FAILED
    assert high == 1


async def test_many_tasks_run_once_each_in_order_and_never_more_than_three_at_once(
    opened: Opened, autojump_clock: MockClock
) -> None:
    """C14, in one process."""
    work = Overlap(0.001)
    async with opened({"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=3))
        await company.ask(SubmitMany([Submit("x", handler="work", id=f"t{n}") for n in range(600)]))
        await run_until_idle(runtime)
        lives = [await company.timeline(f"t{n}") for n in range(600)]
    events = sorted((event for life in lives for event in life), key=lambda event: event.position)
    started = [event.task for event in events if event.kind == "attempt.started"]
    assert started == [f"t{n}" for n in range(600)]
    assert set(work.ran) == set(started)
    assert len(work.ran) == 600
    assert work.high == 3


@pytest.mark.planted
async def test_with_the_guard_of_the_code_gone_the_database_refuses_the_run_too_many(
    opened: Opened, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, db_path: Path
) -> None:
    """C14's backstop: the code believes that there is always a slot."""
    work = Overlap(100)
    monkeypatch.setattr(CompanyState, "slots_free", property(lambda _: 1))
    async with opened({"work": work}) as runtime:
        company = runtime.company("k")
        for name in ("one", "two", "three"):
            with trio.move_on_after(5):
                await company.ask(Submit("x", handler="work", id=name))
        await trio.sleep(20)
        raw = sqlite3.connect(db_path)
        assert raw.execute("SELECT count(*) FROM runs WHERE slot > 0").fetchall() == [(1,)]
        raw.close()
        await runtime.aclose(now=True)
    assert work.high == 1


@pytest.mark.planted
def test_the_slot_index_and_the_counting_trigger_refuse_when_the_code_is_gone_round(db_path: Path) -> None:
    from storage.opening import open_writer
    from storage.ownership import acquire

    with acquire(db_path):
        raw = open_writer(db_path)
        raw.execute("INSERT INTO companies (name, runs_max) VALUES ('k', 1)")
        for seq in (1, 2):
            raw.execute(
                "INSERT INTO tasks (company_id, seq, id, priority, created_ms, mode, shape, fail_fast, title)"
                " VALUES (1, ?, ?, 2, 0, 'auto', '[]', 0, 'x')",
                (seq, f"t{seq}"),
            )
            raw.execute(
                "INSERT INTO runs (company_id, seq, number, status, created_ms) VALUES (1, ?, 1, 'queued', 0)",
                (seq,),
            )
        admit = "UPDATE runs SET status = 'running', slot = ?, admitted_ms = 0 WHERE seq = ?"
        raw.execute(admit, (1, 1))
        with pytest.raises(sqlite3.IntegrityError, match="runs_max reached") as over:
            raw.execute(admit, (2, 2))
        raw.execute("UPDATE companies SET runs_max = 5")
        with pytest.raises(sqlite3.IntegrityError, match="UNIQUE constraint failed") as same:
            raw.execute(admit, (1, 2))
        with pytest.raises(sqlite3.IntegrityError, match="CHECK constraint failed"):
            raw.execute("UPDATE runs SET status = 'running', admitted_ms = 0 WHERE seq = 2")
        assert {classify(over.value), classify(same.value)} == {"permanent"}
        raw.close()


async def test_twelve_wakes_and_a_sweep_at_once_admit_one(opened: Opened, autojump_clock: MockClock) -> None:
    """C16."""
    work = Overlap()
    async with opened({"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(SubmitMany([Submit("x", handler="work", id=f"t{n}") for n in range(12)]))
        for _ in range(12):
            runtime.supervisor.wake("k")
        await runtime.sweeper.sweep()
        states = [status.state for status in await company.tasks()]
        assert states.count(WorkState.RUNNING) == 1
        assert states.count(WorkState.QUEUED) == 11
        attempts = [await company.attempts(f"t{n}") for n in range(12)]
        assert sum(len(mine) for mine in attempts) == 1, "what is not admitted is not claimed"
        await run_until_idle(runtime)
    assert (work.high, work.ran) == (1, [f"t{n}" for n in range(12)])


async def test_any_limit_raised_and_lowered_while_runs_are_active(
    opened: Opened, autojump_clock: MockClock
) -> None:
    work = Overlap(10)
    async with opened({"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(SubmitMany([Submit("x", handler="work") for _ in range(60)]))
        for limit in (4, 2, 0, 7, 1):
            await company.ask(SetLimits(runs_max=limit))
            before = work.live
            await trio.sleep(1)
            assert work.live == max(before, limit), "raising lets in at once, lowering stops nothing"
            await trio.sleep(20)
            assert work.live == limit
        await run_until_idle(runtime)
    assert len(work.ran) == 60


async def test_a_stop_ends_in_every_phase_and_the_slot_is_free(
    opened: Opened, autojump_clock: MockClock
) -> None:
    """C46: while queued, while it executes, while it ignores the cancellation; twice is harmless."""

    async def stubborn(_ctx: Context) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(1_000)

    async def fine(_ctx: Context) -> str:
        return "ran"

    async with opened({"stubborn": stubborn, "fine": fine}, stop_grace_s=5) as runtime:
        company = runtime.company("k")
        await company.ask(Submit("x", handler="stubborn", id="ignores"))
        await company.ask(Submit("x", handler="fine", id="queued"))
        await company.ask(Submit("x", handler="fine", id="next"))
        await trio.sleep(1)
        assert (await company.ask(Stop("queued"))).status.value == "stopped"
        began_s = trio.current_time()
        assert (await company.ask(Stop("ignores"))).status.value == "stopping"
        assert (await company.ask(Stop("ignores"))).changed is False
        assert (await company.when_settled("ignores")).status.value == "stopped"
        assert trio.current_time() - began_s <= 5
        assert (await company.when_settled("next")).result == {"fine": "ran"}
        assert (await company.ask(Stop("ignores"))).changed is False
