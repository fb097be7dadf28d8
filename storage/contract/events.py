"""The log: appending to it, and reading it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from storage.records import Claim, EventRecord
from storage.values import value

from .store import CompanyOperation, Operation, Query
from .turns import Committed


@value
class RecordEvents(Operation[int]):
    """Append events of the runtime itself. Answers the position of the first; the others follow it."""

    events: Sequence[EventRecord]


@value
class RecordCompanyEvents(CompanyOperation[Committed]):
    """Append events of a company that no turn tells of, such as a crash of its actor."""

    claim: Claim
    events: Sequence[EventRecord]


@value
class StoredEvent:
    """One line of the log. ``company`` and ``seq``, its number in the company, are none for the runtime's own."""

    position: int
    company: str | None
    seq: int | None
    at_ms: int
    kind: str
    task: str | None
    run: int | None
    node: str | None
    attempt: int | None
    before: str | None
    after: str | None
    reason: str | None
    data: Mapping[str, Any]


@value
class LogPlace:
    """Where a reader of the log is. Begin with ``after`` alone and go on with the place that a page ends at.

    ``after``: the position of the last line seen; ``None`` begins with the oldest line that is kept.
    """

    after: int | None = None
    company_id: int | None = None
    """Which company of that name is followed, once one was found."""
    seq: int = 0
    """The number of the last line of it at or before ``after``."""


@value
class LogLines:
    """The next lines, and the place behind them. ``floor``: lines after the reader's place are gone, up to this
    position; then there are no lines.
    """

    lines: Sequence[StoredEvent]
    place: LogPlace
    floor: int | None = None


@value
class ReadLog(Query[LogLines]):
    """The next ``limit`` lines of the log behind ``place``, of one company if it is named."""

    company: str | None
    place: LogPlace
    limit: int


@value
class LastPosition(Query[int]):
    """The position of the newest line, whether or not it is still kept; 0 if there has been none."""


@value
class TaskEvents(Query[Sequence[StoredEvent] | None]):
    """Every line of one task, oldest first; ``None`` if there is no such task."""

    company: str
    task: str


@value
class LastEventTime(Query[int | None]):
    """When the last event before this position was recorded, by the wall clock; ``None`` if there is none."""

    before: int
