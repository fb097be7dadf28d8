"""A database whose files are deleted, moved or replaced: nothing is acknowledged, and what it held is offered."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import actors
from actors import SetLimits, StoreLost, StoreUnavailable, Submit, SubmitMany, open_runtime
from storage.sqlite.store import LOOK_EVERY_S
from tests.conftest import Databases
from tests.inside import inside
from tests.runtime.support import Gated, a_host, a_task, settled, sql
from tests.stores import Plain


def deleted(path: Path) -> None:
    path.unlink()


def moved(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def replaced(path: Path) -> None:
    """As a restore or a program that keeps folders alike does it."""
    shutil.copy(path, path.with_name("new"))
    path.with_name("new").replace(path)


def folder_moved(path: Path) -> None:
    path.parent.rename(path.parent.with_name("folder elsewhere"))


LOSSES = [
    (deleted, ""),
    (moved, ""),
    (replaced, ""),
    (folder_moved, ""),
    (deleted, "-wal"),
    (moved, "-wal"),
    (replaced, "-wal"),
    (deleted, "-shm"),
]


@pytest.fixture
def path(tmp_path: Path, databases: Databases) -> Iterator[Path]:
    """Of a database that is not checked at the end: what is there then is not what was opened."""
    (tmp_path / "folder").mkdir()
    yield tmp_path / "folder" / "lost.db"
    databases.paths.clear()


@pytest.mark.parametrize(("lose", "suffix"), LOSSES)
async def test_nothing_is_acknowledged_after_a_file_is_gone_and_what_is_held_can_be_saved(
    path: Path,
    tmp_path: Path,
    autojump_clock: MockClock,
    logs: list[dict[str, Any]],
    lose: Callable[[Path], None],
    suffix: str,
) -> None:
    work = Gated()
    async with a_host(path, {"work": work}) as runtime:
        company, other = runtime.company("k"), runtime.company("other")
        await company.ask(SetLimits(runs_max=2))
        await company.ask(SubmitMany([a_task("work", id="runs"), a_task("ok", id="done")]))
        await settled(company, "done")
        await work.has_started()
        lose(Path(f"{path}{suffix}"))
        for _ in range(3):
            with pytest.raises(StoreLost, match=r"deleted or moved|replaced by another"):
                await company.ask(Submit("x", handler="ok"))
        for again in (
            other.ask(Submit("x")),
            other.tell(Submit("x")),
            runtime.prune(actors.Retention(events_s=0)),
        ):
            with pytest.raises(StoreUnavailable):
                await again
        with pytest.raises(StoreLost):
            other.tell_nowait(Submit("x"))
        with pytest.raises(StoreLost):
            await company.when_settled("runs")
        with pytest.raises(StoreLost):
            await company.when_idle()
        assert (await company.when_settled("done")).result == {"ok": None}, "what is known can be read"
        await runtime.backup(tmp_path / "saved")
        began_s = trio.current_time()
        work.open.set()
    assert trio.current_time() - began_s < 60, "closing waits for no end that cannot be stored"
    said = [entry for entry in logs if entry["event"] == "store.lost"]
    assert len(said) == 1
    assert "Runtime.backup" in said[0]["advice"]
    saved = sql(tmp_path / "saved", "SELECT id FROM tasks ORDER BY id")
    assert {("done",), ("runs",)} <= set(saved)


async def test_a_batch_that_is_committed_as_the_file_goes_is_not_acknowledged(
    path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(path) as runtime:
        store = inside(runtime).services.store

        def unit(_conn: sqlite3.Connection) -> None:
            path.unlink()

        pending = [store.submit(Plain(unit)), store.submit(Plain(lambda _: None))]
        for one in pending:
            with pytest.raises(StoreLost):
                await one.wait()
        assert store.lost is not None


async def test_a_loss_is_noticed_within_a_second_while_nothing_is_done(path: Path, tmp_path: Path) -> None:
    """With threads and on the real clock, as it is in production."""
    assert LOOK_EVERY_S <= 1
    async with open_runtime(path, handlers={}) as runtime:
        await runtime.company("k").ask(Submit("x", id="x", mode="manual"))
        path.unlink()
        with trio.fail_after(30), pytest.raises(StoreLost):
            await runtime.company("k").when_settled("x")
        await runtime.backup(tmp_path / "saved")
    assert sql(tmp_path / "saved", "SELECT id FROM tasks") == [("x",)]


async def test_closing_a_lost_database_leaves_the_log_of_another_alone(path: Path) -> None:
    """SQLite deletes the log by its name."""
    log = Path(f"{path}-wal")
    async with open_runtime(path, handlers={}):
        log.with_name("new").write_bytes(b"of a restore")
        log.with_name("new").replace(log)
    assert log.read_bytes() == b"of a restore"


async def test_what_cannot_be_seen_at_present_is_not_lost(
    path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_host(path) as runtime:
        looks: list[object] = []

        def unseen(name: object) -> os.stat_result:
            looks.append(name)
            raise PermissionError(13, "Permission denied")

        with monkeypatch.context() as patch:
            patch.setattr("storage.sqlite.guard.os.stat", unseen)
            await runtime.company("k").ask(Submit("x", id="x"))
        assert looks
        assert runtime.lost is None
