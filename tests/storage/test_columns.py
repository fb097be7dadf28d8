"""The statements list the columns that `storage.columns` says, and the schema has them."""

from __future__ import annotations

import re
import sqlite3
from importlib import resources

import pytest

from storage import columns
from storage.records import NodeRecord, NodeStatus, RunRecord, RunStatus, TaskRecord
from storage.sqlite.statements import SQL

WRITTEN = {
    "update_company": columns.UPDATE_COMPANY,
    "insert_task": (*columns.INSERT_TASK, "title", "payload", "node_payloads", "key", "content", "runless"),
    "update_task": columns.UPDATE_TASK,
    "insert_run": columns.INSERT_RUN,
    "update_run": columns.UPDATE_RUN,
    "insert_node": (*columns.INSERT_NODE, "payload"),
    "carry_node": (*columns.INSERT_NODE, "payload"),
    "update_node": columns.UPDATE_NODE,
    "insert_attempt": columns.INSERT_ATTEMPT,
    "end_attempt": tuple(columns.END_ATTEMPT),
    "insert_event": ("company_id", "seq", *columns.INSERT_EVENT[2:]),
}
TASK_WITH_RUN = [
    *(f"task.{name}" for name in columns.TASK_READ),
    *(f"run.{name}" for name in columns.RUN_READ),
    "quarantine.why",
]


def columns_of(statement: str) -> tuple[str, ...]:
    """The columns that a statement writes, or compares with what it is given, in their order."""
    sql = SQL[statement]
    if inserted := re.match(r"INSERT INTO \w+ \(([^)]*)\)", sql):
        return tuple(re.split(r",\s*", inserted[1]))
    sql = re.sub(r"CASE.*?END", "?", sql, flags=re.DOTALL)
    return tuple(re.findall(r"(\w+) = \?", sql))


def selected(statement: str) -> list[str]:
    head = SQL[statement].removeprefix("SELECT ").split("\nFROM ")[0]
    return re.split(r",\s*", head)


@pytest.mark.parametrize("statement", WRITTEN)
def test_a_statement_writes_the_columns_in_the_order_of_the_rows(statement: str) -> None:
    assert columns_of(statement) == WRITTEN[statement]


def test_tasks_and_runs_are_read_in_the_order_of_their_records() -> None:
    assert selected("load_tasks") == TASK_WITH_RUN
    assert selected("load_tasks_by_id") == TASK_WITH_RUN
    without_run = [re.sub(r"^run\..*", "NULL", name) for name in TASK_WITH_RUN]
    assert selected("load_runless") == without_run


def test_nodes_are_read_in_the_order_of_their_record() -> None:
    stored = [f"node.{name}" for name in columns.NODE_READ if name != "spent"]
    assert selected("load_nodes")[: len(stored)] == stored
    assert columns.NODE_READ[-1] == "spent"


def test_the_schema_has_every_column() -> None:
    conn = sqlite3.connect(":memory:")
    conn.executescript(resources.files("storage.sqlite").joinpath("sql", "schema.sql").read_text("utf-8"))
    for table, names in {
        "companies": columns.UPDATE_COMPANY,
        "tasks": (*columns.INSERT_TASK, *columns.TASK_READ),
        "runs": columns.INSERT_RUN,
        "nodes": columns.INSERT_NODE,
        "attempts": (*columns.INSERT_ATTEMPT, *columns.END_ATTEMPT),
        "events": columns.INSERT_EVENT[2:],
    }.items():
        there = {row[1] for row in conn.execute(f"PRAGMA table_info({table})")}
        assert set(names) <= there, table


def test_a_row_holds_what_sqlite_stores_and_comes_back_as_the_record() -> None:
    run = RunRecord(1, 2, RunStatus.RUNNING, 3, slot=1, started=True)
    row = columns.row_of(RunRecord, columns.INSERT_RUN[1:])(run)
    assert [type(value) for value in row if value is not None] == [*(int, int, str, int, int, int, int)]
    assert columns.record_of(RunRecord)(row) == run
    node = NodeRecord(1, 1, 0, "{}", NodeStatus.RUNNING, superseded=True)
    stored = columns.row_of(NodeRecord, columns.INSERT_NODE, "company_id", "result")(node, 7, "{}")
    assert (stored[0], stored[-1]) == (7, "{}")
    again = columns.record_of(NodeRecord)((*stored[1:-1], 0))
    assert again == node
    assert type(again.superseded) is bool


def test_a_field_that_is_left_out_must_exist() -> None:
    with pytest.raises(ValueError, match="TaskRecord has no field sequence"):
        columns.fields(TaskRecord, without=("sequence",))
