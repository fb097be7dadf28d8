"""What holds of every database at every commit, and of every runtime between two turns.

`check_file` asks the tables alone, so it can be asked at any moment, of a file in use, of one whose process
was killed, of one that is closed. Each rule is a sentence and a statement that finds what breaks it; the
rules that need more than one look are functions. The log is read as well: told from its beginning it has to
end at the very facts that stand in the tables, or something was changed and not said.

What was let go by age is missing, and only that: lines below the floor of the log, attempts of a company that
told of it, tasks that a ``tasks.pruned`` names.

Rows that a test plants may break rules of their own; such a test is marked ``planted``.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import attrs

from actors.core.loading import check_company, state_of, take_in
from actors.core.shape import spec_of
from actors.core.state import CompanyState
from actors.core.task_state import TaskState
from actors.events import KINDS
from actors.host import Runtime
from storage.contract.loading import LoadCompany, LoadedCompany
from storage.values import changed
from tests.inside import inside

SHOWN = 5
"""Offenders named in one complaint."""

ALWAYS = ("foreign keys are kept", "a company has a name, or is being deleted")
"""Rules that hold also while a company is being deleted."""

ATTEMPTS_WENT = """
    SELECT company_id FROM events WHERE kind = 'attempts.pruned' UNION SELECT company_id FROM floors"""
"""Companies of which attempts may be missing: their log says so, or did."""

RULES: Mapping[str, str] = MappingProxyType(
    {
        "a task has at least one run": """
            SELECT task.company_id, task.id FROM tasks AS task WHERE NOT EXISTS (
                SELECT 1 FROM runs WHERE runs.company_id = task.company_id AND runs.seq = task.seq)""",
        "runs of a task are numbered from one without a gap": """
            SELECT company_id, seq FROM runs GROUP BY company_id, seq
            HAVING min(number) <> 1 OR max(number) <> count(*)""",
        "only the newest run of a task is unsettled": """
            SELECT company_id, seq, number, status FROM runs AS run WHERE settled_ms IS NULL AND EXISTS (
                SELECT 1 FROM runs AS later WHERE later.company_id = run.company_id AND later.seq = run.seq
                  AND later.number > run.number)""",
        "an active run has a slot of its own": """
            SELECT company_id, slot, count(*) FROM runs WHERE slot > 0 GROUP BY company_id, slot
            HAVING count(*) > 1""",
        "a run holds a slot exactly while it is active": """
            SELECT company_id, seq, number, status, slot FROM runs
            WHERE (slot > 0) <> (status IN ('running', 'stopping'))""",
        "a run that was never admitted has no nodes": """
            SELECT run.company_id, run.seq, run.number FROM runs AS run
            JOIN nodes AS node ON node.company_id = run.company_id AND node.seq = run.seq AND node.run = run.number
            WHERE run.admitted_ms IS NULL""",
        "nodes of a run are numbered from zero without a gap": """
            SELECT company_id, seq, run FROM nodes GROUP BY company_id, seq, run
            HAVING min(pos) <> 0 OR max(pos) <> count(*) - 1""",
        "every node of a completed run has succeeded": """
            SELECT run.company_id, run.seq, run.number, node.pos, node.status FROM runs AS run
            JOIN nodes AS node ON node.company_id = run.company_id AND node.seq = run.seq AND node.run = run.number
            WHERE run.status = 'completed' AND node.status <> 'succeeded'""",
        "a failed run has a failed node, or is quarantined": """
            SELECT run.company_id, run.seq, run.number FROM runs AS run
            WHERE run.status = 'failed' AND NOT EXISTS (
                SELECT 1 FROM nodes AS node WHERE node.company_id = run.company_id AND node.seq = run.seq
                  AND node.run = run.number AND node.status = 'failed')
              AND NOT EXISTS (
                SELECT 1 FROM events WHERE events.company_id = run.company_id AND events.task_seq = run.seq
                  AND events.kind = 'task.quarantined')
              AND NOT EXISTS (SELECT 1 FROM floors WHERE floors.company_id = run.company_id)""",
        "no node waits in a run that was stopped": """
            SELECT run.company_id, run.seq, run.number, node.pos FROM runs AS run
            JOIN nodes AS node ON node.company_id = run.company_id AND node.seq = run.seq AND node.run = run.number
            WHERE run.status = 'stopped' AND node.status = 'pending' AND NOT EXISTS (
                SELECT 1 FROM events WHERE events.company_id = run.company_id AND events.task_seq = run.seq
                  AND events.kind = 'task.quarantined')
              AND NOT EXISTS (SELECT 1 FROM floors WHERE floors.company_id = run.company_id)""",
        "a node runs only in an active run": """
            SELECT run.company_id, run.seq, run.number, node.pos, run.status FROM runs AS run
            JOIN nodes AS node ON node.company_id = run.company_id AND node.seq = run.seq AND node.run = run.number
            WHERE node.status = 'running' AND run.slot = 0""",
        "a node that runs has an open attempt, its last one": """
            SELECT node.company_id, node.seq, node.run, node.pos FROM nodes AS node
            WHERE node.status = 'running' AND NOT EXISTS (
                SELECT 1 FROM attempts AS attempt WHERE attempt.company_id = node.company_id
                  AND attempt.seq = node.seq AND attempt.run = node.run AND attempt.pos = node.pos
                  AND attempt.number = node.attempts AND attempt.ended_ms IS NULL)""",
        "an attempt that lives is of its node's generation, or of one before if it is superseded": """
            SELECT node.company_id, node.seq, node.run, node.pos, node.generation, attempt.generation
            FROM nodes AS node
            JOIN attempts AS attempt ON attempt.company_id = node.company_id AND attempt.seq = node.seq
              AND attempt.run = node.run AND attempt.pos = node.pos AND attempt.ended_ms IS NULL
            WHERE node.superseded <> (attempt.generation < node.generation) OR attempt.generation > node.generation""",
        "only a live attempt is superseded": """
            SELECT company_id, seq, run, pos, status FROM nodes WHERE superseded = 1 AND status <> 'running'""",
        "an open attempt is the last one of a node that runs": """
            SELECT attempt.company_id, attempt.seq, attempt.run, attempt.pos, attempt.number
            FROM attempts AS attempt
            LEFT JOIN nodes AS node ON node.company_id = attempt.company_id AND node.seq = attempt.seq
              AND node.run = attempt.run AND node.pos = attempt.pos
            WHERE attempt.ended_ms IS NULL AND (node.status IS NOT 'running' OR node.attempts <> attempt.number)""",
        "attempts of a node are numbered from one without a gap": f"""
            SELECT node.company_id, node.seq, node.run, node.pos, node.attempts, count(attempt.number)
            FROM nodes AS node
            LEFT JOIN attempts AS attempt ON attempt.company_id = node.company_id AND attempt.seq = node.seq
              AND attempt.run = node.run AND attempt.pos = node.pos
            GROUP BY node.company_id, node.seq, node.run, node.pos
            HAVING (node.attempts <> count(attempt.number) AND node.company_id NOT IN ({ATTEMPTS_WENT}))
              OR coalesce(max(attempt.number) - min(attempt.number) + 1, 0) <> count(attempt.number)
              OR (node.attempts <> max(attempt.number) AND count(attempt.number) > 0)""",
        "a node has a result exactly if it succeeded": """
            SELECT company_id, seq, run, pos, status FROM nodes
            WHERE (result IS NOT NULL) <> (status = 'succeeded')""",
        "of one generation one result is accepted": """
            SELECT company_id, seq, run, pos, generation, count(*) FROM attempts WHERE end = 'succeeded'
            GROUP BY company_id, seq, run, pos, generation HAVING count(*) > 1""",
        "a node has succeeded exactly if an attempt of its generation has": f"""
            SELECT node.company_id, node.seq, node.run, node.pos, node.status FROM nodes AS node
            WHERE node.spec ->> 'gate' IS NULL
              AND NOT (node.run > 1 AND node.attempts = 0)
              AND (node.status = 'succeeded') <> EXISTS (
                SELECT 1 FROM attempts AS attempt WHERE attempt.company_id = node.company_id
                  AND attempt.seq = node.seq AND attempt.run = node.run AND attempt.pos = node.pos
                  AND attempt.generation = node.generation AND attempt.end = 'succeeded')
              AND (node.status <> 'succeeded' OR node.company_id NOT IN ({ATTEMPTS_WENT}))""",
        "a result without an attempt is that of the run before": """
            SELECT node.company_id, node.seq, node.run, node.pos FROM nodes AS node
            LEFT JOIN nodes AS old ON old.company_id = node.company_id AND old.seq = node.seq
              AND old.run = node.run - 1 AND old.pos = node.pos
            WHERE node.status = 'succeeded' AND node.attempts = 0 AND node.spec ->> 'gate' IS NULL
              AND (old.result IS NOT node.result OR old.spec IS NOT node.spec OR old.payload IS NOT node.payload)""",
        "a gate has no attempts": """
            SELECT company_id, seq, run, pos, attempts FROM nodes WHERE spec ->> 'gate' AND attempts > 0""",
        "a gate has succeeded exactly as somebody approved it": """
            SELECT company_id, seq, run, pos, result FROM nodes
            WHERE spec ->> 'gate' AND status = 'succeeded' AND (result ->> 'approved') IS NOT 1""",
        "who waits since when is a gate whose upstream nodes have all succeeded": """
            SELECT node.company_id, node.seq, node.run, node.pos FROM nodes AS node
            WHERE node.reached_ms IS NOT NULL AND (node.spec ->> 'gate' IS NULL OR node.status <> 'pending' OR EXISTS (
                SELECT 1 FROM json_each(coalesce(node.spec -> 'after', '[]')) AS place
                JOIN nodes AS up ON up.company_id = node.company_id AND up.seq = node.seq AND up.run = node.run
                  AND up.pos = place.value
                WHERE up.status <> 'succeeded'))""",
        "a halted run says since when and what it waits for": """
            SELECT company_id, seq, number, status, reason, halted_ms FROM runs
            WHERE (status = 'halted') <> (halted_ms IS NOT NULL)
               OR (status = 'halted' AND coalesce(reason, '') NOT IN ('approval', 'step', 'budget'))""",
        "nothing of a halted run is alive, and a person can make it go on": """
            SELECT run.company_id, run.seq, run.number FROM runs AS run
            WHERE run.status = 'halted' AND (
                EXISTS (SELECT 1 FROM nodes AS node WHERE node.company_id = run.company_id AND node.seq = run.seq
                          AND node.run = run.number AND node.status = 'running')
                OR NOT EXISTS (
                    SELECT 1 FROM nodes AS node WHERE node.company_id = run.company_id AND node.seq = run.seq
                      AND node.run = run.number AND node.status = 'pending'
                      AND (run.reason IN ('step', 'budget') OR node.reached_ms IS NOT NULL)))""",
        "feedback is of a generation that began with it": """
            SELECT company_id, seq, run, pos, generation FROM nodes WHERE feedback IS NOT NULL AND generation = 0""",
        "a node was sent back as often as the log says": """
            SELECT node.company_id, node.seq, node.run, node.pos, node.send_backs FROM nodes AS node
            WHERE node.send_backs > (
                SELECT count(*) FROM events WHERE events.company_id = node.company_id
                  AND events.task_seq = node.seq AND events.kind = 'node.sent_back'
                  AND events.node = node.spec ->> 'name')""",
        "what a node works with, or has its result from, has succeeded": """
            SELECT node.company_id, node.seq, node.run, node.pos, node.status, up.pos, up.status FROM nodes AS node
            JOIN json_each(coalesce(node.spec -> 'after', '[]')) AS place
            JOIN nodes AS up ON up.company_id = node.company_id AND up.seq = node.seq AND up.run = node.run
              AND up.pos = place.value
            WHERE up.status <> 'succeeded'
              AND (node.status = 'succeeded' OR (node.status = 'running' AND node.superseded = 0))""",
        "no more tries are counted than attempts failed": f"""
            SELECT node.company_id, node.seq, node.run, node.pos, node.tries FROM nodes AS node
            WHERE node.company_id NOT IN ({ATTEMPTS_WENT}) AND node.tries > (
                SELECT count(*) FROM attempts AS attempt WHERE attempt.company_id = node.company_id
                  AND attempt.seq = node.seq AND attempt.run = node.run AND attempt.pos = node.pos
                  AND attempt.end IN ('failed', 'timed_out', 'stalled'))""",
        "no more deaths are counted than attempts were lost": f"""
            SELECT node.company_id, node.seq, node.run, node.pos, node.unclean FROM nodes AS node
            WHERE node.company_id NOT IN ({ATTEMPTS_WENT}) AND node.unclean > (
                SELECT count(*) FROM attempts AS attempt WHERE attempt.company_id = node.company_id
                  AND attempt.seq = node.seq AND attempt.run = node.run AND attempt.pos = node.pos
                  AND attempt.end = 'lost')""",
        "only a node that may be tried again has a time to wait for": """
            SELECT company_id, seq, run, pos, status FROM nodes
            WHERE not_before_ms IS NOT NULL AND status <> 'pending'""",
        "what was pinned is a completed run of the upstream": """
            SELECT edge.company_id, edge.seq, edge.upstream, edge.pinned_run FROM edges AS edge
            LEFT JOIN tasks AS up ON up.company_id = edge.company_id AND up.id = edge.upstream
            LEFT JOIN runs AS run ON run.company_id = up.company_id AND run.seq = up.seq
              AND run.number = edge.pinned_run
            WHERE edge.pinned_run IS NOT NULL AND run.status IS NOT 'completed'""",
        "an upstream exists": """
            SELECT edge.company_id, edge.seq, edge.upstream FROM edges AS edge WHERE NOT EXISTS (
                SELECT 1 FROM tasks AS up WHERE up.company_id = edge.company_id AND up.id = edge.upstream)""",
        "the company's counters are not behind its rows": """
            SELECT company.company_id, company.name FROM companies AS company
            WHERE company.task_seq < (SELECT coalesce(max(seq), 0) FROM tasks
                                      WHERE tasks.company_id = company.company_id)
               OR company.front_seq < (SELECT coalesce(max(front), 0) FROM runs
                                       WHERE runs.company_id = company.company_id)""",
        "events of a company are numbered from one, or from its floor, without a gap": """
            SELECT company.name, company.event_seq, coalesce(floor.seq, 0) AS gone, count(event.seq)
            FROM companies AS company
            LEFT JOIN floors AS floor ON floor.company_id = company.company_id
            LEFT JOIN events AS event ON event.company_id = company.company_id
            WHERE company.name IS NOT NULL
            GROUP BY company.company_id
            HAVING company.event_seq <> gone + count(event.seq)
                OR company.event_seq <> coalesce(max(event.seq), gone)
                OR coalesce(min(event.seq), gone + 1) <> gone + 1""",
        "nothing is left below the floor": """
            SELECT event.position, event.company_id, event.seq FROM events AS event
            WHERE event.position <= (SELECT position FROM floors WHERE company_id = 0)
               OR event.position <= (SELECT position FROM floors WHERE floors.company_id = event.company_id)""",
        "the floor of a company is one of the lines that went": """
            SELECT floor.company_id, floor.position FROM floors AS floor WHERE floor.company_id > 0
              AND (floor.seq < 1
                OR floor.position > coalesce((SELECT position FROM floors WHERE company_id = 0), 0))""",
        "a company has a name, or is being deleted": """
            SELECT company.company_id FROM companies AS company
            LEFT JOIN deletions USING (company_id)
            WHERE (company.name IS NULL) <> (deletions.company_id IS NOT NULL)""",
        "every row is a company's that exists": """
            SELECT 'event', company_id, position FROM events
            WHERE company_id IS NOT NULL AND company_id NOT IN (SELECT company_id FROM companies)
            UNION ALL SELECT 'floor', company_id, position FROM floors
            WHERE company_id > 0 AND company_id NOT IN (SELECT company_id FROM companies)""",
        "positions rise with the numbers": """
            SELECT event.company_id, event.seq, event.position FROM events AS event
            JOIN events AS later ON later.company_id = event.company_id AND later.seq = event.seq + 1
            WHERE later.position <= event.position""",
        "the file knows when the next node becomes due": """
            SELECT company.name, company.due_ms, min(node.not_before_ms) FROM companies AS company
            JOIN runs AS run ON run.company_id = company.company_id AND run.settled_ms IS NULL
            JOIN tasks AS task ON task.company_id = run.company_id AND task.seq = run.seq
              AND task.archived_ms IS NULL
            JOIN nodes AS node ON node.company_id = run.company_id AND node.seq = run.seq AND node.run = run.number
              AND node.status = 'pending'
            WHERE node.not_before_ms > (SELECT max(at_ms) FROM events
                                        WHERE events.company_id = company.company_id)
              AND NOT EXISTS (SELECT 1 FROM quarantine AS q WHERE q.company_id = run.company_id AND q.seq = run.seq)
            GROUP BY company.company_id
            HAVING company.due_ms IS NULL OR company.due_ms > min(node.not_before_ms)""",
        "the file knows when the next task may start": """
            SELECT company.name, company.due_ms, min(task.not_before_ms) FROM companies AS company
            JOIN runs AS run ON run.company_id = company.company_id AND run.status = 'queued'
              AND run.admitted_ms IS NULL AND run.front = 0
            JOIN tasks AS task ON task.company_id = run.company_id AND task.seq = run.seq
              AND task.archived_ms IS NULL
            WHERE task.not_before_ms > (SELECT max(at_ms) FROM events
                                        WHERE events.company_id = company.company_id)
              AND NOT EXISTS (SELECT 1 FROM quarantine AS q WHERE q.company_id = run.company_id AND q.seq = run.seq)
            GROUP BY company.company_id
            HAVING company.due_ms IS NULL OR company.due_ms > min(task.not_before_ms)""",
        "the file knows when the next schedule is due": """
            SELECT company.name, company.due_ms, min(schedule.due_ms) FROM companies AS company
            JOIN schedules AS schedule ON schedule.company_id = company.company_id
            WHERE company.paused_ms IS NULL AND schedule.paused_ms IS NULL AND schedule.due_ms IS NOT NULL
            GROUP BY company.company_id
            HAVING company.due_ms IS NULL OR company.due_ms > min(schedule.due_ms)""",
        "a nominal time of a schedule has one task": """
            SELECT company_id, schedule, nominal_ms, count(*) FROM tasks WHERE nominal_ms IS NOT NULL
            GROUP BY company_id, schedule, nominal_ms HAVING count(*) > 1""",
        "an attempt belongs to a host that was there": """
            SELECT attempt.company_id, attempt.seq, attempt.run, attempt.pos, attempt.number, attempt.host_id
            FROM attempts AS attempt
            WHERE attempt.host_id > coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'hosts'), 0)
               OR attempt.host_id < 1""",
        "what is reserved is what attempts that live have reserved": """
            SELECT company.company_id, 'company', company.reserved FROM companies AS company
            WHERE company.reserved <> (SELECT coalesce(sum(reserved), 0) FROM attempts
                                       WHERE attempts.company_id = company.company_id AND ended_ms IS NULL)
            UNION ALL
            SELECT task.company_id, task.id, task.reserved FROM tasks AS task
            WHERE task.reserved <> (SELECT coalesce(sum(reserved), 0) FROM attempts
                                    WHERE attempts.company_id = task.company_id AND attempts.seq = task.seq
                                      AND ended_ms IS NULL)""",
        "what is spent is what is booked of all attempts": f"""
            SELECT company.company_id, 'company', company.spent, booked.units FROM companies AS company
            CROSS JOIN (SELECT company_id, sum(spent) AS units FROM attempts GROUP BY company_id) AS booked
              ON booked.company_id = company.company_id
            WHERE company.spent < booked.units
               OR (company.spent > booked.units AND company.company_id NOT IN ({ATTEMPTS_WENT})
                   AND company.company_id NOT IN (SELECT company_id FROM events WHERE kind = 'tasks.pruned'))
            UNION ALL
            SELECT task.company_id, task.id, task.spent, coalesce(sum(attempt.spent), 0) FROM tasks AS task
            LEFT JOIN attempts AS attempt ON attempt.company_id = task.company_id AND attempt.seq = task.seq
            GROUP BY task.company_id, task.seq
            HAVING task.spent < coalesce(sum(attempt.spent), 0)
               OR (task.spent > coalesce(sum(attempt.spent), 0) AND task.company_id NOT IN ({ATTEMPTS_WENT}))""",
        "an attempt that lives has reserved no more than its estimate leaves": """
            SELECT attempt.company_id, attempt.seq, attempt.run, attempt.pos, attempt.number, attempt.reserved
            FROM attempts AS attempt
            JOIN nodes AS node ON node.company_id = attempt.company_id AND node.seq = attempt.seq
              AND node.run = attempt.run AND node.pos = attempt.pos
            WHERE attempt.reserved <> CASE WHEN attempt.ended_ms IS NULL
                THEN max(0, coalesce(node.spec ->> 'estimate', 0) - attempt.spent) ELSE 0 END""",
        "foreign keys are kept": "PRAGMA foreign_key_check",
        "the file is whole": "SELECT * FROM pragma_integrity_check WHERE integrity_check <> 'ok'",
    }
)
"""Sentence → statement that returns what breaks it."""


class Broken(AssertionError):
    """Rules that do not hold. ``complaints``: rule → offenders."""

    def __init__(self, where: str, complaints: Mapping[str, list[Any]]) -> None:
        lines = [
            f"  {rule}: {', '.join(map(str, found[:SHOWN]))}" + (" …" if len(found) > SHOWN else "")
            for rule, found in complaints.items()
        ]
        super().__init__(f"{where} breaks {len(complaints)} rules\n" + "\n".join(lines))
        self.complaints = complaints


def check_file(path: str | Path) -> None:
    """Raise `Broken` unless every rule holds in the database at ``path``, which may be in use. Changes nothing."""
    raw = sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True, isolation_level=None)
    try:
        raw.execute("PRAGMA query_only = ON")
        raw.execute("BEGIN")
        complaints = dict(_complaints(raw))
    finally:
        raw.close()
    if complaints:
        raise Broken(str(path), complaints)


def _complaints(raw: sqlite3.Connection) -> Iterator[tuple[str, list[Any]]]:
    going = {None, *(row[0] for row in raw.execute("SELECT company_id FROM deletions").fetchall())}
    log = _Log(raw)
    for rule, rows in (
        *((rule, raw.execute(statement).fetchall()) for rule, statement in RULES.items()),
        *((rule, list(look(log))) for rule, look in LOOKS.items()),
    ):
        # of a company that is being deleted some rows are gone already
        if found := [row for row in rows if rule in ALWAYS or row[0] not in going]:
            yield rule, found


# --- the log against the tables -----------------------------------------------------------------------------


def _data(text: str | None) -> dict[str, Any]:
    return dict(json.loads(text)) if text else {}


@attrs.frozen
class _Line:
    company: int | None
    kind: str
    task: str | None
    task_seq: int | None
    run: int | None
    node: str | None
    attempt: int | None
    before: str | None
    after: str | None
    data: dict[str, Any] = attrs.field(converter=_data)


class _Log:
    """The whole log, read once, and the tables beside it."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self.raw = raw
        rows = raw.execute(
            "SELECT company_id, kind, task, task_seq, run, node, attempt, before, after, data FROM events"
            " ORDER BY position"
        ).fetchall()
        self.lines = [_Line(*row) for row in rows]
        self.cut = {row[0] for row in raw.execute("SELECT company_id FROM floors").fetchall()}
        """Companies whose first lines are gone."""
        self.attempts_went = {line.company for line in self.of("attempts.pruned")} | self.cut
        self.pruned = self._pruned()

    def _pruned(self) -> set[tuple[int | None, int | None]]:
        """Tasks that went by age, as the log tells: an id means the task that had it last."""
        seqs: dict[tuple[int | None, str | None], int | None] = {}
        gone: set[tuple[int | None, int | None]] = set()
        for line in self.lines:
            if line.kind == "tasks.pruned":
                gone.update((line.company, seqs.get((line.company, task))) for task in line.data["ids"])
            elif line.task_seq is not None:
                seqs[(line.company, line.task)] = line.task_seq
        return gone

    def of(self, *kinds: str) -> Iterator[_Line]:
        return (line for line in self.lines if line.kind in kinds)

    def quarantined(self) -> set[tuple[int | None, int | None]]:
        """Tasks that were set aside once: what decodes nothing can name no node."""
        return {(line.company, line.task_seq) for line in self.of("task.quarantined")}


def _wrong_fields(log: _Log) -> Iterator[Any]:
    for line in log.lines:
        kind = KINDS.get(line.kind)
        if kind is None:
            yield f"{line.kind}: no such kind"
        elif set(line.data) != set(kind.fields):
            yield f"{line.kind}: {sorted(line.data)} instead of {sorted(kind.fields)}"


def _runs_by_log(log: _Log) -> tuple[dict[Any, str | None], list[Any]]:
    """Where the log says that every run stands, and where one of its lines does not go on from the last."""
    stands: dict[Any, str | None] = {}
    torn: list[Any] = []
    for line in log.lines:
        if not (line.kind.startswith("run.") or line.kind == "task.submitted"):
            continue
        key = (line.company, line.task_seq, line.run)
        born = line.kind in ("task.submitted", "run.created")
        if key not in stands and not born and line.company in log.cut:
            stands[key] = line.before
        if born == (key in stands) or (not born and stands[key] != line.before):
            torn.append((*key, line.kind, line.before, stands.get(key)))
        stands[key] = line.after
    return stands, torn


def _torn_runs(log: _Log) -> Iterator[Any]:
    yield from _runs_by_log(log)[1]


def _untold_runs(log: _Log) -> Iterator[Any]:
    rows = log.raw.execute("SELECT company_id, seq, number, status FROM runs").fetchall()
    facts = {(company, seq, number): status for company, seq, number, status in rows}
    told, _ = _runs_by_log(log)
    for key in sorted(facts.keys() | told.keys(), key=str):
        excused = key[:2] in log.pruned if key not in facts else key not in told and key[0] in log.cut
        if facts.get(key) != told.get(key) and not excused:
            yield (*key, f"is {facts.get(key)}, told as {told.get(key)}")


_ENDS = ("succeeded", "failed", "timed_out", "stalled", "interrupted", "stopped", "superseded", "lost")


def _untold_attempts(log: _Log) -> Iterator[Any]:
    """Each attempt has one line for its beginning and, if it has ended, one for its end."""
    told: dict[Any, list[str]] = defaultdict(list)
    for line in log.lines:
        what = line.kind.removeprefix("attempt.").replace("postponed", "interrupted")
        if line.kind.startswith("attempt.") and what in ("started", *_ENDS):
            told[(line.company, line.task_seq, line.run, line.node, line.attempt)].append(what)
    aside = log.quarantined()
    for row in log.raw.execute(
        "SELECT attempt.company_id, attempt.seq, attempt.run, node.spec, attempt.number, attempt.end"
        " FROM attempts AS attempt JOIN nodes AS node ON node.company_id = attempt.company_id"
        " AND node.seq = attempt.seq AND node.run = attempt.run AND node.pos = attempt.pos"
    ).fetchall():
        company, seq, run, spec, number, end = row
        if (company, seq) in aside:
            continue
        said = told.pop((company, seq, run, spec_of(spec).name, number), [])
        expected = ["started", *([] if end is None else [end])]
        if said != (expected[len(expected) - len(said) :] if company in log.cut else expected):
            yield (company, seq, run, spec_of(spec).name, number, f"ended {end}, told as {said}")
    for key, said in told.items():
        if key[:2] not in aside | log.pruned and key[0] not in log.attempts_went:
            yield (*key, f"told as {said}, has no row")


def _untold_settings(log: _Log) -> Iterator[Any]:
    paused: dict[Any, bool] = {}
    limits: dict[Any, tuple[int, int]] = {}
    for line in log.lines:
        if line.kind in ("company.paused", "company.unpaused"):
            paused[line.company] = line.kind == "company.paused"
        elif line.kind == "company.limits_changed":
            limits[line.company] = (line.data.get("runs_max", -1), line.data.get("weight", -1))
    rows = log.raw.execute(
        "SELECT company_id, paused_ms IS NOT NULL, runs_max, weight FROM companies"
    ).fetchall()
    for company, is_paused, *in_force in rows:
        if bool(is_paused) != paused.get(company, bool(is_paused) and company in log.cut):
            yield (company, f"paused {bool(is_paused)}, told as {paused.get(company, False)}")
        if company in limits and tuple(in_force) != limits[company]:
            yield (company, f"runs_max and weight are {in_force}, told as {limits[company]}")


def _untold_spending(log: _Log) -> Iterator[Any]:
    """The log alone says what every attempt has spent, and which limit is in force."""
    told: dict[Any, int] = {}
    limits: dict[Any, int | None] = {}
    aside = log.quarantined()
    for line in log.lines:
        key = (line.company, line.task_seq, line.run, line.node, line.attempt)
        if line.kind == "attempt.spent":
            known = key in told and key[:2] not in aside
            if known and line.data["spent"] - line.data["added"] != told[key]:
                yield (*key, f"went on from {told[key]} with {line.data}")
            told[key] = line.data["spent"]
        elif line.kind == "company.budget_changed":
            limits[line.company] = line.data["limit"]
    for row in log.raw.execute(
        "SELECT attempt.company_id, attempt.seq, attempt.run, node.spec, attempt.number, attempt.spent"
        " FROM attempts AS attempt JOIN nodes AS node ON node.company_id = attempt.company_id"
        " AND node.seq = attempt.seq AND node.run = attempt.run AND node.pos = attempt.pos"
    ).fetchall():
        company, seq, run, spec, number, spent = row
        said = told.get((company, seq, run, spec_of(spec).name, number), 0)
        if said != spent and company not in log.cut and (company, seq) not in aside:
            yield (company, seq, run, spec_of(spec).name, number, f"spent {spent}, told as {said}")
    for company, limit in log.raw.execute("SELECT company_id, budget FROM companies").fetchall():
        if limits.get(company) != limit and company not in log.cut:
            yield (company, f"limit is {limit}, told as {limits.get(company)}")


def _untold_tasks(log: _Log) -> Iterator[Any]:
    archived: dict[Any, bool] = {}
    for line in log.lines:
        if line.kind in ("task.submitted", "task.archived", "task.unarchived"):
            archived[(line.company, line.task_seq, line.task)] = line.kind == "task.archived"
    rows = log.raw.execute("SELECT company_id, seq, id, archived_ms IS NOT NULL FROM tasks").fetchall()
    facts = {(company, seq, task): bool(away) for company, seq, task, away in rows}
    for key in sorted(facts.keys() | archived.keys(), key=str):
        excused = key[:2] in log.pruned if key not in facts else key not in archived and key[0] in log.cut
        if facts.get(key) != archived.get(key) and not excused:
            yield (*key, f"archived {facts.get(key)}, told as {archived.get(key)}")


def _untold_schedules(log: _Log) -> Iterator[Any]:
    told: dict[Any, str | None] = {}
    for line in log.lines:
        if line.kind.startswith("schedule.") and line.after is not None:
            told[(line.company, line.data.get("name"))] = line.after
        elif line.kind == "schedule.removed":
            told.pop((line.company, line.data.get("name")), None)
    rows = log.raw.execute(
        "SELECT company_id, name, CASE WHEN disabled IS NOT NULL THEN 'disabled' WHEN paused_ms IS NOT NULL"
        " THEN 'paused' ELSE 'active' END FROM schedules"
    ).fetchall()
    facts = {(company, name): status for company, name, status in rows}
    for key in sorted(facts.keys() | told.keys(), key=str):
        excused = key not in told and key[0] in log.cut
        if facts.get(key) != told.get(key) and not excused:
            yield (*key, f"is {facts.get(key)}, told as {told.get(key)}")


def _untold_fires(log: _Log) -> Iterator[Any]:
    told = {
        (line.company, line.task_seq): (line.data.get("name"), line.data.get("nominal_ms"))
        for line in log.of("schedule.fired")
    }
    rows = log.raw.execute(
        "SELECT company_id, seq, schedule, nominal_ms FROM tasks WHERE schedule IS NOT NULL"
    ).fetchall()
    facts = {(company, seq): (schedule, nominal) for company, seq, schedule, nominal in rows}
    for key in sorted(facts.keys() | told.keys(), key=str):
        excused = key in log.pruned if key not in facts else key not in told and key[0] in log.cut
        if facts.get(key) != told.get(key) and not excused:
            yield (*key, f"is of {facts.get(key)}, told as {told.get(key)}")


def _circles(log: _Log) -> Iterator[Any]:
    """Tasks that are their own upstreams, at whatever distance; walked without recursion."""
    rows = log.raw.execute(
        "SELECT task.company_id, task.id, edge.upstream FROM edges AS edge"
        " JOIN tasks AS task ON task.company_id = edge.company_id AND task.seq = edge.seq"
    ).fetchall()
    users: dict[Any, list[Any]] = defaultdict(list)
    unmet: dict[Any, int] = defaultdict(int)
    for company, task, upstream in rows:
        users[(company, upstream)].append((company, task))
        unmet[(company, task)] += 1
        unmet.setdefault((company, upstream), 0)
    free = [key for key, count in unmet.items() if count == 0]
    while free:
        key = free.pop()
        del unmet[key]
        for user in users[key]:
            unmet[user] -= 1
            if unmet[user] == 0:
                free.append(user)
    yield from unmet


LOOKS: Mapping[str, Callable[[_Log], Iterator[Any]]] = MappingProxyType(
    {
        "an event carries exactly the fields of its kind": _wrong_fields,
        "each move of a run goes on from where the last one ended": _torn_runs,
        "the log ends where the runs are": _untold_runs,
        "every attempt is told from beginning to end": _untold_attempts,
        "the log ends where the company's settings are": _untold_settings,
        "the log ends where the tasks are": _untold_tasks,
        "the log ends where the budgets are": _untold_spending,
        "the log ends where the schedules are": _untold_schedules,
        "every task of a schedule is told as its fire": _untold_fires,
        "dependencies have no circle": _circles,
    }
)
"""Sentence → what breaks it, for rules that need more than one statement."""


# --- a runtime that lives -----------------------------------------------------------------------------------


async def check_runtime(runtime: Runtime) -> None:
    """Assert that a runtime's memory is sound and says what its file says, company by company. Starts no turn."""
    check_memory(runtime)
    for cell in inside(runtime).services.directory.cells:
        actor = cell.memory
        if actor is None or actor.state is None:
            continue
        while not actor.between_turns.is_set():
            await actor.between_turns.wait()
        await _check_state(runtime, actor.state)


def check_memory(runtime: Runtime) -> None:
    """Assert that the registry's maps agree and that slots are what live attempts hold. Synchronous."""
    inside(runtime).services.registry.check()
    holding = [attempt for attempt in inside(runtime).services.registry if attempt.slot]
    assert inside(runtime).services.registry.slots_in_use == len(holding)
    assert len(holding) <= inside(runtime).services.options.executions_max


async def _check_state(runtime: Runtime, state: CompanyState) -> None:
    """What was moved step by step is what a fresh look at the tables derives."""
    name, ids = state.company.name, list(state.entries)
    known = inside(runtime).services.handler_names

    def build(found: LoadedCompany | None) -> CompanyState:
        assert found is not None
        loaded = check_company(found)
        fresh = state_of(loaded, known)
        take_in(fresh, loaded.also.tasks, loaded.also.missing)
        fresh.wake_due(inside(runtime).services.now_ms())
        return fresh

    fresh = await inside(runtime).services.store.fetch_with(LoadCompany(name, ids), build)
    assert state.company == fresh.company
    assert state.slots == fresh.slots
    assert state.graphs == fresh.graphs
    assert state.schedules.by_name == fresh.schedules.by_name
    unsettled = {
        task
        for task, entry in fresh.entries.items()
        if entry.task.archived_ms is None and (entry.run is None or not entry.run.status.settled)
    }
    assert unsettled <= state.entries.keys(), "an unsettled task is not in memory"
    for task, entry in state.entries.items():
        assert _told(entry) == _told(fresh.entries[task])
        assert (task in state.open) == (task in fresh.open), f"{task} stands in only one of two lines"


def _told(entry: TaskState) -> dict[str, Any]:
    settled = (
        entry.run is not None and entry.run.status.settled
    )  # it waits for nobody, whoever has left memory
    return {
        "task": changed(entry.task, depends_on=tuple(sorted(entry.task.depends_on))),
        "run": entry.run,
        "nodes": None if entry.nodes is None else list(entry.nodes),
        "quarantined": entry.quarantined,
        "blocked": entry.blocked,
        "unfinished": None if settled else entry.unfinished,
        "dead": None if settled else entry.dead,
        "standing": entry.standing,
    }
