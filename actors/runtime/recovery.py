"""What became of attempts whose actor, or whose process, is gone; tasks and schedules that cannot be trusted.

An actor that begins finds nodes that are running. The attempt is still alive in this process: it is
adopted. It has ended and its report was not committed: the report is told again. It is nowhere: if this
process started it, it was interrupted; if another did, it died with it (*lost*), and a command that it left
running is ended before the node runs again. Start-up, restart and sweep ask the same question here.
"""

from __future__ import annotations

import trio

from actors.commands import end_orphan, orphan_marks
from actors.core.effects import AttemptKey
from actors.core.healing import ending_runs, running_attempts, superseded_attempts
from actors.core.inputs import Report
from actors.core.state import CompanyState
from actors.core.transitions import Phase
from storage.contract.recovery import FindProcesses
from storage.logging import get_logger
from storage.records import AttemptEnd

from .attempts import AttemptRef
from .executor import Executor
from .lookup import place_of
from .services import Services

_log = get_logger("turnkeeper")


async def reports(company: str, state: CompanyState, services: Services, executor: Executor) -> list[Report]:
    """One report for every attempt that has ended without its end being committed. The others are adopted
    as they are.
    """
    running = running_attempts(state)
    gone = [key for key in running if services.registry.get(AttemptRef(company, key)) is None]
    ended = await _orphans(company, state.company.company_id, gone, services)
    # from here on there is no checkpoint: an attempt that ends later is told of by the mailbox
    wanted = set(running)
    for attempt in services.registry.of_company(company):
        if attempt.ref.key not in wanted:
            _disown(attempt.ref, attempt.phase, attempt.report, executor, ended)
        elif attempt.report is not None:
            ended.append(attempt.report)
    for entry in ending_runs(state):
        for key in running_attempts(state, entry):
            executor.cancel(AttemptRef(company, key), "stopped")
    for key in superseded_attempts(state):
        executor.cancel(AttemptRef(company, key), "superseded")
    return ended


def _disown(
    ref: AttemptRef, phase: Phase, report: Report | None, executor: Executor, ended: list[Report]
) -> None:
    """An attempt that no row knows of: it may do no more, and its report will be late."""
    if report is not None:
        ended.append(report)
    elif phase in (Phase.EXECUTING, Phase.WAITING):
        executor.cancel(ref, "superseded")


async def _orphans(company: str, company_id: int, keys: list[AttemptKey], services: Services) -> list[Report]:
    """What became of attempts that nobody runs; the commands that they left are ended first, all at once, as each
    may take some seconds.
    """
    if not keys:
        return []
    asked = FindProcesses(company_id, tuple(place_of(key) for key in keys))
    found = await services.store.fetch(asked)
    async with trio.open_nursery() as nursery:
        for key, process in zip(keys, found, strict=True):
            if process.pid is not None and process.started is not None:
                nursery.start_soon(_end_orphan, company, key, process.pid, process.started)
    return [
        _orphan(key, process.host_id == services.host_id) for key, process in zip(keys, found, strict=True)
    ]


async def _end_orphan(company: str, key: AttemptKey, pid: int, started: str) -> None:
    if await end_orphan(pid, started, orphan_marks(company, key.task, key.run, key.number)):
        _log.warning("command.orphan_ended", company=company, task=key.task, run=key.run, pid=pid)


def _orphan(key: AttemptKey, ours: bool) -> Report:
    if ours:
        return Report(key, AttemptEnd.INTERRUPTED, error="the company's actor was restarted", assumed=True)
    return Report(key, AttemptEnd.LOST)
