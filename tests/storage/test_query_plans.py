"""How SQLite means to run each statement: by an index, whatever lies in the file, and without sorting.

C60. A statement that walks a table gets slower with every task that was ever done. What may walk or sort, and why, is
listed here by name; a statement that is added later is held to the rule.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from storage.sqlite.opening import open_writer
from storage.sqlite.statements import SQL
from tests.bench.peers.raw import fill

WALKS: Mapping[str, str] = {
    "forget_processes": "once in the life of a copy of the database",
    "prune_hosts": "in the order of its rows, up to a limit",
    "inbox_count": "what waits in the inbox, which is bounded: its index alone, up to the limit",
    "inbox_waiting": "what waits in the inbox, which is bounded: its index alone",
    "inbox_companies": "what waits in the inbox, which is bounded: its index alone",
    "inbox_unanswered": "for display: what waits in the inbox, which is bounded",
    "list_deletions": "in the order of its rows, up to a limit; companies that are being deleted are few",
    "last_position": "of a table with one row for each table that numbers its rows",
}
SORTS: Mapping[str, str] = {
    "inbox_waiting": "what waits in the inbox, which is bounded: numbers, in rounds over the companies",
    "inbox_unanswered": "for display: what waits in the inbox, which is bounded",
    "upstream_results": "what one task's upstreams gave, read when an attempt at it begins",
    "pinned_results": "the same",
    "attempts_of": "for display: the attempts of one task",
    "sweep_queued": "companies with unsettled runs, at most a name and a time each",
}
LISTS = ("VIRTUAL TABLE", "CONSTANT ROW", "SCAN living", "SCAN above", "SCAN active")
"""What is walked, but holds only what was asked for: a JSON list, a list made by the statement itself."""


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_writer(tmp_path / "plans.db")
    yield connection
    connection.close()


def plan_of(raw: sqlite3.Connection, name: str) -> list[str]:
    statement = SQL[name]
    named = set(re.findall(r":([a-z_]+)", statement))
    numbered = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    params = (
        dict.fromkeys(named) if named else [None] * max(statement.count("?") - len(numbered), *numbered, 0)
    )
    return [row[3] for row in raw.execute(f"EXPLAIN QUERY PLAN {statement}", params)]


@pytest.mark.parametrize("name", SQL)
def test_a_statement_finds_its_rows_by_an_index_and_does_not_sort(raw: sqlite3.Connection, name: str) -> None:
    plan = plan_of(raw, name)
    walks = [step for step in plan if step.startswith("SCAN") and not any(kind in step for kind in LISTS)]
    sorts = [step for step in plan if "TEMP B-TREE" in step]
    assert bool(walks) == (name in WALKS), walks
    assert bool(sorts) == (name in SORTS), sorts


def test_a_walk_and_a_sort_would_be_seen(raw: sqlite3.Connection) -> None:
    (step,) = [row[3] for row in raw.execute("EXPLAIN QUERY PLAN SELECT * FROM tasks WHERE goal = 'x'")]
    assert step == "SCAN tasks"
    plan = raw.execute("EXPLAIN QUERY PLAN SELECT * FROM runs WHERE company_id = 1 ORDER BY created_ms")
    assert "USE TEMP B-TREE FOR ORDER BY" in [row[3] for row in plan]


SWEEP = ("sweep_active", "sweep_due", "sweep_schedules", "sweep_queued")
AT_START = ("load_tasks", "load_runless", "load_edges", "load_graphs", "load_schedules", "claim_company")
PARAMS = {"company_id": 1, "name": "company-0", "after": 0, "limit": 1_000, "now_ms": 10**15}


def steps_of(path: Path, names: tuple[str, ...]) -> int:
    """How many instructions SQLite carries out for them."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    with closing(open_writer(path)) as raw:
        raw.execute("BEGIN")
        raw.set_progress_handler(count, 1)
        for name in names:
            raw.execute(SQL[name], PARAMS).fetchall()
    return steps


def filled(folder: Path, *, jobs: int, companies: int, done: bool) -> Path:
    path = folder / f"{jobs}-{companies}-{done}.db"
    fill(str(path), jobs=jobs, companies=companies, done=done)
    return path


def test_a_sweep_costs_nothing_for_companies_whose_work_is_done(tmp_path: Path) -> None:
    few = filled(tmp_path, jobs=10, companies=10, done=True)
    many = filled(tmp_path, jobs=500, companies=500, done=True)
    assert steps_of(few, SWEEP) == steps_of(many, SWEEP)


def test_a_sweep_costs_the_same_however_long_a_company_s_queue_is(tmp_path: Path) -> None:
    short = filled(tmp_path, jobs=10, companies=2, done=False)
    long = filled(tmp_path, jobs=2_000, companies=2, done=False)
    assert steps_of(short, SWEEP) == steps_of(long, SWEEP)


def test_a_start_reads_nothing_of_the_tasks_that_are_done(tmp_path: Path) -> None:
    few = filled(tmp_path, jobs=10, companies=1, done=True)
    many = filled(tmp_path, jobs=2_000, companies=1, done=True)
    assert steps_of(few, AT_START) == steps_of(many, AT_START)


def test_one_company_s_backlog_is_nothing_to_another_s_start(tmp_path: Path) -> None:
    """C60, for the reads; the bench measures the whole."""
    path = filled(tmp_path, jobs=4, companies=2, done=False)
    before = steps_of(path, AT_START)
    with closing(open_writer(path)) as raw:
        raw.execute(
            "INSERT INTO tasks (company_id, seq, id, priority, created_ms, mode, shape, fail_fast, title)"
            " SELECT 2, seq + 10000 * n, 'x' || n || '.' || seq, priority, created_ms, mode, shape, fail_fast, title"
            " FROM tasks, (SELECT value AS n FROM json_each('[1,2,3,4,5,6,7,8,9]')) WHERE company_id = 2"
        )
        raw.execute(
            "INSERT INTO runs (company_id, seq, number, status, created_ms)"
            " SELECT company_id, seq, 1, 'queued', 1 FROM tasks WHERE company_id = 2 AND seq > 10000"
        )
    assert steps_of(path, AT_START) == before


def test_a_task_without_a_run_is_found_among_many_that_are_done(tmp_path: Path) -> None:
    path = filled(tmp_path, jobs=2_000, companies=1, done=True)
    with closing(open_writer(path)) as raw:
        assert raw.execute(SQL["load_runless"], PARAMS).fetchall() == []
        raw.execute("PRAGMA foreign_keys = OFF")
        raw.execute("DELETE FROM runs WHERE seq = 7")
        raw.execute(
            "INSERT INTO tasks (company_id, seq, id, priority, created_ms, mode, shape, fail_fast, title)"
            " VALUES (1, 9000, 'planted', 2, 1, 'auto', '[]', 0, 'x')"
        )
        assert [row[0] for row in raw.execute(SQL["load_runless"], PARAMS)] == [7, 9000]
        raw.execute(
            "INSERT INTO runs (company_id, seq, number, status, created_ms) VALUES (1, 7, 1, 'queued', 1)"
        )
        assert [row[0] for row in raw.execute(SQL["load_runless"], PARAMS)] == [9000]
