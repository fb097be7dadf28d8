"""What a host has acknowledged is there, whatever is done to its file beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from actors import DatabaseInUse, StoreUnavailable, open_inbox, open_reader, open_runtime
from storage.sqlite.opening import open_reader as open_connection

from .processes import ROOT, a_host, rows, wait_for


def by_sqlite(path: Path) -> None:
    program = (
        "import sqlite3, sys\n"
        "raw = sqlite3.connect(sys.argv[1])\n"
        "raw.execute('SELECT * FROM tasks').fetchall()\n"
        "raw.close()\n"
    )
    subprocess.run([sys.executable, "-c", program, path], check=True, timeout=120)


def by_status(path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "actors", "status", "--db", path],
        cwd=ROOT,
        check=True,
        timeout=120,
        stdout=subprocess.PIPE,
    )


@pytest.mark.parametrize("look", [by_sqlite, by_status])
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_host_may_copy_its_own_files_and_loses_nothing_when_others_look(
    tmp_path: Path, what: str, look: Callable[[Path], None]
) -> None:
    """Closing the copied descriptors drops SQLite's locks; the next that looked deleted the write-ahead log."""
    (tmp_path / "store").mkdir()
    path = tmp_path / "store" / "companies.db"
    with a_host("copies_its_file", path) as child:
        assert child.stdin is not None
        child.stdin.write(f"{what}\n")
        child.stdin.flush()
        wait_for(child, "copied")
        look(path)
        child.stdin.write("go on\n")
        child.stdin.flush()
        wait_for(child, "acknowledged")
        look(path)
        child.kill()
        child.wait(60)
    assert rows(path, "SELECT count(*) FROM tasks") == [(21,)]


async def test_a_host_may_read_its_index_and_nobody_takes_himself_for_the_first(tmp_path: Path) -> None:
    """Who can lock this byte cuts the index under our feet."""
    path = tmp_path / "companies.db"
    program = (
        "import fcntl, os, sys\n"
        "fcntl.lockf(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 128)\n"
    )
    async with open_runtime(path, handlers={}):
        Path(f"{path}-shm").read_bytes()
        taking = subprocess.run(
            [sys.executable, "-c", program, f"{path}-shm"], check=False, stderr=subprocess.PIPE
        )
        assert b"BlockingIOError" in taking.stderr


async def test_a_second_owner_is_refused_by_whatever_name(tmp_path: Path) -> None:
    path, hard, moved = (tmp_path / name for name in ("companies.db", "hard.db", "moved.db"))
    with a_host("until_a_signal", path) as child:
        wait_for(child, "executing")
        os.link(path, hard)
        with pytest.raises(DatabaseInUse) as caught:
            async with open_runtime(hard, handlers={}):
                pass
        assert caught.value.pid == child.pid
        for opener in (open_reader, open_inbox):  # they would read and write another log
            with pytest.raises(StoreUnavailable, match="2 names"):
                async with opener(hard):
                    pass
            async with opener(path):
                pass
        hard.unlink()
        path.rename(moved)
        with pytest.raises(DatabaseInUse) as caught:
            async with open_runtime(moved, handlers={}):
                pass
        assert caught.value.pid == child.pid
        moved.rename(path)  # to its log


async def test_after_a_clean_close_another_name_is_refused_until_it_is_the_only_one(tmp_path: Path) -> None:
    path, hard = tmp_path / "companies.db", tmp_path / "hard.db"
    async with open_runtime(path, handlers={}):
        pass
    os.link(path, hard)
    for name in (path, hard):
        with pytest.raises(StoreUnavailable, match="2 names"):
            async with open_runtime(name, handlers={}):
                pass
    path.unlink()
    async with open_runtime(hard, handlers={}):
        pass


@pytest.mark.parametrize("copied", [False, True])
async def test_closing_leaves_no_log_also_beside_a_reader_of_the_same_process(
    tmp_path: Path, copied: bool
) -> None:
    path = tmp_path / "companies.db"
    async with open_runtime(path, handlers={}):
        if copied:
            path.read_bytes()
    assert {file.name for file in tmp_path.iterdir()} == {"companies.db", "companies.db.lock"}
    async with open_runtime(path, handlers={}) as runtime, open_reader(path) as reader:
        await runtime.aclose()
        assert await reader.companies() == ()
    assert {file.name for file in tmp_path.iterdir()} == {"companies.db", "companies.db.lock"}


async def test_a_connection_that_outlives_the_host_in_its_process_keeps_its_locks(tmp_path: Path) -> None:
    """So the owner's descriptors may not be closed before it."""
    path = tmp_path / "companies.db"
    async with open_runtime(path, handlers={}):
        raw = open_connection(path)
        raw.execute("SELECT * FROM tasks").fetchall()
    with closing(raw):
        by_sqlite(path)
        assert Path(f"{path}-wal").exists(), "another process took itself for the last"
    assert {file.name for file in tmp_path.iterdir()} == {"companies.db", "companies.db.lock"}
    assert not [fd for fd in os.listdir("/proc/self/fd") if _target(fd).startswith(str(path))]


def _target(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""
