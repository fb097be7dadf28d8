"""Schedules in a company: fires, what is missed, what overlaps, clocks that jump, rows that nobody can follow."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import hypothesis.strategies as st
import pytest
from hypothesis import given

from actors.codec import template_of, template_text
from actors.core.schedules.firing import COUNT_MAX, Fired, begun, come_due, first_free, went_back
from actors.core.schedules.state import BACK_MS, checked, due_of, jitter_ms, rule_of
from actors.errors import ScheduleRefused, UnknownGraph, UnknownHandler, UnknownUpstream
from actors.messages import (
    Archive,
    Backoff,
    DefineGraph,
    Edit,
    Gate,
    Message,
    Node,
    Pause,
    PauseSchedule,
    ResumeSchedule,
    RunNow,
    SetLimits,
    SetSchedule,
    StartNow,
    Stop,
    Submit,
    Unpause,
)
from actors.messages.views import ReasonKind, WorkState
from storage.records import AttemptEnd, Misfire, Overlap, RunStatus, ScheduleRecord
from storage.values import changed

from .agreement import check_against_file, watch
from .examples import examples
from .world import World

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
TASK = Submit("task", handler="work")


def ms(*when: int, zone: str = "UTC") -> int:
    return round(datetime(*when, tzinfo=ZoneInfo(zone)).timestamp() * 1000)  # type: ignore[arg-type, misc]


def a_world(begin_ms: int = ms(2026, 1, 1), *, watched: bool = True, **fields: Any) -> World:
    world = World(runs_max=9)
    world.now_ms = begin_ms
    if watched:
        watch(world)
    if fields:
        world.ask(SetSchedule("s", **({"task": TASK} | fields)))
    return world


def nominals(world: World) -> list[int | None]:
    return [event.data["nominal_ms"] for event in world.told("schedule.fired")]


def skipped(world: World) -> list[tuple[int, bool]]:
    return [(event.data["count"], event.data["exact"]) for event in world.told("schedule.skipped")]


def record(world: World, name: str = "s") -> ScheduleRecord:
    return world.state.schedules.by_name[name]


def finish_all(world: World) -> None:
    for key in list(world.running):
        world.succeed(key.task)


def pass_time(world: World, seconds: float, *, step_s: float = 60) -> None:
    """Look every minute, or when something is due, as an actor does; what runs ends at once."""
    end_ms = world.now_ms + round(seconds * 1000)
    while world.now_ms < end_ms:
        due = world.state.next_due_ms()
        look_ms = min(world.now_ms + round(step_s * 1000), end_ms)
        world.now_ms = look_ms if due is None else min(max(due, world.now_ms), look_ms)
        world.advance_until_quiet()
        finish_all(world)


# --- fires ----------------------------------------------------------------------------------------------------------


def test_a_schedule_fires_at_its_times_and_each_fire_is_a_task_of_its_own() -> None:
    world = a_world(cron="*/15 * * * *")
    pass_time(world, 3600)
    begin = ms(2026, 1, 1)
    assert nominals(world) == [begin + n * 15 * MINUTE_MS for n in range(1, 5)]
    assert world.stored("SELECT id, schedule, nominal_ms, title FROM tasks ORDER BY seq") == [
        (f"@{n}", "s", begin + n * 15 * MINUTE_MS, "task") for n in range(1, 5)
    ]
    assert record(world).fired_task == "@4"
    assert skipped(world) == []
    world.check_tables()


def test_a_fire_is_one_commit_with_the_next_time_and_a_refused_one_leaves_neither() -> None:
    world = a_world(every=60)
    before = record(world)
    world.now_ms += 60_000
    world.turn(commit=False)
    assert record(world) == before
    assert world.stored("SELECT count(*) FROM tasks") == [(0,)]
    check_against_file(world)
    world.turn()
    assert record(world).next_ms == world.now_ms + 60_000
    assert world.stored("SELECT count(*) FROM tasks") == [(1,)]


def test_the_task_of_a_fire_is_all_that_the_template_says() -> None:
    task = Submit(
        "all of it",
        nodes=[
            Node("a", "work", payload={"n": 1}, timeout_s=5, retry=Backoff(base_s=2)),
            Node("b", "work", after=["a"]),
        ],
        payload=[1, {"x": None}],
        priority=7,
        mode="manual",
        goal="g",
        tries_max=5,
        fail_fast=True,
    )
    assert template_of(template_text(task)) == task
    again = template_of(template_text(task))
    assert again.payload_text == task.payload_text
    assert again.nodes is not None
    assert task.nodes is not None
    assert [node.payload_text for node in again.nodes] == [node.payload_text for node in task.nodes]
    world = a_world(every=60, task=task)
    world.wait(60)
    asked = world.ask(Submit("as by hand", id="x", nodes=task.nodes, payload=task.payload, priority=7, mode="manual",
                             goal="g", tries_max=5, fail_fast=True))  # fmt: skip
    columns = "shape, payload, node_payloads, priority, mode, goal, tries_max, fail_fast"
    fired, said = world.stored(f"SELECT {columns} FROM tasks ORDER BY seq")
    assert fired == said
    assert asked.id == "x"


def test_a_template_keeps_every_field() -> None:
    nodes: list[Node | Gate] = [
        Node("a", "work", send_backs_max=2, stall_s=None, tries_max=2, estimate=3),
        Gate("ask", after=["a"]),
    ]
    task = Submit("t", nodes=nodes, mode="step", send_backs_max=3, depends_on=["u"], budget=9)
    assert template_of(template_text(task)) == task


def test_a_payload_is_as_it_was_when_the_schedule_was_built() -> None:
    payload = {"list": [1]}
    deep: Any = None
    for _ in range(199):
        deep = [deep]
    message = SetSchedule(
        "s", every=60, task=Submit("t", nodes=[Node("n", "work", payload=deep)], payload=payload)
    )
    payload["list"].append(object())  # type: ignore[arg-type]
    world = a_world()
    world.ask(message)
    world.wait(60)
    assert world.stored("SELECT payload FROM tasks") == [('{"list":[1]}',)]


def test_a_task_that_is_too_large_for_a_schedule_is_refused() -> None:
    large = [Node(f"n{n}", "work", payload="x" * 900_000) for n in range(5)]
    world = a_world()
    with pytest.raises(ScheduleRefused, match="more than the"):
        world.ask(SetSchedule("s", every=60, task=Submit("t", nodes=large)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "7",
        "null",
        '{"title":"x"}',
        '{"$":"Submit","title":"x","id":"a"}',
        '{"$":"Submit","nodes":7,"title":"x"}',
        '{"$":"Submit","title":""}',
    ],
)
def test_a_template_that_nobody_of_ours_wrote_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        template_of(text)


def test_a_fire_that_cannot_be_carried_out_is_skipped_with_the_reason_and_the_schedule_goes_on() -> None:
    world = World(runs_max=9, handlers={"work"})
    world.ask(SetSchedule("s", every=60, task=TASK))
    world.handlers = frozenset({"other"})
    world.reload()
    world.wait(60)
    (event,) = world.told("schedule.skipped")
    assert event.reason == "no handler is registered as work: pass it to open_runtime(handlers=…)"
    assert (event.data["count"], nominals(world)) == (1, [])
    world.handlers = frozenset({"work"})
    world.reload()
    world.wait(60)
    assert len(nominals(world)) == 1
    world.check_tables()


@pytest.mark.parametrize("pause_s", [60, 90, 3600])
@pytest.mark.parametrize(
    ("hold", "release"), [(PauseSchedule("s"), ResumeSchedule("s")), (Pause(), Unpause())]
)
def test_a_time_that_passed_during_a_pause_is_not_told_as_missed(
    pause_s: int, hold: Message[Any], release: Message[Any]
) -> None:
    """Nothing was missed where a person held the schedule. A time that passes while no host runs is another matter."""
    world = a_world(every=3600, misfire="skip")
    world.wait(3570)
    world.ask(hold)
    world.wait(30 + pause_s)
    world.ask(release)
    assert [event.reason for event in world.told("schedule.skipped")] == [
        "paused: its time passed during the pause"
    ]


def test_what_a_schedule_could_never_carry_out_is_refused_when_it_is_set() -> None:
    world = World(handlers={"work"})
    for task, error in (
        (Submit("t", handler="nobody"), UnknownHandler),
        (Submit("t", graph="none"), UnknownGraph),
        (Submit("t", depends_on=["nobody"]), UnknownUpstream),
    ):
        with pytest.raises(error):
            world.ask(SetSchedule("s", every=60, task=task))
    assert world.state.schedules.by_name == {}
    assert world.stored("SELECT count(*) FROM schedules") == [(0,)]


def test_a_schedule_can_depend_on_a_task_that_is_long_done() -> None:
    world = a_world()
    world.ask(DefineGraph("g", [Node("n", "work")]))
    world.ask(Submit("base", id="base", handler="work"))
    world.succeed("base")
    assert "base" not in world.state.entries
    world.ask(SetSchedule("s", every=60, task=Submit("t", graph="g", depends_on=["base"])))
    world.wait(60)
    world.ask(RunNow("s"))
    assert world.stored("SELECT count(*) FROM edges WHERE upstream = 'base' AND pinned_run = 1") == [(2,)]
    assert len(nominals(world)) == 2


def test_a_company_has_a_limit_of_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.core.schedules.moves.SCHEDULES_MAX", 3)
    world = a_world()
    for n in range(3):
        world.ask(SetSchedule(f"s{n}", every=60, task=TASK))
    with pytest.raises(ScheduleRefused, match="the most that one can have"):
        world.ask(SetSchedule("one more", every=60, task=TASK))
    world.ask(SetSchedule("s0", every=61, task=TASK))


def test_thousands_that_are_due_at_once_are_fired_in_bounded_turns_and_each_once() -> None:
    world = World(runs_max=0)
    for n in range(1_000):
        world.turn(SetSchedule(f"s{n}", every=60, task=TASK), advancing=False)
    world.now_ms += 60_000
    turns = [0]
    while True:
        before = len(nominals(world))
        world.turn()
        turns.append(len(nominals(world)) - before)
        if not world.advanced.more:
            break
    assert max(turns) <= 200
    assert sum(turns) == 1_000
    assert world.stored("SELECT count(DISTINCT schedule) FROM tasks") == [(1_000,)]


# --- overlap --------------------------------------------------------------------------------------------------------


def test_while_a_task_of_it_is_not_settled_the_next_fire_is_skipped_or_queued() -> None:
    world = a_world(every=60)
    world.ask(SetSchedule("q", every=60, task=TASK, overlap="queue"))
    for _ in range(3):
        world.wait(60)
    assert [e.data["name"] for e in world.told("schedule.fired")] == ["q", "s", "q", "q"]
    assert [e.reason for e in world.told("schedule.skipped")] == ["overlap: @2 is not settled"] * 2
    finish_all(world)
    world.wait(60)
    assert [e.data["name"] for e in world.told("schedule.fired")][4:] == ["q", "s"]


def test_a_run_by_hand_counts_for_overlap_and_moves_no_time() -> None:
    world = a_world(every=60)
    before = record(world)
    made = world.ask(RunNow("s"))
    again = world.ask(RunNow("s"))
    assert record(world) == before
    assert nominals(world) == [None, None]
    assert world.stored("SELECT schedule, nominal_ms FROM tasks") == [("s", None)] * 2
    world.wait(60)
    assert [event.reason for event in world.told("schedule.skipped")] == [
        f"overlap: {made.id}, {again.id} is not settled"
    ]


def test_a_task_that_is_archived_or_cannot_be_trusted_silences_no_schedule() -> None:
    world = a_world(every=60, task=Submit("t", handler="work", mode="manual"))
    world.wait(60)
    world.wait(60)
    assert len(nominals(world)) == 1
    world.ask(Archive("@1"))
    world.wait(60)
    assert len(nominals(world)) == 2
    world.plant("UPDATE tasks SET shape = 'no graph' WHERE id = '@2'")
    world.plant("INSERT INTO quarantine VALUES (1, 2, 0, 'bad row', NULL)")
    world.wait(60)
    assert len(nominals(world)) == 3


# --- absence --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("misfire", "fires"), [("latest", 1), ("skip", 0)])
@pytest.mark.parametrize("missed", [1, 2, 100])
def test_after_an_absence_at_most_one_is_caught_up_and_the_rest_is_counted(
    missed: int, misfire: str, fires: int
) -> None:
    world = a_world(cron="0 * * * *", misfire=misfire)
    first = record(world).next_ms
    assert first is not None
    world.now_ms = first + (missed - 1) * HOUR_MS + 120_000
    world.reload()
    world.advance_until_quiet()
    latest = first + (missed - 1) * HOUR_MS
    assert nominals(world) == [latest] * fires
    assert skipped(world) == ([(missed - fires, True)] if missed > fires else [])
    assert record(world).next_ms == latest + HOUR_MS
    world.advance_until_quiet()
    assert len(nominals(world)) == fires


@pytest.mark.parametrize("misfire", ["latest", "skip"])
def test_a_fire_that_is_less_than_a_minute_late_was_not_missed(misfire: str) -> None:
    for late_ms, expected in ((59_999, 1), (60_000, misfire == "latest")):
        world = a_world(cron="0 * * * *", misfire=misfire)
        world.now_ms = ms(2026, 1, 1, 1) + late_ms
        world.advance_until_quiet()
        assert len(nominals(world)) == expected


def test_times_beyond_counting_are_counted_to_a_bound_which_is_said() -> None:
    world = a_world(cron="* * * * *")
    world.wait(30 * 86_400)
    assert skipped(world) == [(COUNT_MAX - 1, False)]
    assert len(nominals(world)) == 1
    assert nominals(world) == [world.now_ms]


def test_what_counting_costs_is_taken_off_the_turn() -> None:
    world = World(runs_max=0)
    for n in range(30):
        world.turn(SetSchedule(f"s{n}", cron="* * * * *", task=TASK), advancing=False)
    world.now_ms += 30 * DAY_MS
    world.turn()
    assert 1 <= len(nominals(world)) <= 5, "each costs a quarter of a turn"
    assert world.advanced.more
    world.advance_until_quiet()
    assert len(nominals(world)) == 30


# --- pause ----------------------------------------------------------------------------------------------------------


def test_a_paused_schedule_stays_paused_whatever_is_done_to_it_but_for_a_resume() -> None:
    world = a_world(cron="0 * * * *")
    world.ask(PauseSchedule("s"))
    for step in (
        lambda: world.reload(),
        lambda: world.ask(SetSchedule("s", cron="30 * * * *", task=TASK)),
        lambda: world.ask(SetSchedule("s", every=600, task=Submit("other", handler="work"))),
        lambda: world.ask(RunNow("s")),
    ):
        step()
        assert record(world).paused_ms is not None
        pass_time(world, 7200)
        assert [n for n in nominals(world) if n is not None] == []
    world.ask(ResumeSchedule("s"))
    assert len([n for n in nominals(world) if n is not None]) == 1


def test_a_paused_company_holds_its_schedules_and_going_on_follows_the_misfire_rule() -> None:
    world = a_world(cron="0 * * * *", overlap="queue")
    world.ask(SetSchedule("skips", cron="0 * * * *", task=TASK, misfire="skip"))
    world.ask(Pause())
    assert world.state.next_due_ms() is None
    for _ in range(6):
        world.wait(3600)
    assert nominals(world) == []
    world.now_ms += 120_000
    world.ask(Unpause())
    assert [(e.data["name"], e.data["nominal_ms"]) for e in world.told("schedule.fired")] == [
        ("s", ms(2026, 1, 1, 6))
    ]
    assert sorted((e.data["name"], e.data["count"]) for e in world.told("schedule.skipped")) == [
        ("s", 5),
        ("skips", 6),
    ]


# --- the wall clock jumps -------------------------------------------------------------------------------------------


def test_the_clock_goes_forward_by_hours_and_each_schedule_fires_once() -> None:
    world = a_world(cron="* * * * *")
    world.ask(SetSchedule("hourly", every=3600, task=TASK))
    pass_time(world, 600)
    before = len(nominals(world))
    world.now_ms += 6 * HOUR_MS
    world.advance_until_quiet()
    finish_all(world)
    assert len(nominals(world)) == before + 2
    assert [count for count, exact in skipped(world) if exact] == [359, 5]
    pass_time(world, 600)
    assert len(nominals(world)) == before + 2 + 10


@pytest.mark.parametrize(
    ("fields", "hours"),
    [({"cron": "* * * * *"}, 6), ({"every": 60}, 6), ({"every": 7}, 1), ({"cron": "*/5 * * * *"}, 30)],
)
@pytest.mark.parametrize("off_ms", [0, 4, 31_000])
def test_the_clock_goes_back_by_hours_and_what_follows_real_time_goes_on(
    fields: dict[str, Any], hours: int, off_ms: int
) -> None:
    step_ms = {"* * * * *": MINUTE_MS, "*/5 * * * *": 5 * MINUTE_MS}.get(fields.get("cron", ""), 0)
    step_ms = step_ms or fields["every"] * 1000
    world = a_world(watched=False, **fields)
    pass_time(world, 1800)
    fired = len(nominals(world))
    world.now_ms -= hours * HOUR_MS + off_ms
    jumped_ms = world.now_ms
    pass_time(world, 60 + (step_ms / 1000 if step_ms > MINUTE_MS else 0))
    (first,) = world.told("schedule.fired")[fired : fired + 1]
    assert first.at_ms - jumped_ms <= (MINUTE_MS if step_ms <= MINUTE_MS else step_ms + MINUTE_MS), (
        "a silence"
    )
    assert len(world.told("schedule.clock_back")) == 1
    pass_time(world, (hours + 1) * 3600)
    since = [event.at_ms for event in world.told("schedule.fired")[fired:]]
    assert all(0 < b - a <= step_ms for a, b in pairwise(since)), "a silence, or two at once"
    times = nominals(world)
    assert len(set(times)) == len(times), "a nominal time fired twice"
    world.check_tables()


def test_the_clock_goes_back_and_a_time_of_a_date_waits_for_the_next_date() -> None:
    world = a_world(ms(2026, 5, 1, 8), cron="0 9 * * *")
    pass_time(world, 2 * 3600, step_s=600)
    world.now_ms -= 6 * HOUR_MS
    pass_time(world, 86_400, step_s=600)
    assert nominals(world) == [ms(2026, 5, 1, 9)]
    pass_time(world, 86_400, step_s=600)
    assert nominals(world) == [ms(2026, 5, 1, 9), ms(2026, 5, 2, 9)]


@pytest.mark.parametrize("text", ["* * * * *", "0 9 * * *", "30 * * * *", "*/10 9 * * *"])
def test_the_clock_goes_to_the_year_2200_and_comes_back(text: str) -> None:
    world = a_world(ms(2026, 5, 1, 8), watched=False, cron=text)
    pass_time(world, 7200, step_s=600)
    before = len(nominals(world))
    now = world.now_ms
    world.now_ms = ms(2200, 1, 1, 12, 5)
    world.advance_until_quiet()
    finish_all(world)
    assert len(nominals(world)) == before + 1
    assert skipped(world)[-1] == (COUNT_MAX - 1, False)
    world.now_ms = now + 60_000
    pass_time(world, 1.5 * 86_400)
    since = [n for n in nominals(world)[before + 1 :] if n is not None]
    rule = rule_of(record(world))
    expected, t = [], now + 60_000
    while (following := rule.after(t)) is not None and following <= world.now_ms:
        expected.append(following)
        t = following
    assert since == expected, "once it is back it fires as if nothing had been"
    world.check_tables()


def test_a_jump_there_and_back_again_fires_nothing_twice() -> None:
    """Six hours ahead for five minutes: the times that fired there come once more, and are left out."""
    world = a_world(watched=False, cron="* * * * *")
    pass_time(world, 300)
    world.now_ms += 6 * HOUR_MS
    pass_time(world, 300)
    world.now_ms -= 6 * HOUR_MS
    pass_time(world, 7 * 3600)
    times = [n for n in nominals(world) if n is not None]
    assert len(set(times)) == len(times)
    gaps = [b.at_ms - a.at_ms for a, b in pairwise(world.told("schedule.fired")[12:])]
    assert max(gaps) <= MINUTE_MS
    world.check_tables()


def test_a_jump_there_and_back_again_leaves_every_date_its_one_fire() -> None:
    world = a_world(ms(2026, 5, 1, 8), cron="0 9 * * *")
    world.now_ms += 3 * DAY_MS
    pass_time(world, 2 * 86_400, step_s=600)
    world.now_ms -= 5 * DAY_MS
    pass_time(world, 8 * 86_400, step_s=600)
    times = sorted(n for n in nominals(world) if n is not None)
    assert times == [ms(2026, 5, day, 9) for day in range(1, 9)]


def test_a_clock_that_went_back_a_little_is_waited_for() -> None:
    world = a_world(every=3600)
    world.wait(3600)
    finish_all(world)
    before = record(world)
    for back_ms in (BACK_MS, 20 * MINUTE_MS):
        world.now_ms = before.moved_ms - back_ms
        world.advance_until_quiet()
        assert (record(world).next_ms, record(world).due_ms) == (before.next_ms, before.due_ms)
    assert len(nominals(world)) == 1


RULES: list[dict[str, Any]] = [
    {"cron": "* * * * *"},
    {"cron": "*/15 * * * *"},
    {"cron": "0 9 * * *"},
    {"cron": "30 2 * * *", "zone": "Europe/Berlin"},
    {"cron": "*/10 9 * * *"},
    {"every_ms": 7_000},
    {"every_ms": 3_600_000},
]
LEAPS_MS = [1, 900, 5_000, 30_000, 59_000, 60_000, 61_000, 600_000, HOUR_MS, 5 * HOUR_MS, DAY_MS, 40 * DAY_MS]


@given(
    st.sampled_from(RULES),
    st.sampled_from(list(Misfire)),
    st.lists(st.tuples(st.sampled_from(LEAPS_MS), st.sampled_from([1, 1, 1, -1])), max_size=60),
)
@examples(150)
def test_whatever_the_clock_does_nothing_fires_twice_and_nothing_falls_silent(
    fields: dict[str, Any], misfire: Misfire, leaps: list[tuple[int, int]]
) -> None:
    """One schedule, looked at after each leap of the clock, forward or back."""
    now = ms(2026, 3, 27, 12)
    one = ScheduleRecord(1, "s", template_text(TASK), **fields, anchor_ms=now, misfire=misfire)
    rule = rule_of(one)
    one = begun(one, rule, now, Fired())
    fired: set[int] = set()
    for leap_ms, sign in leaps:
        now += sign * leap_ms
        known = Fired(frozenset(fired), complete=True)
        if one.moved_ms - now > BACK_MS:
            one = went_back(one, rule, now, known)
        if due_of(one) is not None and due_of(one) <= now:  # type: ignore[operator]
            outcome = come_due(one, rule, now, known)
            one = outcome.after
            if outcome.nominal_ms is not None:
                assert outcome.nominal_ms not in fired, "twice for one nominal time"
                assert rule.latest(outcome.nominal_ms - 1, outcome.nominal_ms) == outcome.nominal_ms
                fired.add(outcome.nominal_ms)
                one = changed(one, fired_to_ms=max(fired))
            assert outcome.skipped >= 0
        following = rule.after(now)
        assert one.due_ms is not None
        assert one.next_ms is not None
        assert following is not None
        assert now < one.due_ms <= one.next_ms
        assert one.next_ms not in fired or one.next_ms <= (one.fired_to_ms or 0)
        if rule.steady:
            step = rule.after(following)
            assert step is not None
            assert one.due_ms - now <= 2 * (step - following) + BACK_MS, "silence"
        else:
            free = first_free(one, rule, now, Fired(frozenset(fired)))
            assert free is not None
            assert one.due_ms <= max(free, one.moved_ms + BACK_MS), "silence"


def test_of_more_fired_times_than_are_looked_up_none_is_taken_for_free() -> None:
    base = ScheduleRecord(1, "s", template_text(TASK), cron="* * * * *", next_ms=0, due_ms=0)
    moved = changed(
        base, moved_ms=10**9, next_ms=10**9 + 20_000, due_ms=10**9 + 20_000, fired_to_ms=10**9 - 40_000
    )
    prefetched = Fired(frozenset(range(0, 6_000_000, 60_000)), complete=False, last_ms=10**9 - 40_000)
    after = went_back(moved, rule_of(moved), 1_000, prefetched)
    assert after.next_ms == 10**9 + 20_000
    assert after.due_ms == 0
    assert come_due(after, rule_of(after), 1_000, prefetched).nominal_ms == 10**9 + 20_000


# --- jitter ---------------------------------------------------------------------------------------------------------


def test_jitter_moves_the_start_and_never_the_nominal_time_and_is_the_same_for_the_same_fire() -> None:
    world = a_world(every=60, jitter_s=20, overlap="queue")
    pass_time(world, 1800)
    rows = world.stored("SELECT nominal_ms, not_before_ms FROM tasks ORDER BY seq")
    assert [nominal for nominal, _ in rows] == [ms(2026, 1, 1) + n * MINUTE_MS for n in range(1, 31)]
    spread = [start - nominal for nominal, start in rows]
    assert all(0 <= shift <= 20_000 for shift in spread)
    assert len(set(spread)) > 20
    assert max(spread) - min(spread) > 10_000
    assert spread == [jitter_ms("acme", record(world), nominal) for nominal, _ in rows]
    started = [e.at_ms for e in world.told("run.admitted")]
    assert started == sorted(start for _, start in rows)[: len(started)]


# --- rows that cannot be trusted ------------------------------------------------------------------------------------

PLANTED = {
    "a cron that never fires": (
        "cron = '0 0 31 2 *'",
        "cron '0 0 31 2 *' is not valid, or no date ever fits it",
    ),
    "a cron that is none": ("cron = 'often'", "cron 'often' must have five fields"),
    "no cron": ("cron = ''", "cron '' must have five fields"),
    "a zone that is none": ("zone = 'Mars/Base'", "zone 'Mars/Base' is unknown"),
    "a task that is none": ("template = '{}'", "not the task of a schedule"),
    "a template that is no text": ("template = x'80'", ""),
    "bytes for a cron": ("cron = CAST(x'2a20ff' AS TEXT)", "a text that is not UTF-8"),
    "an overlap of another kind": ("overlap = 'wait'", "'wait' is not a valid Overlap"),
    "a misfire of another kind": ("misfire = 'all'", "'all' is not a valid Misfire"),
    "no next time": ("next_ms = NULL, due_ms = NULL", "its next time is missing"),
    "a time out of all reckoning": (
        f"next_ms = {2**62}, due_ms = {2**62}",
        "is no time that can be reckoned with",
    ),
}


@pytest.mark.parametrize("what", [what for what in PLANTED if what != "a template that is no text"])
def test_a_planted_row_disables_that_schedule_with_the_reason_and_the_others_fire(what: str) -> None:
    change, reason = PLANTED[what]
    world = World(runs_max=9)
    world.ask(SetSchedule("s", cron="0 * * * *", task=TASK))
    world.ask(SetSchedule("good", cron="0 * * * *", task=TASK))
    world.conn.text_factory = _lenient
    world.plant(f"UPDATE schedules SET {change} WHERE name = 's'")
    world.advance_until_quiet()
    (event,) = world.told("schedule.disabled")
    assert (event.data["name"], event.before, event.after) == ("s", "active", "disabled")
    assert event.reason is not None
    assert reason in event.reason
    stored = world.stored("SELECT disabled, next_ms FROM schedules WHERE name = 's'")
    assert stored == [(event.reason, None)]
    world.reload()
    world.wait(3600)
    assert [e.data["name"] for e in world.told("schedule.fired")] == ["good"]
    assert len(world.told("schedule.disabled")) == 1
    world.ask(SetSchedule("s", cron="0 * * * *", task=TASK))
    finish_all(world)
    world.wait(3600)
    assert {e.data["name"] for e in world.told("schedule.fired")} == {"good", "s"}


def _lenient(raw: bytes) -> str:
    """As the reader's connection gives texts that are not UTF-8."""
    from storage.sqlite.connection import _text_or_escaped

    return _text_or_escaped(raw)


def test_a_record_is_checked_without_being_changed() -> None:
    good = ScheduleRecord(1, "s", template_text(TASK), every_ms=60_000, next_ms=5, due_ms=5)
    assert checked(good) is good
    assert checked(changed(good, bad="x")).bad == "x"
    assert checked(changed(good, misfire=Misfire.SKIP, overlap=Overlap.QUEUE)).bad is None
    assert checked(changed(good, disabled="why")).bad is not None


# --- delays ---------------------------------------------------------------------------------------------------------


def moment(t_ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=t_ms)


def test_a_task_with_a_later_start_is_scheduled_says_until_when_and_starts_when_that_has_passed() -> None:
    world = a_world()
    at_ms = world.now_ms + HOUR_MS
    world.ask(Submit("later", id="t", handler="work", not_before=moment(at_ms)))
    assert world.where("t") is WorkState.SCHEDULED
    reason = world.reason("t", ReasonKind.NOT_BEFORE)
    assert reason.at_ms == at_ms
    assert world.gates("t") == [ReasonKind.NOT_BEFORE]
    assert world.state.next_due_ms() == at_ms
    assert world.stored("SELECT due_ms FROM companies") == [(at_ms,)]
    assert world.position("t") == 1
    (told,) = world.told("task.scheduled")
    assert told.data == {"not_before_ms": at_ms}
    world.reload()
    assert world.where("t") is WorkState.SCHEDULED
    world.now_ms = at_ms - 1
    world.advance_until_quiet()
    assert world.where("t") is WorkState.SCHEDULED
    world.now_ms = at_ms
    world.advance_until_quiet()
    assert world.where("t") is WorkState.RUNNING
    assert world.state.next_due_ms() is None


def test_a_start_that_has_passed_holds_nobody_up() -> None:
    world = a_world()
    world.ask(Submit("now", id="t", handler="work", not_before=moment(world.now_ms - 1)))
    assert world.where("t") is WorkState.RUNNING


def test_a_later_start_can_be_changed_and_taken_away() -> None:
    world = a_world()
    begin = world.now_ms
    world.ask(Submit("later", id="t", handler="work", not_before=moment(begin + HOUR_MS)))
    world.ask(Edit("t", not_before=moment(begin + 2 * HOUR_MS)))
    assert world.reason("t", ReasonKind.NOT_BEFORE).at_ms == begin + 2 * HOUR_MS
    world.wait(3600)
    assert world.where("t") is WorkState.SCHEDULED
    world.ask(Edit("t", not_before=moment(begin + HOUR_MS + 60_000)))
    assert world.state.next_due_ms() == begin + HOUR_MS + 60_000
    world.ask(Edit("t", not_before=None))
    assert world.where("t") is WorkState.RUNNING
    assert [e.data["not_before_ms"] for e in world.told("task.scheduled")][-1] is None
    assert world.stored("SELECT not_before_ms FROM tasks") == [(None,)]


def test_start_now_overrides_a_later_start_and_the_override_is_stored() -> None:
    world = a_world()
    world.ask(SetLimits(runs_max=0))
    at_ms = world.now_ms + HOUR_MS
    world.ask(Submit("later", id="t", handler="work", not_before=moment(at_ms)))
    world.ask(StartNow("t"))
    assert world.gates("t") == [ReasonKind.RUN_SLOTS]
    assert world.state.next_due_ms() is None
    world.reload()
    assert world.gates("t") == [ReasonKind.RUN_SLOTS]
    world.ask(SetLimits(runs_max=1))
    assert world.where("t") is WorkState.RUNNING


def test_a_later_start_is_for_the_first_admission_alone() -> None:
    world = a_world()
    world.ask(Submit("later", id="t", handler="work", not_before=moment(world.now_ms + HOUR_MS)))
    world.ask(StartNow("t"))
    world.ask(Stop("t"))
    world.end("t", AttemptEnd.STOPPED)
    world.ask(StartNow("t"))
    assert world.run("t").status is RunStatus.RUNNING


def test_a_task_that_was_stopped_before_its_start_waits_again_when_it_is_retried() -> None:
    from actors.messages import Retry

    world = a_world()
    at_ms = world.now_ms + HOUR_MS
    world.ask(Submit("later", id="t", handler="work", not_before=moment(at_ms)))
    world.ask(Stop("t"))
    assert world.state.next_due_ms() is None
    world.ask(Retry("t"))
    assert world.where("t") is WorkState.SCHEDULED
    assert world.state.next_due_ms() == at_ms


def test_upstreams_come_before_the_start_and_a_manual_gate_after_it() -> None:
    world = a_world()
    later = moment(world.now_ms + HOUR_MS)
    world.ask(Submit("up", id="up", handler="work"))
    world.ask(Submit("t", id="t", handler="work", depends_on=["up"], mode="manual", not_before=later))
    assert world.where("t") is WorkState.WAITING
    world.succeed("up")
    assert world.where("t") is WorkState.SCHEDULED
    assert world.gates("t") == [ReasonKind.NOT_BEFORE, ReasonKind.MANUAL]
    world.wait(3600)
    assert world.where("t") is WorkState.HELD


def test_the_same_task_at_another_time_is_another_task() -> None:
    from actors.errors import IdConflict

    world = a_world()
    later = moment(world.now_ms + HOUR_MS)
    world.ask(Submit("t", id="t", handler="work", not_before=later))
    assert world.ask(Submit("t", id="t", handler="work", not_before=later)).existing
    with pytest.raises(IdConflict):
        world.ask(Submit("t", id="t", handler="work"))
