"""aiosqlite on Trio: whose loop it is, how it is closed, and that nothing outlives it."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
import trio_asyncio
from structlog.testing import capture_logs

from storage.errors import NotADatabase, OutcomeUnknown, StoreClosed
from storage.sqlite import bridge as bridge_module
from storage.sqlite.bridge import open_bridge
from storage.sqlite.connection import Connection, transaction
from storage.sqlite.opening import open_reader
from tests.storage.connections import (
    In,
    a_database,
    assert_nobody_holds_the_write_lock,
    insert,
    rows_of,
    store_threads,
    writer_of,
)

EXIT_S = 5

ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return a_database(tmp_path)


def current_loop() -> object:
    return trio_asyncio.current_loop.get()


# the loop


async def test_the_hosts_own_asyncio_loop_stays_current_inside_our_block(path: Path) -> None:
    async with trio_asyncio.open_loop() as mine:
        async with open_bridge() as bridge:
            connection = await bridge.connect(writer_of(path))
            assert current_loop() is mine
            await connection.run(lambda _: None)
            assert current_loop() is mine
            assert asyncio.get_event_loop() is mine
            await trio_asyncio.aio_as_trio(asyncio.sleep)(0)
            await connection.aclose()
            assert current_loop() is mine
        assert current_loop() is mine
        await trio_asyncio.aio_as_trio(asyncio.sleep)(0)


async def test_a_host_may_open_and_close_its_own_loop_inside_our_block(path: Path) -> None:
    async with open_bridge() as bridge:
        connection = await bridge.connect(writer_of(path))
        async with trio_asyncio.open_loop() as mine:
            await connection.run(lambda _: None)
            assert current_loop() is mine
            await trio_asyncio.aio_as_trio(asyncio.sleep)(0)
        assert await connection.run(lambda _: "still there") == "still there"


async def test_a_host_without_asyncio_does_not_find_any_inside_our_block(path: Path) -> None:
    async with open_bridge() as bridge:
        connection = await bridge.connect(writer_of(path))
        await connection.run(lambda _: None)
        assert current_loop() is None
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()


async def test_one_loop_serves_a_writer_and_a_reader_on_threads_of_their_own(path: Path) -> None:
    async with open_bridge() as bridge:
        writer = await bridge.connect(writer_of(path))
        reader = await bridge.connect(partial(open_reader, path))
        assert len(store_threads()) == 2
        await writer.run(partial(transaction, body=insert(1)))
        assert await reader.run(lambda raw: raw.execute("SELECT a FROM t").fetchall()) == [(1,)]
        idents = {await each.run(lambda _: threading.get_ident()) for each in (writer, reader)}
        assert len(idents | {threading.get_ident()}) == 3
    assert store_threads() == []


async def test_a_long_read_does_not_hold_up_the_writer(path: Path) -> None:
    gate = threading.Event()
    async with open_bridge() as bridge, trio.open_nursery() as nursery:
        writer = await bridge.connect(writer_of(path))
        reader = await bridge.connect(partial(open_reader, path))
        nursery.start_soon(reader.run, lambda _: gate.wait(EXIT_S))
        await writer.run(partial(transaction, body=insert(1)))
        gate.set()
    assert rows_of(path) == [1]


async def test_a_stray_asyncio_error_is_logged_and_neither_host_nor_store_notices(path: Path) -> None:
    def stray() -> None:
        raise LookupError("stray")

    async with open_bridge() as bridge:
        connection = await bridge.connect(writer_of(path))
        with capture_logs() as logs:
            bridge._loop.call_soon(stray)
            bridge._loop.call_exception_handler({"message": "nobody fetched it"})
            await trio.testing.wait_all_tasks_blocked()
            assert await connection.run(lambda _: "still there") == "still there"
    assert [(log["event"], log["log_level"]) for log in logs] == [
        ("storage.sqlite.bridge.stray_error", "error")
    ] * 2
    assert {str(log["exc_info"]) for log in logs} == {"None", "stray"}


async def test_a_loop_that_is_killed_by_an_interrupt_ends_the_block_with_it(path: Path) -> None:
    """Ctrl-C strikes where it likes, a callback of the loop included; a work under way is not left waiting."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    ends: list[str] = []
    gate = threading.Event()
    with pytest.raises(KeyboardInterrupt):
        async with open_bridge() as bridge:
            connection = await bridge.connect(writer_of(path))

            def work(raw: sqlite3.Connection) -> tuple[int, ...]:
                assert gate.wait(EXIT_S)
                return transaction(raw, insert(1))

            async def ask() -> None:
                assert await connection.run(work) == (1,)
                ends.append("answered")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
                bridge._loop.call_soon(interrupt)
                await trio.testing.wait_all_tasks_blocked()
                gate.set()
                await trio.sleep_forever()
    assert ends == ["answered"]
    assert store_threads() == []
    assert rows_of(path) == [1]


# errors and cancellation


async def test_an_error_of_the_block_comes_out_as_it_is(path: Path) -> None:
    mine = LookupError("mine")
    with pytest.raises(LookupError) as caught:
        async with open_bridge() as bridge:
            await bridge.connect(writer_of(path))
            raise mine
    assert caught.value is mine
    assert store_threads() == []


async def test_an_error_of_the_opener_comes_out_as_it_is_and_its_thread_is_gone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("no database " * 100)
    async with open_bridge() as bridge:
        with pytest.raises(NotADatabase):
            await bridge.connect(writer_of(tmp_path / "letter.txt"))
        assert store_threads() == []


async def test_the_error_of_the_opener_is_told_even_if_its_thread_is_gone_before_asyncio_tells_of_it(
    path: Path,
) -> None:
    inside = In()
    async with open_bridge() as bridge:

        def opener() -> sqlite3.Connection:
            inside.trio(
                lambda: [bridge._loop.call_soon(lambda: None) for _ in range(100)]
            )  # it has much to do
            raise LookupError("mine")

        with pytest.raises(LookupError, match="mine"):
            await bridge.connect(opener)


@pytest.mark.parametrize("good", [0, 1, 2])
async def test_when_the_nth_opening_fails_the_earlier_connections_go_on(path: Path, good: int) -> None:
    async with open_bridge() as bridge:
        connections = [await bridge.connect(writer_of(path)) for _ in range(good)]
        with pytest.raises(ZeroDivisionError):
            await bridge.connect(lambda: 1 // 0)  # type: ignore[arg-type,return-value]
        for number, connection in enumerate(connections):
            assert await connection.run(partial(transaction, body=insert(number))) == (number,)
        assert len(store_threads()) == good
    assert store_threads() == []
    assert rows_of(path) == list(range(good))


async def test_an_opening_that_is_cancelled_is_undone(path: Path) -> None:
    inside = In()
    opened: list[sqlite3.Connection] = []
    async with open_bridge() as bridge:
        with trio.CancelScope() as scope:

            def opener() -> sqlite3.Connection:
                raw = writer_of(path)()
                opened.append(raw)
                inside.trio(scope.cancel)
                return raw

            await bridge.connect(opener)
        assert scope.cancelled_caught
        assert store_threads() == []
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            opened[0].interrupt()


@pytest.mark.parametrize("moment", ["before", "in", "after"])
async def test_a_block_that_is_cancelled_at_any_moment_leaves_no_thread_and_no_lock(
    path: Path, moment: str
) -> None:
    inside = In()
    with trio.CancelScope() as scope:

        def body(raw: sqlite3.Connection) -> None:
            insert(1)(raw)
            if moment == "in":
                inside.trio(scope.cancel)

        if moment == "before":
            scope.cancel()
        async with open_bridge() as bridge:
            connection = await bridge.connect(writer_of(path))
            await connection.run(partial(transaction, body=body))
            if moment == "after":
                scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert store_threads() == []
    assert_nobody_holds_the_write_lock(path)
    assert rows_of(path) == ([] if moment == "before" else [1])


async def test_a_close_that_is_cancelled_while_it_waits_is_finished_all_the_same(path: Path) -> None:
    gate = threading.Event()
    async with open_bridge() as bridge, trio.open_nursery() as nursery:
        connection = await bridge.connect(writer_of(path))
        nursery.start_soon(connection.run, lambda _: gate.wait(EXIT_S))
        await trio.testing.wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            nursery.start_soon(_cancel_then_open, scope, gate)
            await connection.aclose()
        assert store_threads() == []


async def _cancel_then_open(scope: trio.CancelScope, gate: threading.Event) -> None:
    scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    gate.set()


async def test_leaving_waits_for_the_works_already_asked_for(path: Path) -> None:
    gate = threading.Event()
    async with trio.open_nursery() as nursery, open_bridge() as bridge:
        connection = await bridge.connect(writer_of(path))
        nursery.start_soon(connection.run, lambda _: gate.wait(EXIT_S))
        for number in range(3):
            nursery.start_soon(connection.run, partial(transaction, body=insert(number)))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(_cancel_then_open, trio.CancelScope(), gate)
    assert rows_of(path) == [0, 1, 2]


async def test_nothing_can_be_asked_of_a_bridge_that_was_left(path: Path) -> None:
    async with open_bridge() as bridge:
        connection = await bridge.connect(writer_of(path))
    with pytest.raises(StoreClosed):
        await bridge.connect(writer_of(path))
    with pytest.raises(StoreClosed):
        await connection.run(lambda _: None)
    await connection.aclose()


async def test_a_statement_that_would_run_for_ever_is_interrupted_by_closing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge_module, "CLOSE_GRACE_S", 0.05)
    errors: list[sqlite3.Error] = []

    async def ask(connection: Connection) -> None:
        try:
            await connection.run(partial(transaction, body=lambda raw: raw.execute(ENDLESS).fetchall()))
        except sqlite3.OperationalError as exc:
            errors.append(exc)

    async with trio.open_nursery() as nursery, open_bridge() as bridge:
        nursery.start_soon(ask, await bridge.connect(writer_of(path)))
        await trio.testing.wait_all_tasks_blocked()
    assert [error.sqlite_errorcode for error in errors] == [sqlite3.SQLITE_INTERRUPT]
    assert store_threads() == []
    assert_nobody_holds_the_write_lock(path)


async def test_a_work_that_never_ends_costs_a_warning_and_not_the_process(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge_module, "CLOSE_GRACE_S", 0.05)
    monkeypatch.setattr(bridge_module, "INTERRUPT_GRACE_S", 0.05)
    gate = threading.Event()
    errors: list[Exception] = []

    async def ask(connection: Connection) -> None:
        try:
            await connection.run(lambda _: gate.wait(EXIT_S))
        except OutcomeUnknown as exc:
            errors.append(exc)

    with capture_logs() as logs:
        async with trio.open_nursery() as nursery, open_bridge() as bridge:
            nursery.start_soon(ask, await bridge.connect(writer_of(path)))
            await trio.testing.wait_all_tasks_blocked()
    assert [log["event"] for log in logs] == ["storage.sqlite.bridge.thread_left"]
    assert len(errors) == 1
    (left,) = store_threads()
    assert left.daemon, "else it would keep the process alive"
    gate.set()
    left.join(EXIT_S)
    assert store_threads() == [], "and it ends quietly, however late"


# the process ends (C58)

PROGRAM = """
    import contextlib, os, sys, trio
    from functools import partial
    from storage.sqlite.bridge import open_bridge
    from storage.errors import StorageError
    from storage.sqlite.opening import open_writer
    from storage.group_commit import Writer
    from storage.sqlite.writing import SqliteEngine
    from tests.stores import Plain

    path, situation = sys.argv[1], sys.argv[2]

    @Plain
    def insert(raw):
        raw.execute("INSERT INTO t SELECT count(*) FROM t WHERE (SELECT count(*) FROM t) < 1000")

    async def send(writer):
        with contextlib.suppress(StorageError):  # closed before its turn came
            for _ in range(40):
                await writer.commit(insert)

    async def cancelled(scope, token):
        def opener():
            token.run_sync_soon(scope.cancel)
            return open_writer(path)
        return opener

    async def main():
        async with open_bridge() as bridge:
            if situation == "cancelled while opening":
                with trio.CancelScope() as scope:
                    await bridge.connect(await cancelled(scope, trio.lowlevel.current_trio_token()))
                return
            connection = await bridge.connect(partial(open_writer, path))
            if situation == "error after opening":
                raise LookupError("the host's own")
            async with trio.open_nursery() as nursery:
                writer = Writer(SqliteEngine(connection))
                nursery.start_soon(writer.run)
                for _ in range(20):
                    nursery.start_soon(send, writer)
                while not writer.statistics.units:
                    await trio.lowlevel.checkpoint()
                os.write(1, b"busy\\n")
                if situation == "normal end":
                    await writer.aclose(1)
                elif situation == "cancelled while closing":
                    with trio.CancelScope() as scope:
                        scope.cancel()
                        await connection.aclose()
                elif situation == "interrupted":
                    while True:
                        await writer.commit(insert)

    trio.run(main)
"""

QUIET = {"normal end", "cancelled while opening", "cancelled while closing"}


@pytest.mark.parametrize(
    ("situation", "interrupts"),
    [
        ("normal end", 0),
        ("error after opening", 0),
        ("cancelled while opening", 0),
        ("cancelled while closing", 0),
        ("interrupted", 1),
        ("interrupted", 2),
    ],
)
def test_the_process_ends_soon_and_quietly_whatever_happens(
    path: Path, situation: str, interrupts: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), path, situation],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for _ in range(interrupts):
            process.send_signal(signal.SIGINT)
        try:
            _, complaint = process.communicate(timeout=EXIT_S)
        finally:
            process.kill()
    assert "Exception in thread" not in complaint
    assert "was destroyed" not in complaint
    assert (process.returncode == 0) == (situation in QUIET), complaint
    assert_nobody_holds_the_write_lock(path)
    assert rows_of(path) == list(range(len(rows_of(path))))
    if situation not in {"error after opening", "cancelled while opening"}:
        assert rows_of(path) != []
    assert not Path(f"{path}-wal").exists(), "the connection was not closed"


def test_a_run_of_trio_that_breaks_does_not_keep_the_process_alive(path: Path) -> None:
    """Nobody can close then; only that the thread is a daemon helps."""
    program = """
        import sys, trio
        from functools import partial
        from storage.sqlite.bridge import open_bridge
        from storage.sqlite.opening import open_writer

        async def main():
            async with open_bridge() as bridge:
                await bridge.connect(partial(open_writer, sys.argv[1]))
                @trio.lowlevel.spawn_system_task
                async def broken():
                    raise LookupError("broken")
                await trio.sleep_forever()

        trio.run(main)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), path],
        timeout=EXIT_S,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "TrioInternalError" in done.stderr
    assert "Exception in thread" not in done.stderr
