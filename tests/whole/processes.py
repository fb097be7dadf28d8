"""Starting hosts as processes, and looking at what they leave."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from storage.sqlite.ownership import owner_of
from tests.invariants import check_file

ROOT = Path(__file__).parents[2]
PATIENCE_S = 600.0
"""After so long a process is killed, so that one that hangs fails its test and nothing else. Not what is measured; one
that serves lives through many hosts, on a machine that may be busy with other things.
"""


@contextmanager
def a_host(what: str, *path: Path) -> Iterator[subprocess.Popen[str]]:
    """A child that runs ``what`` of `tests.whole.child`; gone when the block is left."""
    child = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.whole.child", what, *map(str, path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    too_long = threading.Timer(PATIENCE_S, child.kill)
    too_long.start()
    try:
        yield child
    finally:
        too_long.cancel()
        if child.poll() is None:
            child.kill()
        for stream in (child.stdin, child.stdout, child.stderr):
            if stream is not None:
                stream.close()
        child.wait(PATIENCE_S)


class Hosts:
    """Hosts of one kind, one after the other, without the second that each would need to begin."""

    def __init__(self, server: subprocess.Popen[str], what: str, path: Path) -> None:
        self._server = server
        self._order = f"{what} {path}\n"
        self._pid = 0

    def start(self) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(self._order)
        self._server.stdin.flush()
        self._pid = int(wait_for(self._server, "pid")[-1].split()[1])

    def wait_for(self, word: str) -> None:
        wait_for(self._server, word)

    def kill(self) -> None:
        """Kill it, unless it has ended by itself."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)

    def ended(self) -> tuple[int, list[str]]:
        """Wait for the end of the host: its status, and what it said until then."""
        *said, last = wait_for(self._server, "ended")
        return int(last.split()[1]), said


@contextmanager
def hosts(what: str, path: Path) -> Iterator[Hosts]:
    with a_host("serve") as server:
        yield Hosts(server, what, path)


def wait_for(child: subprocess.Popen[str], word: str) -> list[str]:
    """Until the child says a line that begins with ``word``; fails with all it said if it ends without."""
    assert child.stdout is not None
    said: list[str] = []
    while not said or said[-1].split(" ")[0] != word:
        heard = child.stdout.readline()
        if not heard:
            status, _, err = finished(child)
            raise AssertionError(f"it ended with {status}, said {said} and not {word!r}: {err}")
        said.append(heard.strip())
    return said


def finished(child: subprocess.Popen[str]) -> tuple[int, list[str], str]:
    """Wait for the end: status, what it said since, and standard error."""
    assert child.stdout is not None
    assert child.stderr is not None
    said, err = (
        child.stdout.read().splitlines(),
        child.stderr.read(),
    )  # `communicate` forgets what `readline` had
    return child.wait(PATIENCE_S), said, err


def rows(path: Path, statement: str, *params: object) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as raw:
        return raw.execute(statement, params).fetchall()


def has_schema(path: Path) -> bool:
    return bool(rows(path, "SELECT 1 FROM sqlite_master WHERE name = 'events'"))


def assert_left_in_order(path: Path, *, closed: bool) -> None:
    """Nobody owns it, nobody holds a lock of it, every rule holds; if it was closed, nothing is left beside it."""
    assert owner_of(path) is None
    if closed:
        assert not Path(f"{path}-wal").exists(), "the last connection was not closed"
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as raw:
        raw.execute("BEGIN IMMEDIATE")
        raw.execute("ROLLBACK")
    check_file(path)
