"""Messages and answers as text: every one there is, both ways, and nothing else."""

from __future__ import annotations

import inspect
import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import attrs
import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy

import actors.messages
from actors import (
    UNSET,
    Edit,
    InvalidJson,
    InvalidMessage,
    InvalidName,
    Message,
    Moved,
    MoveRefused,
    Node,
    Refused,
    Rerun,
    RunStatus,
    SetLimits,
    Start,
    Stop,
    Submit,
    SubmitMany,
    Submitted,
    TaskUnknown,
    TurnkeeperError,
    wire,
)
from actors.messages import Unset
from actors.wire import (
    CannotCarry,
    check_kind,
    decode_answer,
    decode_message,
    encode_error,
    encode_message,
    encode_reply,
    error_kinds,
    message_kinds,
    reply_type,
)
from storage.contract.inbox import MESSAGE_CHARS_MAX
from tests.core.examples import examples

KINDS = sorted(message_kinds())

# --- values of any type that a message can have ---------------------------------------------------------------------

WORDS = st.sampled_from(
    # among them something for every check that a message makes of its texts
    [
        "a",
        "b",
        "Weekly report",
        "ünïcode 漢字 🙂",
        "0 9 * * *",
        "Europe/Berlin",
        "skip",
        "latest",
        "queue",
        "because",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=10,
)


ZONES = st.sampled_from([UTC, timezone(timedelta(hours=-5, minutes=-30))])


def values_of(hint: Any) -> SearchStrategy[Any]:
    """Values of a type, as a sender might give them; some of them no message takes."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return JSON
    if hint is type(None):
        return st.none()
    if hint is Unset:
        return st.just(UNSET)
    if hint is bool:
        return st.booleans()
    if hint is int:
        return st.integers(0, 9)
    if hint is float:
        return st.integers(1, 9) | st.floats(1, 9)
    if hint is str:
        return WORDS
    if hint is datetime:
        return st.datetimes(datetime(1970, 1, 2), datetime(9998, 1, 1), timezones=ZONES)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    if isinstance(hint, type) and attrs.has(hint):
        return built(hint)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, type(int | str)):
        return st.one_of([values_of(one) for one in arguments])
    if origin is tuple:
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    assert origin is not None, f"a type that this test has no values for: {hint}"
    if issubclass(origin, dict) or "Mapping" in str(origin):
        return st.dictionaries(WORDS, values_of(arguments[1]), max_size=3)
    return st.lists(values_of(arguments[0]), max_size=3).map(tuple)


def built(kind: type) -> SearchStrategy[Any]:
    """Objects of a class, with some of its fields given. What the class refuses is left out."""
    hints = get_type_hints(kind)
    fields = [field for field in attrs.fields(kind) if field.init]
    required = {
        field.alias: values_of(hints[field.name]) for field in fields if field.default is attrs.NOTHING
    }
    optional = {
        field.alias: values_of(hints[field.name]) for field in fields if field.default is not attrs.NOTHING
    }

    def build(arguments: dict[str, Any]) -> Any:
        try:
            return kind(**arguments)
        except (InvalidMessage, InvalidName, InvalidJson):
            return None

    made = st.fixed_dictionaries(required, optional=optional).map(build)
    return made.filter(lambda one: one is not None)


# --- messages -------------------------------------------------------------------------------------------------------


def test_every_message_of_ours_can_be_carried_and_so_can_its_reply() -> None:
    ours = {
        name
        for name, value in vars(actors.messages).items()
        if isinstance(value, type) and issubclass(value, Message) and value is not Message
    }
    assert ours <= set(KINDS)
    for kind in message_kinds().values():
        check_kind(kind)


@pytest.mark.parametrize("name", KINDS)
def test_a_message_comes_back_as_it_was(name: str) -> None:
    @settings(examples(60), suppress_health_check=list(HealthCheck))
    @given(built(message_kinds()[name]))
    def holds(message: Message[Any]) -> None:
        text = encode_message(message)
        again = decode_message(text)
        assert again == message
        assert type(again) is type(message)
        assert encode_message(again) == text
        assert json.loads(text)["v"] == 1

    holds()


@pytest.mark.parametrize("name", KINDS)
def test_a_reply_comes_back_as_it_was(name: str) -> None:
    kind = message_kinds()[name]

    @settings(examples(30))
    @given(values_of(reply_type(kind)))
    def holds(reply: object) -> None:
        assert decode_answer(kind, encode_reply(kind, reply)) == reply

    holds()


def test_what_is_not_given_is_told_from_what_is_nothing() -> None:
    bare, given = (json.loads(encode_message(one)) for one in (Rerun("a"), Rerun("a", payload=None)))
    assert "payload" not in bare["message"]
    assert given["message"]["payload"] is None
    assert decode_message(encode_message(Edit("a", goal=None))) == Edit("a", goal=None)
    assert decode_message(encode_message(Edit("a", title="b"))) == Edit("a", title="b")


def test_fields_with_a_default_may_be_left_out_by_who_writes_by_hand() -> None:
    text = '{"v": 1, "message": {"$": "Submit", "title": "t", "nodes": [{"$": "Node", "name": "n"}]}}'
    assert decode_message(text) == Submit("t", nodes=[Node("n")])


def message(**fields: Any) -> str:
    return json.dumps({"v": 1, "message": fields})


A_NODE = {"$": "Node", "name": "a"}
NOT_MESSAGES = [
    ("", "not JSON"),
    ("{", "not JSON"),
    ("nul", "not JSON"),
    ("[" * 100_000, "not JSON"),
    ("null", "an object is needed"),
    ("[]", "an object is needed"),
    ("{}", "version None is not known here"),
    ('{"v": 2, "message": {"$": "Pause"}}', "version 2 is not known here"),
    ('{"v": true, "message": {"$": "Pause"}}', "version True is not known here"),
    ('{"v": 1.0, "message": {"$": "Pause"}}', "version 1.0 is not known here"),
    ('{"v": 1}', 'beside "v" it must have just message'),
    ('{"v": 1, "message": {"$": "Pause"}, "more": 1}', 'beside "v" it must have just message'),
    ('{"v": 1, "v": 1, "message": {"$": "Pause"}}', "a key twice"),
    ('{"v": 1, "message": []}', 'says its class as "$"'),
    ('{"v": 1, "message": {"$": 3}}', 'says its class as "$"'),
    (message(**{"$": "Sart", "task": "a"}), "no message is called 'Sart'; there are: "),
    (message(**{"$": "Message"}), "no message is called 'Message'"),
    (message(**{"$": "Node", "name": "a"}), "no message is called 'Node'"),
    (message(**{"$": "__init__"}), "no message is called"),
    (message(**{"$": "Start"}), "Start needs task"),
    (message(**{"$": "Start", "task": 3}), "Start.task must be text, not 3"),
    (message(**{"$": "Start", "task": None}), "Start.task must be text, not None"),
    (message(**{"$": "Start", "task": "a", "tsk": "a"}), "Start has no field 'tsk'; it has: task"),
    (message(**{"$": "Start", "task": "a", "control": False}), "Start has no field 'control'"),
    (message(**{"$": "Submit", "title": "t", "payload_text": "1"}), "Submit has no field 'payload_text'"),
    (message(**{"$": "Submit", "title": "t", "priority": True}), "Submit.priority must be a whole number, not True"),
    (message(**{"$": "Submit", "title": "t", "priority": 1.5}), "Submit.priority must be a whole number, not 1.5"),
    (message(**{"$": "Submit", "title": "t", "priority": "P1"}), "Submit.priority must be a whole number"),
    (message(**{"$": "Submit", "title": "t", "mode": "hope"}), "Submit.mode must be one of 'auto'"),
    (message(**{"$": "Submit", "title": "t", "depends_on": "a"}), "Submit.depends_on must be a list"),
    (message(**{"$": "Submit", "title": "t", "depends_on": [1]}), "Submit.depends_on[0] must be text"),
    (message(**{"$": "Submit", "title": "t", "nodes": [{"name": "a"}]}), "Submit.nodes[0] must be an object"),
    (
        message(**{"$": "Submit", "title": "t", "nodes": [{"$": "Start", "task": "a"}]}),
        "Submit.nodes[0] must be a Node, not a 'Start'",
    ),
    (
        message(**{"$": "DefineGraph", "name": "g", "nodes": [A_NODE | {"retry": {"$": "Backoff", "max_s": "1"}}]}),
        "DefineGraph.nodes[0].retry.max_s must be a number, not '1'",
    ),
    ('{"v": 1, "message": {"$": "Submit", "title": "t", "payload": NaN}}', "NaN is no number"),
    # and what the message itself refuses
    ('{"v": 1, "message": {"$": "Submit", "title": "t", "payload": 1e999}}', "payload is not JSON"),
    (message(**{"$": "Submit", "title": " "}), "title must be text that is not blank"),
    (message(**{"$": "Start", "task": "a/b"}), 'must not hold "/"'),
    (message(**{"$": "SetLimits"}), "SetLimits changes nothing"),
    (message(**{"$": "SetLimits", "runs_max": -1}), "runs_max must be from 0"),
    (message(**{"$": "SubmitMany", "tasks": []}), "SubmitMany takes 1 to"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), NOT_MESSAGES, ids=[said[:40] for _, said in NOT_MESSAGES])
def test_what_is_no_message_is_refused_with_the_place(text: str, said: str) -> None:
    with pytest.raises((InvalidMessage, InvalidName, InvalidJson)) as caught:
        decode_message(text)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 5_000


KEYS = st.sampled_from(["$", "task", "title", "nodes"])


@settings(examples(300))
@given(
    JSON.map(json.dumps)
    | st.text()
    | st.fixed_dictionaries(
        {"v": st.just(1), "message": st.dictionaries(KEYS, JSON | st.sampled_from(KINDS))}
    ).map(json.dumps)
)  # fmt: skip
def test_whatever_stands_there_is_a_message_or_is_refused(text: str) -> None:
    with suppress(InvalidMessage, InvalidName, InvalidJson):
        assert isinstance(decode_message(text), Message)


def test_a_message_of_somebody_else_s_is_not_sent() -> None:
    @attrs.frozen
    class Start(Message[Submitted]):
        """It has the name of one of ours."""

        task: str

    strangers: list[Any] = [Start("a"), Message(), "Start"]
    for stranger in strangers:
        with pytest.raises(InvalidMessage, match="only messages of actors"):
            encode_message(stranger)


def test_a_message_that_is_too_large_is_refused_by_who_sends_and_by_who_reads() -> None:
    tasks = [Submit("t", payload="x" * 1_000_000) for _ in range(5)]
    with pytest.raises(InvalidJson, match="more than the 4194304 allowed"):
        encode_message(SubmitMany(tasks))
    with pytest.raises(InvalidMessage, match="more than 4194304"):
        decode_message(" " * (MESSAGE_CHARS_MAX + 1))


def test_a_payload_that_was_made_something_else_after_it_was_checked_is_refused() -> None:
    payload: list[object] = [1]
    submit = Submit("t", payload=payload)
    payload.append(object())
    with pytest.raises(InvalidJson, match="Submit is not JSON"):
        encode_message(submit)


# --- what cannot be carried is found ----------------------------------------------------------------------------------


class Opaque:
    """A type that has no form."""


@attrs.frozen
class Blind(Message[Submitted]):
    what: Opaque


@attrs.frozen
class Deep(Message[Submitted]):
    what: tuple[dict[str, Opaque | int], ...]


@attrs.frozen
class Silent(Message[Opaque]):
    task: str


@attrs.frozen
class Speechless(Message):  # type: ignore[type-arg]
    task: str


@attrs.frozen
class Numbered(Message[Submitted]):
    what: Literal[1, 2]


@pytest.mark.parametrize("kind", [Blind, Deep, Silent, Speechless, Numbered])
def test_a_message_class_that_cannot_be_carried_is_found(kind: type[Message[Any]]) -> None:
    with pytest.raises(CannotCarry):
        check_kind(kind)


class Overlap(Enum):
    SKIP = "skip"
    QUEUE = "queue"


@attrs.frozen
class Later(Message[Submitted | None]):
    """A class as somebody will add one: nothing has to be written for it."""

    name: str
    overlap: Overlap
    template: Submit
    zone: Literal["UTC", "local"] = "UTC"
    labels: dict[str, int] = attrs.field(factory=dict)
    every_s: float | None = None
    after: tuple[str, ...] | Unset = attrs.field(default=UNSET)


def test_a_class_that_is_added_is_carried_without_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_PACKAGES", ("actors", "storage", "tests"))
    check_kind(Later)
    for later in (
        Later("n", Overlap.QUEUE, Submit("t", nodes=[Node("a")])),
        Later("n", Overlap.SKIP, Submit("t"), "local", {"a": 1}, 2.5, ("b",)),
    ):
        assert decode_message(encode_message(later)) == later
    assert decode_answer(Later, encode_reply(Later, None)) is None
    with pytest.raises(InvalidMessage, match=r"Later.overlap must be one of 'skip', 'queue', not 'never'"):
        decode_message(
            message(
                **{"$": "Later", "name": "n", "overlap": "never", "template": {"$": "Submit", "title": "t"}}
            )
        )


# --- answers ----------------------------------------------------------------------------------------------------------

ERRORS = sorted(error_kinds())


def an_error(kind: type[TurnkeeperError]) -> TurnkeeperError:
    """One of the class, built by its constructor, with a value for every parameter."""
    hints = get_type_hints(kind.__init__) if inspect.isfunction(kind.__init__) else {}
    if not hints:
        return kind("what was wrong")
    samples = {str: "a text", int: 3, float: 2.5, bool: True}
    values = {
        name: samples.get(hints[name], ("a", "b"))
        for name in inspect.signature(kind).parameters
        if name in hints
    }
    return kind(**values)


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_comes_back_as_itself_with_its_text_and_its_fields(name: str) -> None:
    error = an_error(error_kinds()[name])
    with pytest.raises(TurnkeeperError) as caught:
        decode_answer(Start, encode_error(error))
    again = caught.value
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_every_refusal_that_there_is_comes_back_as_itself() -> None:
    def derived(kind: Any) -> set[str]:
        mine = {kind.__name__} if kind.__module__.startswith("actors.") else set()
        return mine.union(*(derived(one) for one in kind.__subclasses__()))

    assert derived(Refused) - {"Refused"} <= set(ERRORS)


def test_an_answer_says_its_class_its_text_and_what_to_do_instead() -> None:
    refusal = MoveRefused("Start", "a", "completed", "is completed: use Rerun to do it again", ("Rerun",))
    told = json.loads(encode_error(refusal))
    assert told["refused"]["$"] == "MoveRefused"
    assert told["refused"]["text"] == "Start refused: task a is completed: use Rerun to do it again"
    assert told["refused"]["advice"] == ["Rerun"]
    assert "failed" in json.loads(encode_error(error_kinds()["ActorCrashed"]("acme", "boom")))


def test_an_error_of_a_newer_version_comes_back_by_its_text_and_as_what_it_is() -> None:
    text = '{"v":1,"refused":{"$":"TaskSold","text":"it is sold","advice":[],"fields":{"price":3}}}'
    with pytest.raises(Refused, match="it is sold"):
        decode_answer(Start, text)
    with pytest.raises(TurnkeeperError, match="it burnt") as caught:
        decode_answer(Start, '{"v":1,"failed":{"$":"Fire","text":"it burnt","advice":[]}}')
    assert not isinstance(caught.value, Refused)


def test_an_error_can_quote_anything() -> None:
    said = "\ud800\x1b[31m\x00 " + "é" * 10_000
    text = encode_error(Refused(said))
    text.encode("ascii")
    with pytest.raises(Refused) as caught:
        decode_answer(Start, text)
    assert len(str(caught.value)) < 5_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"v":1}',
        '{"v":2,"reply":{}}',
        '{"v":1,"reply":{"$":"Submitted","id":"a","seq":1,"run":1}}',
        '{"v":1,"reply":null,"refused":null}',
        '{"v":1,"refused":{"$":"MoveRefused"}}',
        '{"v":1,"refused":{"$":"TaskUnknown","text":"t","fields":{"company":"a"}}}',
        '{"v":1,"refused":{"$":"TaskUnknown","text":"t","fields":{"company":"a","task":1}}}',
        '{"v":1,"refused":{"$":"TaskUnknown","text":"t","fields":{"company":"a","task":"b","__class__":"c"}}}',
        '{"v":1,"refused":{"$":"InvalidName","text":"t","fields":{"args":[]}}}',
    ],
)
def test_what_is_no_answer_is_refused(text: str) -> None:
    with pytest.raises(InvalidMessage, match="not an answer"):
        decode_answer(Start, text)


def test_a_reply_to_what_is_no_message_is_no_answer() -> None:
    with pytest.raises(InvalidMessage, match="a reply to what is no message"):
        decode_answer(None, encode_reply(Stop, Moved("a", 1, RunStatus.STOPPED)))
    with pytest.raises(TaskUnknown):
        decode_answer(None, encode_error(TaskUnknown("acme", "a")))


def test_equal_messages_are_equal_texts() -> None:
    assert encode_message(SetLimits(weight=2, runs_max=1)) == encode_message(SetLimits(runs_max=1, weight=2))
    assert encode_message(Submit("t", payload={"b": 1, "a": 2})) == encode_message(
        Submit("t", payload={"a": 2, "b": 1})
    )
