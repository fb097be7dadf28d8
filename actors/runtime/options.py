"""What a host may choose about its runtime, checked once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from actors.runtime.retention.policy import Retention

from .clock import wall_clock_ms

EXECUTIONS_MAX = 16
"""Attempts that execute at once. Agent steps mostly wait for other machines; computing wants fewer."""
STOP_GRACE_S = 10.0
"""From the cancellation of an attempt to leaving it behind: longer than a command's own way from SIGTERM to SIGKILL."""
DRAIN_S = 30.0
WAITING_MAX = 1_000
"""Attempts that wait at once. Each is a child with its handler's memory; past this, one that waits keeps its slot."""
ABANDONED_MAX = 16
"""Attempts left behind that still live. Each may hold a thread or worse, so past this nothing new starts."""
IDLE_S = 10.0
"""An actor with nothing to do stays so long: a company in conversation is not loaded anew for each message."""


def _a_count(_options: object, field: attrs.Attribute[int], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{field.name} must be an integer of at least 0, not {value!r}")


def _seconds(_options: object, field: attrs.Attribute[float], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise ValueError(f"{field.name} must be a number of seconds of at least 0, not {value!r}")


def _a_retention(_options: object, _field: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, Retention):
        raise ValueError(f"retention must be a Retention, not {value!r}")


@attrs.frozen
class Options:
    """The arguments of `open_runtime`, and the clock. Raises ``ValueError`` for one that makes no sense."""

    handlers: Mapping[str, Callable[[Any], Any]]
    """Name → function of a `Context`."""
    executions_max: int = attrs.field(default=EXECUTIONS_MAX, validator=_a_count)
    stop_grace_s: float = attrs.field(default=STOP_GRACE_S, validator=_seconds)
    drain_s: float = attrs.field(default=DRAIN_S, validator=_seconds)
    idle_s: float = IDLE_S
    waiting_max: int = WAITING_MAX
    abandoned_max: int = ABANDONED_MAX
    retention: Retention = attrs.field(factory=Retention, validator=_a_retention)
    clock_ms: Callable[[], int] = wall_clock_ms
