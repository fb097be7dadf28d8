"""What became of attempts whose actor, or whose process, is gone; tasks and schedules that cannot be trusted.

An actor that begins finds nodes that are running. The attempt is still alive in this process: it is
adopted. It has ended and its report was not committed: the report is told again. It is nowhere: if this
process started it, it was interrupted; if another did, it died with it (*lost*), and a command that it left
running is ended before the node runs again. Start-up, restart and sweep ask the same question here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
import trio

from actors.commands import end_orphan, orphan_marks
from actors.core.advance import attempt_key, cancel_nodes
from actors.core.draft import AttemptKey, CancelAttempt, Draft
from actors.core.entry import Entry
from actors.core.reports import Report, decide_report
from actors.core.state import CompanyState
from actors.core.transitions import Phase
from storage.contract.recovery import FindProcesses
from storage.records import AttemptEnd, NodeStatus, RunRecord, RunStatus

from .attempts import AttemptRef
from .lookup import place_of

if TYPE_CHECKING:
    from .company import Surroundings

_log = structlog.get_logger("turnkeeper")

LOOKED_MAX = 1_000
"""Tasks that one sweep derives anew in one company: a few milliseconds, however long its backlog is."""


class BadRow(Exception):
    """A text in the task's rows cannot be read back."""

    def __init__(self, task: str, why: str) -> None:
        super().__init__(f"bad row: {why}")
        self.task = task


def running_attempts(state: CompanyState, only: Entry | None = None) -> list[AttemptKey]:
    """The attempts that the rows say are running; with ``only`` those of one run."""
    keys: list[AttemptKey] = []
    for entry in [state.entries[task] for task in state.slots.values()] if only is None else [only]:
        if entry.progress is not None and entry.nodes is not None:
            keys.extend(attempt_key(entry, entry.nodes[pos]) for pos in sorted(entry.progress.running))
    return keys


async def reports(company: str, state: CompanyState, around: Surroundings) -> list[Report]:
    """One report for every attempt that has ended without its end being committed. The others are adopted
    as they are.
    """
    running = running_attempts(state)
    gone = [key for key in running if around.registry.get(AttemptRef(company, key)) is None]
    ended = await _orphans(company, state.company.company_id, gone, around)
    # from here on there is no checkpoint: an attempt that ends later is told of by the mailbox
    wanted = set(running)
    for attempt in around.registry.of_company(company):
        if attempt.ref.key not in wanted:
            _disown(attempt.ref, attempt.phase, attempt.report, around, ended)
        elif attempt.report is not None:
            ended.append(attempt.report)
    for entry in ending_runs(state):
        for key in running_attempts(state, entry):
            around.executor.cancel(AttemptRef(company, key), "stopped")
    for key in superseded_attempts(state):
        around.executor.cancel(AttemptRef(company, key), "superseded")
    return ended


def superseded_attempts(state: CompanyState) -> list[AttemptKey]:
    """Running attempts that work with what was sent back: they too were told to end."""
    return [
        attempt_key(entry, entry.nodes[pos])
        for entry in (state.entries[task] for task in state.slots.values())
        if entry.progress is not None and entry.nodes is not None
        for pos in sorted(entry.progress.running)
        if entry.nodes[pos].superseded
    ]


def ending_runs(state: CompanyState) -> list[Entry]:
    """Active runs whose attempts were told to end: asking them again is harmless, forgetting them is not."""
    entries = [state.entries[task] for task in state.slots.values()]
    return [entry for entry in entries if entry.run is not None and _is_ending(entry, entry.run)]


def _is_ending(entry: Entry, run: RunRecord) -> bool:
    failed = entry.progress is not None and entry.progress.counts[NodeStatus.FAILED] > 0
    return run.status is RunStatus.STOPPING or (entry.task.fail_fast and failed)


def _disown(
    ref: AttemptRef, phase: Phase, report: Report | None, around: Surroundings, ended: list[Report]
) -> None:
    """An attempt that no row knows of: it may do no more, and its report will be late."""
    if report is not None:
        ended.append(report)
    elif phase in (Phase.EXECUTING, Phase.WAITING):
        around.executor.cancel(ref, "superseded")


async def _orphans(
    company: str, company_id: int, keys: list[AttemptKey], around: Surroundings
) -> list[Report]:
    """What became of attempts that nobody runs; the commands that they left are ended first, all at once, as each
    may take some seconds.
    """
    if not keys:
        return []
    asked = FindProcesses(company_id, tuple(place_of(key) for key in keys))
    found = await around.database.fetch(asked)
    async with trio.open_nursery() as nursery:
        for key, process in zip(keys, found, strict=True):
            if process.pid is not None and process.started is not None:
                nursery.start_soon(_end_orphan, company, key, process.pid, process.started)
    return [_orphan(key, process.host_id == around.host_id) for key, process in zip(keys, found, strict=True)]


async def _end_orphan(company: str, key: AttemptKey, pid: int, started: str) -> None:
    if await end_orphan(pid, started, orphan_marks(company, key.task, key.run, key.number)):
        _log.warning("command.orphan_ended", company=company, task=key.task, run=key.run, pid=pid)


def _orphan(key: AttemptKey, ours: bool) -> Report:
    if ours:
        return Report(key, AttemptEnd.INTERRUPTED, error="the company's actor was restarted", assumed=True)
    return Report(key, AttemptEnd.LOST)


def look_again(draft: Draft, company: str, around: Surroundings, unseen: list[str]) -> bool:
    """The sweep's question to an actor that lives: is everything that should run really there? Says whether
    it was not.

    What waits is derived anew in turn, a bounded number at a time: ``unseen`` are those that are still to come,
    and is filled again when it is empty.
    """
    healed = False
    state = draft.state
    for key in running_attempts(state):
        if around.registry.get(AttemptRef(company, key)) is None:
            decide_report(
                draft,
                Report(
                    key,
                    AttemptEnd.INTERRUPTED,
                    error="found by the sweep: nobody was running it",
                    assumed=True,
                ),
            )
            healed = True
    for entry in ending_runs(state):
        cancel_nodes(draft, entry, "stopped")
    draft.effects.extend(CancelAttempt(key, "superseded") for key in superseded_attempts(state))
    if not unseen:
        unseen.extend(reversed(state.entries))
    for _ in range(min(len(unseen), LOOKED_MAX)):
        seen = state.entries.get(unseen.pop())
        if seen is None or seen.run is None:
            continue
        if seen.run.status is RunStatus.QUEUED or seen.run.status.active:
            state.refresh(seen, cause=seen.task.id)
    return healed
