"""What every test is given: a fresh database path, virtual time, and a check of every database that it opened.

`databases` watches over each test by itself: whatever file a runtime opened has to hold all the rules of
`tests.invariants` when the test is over, no runtime may have lost count of its attempts, and no exit path
may have forgotten a registration. A test that plants rows breaking a rule is marked ``planted``, one that
provokes the warning about a forgotten registration is marked ``leaks``.
"""

from __future__ import annotations

import inspect
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

import pytest
from trio.testing import MockClock

import actors.runtime.attempts
import storage.sqlite.store
from actors.handlers import Handler
from actors.host import Runtime
from actors.testing import VirtualClock, open_test_runtime
from storage.sqlite.ownership import acquire

from . import invariants


def pytest_configure(config: pytest.Config) -> None:
    # A shell lets what it starts in the background ignore Ctrl-C, and children would inherit that and wait for ever.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "planted: plants rows that break the rules of tests.invariants")
    config.addinivalue_line("markers", "leaks: provokes the warning about a registration left behind")


class _Listening:
    """The registry's logger, which also remembers what it was told."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.leaks: list[dict[str, Any]] = []

    def warning(self, event: str, **fields: Any) -> None:
        self._inner.warning(event, **fields)
        if event == "attempt.leak":
            self.leaks.append(fields)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Databases:
    """The databases and runtimes that the test opened in this process."""

    def __init__(self) -> None:
        self.paths: dict[Path, None] = {}
        self.runtimes: list[Runtime] = []

    def check(self) -> None:
        """Raise `invariants.Broken` for the first file that breaks a rule; one that is gone is not asked."""
        for path in self.paths:
            if path.exists() and path.stat().st_size:
                invariants.check_file(path)
        for runtime in self.runtimes:
            invariants.check_memory(runtime)


@pytest.fixture(autouse=True)
def databases(request: pytest.FixtureRequest) -> Iterator[Databases]:
    """Watches every database that a runtime opens, and checks it when the test is over."""
    seen = Databases()
    log = _Listening(actors.runtime.attempts._log)
    own, begin = acquire, Runtime.__init__

    def watched_acquire(path: str | os.PathLike[str], **options: Any) -> Any:
        ownership = own(path, **options)
        seen.paths.setdefault(Path(path).resolve())
        return ownership

    def watched_begin(runtime: Runtime, *args: Any, **options: Any) -> None:
        begin(runtime, *args, **options)
        seen.runtimes.append(runtime)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage.sqlite.store, "acquire", watched_acquire)
        patch.setattr(Runtime, "__init__", watched_begin)
        patch.setattr(actors.runtime.attempts, "_log", log)
        yield seen
    if request.node.get_closest_marker("planted") is None:
        seen.check()
    if request.node.get_closest_marker("leaks") is None:
        assert not log.leaks, f"exit paths left registrations behind: {log.leaks}"


@pytest.fixture
def db_path(tmp_path: Path, databases: Databases) -> Path:
    """Where a database may be made; checked at the end of the test, whoever opened it."""
    path = tmp_path / "companies.db"
    databases.paths.setdefault(path.resolve())
    return path


@pytest.fixture
def wall_clock() -> VirtualClock:
    """The wall clock of `opened`; it moves with Trio's and can be made to jump."""
    return VirtualClock()


class Opened(Protocol):
    def __call__(
        self, handlers: Mapping[str, Handler], **options: Any
    ) -> AbstractAsyncContextManager[Runtime]: ...


@pytest.fixture
def opened(
    request: pytest.FixtureRequest, db_path: Path, wall_clock: VirtualClock, autojump_clock: MockClock
) -> Opened:
    """``async with opened(handlers, executions_max=…) as runtime``: at `db_path`, inline, in virtual time.

    May be used again in the same test, one after the other: the same file, the same clock. The test has to
    ask for ``autojump_clock`` itself, as pytest-trio runs it on no clock that only a fixture asked for.
    """
    assert "autojump_clock" in inspect.signature(request.function).parameters, (
        "ask for autojump_clock as well"
    )

    def open_here(handlers: Mapping[str, Handler], **options: Any) -> AbstractAsyncContextManager[Runtime]:
        return open_test_runtime(db_path, handlers=handlers, clock=wall_clock, **options)

    return open_here


@pytest.fixture
def check_runtime() -> Callable[[Runtime], Any]:
    """``await check_runtime(runtime)``: its memory is sound and says what its file says."""
    return invariants.check_runtime
