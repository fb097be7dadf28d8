"""What everything below the facade needs: made first, frozen, and handed down."""

from __future__ import annotations

from pathlib import Path

import attrs

from actors.core.admission import Live
from actors.core.inputs import Report, Spending
from storage.contract.store import Store
from storage.forks import ForkGuard
from storage.values import changed

from .attempts import Registry
from .directory import Directory
from .notifier import Notifier
from .options import Options
from .progress import ProgressBoard
from .publisher import Publisher
from .shutdown import Shutdown
from .slots import Slots


@attrs.frozen
class Services:
    """``host_id`` names this opening of the database in its rows; ``private_folder`` is where the inputs of
    commands are written.
    """

    store: Store
    options: Options
    host_id: int
    private_folder: Path
    guard: ForkGuard
    notifier: Notifier
    shutdown: Shutdown
    registry: Registry
    directory: Directory
    slots: Slots
    publisher: Publisher
    board: ProgressBoard

    def now_ms(self) -> int:
        """The wall clock."""
        return self.options.clock_ms()

    def post(self, company: str, report: Report | Spending) -> None:
        """Tell a company what became of an attempt, and whoever waits for news of it."""
        self.notifier.notify(company)
        self.directory.post(company, report)

    def check_store(self) -> None:
        """Raise `ForkedProcess` in a forked child, `StoreLost` once nothing can be stored any more."""
        self.guard.check()
        if self.store.lost is not None:
            raise self.store.lost

    @property
    def handler_names(self) -> frozenset[str]:
        return frozenset(self.options.handlers)

    def live(self, company: str) -> Live:
        """What only this process knows about what the company may do now."""
        cell = self.directory.find(company)
        cause = self.store.cause
        suspect = self.registry.suspect
        return Live(
            draining=self.shutdown.draining,
            parked=None if cell is None else cell.parked,
            store_down=None if cause is None else cause.cause,
            abandoned=tuple(a.label for a in self.registry.abandoned) if self.slots.held_up else (),
            alive=frozenset(
                (key.task, key.run, key.pos)
                for key in (attempt.ref.key for attempt in self.registry.of_company(company))
            ),
            suspect=None if suspect is None else suspect.label,
        )

    def live_in_words(self, company: str) -> Live:
        """`live`, with what only readers want to know."""
        named = [
            (attempt, (attempt.ref.key.task, attempt.spec.name))
            for attempt in self.registry.of_company(company)
            if attempt.spec is not None
        ]
        return changed(
            self.live(company),
            slots_free=self.slots.free > 0,
            slot_holders=tuple(attempt.label for attempt in self.registry.holders),
            waiting={node: (a.waiting, a.waiting_since_ms) for a, node in named if a.waiting is not None},
            progress={node: a.progress for a, node in named if a.progress is not None},
        )
