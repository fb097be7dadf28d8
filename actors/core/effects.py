"""What is done once a turn is durable: attempts begin, are told to end, or are let go."""

from __future__ import annotations

from typing import NamedTuple

from storage.values import value

from .shape import NodeSpec


class AttemptKey(NamedTuple):
    """Which attempt: unique for ever inside a company."""

    task: str
    seq: int
    run: int
    pos: int
    number: int


@value
class StartAttempt:
    """Run the handler; the commit has read its inputs."""

    key: AttemptKey
    spec: NodeSpec
    generation: int
    suspect: bool = False
    """It may be what kills the process."""
    input_names: tuple[str, ...] = ()
    """Names of the nodes whose results it is given."""
    feedback: str | None = None
    upstream: bool = False
    """Whether its task depends on others."""


@value
class CancelAttempt:
    """Tell a live attempt to end. ``why`` becomes its end unless it ends otherwise first."""

    key: AttemptKey
    why: str


@value
class EndAttempt:
    """The attempt's end is durable: its registration can go."""

    key: AttemptKey


Effect = StartAttempt | CancelAttempt | EndAttempt
