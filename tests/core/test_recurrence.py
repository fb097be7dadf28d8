"""Nominal times, against a search that looks at every minute and knows no cleverness."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import pairwise, product
from random import Random
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from actors.errors import InvalidMessage
from actors.recurrence import TIME_MAX_MS, Cron, Every, Rule, cron_of, zone_of

from .examples import examples

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_MS = 86_400_000

CHANGES = {
    "Europe/Berlin": [date(2026, 3, 29), date(2026, 10, 25)],
    "America/New_York": [date(2026, 3, 8), date(2026, 11, 1)],
    "Australia/Lord_Howe": [date(2026, 4, 5), date(2026, 10, 4)],  # half an hour
    "America/Santiago": [date(2026, 4, 5), date(2026, 9, 6)],  # at midnight, which is missing in September
    "Africa/Cairo": [date(2026, 4, 24), date(2026, 10, 30)],  # likewise
    "America/Havana": [date(2026, 3, 8), date(2026, 11, 1)],
    "UTC": [date(2026, 3, 29)],
}
FIXED = [
    *("30 2 * * *", "0 2 * * *", "15 2 * * *", "0,30 2 * * *", "45 1 * * *", "30 1 * * *", "0 3 * * *"),
    *("0 0 * * *", "30 0 * * *", "0 1,2,3 * * *", "10 0-4 * * *", "0 2 * * SUN"),
]
STARRED = [
    *("* * * * *", "*/15 * * * *", "0 * * * *", "30 * * * *", "5 */2 * * *", "0 */2 * * *", "*/20 2 * * *"),
    *("*/15 1-3 * * SUN", "*/10 * * 4 *"),
]


def ms(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


def at(t_ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=t_ms)


@cache
def searched(text: str, zone: str, begin: datetime, end: datetime) -> list[int]:
    """Every nominal time from begin to end, minute by minute, as the module's words say."""
    fields = CronSim(text, datetime(2000, 1, 1))

    def matches(local: datetime) -> bool:
        return (
            local.minute in fields.minutes
            and local.hour in fields.hours
            and local.month in fields.months
            and fields.match_day(local.date())
        )

    place = ZoneInfo(zone)
    if text.split()[0].startswith("*") or text.split()[1].startswith("*"):
        moments = (moment for moment in minutes(begin, end))
        return [ms(moment) for moment in moments if matches(moment.astimezone(place))]
    low, high = (moment.astimezone(place).replace(tzinfo=None) for moment in (begin, end))
    found = {
        shown_first(local, place)
        for local in minutes(low - timedelta(days=1), high + timedelta(days=1))
        if matches(local)
    }
    return sorted(t for t in found if ms(begin) <= t < ms(end))


def minutes(begin: datetime, end: datetime) -> Iterator[datetime]:
    while begin < end:
        yield begin
        begin += timedelta(minutes=1)


def shown_first(local: datetime, place: ZoneInfo) -> int:
    """The first instant at which a clock there shows this time, or if it never does the next one that it shows."""
    while local.replace(tzinfo=place).astimezone(UTC).astimezone(place).replace(tzinfo=None) != local:
        local += timedelta(minutes=1)
    return ms(local.replace(tzinfo=place, fold=0).astimezone(UTC))


def span(day: date) -> tuple[datetime, datetime]:
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(days=1, hours=12)
    return begin, begin + timedelta(days=4)


CASES = [(zone, day) for zone, days in CHANGES.items() for day in days]


@pytest.mark.parametrize("text", FIXED + STARRED)
@pytest.mark.parametrize(("zone", "day"), CASES)
def test_on_the_days_on_which_clocks_change_a_search_of_every_minute_finds_the_same(
    zone: str, day: date, text: str
) -> None:
    begin, end = span(day)
    expected = searched(text, zone, begin, end)
    rule = cron_of(text, zone)
    found, t = [], ms(begin) - 1
    while (following := rule.after(t)) is not None and following < ms(end):
        found.append(following)
        t = following
    assert found == expected
    assert all(earlier < later for earlier, later in pairwise(found))


@pytest.mark.parametrize(("zone", "day"), CASES)
def test_from_any_instant_the_next_and_the_last_are_those_of_the_search(zone: str, day: date) -> None:
    begin, end = span(day)
    chance = Random(f"{zone} {day}")
    for text in ("30 2 * * *", "45 1 * * *", "*/15 * * * *", "0 */2 * * *", "30 * * * *"):
        expected = searched(text, zone, begin, end)
        rule = cron_of(text, zone)
        for _ in range(100):
            t = ms(begin) + chance.randrange(3 * DAY_MS)
            assert rule.after(t) == expected[bisect_right(expected, t)]
            if t >= expected[0]:
                assert rule.latest(expected[0], t) == expected[bisect_right(expected, t) - 1]


@pytest.mark.parametrize(
    ("zone", "local"),
    list(
        product(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"], ["30 2", "0 2", "45 1", "15 2"])
    ),
)
def test_a_fixed_local_time_fires_exactly_once_on_each_date_of_two_years(zone: str, local: str) -> None:
    rule = cron_of(f"{local} * * *", zone)
    place = ZoneInfo(zone)
    t = ms(datetime(2026, 1, 1, tzinfo=place)) - 1
    dates = []
    for _ in range(730):
        following = rule.after(t)
        assert following is not None
        assert following > t
        t = following
        dates.append(at(t).astimezone(place).date())
    assert dates == [date(2026, 1, 1) + timedelta(days=n) for n in range(730)]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
def test_what_follows_real_time_is_as_even_on_the_days_on_which_clocks_change(zone: str) -> None:
    """Every quarter of an hour, and every 20 minutes of an interval, through a whole year."""
    rules: list[tuple[Rule, int]] = [
        (cron_of("*/15 * * * *", zone), 900_000),
        (Every(1_200_000, 7), 1_200_000),
    ]
    for rule, step_ms in rules:
        t = rule.after(ms(datetime(2026, 1, 1, tzinfo=UTC)))
        end = ms(datetime(2027, 1, 1, tzinfo=UTC))
        assert t is not None
        for day in CHANGES[zone]:  # the year by leaps, and the days of the changes step by step
            t = rule.latest(t, ms(span(day)[0]))
            for _ in range(4 * DAY_MS // step_ms):
                following = rule.after(t)
                assert following == t + step_ms
                t = following
        assert rule.count(t, rule.latest(t, end), 10**6)[0] == (end - t) // step_ms + 1


def test_a_text_with_two_times_in_one_gap_fires_once_for_both() -> None:
    rule = cron_of("0,30 2 * * *", "Europe/Berlin")
    gap = ms(datetime(2026, 3, 29, 1, 0, tzinfo=UTC))
    assert rule.after(gap - 1) == gap
    assert rule.after(gap) == ms(datetime(2026, 3, 30, 0, 0, tzinfo=UTC))


# --- what can fire at all ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["0 0 29 2 *", "0 0 29 2 MON", "0 0 L 2 *", "0 0 * 2 MON#5", "0 0 31 1-12 *"]
)
def test_what_comes_seldom_is_allowed(text: str) -> None:
    rule = cron_of(text, "UTC")
    t = rule.after(ms(datetime(2096, 3, 1, tzinfo=UTC)))  # 2100 is no leap year
    assert t is not None
    assert t < ms(datetime(2150, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    "text",
    [
        *("0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *", "", "60 * * * *", "," * 10_000, "* * * *"),
        *(
            "* * * * * *",
            "@daily",
            "5-1 * * * *",
            "*/0 * * * *",
            "a b c d e",
            "0 0 0 * *",
            "0 0 * 13 *",
            "0 0 * * 9",
        ),
        *("* * * * *\x00", "\N{ARABIC-INDIC DIGIT ONE} * * * *", "L/2 * * * *", "1//2 * * * *", "- * * * *"),
    ],
)
def test_what_can_never_fire_is_refused_and_quickly(text: str) -> None:
    with pytest.raises(InvalidMessage, match=r"^cron "):
        cron_of(text, "UTC")


@given(st.text("0123456789*,-/L#W SUNMOFEB", max_size=30))
@examples(300)
def test_any_text_is_taken_or_refused_in_words(text: str) -> None:
    try:
        rule = cron_of(text, "Europe/Berlin")
    except InvalidMessage:
        return
    t = rule.after(0)
    assert t is not None
    assert rule.after(t - 1) == t


@pytest.mark.parametrize(
    "name", ["", "Mars/Base", "../etc/localtime", "/etc/localtime", "Europe", "x" * 200, "UTC\x00"]
)
def test_a_zone_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(InvalidMessage, match=r"^zone "):
        zone_of(name)


def test_the_universal_zone_needs_no_database_of_zones() -> None:
    assert zone_of("UTC") is UTC


@pytest.mark.parametrize(
    ("text", "fixed", "steady"),
    [
        ("* * * * *", False, True),
        ("*/15 * * * *", False, True),
        ("5 * * * *", False, True),
        ("0 */2 * * *", False, True),
        ("*/15 9 * * *", False, False),
        ("* * * * MON", False, False),
        ("30 2 * * *", True, False),
        ("0 8-18 * * *", True, False),
    ],
)
def test_which_texts_belong_to_the_wall_and_which_are_as_good_as_an_interval(
    text: str, fixed: bool, steady: bool
) -> None:
    rule = cron_of(text, "Europe/Berlin")
    assert (rule.fixed, rule.steady) == (fixed, steady)


# --- far away, and many -------------------------------------------------------------------------------------------


def test_the_last_time_of_centuries_is_found_in_a_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    after = Cron.after

    def counted(rule: Cron, t_ms: int) -> int | None:
        nonlocal asked
        asked += 1
        return after(rule, t_ms)

    monkeypatch.setattr(Cron, "after", counted)
    now = ms(datetime(2200, 6, 1, 12, 0, 30, tzinfo=UTC))
    for text in ("* * * * *", "0 0 * * *", "* 9 * * *", "0 0 29 2 *"):
        found = cron_of(text, "Europe/Berlin").latest(0, now)
        assert now - 5 * 366 * DAY_MS < found <= now
    assert asked < 4 * 150


def test_counting_ends_at_its_limit_and_says_so() -> None:
    begin = ms(datetime(2026, 1, 1, tzinfo=UTC))
    rule = cron_of("* * * * *", "UTC")
    assert rule.count(begin, begin, 500) == (1, True)
    assert rule.count(begin, begin + 499 * 60_000, 500) == (500, True)
    assert rule.count(begin, begin + 500 * 60_000, 500) == (500, False)
    assert Every(1_000, 0).count(0, 10**12, 500) == (10**9 + 1, True)


def test_an_interval_is_reckoned_from_its_anchor_in_both_directions() -> None:
    rule = Every(1_000, 300)
    assert [rule.after(t) for t in (-1_701, -1_700, 299, 300, 1_299)] == [-1_700, -700, 300, 1_300, 1_300]
    assert [rule.latest(-10_000, t) for t in (-701, -700, 299, 300)] == [-1_700, -700, -700, 300]
    assert rule.latest(250, 299) == 250


@pytest.mark.parametrize(
    "rule", [cron_of("* * * * *", "Europe/Berlin"), cron_of("0 0 1 1 *", "UTC"), Every(1_000, 0)]
)
def test_past_the_end_of_the_calendar_nothing_comes(rule: Cron | Every) -> None:
    assert rule.after(TIME_MAX_MS - 1) is None or rule.after(TIME_MAX_MS - 1) < TIME_MAX_MS + 2 * DAY_MS  # type: ignore[operator]
    assert rule.after(TIME_MAX_MS + 366 * DAY_MS) is None
    assert rule.after(10**18) is None


@given(st.integers(0, 4_000_000_000_000), st.sampled_from(FIXED + STARRED), st.sampled_from(list(CHANGES)))
@examples(150)
def test_the_next_time_is_later_and_none_is_between(t: int, text: str, zone: str) -> None:
    rule = cron_of(text, zone)
    following = rule.after(t)
    assert following is not None
    assert following > t
    assert rule.after(following - 1) == following
    assert rule.after((t + following) // 2) == following
    assert rule.latest(t - 40 * DAY_MS, following) == following
