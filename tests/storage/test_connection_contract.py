"""What every connection promises, with a thread and without."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from storage.errors import QueryRefused, StoreClosed, StoreUnavailable
from storage.sqlite.connection import Connection, read_transaction, reading, transaction
from tests.storage.connections import (
    KINDS,
    FailingSqlite,
    In,
    a_connection,
    a_database,
    assert_nobody_holds_the_write_lock,
    insert,
    open_failing,
    rows_of,
    sqlite_error,
    writer_of,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return a_database(tmp_path)


@pytest.fixture(params=KINDS)
async def connection(request: pytest.FixtureRequest, path: Path) -> AsyncIterator[Connection]:
    async with a_connection(request.param, writer_of(path)) as opened:
        yield opened


@pytest.fixture(params=KINDS)
async def failing(request: pytest.FixtureRequest, path: Path) -> AsyncIterator[Connection]:
    async with a_connection(request.param, partial(open_failing, path)) as opened:
        yield opened


async def test_work_gets_the_connection_and_its_result_comes_back(connection: Connection) -> None:
    assert await connection.run(lambda raw: raw.execute("SELECT 6 * 7").fetchall()) == [(42,)]


async def test_an_error_of_the_work_reaches_its_caller_and_nobody_else(connection: Connection) -> None:
    with pytest.raises(ZeroDivisionError):
        await connection.run(lambda _: 1 // 0)
    assert await connection.run(lambda _: "still there") == "still there"


async def test_works_run_in_the_order_in_which_they_were_asked_for(connection: Connection) -> None:
    asked: list[int] = []
    done: list[int] = []

    async def ask(number: int) -> None:
        asked.append(number)
        await connection.run(lambda _: done.append(number))

    async with trio.open_nursery() as nursery:
        for number in range(30):
            nursery.start_soon(ask, number)
    assert len(done) == 30
    assert done == asked


async def test_a_caller_who_is_cancelled_already_is_refused_before_the_work_starts(
    connection: Connection,
) -> None:
    started: list[bool] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        await connection.run(lambda _: started.append(True))
    assert scope.cancelled_caught
    assert started == []


async def test_a_work_that_has_started_is_waited_for_and_its_result_stands(connection: Connection) -> None:
    inside = In()
    results: list[str] = []
    with trio.CancelScope() as scope:

        def work(_: sqlite3.Connection) -> str:
            inside.trio(scope.cancel)
            return "done"

        results.append(await connection.run(work))
        await trio.lowlevel.checkpoint()
    assert results == ["done"]
    assert scope.cancelled_caught, "the cancellation arrives at the next checkpoint"


@pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "INSERT INTO t", "COMMIT"])
async def test_a_transaction_that_is_cancelled_at_any_statement_is_committed_whole_and_says_so(
    connection: Connection, path: Path, statement: str
) -> None:
    inside = In()
    reached: list[str] = []
    answers: list[tuple[int, ...]] = []
    with trio.CancelScope() as scope:

        def cancel_at(sql: str) -> None:
            if sql.startswith(statement):
                reached.append(sql)
                inside.trio(scope.cancel)

        def work(raw: sqlite3.Connection) -> tuple[int, ...]:
            raw.set_trace_callback(cancel_at)
            try:
                return transaction(raw, insert(1, 2))
            finally:
                raw.set_trace_callback(None)

        answers.append(await connection.run(work))
    assert reached, "the test did not cancel where it says"
    assert answers == [(1, 2)]
    assert rows_of(path) == [1, 2]
    assert_nobody_holds_the_write_lock(path)
    assert await connection.run(partial(transaction, body=insert(3))) == (3,)


async def test_a_cancelled_begin_that_waits_for_another_process_leaves_no_lock_without_an_owner(
    connection: Connection, path: Path
) -> None:
    """C53: with one await per statement the thread got the lock later, and nobody ever gave it back."""
    inside = In()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with trio.CancelScope() as scope:

            def work(raw: sqlite3.Connection) -> None:
                inside.trio(scope.cancel)
                transaction(raw, insert(1))

            with pytest.raises(sqlite3.OperationalError) as caught:
                await connection.run(work)
        assert caught.value.sqlite_errorcode == sqlite3.SQLITE_BUSY
        other.execute("COMMIT")
    assert_nobody_holds_the_write_lock(path)
    assert rows_of(path) == []
    assert await connection.run(partial(transaction, body=insert(2))) == (2,)


async def test_a_body_that_raises_leaves_nothing_behind(connection: Connection, path: Path) -> None:
    def body(raw: sqlite3.Connection) -> None:
        insert(1)(raw)
        raise LookupError("my own")

    with pytest.raises(LookupError, match="my own"):
        await connection.run(partial(transaction, body=body))
    assert rows_of(path) == []
    assert_nobody_holds_the_write_lock(path)


@pytest.mark.parametrize("call", [1, 2, 3, 4])
async def test_a_transaction_whose_nth_statement_fails_changes_nothing_and_ends(
    failing: Connection, path: Path, call: int
) -> None:
    """BEGIN, two inserts, COMMIT."""
    await failing.run(lambda raw: _arm(raw, call))
    with pytest.raises(sqlite3.OperationalError, match="planned"):
        await failing.run(partial(transaction, body=insert(1, 2)))
    assert rows_of(path) == []
    assert_nobody_holds_the_write_lock(path)
    assert await failing.run(partial(transaction, body=insert(1, 2))) == (1, 2)
    assert rows_of(path) == [1, 2]


async def test_a_rollback_that_fails_too_does_not_hide_the_error_nor_block_the_next_transaction(
    failing: Connection, path: Path
) -> None:
    await failing.run(lambda raw: _arm(raw, 4, 5))
    with pytest.raises(sqlite3.OperationalError) as caught:
        await failing.run(partial(transaction, body=insert(1, 2)))
    assert caught.value.__context__ is None, "the error of COMMIT, not the one of ROLLBACK"
    assert await failing.run(partial(transaction, body=insert(3))) == (3,)
    assert rows_of(path) == [3]


@pytest.mark.parametrize("call", [1, 2])
async def test_a_read_whose_nth_statement_fails_keeps_no_snapshot(failing: Connection, call: int) -> None:
    def select(raw: sqlite3.Connection) -> list[tuple[int]]:
        return raw.execute("SELECT a FROM t").fetchall()

    await failing.run(lambda raw: _arm(raw, call))
    with pytest.raises(sqlite3.OperationalError):
        await failing.run(partial(read_transaction, body=select))
    assert await failing.run(lambda raw: raw.in_transaction) is False


async def test_a_read_sees_one_snapshot_and_lets_go_of_it(connection: Connection, path: Path) -> None:
    def body(raw: sqlite3.Connection) -> tuple[int, int]:
        before = len(raw.execute("SELECT a FROM t").fetchall())
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("INSERT INTO t VALUES (1)")
        return before, len(raw.execute("SELECT a FROM t").fetchall())

    assert await connection.run(partial(read_transaction, body=body)) == (0, 0)
    assert await connection.run(lambda raw: raw.execute("SELECT count(*) FROM t").fetchall()) == [(1,)]
    assert await connection.run(lambda raw: raw.in_transaction) is False


async def test_a_read_from_a_store_that_is_away_says_so_by_type(connection: Connection) -> None:
    def busy(_: sqlite3.Connection) -> None:
        raise sqlite_error(sqlite3.SQLITE_IOERR_READ, "disk gone")

    with pytest.raises(StoreUnavailable) as caught:
        await reading(connection, busy)
    assert caught.value.cause == "disk gone"


async def test_a_mistake_in_a_read_is_not_called_an_outage(connection: Connection) -> None:
    with pytest.raises(QueryRefused, match="no such table"):
        await reading(connection, lambda raw: raw.execute("SELECT * FROM nowhere"))


async def test_closing_waits_for_the_works_that_were_asked_for_before(connection: Connection) -> None:
    done: list[int] = []
    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(connection.run, lambda _, number=number: done.append(number))
        await trio.testing.wait_all_tasks_blocked()
        await connection.aclose()
        assert sorted(done) == [0, 1, 2, 3, 4]


async def test_a_closed_connection_refuses_work_by_type_and_may_be_closed_again(
    connection: Connection,
) -> None:
    await connection.aclose()
    with pytest.raises(StoreClosed):
        await connection.run(lambda _: None)
    await connection.aclose()


async def test_a_cancelled_close_closes_all_the_same(connection: Connection) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await connection.aclose()
    with pytest.raises(StoreClosed):
        await connection.run(lambda _: None)


async def test_every_run_lets_others_take_their_turn(connection: Connection) -> None:
    turns: list[int] = []

    async def other() -> None:
        turns.append(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await connection.run(lambda _: None)
        await connection.run(lambda _: None)  # Trio may let us go first once, never twice
        assert turns == [1]


def _arm(raw: sqlite3.Connection, *calls: int) -> None:
    assert isinstance(raw, FailingSqlite)
    raw.arm(*calls)
