"""The JSON of messages, replies, errors, templates and node definitions, by one cattrs converter.

How a class is written follows from its fields, so a new message, reply or error needs no code here. A class
that has a field without a form raises `CannotCarry` as soon as it is encoded or decoded.

The form, version 1::

    {"v": 1, "message": {"$": "Start", "task": "report"}}
    {"v": 1, "reply": {"$": "Moved", "id": "report", "run": 1, …}}
    {"v": 1, "refused": {"$": "MoveRefused", "text": "…", "advice": ["Retry"], "fields": {…}}}
    {"v": 1, "failed": {…}}

An object names its class under ``$``; enumerations are their values, tuples are lists, and points in time are
ISO 8601 with an offset. A field of a message that has its default is left out; any such field may be left out
of a text. A payload is written as it was when the message was built.

Decoding is strict. Another version, an unknown class, an unknown or missing field, and a value of another type
are refused with the path of the value. The class's own constructor then checks the values as it checks those
of a program. No text is evaluated, and no name is looked up outside the classes of messages, replies and errors.
"""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Mapping
from typing import Any, Final, NoReturn, TypeVar, get_args, get_origin, get_type_hints

import actors.errors
import actors.messages
from actors.converter import KIND, CannotCarry, Misfit, converter, listed, shown, structure, unknown_field
from actors.errors import InvalidJson, InvalidMessage, InvalidName, Refused, TurnkeeperError
from actors.messages import Message, Submit
from actors.messages.schedules import a_template
from storage.codec import MESSAGE_CHARS_MAX, clean_text

R = TypeVar("R")

VERSION: Final = 1
TEMPLATE_BYTES_MAX: Final = 1 << 22
"""One payload of the largest size, and a graph. Schedules stay in memory, so the bound is lower than a run's."""

MESSAGES: Final[dict[str, type[Message[Any]]]] = {
    name: value
    for name, value in vars(actors.messages).items()
    if isinstance(value, type) and issubclass(value, Message) and value is not Message
}
"""Every message, by the name of its class."""
ERRORS: Final[Mapping[str, type[TurnkeeperError]]] = {
    name: value
    for name, value in vars(actors.errors).items()
    if (
        isinstance(value, type)
        and (issubclass(value, Refused) or name in ("InvalidMessage", "InvalidName", "InvalidJson"))
    )
    or name in ("ActorCrashed", "CompanyDeleted", "CompanyParked")
}
"""Every error that can answer a message, by the name of its class: these are decoded as their own class."""


# --- messages -----------------------------------------------------------------------------------------------


def reply_type(kind: type[Message[Any]]) -> Any:
    """The type of the reply to a message of this class: the argument of its base ``Message[…]``."""
    for base in (one for cls in kind.__mro__ for one in cls.__dict__.get("__orig_bases__", ())):
        if get_origin(base) is Message:
            return get_args(base)[0]
    raise CannotCarry(f"{kind.__name__} has no type of reply: derive it from Message[…]")


def encode_message(message: Message[Any]) -> str:
    """The text of a message. Equal messages have equal texts.

    Raises `InvalidMessage` for anything but a message of `actors.messages`, and `InvalidJson` for one that is too
    large.
    """
    if MESSAGES.get(type(message).__name__) is not type(message):
        raise InvalidMessage(f"only messages of actors.messages can be sent, not {message!r}")
    text = _dump({"v": VERSION, "message": converter.unstructure(message)}, ascii_only=False)
    if len(text) > MESSAGE_CHARS_MAX:
        raise InvalidJson(
            f"{type(message).__name__} has {len(text)} characters as JSON, more than the {MESSAGE_CHARS_MAX} "
            "allowed: put large data in a file and pass its name as the payload"
        )
    return text


def decode_message(text: str) -> Message[Any]:
    """The message of a text from an untrusted source.

    Raises `InvalidMessage` if it is not a message, and what the message's own checks raise: `InvalidName`,
    `InvalidJson`.
    """
    if len(text) > MESSAGE_CHARS_MAX:
        raise InvalidMessage(f"the message has {len(text)} characters, more than {MESSAGE_CHARS_MAX}")
    try:
        value = _opened(_load(text), ("message",))[1]
        name = _kind_of(value, "message")
        if name not in MESSAGES:
            raise Misfit(f"there is no message {shown(name)}; messages are: {', '.join(sorted(MESSAGES))}")
        message: Message[Any] = structure(value, MESSAGES[name], name)
    except Misfit as misfit:
        raise InvalidMessage(clean_text(f"not a message: {misfit}")) from None
    return message


# --- answers ------------------------------------------------------------------------------------------------


def encode_reply(kind: type[Message[Any]], reply: object) -> str:
    """The text of a reply to a message of this class."""
    return _dump({"v": VERSION, "reply": converter.unstructure(reply, reply_type(kind))})


def encode_error(error: BaseException) -> str:
    """The text of a refusal, or of another error that a sender gets instead of a reply."""
    what = "refused" if isinstance(error, Refused | InvalidMessage | InvalidName | InvalidJson) else "failed"
    name = type(error).__name__
    told: dict[str, Any] = {KIND: name, "text": clean_text(str(error))}
    told["advice"] = [str(one) for one in getattr(error, "advice", ())]
    if ERRORS.get(name) is type(error) and (hints := _parameters(ERRORS[name])) is not None:
        told["fields"] = {
            one: converter.unstructure(getattr(error, one), hint) for one, hint in hints.items()
        }
    return _dump({"v": VERSION, what: told})


def decode_answer(kind: type[Message[R]] | None, text: str) -> R:
    """The reply to a message of this class; raises the error that answered it instead.

    An error is raised as its own class with its fields if this version knows it, and otherwise as a `Refused` or
    a `TurnkeeperError` with its text. ``kind`` is ``None`` if the message itself could not be read. Raises
    `InvalidMessage` for a text that is not an answer.
    """
    try:
        what, value = _opened(_load(text), ("reply", "refused", "failed"))
        if what == "reply":
            if kind is None:
                raise Misfit("a reply to a text that is not a message")
            reply: R = structure(value, reply_type(kind), "reply")
            return reply
        error = _error_of(value, Refused if what == "refused" else TurnkeeperError)
    except Misfit as misfit:
        raise InvalidMessage(clean_text(f"not an answer: {misfit}")) from None
    raise error


def _error_of(value: object, otherwise: type[TurnkeeperError]) -> TurnkeeperError:
    name = _kind_of(value, "error")
    assert isinstance(value, dict)
    text, given = value.get("text"), value.get("fields")
    if not isinstance(text, str):
        raise Misfit(f"an error needs a text, not {shown(text)}")
    kind = ERRORS.get(name)
    hints = None if kind is None else _parameters(kind)
    if kind is None or (given is None and hints is not None):
        return otherwise(text)
    if given is None:
        return kind(text)
    if hints is None or not isinstance(given, dict):
        raise Misfit(f"{name} has no fields")
    _check_keys(given, kind, hints)
    return kind(**{one: structure(item, hints[one], f"{name}.{one}") for one, item in given.items()})


def _check_keys(given: Mapping[str, object], kind: type[Exception], hints: Mapping[str, Any]) -> None:
    parameters = inspect.signature(kind).parameters.values()
    required = {one.name for one in parameters if one.default is inspect.Parameter.empty}
    if unknown := given.keys() - hints.keys():
        raise Misfit(unknown_field(kind.__name__, unknown, hints))
    if missing := required - given.keys():
        raise Misfit(f"{kind.__name__} needs {', '.join(sorted(missing))}")


def _parameters(kind: type[Exception]) -> Mapping[str, Any] | None:
    """The types of the parameters of an error's constructor; ``None`` if it takes only a text.

    An error keeps each parameter in an attribute of the same name.
    """
    if not isinstance(kind.__init__, types.FunctionType):
        return None
    hints = get_type_hints(kind.__init__)
    return {name: hints[name] for name in inspect.signature(kind).parameters}


# --- templates of schedules -----------------------------------------------------------------------------------


def template_text(task: Submit) -> str:
    """The JSON of the task of a schedule. Equal tasks have equal texts. Raises `InvalidJson` if it is too large."""
    text = _dump(converter.unstructure(task), ascii_only=False)
    if (size := len(text.encode())) > TEMPLATE_BYTES_MAX:
        raise InvalidJson(
            f"the schedule's task has {size} bytes as JSON, more than the {TEMPLATE_BYTES_MAX} allowed"
        )
    return text


def template_of(text: str) -> Submit:
    """The task of a schedule; raises ``ValueError`` if the text is not one, or its values are not allowed."""
    try:
        task = structure(_load(text), Submit, "Submit")
    except Misfit as misfit:
        raise InvalidMessage(clean_text(f"not the task of a schedule: {misfit}")) from None
    return a_template(task, "task")


# --- JSON ---------------------------------------------------------------------------------------------------


def _dump(value: object, *, ascii_only: bool = True) -> str:
    """Canonical JSON. An answer is ASCII: it quotes arbitrary text, and must always be storable."""
    return json.dumps(value, ensure_ascii=ascii_only, allow_nan=False, sort_keys=True, separators=(",", ":"))


def _load(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Misfit(f"it is not JSON: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("an object has a key twice")
    return made


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


def _opened(value: object, whats: tuple[str, ...]) -> tuple[str, Any]:
    """The content of the outermost object, if it is of this version."""
    if not isinstance(value, dict):
        raise Misfit(f"the text must be an object, not {shown(value)}")
    version = value.get("v")
    if type(version) is not int or version != VERSION:
        raise Misfit(f'version {shown(version)} is unknown; the version in "v" must be {VERSION}')
    held = [what for what in whats if what in value]
    if len(held) != 1 or len(value) != 2:
        raise Misfit(f'beside "v" it must have only {" or ".join(whats)}, not {listed(set(value) - {"v"})}')
    return held[0], value[held[0]]


def _kind_of(value: object, where: str) -> str:
    if not isinstance(value, dict) or not isinstance(value.get(KIND), str):
        raise Misfit(f'{where} must be an object with the name of its class as "{KIND}", not {shown(value)}')
    name: str = value[KIND]
    return name
