"""Events that are durable become visible: told to structlog as the host configured it, and to readers of the log.

Nothing is told before it is stored, but for an outage of the store: that is said at once and stored when the store
takes changes again.
"""

from __future__ import annotations

import logging

import structlog

from actors.errors import StoreUnavailable
from actors.events import KINDS
from storage.contract.events import RecordCompanyEvents, RecordEvents
from storage.contract.store import Store
from storage.contract.turns import Committed
from storage.errors import StoreLost
from storage.logging import get_logger
from storage.records import Claim, EventRecord

from .attempts import Attempt
from .notifier import Notifier
from .shutdown import Shutdown

_log = get_logger("turnkeeper")


class Publisher:
    def __init__(self, store: Store, notifier: Notifier, shutdown: Shutdown) -> None:
        self._store = store
        self._notifier = notifier
        self._shutdown = shutdown
        self._outage: EventRecord | None = None

    def published(self, company: str, events: tuple[EventRecord, ...], committed: Committed) -> None:
        """These events of a company are durable."""
        for place, event in enumerate(events):
            if self._shutdown.closing and event.kind == "attempt.interrupted" and event.task is not None:
                label = f"{company}/{event.task}/{event.run}/{event.node}/{event.attempt}"
                self._shutdown.interrupted.add(label)
            _emit(company, committed.first_seq + place, committed.first_position + place, event)
        self._notifier.notify(company)

    def told(self, position: int, event: EventRecord) -> None:
        """An event of the runtime itself is durable."""
        _emit(None, None, position, event)
        self._notifier.notify()

    async def record(self, event: EventRecord) -> None:
        """Store an event of the runtime itself."""
        self.told(await self._store.commit(RecordEvents((event,))), event)

    async def record_of_company(self, claim: Claim, event: EventRecord) -> None:
        """Store an event about a company's actor, which needs no turn to be stored."""
        committed = await self._store.commit(RecordCompanyEvents(claim, (event,)))
        self.published(claim.name, (event,), committed)

    # --- an outage of the store -----------------------------------------------------------------------------

    def store_down(self, error: StoreUnavailable, now_ms: int) -> None:
        """Said at once, stored when that is possible again."""
        data = {"cause": error.cause}
        self._outage = EventRecord("store.unavailable", now_ms, reason=error.cause, data=data)
        _log.error("store.unavailable", cause=error.cause)
        self._notifier.notify()

    def store_lost(self, error: StoreLost) -> None:
        """Said in the log only: there is nothing left in which it could be stored."""
        _log.error("store.lost", cause=error.cause, advice=error.advice)
        self._notifier.notify()

    def store_up(self, outage_s: float, now_ms: int) -> None:
        began, self._outage = self._outage, None
        over = EventRecord("store.recovered", now_ms, data={"outage_s": round(outage_s, 3)})
        events = tuple(event for event in (began, over) if event is not None)
        self._store.submit(RecordEvents(events))
        _log.info("store.recovered", outage_s=outage_s)
        self._notifier.notify()


def quiet_event(attempt: Attempt, quiet_s: float, now_ms: int) -> EventRecord:
    """Half of the stall limit is over: said while there is still time to look."""
    key, spec = attempt.ref.key, attempt.spec
    assert spec is not None
    return EventRecord(
        "attempt.quiet",
        now_ms,
        task=key.task,
        task_seq=key.seq,
        run=key.run,
        node=spec.name,
        attempt=key.number,
        data={"quiet_s": round(quiet_s, 3), "stall_s": spec.stall_s},
    )


def _emit(company: str | None, seq: int | None, position: int, event: EventRecord) -> None:
    try:
        _say(company, seq, position, event)
    except Exception:  # the host's own processors or its stream; the log itself is stored already
        logging.getLogger("turnkeeper").exception("structlog failed on an event")


def _say(company: str | None, seq: int | None, position: int, event: EventRecord) -> None:
    kind = KINDS[event.kind]
    if not structlog.is_configured() and kind.level == "info":
        return  # an unconfigured structlog prints to standard output, which is the host's
    fields = {
        "company": company,
        "task": event.task,
        "run": event.run,
        "node": event.node,
        "attempt": event.attempt,
        "before": event.before,
        "after": event.after,
        "reason": event.reason,
    }
    said = {name: value for name, value in fields.items() if value is not None}
    clash = {f"data_{name}" if name in fields else name: value for name, value in event.data.items()}
    getattr(_log, kind.level)(event.kind, position=position, seq=seq, at_ms=event.at_ms, **said, **clash)
