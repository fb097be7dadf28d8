"""The raw loop writes what a run writes; otherwise the ratio to it would mean nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from actors.testing import open_test_runtime, run_until_idle
from tests.bench.ours.common import limit, names_of, other, release, submit_jobs
from tests.bench.peers.raw import Loop, batches_of, drain, fill

TABLES = ("companies", "tasks", "edges", "runs", "nodes", "attempts", "quarantine", "graphs", "events")
OUR_OWN = frozenset({"company.limits_changed", "process.started", "process.stopped"})
"""Kinds of events of a run that are not about its jobs."""
NUMBERS = frozenset({"position", "event_seq"})
"""What counts those events too, and is not compared."""


def contents(path: Path) -> dict[str, list[dict[str, object]]]:
    """All rows, in an order that does not depend on when things happened; of times only that there are some."""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return {table: _rows(connection, table) for table in TABLES}


def _rows(connection: sqlite3.Connection, table: str) -> list[dict[str, object]]:
    places = "company_id, seq" if table == "events" else "1, 2, 3"
    found = [dict(row) for row in connection.execute(f"SELECT * FROM {table} ORDER BY {places}")]
    rows = [row for row in found if row.get("kind") not in OUR_OWN]
    left_out = NUMBERS | {"seq"} if table == "events" else NUMBERS
    return [
        {
            name: value is not None if name.endswith("_ms") else value
            for name, value in row.items()
            if name not in left_out
        }
        for row in rows
    ]


@pytest.mark.parametrize(("companies", "jobs"), [(3, 9), (1, 2)])
async def test_the_rows_are_those_of_a_run(
    tmp_path: Path, autojump_clock: object, companies: int, jobs: int
) -> None:
    names = names_of(companies)
    async with open_test_runtime(tmp_path / "run.db", handlers={"job": other}) as runtime:
        for name in names:
            await limit(runtime, [name], 0)
        await submit_jobs(runtime, names, jobs)
        await release(runtime, names)
        await run_until_idle(runtime)
    drain(str(tmp_path / "raw.db"), jobs=jobs, companies=companies)
    assert contents(tmp_path / "raw.db") == contents(tmp_path / "run.db")


async def test_a_filled_file_is_one_that_a_run_can_go_on_with(tmp_path: Path, autojump_clock: object) -> None:
    fill(str(tmp_path / "waiting.db"), jobs=4, companies=2, done=False)
    async with open_test_runtime(tmp_path / "waiting.db", handlers={"job": other}) as runtime:
        company = runtime.company("company-1")
        assert [(each.id, each.state.value) for each in await company.queue()] == [
            ("@1", "queued"),
            ("@2", "queued"),
        ]
        await release(runtime, names_of(2))
        await run_until_idle(runtime)
        assert await company.result("@2") == {"job": 1}


async def test_a_file_filled_with_what_is_done_holds_nothing_to_do(
    tmp_path: Path, autojump_clock: object
) -> None:
    fill(str(tmp_path / "done.db"), jobs=4, companies=2, done=True)
    async with open_test_runtime(tmp_path / "done.db", handlers={"job": other}) as runtime:
        assert [each.state.value for each in await runtime.company("company-0").tasks()] == ["completed"] * 2
        assert await runtime.company("company-0").queue() == ()


def test_a_batch_holds_each_company_once() -> None:
    assert list(batches_of(5, 2, 2)) == [[(1, 1), (2, 1)], [(1, 2), (2, 2)], [(1, 3)]]


def test_a_limit_is_kept_by_the_schema_against_the_loop_too(tmp_path: Path) -> None:
    loop = Loop(str(tmp_path / "over.db"))
    loop.begin_companies(1, 1)
    loop.submit([(1, 1), (1, 2)])
    loop.step([], [(1, 1)])
    with pytest.raises(sqlite3.IntegrityError, match="runs_max reached"):
        loop.step([], [(1, 2)])
    loop.close()
