"""Messages and their answers as JSON text, for processes that are not the host's.

Nothing here knows of a single message: how one is written and read follows from its class, field by field,
so a new message class is carried without a line of code. A type that has no form here is a `CannotCarry` as
soon as its form is asked for, and a test asks for all of them.

The form, version 1::

    {"v": 1, "message": {"$": "Start", "task": "report"}}
    {"v": 1, "reply": {"$": "Moved", "id": "report", "run": 1, …}}
    {"v": 1, "refused": {"$": "MoveRefused", "text": "…", "advice": ["Retry"], "fields": {…}}}
    {"v": 1, "failed": {…}}

An object of ours says its class under ``$``; enumerations are their values, tuples are lists, points in
time are ISO 8601 with an offset, and a field that is `UNSET` is left out, as may be every field that has
a default. Reading is strict: another version, an unknown class, an unknown or a missing field, and a
value of another type are refused with the place, and what is left is built by the class itself, which
checks it as it checks a program's own. No text is evaluated and no name is looked up outside the classes
of messages, replies and errors.
"""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, Final, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

import attrs

from actors.errors import (
    ActorCrashed,
    CompanyDeleted,
    CompanyParked,
    InvalidJson,
    InvalidMessage,
    InvalidName,
    Refused,
    TurnkeeperError,
)
from actors.messages import Message, Unset
from storage.codec import clean_text
from storage.contract.inbox import MESSAGE_CHARS_MAX

R = TypeVar("R")

VERSION: Final = 1
KIND: Final = "$"
_PACKAGES: Final = ("actors", "storage")
"""Where classes must be defined to have a form: what a host derives from ours stays its own."""


class CannotCarry(TypeError):
    """A class has a field of a type that has no form in JSON. A mistake of ours, found by a test."""


class _Misfit(Exception):
    """A value is not what its form says; the text says where."""


# --- messages -----------------------------------------------------------------------------------------------


def message_kinds() -> Mapping[str, type[Message[Any]]]:
    """Every message that can be carried, by its name."""
    return {cls.__name__: cls for cls in _derived(Message) if cls.__name__[0] != "_"}


def reply_type(kind: type[Message[Any]]) -> Any:
    """What a message of this class is answered with, as the class itself says."""
    for base in (one for cls in kind.__mro__ for one in cls.__dict__.get("__orig_bases__", ())):
        if get_origin(base) is Message:
            return get_args(base)[0]
    raise CannotCarry(f"{kind.__name__} does not say what it is answered with: derive it from Message[…]")


def check_kind(kind: type[Message[Any]]) -> None:
    """Raise `CannotCarry` if a message of this class, or its reply, has no form."""
    _form(kind)
    _form(reply_type(kind))


def encode_message(message: Message[Any]) -> str:
    """The text of a message. Equal messages are equal texts.

    Raises `InvalidMessage` for what is no message of ours, `InvalidJson` for one that is too large or whose
    payload was made something else than JSON after it was built.
    """
    if message_kinds().get(type(message).__name__) is not type(message):
        raise InvalidMessage(f"only messages of actors.messages can be sent, not {message!r}")
    try:
        text = _dump({"v": VERSION, "message": _form(type(message)).write(message)}, ascii_only=False)
        text.encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidJson(f"{type(message).__name__} is not JSON: {error}") from None
    if len(text) > MESSAGE_CHARS_MAX:
        raise InvalidJson(
            f"{type(message).__name__} has {len(text)} characters as JSON, more than the {MESSAGE_CHARS_MAX} "
            "allowed: leave large things in a file whose name is the payload"
        )
    return text


def decode_message(text: str) -> Message[Any]:
    """The message of a text that anybody can have written.

    Raises `InvalidMessage` if it is none, and whatever else the message's own checks raise: `InvalidName`,
    `InvalidJson`.
    """
    if len(text) > MESSAGE_CHARS_MAX:
        raise InvalidMessage(f"the message has {len(text)} characters, more than {MESSAGE_CHARS_MAX}")
    try:
        value = _opened(_load(text), ("message",))[1]
        kinds = message_kinds()
        kind = kinds.get(_kind_of(value, "message"))
        if kind is None:
            known = ", ".join(sorted(kinds))
            raise _Misfit(f"no message is called {_shown(value[KIND])}; there are: {known}")
        message = _form(kind).read(value, kind.__name__)
    except _Misfit as misfit:
        raise InvalidMessage(clean_text(f"not a message: {misfit}")) from None
    assert isinstance(message, Message)
    return message


# --- answers ------------------------------------------------------------------------------------------------


def encode_reply(kind: type[Message[Any]], reply: object) -> str:
    """The text of a reply to a message of this class."""
    return _dump({"v": VERSION, "reply": _form(reply_type(kind)).write(reply)})


def encode_error(error: BaseException) -> str:
    """The text of a refusal, or of another error that a sender is told instead of a reply."""
    what = "refused" if isinstance(error, Refused | InvalidMessage | InvalidName | InvalidJson) else "failed"
    told: dict[str, Any] = {KIND: type(error).__name__, "text": clean_text(str(error))}
    told["advice"] = [str(one) for one in getattr(error, "advice", ())]
    fields = _fields_of(error)
    if fields is not None:
        told["fields"] = fields
    return _dump({"v": VERSION, what: told})


def decode_answer(kind: type[Message[R]] | None, text: str) -> R:
    """The reply to a message of this class; raises the error that it was answered with instead.

    An error comes back as its own class with its fields where this version knows it, else as a `Refused` or
    a `TurnkeeperError` with its text. ``kind`` is ``None`` where the message itself could not be read.
    Raises `InvalidMessage` for a text that is no answer.
    """
    try:
        what, value = _opened(_load(text), ("reply", "refused", "failed"))
        if what == "reply":
            if kind is None:
                raise _Misfit("a reply to what is no message")
            reply: R = _form(reply_type(kind)).read(value, "reply")
            return reply
        error = _error_of(value, Refused if what == "refused" else TurnkeeperError)
    except _Misfit as misfit:
        raise InvalidMessage(clean_text(f"not an answer: {misfit}")) from None
    raise error


def error_kinds() -> Mapping[str, type[TurnkeeperError]]:
    """Every error that a message can be answered with, by its name: these come back as their own class."""
    others = (InvalidMessage, InvalidName, InvalidJson, ActorCrashed, CompanyDeleted, CompanyParked)
    return {cls.__name__: cls for cls in (*_derived(Refused), *others)}


def _error_of(value: object, otherwise: type[TurnkeeperError]) -> TurnkeeperError:
    name = _kind_of(value, "error")
    assert isinstance(value, dict)
    text = value.get("text")
    if not isinstance(text, str):
        raise _Misfit(f"an error needs a text, not {_shown(text)}")
    kind = error_kinds().get(name)
    if kind is None:
        return otherwise(text)
    given = value.get("fields")
    if given is None:
        return kind(text) if _parameters(kind) is None else otherwise(text)
    parameters = _parameters(kind)
    if parameters is None or not isinstance(given, dict):
        raise _Misfit(f"{name} has no fields")
    return kind(**_read_fields(given, parameters, _required(kind), name))


def _fields_of(error: BaseException) -> dict[str, Any] | None:
    """What the error was built with, as it remembers it; nothing if it was built with a text alone."""
    if error_kinds().get(type(error).__name__) is not type(error):
        return None
    assert isinstance(error, TurnkeeperError)
    parameters = _parameters(type(error))
    if parameters is None:
        return None
    return {name: form.write(getattr(error, name)) for name, form in parameters.items()}


def _parameters(kind: type[TurnkeeperError]) -> Mapping[str, _Form] | None:
    """How each parameter of an error's constructor is written; nothing for one that takes only a text.

    An error remembers each under the parameter's own name.
    """
    if not isinstance(kind.__init__, types.FunctionType):
        return None
    hints = get_type_hints(kind.__init__)
    return {name: _form(hints[name]) for name in inspect.signature(kind).parameters}


def _required(kind: type[BaseException]) -> frozenset[str]:
    parameters = inspect.signature(kind).parameters.values()
    return frozenset(one.name for one in parameters if one.default is inspect.Parameter.empty)


# --- JSON ---------------------------------------------------------------------------------------------------


def _dump(value: object, *, ascii_only: bool = True) -> str:
    """Canonical JSON. An answer is ASCII: it quotes what can be any text, and must always be storable."""
    return json.dumps(value, ensure_ascii=ascii_only, allow_nan=False, sort_keys=True, separators=(",", ":"))


def _load(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise _Misfit(f"it is not JSON: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("an object has a key twice")
    return made


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _opened(value: object, whats: tuple[str, ...]) -> tuple[str, Any]:
    """What the outermost object holds, if it is of this version."""
    if not isinstance(value, dict):
        raise _Misfit(f"an object is needed, not {_shown(value)}")
    version = value.get("v")
    if type(version) is not int or version != VERSION:
        raise _Misfit(f'version {_shown(version)} is not known here: {VERSION} is, as "v"')
    held = [what for what in whats if what in value]
    if len(held) != 1 or len(value) != 2:
        raise _Misfit(f'beside "v" it must have just {" or ".join(whats)}, not {_listed(set(value) - {"v"})}')
    return held[0], value[held[0]]


def _kind_of(value: object, where: str) -> str:
    if not isinstance(value, dict) or not isinstance(value.get(KIND), str):
        raise _Misfit(f'{where} must be an object that says its class as "{KIND}", not {_shown(value)}')
    name: str = value[KIND]
    return name


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:50]}…"


def _listed(names: set[Any]) -> str:
    return ", ".join(sorted(_shown(name) for name in names)[:10]) or "nothing"


# --- forms: how the values of a type are written and read -----------------------------------------------------


@attrs.frozen
class _Form:
    """``owns`` says whether a value is of the type, ``write`` makes JSON of it, ``read`` makes it of JSON and
    raises `_Misfit` with the place.
    """

    what: str
    owns: Callable[[Any], bool]
    write: Callable[[Any], Any]
    read: Callable[[Any, str], Any]


def _form(hint: Any) -> _Form:
    """The form of a type, made once; raises `CannotCarry`."""
    form = _forms.get(hint)
    if form is None:
        form = _forms[hint] = _make_form(hint)
    return form


_forms: Final[dict[Any, _Form]] = {}


def _make_form(hint: Any) -> _Form:
    if hint is Any:
        return _Form("anything", lambda _: True, lambda value: value, lambda value, _: value)
    if hint in _PLAIN:
        return _plain(hint)
    if hint is datetime:
        return _moment()
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _choice(hint.__name__, {one.value: one for one in hint}, lambda value: isinstance(value, hint))
    if isinstance(hint, type) and attrs.has(hint):
        return _class(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _union([_form(one) for one in arguments])
    if origin is Literal:
        return _choice("a word", {one: one for one in arguments}, lambda value: value in arguments)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _list(_form(arguments[0]))
    if origin is not None and origin in (list, Sequence):
        return _list(_form(arguments[0]))
    if origin is not None and origin in (dict, Mapping) and arguments[0] is str:
        return _mapping(_form(arguments[1]))
    raise CannotCarry(f"{hint!r} has no form in JSON")


_PLAIN: Final[Mapping[Any, tuple[str, Callable[[Any], bool]]]] = {
    types.NoneType: ("nothing", lambda value: value is None),
    bool: ("true or false", lambda value: isinstance(value, bool)),
    int: ("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    float: ("a number", lambda value: isinstance(value, int | float) and not isinstance(value, bool)),
    str: ("text", lambda value: isinstance(value, str)),
}


def _plain(hint: Any) -> _Form:
    what, owns = _PLAIN[hint]

    def read(value: Any, where: str) -> Any:
        if not owns(value):
            raise _Misfit(f"{where} must be {what}, not {_shown(value)}")
        return value

    return _Form(what, owns, lambda value: value, read)


def _moment() -> _Form:
    """A point in time: ISO 8601 with an offset. Whether it has one is for the message to check."""

    def read(value: Any, where: str) -> datetime:
        try:
            return datetime.fromisoformat(value)
        except (TypeError, ValueError):
            raise _Misfit(f"{where} must be a date and time in ISO 8601, not {_shown(value)}") from None

    return _Form("a date and time", lambda value: isinstance(value, datetime), datetime.isoformat, read)


def _choice(what: str, choices: Mapping[Any, Any], owns: Callable[[Any], bool]) -> _Form:
    def read(value: Any, where: str) -> Any:
        if not isinstance(value, str) or value not in choices:
            raise _Misfit(f"{where} must be one of {', '.join(map(repr, choices))}, not {_shown(value)}")
        return choices[value]

    if not all(isinstance(one, str) for one in choices):
        raise CannotCarry(f"{what} has values that are not text")
    return _Form(what, owns, lambda value: value.value if isinstance(value, Enum) else value, read)


def _list(item: _Form) -> _Form:
    def read(value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise _Misfit(f"{where} must be a list, not {_shown(value)}")
        return tuple(item.read(one, f"{where}[{place}]") for place, one in enumerate(value))

    def owns(value: Any) -> bool:
        return isinstance(value, tuple | list) and all(item.owns(one) for one in value)

    return _Form("a list", owns, lambda value: [item.write(one) for one in value], read)


def _mapping(item: _Form) -> _Form:
    def read(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _Misfit(f"{where} must be an object, not {_shown(value)}")
        return {name: item.read(one, f"{where}.{name}") for name, one in value.items()}

    def owns(value: Any) -> bool:
        return isinstance(value, Mapping) and all(
            isinstance(name, str) and item.owns(one) for name, one in value.items()
        )

    return _Form(
        "an object", owns, lambda value: {name: item.write(one) for name, one in value.items()}, read
    )


def _union(forms: Sequence[_Form]) -> _Form:
    def write(value: Any) -> Any:
        return next(form for form in forms if form.owns(value)).write(value)

    def read(value: Any, where: str) -> Any:
        told: list[_Misfit] = []
        for form in forms:
            try:
                return form.read(value, where)
            except _Misfit as misfit:
                told.append(misfit)
        # of several types the one that went furthest into the value says most
        raise max(told, key=lambda misfit: str(misfit).count(".") + str(misfit).count("[")) from None

    what = " or ".join(form.what for form in forms)
    return _Form(what, lambda value: any(form.owns(value) for form in forms), write, read)


def _class(cls: type) -> _Form:
    """An attrs class of ours, built by its own constructor."""
    hints = get_type_hints(cls)
    fields = {field.alias: field for field in attrs.fields(cls) if field.init}
    forms = {name: _form(_without_unset(hints[field.name])) for name, field in fields.items()}
    required = frozenset(name for name, field in fields.items() if field.default is attrs.NOTHING)
    if KIND in forms:
        raise CannotCarry(f"{cls.__name__} has a field {KIND!r}")

    def write(value: Any) -> dict[str, Any]:
        held = {name: getattr(value, field.name) for name, field in fields.items()}
        written = {name: forms[name].write(one) for name, one in held.items() if not isinstance(one, Unset)}
        return {KIND: cls.__name__, **written}

    def read(value: Any, where: str) -> Any:
        name = _kind_of(value, where)
        if name != cls.__name__:
            raise _Misfit(f"{where} must be a {cls.__name__}, not a {_shown(name)}")
        given = {key: one for key, one in value.items() if key != KIND}
        arguments = _read_fields(given, forms, required, where)
        try:
            return cls(**arguments)
        except TurnkeeperError:
            raise
        except Exception as error:  # a check of the class that did not expect such a value
            raise _Misfit(f"{where} cannot be built: {type(error).__name__}: {error}") from None

    return _Form(f"a {cls.__name__}", lambda value: type(value) is cls, write, read)


def _read_fields(
    given: Mapping[str, Any], forms: Mapping[str, _Form], required: frozenset[str], where: str
) -> dict[str, Any]:
    if unknown := set(given) - set(forms):
        raise _Misfit(f"{where} has no field {_listed(unknown)}; it has: {', '.join(forms)}")
    if missing := required - set(given):
        raise _Misfit(f"{where} needs {', '.join(sorted(missing))}")
    return {name: forms[name].read(value, f"{where}.{name}") for name, value in given.items()}


def _without_unset(hint: Any) -> Any:
    """A field that may be `UNSET` is left out then, so what is written of it is always something else."""
    if get_origin(hint) not in (Union, types.UnionType):
        return hint
    kept = tuple(one for one in get_args(hint) if one is not Unset)
    return Union[kept]  # noqa: UP007 - made of a tuple


def _derived(base: type) -> Iterator[type[Any]]:
    """All classes below ``base`` that are ours."""
    cls: type[Any]
    for cls in base.__subclasses__():
        if cls.__module__.split(".")[0] in _PACKAGES:
            yield cls
        yield from _derived(cls)
