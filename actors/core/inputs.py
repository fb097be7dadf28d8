"""What a turn is about: messages, what attempts say, and the sweep's question."""

from __future__ import annotations

from typing import Any

from actors.messages import Message
from storage.records import AttemptEnd
from storage.values import value

from .effects import AttemptKey


@value
class Said:
    """A message. ``told``: nobody waits for its answer, so a refusal becomes an event. ``inbox`` is the number of its
    row if it came from another process: its answer is written there.
    """

    message: Message[Any]
    told: bool = False
    inbox: int | None = None


@value
class Report:
    """What an attempt says of itself when it has ended.

    ``result`` is JSON text, for a success only. ``give_up``: no further try. ``again_s``: the handler asked
    to be tried again in so many seconds, at no cost. ``abandoned``: it did not end within the grace and was
    left behind. ``bad_row``: what it was to be given cannot be read; its task is not to be trusted.
    ``illegal_phase``: where it was when it made a move outside its table. ``node``: the node's name.
    ``spent``: what it spent in all, if it was expected to or did. ``assumed``: it is not there to say that.
    """

    key: AttemptKey
    end: AttemptEnd
    result: str | None = None
    error: str | None = None
    give_up: bool = False
    again_s: float | None = None
    abandoned_after_s: float | None = None
    bad_row: str | None = None
    illegal_phase: str | None = None
    node: str | None = None
    spent: int | None = None
    assumed: bool = False


@value
class Spending:
    """What a live attempt has spent since it began, as far as it has said. ``node`` is the node's name."""

    key: AttemptKey
    spent: int
    node: str | None = None


@value
class Sweep:
    """Is everything that should run really there? ``alive`` are the company's attempts that are."""

    alive: frozenset[AttemptKey]


@value
class Dropped:
    """A message that was told and came to nothing, because the database refused what it did. Only an event says so."""

    message: str
    reason: str


Input = Said | Report | Spending | Sweep | Dropped
