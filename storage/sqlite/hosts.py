"""The process that runs the database; see `storage.contract.hosts`."""

from __future__ import annotations

import sqlite3

from storage.contract.hosts import BeginHost, EndHost, HostBegun
from storage.records import EventRecord

from .engine import operation
from .events import write_events
from .statements import SQL


@operation(BeginHost)
def begin_host(conn: sqlite3.Connection, asked: BeginHost) -> HostBegun:
    ((host_id,),) = conn.execute(SQL["host_begin"], {"pid": asked.pid, "started_ms": asked.now_ms}).fetchall()
    event = EventRecord("process.started", asked.now_ms, data={"pid": asked.pid, "host_id": host_id})
    return HostBegun(host_id, write_events(conn, None, None, [event]), event)


@operation(EndHost)
def end_host(conn: sqlite3.Connection, asked: EndHost) -> int:
    conn.execute(SQL["host_end"], {"host_id": asked.host_id, "ended_ms": asked.now_ms})
    return write_events(conn, None, None, [asked.event])
