"""What a command line asks for, one value for each family of commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

import attrs

from actors.cli.arguments import TaskName
from actors.cli.message_commands import MessageCommand
from actors.cli.replies import Given

TIMEOUT_S: Final = 10.0
"""How long a command waits for its answer: a running host takes a fraction of a second."""


What = Literal["status", "queue", "explain", "timeline", "log", "result", "inbox"]
"""The commands that only read."""


def _tuple(names: Iterable[TaskName]) -> tuple[TaskName, ...]:
    return tuple(names)


@attrs.frozen
class RunOptions:
    """``run``, and what `demo` is made into. ``executions_max`` is ``None`` for the runtime's own default."""

    db: Path
    plan: Path
    retry: tuple[TaskName, ...] = attrs.field(default=(), converter=_tuple)
    start: tuple[TaskName, ...] = attrs.field(default=(), converter=_tuple)
    executions_max: int | None = None
    durability: Literal["full", "normal"] = "full"
    stay: bool = False
    json: bool = False


@attrs.frozen
class DemoOptions:
    db: Path
    json: bool = False


@attrs.frozen
class ReadOptions:
    """A command that only reads, beside the process that runs the database."""

    db: Path
    what: What
    company: str | None = None
    task: TaskName | None = None
    follow: bool = False
    json: bool = False
    after: int | None = None


@attrs.frozen
class BackupOptions:
    db: Path
    target: Path


@attrs.frozen
class PruneOptions:
    """``days``: how many days to keep what (``events``, ``tasks`` …); what is absent is kept for ever."""

    db: Path
    days: Mapping[str, int] = attrs.field(factory=dict)


@attrs.frozen
class DeleteOptions:
    db: Path
    company: str
    yes: bool = False


MaintenanceOptions = BackupOptions | PruneOptions | DeleteOptions


@attrs.frozen
class SendOptions:
    """A message to the host. ``given`` holds the arguments of the command itself."""

    db: Path
    command: MessageCommand
    given: Given
    later: bool = False
    timeout_s: float = TIMEOUT_S
    message_id: str | None = None
    json: bool = False


Options = RunOptions | DemoOptions | ReadOptions | MaintenanceOptions | SendOptions
