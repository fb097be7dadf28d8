"""The units of many companies in one transaction: written together, and each as if it were alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from outcome import Error, Value

from storage.codec import encode
from storage.contract.companies import ClaimCompany
from storage.contract.turns import Committed, CommitTurn
from storage.errors import StaleEpoch
from storage.records import CompanyRecord, EventRecord, RunRecord, RunStatus, TaskRecord
from storage.sqlite.connection import transaction
from storage.sqlite.engine import carry_out
from storage.sqlite.opening import open_writer
from storage.sqlite.writing import commit_together
from storage.writes import TaskTexts
from tests.stores import Plain


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_writer(tmp_path / "units.db")
    yield connection
    connection.close()


@pytest.fixture
def companies(raw: sqlite3.Connection) -> list[CompanyRecord]:
    return [claimed(raw, name) for name in "abcde"]


def claimed(raw: sqlite3.Connection, name: str) -> CompanyRecord:
    company = transaction(raw, lambda conn: carry_out(conn, ClaimCompany(name, create=True)))
    assert company is not None
    return company


def submitted(company: CompanyRecord, seq: int = 1, **fields: Any) -> CommitTurn:
    task = TaskRecord(seq, f"t{seq}", 2, 1)
    return CommitTurn(
        company.claim,
        new_tasks=[(task, TaskTexts("x"))],
        new_runs=[RunRecord(seq, 1, RunStatus.QUEUED, 1)],
        events=[
            EventRecord("task.submitted", 1, task.id, seq),
            EventRecord("task.submitted", 2, task.id, seq),
        ],
        **fields,
    )


def admitted(
    company: CompanyRecord, seq: int, slot: int, status: RunStatus = RunStatus.RUNNING
) -> CommitTurn:
    settled = 3 if status.settled else None
    run = RunRecord(seq, 1, status, 1, slot=slot, admitted_ms=2, settled_ms=settled)
    return CommitTurn(company.claim, runs=[run])


def statements_of(raw: sqlite3.Connection, units: list[Any]) -> tuple[list[Any], list[str]]:
    seen: list[str] = []
    raw.set_trace_callback(seen.append)
    outcomes = commit_together(raw, units)
    raw.set_trace_callback(None)
    return outcomes, seen


def test_turns_of_many_companies_are_written_table_by_table_and_answered_one_by_one(
    raw: sqlite3.Connection, companies: list[CompanyRecord]
) -> None:
    outcomes, seen = statements_of(raw, [submitted(company) for company in companies])
    assert outcomes == [Value(Committed(1 + 2 * place, 1, ())) for place in range(5)]
    assert not any("SAVEPOINT" in statement for statement in seen)
    tables = [statement.split()[2] for statement in seen if statement.startswith("INSERT")]
    assert [name for name, _ in groupby(tables)] == ["tasks", "runs", "events"]
    rows = raw.execute("SELECT company_id, seq, at_ms FROM events ORDER BY position").fetchall()
    assert rows == [(c.company_id, seq, seq) for c in companies for seq in (1, 2)]


def test_an_actor_that_was_replaced_is_refused_alone_wherever_its_turn_stands(
    raw: sqlite3.Connection, companies: list[CompanyRecord]
) -> None:
    for place in range(5):
        claimed(raw, companies[place].name)
        outcomes = commit_together(raw, [submitted(company, place + 1) for company in companies])
        assert [type(outcome) is Error for outcome in outcomes] == [each <= place for each in range(5)]
        assert all(
            isinstance(outcome.error, StaleEpoch) for outcome in outcomes if isinstance(outcome, Error)
        )
    assert raw.execute("SELECT company_id, count(*) FROM tasks GROUP BY 1 ORDER BY 1").fetchall() == [
        (company.company_id, place) for place, company in enumerate(companies) if place
    ]


def test_two_turns_of_one_company_in_one_batch_keep_their_order(
    raw: sqlite3.Connection, companies: list[CompanyRecord]
) -> None:
    """The second takes the slot that the first gives up: written together, the limit would refuse both."""
    first, other = companies[:2]
    commit_together(raw, [submitted(first, 1), submitted(other, 1)])
    commit_together(raw, [submitted(first, 2), admitted(other, 1, 1)])
    outcomes, seen = statements_of(
        raw,
        [
            admitted(first, 1, 1),
            admitted(first, 1, 0, RunStatus.COMPLETED),
            admitted(other, 1, 0, RunStatus.COMPLETED),
            admitted(first, 2, 1),
        ],
    )
    assert [type(outcome) for outcome in outcomes] == [Value] * 4
    assert not any("SAVEPOINT" in statement for statement in seen), "nothing had to be run again"


def test_what_a_handler_was_given_may_be_its_result() -> None:
    given = MappingProxyType({"a": MappingProxyType({"n": [1]}), "b": 2})
    assert encode(given) == encode({"a": {"n": [1]}, "b": 2})


def test_a_unit_between_turns_is_run_between_them(
    raw: sqlite3.Connection, companies: list[CompanyRecord]
) -> None:
    def count(conn: sqlite3.Connection) -> int:
        return int(conn.execute("SELECT count(*) FROM tasks").fetchone()[0])

    outcomes = commit_together(
        raw, [submitted(companies[0]), Plain(count), submitted(companies[1]), Plain(count)]
    )
    assert [outcome.unwrap() for outcome in outcomes[1::2]] == [1, 2]
