"""The log; see `storage.contract.events`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence

from storage.columns import INSERT_EVENT, Row, row_of
from storage.contract.events import (
    LastEventTime,
    LastPosition,
    LogLines,
    LogPlace,
    ReadLog,
    RecordCompanyEvents,
    RecordEvents,
    StoredEvent,
    TaskEvents,
)
from storage.contract.turns import Committed
from storage.records import EventRecord

from .engine import operation, query
from .floors import floor_of
from .statements import SQL

_EVENT = row_of(EventRecord, INSERT_EVENT, "company_id", "event_seq", "data")

_data_text = json.JSONEncoder(ensure_ascii=False, sort_keys=True).encode


# --- appending --------------------------------------------------------------------------------------------------


@operation(RecordEvents)
def record_events(conn: sqlite3.Connection, asked: RecordEvents) -> int:
    return write_events(conn, None, None, asked.events)


@operation(RecordCompanyEvents)
def record_company_events(conn: sqlite3.Connection, asked: RecordCompanyEvents) -> Committed:
    return write_company_events(conn, asked.claim.company_id, asked.events)


def write_company_events(
    conn: sqlite3.Connection, company_id: int, events: Sequence[EventRecord]
) -> Committed:
    """Number events of a company and append them. The caller has made sure of its claim."""
    params = {"company_id": company_id, "events": len(events)}
    (last,) = conn.execute(SQL["number_events"], params).fetchone()
    first_seq = int(last) - len(events) + 1
    return Committed(write_events(conn, company_id, first_seq, events), first_seq)


def write_events(
    conn: sqlite3.Connection, company_id: int | None, first_seq: int | None, events: Sequence[EventRecord]
) -> int:
    """Append events; returns the position of the first. Inside one transaction positions follow each other."""
    return insert_events(conn, list(event_rows(company_id, first_seq, events)))


def insert_events(conn: sqlite3.Connection, rows: Sequence[Row]) -> int:
    """Append rows of `event_rows`; returns the position of the first."""
    if not rows:
        return 0
    conn.executemany(SQL["insert_event"], rows)
    (last,) = conn.execute(SQL["last_insert_position"]).fetchone()
    return int(last) - len(rows) + 1


def event_rows(company_id: int | None, first_seq: int | None, events: Sequence[EventRecord]) -> Iterator[Row]:
    for place, event in enumerate(events):
        seq = None if first_seq is None else first_seq + place
        yield _EVENT(event, company_id, seq, _data_text(event.data) if event.data else None)


# --- reading ----------------------------------------------------------------------------------------------------


@query(ReadLog)
def read_log(conn: sqlite3.Connection, asked: ReadLog) -> LogLines:
    if asked.company is None:
        return _read_all(conn, asked.place, asked.limit)
    return _read_company(conn, asked.company, asked.place, asked.limit)


def _read_all(conn: sqlite3.Connection, place: LogPlace, limit: int) -> LogLines:
    floor = floor_of(conn).position
    after = floor if place.after is None else place.after
    if after < floor:
        return LogLines((), place, floor)
    lines = _stored(conn.execute(SQL["events_all"], {"after": after, "limit": limit}).fetchall())
    return LogLines(lines, LogPlace(lines[-1].position if lines else after))


def _read_company(conn: sqlite3.Connection, name: str, place: LogPlace, limit: int) -> LogLines:
    row = conn.execute(SQL["find_company"], {"name": name}).fetchone()
    if place.company_id is not None and (row is None or row[0] != place.company_id):
        (end,) = conn.execute(SQL["last_position"]).fetchone()
        return LogLines((), place, end)  # the company was deleted, and its lines with it
    if row is None:
        return LogLines((), place)
    company_id = row[0]
    floor = floor_of(conn, company_id)
    after = floor.position if place.after is None else place.after
    if after < floor.position:
        return LogLines((), place, floor.position)
    seq = place.seq if place.company_id is not None else _seq_at(conn, company_id, after, floor.seq)
    params = {"company_id": company_id, "name": name, "after_seq": seq, "limit": limit}
    lines = _stored(conn.execute(SQL["events_company"], params).fetchall())
    if lines:
        after, seq = lines[-1].position, lines[-1].seq or seq
    return LogLines(lines, LogPlace(after, company_id, seq))


def _seq_at(conn: sqlite3.Connection, company_id: int, position: int, floor_seq: int) -> int:
    """The company's last number at or before ``position``, which is not below the floor. Both rise together, so
    halving finds it in a few look-ups.
    """
    low = floor_seq
    high = int(conn.execute(SQL["event_seq"], {"company_id": company_id}).fetchone()[0])
    while low < high:
        middle = (low + high + 1) // 2
        row = conn.execute(SQL["event_position"], {"company_id": company_id, "seq": middle}).fetchone()
        if row is None or row[0] <= position:
            low = middle
        else:
            high = middle - 1
    return low


@query(TaskEvents)
def task_events(conn: sqlite3.Connection, asked: TaskEvents) -> Sequence[StoredEvent] | None:
    row = conn.execute(SQL["task_key"], {"company": asked.company, "id": asked.task}).fetchone()
    if row is None:
        return None
    params = {"company_id": row[0], "name": asked.company, "task_seq": row[1]}
    return _stored(conn.execute(SQL["events_task"], params).fetchall())


@query(LastEventTime)
def last_event_time(conn: sqlite3.Connection, asked: LastEventTime) -> int | None:
    row = conn.execute(SQL["latest_event_ms"], {"before": asked.before}).fetchone()
    return None if row is None else row[0]


def _stored(rows: Sequence[Row]) -> list[StoredEvent]:
    return [_line(row) for row in rows]


def _line(row: Row) -> StoredEvent:
    position, company, seq, at_ms, kind, task, run, node, attempt, before, after, reason, data = row
    said = json.loads(data) if data else {}
    return StoredEvent(
        position, company, seq, at_ms, kind, task, run, node, attempt, before, after, reason, said
    )


@query(LastPosition)
def last_position(conn: sqlite3.Connection, _asked: LastPosition) -> int:
    (position,) = conn.execute(SQL["last_position"]).fetchone()
    return int(position)
