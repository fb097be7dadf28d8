"""Reading a plan's tables field by field, with the place of every mistake.

What a message checks is not checked again here: the message is built, and what it says of a wrong value is
passed on with the place of that value. So a plan accepts exactly what a program could send.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, NoReturn, TypeVar

import attrs

from actors import InvalidJson, InvalidMessage, InvalidName
from actors.cli.source import Place, Source

T = TypeVar("T")

_REFUSALS: Final = (InvalidMessage, InvalidName, InvalidJson)


@attrs.frozen
class Table:
    """One table of the plan and where it stands."""

    source: Source = attrs.field(repr=False)
    place: Place
    values: Mapping[str, Any]

    def fail(self, text: str, key: str | None = None) -> NoReturn:
        raise self.source.error(self.place if key is None else (*self.place, key), text) from None

    def get(self, key: str) -> Any:
        return self.values.get(key)

    def has(self, key: str) -> bool:
        return key in self.values

    def given(self, keys: Collection[str]) -> list[str]:
        """Those of ``keys`` that the table has, in the order of ``keys``."""
        return [key for key in keys if key in self.values]

    def allow(self, keys: Collection[str]) -> None:
        """Refuse a key that is not one of ``keys``."""
        for key in self.values:
            if key not in keys:
                self.fail(f"unknown key{did_you_mean(key, keys)}", key)

    def text(self, key: str) -> str | None:
        """Text that is not blank and holds no NUL, which no system call takes."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            self.fail(f"must be text, not {describe(value)}", key)
        if not value.strip() or "\0" in value:
            self.fail("must not be blank, nor hold a NUL character", key)
        return value

    def table(self, key: str) -> Table | None:
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.fail(f"must be a table, not {describe(value)}", key)
        return Table(self.source, (*self.place, key), value)

    def named_tables(self, key: str) -> Iterator[tuple[str, Table]]:
        """The tables inside the table ``key``, by name."""
        outer = self.table(key)
        for name in outer.values if outer is not None else ():
            inner = outer.table(name) if outer is not None else None
            if inner is not None:
                yield name, inner

    def tables(self, key: str) -> list[Table]:
        """The list of tables ``key``; empty if it is not there."""
        value = self.values.get(key, [])
        header = ".".join(str(step) for step in (*self.place, key) if isinstance(step, str))
        if isinstance(value, dict):
            self.fail(f"must be a list of tables: write [[{header}]] with two brackets", key)
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self.fail(f"must be a list of tables, not {describe(value)}", key)
        return [Table(self.source, (*self.place, key, number), item) for number, item in enumerate(value)]

    def build(
        self,
        make: Callable[..., T],
        arguments: Mapping[str, Any],
        keys: Mapping[str, str],
        beside: Callable[[str], Mapping[str, Any]] | None = None,
    ) -> T:
        """``make(**arguments)``; a refusal becomes a `PlanError` at the argument that is to blame.

        ``keys`` maps an argument to the key it was read from, where the two differ. ``beside`` gives harmless
        arguments that one of them needs beside it, where that is not plain.
        """
        try:
            return make(**arguments)
        except _REFUSALS as error:
            blamed = _blame(make, arguments, beside)
            key = keys.get(blamed, blamed) if blamed is not None else None
            self.fail(str(error), key if key in self.values else None)


def _blame(
    make: Callable[..., object],
    arguments: Mapping[str, Any],
    beside: Callable[[str], Mapping[str, Any]] | None,
) -> str | None:
    """The argument that is refused also when the others are harmless; ``None`` if it takes several
    together."""
    required = {"title": "x", "name": "x", "nodes": ()}
    fields = set(attrs.fields_dict(make)) if isinstance(make, type) else set()
    harmless = {name: value for name, value in required.items() if name in fields and name in arguments}
    for name, value in arguments.items():
        try:
            make(**{**harmless, **(beside(name) if beside is not None else {}), name: value})
        except _REFUSALS:
            return name
    return None


def did_you_mean(word: str, known: Collection[str]) -> str:
    """A hint to add to a message about an unknown word; names the near one, or all if they are few."""
    near = difflib.get_close_matches(word, known, n=1)
    if near:
        return f': did you mean "{near[0]}"?'
    if 0 < len(known) <= _NAMED_MAX:
        return f"; known here: {', '.join(known)}"
    return ""


_NAMED_MAX: Final = 20


def describe(value: object) -> str:
    """A value of TOML in its own words, short enough for a message."""
    kinds = {
        bool: "true or false",
        dict: "a table",
        list: "a list",
        str: "text",
        int: "a number",
        float: "a number",
    }
    kind = kinds.get(type(value), "a date or time")
    if isinstance(value, dict | list):
        return kind
    shown = str(value)
    return f"{kind} ({shown[:40]}{'…' if len(shown) > 40 else ''})"
