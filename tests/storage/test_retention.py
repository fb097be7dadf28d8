"""Each table says how its rows go; statements that let rows go find them by their keys."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from storage.sqlite.deletion import LAST, TABLES
from storage.sqlite.opening import open_writer
from storage.sqlite.statements import SQL


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_writer(tmp_path / "x.db")) as raw:
        yield raw


def tables(raw: sqlite3.Connection) -> list[str]:
    rows = raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    return [row[0] for row in rows.fetchall()]


def parents(raw: sqlite3.Connection, table: str) -> set[str]:
    """Tables that this one refers to."""
    return {row[2] for row in raw.execute(f"PRAGMA foreign_key_list({table})").fetchall()}


def columns(raw: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in raw.execute(f"PRAGMA table_info({table})").fetchall()}


def test_every_table_of_the_schema_says_how_its_rows_go(raw: sqlite3.Connection) -> None:
    """A table that is added has to be entered, or its rows stay for ever and outlive their company."""
    assert TABLES.keys() == set(tables(raw))
    assert all(table.goes for table in TABLES.values())
    with pytest.raises(TypeError):
        TABLES["new"] = TABLES["tasks"]  # type: ignore[index]


def test_whatever_has_a_company_goes_with_it_and_whatever_has_a_task_with_that(
    raw: sqlite3.Connection,
) -> None:
    with_company = {name for name in tables(raw) if "company_id" in columns(raw, name)}
    assert {name for name, table in TABLES.items() if table.of_company is not None} == with_company
    with_task = {"tasks"}
    while more := {name for name in tables(raw) if parents(raw, name) & with_task} - with_task:
        with_task |= more
    assert {name for name, table in TABLES.items() if table.of_task is not None} == with_task


def test_what_refers_to_a_row_goes_before_it(raw: sqlite3.Connection) -> None:
    order = list(TABLES)
    for name in order:
        for parent in parents(raw, name):
            assert order.index(name) < order.index(parent)
    assert [name for name in order if name in LAST] == list(LAST)


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if table.of_company is not None])
def test_a_statement_deletes_from_the_table_it_is_entered_for(name: str) -> None:
    table = TABLES[name]
    for statement in (table.of_company, table.of_task):
        if statement is not None:
            assert SQL[statement].startswith(f"DELETE FROM {name} WHERE ")


# --- query plans ------------------------------------------------------------------------------------------------------


def plan(raw: sqlite3.Connection, statement: str) -> list[str]:
    names = re.findall(r":(\w+)", statement)
    params = dict.fromkeys(names, 1) if names else tuple([1] * statement.count("?"))
    return [row[3] for row in raw.execute(f"EXPLAIN QUERY PLAN {statement}", params).fetchall()]


PRUNING = {
    "oldest_events": ["SEARCH events USING INTEGER PRIMARY KEY (rowid>?)"],
    "prune_events": ["SEARCH events USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"],
    "task_from": ["SEARCH tasks USING PRIMARY KEY (company_id=? AND seq>?)"],
    "dependents_of": ["SEARCH edges USING COVERING INDEX edges_upstream (company_id=? AND upstream=?)"],
    "old_tasks": [
        "SEARCH task USING PRIMARY KEY (company_id=? AND seq>? AND seq<?)",
        "CORRELATED SCALAR SUBQUERY 1",
        "SEARCH run USING PRIMARY KEY (company_id=? AND seq=?)",
        "CORRELATED SCALAR SUBQUERY 2",
        "SEARCH quarantine USING PRIMARY KEY (company_id=? AND seq=?)",
        "CORRELATED SCALAR SUBQUERY 3",
        "SEARCH runs USING PRIMARY KEY (company_id=? AND seq=?)",
        "CORRELATED SCALAR SUBQUERY 4",
        "SEARCH attempts USING PRIMARY KEY (company_id=? AND seq=?)",
    ],
    "old_attempts": [
        "SEARCH attempt USING PRIMARY KEY (company_id=? AND (seq,run,pos,number)>(?,?,?,?) AND seq<?)",
        "SEARCH run USING PRIMARY KEY (company_id=? AND seq=? AND number=?)",
    ],
    "company_events": [
        "SEARCH events USING INTEGER PRIMARY KEY (rowid=?)",
        "LIST SUBQUERY 1",
        "SEARCH events USING COVERING INDEX events_company (company_id=?)",
    ],
    "company_attempts": [
        "SEARCH attempts USING PRIMARY KEY (company_id=? AND seq=? AND run=? AND pos=? AND number=?)",
        "LIST SUBQUERY 1",
        "SEARCH attempts USING PRIMARY KEY (company_id=?)",
    ],
}


@pytest.mark.parametrize("name", sorted(PRUNING))
def test_pruning_goes_by_keys_alone(raw: sqlite3.Connection, name: str) -> None:
    assert plan(raw, SQL[name]) == PRUNING[name]
