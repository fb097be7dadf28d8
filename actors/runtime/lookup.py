"""The one reading of a turn: rows that its messages name and memory does not hold."""

from __future__ import annotations

import json
import sqlite3

from actors.core.budget import Booked
from actors.core.effects import AttemptKey
from actors.core.loading import check_texts
from actors.core.prefetch import Needs, Prefetched
from actors.core.schedules.firing import FIRED_MAX, Fired
from storage.sqlite.loading import FoundTasks, find_tasks
from storage.sqlite.statements import SQL


def look_up(conn: sqlite3.Connection, company_id: int, needs: Needs) -> tuple[FoundTasks, Prefetched]:
    """The tasks that are asked for, and what else the messages need to know."""
    contents: dict[str, str | None] = {}
    keys: dict[str, str] = {}
    ids = set(needs.ids)
    if needs.content:
        params = {"company_id": company_id, "ids": json.dumps(sorted(needs.content))}
        contents.update(conn.execute(SQL["contents_by_id"], params).fetchall())
        ids.update(contents)
    if needs.keys:
        params = {"company_id": company_id, "keys": json.dumps(sorted(needs.keys))}
        for key, task, content in conn.execute(SQL["tasks_by_key"], params).fetchall():
            keys[key] = task
            contents[task] = content
            ids.add(task)
    found = find_tasks(conn, company_id, ids, check_texts)
    fired = {name: _fired(conn, company_id, name, from_ms) for name, from_ms in needs.fired.items()}
    closure = _closure(conn, company_id, needs)
    booked = {key: _booked(conn, company_id, key) for key in needs.booked}
    there = {key: one for key, one in booked.items() if one is not None}
    return found, Prefetched(found.known, contents, keys, closure, fired, needs.templates, there)


def _booked(conn: sqlite3.Connection, company_id: int, key: AttemptKey) -> Booked | None:
    """What is booked of an attempt that has ended; nothing if its row is gone."""
    params = {"company_id": company_id, "seq": key.seq, "run": key.run, "pos": key.pos, "number": key.number}
    row = conn.execute(SQL["booked_of"], params).fetchone()
    return None if row is None else Booked(row[0], bool(row[1]))


def _fired(conn: sqlite3.Connection, company_id: int, schedule: str, from_ms: int) -> Fired:
    """Which nominal times of a schedule have fired."""
    key = {"company_id": company_id, "schedule": schedule}
    limited = {**key, "from_ms": from_ms, "limit": FIRED_MAX}
    times = frozenset(row[0] for row in conn.execute(SQL["fired_from"], limited).fetchall())
    (last,) = conn.execute(SQL["fired_last"], key).fetchone()
    return Fired(times, len(times) < FIRED_MAX, last)


def _closure(conn: sqlite3.Connection, company_id: int, needs: Needs) -> dict[str, tuple[str, ...]]:
    if not needs.closure:
        return {}
    edges: dict[str, list[str]] = {}
    params = {"company_id": company_id, "ids": json.dumps(sorted(needs.closure))}
    for task, upstream in conn.execute(SQL["upstream_closure"], params).fetchall():
        edges.setdefault(task, []).append(upstream)
    return {task: tuple(upstreams) for task, upstreams in edges.items()}
