"""The text of a plan: read whole and bounded, parsed, and able to say on which line a key stands.

`tomllib` gives values without places. So when something is wrong with a value, and only then, the text is
gone through once more by a small scanner that knows where keys and table headers stand. It can be small
because the text is known to be valid TOML by then. Keys inside inline tables have no line of their own:
they are reported on that of the key that holds them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs

from actors.sentences import plain

PLAN_BYTES_MAX: Final = 4 * 1024 * 1024
"""A plan of ten thousand tasks has about 3 MB. More than this is not a plan but data, which belongs in
files."""

Place = tuple[str | int, ...]
"""Where a value stands: keys, and indexes (from 0) for the members of lists."""


class PlanError(Exception):
    """A plan cannot be used; nothing was written. One message, with the place as far as it is known."""

    def __init__(self, path: Path, text: str, *, line: int | None = None, key: str | None = None) -> None:
        place = f"{path}:{line}" if line is not None else str(path)
        super().__init__(": ".join(plain(part) for part in (place, key, text) if part))
        self.path = path
        self.text = text
        self.line = line
        self.key = key


@attrs.frozen
class Source:
    """A plan's text and what it says."""

    path: Path
    text: str = attrs.field(repr=False)
    values: dict[str, Any] = attrs.field(repr=False)

    def error(self, place: Place, text: str) -> PlanError:
        """What to raise for a value at ``place``; the line is that of the nearest key that has one."""
        lines = _first_lines(self.text)
        known = (lines.get(place[:length]) for length in range(len(place), 0, -1))
        line = next((line for line in known if line is not None), None)
        return PlanError(self.path, text, line=line, key=self._name(place) or None)

    def line(self, place: Place) -> int | None:
        """The line on which the key or table header of ``place`` first stands."""
        return _first_lines(self.text).get(place)

    def _name(self, place: Place) -> str:
        """``place`` for people: a task or node goes by its id or name if it has one, else by its number,
        from 1."""
        parts: list[str] = []
        value: Any = self.values
        for step in place:
            if isinstance(value, list) and isinstance(step, int):
                value = value[step] if step < len(value) else None
                label = value.get("id", value.get("name")) if isinstance(value, dict) else None
                parts.append(f".{label}" if isinstance(label, str) and label else f"#{step + 1}")
            else:
                value = value.get(step) if isinstance(value, dict) else None
                parts.append(f".{step}")
        return "".join(parts).removeprefix(".")


def read_source(path: Path) -> Source:
    """Read and parse a plan; raises `PlanError` for what is no readable TOML text."""
    data = _read(path)
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PlanError(path, f"not UTF-8 text: {error.reason} at byte {error.start}", line=line) from None
    try:
        return Source(path, text, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(path, text, str(error)) from None
    except RecursionError:
        raise PlanError(path, "not usable TOML: nested too deeply") from None
    except ValueError as error:  # a number or date that Python cannot hold
        raise PlanError(path, f"not usable TOML: {error}") from None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(PLAN_BYTES_MAX + 1)
    except OSError as error:
        raise PlanError(path, f"cannot be read: {error.strerror or error}") from None
    if len(data) > PLAN_BYTES_MAX:
        raise PlanError(path, f"has more than the {PLAN_BYTES_MAX} bytes allowed for a plan")
    return data


def _syntax_error(path: Path, text: str, said: str) -> PlanError:
    match = re.fullmatch(r"(.*) \(at (?:line ([0-9]+), column ([0-9]+)|end of document)\)", said, re.DOTALL)
    if match is None:
        return PlanError(path, f"not TOML: {said}")
    line = int(match[2]) if match[2] else text.rstrip("\n").count("\n") + 1
    column = f" (column {match[3]})" if match[3] else " (at the end)"
    return PlanError(path, f"not TOML: {match[1]}{column}", line=line)


# --- the scanner --------------------------------------------------------------------------------------------

_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_KEY = re.compile(
    r"""[ \t]*((?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
    r"""(?:[ \t]*\.[ \t]*(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'))*)[ \t]*"""
)
_VALUE_PART = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}'  # a string ends at the last of up to five quotes
    r"|'''.*?'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*"
    r"|[\[\]{}\n]"
    r"|[^\"'\#\[\]{}\n]+",
    re.DOTALL,
)


def _first_lines(text: str) -> dict[Place, int]:
    lines: dict[Place, int] = {}
    for place, line in _places(text):
        lines.setdefault(place, line)
    return lines


def _places(text: str) -> Iterator[tuple[Place, int]]:
    """Every key and table header of a valid TOML text with its line, in order."""
    table: Place = ()
    lists: dict[Place, int] = {}
    position = _skip(_BLANK, text, 0)
    lines = _LineCount(text)
    while position < len(text):
        line = lines.at(position)
        brackets = 2 if text.startswith("[[", position) else 1 if text[position] == "[" else 0
        match = _KEY.match(text, position + brackets)
        if match is None:
            return  # not reached for valid TOML; a message without a line is better than none
        keys = _split(match[1])
        if brackets:
            table = _resolve(keys, lists, grow=brackets == 2)
            yield from ((table[:length], line) for length in range(1, len(table) + 1))
            position = match.end() + brackets
        else:
            yield from (((*table, *keys[:length]), line) for length in range(1, len(keys) + 1))
            position = _skip_value(text, match.end() + 1)
        position = _skip(_BLANK, text, position)


class _LineCount:
    """Line of a position, for positions that only rise."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._seen = 0
        self._line = 1

    def at(self, position: int) -> int:
        self._line += self._text.count("\n", self._seen, position)
        self._seen = position
        return self._line


def _split(dotted: str) -> tuple[str, ...]:
    if re.fullmatch(r"[A-Za-z0-9_-]+", dotted):
        return (dotted,)
    keys: list[str] = []
    value: Any = tomllib.loads(f"{dotted} = 0")
    while isinstance(value, dict):
        ((key, value),) = value.items()
        keys.append(key)
    return tuple(keys)


def _resolve(keys: tuple[str, ...], lists: dict[Place, int], *, grow: bool) -> Place:
    """The place of a header: a list of tables on the way stands for its last member."""
    place: Place = ()
    for number, key in enumerate(keys, start=1):
        place = (*place, key)
        if grow and number == len(keys):
            lists[place] = lists.get(place, 0) + 1
        if place in lists:
            place = (*place, lists[place] - 1)
    return place


def _skip_value(text: str, position: int) -> int:
    depth = 0
    while position < len(text):
        match = _VALUE_PART.match(text, position)
        if match is None:
            return len(text)
        part = match[0]
        if part == "\n" and depth == 0:
            return match.end()
        depth += (part in "[{") - (part in "]}")
        position = match.end()
    return position


def _skip(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return match.end() if match else position
