"""The cattrs converter behind `actors.codec`: how values of each type are written and read.

It refuses what cattrs would convert or ignore: values of another type, and unknown fields.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, Final, NoReturn, TypeVar, Union, get_args, get_origin

import attrs
from cattrs import (
    BaseValidationError,
    ClassValidationError,
    Converter,
    ForbiddenExtraKeysError,
    IterableValidationError,
)
from cattrs.cols import homogenous_tuple_structure_factory, is_mapping, is_sequence, mapping_structure_factory
from cattrs.errors import AttributeValidationNote, IterableValidationNote
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from actors.errors import TurnkeeperError
from actors.messages import Backoff, Edit, Gate, Message, Node, Rerun, Unset

T = TypeVar("T")

KIND: Final = "$"


class CannotCarry(TypeError):
    """A class has a field of a type that has no form in JSON. A mistake in this program, found by a test."""


class Misfit(ValueError):
    """A value does not have the form of its type; the text names the place."""


def shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:50]}…"


def listed(names: set[Any]) -> str:
    return ", ".join(sorted(shown(name) for name in names)[:10]) or "nothing"


def unknown_field(where: str, names: set[Any], known: Any) -> str:
    return f"{where} has no field {listed(names)}; its fields are: {', '.join(known)}"


class _WrongType(Exception):
    """A value is not of the type; the arguments are what it must be, and the value. The path is added later."""


def _no_form(hint: Any) -> NoReturn:
    raise CannotCarry(f"{hint!r} has no form in JSON")


converter: Final = Converter(structure_fallback_factory=_no_form)


def structure(value: object, kind: Any, where: str) -> Any:
    """The object of a JSON value; raises `Misfit` with the path, or what the object's own checks raise."""
    try:
        return converter.structure(value, kind)
    except (ClassValidationError, IterableValidationError, _WrongType) as error:
        raise _first_cause(error, where) from None


def _first_cause(error: BaseException, where: str) -> Exception:
    """The first error inside the groups that cattrs raises: our own as it is, others as a `Misfit`."""
    while isinstance(error, ClassValidationError | IterableValidationError):
        outer, error = error, error.exceptions[0]
        for note in getattr(error, "__notes__", ()):
            if isinstance(note, IterableValidationNote):
                where += f"[{note.index}]" if isinstance(note.index, int) else f".{note.index}"
            elif isinstance(note, AttributeValidationNote):
                if isinstance(error, KeyError):
                    return Misfit(f"{where} needs {note.name}")
                where += f".{note.name}"
        if isinstance(error, ForbiddenExtraKeysError):
            known = [field.alias for field in attrs.fields(outer.cl) if field.init]
            return Misfit(unknown_field(where, error.extra_fields, known))
    if isinstance(error, TurnkeeperError):
        return error
    if isinstance(error, _WrongType):
        wanted, value = error.args
        return Misfit(f"{where} must be {wanted}, not {shown(value)}")
    return Misfit(f"{where} cannot be built: {type(error).__name__}: {error}")


def _strict(kind: type, what: str, allowed: type | types.UnionType, excluded: type | tuple[()] = ()) -> None:
    """Register a type of JSON that is taken as it is, and never converted."""

    def read(value: Any, _: object) -> Any:
        if not isinstance(value, allowed) or isinstance(value, excluded):
            raise _WrongType(what, value)
        return value

    converter.register_structure_hook(kind, read)


_strict(bool, "true or false", bool)
_strict(int, "an integer", int, bool)
_strict(float, "a number", int | float, bool)


def _read_moment(value: Any, _: object) -> datetime:
    """Whether it has an offset is checked by the message."""
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise _WrongType("a date and time in ISO 8601", value) from None


converter.register_structure_hook(datetime, _read_moment)
converter.register_unstructure_hook(datetime, datetime.isoformat)


def _read_text(value: Any, kind: Any) -> Any:
    """Text, or a member of an enumeration. cattrs finds this hook for an enumeration of texts too."""
    if not isinstance(value, str):
        raise _WrongType("a string", value)
    if kind is str:
        return value
    try:
        return kind(value)
    except ValueError:
        raise _WrongType(f"one of {', '.join(repr(one.value) for one in kind)}", value) from None


converter.register_structure_hook(str, _read_text)
converter.register_structure_hook(Enum, _read_text)


def _is_list(hint: Any) -> bool:
    arguments = get_args(hint)
    return is_sequence(hint) or (
        get_origin(hint) is tuple and len(arguments) == 2 and arguments[1] is Ellipsis
    )


@converter.register_structure_hook_factory(_is_list)
def _list(hint: Any) -> Callable[[Any, object], Any]:
    kind: Any = types.GenericAlias(tuple, (get_args(hint)[0], ...))
    read_items = homogenous_tuple_structure_factory(kind, converter)

    def read(value: Any, _: object) -> Any:
        if not isinstance(value, list):
            raise _WrongType("a list", value)
        return read_items(value, kind)

    return read


@converter.register_structure_hook_factory(is_mapping)
def _mapping(hint: Any) -> Callable[[Any, object], Any]:
    read_items = mapping_structure_factory(hint, converter, dict)

    def read(value: Any, _: object) -> Any:
        if not isinstance(value, dict):
            raise _WrongType("an object", value)
        return read_items(value, hint)

    return read


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


@converter.register_structure_hook_factory(_is_union)
def _union(hint: Any) -> Callable[[Any, object], Any]:
    """One type, or several classes that are told apart by their names. `UNSET` is never written; ``None`` may be
    one of the types.
    """
    nullable = types.NoneType in get_args(hint)
    kinds = [one for one in get_args(hint) if one not in (types.NoneType, Unset)]
    if len(kinds) > 1 and not all(attrs.has(one) for one in kinds):
        raise CannotCarry(f"{hint} has no form in JSON")
    readers = {one.__name__: (converter.get_structure_hook(one), one) for one in kinds}
    last, _last_kind = next(reversed(readers.values()))

    def read(value: Any, _: object) -> Any:
        if value is None and nullable:
            return None
        if len(kinds) == 1:
            return last(value, kinds[0])
        name = _tag(value)
        if name not in readers:
            raise _WrongType(" or ".join(f"a {one}" for one in readers), name)
        one, kind = readers[name]
        return one(value, kind)

    return read


def _tag(value: Any) -> Any:
    if not isinstance(value, dict) or not isinstance(value.get(KIND), str):
        raise _WrongType(f'an object with the name of its class as "{KIND}"', value)
    return value[KIND]


@converter.register_structure_hook_factory(attrs.has)
def _class(kind: Any) -> Callable[[Any, object], Any]:
    """A class of ours, built by its own constructor."""
    read_fields = make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=True)

    def read(value: Any, _: object) -> Any:
        name = _tag(value)
        if name != kind.__name__:
            raise _WrongType(f"a {kind.__name__}", name)
        return read_fields({key: one for key, one in value.items() if key != KIND}, kind)

    return read


def _left_out(names: Sequence[str]) -> Any:
    return {name: override(omit=True) for name in names}


@converter.register_unstructure_hook_factory(attrs.has)
def _written(kind: Any) -> Callable[[Any], dict[str, Any]]:
    """The fields of a message, and of what it holds, are left out where they have their defaults."""
    has_payload = any(field.name == "payload_text" for field in attrs.fields(kind))
    brief = issubclass(kind, Message) or kind in (Node, Gate, Backoff)
    write = make_dict_unstructure_fn(
        kind,
        converter,
        _cattrs_omit_if_default=brief,
        **_left_out(("payload",) if has_payload else ()),
    )

    def read(value: Any) -> dict[str, Any]:
        written = {KIND: kind.__name__, **write(value)}
        if has_payload and not isinstance(value.payload, Unset):
            if value.payload_text is not None:
                written["payload"] = json.loads(value.payload_text)
            elif issubclass(kind, Edit | Rerun):
                written["payload"] = None
        return written

    return read


def add_row_form(kind: type[T], *, left_out: Sequence[str] = ()) -> Callable[[object], T]:
    """Give a class of the core a form in a row, without its name and without the fields that have their defaults.

    Returns the function that builds an object of its JSON value, which raises ``ValueError`` if it does not fit.
    Fields that are ``left_out`` are not stored. Rows are read often, so their errors do not name the place.
    """
    without = _left_out(left_out)
    write: Any = make_dict_unstructure_fn(kind, converter, _cattrs_omit_if_default=True, **without)
    converter.register_unstructure_hook(kind, write)
    build: Any = make_dict_structure_fn(
        kind, converter, _cattrs_forbid_extra_keys=True, _cattrs_detailed_validation=False, **without
    )

    def read(value: object) -> T:
        try:
            built: T = build(value, kind)
        except (BaseValidationError, ForbiddenExtraKeysError, _WrongType) as error:
            raise _first_cause(error, kind.__name__) from None
        except (TypeError, KeyError, AttributeError) as error:
            raise Misfit(f"not a {kind.__name__}: {error!r}") from None
        return built

    return read
