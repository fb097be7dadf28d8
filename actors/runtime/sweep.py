"""The sweep: a periodic pass that heals what wakes and reports missed. Start-up is a sweep, by the same code.

Companies with something running, or a due time that has passed, are asked every time; those that only have
tasks queued, oldest-checked first, up to a thousand a pass. It goes page by page, one company's error does
not stop it, and it needs no slot.

Asking a company that has left brings it back with all that waits in it. One with a long backlog is therefore
left in peace for a time that grows with it, so that a system that only waits costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import trio

from storage.contract.companies import FindSweepCompanies, MarkChecked
from storage.logging import get_logger
from storage.records import EventRecord

from .describe import describe
from .mailbox import Envelope, Sweep
from .services import Services

_log = get_logger("turnkeeper")

EVERY_S = 60.0
PAGE = 100
QUEUED_MAX = 1_000
"""Companies with nothing but queued tasks that one pass asks."""
TASKS_A_SECOND = 100
"""Tasks that wait and are loaded only to be looked at, on average."""
ANSWER_S = 30.0
"""How long one page of companies may take to look; the next pass asks again."""


@attrs.frozen
class SweepReport:
    """The last pass: when it ended, how many companies it asked, how many of them it healed."""

    at_ms: int
    companies: int
    healed: int
    errors: int


class Sweeper:
    def __init__(self, services: Services) -> None:
        self._services = services
        self.last: SweepReport | None = None
        self._rests_until_s: dict[str, float] = {}
        """Companies with a long backlog, until when they are left in peace."""

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Sweep for ever. Never overlaps itself."""
        while True:
            await trio.sleep(EVERY_S)
            try:
                await self.sweep()
            except Exception as error:  # the store is away, or a mistake of ours: the next pass tries again
                _log.warning("sweep.failed", cause=describe(error), exc_info=error)

    async def sweep(self) -> SweepReport:
        """One pass over everything that may need it."""
        now_ms = self._services.now_ms()
        found = await self._services.store.fetch(FindSweepCompanies(now_ms, QUEUED_MAX))
        urgent = dict.fromkeys(found.urgent)
        resting = self._at_rest(name for name in found.waiting if name not in urgent)
        await self._mark_checked(list(resting))  # or they would be the oldest for ever
        names = list(urgent | dict.fromkeys(name for name in found.waiting if name not in resting))
        asked = healed = errors = 0
        for start in range(0, len(names), PAGE):
            page = names[start : start + PAGE]
            page_healed, page_errors = await self._ask(page)
            asked += len(page)
            healed += page_healed
            errors += page_errors
        self.last = SweepReport(self._services.now_ms(), asked, healed, errors)
        if healed:
            data = {"healed": healed, "companies": asked}
            await self._services.publisher.record(EventRecord("sweep.finished", self.last.at_ms, data=data))
        return self.last

    def _at_rest(self, names: Iterable[str]) -> set[str]:
        """Those that are not there and were looked at not long ago, as their backlog goes."""
        now_s = trio.current_time()
        self._rests_until_s = {name: until for name, until in self._rests_until_s.items() if until > now_s}
        return {
            name
            for name in names
            if name in self._rests_until_s and self._services.directory.memory(name) is None
        }

    def _note_backlogs(self, names: Iterable[str]) -> None:
        for name in names:
            memory = self._services.directory.memory(name)
            if memory is not None:
                rest_s = len(memory.state.entries) / TASKS_A_SECOND
                if rest_s > EVERY_S:
                    self._rests_until_s[name] = trio.current_time() + rest_s

    async def _ask(self, names: list[str]) -> tuple[int, int]:
        """Ask a page of companies to look again; says how many were healed and how many could not be asked."""
        sweeps: list[Sweep] = []
        errors = 0
        for name in names:
            sweep = Sweep()
            try:
                cell = self._services.directory.cell(name)
                if cell.parked is None:  # one that is parked looks when its rest is over
                    cell.mailbox.put_nowait(Envelope(sweep))
                    sweeps.append(sweep)
            except Exception as error:  # one company's, whatever it is
                errors += 1
                _log.warning("sweep.company_failed", company=name, cause=describe(error))
        healed = 0
        with trio.move_on_after(ANSWER_S) as scope:
            for sweep in sweeps:
                healed += bool(await sweep.healed.wait())
        if scope.cancelled_caught:
            errors += 1
        self._note_backlogs(names)
        await self._mark_checked(names)
        return healed, errors

    async def _mark_checked(self, names: list[str]) -> None:
        if names:
            await self._services.store.commit(MarkChecked(names, self._services.now_ms()))
