"""Companies; see `storage.contract.companies`."""

from __future__ import annotations

import json
import sqlite3

from storage.contract.companies import (
    ClaimCompany,
    DueCompanies,
    DueCompany,
    FindCompany,
    FindSweepCompanies,
    ListCompanies,
    MarkChecked,
    SweepCompanies,
)
from storage.records import CompanyRecord

from .engine import operation, query
from .statements import SQL

_PAGE = 100


@operation(ClaimCompany)
def claim(conn: sqlite3.Connection, asked: ClaimCompany) -> CompanyRecord | None:
    key = {"name": asked.name}
    rows = conn.execute(SQL["claim_company"], key).fetchall()
    if not rows and asked.create:
        rows = conn.execute(SQL["insert_company"], key).fetchall()
    return CompanyRecord(*rows[0]) if rows else None


@query(FindCompany)
def find(conn: sqlite3.Connection, asked: FindCompany) -> CompanyRecord | None:
    return find_company(conn, asked.name)


def find_company(conn: sqlite3.Connection, name: str) -> CompanyRecord | None:
    """The company of this name."""
    row = conn.execute(SQL["find_company"], {"name": name}).fetchone()
    return None if row is None else CompanyRecord(*row)


@query(ListCompanies)
def list_companies(conn: sqlite3.Connection, _asked: ListCompanies) -> tuple[str, ...]:
    return tuple(row[0] for row in conn.execute(SQL["list_companies"]).fetchall())


@query(FindSweepCompanies)
def find_sweep_companies(conn: sqlite3.Connection, asked: FindSweepCompanies) -> SweepCompanies:
    urgent: dict[str, None] = {}
    after = 0
    while rows := conn.execute(SQL["sweep_active"], {"after": after, "limit": _PAGE}).fetchall():
        urgent.update(dict.fromkeys(row[0] for row in rows))
        after = rows[-1][1]
    due = {"now_ms": asked.now_ms, "limit": asked.limit}
    for statement in ("sweep_due", "sweep_schedules"):
        urgent.update(dict.fromkeys(row[0] for row in conn.execute(SQL[statement], due).fetchall()))
    waiting = conn.execute(SQL["sweep_queued"], {"limit": asked.limit}).fetchall()
    return SweepCompanies(tuple(urgent), tuple(row[0] for row in waiting))


@operation(MarkChecked)
def mark_checked(conn: sqlite3.Connection, asked: MarkChecked) -> None:
    conn.execute(SQL["mark_checked"], {"names": json.dumps(list(asked.names)), "now_ms": asked.now_ms})


@query(DueCompanies)
def due_companies(conn: sqlite3.Connection, asked: DueCompanies) -> tuple[DueCompany, ...]:
    rows = conn.execute(SQL["earliest_due"], {"limit": asked.limit}).fetchall()
    return tuple(DueCompany(name, due_ms, bool(scheduled)) for name, due_ms, scheduled in rows)
