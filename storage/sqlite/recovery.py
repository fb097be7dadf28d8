"""Tasks and schedules that cannot be trusted, and processes left behind; see `storage.contract.recovery`.

Nothing here decodes a row, so it works on rows that nobody can read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from storage.contract.recovery import (
    AttemptProcess,
    DisableSchedule,
    FindProcesses,
    FindTask,
    Quarantine,
    RecordProcess,
    TaskStanding,
    Told,
)
from storage.contract.turns import AttemptPlace
from storage.records import EventRecord, ScheduleStatus

from .engine import operation, query
from .events import write_company_events
from .statements import SQL


@operation(Quarantine)
def quarantine(conn: sqlite3.Connection, asked: Quarantine) -> Told:
    company_id = asked.claim.company_id
    key = {"company_id": company_id, "seq": asked.seq, "at_ms": asked.now_ms, "why": asked.why}
    conn.execute(SQL["quarantine_insert"], {**key, "traceback": asked.traceback})
    (held,) = conn.execute(SQL["quarantine_reserved"], key).fetchone()
    if held:
        conn.execute(SQL["quarantine_task"], {**key, "held": held})
        conn.execute(SQL["quarantine_company"], {**key, "held": held})
    interrupted = conn.execute(SQL["quarantine_attempts"], key).rowcount
    conn.execute(SQL["quarantine_nodes"], key)
    runs = conn.execute(SQL["quarantine_runs"], key).fetchall()
    events = (
        _about(asked, "task.quarantined", data={"interrupted": interrupted}),
        *(_run_ended(asked, number, status) for number, status in runs),
    )
    return write_company_events(conn, company_id, events), events


def _run_ended(asked: Quarantine, number: int, status: str) -> EventRecord:
    stopped = status == "stopped"
    return _about(
        asked,
        f"run.{status}",
        run=number,
        before="stopping" if stopped else "running",
        after=status,
        data={"skipped": 0} if stopped else {"nodes": []},
    )


def _about(
    asked: Quarantine,
    kind: str,
    *,
    data: Mapping[str, object],
    run: int | None = None,
    before: str | None = None,
    after: str | None = None,
) -> EventRecord:
    return EventRecord(
        kind,
        asked.now_ms,
        task=asked.task,
        task_seq=asked.seq,
        run=run,
        before=before,
        after=after,
        reason=asked.why,
        data=data,
    )


@operation(DisableSchedule)
def disable_schedule(conn: sqlite3.Connection, asked: DisableSchedule) -> Told:
    company_id = asked.claim.company_id
    key = {"company_id": company_id, "name": asked.schedule, "why": asked.why}
    events = tuple(
        EventRecord(
            "schedule.disabled",
            asked.now_ms,
            before=ScheduleStatus.ACTIVE if paused_ms is None else ScheduleStatus.PAUSED,
            after=ScheduleStatus.DISABLED,
            reason=asked.why,
            data={"name": asked.schedule},
        )
        for (paused_ms,) in conn.execute(SQL["disable_schedule"], key).fetchall()
    )
    return write_company_events(conn, company_id, events), events


@operation(RecordProcess)
def record_process(conn: sqlite3.Connection, asked: RecordProcess) -> None:
    stored = {"pid": asked.pid, "pid_started": asked.started}
    conn.execute(SQL["set_attempt_process"], {**stored, **place(asked.claim.company_id, asked.attempt)})


@query(FindProcesses)
def find_processes(conn: sqlite3.Connection, asked: FindProcesses) -> tuple[AttemptProcess, ...]:
    found = (
        conn.execute(SQL["attempt_process"], place(asked.company_id, attempt)).fetchone()
        for attempt in asked.attempts
    )
    return tuple(AttemptProcess() if row is None else AttemptProcess(*row) for row in found)


@query(FindTask)
def find_task(conn: sqlite3.Connection, asked: FindTask) -> TaskStanding | None:
    row = conn.execute(SQL["task_standing"], {"company": asked.company, "id": asked.task}).fetchone()
    return None if row is None else TaskStanding(row[0], bool(row[1]))


def place(company_id: int, attempt: AttemptPlace) -> dict[str, int]:
    """The key of an attempt's row, as parameters."""
    return {"company_id": company_id, **attempt._asdict()}
