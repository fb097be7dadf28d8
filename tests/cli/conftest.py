"""The command line as a user has it: in this process where that is enough, else as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs
import pytest
import structlog

import actors
from actors.cli import main

ROOT = Path(actors.__file__).parent.parent
PATIENCE_S = 120.0
"""How long a process may take before the test says that it hangs."""

ENDS_S = 20.0
"""How long one that is no longer needed may take to end before it is killed."""


@attrs.frozen
class Done:
    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


@attrs.frozen
class Place:
    """A folder with a plan and a database. ``run`` is this process, ``start`` a process of its own."""

    folder: Path
    capsys: pytest.CaptureFixture[str]
    started: list[subprocess.Popen[str]] = attrs.field(factory=list)

    @property
    def db(self) -> Path:
        return self.folder / "x.db"

    def plan(self, text: str, name: str = "plan.toml") -> Path:
        path = self.folder / name
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    def cli(self, *argv: str | Path) -> Done:
        """Any command, with ``--db`` at its end."""
        self.capsys.readouterr()
        status = main([*(str(word) for word in argv), "--db", str(self.db)])
        return Done(status, *self.capsys.readouterr())

    def run(self, *options: str) -> Done:
        return self.cli("run", self.folder / "plan.toml", *options)

    def start(
        self, *argv: str | Path, via: Sequence[str] = ("-m", "actors"), **popen: object
    ) -> subprocess.Popen[str]:
        """The same in a process of its own, which gets Ctrl-C only from the test."""
        command = [sys.executable, "-W", "error", *via, *(str(word) for word in argv)]
        settings = {
            "cwd": self.folder,
            "env": {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb"},
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            "start_new_session": True,
        }
        started: subprocess.Popen[str] = subprocess.Popen(
            [*command, "--db", str(self.db)],
            **{**settings, **popen},  # type: ignore[call-overload]
        )
        self.started.append(started)
        return started

    def end_what_is_left(self) -> None:
        """A test that failed may leave processes; they are asked first, as they end their own commands then."""
        for process in self.started:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(ENDS_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Place]:
    path, place = list(sys.path), Place(tmp_path, capsys)
    yield place
    place.end_what_is_left()
    sys.path[:] = path
    structlog.reset_defaults()


@pytest.fixture
def finish() -> Iterator[Callable[[subprocess.Popen[str]], Done]]:
    """Waits for the end of a process and gives what it said; kills what a test left."""
    known: list[subprocess.Popen[str]] = []

    def wait(process: subprocess.Popen[str]) -> Done:
        known.append(process)
        out, err = process.communicate(timeout=PATIENCE_S)
        return Done(process.returncode, out or "", err or "")

    yield wait
    for process in known:
        if process.poll() is None:
            process.kill()
            process.communicate()
