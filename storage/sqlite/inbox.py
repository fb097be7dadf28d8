"""The inbox; see `storage.contract.inbox`."""

from __future__ import annotations

import json
import sqlite3
from typing import Any, Final

from storage.contract.inbox import (
    AnswerMessages,
    FindMessage,
    FindOldestAnswer,
    ListAddressed,
    ListAnswered,
    ListWaiting,
    NextMessages,
    PruneAnswered,
    PutMessage,
    StoredMessage,
    Waiting,
)
from storage.errors import InboxFull, MessageConflict

from .connection import Undecodable
from .engine import operation, query
from .statements import SQL

FORGET_MAX: Final = 500
"""Rows removed in one commit; the companies' own commits come in between."""


def _stored(row: tuple[Any, ...]) -> StoredMessage:
    number, company, id, sent_ms, answered_ms, answer, message = row
    decodable = not any(isinstance(text, Undecodable) for text in row)
    return StoredMessage(number, company, id, sent_ms, answered_ms, answer, message, decodable)


# --- the sender ---------------------------------------------------------------------------------------------


@operation(PutMessage)
def put(conn: sqlite3.Connection, asked: PutMessage) -> None:
    there = find(conn, FindMessage(asked.company, asked.id))
    if there is not None:
        if there.message != asked.message:
            raise MessageConflict(asked.company, asked.id)
        return
    limits = {
        "company": asked.company,
        "most": asked.waiting_max,
        "most_of_company": asked.of_company_max,
    }
    waiting, of_company = conn.execute(SQL["inbox_count"], limits).fetchone()
    if of_company >= asked.of_company_max:
        raise InboxFull(asked.company, asked.of_company_max)
    if waiting >= asked.waiting_max:
        raise InboxFull(None, asked.waiting_max)
    row = {"company": asked.company, "id": asked.id, "message": asked.message, "sent_ms": asked.sent_ms}
    conn.execute(SQL["inbox_put"], row)


@query(FindMessage)
def find(conn: sqlite3.Connection, asked: FindMessage) -> StoredMessage | None:
    row = conn.execute(SQL["inbox_find"], {"company": asked.company, "id": asked.id}).fetchone()
    return None if row is None else _stored(row)


@query(ListWaiting)
def list_waiting(conn: sqlite3.Connection, asked: ListWaiting) -> tuple[StoredMessage, ...]:
    params = {"company": asked.company, "limit": asked.limit}
    return tuple(_stored(row) for row in conn.execute(SQL["inbox_unanswered"], params).fetchall())


@query(ListAnswered)
def list_answered(conn: sqlite3.Connection, asked: ListAnswered) -> tuple[StoredMessage, ...]:
    params = {"company": asked.company, "limit": asked.limit}
    return tuple(_stored(row) for row in conn.execute(SQL["inbox_lately_answered"], params).fetchall())


@query(ListAddressed)
def list_addressed(conn: sqlite3.Connection, _asked: ListAddressed) -> tuple[str, ...]:
    return tuple(sorted(row[0] for row in conn.execute(SQL["inbox_companies"]).fetchall()))


# --- the owner ----------------------------------------------------------------------------------------------


@query(NextMessages)
def next_messages(conn: sqlite3.Connection, asked: NextMessages) -> Waiting:
    (version,) = conn.execute(SQL["data_version"]).fetchone()
    if version == asked.known:
        return Waiting(version, ())
    params = {"busy": json.dumps(sorted(asked.busy)), "each": asked.each, "limit": asked.limit}
    found: list[StoredMessage] = []
    chars = 0
    for (number,) in conn.execute(SQL["inbox_waiting"], params).fetchall():
        if found and chars >= asked.chars_max:
            break
        message = _stored(conn.execute(SQL["inbox_row"], {"number": number}).fetchone())
        chars += len(message.message)
        found.append(message)
    return Waiting(version, found)


@operation(AnswerMessages)
def answer_messages(conn: sqlite3.Connection, asked: AnswerMessages) -> None:
    rows = [(answer.answered_ms, answer.answer, answer.number) for answer in asked.answers]
    conn.executemany(SQL["inbox_answer_unless_answered"], rows)


@query(FindOldestAnswer)
def oldest_answer(conn: sqlite3.Connection, _asked: FindOldestAnswer) -> int | None:
    row = conn.execute(SQL["inbox_oldest_answer"]).fetchone()
    return None if row is None else int(row[0])


@operation(PruneAnswered)
def prune_answered(conn: sqlite3.Connection, asked: PruneAnswered) -> int:
    return conn.execute(SQL["inbox_prune"], {"before_ms": asked.before_ms, "limit": asked.limit}).rowcount


# --- the deletion of a company ------------------------------------------------------------------------------


def answer_all(conn: sqlite3.Connection, company: str, answer: str, now_ms: int) -> None:
    """Answer whatever waits for a company."""
    conn.execute(SQL["inbox_answer_all"], {"company": company, "answered_ms": now_ms, "answer": answer})


def forget(conn: sqlite3.Connection, company_id: int) -> int:
    """Delete some of what was said to a company that is being deleted; returns how many rows."""
    return conn.execute(SQL["inbox_forget"], {"company_id": company_id, "limit": FORGET_MAX}).rowcount
