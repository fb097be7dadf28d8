"""The one reading of a turn; see `storage.contract.turns.Prefetch`."""

from __future__ import annotations

import json
import sqlite3

from storage.contract.turns import AttemptPlace, FiredTimes, Prefetch, Prefetched

from .engine import query
from .loading import tasks_by_id
from .recovery import place
from .statements import SQL


@query(Prefetch)
def prefetch(conn: sqlite3.Connection, asked: Prefetch) -> Prefetched:
    contents: dict[str, str | None] = {}
    keys: dict[str, str] = {}
    ids = set(asked.ids)
    if asked.contents:
        params = {"company_id": asked.company_id, "ids": json.dumps(sorted(asked.contents))}
        contents.update(conn.execute(SQL["contents_by_id"], params).fetchall())
        ids.update(contents)
    if asked.keys:
        params = {"company_id": asked.company_id, "keys": json.dumps(sorted(asked.keys))}
        for key, task, content in conn.execute(SQL["tasks_by_key"], params).fetchall():
            keys[key] = task
            contents[task] = content
            ids.add(task)
    return Prefetched(
        found=tasks_by_id(conn, asked.company_id, ids),
        contents=contents,
        keys=keys,
        edges=_closure(conn, asked),
        fired={name: _fired(conn, asked, name, from_ms) for name, from_ms in asked.fired.items()},
        booked={
            attempt: booked
            for attempt in asked.booked
            if (booked := _booked(conn, asked.company_id, attempt)) is not None
        },
    )


def _booked(conn: sqlite3.Connection, company_id: int, attempt: AttemptPlace) -> tuple[int, bool] | None:
    row = conn.execute(SQL["booked_of"], place(company_id, attempt)).fetchone()
    return None if row is None else (row[0], bool(row[1]))


def _fired(conn: sqlite3.Connection, asked: Prefetch, schedule: str, from_ms: int) -> FiredTimes:
    key = {"company_id": asked.company_id, "schedule": schedule}
    limited = {**key, "from_ms": from_ms, "limit": asked.fired_max}
    times = frozenset(row[0] for row in conn.execute(SQL["fired_from"], limited).fetchall())
    (last,) = conn.execute(SQL["fired_last"], key).fetchone()
    return FiredTimes(times, len(times) < asked.fired_max, last)


def _closure(conn: sqlite3.Connection, asked: Prefetch) -> dict[str, tuple[str, ...]]:
    if not asked.closure:
        return {}
    edges: dict[str, list[str]] = {}
    params = {"company_id": asked.company_id, "ids": json.dumps(sorted(asked.closure))}
    for task, upstream in conn.execute(SQL["upstream_closure"], params).fetchall():
        edges.setdefault(task, []).append(upstream)
    return {task: tuple(upstreams) for task, upstreams in edges.items()}
