"""Removing tasks and companies whole; see `storage.contract.retention`.

`TABLES` says of every table of the schema what removes its rows, or why nothing does. A test compares it with the
schema, so a table that is added later has to say it too.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import attrs

from storage.contract.retention import (
    ACTIVE_SHOWN,
    ROWS_MAX,
    Deleted,
    DeleteSome,
    ListDeletions,
    Logged,
    MarkDeleted,
    Marked,
    StillActive,
)
from storage.errors import StaleEpoch
from storage.records import Claim, EventRecord

from . import inbox
from .engine import operation, query
from .events import write_company_events, write_events
from .statements import SQL

COUNTED: Final = ("tasks", "attempts", "events")


@attrs.frozen
class Table:
    """Of one table: ``goes`` says what lets a row go. ``of_task`` removes what belongs to one task, and
    ``of_company`` some of the rows of one company; both are names of statements.
    """

    goes: str
    of_task: str | None = None
    of_company: str | None = None


TABLES: Final[Mapping[str, Table]] = MappingProxyType(
    {
        "attempts": Table(
            "attempts_s, of settled runs; with their task", "task_attempts", "company_attempts"
        ),
        "nodes": Table("with their task", "task_nodes", "company_nodes"),
        "edges": Table("with the task that depends", "delete_edges", "company_edges"),
        "quarantine": Table("with their task", "delete_quarantine", "company_quarantine"),
        "runs": Table("with their task", "task_runs", "company_runs"),
        "tasks": Table(
            "tasks_s if completed, archived_s if archived; with a key not before keys_s",
            "task_row",
            "company_tasks",
        ),
        "graphs": Table("never by age: a newer definition takes the place", None, "company_graphs"),
        "schedules": Table("never by age: RemoveSchedule deletes it", None, "company_schedules"),
        "events": Table("events_s", None, "company_events"),
        "floors": Table("never by age: one row for each company", None, "company_floor"),
        "deletions": Table("when the deletion is over", None, "company_deletion"),
        "companies": Table("never by age: deleted when somebody says so", None, "company_row"),
        "hosts": Table("events_s, but the newest"),
        "inbox": Table("a week after its answer, see `storage.sqlite.inbox`; with its company"),
    }
)
"""Table → what lets its rows go. Children stand before what they refer to: rows are removed in this order."""


def remove_task(conn: sqlite3.Connection, company_id: int, seq: int) -> int:
    """Delete the task and all that belongs to it; returns how many rows that were."""
    key = {"company_id": company_id, "seq": seq}
    statements = [table.of_task for table in TABLES.values() if table.of_task is not None]
    return sum(conn.execute(SQL[statement], key).rowcount for statement in statements)


LAST: Final = ("deletions", "companies")
"""What goes in one unit, when all else of a company is gone."""


def remove_some(conn: sqlite3.Connection, company_id: int) -> dict[str, int]:
    """Delete some rows of a company; says how many of which table. Empty: only `LAST` are left."""
    removed: dict[str, int] = {}
    left = ROWS_MAX
    for name, table in TABLES.items():
        if table.of_company is not None and name not in LAST and left > 0:
            rows = conn.execute(SQL[table.of_company], {"company_id": company_id, "limit": left}).rowcount
            left -= rows
            if rows:
                removed[name] = rows
    return removed


def remove_last(conn: sqlite3.Connection, company_id: int) -> None:
    """Delete the company itself, when nothing else of it is left."""
    for name in LAST:
        statement = TABLES[name].of_company
        assert statement is not None
        conn.execute(SQL[statement], {"company_id": company_id})


# --- epochs and events --------------------------------------------------------------------------------------


def epoch_of(conn: sqlite3.Connection, company_id: int) -> int | None:
    """``None`` if the company is gone, or is being deleted."""
    row = conn.execute(SQL["epoch_of"], {"company_id": company_id}).fetchone()
    return None if row is None else int(row[0])


def record(conn: sqlite3.Connection, company_id: int, event: EventRecord) -> Logged:
    """Write an event of the company that no turn writes."""
    written = write_company_events(conn, company_id, (event,))
    return Logged(event, written.first_position, written.first_seq)


# --- operations ---------------------------------------------------------------------------------------------


@operation(MarkDeleted)
def mark_deleted(conn: sqlite3.Connection, asked: MarkDeleted) -> Marked:
    claim = asked.claim
    key = {"company_id": claim.company_id}
    active = [row[0] for row in conn.execute(SQL["active_tasks"], {**key, "limit": ACTIVE_SHOWN}).fetchall()]
    if active or asked.attempts:
        raise StillActive(active, asked.attempts)
    logged = record(conn, claim.company_id, EventRecord("company.deleting", asked.now_ms))
    inbox.answer_all(conn, claim.name, asked.inbox_answer, asked.now_ms)
    (epoch,) = conn.execute(SQL["mark_deleted"], key).fetchone()
    conn.execute(SQL["insert_deletion"], {**key, "name": claim.name, "asked_ms": asked.now_ms})
    return Marked(Claim(claim.company_id, claim.name, epoch), logged)


@operation(DeleteSome, fences_itself=True)
def delete_some(conn: sqlite3.Connection, asked: DeleteSome) -> Deleted | None:
    claim = asked.claim
    key = {"company_id": claim.company_id}
    row = conn.execute(SQL["deletion"], {**key, "epoch": claim.epoch}).fetchone()
    if row is None:
        raise StaleEpoch(claim.name, claim.epoch)
    if inbox.forget(conn, claim.company_id):
        return None
    if removed := remove_some(conn, claim.company_id):
        conn.execute(SQL["count_deleted"], {**key, **{name: removed.get(name, 0) for name in COUNTED}})
        return None
    remove_last(conn, claim.company_id)
    name, tasks, attempts, events = row
    data = {"name": name, "tasks": tasks, "attempts": attempts, "events": events}
    event = EventRecord("company.deleted", asked.now_ms, data=data)
    return Deleted(name, tasks, attempts, events, Logged(event, write_events(conn, None, None, [event])))


@query(ListDeletions)
def list_deletions(conn: sqlite3.Connection, _asked: ListDeletions) -> tuple[Claim, ...]:
    return tuple(Claim(*row) for row in conn.execute(SQL["list_deletions"]).fetchall())
