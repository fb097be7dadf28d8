"""Schedules and time: fires that were lost, doubled, moved or forgotten in other systems."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import trio
from trio.testing import MockClock

import actors.core.decide
from actors import (
    ActorCrashed,
    Company,
    DatabaseInUse,
    Edit,
    Event,
    InvalidMessage,
    Pause,
    PauseSchedule,
    ResumeSchedule,
    RunNow,
    Runtime,
    ScheduleView,
    SetLimits,
    SetSchedule,
    Start,
    Submit,
    Unpause,
    WorkState,
)
from actors.testing import VirtualClock
from storage.errors import UnitRefused
from tests.conftest import Opened
from tests.inside import inside
from tests.runtime.support import Gated, a_host, kinds, of_kind, ok, sql, stored_events
from tests.stores import Plain

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
TASK = Submit("at its time", handler="ok")


def ms(*when: int, zone: str = "UTC") -> int:
    return round(datetime(*when, tzinfo=ZoneInfo(zone)).timestamp() * 1000)  # type: ignore[arg-type, misc]


async def until(clock: VirtualClock, t_ms: int) -> None:
    """Let the wall clock come to ``t_ms``: a leap to shortly before it, which everybody has noticed by then."""
    away_s = (t_ms - clock()) / 1000
    if away_s > 100:
        clock.jump(away_s - 100)
    await trio.sleep((t_ms - clock()) / 1000)


async def the(company: Company, name: str = "s") -> ScheduleView:
    (found,) = [one for one in await company.schedules() if one.name == name]
    return found


def fires(path: Path, company: str = "k", name: str = "s") -> list[Event]:
    return [e for e in of_kind(stored_events(path, company), "schedule.fired") if e.data["name"] == name]


def nominals(path: Path, company: str = "k", name: str = "s") -> list[int]:
    return [e.data["nominal_ms"] for e in fires(path, company, name) if not e.data["manual"]]


async def test_jitter_near_a_clock_change_skips_no_day(
    opened: Opened, autojump_clock: MockClock, wall_clock: VirtualClock, db_path: Path
) -> None:
    """C34: midnight in Los Angeles over all of 2026, each fire up to ten seconds late and jittered by ten."""
    zone = ZoneInfo("America/Los_Angeles")
    wall_clock.jump((ms(2025, 12, 31, 12, zone=zone.key) - wall_clock()) / 1000)
    async with opened({"ok": ok}, drain_s=0) as runtime:
        company = runtime.company("k")
        await company.ask(SetSchedule("s", cron="0 0 * * *", zone=zone.key, task=TASK, jitter_s=10))
        for number in range(365):
            due_ms = (await the(company)).next_ms
            assert due_ms is not None
            await until(wall_clock, due_ms - 1_000)
            wall_clock.jump(number % 11)
            await trio.sleep(30)
    fired = fires(db_path)
    dates = [datetime.fromtimestamp(t / 1000, zone) for t in nominals(db_path)]
    assert [(day.date(), day.hour, day.minute) for day in dates] == [
        (date(2026, 1, 1) + timedelta(days=n), 0, 0) for n in range(365)
    ]
    assert {round((e.at_ms - e.data["nominal_ms"]) / 1000) for e in fired} == set(range(11))
    starts = sql(db_path, "SELECT not_before_ms - nominal_ms FROM tasks")
    assert all(0 <= jitter <= 10_000 for (jitter,) in starts)
    assert len(set(starts)) > 300
    begun = {e.task: e.at_ms for e in of_kind(stored_events(db_path, "k"), "run.admitted")}
    assert len(begun) == 365
    assert all(0 <= begun[e.task] - e.data["nominal_ms"] <= 20_000 for e in fired)
    assert of_kind(stored_events(db_path, "k"), "schedule.skipped") == []


async def test_run_now_moves_no_fire(
    opened: Opened, autojump_clock: MockClock, wall_clock: VirtualClock, db_path: Path
) -> None:
    """C36: twice before the next fire, after a restart, while paused, and with a run that lasts past it."""
    work = Gated()
    async with opened({"work": work}) as runtime:
        company = runtime.company("k")
        made = await company.ask(SetSchedule("s", every=3600, task=Submit("t", handler="work")))
        due_ms = made.next_ms
        assert due_ms is not None
        await until(wall_clock, due_ms - 300_000)
        for _ in range(2):
            await company.ask(RunNow("s"))
            assert (await the(company)).next_ms == due_ms
        work.open.set()
        await company.when_idle()
    async with opened({"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(RunNow("s"))
        await company.ask(PauseSchedule("s"))
        await company.ask(RunNow("s"))
        assert (await the(company)).next_ms == due_ms
        await company.ask(ResumeSchedule("s"))
        assert sql(db_path, "SELECT next_ms, due_ms, fired_ms FROM schedules") == [(due_ms, due_ms, None)]
        await company.when_idle()
        work.open = trio.Event()
        lasting = await company.ask(RunNow("s"))
        await until(wall_clock, due_ms)
        await trio.sleep(60)
        (skipped,) = of_kind(stored_events(db_path, "k"), "schedule.skipped")
        assert skipped.reason == f"overlap: {lasting.id} is not settled"
        assert skipped.at_ms == due_ms
        assert (await the(company)).next_ms == due_ms + HOUR_MS
        work.open.set()
        await until(wall_clock, due_ms + HOUR_MS)
        await trio.sleep(1)
    manual = [event.data["manual"] for event in fires(db_path)]
    assert manual == [True] * 5 + [False]
    assert nominals(db_path) == [due_ms + HOUR_MS]
    assert sql(db_path, "SELECT count(*) FROM tasks WHERE schedule = 's' AND nominal_ms IS NULL") == [(5,)]


@pytest.mark.parametrize(("down_over", "misfire", "caught_up", "left_out"), [
    (1, "latest", 1, 0),
    (100, "latest", 1, 99),
    (1, "skip", 0, 1),
    (100, "skip", 0, 100),
])  # fmt: skip
async def test_what_fell_due_while_nobody_ran_follows_the_misfire_rule_once(
    opened: Opened,
    autojump_clock: MockClock,
    wall_clock: VirtualClock,
    db_path: Path,
    down_over: int,
    misfire: str,
    caught_up: int,
    left_out: int,
) -> None:
    """C37: down over 1 and over 100 nominal times, all of them accounted for, none of them twice.

    That a kill around "insert and advance" shows nowhere is tried at every commit: `tests.crash.scenarios.schedule`.
    """
    async with opened({"ok": ok}) as runtime:
        made = await runtime.company("k").ask(SetSchedule("s", cron="0 * * * *", task=TASK, misfire=misfire))
        first_ms = made.next_ms
        assert first_ms is not None
        await until(wall_clock, first_ms - 500)
    last_ms = first_ms + (down_over - 1) * HOUR_MS
    wall_clock.jump((last_ms + 61_000 - wall_clock()) / 1000)
    for _ in range(2):  # the second start finds nothing to do
        async with opened({"ok": ok}) as runtime:
            await trio.sleep(1)
            await runtime.company("k").when_idle()
            assert (await the(runtime.company("k"))).next_ms == last_ms + HOUR_MS
    assert nominals(db_path) == [last_ms] * caught_up
    skipped = of_kind(stored_events(db_path, "k"), "schedule.skipped")
    assert [(e.data["count"], e.data["exact"]) for e in skipped] == ([(left_out, True)] if left_out else [])
    tasks = sql(db_path, "SELECT count(*) FROM tasks")
    assert tasks == [(caught_up,)]


async def test_of_two_processes_only_the_owner_fires_and_the_file_refuses_a_nominal_time_twice(
    opened: Opened, autojump_clock: MockClock, wall_clock: VirtualClock, db_path: Path
) -> None:
    """C37: two processes; and the index under it all, asked round the code."""
    async with opened({"ok": ok}) as runtime:
        await runtime.company("k").ask(SetSchedule("s", every=60, task=TASK))
        with pytest.raises(DatabaseInUse):
            async with opened({"ok": ok}):
                raise AssertionError("a second owner")
        await trio.sleep(61)
        (nominal,) = nominals(db_path)
        twice = "UPDATE tasks SET schedule = 's', nominal_ms = :nominal WHERE seq = :seq"
        await runtime.company("k").ask(Submit("another", id="x", mode="manual"))
        with pytest.raises(UnitRefused, match="UNIQUE constraint failed"):
            await inside(runtime).services.store.commit(
                Plain(lambda conn: conn.execute(twice, {"nominal": nominal, "seq": 2}).rowcount)
            )
    assert sql(db_path, "SELECT count(*) FROM tasks WHERE nominal_ms IS NOT NULL") == [(1,)]


async def test_a_cron_that_can_never_fire(
    opened: Opened, autojump_clock: MockClock, wall_clock: VirtualClock, db_path: Path
) -> None:
    """C39: refused where it is built; one that stands in the file disables its schedule and nothing else."""
    for text in ("0 0 31 2 *", "0 0 30 2 *", "", "60 * * * *", "," * 10_000):
        with pytest.raises(InvalidMessage):
            SetSchedule("s", cron=text, task=TASK)
    async with opened({"ok": ok}) as runtime:
        await runtime.company("k").ask(SetSchedule("leap", cron="0 0 29 2 *", task=TASK))
        assert (await the(runtime.company("k"), "leap")).next_ms == ms(2028, 2, 29)
        for company in ("k", "other"):
            await runtime.company(company).ask(SetSchedule("good", cron="*/10 * * * *", task=TASK))
    sql(
        db_path,
        "INSERT INTO schedules (company_id, seq, name, template, cron, zone, anchor_ms, overlap, misfire, jitter_ms,"
        " next_ms, due_ms, moved_ms) SELECT company_id, 99, 'planted', template, '0 0 31 2 *', zone, 0, overlap,"
        " misfire, 0, 0, 0, 0 FROM schedules WHERE name = 'leap'",
    )
    async with opened({"ok": ok}) as runtime:
        await until(wall_clock, ms(2026, 1, 1, 0, 10))
        await trio.sleep(1)
        planted = await the(runtime.company("k"), "planted")
        assert planted.next_ms is None
        assert planted.disabled is not None
        assert "no date ever fits it" in planted.disabled
    (event,) = of_kind(stored_events(db_path), "schedule.disabled")
    assert (event.company, event.data["name"], event.reason) == ("k", "planted", planted.disabled)
    for company in ("k", "other"):
        (fired,) = fires(db_path, company, "good")
        assert fired.at_ms == fired.data["nominal_ms"] == ms(2026, 1, 1, 0, 10)
    assert of_kind(stored_events(db_path), "actor.crashed") == []


@pytest.mark.parametrize("idle_s", [1.0, 10_000.0], ids=["the company leaves", "the company stays"])
async def test_the_wall_clock_jumps(
    autojump_clock: MockClock,
    wall_clock: VirtualClock,
    db_path: Path,
    idle_s: float,
) -> None:
    """C40: six hours forward, six hours back, to the year 2200 and home again; three attempts live through it all."""
    long = Gated()
    async with a_host(db_path, {"long": long}, clock=wall_clock, idle_s=idle_s) as runtime:
        busy, company = runtime.company("busy"), runtime.company("k")
        await busy.ask(SetLimits(runs_max=3))
        for number in range(3):
            await busy.ask(Submit("long", handler="long", id=f"long{number}"))
        await long.has_started(3)
        await company.ask(SetSchedule("s", cron="* * * * *", task=TASK))
        await company.ask(SetSchedule("daily", cron="30 12 * * *", task=TASK))
        await trio.sleep(150)
        assert len(nominals(db_path)) == 2

        async def jump(seconds: float, sleep_s: float) -> list[Event]:
            before = len(fires(db_path))
            wall_clock.jump(seconds)
            await trio.sleep(sleep_s)
            return fires(db_path)[before:]

        forward = await jump(6 * 3600, 61)
        assert 1 <= len(forward) <= 2, "a storm, or silence"
        (skipped,) = of_kind(stored_events(db_path, "k"), "schedule.skipped")
        assert skipped.data["count"] in (359, 360)
        back = await jump(-6 * 3600, 60)
        assert 1 <= len(back) <= 2, "silence for more than a minute of real time, or a storm"
        assert len(await jump(0, 600)) == 10
        home_ms = wall_clock()
        far = await jump((ms(2200, 1, 1) - home_ms) / 1000, 61)
        assert 1 <= len(far) <= 2
        (daily,) = fires(db_path, name="daily")
        assert daily.data["nominal_ms"] == ms(2199, 12, 31, 12, 30)
        again = await jump((home_ms + 61_000 - wall_clock()) / 1000, 60)
        assert 1 <= len(again) <= 2
        await until(wall_clock, ms(2026, 1, 1, 12, 31))
        assert len(fires(db_path, name="daily")) == 2, "the far future silenced it"
        assert {s.state for s in await busy.tasks()} == {WorkState.RUNNING}
        long.open.set()
        await busy.when_idle()
    times = nominals(db_path)
    assert len(set(times)) == len(times)
    log = stored_events(db_path)
    assert of_kind(log, "attempt.stalled", "attempt.timed_out", "attempt.lost", "attempt.interrupted") == []
    assert len(of_kind(log, "run.completed")) == 3 + len(times) + 2


async def test_a_reader_whose_clock_is_hours_ahead_changes_nothing(
    opened: Opened, autojump_clock: MockClock, wall_clock: VirtualClock, db_path: Path
) -> None:
    """C40: six hours ahead in one of two processes. The other one reads; ownership is a lock and no lease."""
    async with opened({"ok": ok}) as runtime:
        await runtime.company("k").ask(SetSchedule("s", every=60, task=TASK))
        ahead = VirtualClock(wall_clock() + 6 * HOUR_MS)
        with pytest.raises(DatabaseInUse):
            from actors.testing import open_test_runtime

            async with open_test_runtime(db_path, handlers={"ok": ok}, clock=ahead):
                raise AssertionError("a second owner")
        await trio.sleep(61)
    assert len(nominals(db_path)) == 1


async def test_a_pause_is_never_forgotten(
    opened: Opened,
    autojump_clock: MockClock,
    wall_clock: VirtualClock,
    db_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """C42: a company, a task (held by its manual mode) and a schedule, through a restart, edits, a crash and sweeps."""
    decide = actors.core.decide.decide

    def bad_decide(draft: Any, message: Any, prefetched: Any) -> object:
        reply = decide(draft, message, prefetched)
        if getattr(message, "title", None) == "bad":
            raise ZeroDivisionError("a mistake of ours")
        return reply

    monkeypatch.setattr("actors.core.turn.decide", bad_decide)

    async def nothing_started(runtime: Runtime) -> None:
        await trio.sleep(61)
        await inside(runtime).sweeper.sweep()
        await trio.sleep(1)
        held, paused = runtime.company("held"), runtime.company("k")
        assert (await held.status("t")).state is WorkState.PAUSED
        assert (await paused.status("m")).state is WorkState.HELD
        assert (await the(paused)).paused_ms is not None
        assert "run.admitted" not in kinds(stored_events(db_path))

    async with opened({"ok": ok}) as runtime:
        held, company = runtime.company("held"), runtime.company("k")
        await held.ask(Pause())
        await held.ask(Submit("t", handler="ok", id="t"))
        await held.ask(SetSchedule("s", every=600, task=TASK))
        await company.ask(Submit("m", handler="ok", id="m", mode="manual"))
        await company.ask(SetSchedule("s", cron="0 * * * *", task=TASK))
        await company.ask(PauseSchedule("s"))
        await nothing_started(runtime)
    async with opened({"ok": ok}) as runtime:
        held, company = runtime.company("held"), runtime.company("k")
        await nothing_started(runtime)
        await company.ask(SetSchedule("s", cron="*/30 * * * *", task=TASK))
        await company.ask(Edit("m", priority=0))
        await held.ask(Edit("t", priority=0))
        await nothing_started(runtime)
        for one in (held, company):
            with suppress(ActorCrashed):
                await one.ask(Submit("bad"))
        await until(wall_clock, ms(2026, 1, 1, 3, 10))
        await nothing_started(runtime)
        assert fires(db_path) + fires(db_path, "held") == []

        await company.ask(ResumeSchedule("s"))
        await held.ask(Unpause())
        await company.ask(Start("m"))
        await trio.sleep(1)
        assert nominals(db_path) == [ms(2026, 1, 1, 3)]
        (missed,) = of_kind(stored_events(db_path, "k"), "schedule.skipped")
        assert missed.data["count"] == 5, "half past midnight to half past two"
        assert len(nominals(db_path, "held")) == 1
        assert (await held.when_settled("t")).status.value == "completed"
        assert (await company.when_settled("m")).status.value == "completed"


def test_the_words_used_here() -> None:
    assert ms(2026, 1, 1) == 1_767_225_600_000 == round(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
