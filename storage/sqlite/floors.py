"""How far the log was let go."""

from __future__ import annotations

import sqlite3
from typing import Final

from storage.values import value

from .statements import SQL

WHOLE_LOG: Final = 0
"""In the place of a company's id."""


@value
class Floor:
    """What stood at or before ``position`` is gone; ``seq`` is the company's number of its last line there."""

    position: int = 0
    seq: int = 0


def floor_of(conn: sqlite3.Connection, company_id: int = WHOLE_LOG) -> Floor:
    """The floor of a company's part of the log, or of the whole of it."""
    row = conn.execute(SQL["floor"], {"company_id": company_id}).fetchone()
    return Floor() if row is None else Floor(*row)
