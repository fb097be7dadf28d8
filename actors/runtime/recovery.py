"""What became of attempts whose actor, or whose process, is gone; tasks and schedules that cannot be trusted.

An actor that begins finds nodes that are running. The attempt is still alive in this process: it is
adopted. It has ended and its report was not committed: the report is told again. It is nowhere: if this
process started it, it was interrupted; if another did, it died with it (*lost*), and a command that it left
running is ended before the node runs again. Start-up, restart and sweep ask the same question here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import attrs
import trio

from actors.commands import end_orphan, orphan_marks
from actors.core.effects import AttemptKey
from actors.core.healing import ending_runs, running_attempts, superseded_attempts
from actors.core.inputs import Report
from actors.core.state import CompanyState
from actors.core.transitions import Phase
from storage.logging import get_logger
from storage.records import AttemptEnd, EventRecord, ScheduleStatus
from storage.sqlite.statements import SQL
from storage.sqlite.unit_of_work import Committed, write_events

from .attempts import AttemptRef
from .executor import Executor
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
    found = [await services.store.read(_process_of(company_id, key)) for key in keys]
    async with trio.open_nursery() as nursery:
        for key, (pid, started, _) in zip(keys, found, strict=True):
            if pid is not None and started is not None:
                nursery.start_soon(_end_orphan, company, key, pid, started)
    return [
        _orphan(key, host_id == services.host_id) for key, (_, _, host_id) in zip(keys, found, strict=True)
    ]


_Process = tuple[int | None, str | None, int | None]
"""Its pid, when it started, and the host that started it."""


def _process_of(company_id: int, key: AttemptKey) -> Callable[[sqlite3.Connection], _Process]:
    params = {"company_id": company_id, "seq": key.seq, "run": key.run, "pos": key.pos, "number": key.number}
    return lambda conn: conn.execute(SQL["attempt_process"], params).fetchone() or (None, None, None)


async def _end_orphan(company: str, key: AttemptKey, pid: int, started: str) -> None:
    if await end_orphan(pid, started, orphan_marks(company, key.task, key.run, key.number)):
        _log.warning("command.orphan_ended", company=company, task=key.task, run=key.run, pid=pid)


def _orphan(key: AttemptKey, ours: bool) -> Report:
    if ours:
        return Report(key, AttemptEnd.INTERRUPTED, error="the company's actor was restarted", assumed=True)
    return Report(key, AttemptEnd.LOST)


@attrs.frozen
class Quarantine:
    """The unit that sets a task aside, by SQL that decodes nothing: attempts interrupted, an active run
    failed, its slot free.
    """

    company: str
    task: str
    seq: int
    why: str
    traceback: str | None
    now_ms: int

    def __call__(self, conn: sqlite3.Connection) -> tuple[Committed, tuple[EventRecord, ...]]:
        company_id = conn.execute(SQL["find_company"], {"name": self.company}).fetchone()[0]
        key = {"company_id": company_id, "seq": self.seq, "at_ms": self.now_ms, "why": self.why}
        conn.execute(SQL["quarantine_insert"], {**key, "traceback": self.traceback})
        (held,) = conn.execute(SQL["quarantine_reserved"], key).fetchone()
        if held:
            conn.execute(SQL["quarantine_task"], {**key, "held": held})
            conn.execute(SQL["quarantine_company"], {**key, "held": held})
        interrupted = conn.execute(SQL["quarantine_attempts"], key).rowcount
        conn.execute(SQL["quarantine_nodes"], key)
        runs = conn.execute(SQL["quarantine_runs"], key).fetchall()
        events = [
            EventRecord(
                "task.quarantined",
                self.now_ms,
                task=self.task,
                task_seq=self.seq,
                reason=self.why,
                data={"interrupted": interrupted},
            )
        ]
        for number, status in runs:
            data: dict[str, object] = {"skipped": 0} if status == "stopped" else {"nodes": []}
            before = "stopping" if status == "stopped" else "running"
            events.append(
                EventRecord(
                    f"run.{status}",
                    self.now_ms,
                    task=self.task,
                    task_seq=self.seq,
                    run=number,
                    before=before,
                    after=status,
                    reason=self.why,
                    data=data,
                )
            )
        last = conn.execute(
            SQL["number_events"], {"company_id": company_id, "events": len(events)}
        ).fetchone()[0]
        first_seq = last - len(events) + 1
        return Committed(write_events(conn, company_id, first_seq, events), first_seq, ()), tuple(events)


@attrs.frozen
class DisableSchedule:
    """The unit that disables a schedule which cannot be moved; nothing if it is disabled already, or gone."""

    company: str
    schedule: str
    why: str
    now_ms: int

    def __call__(self, conn: sqlite3.Connection) -> tuple[Committed, tuple[EventRecord, ...]]:
        company_id = conn.execute(SQL["find_company"], {"name": self.company}).fetchone()[0]
        key = {"company_id": company_id, "name": self.schedule, "why": self.why}
        rows = conn.execute(SQL["disable_schedule"], key).fetchall()
        events = tuple(
            EventRecord(
                "schedule.disabled",
                self.now_ms,
                before=ScheduleStatus.ACTIVE if paused_ms is None else ScheduleStatus.PAUSED,
                after=ScheduleStatus.DISABLED,
                reason=self.why,
                data={"name": self.schedule},
            )
            for (paused_ms,) in rows
        )
        last = conn.execute(
            SQL["number_events"], {"company_id": company_id, "events": len(events)}
        ).fetchone()[0]
        first_seq = last - len(events) + 1
        return Committed(write_events(conn, company_id, first_seq, events), first_seq, ()), events
