"""Delays and schedules in a runtime: companies that come and go for them, clocks, crashes, and what is read of them."""

from __future__ import annotations

import pkgutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from actors import (
    Event,
    Pause,
    PauseSchedule,
    RunNow,
    SetSchedule,
    StartNow,
    Submit,
    Unpause,
    WorkState,
)
from actors.runtime.supervisor import AGAIN_MAX
from actors.testing import EPOCH_MS, VirtualClock, run_until_idle
from tests.inside import inside
from tests.invariants import check_runtime
from tests.runtime.support import Gated, a_host, a_task, kinds, of_kind, quiet, settled, sql, stored_events

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
TASK = Submit("at its time", handler="ok")


def fires(path: Path, company: str | None = None) -> list[Event]:
    return of_kind(stored_events(path, company), "schedule.fired")


def in_s(clock: VirtualClock, seconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=clock() + round(seconds * 1000))


# --- companies that are not there -------------------------------------------------------------------------------------


async def test_an_absent_company_is_brought_back_for_its_schedule_and_leaves_again(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path, idle_s=10) as runtime:
        await runtime.company("k").ask(SetSchedule("s", every=3600, task=TASK))
        for hour in range(1, 4):
            await trio.sleep(3000)
            assert inside(runtime).services.directory.find("k") is None
            await trio.sleep(601)
            assert len(fires(db_path)) == hour
            assert inside(runtime).services.directory.find("k") is not None
    assert [e.at_ms - e.data["nominal_ms"] for e in fires(db_path)] == [0, 0, 0]


async def test_an_absent_company_is_brought_back_when_a_task_of_it_may_start(
    db_path: Path, autojump_clock: MockClock
) -> None:
    clock = VirtualClock()
    async with a_host(db_path, clock=clock, idle_s=10) as runtime:
        await runtime.company("k").ask(a_task(id="t", not_before=in_s(clock, 7200)))
        await trio.sleep(3600)
        assert inside(runtime).services.directory.find("k") is None
        status = await runtime.company("k").status("t")
        assert (status.state, status.not_before_ms) == (WorkState.SCHEDULED, EPOCH_MS + 7_200_000)
        assert await settled(runtime.company("k"), "t") == "completed"
    (begun,) = of_kind(stored_events(db_path), "run.admitted")
    assert begun.at_ms == EPOCH_MS + 7_200_000


async def test_a_later_start_survives_restarts_and_a_time_that_passed_meanwhile_is_made_up_for(
    db_path: Path, autojump_clock: MockClock
) -> None:
    clock = VirtualClock()
    async with a_host(db_path, clock=clock) as runtime:
        await runtime.company("k").ask(a_task(id="soon", not_before=in_s(clock, 600)))
        await runtime.company("k").ask(a_task(id="late", not_before=in_s(clock, 3600)))
        await runtime.company("k").ask(a_task(id="now", not_before=in_s(clock, 3600)))
        await runtime.company("k").ask(StartNow("now"))
        await settled(runtime.company("k"), "now")
    clock.jump(1800)
    async with a_host(db_path, clock=clock) as runtime:
        assert await settled(runtime.company("k"), "soon") == "completed"
        assert (await runtime.company("k").status("late")).state is WorkState.SCHEDULED
        await run_until_idle(runtime)
        assert (await runtime.company("k").status("late")).state is WorkState.COMPLETED


async def test_many_schedules_of_many_companies_cost_no_child_and_a_wake_loads_only_whose_time_it_is(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path, idle_s=10) as runtime:
        await trio.sleep(1)
        children = trio.lowlevel.current_statistics().tasks_living
        for n in range(100):
            company = runtime.company(f"c{n:02}")
            for m in range(5):
                await company.ask(SetSchedule(f"s{m}", every=86_400 + 3_600 * n, task=TASK))
        await trio.sleep(60)
        assert inside(runtime).services.directory.cells == ()
        assert trio.lowlevel.current_statistics().tasks_living == children
        loaded: set[str] = set()
        watch = inside(runtime).supervisor._watch

        async def watched(cell: Any) -> None:
            loaded.add(cell.name)
            await watch(cell)

        inside(runtime).supervisor._watch = watched  # type: ignore[method-assign]
        await trio.sleep(86_400 + 3_600 * 2 + 1_800)
        assert loaded == {"c00", "c01", "c02"}
    assert len(fires(db_path)) == 15


async def test_a_schedule_is_work_of_its_own_and_nobody_waits_for_it_to_be_idle(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """`run_until_idle` waits for what may start later, and not for what never ends."""
    clock = VirtualClock()
    async with a_host(db_path, clock=clock, idle_s=10) as runtime:
        company = runtime.company("k")
        await company.ask(SetSchedule("s", every=3600, task=TASK))
        began_s = trio.current_time()
        await run_until_idle(runtime)
        assert trio.current_time() == began_s
        await trio.sleep(60)
        await run_until_idle(runtime)
        assert trio.current_time() - began_s == 60
        await company.ask(a_task(id="t", not_before=in_s(clock, 600)))
        await trio.sleep(60)
        await run_until_idle(runtime)
        assert 600 <= trio.current_time() - began_s - 60 < 700
    async with a_host(db_path, clock=clock) as runtime:
        began_s = trio.current_time()
        await run_until_idle(runtime)
        assert trio.current_time() == began_s


async def test_a_company_that_is_paused_does_not_come_back_for_its_schedules(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path, idle_s=10) as runtime:
        await runtime.company("k").ask(SetSchedule("s", every=60, task=TASK))
        await runtime.company("k").ask(Pause())
        await trio.sleep(3000)
        assert inside(runtime).services.directory.find("k") is None
        assert sql(db_path, "SELECT due_ms FROM companies") == [(None,)]
        await runtime.company("k").ask(Unpause())
        await quiet(runtime.company("k"))
    assert len(fires(db_path)) == 1


async def test_leaving_does_not_wait_for_schedules_nor_for_later_starts(
    db_path: Path, autojump_clock: MockClock
) -> None:
    clock = VirtualClock()
    async with a_host(db_path, clock=clock, timeless=True) as runtime:
        await runtime.company("k").ask(SetSchedule("s", every=1, task=TASK))
        await runtime.company("k").ask(a_task(id="t", not_before=in_s(clock, 5)))
    assert fires(db_path) == []


# --- the sweep --------------------------------------------------------------------------------------------------------


async def test_what_is_on_time_is_not_said_to_be_healed(db_path: Path, autojump_clock: MockClock) -> None:
    """A sweep each minute, beside a schedule of each minute: at the very same instants."""
    async with a_host(db_path, idle_s=10) as runtime:
        await runtime.company("k").ask(SetSchedule("s", cron="* * * * *", task=TASK))
        await trio.sleep(3600)
    assert len(fires(db_path)) == 60
    assert of_kind(stored_events(db_path), "sweep.finished") == []


async def test_a_schedule_whose_company_does_not_know_that_it_is_due_is_found_by_the_sweep(
    db_path: Path, autojump_clock: MockClock
) -> None:
    clock = VirtualClock()
    async with a_host(db_path, clock=clock) as runtime:
        await runtime.company("k").ask(SetSchedule("s", every=3600, task=TASK))
    sql(db_path, "UPDATE companies SET due_ms = NULL")
    async with a_host(db_path, clock=clock) as runtime:
        await trio.sleep(3600 + 61)
        assert len(fires(db_path)) == 1
        await trio.sleep(3600)
        assert len(fires(db_path)) == 2, "from then on it comes by itself"


# --- clocks -----------------------------------------------------------------------------------------------------------


async def test_a_clock_that_went_back_while_nobody_ran_silences_nothing(
    db_path: Path, autojump_clock: MockClock
) -> None:
    clock = VirtualClock()
    async with a_host(db_path, clock=clock) as runtime:
        await runtime.company("k").ask(SetSchedule("s", cron="* * * * *", task=TASK))
        await trio.sleep(300)
    before = len(fires(db_path))
    clock.jump(-6 * 3600)
    async with a_host(db_path, clock=clock) as runtime:
        await trio.sleep(61)
        assert len(fires(db_path)) > before
        await trio.sleep(600)
    times = [e.data["nominal_ms"] for e in fires(db_path)]
    assert len(times) >= before + 11
    assert len(set(times)) == len(times)


async def test_when_the_clock_goes_back_all_that_wait_look_again_a_page_at_a_time(
    db_path: Path, autojump_clock: MockClock
) -> None:
    clock = VirtualClock()
    many = AGAIN_MAX + 20
    async with a_host(db_path, clock=clock, idle_s=1) as runtime:
        for n in range(many):
            await runtime.company(f"c{n}").ask(SetSchedule("s", every=3600, task=TASK))
        await trio.sleep(3700)
        assert len(fires(db_path)) == many
        clock.jump(-30 * 3600)
        most = 0
        for _ in range(100):
            await trio.sleep(1)
            most = max(most, len(inside(runtime).services.directory.cells))
        assert len(of_kind(stored_events(db_path), "schedule.clock_back")) == many
        assert most <= 2 * AGAIN_MAX
        await trio.sleep(3600)
        assert len(fires(db_path)) == 2 * many


# --- crashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.planted
async def test_a_schedule_whose_fire_the_database_refuses_is_disabled_and_the_others_go_on(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """Its row was planted: it knows nothing of the task that it has made already."""
    clock = VirtualClock()
    async with a_host(db_path, clock=clock) as runtime:
        await runtime.company("k").ask(SetSchedule("s", every=60, task=TASK))
        await runtime.company("k").ask(SetSchedule("good", every=60, task=TASK))
        await trio.sleep(61)
        assert len(fires(db_path)) == 2
    back = "next_ms = fired_ms, due_ms = fired_ms, fired_to_ms = NULL, moved_ms = 0"
    sql(db_path, f"UPDATE schedules SET {back} WHERE name = 's'")
    async with a_host(db_path, clock=clock) as runtime:
        await trio.sleep(120)
        (view,) = [one for one in await runtime.company("k").schedules() if one.name == "s"]
        assert view.disabled is not None
        assert "UNIQUE constraint failed" in view.disabled
        assert (await runtime.company("k").ask(a_task())).id == "@5"
        await quiet(runtime.company("k"))
        await check_runtime(runtime)
    (event,) = of_kind(stored_events(db_path), "schedule.disabled")
    assert (event.before, event.after, event.data["name"]) == ("active", "disabled", "s")
    crashed = of_kind(stored_events(db_path), "actor.crashed")
    assert [e.task for e in crashed] == [None, None]
    assert "company.parked" not in kinds(stored_events(db_path))
    assert [e.data["name"] for e in fires(db_path)][2:] == ["good", "good"]


@pytest.mark.parametrize("place", ["actors.core.schedules.moves.come_due", "actors.core.submit.fresh_run"])
async def test_a_schedule_whose_moves_crash_the_actor_twice_is_disabled_and_nobody_else_notices(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    sound = pkgutil.resolve_name(place)

    def bad(record: Any, *rest: Any, **more: Any) -> Any:
        if "bad" in (getattr(record, "name", None), getattr(record, "schedule", None)):
            raise ZeroDivisionError("a mistake of ours")
        return sound(record, *rest, **more)

    monkeypatch.setattr(place, bad)
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        for name in ("bad", "good"):
            await company.ask(SetSchedule(name, every=60, task=TASK))
        await runtime.company("other").ask(SetSchedule("s", every=60, task=TASK))
        await trio.sleep(125)
        assert [one.name for one in await company.schedules() if one.disabled] == ["bad"]
        monkeypatch.undo()
        await company.ask(SetSchedule("bad", every=60, task=TASK))
        await trio.sleep(61)
    assert [e.data["name"] for e in fires(db_path, "k")][-2:].count("bad") == 1
    assert len(of_kind(stored_events(db_path), "schedule.disabled")) == 1
    assert [e.at_ms - e.data["nominal_ms"] for e in fires(db_path, "other")] == [0, 0, 0]


# --- reads ------------------------------------------------------------------------------------------------------------


async def test_schedules_are_read_with_their_last_and_their_next_fire(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        assert await company.schedules() == ()
        await company.ask(SetSchedule("night", cron="0 3 * * *", zone="Europe/Berlin", task=TASK, jitter_s=5))
        await company.ask(SetSchedule("beat", every=60, task=TASK, overlap="queue", misfire="skip"))
        await company.ask(PauseSchedule("night"))
        await company.ask(RunNow("night"))
        await trio.sleep(61)
        beat, night = await company.schedules()
    assert (beat.name, beat.cron, beat.every_s, beat.overlap, beat.misfire) == (
        "beat",
        None,
        60.0,
        "queue",
        "skip",
    )
    assert (beat.fired_ms, beat.fired_task) == (EPOCH_MS + MINUTE_MS, "@2")
    assert (beat.next_ms, beat.due_ms) == (EPOCH_MS + 2 * MINUTE_MS, EPOCH_MS + 2 * MINUTE_MS)
    assert (night.title, night.cron, night.zone, night.jitter_s) == (
        "at its time",
        "0 3 * * *",
        "Europe/Berlin",
        5.0,
    )
    assert night.next_ms == EPOCH_MS + 2 * HOUR_MS
    assert (night.paused_ms, night.fired_ms, night.disabled) == (EPOCH_MS, None, None)


async def test_another_process_reads_the_same(tmp_path: Path) -> None:
    """With a connection of its own kind, in real time."""
    from actors import open_reader, open_runtime

    path = tmp_path / "here.db"

    async def ok(_ctx: object) -> None:
        return None

    async with open_runtime(path, handlers={"ok": ok}) as runtime:
        company = runtime.company("k")
        await company.ask(SetSchedule("s", cron="0 3 * * *", task=TASK))
        await company.ask(Submit("later", id="t", handler="ok", not_before="2999-01-01T00:00:00Z"))
        await company.ask(Submit("past", id="u", mode="manual", not_before="2001-01-01T00:00:00Z"))
        async with open_reader(path) as reader:
            assert await reader.company("k").schedules() == await company.schedules()
            assert (await reader.company("k").status("t")).state is WorkState.SCHEDULED
            assert (await reader.company("k").status("u")).state is WorkState.HELD
    async with open_reader(path) as reader:
        (view,) = await reader.company("k").schedules()
        assert (view.name, view.next_ms is not None) == ("s", True)
        assert await reader.company("nobody").schedules() == ()


async def test_a_task_says_whose_schedule_made_it(db_path: Path, autojump_clock: MockClock) -> None:
    work = Gated()
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(SetSchedule("s", every=60, task=Submit("t", handler="work"), jitter_s=5))
        await work.has_started()
        (status,) = await company.queue()
        assert status.schedule == "s"
        assert status.not_before_ms is not None
        (task,) = work.started
        story = kinds(await company.timeline(task))
        assert story[:4] == ["task.submitted", "task.scheduled", "schedule.fired", "run.admitted"]
        work.open.set()
