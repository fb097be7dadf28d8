"""What may go, and what must stay.

`TABLES` says of every table of the schema what lets its rows go, or why nothing does; a test holds it to the
schema, so a table that is added later has to say it too. Everything goes by its keys and in the order in which
it was made, which is the order of time; there is no index by time, since each one would have to be written at
every move.

Three things go by age. *The log* goes from its beginning: `floors` keep how far, so that a reader whose cursor
is older is told and never just goes on behind the gap. *Attempts* go one by one, when their run is settled.
*Tasks* go whole. A task stays while any other depends on it, whatever its own age: an upstream that is in no
actor's memory counts as done, and one whose row is missing as dead, so a row that somebody still waits for
must not vanish in between. A chain of tasks therefore goes from its end, and `going_together` walks it.

What is looked for here was only read. Whoever deletes asks `is_old` and `dependents_of` once more, in the
transaction that deletes.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import attrs

from storage.sqlite.floors import WHOLE_LOG, Floor, floor_of
from storage.sqlite.statements import SQL

ROWS_MAX: Final = 500
"""Rows that one unit deletes, so that others wait for milliseconds; a task goes whole even if it has more."""
LOOKED_MAX: Final = 200
"""Rows of one look: what must stay is passed by in small steps too."""
COMPANIES_MAX: Final = 50
"""Companies of one look; most have nothing to give."""
LOOKS_MAX: Final = 1_000
"""Tasks that one look follows up the edges, from one to the next."""
AHEAD_PAGES_MAX: Final = 20
"""Pages of events with times that are yet to come, looked through for one that says how old they really are."""


@attrs.frozen
class Table:
    """Of one table: ``goes`` says what lets a row go. ``of_task`` removes what belongs to one task, and
    ``of_company`` some of the rows of one company; both are names of statements.
    """

    goes: str
    of_task: str | None = None
    of_company: str | None = None


TABLES: Final[Mapping[str, Table]] = MappingProxyType(
    {
        "attempts": Table(
            "attempts_s, of settled runs; with their task", "task_attempts", "company_attempts"
        ),
        "nodes": Table("with their task", "task_nodes", "company_nodes"),
        "edges": Table("with the task that depends", "delete_edges", "company_edges"),
        "quarantine": Table("with their task", "delete_quarantine", "company_quarantine"),
        "runs": Table("with their task", "task_runs", "company_runs"),
        "tasks": Table(
            "tasks_s if completed, archived_s if archived; with a key not before keys_s",
            "task_row",
            "company_tasks",
        ),
        "graphs": Table("never by age: a newer definition takes the place", None, "company_graphs"),
        "schedules": Table("never by age: RemoveSchedule deletes it", None, "company_schedules"),
        "events": Table("events_s", None, "company_events"),
        "floors": Table("never by age: one row for each company", None, "company_floor"),
        "deletions": Table("when the deletion is over", None, "company_deletion"),
        "companies": Table("never by age: deleted when somebody says so", None, "company_row"),
        "hosts": Table("events_s, but the newest"),
        "inbox": Table("a week after its answer, see `storage.sqlite.inbox`; with its company"),
    }
)
"""Table → what lets its rows go. Children stand before what they refer to: rows are removed in this order."""


@attrs.frozen
class Cutoffs:
    """Rows from before these times may go, ms; where none is given, nothing goes."""

    now_ms: int
    events_ms: int | None = None
    attempts_ms: int | None = None
    tasks_ms: int | None = None
    archived_ms: int | None = None
    keys_ms: int | None = None

    @property
    def any_task_ms(self) -> int | None:
        """No task that was made at or after this time can go."""
        given = [ms for ms in (self.tasks_ms, self.archived_ms) if ms is not None]
        return max(given, default=None)


# --- the log ------------------------------------------------------------------------------------------------


def old_log_end(conn: sqlite3.Connection, cutoffs: Cutoffs, *, kind: str) -> int | None:
    """The position up to which the log may go at once: its first lines, as far as they are old.

    A time that is yet to come was written by a clock that was wrong: the next line with a credible time says
    how old such a line is. Lines of this ``kind`` alone, which tell of earlier prunings, are not worth another.
    """
    if cutoffs.events_ms is None:
        return None
    after = floor_of(conn).position
    for _ in range(AHEAD_PAGES_MAX):
        rows = _oldest(conn, after)
        old = [row for row in rows if row[1] < cutoffs.events_ms]
        credible = [row for row in rows if row[1] <= cutoffs.now_ms]
        if credible:
            return _worth(_before_the_first_young(rows, cutoffs), kind) if old else None
        if len(rows) < ROWS_MAX:
            return None
        after = rows[-1][0]
    return None


EventRow = tuple[int, int, str, int | None, int | None]
"""Position, time, kind, company and number."""


def _oldest(conn: sqlite3.Connection, after: int) -> list[EventRow]:
    return conn.execute(SQL["oldest_events"], {"after": after, "limit": ROWS_MAX}).fetchall()


def _before_the_first_young(rows: Sequence[EventRow], cutoffs: Cutoffs) -> list[EventRow]:
    assert cutoffs.events_ms is not None
    last = 0
    for place, row in enumerate(rows, start=1):
        if row[1] < cutoffs.events_ms:
            last = place
        elif row[1] <= cutoffs.now_ms:
            break
    return list(rows[:last])


def _worth(rows: Sequence[EventRow], kind: str) -> int | None:
    return rows[-1][0] if any(row[2] != kind for row in rows) else None


def prune_log(conn: sqlite3.Connection, last: int) -> tuple[int, int]:
    """Let the first lines of the log go, those up to ``last``; returns (the floor, how many went).

    Runs in a writing transaction, and raises the floors in it.
    """
    floor = floor_of(conn)
    rows = [row for row in _oldest(conn, floor.position) if row[0] <= last]
    if not rows:
        return floor.position, 0
    tops: dict[int, Floor] = {WHOLE_LOG: Floor(rows[-1][0], 0)}
    for position, _, _, company_id, seq in rows:
        if company_id is not None:
            tops[company_id] = Floor(position, seq or 0)
    for company_id, top in tops.items():
        conn.execute(SQL["raise_floor"], {"company_id": company_id, "position": top.position, "seq": top.seq})
    conn.execute(SQL["prune_events"], {"after": floor.position, "last": rows[-1][0]})
    return rows[-1][0], len(rows)


def prune_hosts(conn: sqlite3.Connection, before_ms: int) -> int:
    """Forget processes that began before, a few at a time, but never the newest; returns how many."""
    return conn.execute(SQL["prune_hosts"], {"before_ms": before_ms, "limit": ROWS_MAX}).rowcount


# --- companies ----------------------------------------------------------------------------------------------


@attrs.frozen
class OldCompany:
    """A company in which something may be old: tasks, and attempts at tasks, with numbers below these."""

    company_id: int
    name: str
    epoch: int
    tasks_before: int
    attempts_before: int


def old_companies(
    conn: sqlite3.Connection, cutoffs: Cutoffs, after: int
) -> tuple[list[OldCompany], int | None]:
    """The next companies that may have something to give, and where to go on; nothing at the end."""
    rows = conn.execute(SQL["companies_after"], {"after": after, "limit": COMPANIES_MAX}).fetchall()
    found = []
    for company_id, name, epoch, task_seq in rows:
        tasks = _first_from(conn, company_id, task_seq, cutoffs.any_task_ms)
        attempts = _first_from(conn, company_id, task_seq, cutoffs.attempts_ms)
        if tasks > 1 or attempts > 1:
            found.append(OldCompany(company_id, name, epoch, tasks, attempts))
    return found, rows[-1][0] if len(rows) == COMPANIES_MAX else None


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


# --- tasks --------------------------------------------------------------------------------------------------


def look_at_tasks(
    conn: sqlite3.Connection, company: OldCompany, cutoffs: Cutoffs, after: int
) -> tuple[list[int], int | None]:
    """Numbers of the next tasks that are old, and where to go on; nothing at the end."""
    rows = _old_tasks(conn, company.company_id, cutoffs, after, company.tasks_before, LOOKED_MAX)
    return [row[0] for row in rows if row[2]], rows[-1][0] if len(rows) == LOOKED_MAX else None


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


def is_old(conn: sqlite3.Connection, company_id: int, seq: int, cutoffs: Cutoffs) -> str | None:
    """The id of the task if it is old enough to go, apart from who depends on it."""
    rows = _old_tasks(conn, company_id, cutoffs, seq - 1, seq + 1, 1)
    return rows[0][1] if rows and rows[0][2] else None


def dependents_of(conn: sqlite3.Connection, company_id: int, task: str, limit: int) -> list[int]:
    """Numbers of tasks that depend on this one, at most ``limit``."""
    params = {"company_id": company_id, "task": task, "limit": limit}
    return [row[0] for row in conn.execute(SQL["dependents_of"], params).fetchall()]


def upstream_seqs(conn: sqlite3.Connection, company_id: int, seq: int) -> list[int]:
    """Numbers of the tasks that this one depends on, as far as they exist."""
    rows = conn.execute(SQL["upstream_seqs"], {"company_id": company_id, "seq": seq}).fetchall()
    return [row[0] for row in rows]


def going_together(
    conn: sqlite3.Connection, company_id: int, cutoffs: Cutoffs, starts: Iterable[int], limit: int
) -> dict[int, str]:
    """Tasks that can go in this order, beginning with any of ``starts``: each after all that depend on it. Number → id.

    Some of them: what the limits leave out is found again from the same starts, when these are gone.
    """
    going: dict[int, str] = {}
    work, looks = list(starts), 0
    while work and len(going) < limit and looks < LOOKS_MAX:
        seq, looks = work.pop(), looks + 1
        task = None if seq in going else is_old(conn, company_id, seq, cutoffs)
        if task is None:
            continue
        users = dependents_of(conn, company_id, task, len(going) + 1)
        if all(user in going for user in users):
            going[seq] = task
            work.extend(upstream_seqs(conn, company_id, seq))
    return going


def remove_task(conn: sqlite3.Connection, company_id: int, seq: int) -> int:
    """Delete the task and all that belongs to it; returns how many rows that were."""
    key = {"company_id": company_id, "seq": seq}
    statements = [table.of_task for table in TABLES.values() if table.of_task is not None]
    return sum(conn.execute(SQL[statement], key).rowcount for statement in statements)


# --- attempts -----------------------------------------------------------------------------------------------

AttemptRow = tuple[int, int, int, int]
"""Task, run, node and number."""


def look_at_attempts(
    conn: sqlite3.Connection, company: OldCompany, before_ms: int, after: AttemptRow
) -> tuple[list[AttemptRow], AttemptRow | None]:
    """The next attempts that are old, and where to go on; nothing at the end."""
    seq, run, pos, number = after
    params = {"seq": seq, "run": run, "pos": pos, "number": number, "limit": LOOKED_MAX}
    params |= {"company_id": company.company_id, "before": company.attempts_before, "before_ms": before_ms}
    rows = conn.execute(SQL["old_attempts"], params).fetchall()
    old = [row[:4] for row in rows if row[4]]
    return old, rows[-1][:4] if len(rows) == LOOKED_MAX else None


def prune_attempts(
    conn: sqlite3.Connection, company_id: int, keys: Sequence[AttemptRow], before_ms: int
) -> int:
    """Delete those of the attempts that may still go; returns how many."""
    params = {"company_id": company_id, "keys": json.dumps(keys), "before_ms": before_ms}
    return conn.execute(SQL["prune_attempts"], params).rowcount


# --- a whole company ----------------------------------------------------------------------------------------


LAST: Final = ("deletions", "companies")
"""What goes in one unit, when all else of a company is gone."""


def remove_some(conn: sqlite3.Connection, company_id: int) -> dict[str, int]:
    """Delete some rows of a company; says how many of which table. Empty: only `LAST` are left."""
    removed: dict[str, int] = {}
    left = ROWS_MAX
    for name, table in TABLES.items():
        if table.of_company is not None and name not in LAST and left > 0:
            rows = conn.execute(SQL[table.of_company], {"company_id": company_id, "limit": left}).rowcount
            left -= rows
            if rows:
                removed[name] = rows
    return removed


def remove_last(conn: sqlite3.Connection, company_id: int) -> None:
    """Delete the company itself, when nothing else of it is left."""
    for name in LAST:
        statement = TABLES[name].of_company
        assert statement is not None
        conn.execute(SQL[statement], {"company_id": company_id})
