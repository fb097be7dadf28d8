"""Companies; see `storage.contract.companies`."""

from __future__ import annotations

import sqlite3

from storage.contract.companies import ClaimCompany, FindCompany, ListCompanies
from storage.records import CompanyRecord

from .engine import operation, query
from .statements import SQL


@operation(ClaimCompany)
def claim(conn: sqlite3.Connection, asked: ClaimCompany) -> CompanyRecord | None:
    key = {"name": asked.name}
    rows = conn.execute(SQL["claim_company"], key).fetchall()
    if not rows and asked.create:
        rows = conn.execute(SQL["insert_company"], key).fetchall()
    return CompanyRecord(*rows[0]) if rows else None


@query(FindCompany)
def find(conn: sqlite3.Connection, asked: FindCompany) -> CompanyRecord | None:
    row = conn.execute(SQL["find_company"], {"name": asked.name}).fetchone()
    return None if row is None else CompanyRecord(*row)


@query(ListCompanies)
def list_companies(conn: sqlite3.Connection, _asked: ListCompanies) -> tuple[str, ...]:
    return tuple(row[0] for row in conn.execute(SQL["list_companies"]).fetchall())
