"""JSON and text at the edge. Whatever goes into a row is checked here, once.

JSON is canonical (sorted keys, no spaces), so equal values are equal texts. NaN, infinities, lone
surrogates, sets, cycles and values over the limit are refused with ``InvalidJson``. Text from outside
(errors, titles) is cleaned and bounded, never refused: it must always be possible to record a failure.
"""

from __future__ import annotations

import json
import unicodedata
from types import MappingProxyType
from typing import Any

from storage.errors import TurnkeeperError

JSON_BYTES_MAX = 1_048_576
"""Default limit of one payload or result: put larger data in a file and pass its name."""
MESSAGE_CHARS_MAX = 4 * JSON_BYTES_MAX
"""Limit of a whole message, as the schema repeats: the largest payload, and three times that for the nodes."""
JSON_DEPTH_MAX = 200
"""Deeper values would exceed the recursion limit of some JSON readers."""
ERROR_CHARS_MAX = 4_000
"""Enough for a message and the end of a traceback; a row stays small."""
NAME_CHARS_MAX = 128


class InvalidJson(TurnkeeperError, ValueError):
    """A payload or result is not JSON, or too large. The sender's mistake."""


class InvalidName(TurnkeeperError, ValueError):
    """A name or id is not usable: 1 to 128 characters, NFC, no "/", no control characters, no outer whitespace."""


def encode(value: object, *, what: str = "value", bytes_max: int = JSON_BYTES_MAX) -> str:
    """Canonical JSON text of ``value``; raises `InvalidJson`."""
    try:
        if not isinstance(value, int | str):  # neither has keys or depth
            _check(value, bytes_max)
        text = _canonical(value)
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise InvalidJson(f"{what} contains a lone surrogate, which UTF-8 cannot encode") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidJson(f"{what} is not JSON: {error}") from None
    if size > bytes_max:
        raise InvalidJson(f"{what} has {size} bytes as JSON, more than the {bytes_max} allowed")
    return text


def _plain(value: object) -> object:
    """Handlers are given read-only mappings; a result may contain them as ordinary objects."""
    if isinstance(value, MappingProxyType):
        return dict(value)
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


_canonical = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"), default=_plain
).encode


def _check(value: object, items_max: int) -> None:
    """Refuse what ``json.dumps`` would silently convert (keys that are not strings) and what it does not bound:
    depth, and a few lists that contain each other a million times. An item takes at least one byte.
    """
    stack: list[tuple[object, int]] = [(value, 0)]
    items = 0
    while stack:
        item, depth = stack.pop()
        items += 1
        if items > items_max:
            raise ValueError(f"more than {items_max} items")
        if depth > JSON_DEPTH_MAX:
            raise ValueError(f"nested deeper than {JSON_DEPTH_MAX}, or circular")
        if isinstance(item, dict | MappingProxyType):
            if not all(isinstance(key, str) for key in item):
                raise TypeError("keys of an object must be strings")
            stack.extend((child, depth + 1) for child in item.values())
        elif isinstance(item, list | tuple):
            stack.extend((child, depth + 1) for child in item)


def decode(text: str) -> Any:
    """The value of a JSON text that `encode` wrote; raises ``ValueError`` for a row that something else wrote."""
    return json.loads(text)


def clean_text(text: str, *, chars_max: int = ERROR_CHARS_MAX) -> str:
    """Printable, storable and bounded: control characters and surrogates are escaped, the middle is cut out."""
    if len(text) > chars_max:
        half = chars_max // 2
        text = f"{text[:half]} … {len(text) - 2 * half} characters left out … {text[-half:]}"
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if _printable(char) else char.encode("unicode_escape").decode("ascii") for char in text
    )


def _printable(char: str) -> bool:
    return char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cs", "Co", "Cn", "Cf", "Zl", "Zp")


def check_name(value: object, *, what: str) -> str:
    """``value`` if it is a usable name or id; raises `InvalidName`. Names are compared as bytes, never folded."""
    if not isinstance(value, str):
        raise InvalidName(f"{what} must be a string, not {type(value).__name__}")
    if not 1 <= len(value) <= NAME_CHARS_MAX:
        raise InvalidName(f"{what} must have 1 to {NAME_CHARS_MAX} characters, not {len(value)}")
    if "/" in value:
        raise InvalidName(f'{what} {value!r} must not contain "/"')
    if any(not _printable(char) or char in "\n\t" for char in value):
        raise InvalidName(f"{what} {clean_text(value)!r} must not contain control characters")
    if value != value.strip():
        raise InvalidName(f"{what} {value!r} must not begin or end with whitespace")
    if value != unicodedata.normalize("NFC", value):
        raise InvalidName(f"{what} {value!r} must be in Unicode normal form C")
    return value
