"""One snapshot of gauges. Nothing is read from the database and nobody is asked, so it may be called often."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from actors.runtime.retention.policy import PruneReport
from storage.contract.store import WriterStatistics

from .sweep import SweepReport

if TYPE_CHECKING:
    from .runtime import Runtime


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


def statistics_of(runtime: Runtime) -> Statistics:
    cells = runtime.supervisor.cells
    states = [cell.actor.state for cell in cells if cell.actor is not None and cell.actor.state is not None]
    depths = [cell.mailbox.depths for cell in cells]
    return Statistics(
        companies=len(cells),
        queued=sum(state.queued for state in states),
        active=sum(len(state.slots) for state in states),
        executing=runtime.registry.slots_in_use,
        waiting=runtime.registry.waiting,
        abandoned=len(runtime.registry.abandoned),
        executions_max=runtime.slots.executions_max,
        parked=tuple(cell.name for cell in cells if cell.parked is not None),
        mailbox_user=sum(user for user, _ in depths),
        mailbox_system=sum(system for _, system in depths),
        inbox=runtime.intake.under_way,
        last_sweep=runtime.last_sweep,
        last_prune=runtime.last_prune,
        wal_bytes=runtime.database.wal_bytes,
        writer=runtime.database.statistics,
        store_available=runtime.database.cause is None,
        loop_lag_s=runtime.watchdog.lag_s,
    )
