"""What one turn of an actor is about, from its envelopes to the inputs of the pure turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import attrs

from actors.core import inputs
from actors.core.effects import AttemptKey
from actors.core.inputs import Dropped, Input, Report, Said
from actors.messages import Message

from .mailbox import Envelope, Sweep


@attrs.define
class Taken:
    envelopes: list[Envelope]
    reports: Sequence[Report] = ()
    """Told by the registry at the actor's start, not by the mailbox."""
    dropped: Sequence[Dropped] = ()

    @property
    def said(self) -> bool:
        """Whether it is about anything that was said."""
        return bool(self.envelopes or self.reports)

    @property
    def swept(self) -> bool:
        """Whether nobody said anything but the sweep."""
        return bool(self.envelopes) and all(isinstance(one.content, Sweep) for one in self.envelopes)

    def inputs(self, alive: Callable[[], Iterable[AttemptKey]]) -> list[Input]:
        """The inputs of the turn, those of the envelopes last. ``alive`` says which attempts of the company
        are registered; only a sweep asks."""
        return [*self.dropped, *self.reports, *[_input(envelope, alive) for envelope in self.envelopes]]

    def envelope_at(self, place: int | None) -> Envelope | None:
        """The envelope whose input stands there."""
        first = len(self.dropped) + len(self.reports)
        return None if place is None or place < first else self.envelopes[place - first]

    def fail(self, error: BaseException) -> None:
        """Tell everybody who waits for an answer."""
        for envelope in self.envelopes:
            envelope.fail(error)


def _input(envelope: Envelope, alive: Callable[[], Iterable[AttemptKey]]) -> Input:
    content = envelope.content
    if isinstance(content, Message):
        return Said(content, told=envelope.reply is None, inbox=envelope.inbox)
    if isinstance(content, Sweep):
        return inputs.Sweep(frozenset(alive()))
    return content
