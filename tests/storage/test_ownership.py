"""One owner at a time, named to whoever comes second; and what a forked child may do: nothing."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from storage.errors import DatabaseInUse, ForkedProcess, StoreUnavailable
from storage.group_commit import Writer
from storage.sqlite.connection import transaction
from storage.sqlite.locks import Owner
from storage.sqlite.opening import open_reader, open_writer
from storage.sqlite.ownership import Ownership, acquire, owner_of
from storage.sqlite.writing import SqliteEngine
from tests.storage.connections import KINDS, a_connection, a_database, insert, rows_of, writer_of

STARTED = "2024-05-01T12:00:00+00:00"


def python(program: str, *args: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-W",
            "error",
            "-W",
            "ignore::DeprecationWarning",
            "-c",
            textwrap.dedent(program),
            *map(str, args),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def owning(path: Path) -> subprocess.Popen[str]:
    program = """
        import sys
        from storage.sqlite.ownership import acquire
        ownership = acquire(sys.argv[1], started_at=sys.argv[2])
        print("owned", flush=True)
        sys.stdin.read()
    """
    return python(program, path, STARTED)


@contextmanager
def another_owner(path: Path) -> Iterator[subprocess.Popen[str]]:
    with owning(path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "owned\n"
        try:
            yield process
        finally:
            process.kill()


def in_fork(child: Callable[[], object]) -> int:
    """Run `child` in a forked child and return its exit status."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads: what we are about
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            child()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def assert_runs_clean(program: str, *args: object) -> None:
    with python(program, *args) as process:
        _, complaint = process.communicate()
    assert complaint == ""
    assert process.returncode == 0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return a_database(tmp_path)


# owning


def test_a_second_opening_in_another_process_is_refused_by_the_name_of_the_first(path: Path) -> None:
    with another_owner(path) as owner:
        with pytest.raises(DatabaseInUse) as caught:
            acquire(path)
        assert (caught.value.pid, caught.value.started_at) == (owner.pid, STARTED)
        assert caught.value.path == str(path)
        assert str(owner.pid) in str(caught.value)


def test_a_second_opening_in_the_same_process_is_refused_too(path: Path) -> None:
    with acquire(path, started_at=STARTED), pytest.raises(DatabaseInUse) as caught:
        acquire(path)
    assert (caught.value.pid, caught.value.started_at) == (os.getpid(), STARTED)


def test_a_refused_opening_does_not_cost_the_owner_its_lock(path: Path) -> None:
    """A POSIX lock is lost when any descriptor of its file is closed: so the second never opens one."""
    with acquire(path):
        with pytest.raises(DatabaseInUse):
            acquire(path)
        with owning(path) as other:
            _, complaint = other.communicate()
        assert other.returncode == 1
        assert f"in use by process {os.getpid()}" in complaint


def test_another_name_of_the_same_database_is_the_same_database(path: Path, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(path)
    os.link(path, tmp_path / "hard.db")
    with acquire(path):
        for name in ("link.db", "hard.db", f"../{tmp_path.name}/test.db"):
            with pytest.raises(DatabaseInUse):
                acquire(tmp_path / name)
    with another_owner(tmp_path / "link.db"), pytest.raises(DatabaseInUse):
        acquire(path)


def test_a_database_that_is_given_up_can_be_taken_again(path: Path) -> None:
    first = acquire(path)
    first.release()
    first.release()
    with acquire(path, started_at=STARTED):
        assert owner_of(path) == Owner(os.getpid(), STARTED)
    with another_owner(path) as owner:
        assert owner_of(path) == Owner(owner.pid, STARTED)


def test_the_kernel_gives_a_dead_owners_database_back(path: Path) -> None:
    with another_owner(path) as owner:
        owner.kill()
        owner.wait()
        assert owner_of(path) is None
        with acquire(path, started_at=STARTED):
            assert owner_of(path) == Owner(os.getpid(), STARTED)


def test_a_database_that_does_not_exist_yet_can_be_owned(tmp_path: Path) -> None:
    with acquire(tmp_path / "new.db"):
        assert [file.name for file in tmp_path.iterdir()] == ["new.db.lock"]


def test_two_databases_do_not_get_in_each_others_way(tmp_path: Path) -> None:
    later = STARTED.replace("2024", "2025")
    with acquire(tmp_path / "one.db", started_at=STARTED), acquire(tmp_path / "two.db", started_at=later):
        assert owner_of(tmp_path / "one.db") == Owner(os.getpid(), STARTED)
        assert owner_of(tmp_path / "two.db") == Owner(os.getpid(), later)


def test_the_lock_file_is_private_and_never_written_through_a_planted_link(tmp_path: Path) -> None:
    acquire(tmp_path / "test.db").release()
    assert (tmp_path / "test.db.lock").stat().st_mode & 0o777 == 0o600
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "trap.db.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(StoreUnavailable, match="The path is at fault"):
        acquire(tmp_path / "trap.db")
    assert (tmp_path / "precious").read_text() == "precious"


def test_only_one_of_many_threads_becomes_the_owner(path: Path) -> None:
    won: list[Ownership] = []
    lost: list[DatabaseInUse] = []
    start = threading.Barrier(8)

    def contend() -> None:
        start.wait()
        try:
            won.append(acquire(path))
        except DatabaseInUse as exc:
            lost.append(exc)

    threads = [threading.Thread(target=contend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 7)
    won[0].release()


# asking


def test_asking_for_the_owner_names_it_from_outside_and_from_inside(path: Path) -> None:
    assert owner_of(path) is None
    with another_owner(path) as owner:
        assert owner_of(path) == Owner(owner.pid, STARTED)
    with acquire(path, started_at=STARTED):
        assert owner_of(path) == Owner(os.getpid(), STARTED)
    assert owner_of(path) is None


def test_asking_inside_the_owning_process_does_not_drop_the_lock(path: Path) -> None:
    with acquire(path):
        owner_of(path)
        with owning(path) as other:
            assert other.wait() == 1


def test_asking_never_makes_an_opening_fail(path: Path) -> None:
    """A shared lock, however short, would: so the question takes none."""
    asking = """
        import sys
        from storage.sqlite.ownership import owner_of
        print("asking", flush=True)
        while True:
            owner_of(sys.argv[1])
    """
    with python(asking, path) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "asking\n"
        for _ in range(300):
            acquire(path).release()
        other.kill()


def test_the_owner_is_known_whatever_somebody_writes_into_the_lock_file(path: Path) -> None:
    with another_owner(path) as owner:
        Path(f"{path}.lock").write_text("garbage")
        assert owner_of(path) == Owner(owner.pid, STARTED)


def test_an_owner_whose_lock_file_is_read_by_its_own_process_keeps_it(path: Path) -> None:
    """Closing the reading descriptor would drop a POSIX lock."""
    with acquire(path):
        Path(f"{path}.lock").read_bytes()
        with owning(path) as other:
            assert other.wait() == 1


def test_a_file_system_that_gives_a_lock_to_everybody_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.sqlite.locks.fcntl.fcntl", lambda _fd, _command, asked: asked)
    with pytest.raises(StoreUnavailable, match="locks do not work") as caught:
        acquire(path)
    assert "give one on a local disk" in str(caught.value)
    monkeypatch.undo()
    acquire(path).release()


# forking (C57)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_forked_child_gets_a_clear_error_from_every_call(path: Path, kind: str) -> None:
    with acquire(path):
        async with a_connection(kind, writer_of(path)) as connection:
            writer = Writer(SqliteEngine(connection))

            def child() -> None:
                calls: list[Callable[[], object]] = [
                    lambda: drive(connection.run(lambda _: None)),
                    lambda: drive(connection.aclose()),
                    lambda: drive(writer.submit(insert(1)).wait()),
                    lambda: drive(writer.aclose(0)),
                    lambda: writer.submit(insert(1)),
                    lambda: acquire(path),
                    lambda: open_writer(path),
                    lambda: open_reader(path),
                ]
                for call in calls:
                    with pytest.raises(ForkedProcess) as caught:
                        call()
                    assert caught.value.owner_pid == os.getppid()

            assert in_fork(child) == 0
            assert await connection.run(partial(transaction, body=insert(1))) == (1,)
    assert rows_of(path) == [1]


async def test_a_child_may_open_another_database(path: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.db"
    async with a_connection("thread", writer_of(path)):

        def child() -> None:
            with acquire(own), closing(writer_of(own)()) as raw:
                raw.execute("INSERT INTO t VALUES (1)")

        assert in_fork(child) == 0
    assert rows_of(own) == [1]


def test_the_lock_stays_with_the_parent_whatever_the_child_does_with_its_copy(path: Path) -> None:
    with acquire(path) as ownership:
        assert in_fork(ownership.release) == 0
        assert in_fork(partial(os.fstat, ownership._fd)) == 1, "it is closed in the child"
        with owning(path) as other:
            assert other.wait() == 1


def test_a_child_that_lives_on_does_not_keep_the_lock_and_may_own_the_database_after_its_parent(
    path: Path,
) -> None:
    reader, writer = os.pipe()
    ownership = acquire(path)
    pid = os.fork()
    if pid == 0:
        try:
            os.close(writer)
            os.read(reader, 1)  # until the parent has looked
            acquire(path)  # nobody's by now
            os._exit(0)
        finally:
            os._exit(1)
    os.close(reader)
    ownership.release()
    with another_owner(path) as owner:
        assert owner_of(path) == Owner(owner.pid, STARTED)
    os.close(writer)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_hundred_children_that_let_go_of_their_copies_harm_neither_lock_nor_database(path: Path) -> None:
    """Every tenth by the interpreter's whole exit, which takes a while; the others drop the handle and go."""
    program = """
        import os, sys
        from storage.sqlite.opening import open_writer
        from storage.sqlite.ownership import acquire
        from storage.sqlite.connection import transaction

        insert = lambda raw: raw.execute("INSERT INTO t SELECT count(*) FROM t")
        ownership = acquire(sys.argv[1])
        raw = open_writer(sys.argv[1])
        children = []
        for number in range(100):
            transaction(raw, insert)
            children.append(os.fork())
            if children[-1] == 0 and number % 10:
                raw.close()
                del raw
                os._exit(0)
            elif children[-1] == 0:
                sys.exit(0)
            transaction(raw, insert)
        for child in children:
            assert os.waitpid(child, 0)[1] == 0
        os._exit(0)
    """
    assert_runs_clean(program, path)
    assert rows_of(path) == list(range(200))
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_children_of_multiprocessing_do_not_disturb_a_store_that_runs_on_a_thread(path: Path) -> None:
    program = """
        import gc, multiprocessing, sys, trio
        from functools import partial
        from storage.sqlite.bridge import open_bridge
        from storage.sqlite.opening import open_writer
        from storage.group_commit import Writer
        from storage.sqlite.writing import SqliteEngine
        from tests.stores import Plain

        insert = Plain(lambda raw: raw.execute("INSERT INTO t SELECT count(*) FROM t").lastrowid)

        async def main():
            async with open_bridge() as bridge, trio.open_nursery() as nursery:
                writer = Writer(SqliteEngine(await bridge.connect(partial(open_writer, sys.argv[1]))))
                nursery.start_soon(writer.run)
                for _ in range(10):
                    pending = writer.submit(insert)
                    child = multiprocessing.get_context("fork").Process(target=gc.collect)
                    child.start()
                    await pending.wait()
                    await trio.to_thread.run_sync(child.join)
                    assert child.exitcode == 0
                await writer.aclose(1)

        trio.run(main)
    """
    assert_runs_clean(program, path)
    assert rows_of(path) == list(range(10))


@pytest.mark.parametrize("how", ["by exiting", "explicitly"])
def test_a_child_that_closes_its_copy_late_does_not_delete_the_commits_that_came_after_it(
    path: Path, how: str
) -> None:
    """Closing its handle would: the name of the WAL is still the same, but it is another file by then."""
    program = """
        import os, sys
        from storage.sqlite.opening import open_writer

        raw = open_writer(sys.argv[1])
        raw.execute("INSERT INTO t VALUES (1)")
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.close(writer)
            os.read(reader, 1)  # until the parent is dead
            if sys.argv[2] == "explicitly":
                raw.close()
            sys.exit(0)
        raw.close()
        again = open_writer(sys.argv[1])
        again.execute("INSERT INTO t VALUES (2)")
        os._exit(0)  # a crash: the commit is in the WAL only
    """
    assert_runs_clean(program, path, how)  # waits for the child as well, which holds the pipes
    assert rows_of(path) == [1, 2]


def drive(coroutine: Coroutine[Any, Any, object]) -> object:
    """Start a coroutine as Trio would, but without Trio, which a forked child has none of."""
    return coroutine.send(None)
