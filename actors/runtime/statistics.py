"""One snapshot of gauges. Nothing is read from the database and nobody is asked, so it may be called often."""

from __future__ import annotations

import attrs

from actors.runtime.retention.policy import PruneReport
from storage.contract.store import WriterStatistics

from .inbox_host import InboxHost
from .retention.housekeeping import Housekeeper
from .services import Services
from .sweep import Sweeper, SweepReport
from .watchdog import Watchdog


@attrs.frozen
class Statistics:
    """Counts are of this moment. Only companies whose actor is loaded are counted: of the others nothing runs.

    ``queued``, ``active``: tasks; ``executing``, ``waiting``, ``abandoned``: attempts; ``parked``: names of
    companies; ``mailbox_user``, ``mailbox_system``: messages that wait, over all companies; ``inbox``:
    messages of other processes that were taken and are not answered yet; ``wal_bytes``: size of the
    write-ahead log, which grows while somebody, in whatever process, reads an old snapshot; ``writer``:
    batches, units and seconds of the group commit; ``loop_lag_s``: how late the event loop was lately.
    """

    companies: int
    queued: int
    active: int
    executing: int
    waiting: int
    abandoned: int
    executions_max: int
    parked: tuple[str, ...]
    mailbox_user: int
    mailbox_system: int
    inbox: int
    last_sweep: SweepReport | None
    last_prune: PruneReport | None
    wal_bytes: int
    writer: WriterStatistics
    store_available: bool
    loop_lag_s: float


def statistics_of(
    services: Services, sweeper: Sweeper, intake: InboxHost, housekeeper: Housekeeper, watchdog: Watchdog
) -> Statistics:
    cells = services.directory.cells
    states = [cell.memory.state for cell in cells if cell.memory is not None]
    depths = [cell.mailbox.depths for cell in cells]
    return Statistics(
        companies=len(cells),
        queued=sum(state.queued for state in states),
        active=sum(len(state.slots) for state in states),
        executing=services.registry.slots_in_use,
        waiting=services.registry.waiting,
        abandoned=len(services.registry.abandoned),
        executions_max=services.slots.executions_max,
        parked=tuple(cell.name for cell in cells if cell.parked is not None),
        mailbox_user=sum(user for user, _ in depths),
        mailbox_system=sum(system for _, system in depths),
        inbox=intake.under_way,
        last_sweep=sweeper.last,
        last_prune=housekeeper.last,
        wal_bytes=services.store.wal_bytes,
        writer=services.store.statistics,
        store_available=services.store.cause is None,
        loop_lag_s=watchdog.lag_s,
    )
