"""The process that runs the database: its beginning and its end."""

from __future__ import annotations

from storage.records import EventRecord
from storage.values import value

from .store import Operation


@value
class HostBegun:
    """``host_id`` is never reused. ``event`` is the first line of the process, at ``position``."""

    host_id: int
    position: int
    event: EventRecord


@value
class BeginHost(Operation[HostBegun]):
    """Enter this process as the host, and append ``process.started``."""

    pid: int
    now_ms: int


@value
class EndHost(Operation[int]):
    """The host ends in good order. Answers the position of ``event``, which says so."""

    host_id: int
    now_ms: int
    event: EventRecord
