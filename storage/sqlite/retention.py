"""Pruning by age; see `storage.contract.retention`.

Everything is found by its keys and in the order in which it was made, which is the order of time. There is no index
by time, since each one would have to be written at every move.

*The log* goes from its beginning, and `floors` keep how far. *Attempts* go one by one. *Tasks* go whole. A task stays
while any other depends on it, whatever its own age: an upstream that is in no actor's memory counts as done, and one
whose row is missing as dead, so a row that another task still waits for must not vanish. A chain of tasks therefore
goes from its end, and `_going_together` walks it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from storage.contract.retention import (
    IDS_SHOWN,
    ROWS_MAX,
    AttemptKey,
    Cutoffs,
    FindOldAttempts,
    FindOldCompanies,
    FindOldLogEnd,
    FindOldTasks,
    FindPrunableTasks,
    Found,
    Logged,
    OldCompany,
    Page,
    PruneAttempts,
    PrunedAttempts,
    PrunedLog,
    PrunedTasks,
    PruneLog,
    PruneTasks,
)
from storage.records import EventRecord

from .deletion import epoch_of, record, remove_task
from .engine import operation, query
from .events import write_events
from .floors import WHOLE_LOG, Floor, floor_of
from .statements import SQL

LOOKED_MAX: Final = 200
"""Rows of one look: what must stay is passed by in small steps too."""
COMPANIES_MAX: Final = 50
"""Companies of one look; most have nothing to give."""
LOOKS_MAX: Final = 1_000
"""Tasks that one look follows up the edges, from one to the next."""
AHEAD_PAGES_MAX: Final = 20
"""Pages of events with times in the future, looked through for one that says how old they really are."""
LOG_PRUNED: Final = "log.pruned"


# --- the log ------------------------------------------------------------------------------------------------


@query(FindOldLogEnd)
def old_log_end(conn: sqlite3.Connection, asked: FindOldLogEnd) -> int | None:
    cutoffs = asked.cutoffs
    if cutoffs.events_ms is None:
        return None
    after = floor_of(conn).position
    for _ in range(AHEAD_PAGES_MAX):
        rows = _oldest(conn, after)
        if any(row[1] <= cutoffs.now_ms for row in rows):
            return _last_worth_pruning(rows, cutoffs.events_ms, cutoffs.now_ms)
        if len(rows) < ROWS_MAX:
            return None
        after = rows[-1][0]
    return None


EventRow = tuple[int, int, str, int | None, int | None]
"""Position, time, kind, company and number."""


def _oldest(conn: sqlite3.Connection, after: int) -> list[EventRow]:
    return conn.execute(SQL["oldest_events"], {"after": after, "limit": ROWS_MAX}).fetchall()


def _last_worth_pruning(rows: Sequence[EventRow], before_ms: int, now_ms: int) -> int | None:
    """The position of the last old row before the first that is young and credible."""
    count = 0
    for place, row in enumerate(rows, start=1):
        if row[1] < before_ms:
            count = place
        elif row[1] <= now_ms:
            break
    old = rows[:count]
    return old[-1][0] if any(row[2] != LOG_PRUNED for row in old) else None


@operation(PruneLog)
def prune_log(conn: sqlite3.Connection, asked: PruneLog) -> PrunedLog | None:
    floor = floor_of(conn)
    rows = [row for row in _oldest(conn, floor.position) if row[0] <= asked.last]
    if not rows:
        return None
    last = rows[-1][0]
    tops = {company_id: Floor(position, seq or 0) for position, _, _, company_id, seq in rows if company_id}
    for company_id, top in {**tops, WHOLE_LOG: Floor(last)}.items():
        conn.execute(SQL["raise_floor"], {"company_id": company_id, "position": top.position, "seq": top.seq})
    conn.execute(SQL["prune_events"], {"after": floor.position, "last": last})
    hosts = conn.execute(SQL["prune_hosts"], {"before_ms": asked.before_ms, "limit": ROWS_MAX}).rowcount
    event = EventRecord(LOG_PRUNED, asked.now_ms, data={"floor": last, "count": len(rows), "hosts": hosts})
    return PrunedLog(len(rows), Logged(event, write_events(conn, None, None, [event])))


# --- companies ----------------------------------------------------------------------------------------------


@query(FindOldCompanies)
def old_companies(conn: sqlite3.Connection, asked: FindOldCompanies) -> Page[OldCompany, int]:
    cutoffs = asked.cutoffs
    rows = conn.execute(SQL["companies_after"], {"after": asked.after, "limit": COMPANIES_MAX}).fetchall()
    found = []
    for company_id, name, task_seq in rows:
        tasks = _first_from(conn, company_id, task_seq, cutoffs.any_task_ms)
        attempts = _first_from(conn, company_id, task_seq, cutoffs.attempts_ms)
        if tasks > 1 or attempts > 1:
            found.append(OldCompany(company_id, name, tasks, attempts))
    return Page(found, rows[-1][0] if len(rows) == COMPANIES_MAX else None)


def _first_from(conn: sqlite3.Connection, company_id: int, task_seq: int, at_ms: int | None) -> int:
    """The first number from which tasks were made at or after this time; 1 if there is none before. By halving."""
    low, high = 1, task_seq + 1
    if at_ms is None:
        return low
    middle = low  # the first one first: in most companies it is young
    while low < high:
        row = conn.execute(SQL["task_from"], {"company_id": company_id, "seq": middle}).fetchone()
        if row is None or row[1] >= at_ms:
            high = middle
        else:
            low = row[0] + 1
        middle = (low + high) // 2
    return low


# --- attempts -----------------------------------------------------------------------------------------------


@query(FindOldAttempts)
def old_attempts(
    conn: sqlite3.Connection, asked: FindOldAttempts
) -> Page[Found[Sequence[AttemptKey]], AttemptKey]:
    company = asked.company
    epoch = epoch_of(conn, company.company_id)
    if epoch is None:
        return Page((), None)
    seq, run, pos, number = asked.after
    params = {"seq": seq, "run": run, "pos": pos, "number": number, "limit": LOOKED_MAX}
    params |= {"company_id": company.company_id, "before": company.attempts_before}
    rows = conn.execute(SQL["old_attempts"], {**params, "before_ms": asked.before_ms}).fetchall()
    old = [row[:4] for row in rows if row[4]]
    return Page((Found(epoch, old),), rows[-1][:4] if len(rows) == LOOKED_MAX else None)


@operation(PruneAttempts)
def prune_attempts(conn: sqlite3.Connection, asked: PruneAttempts) -> PrunedAttempts | None:
    company_id = asked.claim.company_id
    params = {"company_id": company_id, "keys": json.dumps(asked.keys), "before_ms": asked.before_ms}
    count = conn.execute(SQL["prune_attempts"], params).rowcount
    if count == 0:
        return None
    event = EventRecord("attempts.pruned", asked.now_ms, data={"count": count})
    return PrunedAttempts(count, record(conn, company_id, event))


# --- tasks --------------------------------------------------------------------------------------------------


@query(FindOldTasks)
def old_tasks(conn: sqlite3.Connection, asked: FindOldTasks) -> Page[int, int]:
    company = asked.company
    rows = _old_tasks(conn, company.company_id, asked.cutoffs, asked.after, company.tasks_before, LOOKED_MAX)
    return Page([row[0] for row in rows if row[2]], rows[-1][0] if len(rows) == LOOKED_MAX else None)


def _old_tasks(
    conn: sqlite3.Connection, company_id: int, cutoffs: Cutoffs, after: int, before: int, limit: int
) -> list[tuple[int, str, int | None]]:
    params = {
        "company_id": company_id,
        "after": after,
        "before": before,
        "limit": limit,
        "tasks_ms": cutoffs.tasks_ms,
        "archived_ms": cutoffs.archived_ms,
        "keys_ms": cutoffs.keys_ms,
    }
    return conn.execute(SQL["old_tasks"], params).fetchall()


def _id_if_old(conn: sqlite3.Connection, company_id: int, seq: int, cutoffs: Cutoffs) -> str | None:
    """The id of the task if it is old enough to go, apart from tasks that depend on it."""
    rows = _old_tasks(conn, company_id, cutoffs, seq - 1, seq + 1, 1)
    return rows[0][1] if rows and rows[0][2] else None


def _dependents_of(conn: sqlite3.Connection, company_id: int, task: str, limit: int) -> list[int]:
    """Numbers of tasks that depend on this one, at most ``limit``."""
    params = {"company_id": company_id, "task": task, "limit": limit}
    return [row[0] for row in conn.execute(SQL["dependents_of"], params).fetchall()]


def _upstream_seqs(conn: sqlite3.Connection, company_id: int, seq: int) -> list[int]:
    """Numbers of the tasks that this one depends on, as far as they exist."""
    rows = conn.execute(SQL["upstream_seqs"], {"company_id": company_id, "seq": seq}).fetchall()
    return [row[0] for row in rows]


@query(FindPrunableTasks)
def prunable_tasks(conn: sqlite3.Connection, asked: FindPrunableTasks) -> Found[Mapping[int, str]] | None:
    epoch = epoch_of(conn, asked.company_id)
    if epoch is None:
        return None
    return Found(epoch, _going_together(conn, asked.company_id, asked.cutoffs, asked.starts, asked.limit))


def _going_together(
    conn: sqlite3.Connection, company_id: int, cutoffs: Cutoffs, starts: Iterable[int], limit: int
) -> dict[int, str]:
    going: dict[int, str] = {}
    work, looks = list(starts), 0
    while work and len(going) < limit and looks < LOOKS_MAX:
        seq, looks = work.pop(), looks + 1
        task = None if seq in going else _id_if_old(conn, company_id, seq, cutoffs)
        if task is None:
            continue
        users = _dependents_of(conn, company_id, task, len(going) + 1)
        if all(user in going for user in users):
            going[seq] = task
            work.extend(_upstream_seqs(conn, company_id, seq))
    return going


@operation(PruneTasks)
def prune_tasks(conn: sqlite3.Connection, asked: PruneTasks) -> PrunedTasks | None:
    company_id = asked.claim.company_id
    gone: dict[int, str] = {}
    freed: dict[int, None] = {}
    rows = 0
    for seq in asked.seqs:
        task = _id_if_old(conn, company_id, seq, asked.cutoffs)
        if rows < ROWS_MAX and task is not None and not _dependents_of(conn, company_id, task, 1):
            freed.update(dict.fromkeys(_upstream_seqs(conn, company_id, seq)))
            rows += remove_task(conn, company_id, seq)
            gone[seq] = task
    if not gone:
        return None
    data = {"count": len(gone), "ids": list(gone.values())[:IDS_SHOWN]}
    logged = record(conn, company_id, EventRecord("tasks.pruned", asked.now_ms, data=data))
    return PrunedTasks(frozenset(gone), [seq for seq in freed if seq not in gone], logged)
