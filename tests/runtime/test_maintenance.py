"""A database is copied beside its host; it is pruned, and companies are deleted, also where no host runs.

On the real clock: this is done with threads.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import trio

import actors
import storage.sqlite.backup
from actors import (
    BackupFailed,
    CompanyActive,
    CompanyUnknown,
    DatabaseInUse,
    DeletedCompany,
    InvalidName,
    NotADatabase,
    Retention,
    Submit,
    SubmitMany,
    open_runtime,
)
from storage.sqlite.statements import SQL
from tests.runtime.support import Gated, a_host, a_task, kinds, settled, sql, stored_events

EVERYTHING = Retention(events_s=0, attempts_s=0, tasks_s=0, archived_s=0, keys_s=0)


async def an_old_database(path: Path) -> None:
    """Company k has a task that is done, j one that waits; nobody runs it."""
    async with a_host(path) as runtime:
        await runtime.company("j").ask(a_task("ok", id="held", mode="manual"))
        await runtime.company("k").ask(a_task("ok", id="done", key="a key"))
        await settled(runtime.company("k"), "done")
    sql(path, "UPDATE tasks SET created_ms = 0")
    sql(path, "UPDATE runs SET settled_ms = 0 WHERE settled_ms IS NOT NULL")
    sql(path, "UPDATE attempts SET ended_ms = 0")


# --- backup -----------------------------------------------------------------------------------------------------------


async def test_a_host_makes_a_copy_of_itself_and_goes_on(tmp_path: Path) -> None:
    work = Gated()
    async with open_runtime(tmp_path / "x.db", handlers={"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await work.has_started()
        size = await runtime.backup(tmp_path / "copy.db")
        assert size == (tmp_path / "copy.db").stat().st_size
        work.open.set()
        assert await settled(company, "a") == "completed"
    assert sql(tmp_path / "copy.db", "SELECT status FROM runs") == [("running",)]
    async with open_runtime(tmp_path / "copy.db", handlers={"work": work}) as runtime:
        assert await settled(runtime.company("k"), "a") == "completed"
    assert "attempt.lost" in kinds(stored_events(tmp_path / "copy.db"))


async def test_anybody_may_make_a_copy_while_a_host_runs(db_path: Path, tmp_path: Path) -> None:
    async with a_host(db_path) as runtime:
        await runtime.company("k").ask(a_task("ok", id="a", mode="manual"))
        await actors.backup(db_path, tmp_path / "one.db")
        await runtime.backup(tmp_path / "two.db")
        with pytest.raises(BackupFailed):
            await runtime.backup(tmp_path / "two.db")
    for name in ("one.db", "two.db"):
        assert sql(tmp_path / name, "SELECT id FROM tasks") == [("a",)]


async def test_a_copying_that_is_cancelled_stops_and_leaves_nothing(
    db_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await an_old_database(db_path)
    copying = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def for_ever(_raw: sqlite3.Connection, _part: Path, _target: Path, go_on: Any) -> None:
        token.run_sync_soon(copying.set)
        while True:
            go_on()

    monkeypatch.setattr(storage.sqlite.backup, "_copy", for_ever)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(actors.backup, db_path, tmp_path / "copy.db")
            await copying.wait()
            nursery.cancel_scope.cancel()
    assert not [name for name in os.listdir(tmp_path) if "copy" in name]


# --- pruning ----------------------------------------------------------------------------------------------------------


async def test_a_database_that_nobody_runs_is_pruned_and_nothing_of_it_is_started(db_path: Path) -> None:
    await an_old_database(db_path)
    before = sql(db_path, "SELECT max(position) FROM events")[0][0]
    report = await actors.prune(db_path, EVERYTHING)
    assert (report.tasks, report.attempts, report.errors) == (1, 1, 0)
    assert report.events >= before
    assert sql(db_path, "SELECT id FROM tasks") == [("held",)]
    assert sql(db_path, "SELECT status FROM runs") == [("queued",)]
    assert kinds(stored_events(db_path))[0] == "log.pruned"
    assert sql(db_path, "SELECT count(*) FROM hosts") == [(1,)]
    assert not Path(f"{db_path}-wal").exists()


@pytest.mark.planted
async def test_what_a_dead_process_left_is_left_to_the_next_host(db_path: Path) -> None:
    await an_old_database(db_path)
    sql(db_path, "UPDATE attempts SET ended_ms = NULL, end = NULL")
    sql(db_path, "UPDATE nodes SET status = 'running', result = NULL")
    sql(db_path, "UPDATE runs SET status = 'running', slot = 1, settled_ms = NULL WHERE settled_ms = 0")
    sql(db_path, "UPDATE events SET kind = 'attempt.lost' WHERE kind = 'attempt.succeeded'")
    rows = sql(db_path, "SELECT * FROM attempts"), sql(db_path, "SELECT * FROM runs")
    report = await actors.prune(db_path, Retention(attempts_s=0, tasks_s=0, keys_s=0))
    assert (report.tasks, report.attempts) == (0, 0)
    assert (sql(db_path, "SELECT * FROM attempts"), sql(db_path, "SELECT * FROM runs")) == rows
    with pytest.raises(CompanyActive) as caught:
        await actors.delete_company(db_path, "k")
    assert caught.value.tasks == ("done",)


async def test_a_host_that_runs_is_named_and_nothing_is_done(db_path: Path) -> None:
    async with a_host(db_path) as runtime:
        await runtime.company("k").ask(a_task("ok", id="a", mode="manual"))
        for act in (actors.prune(db_path, EVERYTHING), actors.delete_company(db_path, "k")):
            with pytest.raises(DatabaseInUse, match=f"process {os.getpid()}"):
                await act
        assert await runtime.companies() == ("k",)


async def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    for act in (
        actors.prune(tmp_path / "x.db", EVERYTHING),
        actors.delete_company(tmp_path / "x.db", "k"),
        actors.backup(tmp_path / "x.db", tmp_path / "y.db"),
    ):
        with pytest.raises(NotADatabase):
            await act
    assert os.listdir(tmp_path) == []


# --- deleting ---------------------------------------------------------------------------------------------------------


async def test_a_company_is_deleted_where_nobody_runs(db_path: Path) -> None:
    await an_old_database(db_path)
    assert await actors.delete_company(db_path, "k") == DeletedCompany("k", 1, 1, 6)
    assert sql(db_path, "SELECT name FROM companies") == [("j",)]
    assert stored_events(db_path)[-1].kind == "company.deleted"
    with pytest.raises(CompanyUnknown):
        await actors.delete_company(db_path, "k")
    with pytest.raises(InvalidName):
        await actors.delete_company(db_path, "")


@pytest.mark.parametrize("by", ["a host", "pruning"])
async def test_a_deletion_that_was_begun_is_finished_by_whoever_opens_the_database_next(
    db_path: Path, by: str
) -> None:
    async with a_host(db_path) as runtime:
        await runtime.company("k").ask(SubmitMany([Submit("x", mode="manual") for _ in range(1200)]))
    with sqlite3.connect(db_path) as raw:
        raw.execute(SQL["mark_deleted"], {"company_id": 1, "epoch": 1})
        raw.execute(SQL["insert_deletion"], {"company_id": 1, "name": "k", "asked_ms": 0})
    raw.close()
    if by == "a host":
        async with a_host(db_path):
            with trio.fail_after(60):
                while sql(db_path, "SELECT * FROM companies"):
                    await trio.sleep(0.01)
    else:
        await actors.prune(db_path, Retention())
    assert sql(db_path, "SELECT * FROM companies") == []
    (told,) = [event for event in stored_events(db_path) if event.kind == "company.deleted"]
    assert told.data == {"name": "k", "tasks": 1200, "attempts": 0, "events": 1200}
