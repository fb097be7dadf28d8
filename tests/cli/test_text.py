"""Every reason and every kind of event has a sentence, and nothing from outside reaches a terminal as it came."""

from __future__ import annotations

import io
import json
import re
import time

import pytest

from actors.cli.events import SENTENCES, event_json, event_line, event_sentence
from actors.cli.output import Output
from actors.events import KINDS, Event
from actors.messages.views import Reason, ReasonKind
from actors.sentences import (
    REASONS,
    clock,
    describe_reason,
    duration,
    moment,
    plain,
    reason_sentence,
    relative,
    shortened,
)

NOW_MS = 1_700_000_000_000
EVIL = "a\x1b[31m\r\n\x00\u202e\u2028\x9b2J\ud800é 漢\u3000字"
TAMED = "a\\x1b[31m\\r\\n\\x00\\u202e\\u2028\\x9b2J\\ud800é 漢\u3000字"
UNSEEN = ("\x1b", "\r", "\n", "\x00", "\u202e", "\u2028", "\x9b", "\ud800")


def an_event(kind: str, **fields: object) -> Event:
    data = dict.fromkeys(KINDS[kind].fields, EVIL)
    whole = {"count": 12, "ids": [EVIL, "b"], "depends_on": [EVIL], "not_before_ms": NOW_MS + 2_000}
    data |= {key: value for key, value in whole.items() if key in data}  # type: ignore[misc]
    event = Event(7, EVIL, 1, NOW_MS, kind, task=EVIL, run=1, node=EVIL, attempt=2, reason=EVIL, data=data)
    return event if not fields else Event(**{**event_json(event), **fields})


# --- what came from outside -------------------------------------------------------------------------------------


def test_everything_unseen_is_written_as_an_escape_and_the_rest_stays() -> None:
    assert plain(EVIL) == TAMED
    assert plain("plain text, é, 漢字, 🙂") == "plain text, é, 漢字, 🙂"


def test_lines_become_one_and_a_long_text_loses_its_middle() -> None:
    assert shortened("one\ntwo\n") == "one | two"
    assert shortened("a" * 50 + "b" * 50, 10) == "aaaaa … bbbbb"


def test_whatever_is_printed_is_one_visible_line_and_json_keeps_its_meaning() -> None:
    """The command line prints through `Output` alone, so nothing that it shows has to be made safe by its source."""
    stream = io.StringIO()
    Output(stream).line(EVIL)
    Output(stream).json({"text": EVIL})
    line, as_json = stream.getvalue().removesuffix("\n").split("\n")
    assert line == TAMED
    assert not [char for char in UNSEEN if char in as_json]
    assert json.loads(as_json) == {"text": EVIL}
    assert "é 漢" in as_json


# --- reasons ------------------------------------------------------------------------------------------------------


def test_every_kind_of_reason_has_a_sentence_and_there_is_none_without_a_kind() -> None:
    assert set(REASONS) == set(ReasonKind)


@pytest.mark.parametrize("kind", ReasonKind)
@pytest.mark.parametrize("numbers", [{}, {"tries": 3, "runs_max": 2, "active": 2}])
def test_a_reason_is_told_in_one_safe_line_with_all_fields_and_with_none(
    kind: ReasonKind, numbers: dict[str, int]
) -> None:
    full = Reason(kind, tasks=(EVIL, "b"), count=12, nodes=(EVIL,), numbers=numbers, at_ms=NOW_MS, text=EVIL)
    for reason in (full, Reason(kind, numbers=numbers)):
        said = reason_sentence(reason, NOW_MS)
        assert said.strip()
        assert not [char for char in UNSEEN if char in said]


@pytest.mark.parametrize("kind", ReasonKind)
def test_every_reason_is_a_sentence_with_a_subject_a_verb_and_no_end(kind: ReasonKind) -> None:
    full = Reason(
        kind, tasks=("a", "b"), count=12, nodes=("n",), numbers={"runs_max": 2}, at_ms=NOW_MS, text="why"
    )
    for reason in (full, Reason(kind)):
        said = describe_reason(reason, now_ms=NOW_MS)
        assert said.split()[0] == "it"
        assert re.fullmatch(VERBS, said.split()[1].rstrip(":")), said
        assert said == said.strip()
        assert not said.endswith((".", ":", ","))
        assert "  " not in said
        assert describe_reason(reason, subject="acme/x", now_ms=NOW_MS) == f"acme/x{said.removeprefix('it')}"


VERBS = "was|is|has|waits|runs|comes|depends|executes|tries|completed|failed|goes|needs"


def test_a_reason_names_tasks_as_the_command_line_does_if_it_is_told_the_company() -> None:
    reason = Reason(ReasonKind.UPSTREAM_FAILED, tasks=("a", "b"), count=12)
    assert describe_reason(reason, company="acme") == "it depends on acme/a, acme/b and 10 more, which failed"
    holders = Reason(ReasonKind.EXECUTION_SLOT, nodes=("n",), tasks=("other/a/1/n/1",), count=1)
    assert describe_reason(holders, company="acme").endswith("all held by other/a/1/n/1")


def test_a_reason_tells_its_time_as_seen_from_the_present_if_no_other_is_given() -> None:
    now_ms = time.time_ns() // 1_000_000
    said = describe_reason(Reason(ReasonKind.MANUAL, at_ms=now_ms - 180_000))
    assert re.fullmatch(r"it waits for a person to start it since .*\(3 min( \d s)? ago\)", said)


SAID = [
    (Reason(ReasonKind.UPSTREAM_UNFINISHED, tasks=("a", "b"), count=12), "waits for a, b and 10 more"),
    (Reason(ReasonKind.UPSTREAM_FAILED, tasks=("a",), count=1), "depends on a, which failed"),
    (
        Reason(
            ReasonKind.FAILED,
            nodes=("n",),
            count=1,
            numbers={"tries": 3},
            at_ms=NOW_MS - 4_000,
            text="exit 1",
        ),
        f"failed in n after 3 tries at {clock(NOW_MS - 4_000)[11:]} (4.0 s ago): exit 1",
    ),
    (Reason(ReasonKind.DEPENDENCY_CYCLE, tasks=("a", "b", "a"), count=2), "waits for itself: a → b → a"),
    (Reason(ReasonKind.TASKS_AHEAD, tasks=("a",), count=1), "comes after a"),
    (Reason(ReasonKind.TASKS_AHEAD, numbers={"active": 0, "runs_max": 1}), "is the next to start"),
    (
        Reason(ReasonKind.RUN_SLOTS, tasks=("a", "b"), count=2, numbers={"active": 2, "runs_max": 2}),
        "waits for a run slot: the company's 2 are taken by a, b",
    ),
    (
        Reason(ReasonKind.RUN_SLOTS, tasks=("a",), count=1, numbers={"active": 1, "runs_max": 1}),
        "runs after a",
    ),
    (
        Reason(ReasonKind.RUN_SLOTS, numbers={"runs_max": 0}),
        "waits: the company's runs_max is 0, so nothing starts",
    ),
    (
        Reason(ReasonKind.BACKING_OFF, nodes=("n",), count=1, at_ms=NOW_MS + 2_500, text="exit 1"),
        f"tries n again at {clock(NOW_MS + 2_500)[11:]} (in 2.5 s): exit 1",
    ),
    (
        Reason(ReasonKind.EXECUTION_SLOT, nodes=("n",), count=1, tasks=("acme/a/1/n/1",)),
        "waits for an execution slot for n, all held by acme/a/1/n/1",
    ),
    (Reason(ReasonKind.MANUAL), "waits for a person to start it"),
    (
        Reason(ReasonKind.NOT_BEFORE, at_ms=NOW_MS + 90_000),
        f"is scheduled: not before {moment(NOW_MS + 90_000, NOW_MS)}",
    ),
]


@pytest.mark.parametrize(("reason", "expected"), SAID)
def test_a_reason_says_the_ids_numbers_and_times_concerned(reason: Reason, expected: str) -> None:
    assert reason_sentence(reason, NOW_MS) == expected


# --- events -------------------------------------------------------------------------------------------------------


def test_every_kind_of_event_has_a_sentence_and_there_is_none_without_a_kind() -> None:
    assert set(SENTENCES) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_an_event_is_told_in_one_safe_line_with_all_fields_and_with_none(kind: str) -> None:
    for event in (an_event(kind), Event(1, None, None, NOW_MS, kind)):
        stream = io.StringIO()
        Output(stream).line(event_line(event))
        said = stream.getvalue().removesuffix("\n")
        assert not [char for char in UNSEEN if char in said]


def test_an_event_of_a_newer_version_is_told_by_its_kind() -> None:
    assert event_sentence(Event(1, "acme", 1, NOW_MS, "task.sold", task="a")) == "acme/a: task.sold"


TOLD = [
    (
        an_event(
            "attempt.failed", company="acme", task="a", node="n", reason="exit status 3", after="pending"
        ),
        "acme/a: attempt 2 of n failed, will be tried again in 2.0 s: exit status 3",
    ),
    (
        an_event(
            "attempt.failed",
            company="acme",
            task="a",
            node="n",
            reason="boom",
            after="failed",
            data={"tries": 3},
        ),
        "acme/a: attempt 2 of n failed, no tries left: boom",
    ),
    (
        an_event(
            "tasks.blocked",
            company="acme",
            task=None,
            data={"cause": "a", "count": 7, "ids": ["b", "c", "d", "e", "f", "g", "h"]},
        ),
        "acme: 7 tasks are blocked by a: b, c, d, e, f and 2 more",
    ),
    (
        an_event("attempt.lost", company="acme", task="a", node="n", after="pending"),
        "acme/a: attempt 2 of n was lost when its process died, and runs again",
    ),
    (Event(1, None, None, NOW_MS, "process.started", data={"pid": 12}), "process 12 opened the database"),
]


@pytest.mark.parametrize(("event", "expected"), TOLD)
def test_an_event_says_whom_it_is_about_and_what_comes_next(event: Event, expected: str) -> None:
    assert event_sentence(event) == expected


def test_an_event_as_json_has_every_field_and_comes_back_equal() -> None:
    event = Event(3, "acme", 2, NOW_MS, "task.started", task="a", run=1, data={"x": [1, {"y": None}]})
    assert Event(**json.loads(json.dumps(event_json(event)))) == event


# --- times --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ms", "expected"),
    [
        (-5, "0.0 s"),
        (1_234, "1.2 s"),
        (59_400, "59 s"),
        (60_000, "1 min"),
        (61_000, "1 min 1 s"),
        (3_600_000, "1 h"),
        (5_460_000, "1 h 31 min"),
        (86_400_000 * 3 + 7_200_000, "3 d 2 h"),
    ],
)
def test_a_duration_is_told_in_its_two_largest_units(ms: int, expected: str) -> None:
    assert duration(ms) == expected


def test_a_moment_is_told_as_seen_from_now_and_by_the_clock() -> None:
    assert relative(NOW_MS + 90_000, NOW_MS) == "in 1 min 30 s"
    assert relative(NOW_MS - 90_000, NOW_MS) == "1 min 30 s ago"
    assert moment(NOW_MS, NOW_MS) == f"{clock(NOW_MS)[11:]} (0.0 s ago)"
    yesterday_ms = NOW_MS - 86_400_000
    assert moment(yesterday_ms, NOW_MS) == f"{clock(yesterday_ms)} (1 d ago)"
    assert clock(10**24) == f"{10**24} ms"
