"""What cannot be carried out at all is refused where the message is built, in the sender's code, with words."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import attrs
import hypothesis.strategies as st
import pytest
from hypothesis import given

from actors import messages
from actors.errors import InvalidJson, InvalidMessage, InvalidName
from actors.messages import (
    DEPENDS_ON_MAX,
    NODES_MAX,
    TASKS_MAX,
    UNSET,
    Approve,
    Archive,
    Backoff,
    DefineGraph,
    Edit,
    Gate,
    Message,
    Next,
    Node,
    Pause,
    PauseSchedule,
    RemoveSchedule,
    Rerun,
    ResumeSchedule,
    Retry,
    RunNow,
    SendBack,
    SetBudget,
    SetLimits,
    SetSchedule,
    Start,
    StartNow,
    Stop,
    StopGoal,
    Submit,
    SubmitMany,
    Unarchive,
    Unpark,
    Unpause,
)
from storage.codec import JSON_BYTES_MAX, check_name, decode, encode
from storage.records import Mode

from .examples import examples
from .world import World

E_ACUTE = "\u00e9"
E_AND_ACUTE = "e\u0301"

# --- names (C50) --------------------------------------------------------------------------------------------------

GOOD_NAMES = [
    *(
        "a",
        "a:b",
        "b:c",
        "A",
        "0",
        "@",
        "@x",
        "a b",
        "a\u00a0b",
        E_ACUTE,
        "🚀",
        "日本語",
        "%_'\"--",
        "..",
        "a\\b",
    ),
    *("x" * 128, "🚀" * 128, "DROP TABLE tasks", "-", "null"),
]
BAD_NAMES: list[tuple[object, str]] = [
    ("", "must have 1 to 128 characters, not 0"),
    ("x" * 129, "must have 1 to 128 characters, not 129"),
    ("x" * 10_000, "must have 1 to 128 characters, not 10000"),
    ("a/b", 'must not contain "/"'),
    ("a ", "must not begin or end with whitespace"),
    (" a", "must not begin or end with whitespace"),
    ("\u00a0a", "must not begin or end with whitespace"),
    (E_AND_ACUTE, "must be in Unicode normal form C"),
    ("a\x00b", "must not contain control characters"),
    ("a\nb", "must not contain control characters"),
    ("a\tb", "must not contain control characters"),
    ("a\x7f", "must not contain control characters"),
    ("a\u200bb", "must not contain control characters"),
    ("a\u202eb", "must not contain control characters"),
    ("\ud800", "must not contain control characters"),
    ("\ufeffa", "must not contain control characters"),
    (None, "must be a string, not NoneType"),
    (7, "must be a string, not int"),
    (b"a", "must be a string, not bytes"),
    (["a"], "must be a string, not list"),
]

CARRIERS: dict[str, Callable[[Any], object]] = {
    "Submit.id": lambda name: Submit("t", id=name),
    "Submit.key": lambda name: Submit("t", key=name),
    "Submit.goal": lambda name: Submit("t", goal=name),
    "Submit.handler": lambda name: Submit("t", handler=name),
    "Submit.graph": lambda name: Submit("t", graph=name),
    "Submit.depends_on": lambda name: Submit("t", depends_on=[name]),
    "Node.name": lambda name: Node(name, "h"),
    "Node.handler": lambda name: Node("n", name),
    "Node.after": lambda name: Node("n", after=[name]),
    "Edit.task": lambda name: Edit(name, priority=1),
    "Edit.goal": lambda name: Edit("t", goal=name),
    "Edit.handler": lambda name: Edit("t", handler=name),
    "Edit.graph": lambda name: Edit("t", graph=name),
    "Edit.depends_on": lambda name: Edit("t", depends_on=[name]),
    "DefineGraph.name": lambda name: DefineGraph(name, []),
    "StopGoal.goal": StopGoal,
    "Start.task": Start,
    "StartNow.task": StartNow,
    "Stop.task": Stop,
    "Retry.task": Retry,
    "Rerun.task": Rerun,
    "Archive.task": Archive,
    "Unarchive.task": Unarchive,
    "SetSchedule.name": lambda name: SetSchedule(name, every=60, task=Submit("t")),
    "PauseSchedule.name": PauseSchedule,
    "ResumeSchedule.name": ResumeSchedule,
    "RemoveSchedule.name": RemoveSchedule,
    "RunNow.name": RunNow,
}
CAN_BE_NONE = {"Submit.id", "Submit.key", "Submit.goal", "Submit.handler", "Submit.graph", "Edit.goal"}


@pytest.mark.parametrize("carrier", CARRIERS)
def test_every_name_in_a_message_is_checked(carrier: str) -> None:
    build = CARRIERS[carrier]
    for name in GOOD_NAMES:
        build(name)
    for bad, text in BAD_NAMES:
        if bad is None and carrier in CAN_BE_NONE:
            continue
        with pytest.raises(InvalidName) as caught:
            build(bad)
        assert text in str(caught.value)


def test_names_that_look_alike_are_different_tasks() -> None:
    """C50: what is accepted is fully apart, by its bytes; wildcards match nothing else."""
    world = World(runs_max=0)
    names = ["a", "a:b", "A", "b", E_ACUTE, "e", "🚀", "%", "_", "%_'\"--", "x" * 128, "x" * 127]
    for name in names:
        world.ask(Submit("task", id=name, goal=name, key=name))
    for name in names:
        assert world.ask(StopGoal(name)).tasks == (name,)
        assert world.entry(name).task.id == name
        assert world.ask(Submit("task", id=name, goal=name, key=name)).existing
    assert world.stored("SELECT count(*) FROM tasks") == [(len(names),)]


@given(st.text(max_size=20))
@examples(100)
def test_a_name_that_is_accepted_stands_the_same_in_a_table(name: str) -> None:
    try:
        check_name(name, what="a name")
    except InvalidName:
        return
    world = World(runs_max=0)
    try:
        world.ask(Submit("task", id=name, goal=name))
    except InvalidMessage:
        assert name.startswith("@")  # the queue's own
        return
    assert world.stored("SELECT id, goal FROM tasks") == [(name, name)]


def test_ids_of_an_at_and_a_number_are_the_queues_own() -> None:
    for name in ("@1", "@007", "@99999999999"):
        with pytest.raises(InvalidMessage, match="the queue assigns ids of @ and a number"):
            Submit("t", id=name)
    Submit("t", id="@one")
    Stop("@1")


# --- JSON (C48) ---------------------------------------------------------------------------------------------------

CYCLE: list[Any] = []
CYCLE.append(CYCLE)
LOOP: dict[str, Any] = {}
LOOP["again"] = [LOOP]
DEEP: Any = None
for _ in range(201):
    DEEP = [DEEP]
LAUGHS: Any = "ha"
for _ in range(100):
    LAUGHS = [LAUGHS, LAUGHS]

BAD_JSON: dict[str, Any] = {
    "NaN": math.nan,
    "infinity": [math.inf],
    "minus infinity": {"a": -math.inf},
    "a lone surrogate": "a\ud800",
    "a lone surrogate in a key": {"\udfff": 1},
    "a set": {1, 2},
    "bytes": b"x",
    "an object": object(),
    "a number as a key": {1: 2},
    "nothing as a key": {None: 1},
    "a list in itself": CYCLE,
    "an object in itself": LOOP,
    "too deep": DEEP,
    "too large": "x" * JSON_BYTES_MAX,
    "too many digits": 10**5_000,
}
GOOD_JSON: list[Any] = [
    *(
        None,
        True,
        0,
        -1,
        2**70,
        0.1,
        "",
        "\x00",
        "é",
        "🚀",
        [],
        {},
        (1, 2),
        [[[]]],
        {"a": {"b": [1, "2", None]}},
    ),
    "x" * (JSON_BYTES_MAX - 2),
    *DEEP,
]
PAYLOADS: dict[str, Callable[[Any], object]] = {
    "Submit": lambda payload: Submit("t", payload=payload),
    "Edit": lambda payload: Edit("t", payload=payload),
    "Rerun": lambda payload: Rerun("t", payload=payload),
    "Node": lambda payload: Node("n", payload=payload),
}


@pytest.mark.parametrize("carrier", PAYLOADS)
@pytest.mark.parametrize("bad", BAD_JSON)
def test_what_is_not_json_is_refused_by_name(carrier: str, bad: str) -> None:
    with pytest.raises(InvalidJson, match=r"^payload"):
        PAYLOADS[carrier](BAD_JSON[bad])


def test_a_few_lists_that_hold_each_other_a_million_times_are_refused_before_they_are_written_out() -> None:
    with pytest.raises(InvalidJson, match="payload is not JSON: more than 1048576 items"):
        Submit("t", payload=LAUGHS)


@pytest.mark.parametrize("carrier", PAYLOADS)
def test_what_is_json_is_taken(carrier: str) -> None:
    for good in GOOD_JSON:
        PAYLOADS[carrier](good)


def test_a_payload_is_as_it_was_when_it_was_sent() -> None:
    payload = {"list": [1]}
    world = World(runs_max=0)
    message = Submit("task", payload=payload)
    payload["list"].append(2)
    world.ask(message)
    assert world.stored("SELECT payload FROM tasks") == [('{"list":[1]}',)]


def test_equal_values_are_equal_texts() -> None:
    assert encode({"b": 1, "a": [1.0, "é"]}) == encode({"a": (1.0, "é"), "b": 1}) == '{"a":[1.0,"é"],"b":1}'


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
@examples(100)
def test_a_value_comes_back_as_it_went(value: Any) -> None:
    assert decode(encode(value)) == value


# --- everything else ------------------------------------------------------------------------------------------------

A, B = Node("a"), Node("b", after=["a"])
m: Any = messages
"""Wrong types are what is tested."""
T = Submit("t")


def a_schedule(**fields: Any) -> object:
    return m.SetSchedule("s", task=T, **fields)


BAD_MESSAGES: dict[str, tuple[Callable[[], object], str]] = {
    "a blank title": (lambda: m.Submit("  "), "title must be a string that is not blank"),
    "no title": (lambda: m.Submit(""), "title must be a string that is not blank"),
    "a title that is a number": (lambda: m.Submit(7), "title must be a string that is not blank"),
    "a long title": (lambda: m.Submit("x" * 501), "title has 501 characters, more than the 500 allowed"),
    "a title with a line break": (lambda: m.Submit("a\nb"), "title must not contain control characters"),
    "a title with a surrogate": (lambda: m.Submit("\ud800"), "title must not contain control characters"),
    "a title with a C1 control": (lambda: m.Submit("a\x85b"), "title must not contain control characters"),
    "priority of words": (lambda: m.Submit("t", priority="high"), 'priority must be an integer or "P"'),
    "priority P-1": (lambda: m.Submit("t", priority="P-1"), 'priority must be an integer or "P"'),
    "priority P": (lambda: m.Submit("t", priority="P"), 'priority must be an integer or "P"'),
    "priority 1.0": (lambda: m.Submit("t", priority=1.0), "priority must be an integer"),
    "priority true": (lambda: m.Submit("t", priority=True), "priority must be an integer"),
    "priority none": (lambda: m.Submit("t", priority=None), "priority must be an integer"),
    "priority above": (lambda: m.Submit("t", priority=1_000_001), "must be from -1000000 to 1000000"),
    "priority P9999999": (lambda: m.Submit("t", priority="P9999999"), "must be from -1000000 to 1000000"),
    "priority below": (lambda: m.Edit("t", priority=-1_000_001), "must be from -1000000 to 1000000"),
    "priority in other digits": (
        lambda: m.Submit("t", priority="P٣"),
        'priority must be an integer or "P"',
    ),
    "mode steps": (lambda: m.Submit("t", mode="steps"), 'mode must be "auto", "manual" or "step"'),
    "mode none": (lambda: m.Submit("t", mode=None), 'mode must be "auto", "manual" or "step"'),
    "mode of Edit": (lambda: m.Edit("t", mode="AUTO"), 'mode must be "auto", "manual" or "step"'),
    "send_backs_max -1": (
        lambda: m.Submit("t", send_backs_max=-1),
        "send_backs_max must be from 0 to 1000, not -1",
    ),
    "send_backs_max of Node": (
        lambda: m.Node("n", send_backs_max=1001),
        "send_backs_max must be from 0 to 1000",
    ),
    "send_backs_max true": (
        lambda: m.Edit("t", send_backs_max=True),
        "send_backs_max must be an integer",
    ),
    "feedback blank": (lambda: m.SendBack("t", "n", " \n\t "), "feedback must not be blank"),
    "feedback empty": (lambda: m.SendBack("t", "n", ""), "feedback must not be blank"),
    "feedback none": (lambda: m.SendBack("t", "n", None), "feedback must be a string, not None"),
    "feedback long": (
        lambda: m.SendBack("t", "n", "x" * 10_001),
        "feedback has 10001 characters, more than the 10000",
    ),
    "feedback with NUL": (
        lambda: m.SendBack("t", "n", "a\0b"),
        "feedback must not contain control characters",
    ),
    "feedback with a surrogate": (
        lambda: m.SendBack("t", "n", "\ud800"),
        "feedback must not contain control characters or lone surrogates",
    ),
    "note of a number": (lambda: m.Approve("t", "g", 1), "note must be a string, not 1"),
    "note long": (lambda: m.Approve("t", "g", "x" * 10_001), "note has 10001 characters"),
    "a gate and a node of one name": (
        lambda: m.Submit("t", nodes=[A, m.Gate("a")]),
        "two nodes are named 'a'",
    ),
    "a gate after nothing known": (
        lambda: m.DefineGraph("g", [m.Gate("g", after=["n"])]),
        "node 'g' is after 'n', which is not a node of this graph",
    ),
    "tries_max 0": (lambda: m.Submit("t", tries_max=0), "tries_max must be from 1 to 1000"),
    "tries_max 1001": (lambda: m.Node("n", tries_max=1001), "tries_max must be from 1 to 1000"),
    "tries_max true": (lambda: m.Edit("t", tries_max=True), "tries_max must be an integer"),
    "tries_max 2.0": (lambda: m.Node("n", tries_max=2.0), "tries_max must be an integer"),
    "fail_fast 1": (lambda: m.Submit("t", fail_fast=1), "fail_fast must be true or false"),
    "fail_fast of Edit": (lambda: m.Edit("t", fail_fast="no"), "fail_fast must be true or false"),
    "depends_on of text": (lambda: m.Submit("t", depends_on="ab"), "depends_on must be a list of names"),
    "depends_on of a number": (lambda: m.Submit("t", depends_on=7), "depends_on must be a list of names"),
    "depends_on twice": (lambda: m.Submit("t", depends_on=["a", "b", "a"]), "depends_on names 'a' twice"),
    "depends_on itself": (lambda: m.Submit("t", id="a", depends_on=["a"]), "task 'a' depends on itself"),
    "too many upstreams": (
        lambda: m.Submit("t", depends_on=map(str, range(DEPENDS_ON_MAX + 1))),
        "depends_on has 10001 names, more than the 10000 allowed",
    ),
    "two shapes": (
        lambda: m.Submit("t", handler="a", graph="g"),
        "give at most one of handler, nodes and graph",
    ),
    "three shapes": (
        lambda: m.Submit("t", handler="a", graph="g", nodes=[A]),
        "give at most one of handler, nodes",
    ),
    "two shapes in Edit": (
        lambda: m.Edit("t", nodes=[A], graph="g"),
        "give at most one of handler, nodes and graph",
    ),
    "nodes of text": (lambda: m.Submit("t", nodes="ab"), "nodes must be a list of Node"),
    "nodes of names": (lambda: m.Submit("t", nodes=["a"]), "nodes must be Node"),
    "nodes of a number": (lambda: m.DefineGraph("g", 7), "nodes must be a list of Node"),
    "nodes of Edit none": (lambda: m.Edit("t", nodes=None), "nodes must be a list of Node"),
    "nodes of one name": (lambda: m.Submit("t", nodes=[A, A]), "two nodes are named 'a'"),
    "a node after nothing": (lambda: m.Submit("t", nodes=[B]), "is after 'a', which is not a node"),
    "a node after itself": (
        lambda: m.Submit("t", nodes=[m.Node("a", after=["a"])]),
        "nodes form a cycle among: a",
    ),
    "nodes in a circle": (
        lambda: m.Submit("t", nodes=[m.Node("a", after=["b"]), B, Node("c")]),
        "nodes form a cycle among: a, b",
    ),
    "a node after another twice": (lambda: m.Node("n", after=["a", "a"]), "after names 'a' twice"),
    "a long circle of nodes": (
        lambda: m.DefineGraph("g", [m.Node(f"{n}", after=[f"{(n + 1) % 1000}"]) for n in range(1000)]),
        "nodes form a cycle among",
    ),
    "too many nodes": (
        lambda: m.DefineGraph("g", [A] * (NODES_MAX + 1)),
        "10001 nodes are more than the 10000 of one run",
    ),
    "timeout 0": (lambda: m.Node("n", timeout_s=0), "timeout_s must be above 0 s and at most ten years"),
    "timeout below 0": (lambda: m.Node("n", timeout_s=-1), "timeout_s must be above 0 s"),
    "timeout nan": (lambda: m.Node("n", timeout_s=math.nan), "timeout_s must be above 0 s"),
    "timeout for ever": (lambda: m.Node("n", timeout_s=math.inf), "at most ten years"),
    "timeout true": (lambda: m.Node("n", timeout_s=True), "timeout_s must be a number of seconds"),
    "timeout of text": (lambda: m.Node("n", timeout_s="5"), "timeout_s must be a number of seconds"),
    "stall 0": (lambda: m.Node("n", stall_s=0), "stall_s must be above 0 s"),
    "stall of text": (lambda: m.Node("n", stall_s="5"), "stall_s must be a number of seconds"),
    "retry of a number": (lambda: m.Node("n", retry=3), "retry must be a Backoff"),
    "retry none": (lambda: m.Node("n", retry=None), "retry must be a Backoff"),
    "base_s below 0": (lambda: m.Backoff(base_s=-1), "base_s must be at least 0 s"),
    "base_s nan": (lambda: m.Backoff(base_s=math.nan), "base_s must be at least 0 s"),
    "max_s for ever": (lambda: m.Backoff(max_s=math.inf), "at most ten years"),
    "factor below 1": (lambda: m.Backoff(factor=0.9), "factor must be from 1 to 1000"),
    "factor nan": (lambda: m.Backoff(factor=math.nan), "factor must be from 1 to 1000"),
    "factor above": (lambda: m.Backoff(factor=1001), "factor must be from 1 to 1000"),
    "factor true": (lambda: m.Backoff(factor=True), "factor must be from 1 to 1000"),
    "an empty Edit": (lambda: m.Edit("t"), "Edit changes nothing: give at least one field"),
    "a title taken away": (lambda: m.Edit("t", title=None), "title must be a string that is not blank"),
    "an empty SubmitMany": (lambda: m.SubmitMany([]), "SubmitMany takes 1 to 10000 tasks, not 0"),
    "a large SubmitMany": (
        lambda: m.SubmitMany([m.Submit("t")] * (TASKS_MAX + 1)),
        "SubmitMany takes 1 to 10000 tasks, not 10001",
    ),
    "SubmitMany of one": (lambda: m.SubmitMany(m.Submit("t")), "tasks must be a list of Submit"),
    "SubmitMany of names": (lambda: m.SubmitMany(["t"]), "tasks must be Submit"),
    "SubmitMany of one id": (lambda: m.SubmitMany([m.Submit("t", id="a")] * 2), "two tasks have the id 'a'"),
    "an empty SetLimits": (lambda: m.SetLimits(), "SetLimits changes nothing: give runs_max or weight"),
    "runs_max none": (lambda: m.SetLimits(runs_max=None), "runs_max must be an integer"),
    "weight 0": (lambda: m.SetLimits(weight=0), "weight must be from 1 to "),
    "runs_max below 0": (lambda: m.SetLimits(runs_max=-1), "runs_max must be from 0 to 1000000"),
    "runs_max above": (lambda: m.SetLimits(runs_max=1_000_001), "runs_max must be from 0 to 1000000"),
    "runs_max true": (lambda: m.SetLimits(runs_max=True), "runs_max must be an integer"),
    "runs_max 1.5": (lambda: m.SetLimits(runs_max=1.5), "runs_max must be an integer"),
    "not_before without a zone": (
        lambda: m.Submit("t", not_before=datetime(2026, 1, 1, 9)),
        "not_before 2026-01-01T09:00:00 has no time zone, so it is ambiguous: add one",
    ),
    "not_before without an offset": (
        lambda: m.Submit("t", not_before="2026-01-01T09:00:00"),
        "not_before 2026-01-01T09:00:00 has no time zone, so it is ambiguous: add one",
    ),
    "not_before of Edit without a zone": (
        lambda: m.Edit("t", not_before=datetime(2026, 1, 1)),
        "has no time zone",
    ),
    "not_before of words": (
        lambda: m.Submit("t", not_before="tomorrow"),
        "must be a date and time in ISO 8601, not 'tomorrow'",
    ),
    "not_before of a number": (lambda: m.Submit("t", not_before=5), "must be a datetime with a time zone"),
    "not_before of a date": (
        lambda: m.Submit("t", not_before=date(2026, 1, 1)),
        "must be a datetime with a time zone",
    ),
    "not_before of another age": (
        lambda: m.Submit("t", not_before=datetime.max.replace(tzinfo=timezone(-timedelta(hours=5)))),
        "not_before must be from 1970 to 9998",
    ),
    "not_before before there was time": (
        lambda: m.Submit("t", not_before=datetime(1969, 12, 31, tzinfo=UTC)),
        "not_before must be from 1970 to 9998",
    ),
    "neither cron nor every": (lambda: m.SetSchedule("s", task=T), "give one of cron and every"),
    "cron and every": (lambda: a_schedule(cron="* * * * *", every=60), "give one of cron and every"),
    "no task": (lambda: m.SetSchedule("s", every=60, task=None), "a schedule's task must be a Submit"),
    "a task with an id": (
        lambda: m.SetSchedule("s", every=60, task=m.Submit("t", id="a")),
        "a schedule's task must not have id: each fire makes a task of its own",
    ),
    "a task with a key": (
        lambda: m.SetSchedule("s", every=60, task=m.Submit("t", key="a")),
        "a schedule's task must not have key",
    ),
    "a task with a time": (
        lambda: m.SetSchedule("s", every=60, task=m.Submit("t", not_before="2026-01-01T00:00Z")),
        "a schedule's task must not have not_before",
    ),
    "every of less than a second": (lambda: a_schedule(every=0.999), "every must be at least 1 s"),
    "every none": (lambda: a_schedule(every=0), "every must be above 0 s"),
    "every of ages": (lambda: a_schedule(every=10**9), "at most ten years"),
    "every true": (lambda: a_schedule(every=True), "every must be a number of seconds"),
    "every of words": (lambda: a_schedule(every="1h"), "every must be a number of seconds"),
    "every in a zone": (lambda: a_schedule(every=60, zone="UTC"), "zone belongs to cron"),
    "an unknown zone": (
        lambda: a_schedule(cron="* * * * *", zone="Mars/Base"),
        "zone 'Mars/Base' is unknown",
    ),
    "a zone that is a path": (
        lambda: a_schedule(cron="* * * * *", zone="../UTC"),
        "zone '../UTC' is unknown",
    ),
    "a zone that is a region": (
        lambda: a_schedule(cron="* * * * *", zone="Europe"),
        "zone 'Europe' is unknown",
    ),
    "a zone that is empty": (lambda: a_schedule(cron="* * * * *", zone=""), "zone '' is unknown"),
    "a zone of a number": (lambda: a_schedule(cron="* * * * *", zone=1), "zone must be a string, not 1"),
    "cron of a number": (lambda: a_schedule(cron=5), "cron must be a string, not 5"),
    "cron of nothing": (lambda: a_schedule(cron=""), "cron '' must have five fields"),
    "cron with seconds": (lambda: a_schedule(cron="0 * * * * *"), "must have five fields"),
    "cron by name": (lambda: a_schedule(cron="@daily"), "must have five fields"),
    "the 60th minute": (lambda: a_schedule(cron="60 * * * *"), "is not valid"),
    "a step of nothing": (lambda: a_schedule(cron="*/0 * * * *"), "is not valid"),
    "31 February": (lambda: a_schedule(cron="0 0 31 2 *"), "no date ever fits it"),
    "30 February": (lambda: a_schedule(cron="0 0 30 2 *"), "no date ever fits it"),
    "10 kB of commas": (lambda: a_schedule(cron="," * 10_000), "more than the 200 allowed"),
    "overlap of words": (lambda: a_schedule(every=60, overlap="wait"), 'overlap must be "skip" or "queue"'),
    "misfire of words": (lambda: a_schedule(every=60, misfire="all"), 'misfire must be "latest" or "skip"'),
    "jitter below 0": (lambda: a_schedule(every=60, jitter_s=-1), "jitter_s must be at least 0 s"),
    "jitter of two days": (lambda: a_schedule(every=60, jitter_s=172_800), "jitter_s must be at most a day"),
}


@pytest.mark.parametrize("what", BAD_MESSAGES)
def test_what_cannot_be_carried_out_is_refused_in_words(what: str) -> None:
    build, text = BAD_MESSAGES[what]
    with pytest.raises(InvalidMessage) as caught:
        build()
    assert text in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_the_edges_themselves_are_allowed() -> None:
    Submit("x" * 500, priority=1_000_000, tries_max=1_000)
    Submit("é 🚀 \u00a0", priority=-1_000_000, tries_max=1)
    SetLimits(runs_max=0)
    SetLimits(runs_max=1_000_000)
    Node("n", timeout_s=0.001, tries_max=1_000, stall_s=None)
    Node("n", timeout_s=10 * 365 * 86_400)
    Backoff(base_s=0, factor=1, max_s=0)
    DefineGraph("g", [])
    DefineGraph("g", [Node(str(n), "h", after=[str(n - 1)] if n else []) for n in range(NODES_MAX)])
    Submit("t", depends_on=map(str, range(DEPENDS_ON_MAX)))
    a_schedule(every=1)
    a_schedule(every=10 * 365 * 86_400, jitter_s=86_400)
    a_schedule(cron="0 0 29 2 *", zone="Australia/Lord_Howe")
    a_schedule(cron=f"{','.join(map(str, range(60)))} * * * *")


def test_a_moment_is_taken_however_it_is_written_and_never_comes_early() -> None:
    berlin = datetime(2026, 7, 1, 9, 0, tzinfo=ZoneInfo("Europe/Berlin"))
    utc = datetime(2026, 7, 1, 7, 0, tzinfo=UTC)
    made = [Submit("t", not_before=when) for when in (berlin, utc, "2026-07-01T09:00:00+02:00")]
    assert [message.not_before for message in made] == [utc] * 3
    assert {message.not_before_ms for message in made} == {1_782_889_200_000}
    assert Submit("t", not_before=utc.replace(microsecond=1)).not_before_ms == 1_782_889_200_001
    assert Edit("t", not_before=None).changes == {"not_before"}
    assert Edit("t", not_before=berlin).not_before == utc


def test_an_interval_is_seconds_however_it_is_written() -> None:
    made = [SetSchedule("s", every=every, task=T) for every in (90, 90.0, timedelta(minutes=1.5))]
    assert [(message.every, message.every_ms) for message in made] == [(90.0, 90_000)] * 3


def test_a_priority_is_a_number_however_it_is_written() -> None:
    assert [Submit("t", priority=p).priority for p in (7, "7", "P7", "p7", "P007")] == [7] * 5
    assert Edit("t", priority="P7").priority == 7


def test_values_are_taken_in_the_shape_in_which_they_are_kept() -> None:
    message = Submit("t", depends_on=["b", "a"], mode="manual", nodes=[A, B])
    assert message.depends_on == ("b", "a")
    assert message.mode is Mode.MANUAL
    assert message.nodes == (A, B)
    assert Submit("t", mode="step", nodes=[A, Gate("g", after=["a"])]).nodes == (A, Gate("g", after=("a",)))
    assert SendBack("t", "n", " keep\tas\r\nit is ").feedback == " keep\tas\r\nit is "
    assert Approve("t", "g").note is None
    assert Approve("t", "g", "").note == ""
    assert Submit("t", mode=Mode.AUTO).mode is Mode.AUTO
    assert Node("n").handler == "n"
    assert Node("n", timeout_s=5).timeout_s == 5.0


def test_edit_knows_what_it_changes_and_when_it_counts() -> None:
    edit = Edit("t", priority=1, goal=None, payload=None)
    assert edit.changes == {"priority", "goal", "payload"}
    assert not edit.at_once
    assert Edit("t", priority=1, tries_max=None).at_once
    assert edit.title is UNSET
    assert repr(UNSET) == "UNSET"


def test_a_goal_and_a_cap_can_be_taken_away() -> None:
    world = World(runs_max=0)
    world.ask(Submit("task", id="t", goal="g", tries_max=7, send_backs_max=7, budget=7, payload=1))
    world.ask(Edit("t", goal=None, tries_max=None, send_backs_max=None, budget=None, payload=None))
    columns = "goal, tries_max, send_backs_max, budget, payload"
    assert world.stored(f"SELECT {columns} FROM tasks") == [(None, None, None, None, None)]


SAMPLES: list[Message[Any]] = [
    Submit("t"),
    SubmitMany([Submit("t")]),
    *(kind("t") for kind in (Start, StartNow, Stop, Next, Retry, Rerun, Archive, Unarchive)),
    Approve("t", "g", "note"),
    SendBack("t", "n", "feedback"),
    Edit("t", priority=1),
    DefineGraph("g", [A]),
    Pause(),
    Unpause(),
    SetLimits(runs_max=1),
    SetBudget(1),
    StopGoal("g"),
    Unpark(),
    SetSchedule("s", every=60, task=Submit("t")),
    *(kind("s") for kind in (PauseSchedule, ResumeSchedule, RemoveSchedule, RunNow)),
]


@pytest.mark.parametrize("message", SAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_is_a_frozen_value(message: Message[Any]) -> None:
    value: Any = message
    assert message == attrs.evolve(value)
    for field in attrs.fields(type(value)):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(message, field.name, None)


def test_control_messages_are_those_that_must_get_through() -> None:
    control = {type(message) for message in SAMPLES if message.control}
    assert control == {Stop, StopGoal, Pause, Unpause, SetLimits, Unpark}
