"""What the tests of the command line share: reading a database, and processes that wait for a word."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import trio

from actors import AttemptEnd, Event, Reader, TaskStatus, open_reader

from .conftest import PATIENCE_S, Done

T = TypeVar("T")
Finish = Callable[["subprocess.Popen[str]"], Done]


CHAIN_WITH_A_FAULT = """
    [[companies.acme.tasks]]
    id = "first"
    tries_max = 1
    run = "test -e repaired || { echo not yet repaired; exit 4; }"

    [[companies.acme.tasks]]
    id = "second"
    depends_on = ["first"]
    run = "true"

    [[companies.acme.tasks]]
    id = "third"
    depends_on = ["second"]
    run = "true"
"""

MANUAL = """
    [[companies.acme.tasks]]
    id = "by-hand"
    mode = "manual"
    run = "true"
"""


STEERED = """
    [[companies.acme.tasks]]
    id = "collect"
    run = "echo 1 2 3"

    [[companies.acme.tasks]]
    id = "report"
    title = "Weekly report"
    mode = "manual"
    depends_on = ["collect"]
    run = "echo the report"

    [[companies.acme.tasks]]
    id = "broken"
    goal = "g"
    tries_max = 1
    run = "test -e mended"

    [[companies.acme.tasks]]
    id = "after"
    goal = "g"
    depends_on = ["broken"]
    run = "true"
"""


def read(db: Path, what: Callable[[Reader], Awaitable[T]]) -> T:
    """Read a database as any other process may."""

    async def inner() -> T:
        async with open_reader(db) as reader:
            return await what(reader)

    return trio.run(inner)


def results_of(db: Path, company: str, task: str) -> Mapping[str, Any]:
    return read(db, lambda reader: reader.company(company).result(task))


def status_of(db: Path, task: str) -> TaskStatus:
    return read(db, lambda reader: reader.company("acme").status(task))


def ends_of(db: Path, task: str) -> list[AttemptEnd | None]:
    return [attempt.end for attempt in read(db, lambda reader: reader.company("acme").attempts(task))]


def events_of(db: Path) -> list[Event]:
    async def events(reader: Reader) -> list[Event]:
        return [event async for event in reader.events()]

    return read(db, events)


class Gates:
    """Two pipes in the folder where a command runs: it writes its pid into ``up.fifo`` and waits for a word from
    ``go.fifo``. Opening one waits for the command at its other end.
    """

    def __init__(self, folder: Path) -> None:
        self._up, self._go = folder / "up.fifo", folder / "go.fifo"
        os.mkfifo(self._up)
        os.mkfifo(self._go)

    def until_up(self) -> int:
        """Wait for the command; its pid."""
        with alarm(), self._up.open() as up:
            return int(up.read())

    def go(self) -> None:
        with alarm(), self._go.open("w") as go:
            go.write("word\n")


@contextmanager
def alarm() -> Iterator[None]:
    """A pipe that nobody opens must not hang the tests."""

    def ring(_number: int, _frame: object) -> None:
        raise TimeoutError("nobody came")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def read_until(process: subprocess.Popen[str], word: str) -> None:
    """Read the lines of a process until one has ``word`` in it."""
    assert process.stdout is not None
    with alarm():
        for line in process.stdout:
            if word in line:
                return
    raise AssertionError(f"the process ended without saying {word!r}")


def until_gone(pid: int) -> None:
    """Wait until no living process has this pid."""
    with alarm():
        while True:
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except FileNotFoundError:
                return
            if state == "Z":
                return
            time.sleep(0.01)
