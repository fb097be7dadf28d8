"""Run slots: never more active runs than the limit in force, and the database holds it even if the code is wrong."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from actors import Company, Context, ReasonKind, SetLimits, StartNow, Submit, SubmitMany, WorkState
from actors.core.state import CompanyState
from actors.messages import RUNS_MAX_LIMIT
from tests.inside import inside
from tests.runtime.support import Gated, a_host, a_task, idle, of_kind, quiet, settled, sql, stored_events

ACTIVE = "SELECT count(*) FROM runs WHERE slot > 0"


async def three_runs(path: Path) -> None:
    """A file with one active run and two that wait, and nobody runs it."""
    work = Gated()
    async with a_host(path, {"work": work}, executions_max=0) as runtime:
        await runtime.company("k").ask(SubmitMany([a_task("work") for _ in range(3)]))
        await quiet(runtime.company("k"))
    assert sql(path, ACTIVE) == [(1,)]


BECOME_ACTIVE = "UPDATE runs SET status = 'running', admitted_ms = 1, slot = ? WHERE seq = ?"


# --- round the code ---------------------------------------------------------------------------------------------------


async def test_the_file_itself_refuses_a_run_above_the_limit(
    db_path: Path, autojump_clock: MockClock
) -> None:
    await three_runs(db_path)
    with pytest.raises(sqlite3.IntegrityError, match="runs_max reached"):
        sql(db_path, BECOME_ACTIVE, 2, 2)
    assert sql(db_path, ACTIVE) == [(1,)]


async def test_the_file_itself_refuses_a_new_run_that_is_born_active(
    db_path: Path, autojump_clock: MockClock
) -> None:
    await three_runs(db_path)
    with pytest.raises(sqlite3.IntegrityError, match="runs_max reached"):
        sql(
            db_path,
            "INSERT INTO runs (company_id, seq, number, status, created_ms, slot, admitted_ms)"
            " VALUES (1, 2, 2, 'running', 1, 2, 1)",
        )


async def test_the_file_itself_refuses_two_runs_in_one_slot(db_path: Path, autojump_clock: MockClock) -> None:
    await three_runs(db_path)
    sql(db_path, "UPDATE companies SET runs_max = 9")
    with pytest.raises(
        sqlite3.IntegrityError, match=r"UNIQUE constraint failed: runs\.company_id, runs\.slot"
    ):
        sql(db_path, BECOME_ACTIVE, 1, 2)


@pytest.mark.planted
async def test_the_file_counts_with_the_limit_that_is_in_force(
    db_path: Path, autojump_clock: MockClock
) -> None:
    await three_runs(db_path)
    sql(db_path, "UPDATE companies SET runs_max = 2")
    sql(db_path, BECOME_ACTIVE, 2, 2)
    with pytest.raises(sqlite3.IntegrityError, match="runs_max reached"):
        sql(db_path, BECOME_ACTIVE, 3, 3)


async def test_a_run_is_active_exactly_while_it_has_a_slot(db_path: Path, autojump_clock: MockClock) -> None:
    await three_runs(db_path)
    for wrong in (
        "UPDATE runs SET status = 'running', admitted_ms = 1 WHERE seq = 2",
        "UPDATE runs SET slot = 0 WHERE seq = 1",
        "UPDATE runs SET slot = -1 WHERE seq = 1",
        "UPDATE runs SET slot = NULL WHERE seq = 1",
    ):
        with pytest.raises(sqlite3.IntegrityError):
            sql(db_path, wrong)


async def test_of_one_generation_the_file_accepts_one_result(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        await runtime.company("k").ask(a_task("ok", id="a"))
        assert await settled(runtime.company("k"), "a") == "completed"
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE constraint failed"):
        sql(
            db_path,
            "INSERT INTO attempts (company_id, seq, run, pos, number, generation, host_id, started_ms, ended_ms, end)"
            " VALUES (1, 1, 1, 0, 2, 0, 1, 1, 1, 'succeeded')",
        )


async def test_an_actor_that_counts_wrongly_is_stopped_by_the_file(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C14's backstop: with the guard in the code disabled the limit still holds."""
    monkeypatch.setattr(CompanyState, "slots_free", property(lambda _state: 1))
    work = Gated()
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await work.has_started()
        await company.tell(a_task("work", id="b"))
        await trio.sleep(120)
        assert work.most == 1
        assert sql(db_path, ACTIVE) == [(1,)]
        monkeypatch.undo()
        work.open.set()
        assert await settled(company, "a") == "completed"
    crashed = of_kind(stored_events(db_path), "actor.crashed")
    assert crashed
    assert all("runs_max reached" in str(event.reason) for event in crashed)


# --- the limit --------------------------------------------------------------------------------------------------------


async def active(company: Company) -> list[str]:
    return [status.id for status in await company.queue() if status.state is WorkState.RUNNING]


async def test_raising_the_limit_lets_in_at_once_and_lowering_it_stops_nothing(
    db_path: Path, autojump_clock: MockClock
) -> None:
    gates = {f"t{number}": trio.Event() for number in range(6)}

    async def work(ctx: Context) -> None:
        await gates[ctx.task].wait()

    async with a_host(db_path, {"work": work}, timeless=True) as runtime:
        company = runtime.company("k")
        await company.ask(SubmitMany([a_task("work", id=task) for task in gates]))
        assert await active(company) == ["t0"]
        await company.ask(SetLimits(runs_max=4))
        assert await active(company) == ["t0", "t1", "t2", "t3"]
        await company.ask(SetLimits(runs_max=2))
        assert await active(company) == ["t0", "t1", "t2", "t3"]
        for task, left in (("t1", ["t0", "t2", "t3"]), ("t0", ["t2", "t3"])):
            gates[task].set()
            await company.when_settled(task)
            await trio.testing.wait_all_tasks_blocked()
            assert await active(company) == left
        gates["t3"].set()
        await company.when_settled("t3")
        await trio.testing.wait_all_tasks_blocked()
        assert await active(company) == ["t2", "t4"]
        for gate in gates.values():
            gate.set()
        await idle(runtime)
    assert len(of_kind(stored_events(db_path), "run.completed")) == 6


async def test_a_limit_of_zero_holds_everything_and_says_so(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=0))
        await company.ask(a_task("ok", id="a"))
        await trio.sleep(600)
        (reason,) = [r for r in (await company.explain("a")).gates if r.kind is ReasonKind.RUN_SLOTS]
        assert (reason.tasks, dict(reason.numbers)) == ((), {"active": 0, "runs_max": 0})
        await company.ask(SetLimits(runs_max=RUNS_MAX_LIMIT))
        assert await settled(company, "a") == "completed"


async def test_starting_now_never_opens_the_limit_and_names_who_holds_the_slots(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Gated()
    async with a_host(db_path, {"work": work}, timeless=True) as runtime:
        company = runtime.company("k")
        await company.ask(SubmitMany([a_task("work", id=task) for task in ("a", "b", "c")]))
        moved = await company.ask(StartNow("c"))
        assert moved.holders == ("a",)
        assert await active(company) == ["a"]
        work.open.set()
        await idle(runtime)
    assert work.most == 1
    assert work.started == ["a", "c", "b"]


async def test_one_at_a_time_stays_so_however_often_it_is_woken(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C16."""
    work = Gated()
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(SubmitMany([a_task("work") for _ in range(12)]))
        await work.has_started()
        async with trio.open_nursery() as nursery:
            for _ in range(12):
                inside(runtime).services.directory.wake("k")
            nursery.start_soon(inside(runtime).sweeper.sweep)
        assert len(work.contexts) == 1
        assert sql(db_path, "SELECT count(*) FROM nodes") == [(1,)], "the others are not marked in any way"
        assert sql(db_path, ACTIVE) == [(1,)]
        work.open.set()
        await idle(runtime)
    assert work.most == 1
    assert work.started == [f"@{number}" for number in range(1, 13)]


async def test_the_order_is_priority_and_then_the_number_of_submission(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C26."""
    work = Gated()
    work.open.set()
    async with a_host(db_path, {"work": work}, timeless=True) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=0))
        for number in range(1, 13):
            await company.ask(a_task("work", id=f"n{number}"))
        for priority in (10, "P9", "2", -1):
            await company.ask(a_task("work", id=f"p{priority}", priority=priority))
        await company.ask(SetLimits(runs_max=1))
        await idle(runtime)
    same = [f"n{number}" for number in range(1, 13)]
    assert work.started == ["p-1", *same, "p2", "pP9", "p10"]


async def test_a_task_that_cannot_start_holds_up_nobody_behind_it(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path, timeless=True) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="held", mode="manual", priority=0))
        await company.ask(a_task("ok", id="waits", depends_on=["held"], priority=0))
        await company.ask(a_task("ok", id="behind"))
        assert await settled(company, "behind") == "completed"


async def test_a_run_without_nodes_is_completed_in_the_commit_of_its_admission(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        await runtime.company("k").ask(Submit("nothing to do", id="a"))
        outcome = await runtime.company("k").when_settled("a")
        assert (outcome.status.value, outcome.result) == ("completed", {})
    assert sql(db_path, "SELECT slot FROM runs") == [(0,)]
