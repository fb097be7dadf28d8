"""Arguments of the command line as values: what a command takes, and how each word of it is read."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

DIGITS_MAX: Final = 18


@attrs.frozen
class TaskName:
    """A task as the command line names it: ``company/task``."""

    company: str
    task: str

    def __str__(self) -> str:
        return f"{self.company}/{self.task}"


@attrs.frozen(init=False)
class Argument:
    """One argument of a command: its flags, or the name of a positional one, and the settings of argparse."""

    flags: tuple[str, ...]
    settings: Mapping[str, Any] = attrs.field(hash=False)

    def __init__(self, *flags: str, **settings: Any) -> None:
        self.__attrs_init__(flags, settings)

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        parser.add_argument(*self.flags, **self.settings)

    @property
    def required_word(self) -> str | None:
        """What the help calls a positional argument; ``None`` for an option."""
        return None if self.flags[0].startswith("-") else str(self.settings["metavar"])


@attrs.frozen(init=False)
class OneOf:
    """Options of which at most one may be given."""

    options: tuple[Argument, ...]
    required_word: None = None

    def __init__(self, *options: Argument) -> None:
        self.__attrs_init__(options)

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        group = parser.add_mutually_exclusive_group()
        for option in self.options:
            option.add_to(group)


Arguments = Sequence[Argument | OneOf]


def option(flag: str, metavar: str, help: str, **settings: Any) -> Argument:
    """An option that takes a value."""
    return Argument(flag, metavar=metavar, help=help, **settings)


def switch(flag: str, help: str, **settings: Any) -> Argument:
    """An option that takes none."""
    return Argument(flag, help=help, **{"action": "store_true", **settings})


# --- how a word is read -------------------------------------------------------------------------------------


def task_name(text: str) -> TaskName:
    company, slash, task = text.partition("/")
    if not (slash and company and task) or "/" in task:
        raise argparse.ArgumentTypeError(f"a task is named COMPANY/TASK, not {text!r}")
    return TaskName(company, task)


def integer(text: str) -> int:
    if not _is_number(text.removeprefix("-")):
        raise argparse.ArgumentTypeError(f"must be an integer, not {text!r}")
    return int(text)


def count(text: str) -> int:
    if not _is_number(text):
        raise argparse.ArgumentTypeError(f"must be an integer of 0 or more, not {text!r}")
    return int(text)


def _is_number(digits: str) -> bool:
    return digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX


def seconds(text: str) -> float:
    value = number(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of seconds of 0 or more, not {text!r}")
    return value


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number of seconds of 0 or more, not {text!r}") from None


def json_value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"must be JSON: {error}") from None


def priority(text: str) -> int | str:
    """An integer, or ``P2`` and the like, which the message reads itself."""
    return text if text[:1] in ("P", "p") else integer(text)


def integer_or_none(text: str) -> int | None:
    return None if text == "none" else integer(text)


def moment_or_none(text: str) -> str | None:
    """A moment, which the message reads itself."""
    return None if text == "none" else text
