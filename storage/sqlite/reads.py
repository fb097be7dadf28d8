"""What readers ask for; see `storage.contract.reads`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from storage.contract.reads import Results, TaskAttempts, TaskIds, Titles
from storage.records import AttemptEnd, AttemptRecord

from .engine import query
from .statements import SQL


@query(TaskIds)
def task_ids(conn: sqlite3.Connection, asked: TaskIds) -> tuple[str, ...]:
    params = {"company": asked.company, "archived": asked.archived}
    return tuple(row[0] for row in conn.execute(SQL["all_task_ids"], params).fetchall())


@query(Titles)
def titles(conn: sqlite3.Connection, asked: Titles) -> Mapping[str, str]:
    params = {"company_id": asked.company_id, "ids": json.dumps(list(asked.ids))}
    return dict(conn.execute(SQL["titles"], params).fetchall())


@query(TaskAttempts)
def task_attempts(
    conn: sqlite3.Connection, asked: TaskAttempts
) -> Sequence[tuple[str, AttemptRecord]] | None:
    key = conn.execute(SQL["task_key"], {"company": asked.company, "id": asked.task}).fetchone()
    if key is None:
        return None
    rows = conn.execute(SQL["attempts_of"], {"company_id": key[0], "seq": key[1]}).fetchall()
    return [(row[0], _attempt(row[1:])) for row in rows]


def _attempt(row: Sequence[Any]) -> AttemptRecord:
    seq, run, pos, number, generation, host_id, started_ms, ended_ms, end, error, reserved, spent, assumed = (
        row
    )
    return AttemptRecord(
        seq,
        run,
        pos,
        number,
        generation,
        host_id,
        started_ms,
        ended_ms,
        None if end is None else AttemptEnd(end),
        error,
        reserved,
        spent,
        bool(assumed),
    )


@query(Results)
def results(conn: sqlite3.Connection, asked: Results) -> Sequence[tuple[str, str]]:
    params = {"company_id": asked.company_id, "seq": asked.seq, "run": asked.run}
    return conn.execute(SQL["results"], params).fetchall()
