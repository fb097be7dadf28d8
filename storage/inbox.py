"""The inbox: rows that other processes leave for the owner of a database, each answered in its own row.

It is the one table that a process may write without owning the database. A sender adds a row in a short
transaction of its own; the owner reads the rows that wait, carries them out, and writes the answer in the
unit that carries the message out, so both are there or neither is.

A row is known by its company and an id that the sender chose: sent again, it is the row that is there. It
is kept for `KEPT_MS` after its answer, then the owner deletes it, `PRUNE_MAX` in a commit.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence
from typing import Final

import attrs

from storage.codec import MESSAGE_CHARS_MAX
from storage.errors import InboxFull, MessageConflict
from storage.statements import SQL

WAITING_MAX: Final = 10_000
"""Messages that may wait in all. So many are only found where no host has run for long."""
WAITING_MAX_OF_COMPANY: Final = 1_000
"""Of one company, so that it cannot keep the others out. As many as its mailbox holds."""
KEPT_MS: Final = 7 * 86_400_000
"""How long an answer can be read, and its id is remembered: a sender that was away over a weekend finds it."""
PRUNE_MAX: Final = 500
"""Rows deleted in one commit; the companies' own commits come in between."""
LOOK_CHARS_MAX: Final = 2 * MESSAGE_CHARS_MAX
"""Texts read in one look, so that a full inbox is never in memory as a whole."""


@attrs.frozen
class InboxRow:
    """A row as it stands. Nothing in it is to be trusted: any process can have written it."""

    number: int
    company: str
    id: str
    sent_ms: int
    answered_ms: int | None
    answer: str | None
    message: str


@attrs.frozen
class InboxAnswer:
    number: int
    answered_ms: int
    answer: str


# --- the sender ---------------------------------------------------------------------------------------------


def put(conn: sqlite3.Connection, company: str, id: str, message: str, sent_ms: int) -> InboxRow:
    """Leave a message, or find the one that is there under this id. Runs in a writing transaction.

    Raises `MessageConflict` if that is another message, `InboxFull`.
    """
    there = find(conn, company, id)
    if there is not None:
        if there.message != message:
            raise MessageConflict(company, id)
        return there
    limits = {"company": company, "most": WAITING_MAX, "most_of_company": WAITING_MAX_OF_COMPANY}
    waiting, of_company = conn.execute(SQL["inbox_count"], limits).fetchone()
    if of_company >= WAITING_MAX_OF_COMPANY:
        raise InboxFull(company, WAITING_MAX_OF_COMPANY)
    if waiting >= WAITING_MAX:
        raise InboxFull(None, WAITING_MAX)
    conn.execute(SQL["inbox_put"], {"company": company, "id": id, "message": message, "sent_ms": sent_ms})
    put_now = find(conn, company, id)
    assert put_now is not None
    return put_now


def find(conn: sqlite3.Connection, company: str, id: str) -> InboxRow | None:
    row = conn.execute(SQL["inbox_find"], {"company": company, "id": id}).fetchone()
    return None if row is None else InboxRow(*row)


def unanswered(conn: sqlite3.Connection, company: str | None, limit: int) -> list[InboxRow]:
    """Those that wait, in the order of their arrival."""
    rows = conn.execute(SQL["inbox_unanswered"], {"company": company, "limit": limit}).fetchall()
    return [InboxRow(*row) for row in rows]


def lately_answered(conn: sqlite3.Connection, company: str | None, limit: int) -> list[InboxRow]:
    """The last answers, newest first."""
    rows = conn.execute(SQL["inbox_lately_answered"], {"company": company, "limit": limit}).fetchall()
    return [InboxRow(*row) for row in rows]


def companies(conn: sqlite3.Connection) -> list[str]:
    """Names of the companies that messages wait for."""
    return [row[0] for row in conn.execute(SQL["inbox_companies"]).fetchall()]


# --- the owner ----------------------------------------------------------------------------------------------


def data_version(conn: sqlite3.Connection) -> int:
    """A number that differs from the last one if another connection has committed in between.

    Costs a look at the WAL's index in shared memory, and reads nothing of the file.
    """
    (version,) = conn.execute(SQL["data_version"]).fetchone()
    return int(version)


def waiting(conn: sqlite3.Connection, *, busy: Collection[str], each: int, limit: int) -> list[InboxRow]:
    """The next to be taken: at most ``each`` of a company, in rounds over the companies that are not ``busy``."""
    asked = {"busy": json.dumps(sorted(busy)), "each": each, "limit": limit}
    found: list[InboxRow] = []
    chars = 0
    for (number,) in conn.execute(SQL["inbox_waiting"], asked).fetchall():
        if found and chars >= LOOK_CHARS_MAX:
            break
        row = InboxRow(*conn.execute(SQL["inbox_row"], {"number": number}).fetchone())
        chars += len(row.message)
        found.append(row)
    return found


def answer_unless_answered(conn: sqlite3.Connection, answers: Sequence[InboxAnswer]) -> None:
    """Answer messages that no unit has answered. Runs in the writer's transaction."""
    conn.executemany(SQL["inbox_answer_unless_answered"], [attrs.asdict(answer) for answer in answers])


def answer_all(conn: sqlite3.Connection, company: str, answer: str, now_ms: int) -> None:
    """Answer whatever waits for a company. Runs in the writer's transaction."""
    conn.execute(SQL["inbox_answer_all"], {"company": company, "answered_ms": now_ms, "answer": answer})


def forget(conn: sqlite3.Connection, company_id: int) -> int:
    """Delete some of what was said to a company that is being deleted; says how many rows. Runs in the writer's
    transaction.
    """
    return conn.execute(SQL["inbox_forget"], {"company_id": company_id, "limit": PRUNE_MAX}).rowcount


def oldest_answer_ms(conn: sqlite3.Connection) -> int | None:
    row = conn.execute(SQL["inbox_oldest_answer"]).fetchone()
    return None if row is None else int(row[0])


def prune(conn: sqlite3.Connection, before_ms: int) -> int:
    """Delete the oldest rows that were answered before; says how many. Runs in the writer's transaction."""
    return conn.execute(SQL["inbox_prune"], {"before_ms": before_ms, "limit": PRUNE_MAX}).rowcount
