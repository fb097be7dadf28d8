"""What an actor needs of the process around it."""

from __future__ import annotations

from typing import Protocol

from actors.core.admission import Live
from storage.database import Database
from storage.records import EventRecord
from storage.units import Committed

from .attempts import Registry
from .execution import Executor
from .slots import Slots


class Surroundings(Protocol):
    """What an actor needs of the runtime."""

    database: Database
    registry: Registry
    slots: Slots
    executor: Executor
    handlers: frozenset[str]
    host_id: int
    idle_s: float

    def now_ms(self) -> int: ...
    def live(self, company: str) -> Live: ...
    def published(self, company: str, events: tuple[EventRecord, ...], committed: Committed) -> None: ...
    def leave(self, company: str, due_ms: int | None, *, works: bool) -> bool: ...
    def quiet(self, company: str) -> None: ...
