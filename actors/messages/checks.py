"""What a field of a message may hold. Each check is written once and shared by all messages.

A check takes a value and the name of its field, and returns the value or raises `InvalidMessage` or
`InvalidName`. `checked` makes an attrs validator of it. A function ``to_…`` is an attrs converter: it also
brings the value into the form in which the message keeps it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, TypeVar

import attrs

from actors.errors import InvalidMessage
from actors.nominal import TIME_MAX_MS
from storage.codec import JSON_BYTES_MAX, check_name, encode
from storage.records import Misfire, Mode, Overlap

from .base import (
    DEPENDS_ON_MAX,
    FEEDBACK_CHARS_MAX,
    LIMIT_MAX,
    NODES_MAX,
    PRIORITY_MAX,
    SECONDS_LIMIT,
    SEND_BACKS_MAX_LIMIT,
    TITLE_CHARS_MAX,
    TRIES_MAX_LIMIT,
    Unset,
)

E = TypeVar("E", bound=Enum)
Check = Callable[[Any, str], Any]
Validator = Callable[[Any, "attrs.Attribute[Any]", Any], None]


def checked(check: Check) -> Validator:
    """The validator that runs ``check``. ``None`` and `UNSET` pass where they are the field's default."""

    def validate(_message: object, attribute: attrs.Attribute[Any], value: object) -> None:
        default = attribute.default
        if not ((value is None and default is None) or (isinstance(value, Unset) and value is default)):
            check(value, attribute.name)

    return validate


def optional(check: Check) -> Check:
    """``check`` for a field that may also be ``None``, whatever its default."""
    return lambda value, field: None if value is None else check(value, field)


# --- numbers ------------------------------------------------------------------------------------------------


def an_integer(low: int, high: int) -> Check:
    def check(value: object, field: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidMessage(f"{field} must be an integer, not {value!r}")
        if not low <= value <= high:
            raise InvalidMessage(f"{field} must be from {low} to {high}, not {value}")
        return value

    return check


a_number_of_tries = an_integer(1, TRIES_MAX_LIMIT)
a_number_of_send_backs = an_integer(0, SEND_BACKS_MAX_LIMIT)
a_budget = an_integer(0, LIMIT_MAX)


def _seconds(value: object, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidMessage(f"{field} must be a number of seconds, not {value!r}")
    return float(value)


def seconds_above_zero(value: object, field: str) -> float:
    seconds = _seconds(value, field)
    if not 0 < seconds <= SECONDS_LIMIT:
        raise InvalidMessage(f"{field} must be above 0 s and at most ten years, not {value}")
    return seconds


def seconds_from_zero(value: object, field: str) -> float:
    seconds = _seconds(value, field)
    if not 0 <= seconds <= SECONDS_LIMIT:
        raise InvalidMessage(f"{field} must be at least 0 s and at most ten years, not {value}")
    return seconds


def a_boolean(value: object, field: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidMessage(f"{field} must be true or false, not {value!r}")
    return value


# --- text ---------------------------------------------------------------------------------------------------


def a_name(what: str) -> Check:
    """A name or id; ``what`` says of what."""
    return lambda value, _field: check_name(value, what=what)


a_task_id = a_name("a task id")


def a_chosen_id(value: object, field: str) -> str:
    name: str = a_task_id(value, field)
    if re.fullmatch(r"@[0-9]+", name):
        raise InvalidMessage(f"task id {name!r}: the queue assigns ids of @ and a number; choose another")
    return name


def some_text(value: object, field: str) -> str:
    if not isinstance(value, str):
        raise InvalidMessage(f"{field} must be a string, not {value!r}")
    return value


def some_lines(value: object, field: str) -> str:
    """What a person writes: some lines of text."""
    text = some_text(value, field)
    _refuse_longer(text, field, FEEDBACK_CHARS_MAX)
    if any((ord(char) < 32 and char not in "\n\r\t") or _is_surrogate(char) for char in text):
        raise InvalidMessage(f"{field} must not contain control characters or lone surrogates")
    return text


def some_feedback(value: object, field: str) -> str:
    text = some_lines(value, field)
    if not text.strip():
        raise InvalidMessage(f"{field} must not be blank: say what to do differently")
    return text


def a_title(value: object, field: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidMessage(f"{field} must be a string that is not blank, not {value!r}")
    _refuse_longer(value, field, TITLE_CHARS_MAX)
    if any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 or _is_surrogate(char) for char in value):
        raise InvalidMessage(f"{field} must not contain control characters or lone surrogates")
    return value


def _is_surrogate(char: str) -> bool:
    return 0xD800 <= ord(char) < 0xE000


def _refuse_longer(text: str, field: str, most: int) -> None:
    if len(text) > most:
        raise InvalidMessage(f"{field} has {len(text)} characters, more than the {most} allowed")


def payload_text(value: object, what: str = "payload") -> str | None:
    """The JSON of a payload; ``None`` if there is none. Raises `InvalidJson`."""
    return (
        None
        if value is None or isinstance(value, Unset)
        else encode(value, what=what, bytes_max=JSON_BYTES_MAX)
    )


# --- converters ---------------------------------------------------------------------------------------------


def to_priority(value: int | str) -> int:
    if isinstance(value, str):
        match = re.fullmatch(r"[Pp]?([0-9]{1,7})", value)
        if match is None:
            raise InvalidMessage(f'priority must be an integer or "P" and an integer, not {value!r}')
        value = int(match.group(1))
    priority: int = an_integer(-PRIORITY_MAX, PRIORITY_MAX)(value, "priority")
    return priority


def _member(kind: type[E], value: object, field: str) -> E:
    try:
        return kind(str(value))
    except ValueError:
        *others, last = (f'"{one.value}"' for one in kind)
        raise InvalidMessage(f"{field} must be {', '.join(others)} or {last}, not {value!r}") from None


def to_mode(value: Mode | str) -> Mode:
    return _member(Mode, value, "mode")


def to_overlap(value: Overlap | str) -> Overlap:
    return _member(Overlap, value, "overlap")


def to_misfire(value: Misfire | str) -> Misfire:
    return _member(Misfire, value, "misfire")


def _names(value: object, field: str, limit: int) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidMessage(f"{field} must be a list of names, not {value!r}")
    names = tuple(check_name(item, what=f"a name in {field}") for item in value)
    if len(names) > limit:
        raise InvalidMessage(f"{field} has {len(names)} names, more than the {limit} allowed")
    if len(set(names)) != len(names):
        raise InvalidMessage(f"{field} names {next(n for n in names if names.count(n) > 1)!r} twice")
    return names


def to_after(value: Iterable[str]) -> tuple[str, ...]:
    return _names(value, "after", NODES_MAX)


def to_depends_on(value: Iterable[str]) -> tuple[str, ...]:
    return _names(value, "depends_on", DEPENDS_ON_MAX)


def to_moment(value: datetime | str | None) -> datetime | None:
    """A point in time, in UTC: a datetime with a time zone, or its ISO 8601 text with an offset."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InvalidMessage(f"not_before must be a date and time in ISO 8601, not {value!r}") from None
    if not isinstance(value, datetime):
        raise InvalidMessage(f"not_before must be a datetime with a time zone, not {value!r}")
    if value.utcoffset() is None:
        raise InvalidMessage(
            f"not_before {value.isoformat()} has no time zone, so it is ambiguous: add one, "
            'for example datetime(…, tzinfo=ZoneInfo("Europe/Berlin"))'
        )
    try:
        moment = value.astimezone(UTC)
    except OverflowError:
        moment = None
    if moment is None or not 0 <= milliseconds(moment) < TIME_MAX_MS:
        raise InvalidMessage(f"not_before must be from 1970 to 9998, not {value.isoformat()}")
    return moment


def milliseconds(moment: datetime) -> int:
    """Integer milliseconds UTC, rounded up: a task never starts before the time it was given."""
    return -((_EPOCH - moment) // timedelta(milliseconds=1))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
