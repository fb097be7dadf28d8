"""What must stay small stays small: the write-ahead log under readers, the cost of a step behind a backlog."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

import actors.runtime.housekeeping
import actors.runtime.recovery
import actors.runtime.sweep
import storage.wal
from actors import Archive, Company, Event, Runtime, Submit, SubmitMany
from actors.runtime.sweep import EVERY_S
from storage.loading import load_company
from storage.opening import WAL_BYTES_KEPT, WAL_PAGES
from storage.wal import SHRINK_ABOVE_BYTES
from tests.runtime.support import a_host, a_task, idle, of_kind, settled, stored_events

MB = 1024 * 1024


async def transitions(runtime: Runtime, rounds: int, largest: list[int]) -> None:
    """Companies at work; after every round the size of the write-ahead log is noted."""
    for _ in range(rounds):
        for name in ("j", "k"):
            many = [Submit("x" * 400, nodes=[]) for _ in range(200)]
            await runtime.company(name).ask(SubmitMany(many))
        await idle(runtime)
        largest.append(runtime.statistics().wal_bytes)


@contextmanager
def a_long_reader(path: Path) -> Iterator[sqlite3.Connection]:
    """Somebody in another place who reads an old snapshot and does not end."""
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("BEGIN")
        raw.execute("SELECT count(*) FROM companies").fetchall()
        yield raw


# --- C55 --------------------------------------------------------------------------------------------------------------


async def test_the_wal_stays_small_while_a_reader_of_the_log_takes_its_time(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C55: our own readers hold no snapshot, however slowly they read. Somebody else's would: that is the proof."""
    seen: list[Event] = []

    async def slowly(runtime: Runtime) -> None:
        async for event in runtime.events(company="k"):
            seen.append(event)
            await trio.sleep(600)

    bound = 2 * WAL_PAGES * 4096
    async with a_host(db_path) as runtime, trio.open_nursery() as nursery:
        nursery.start_soon(slowly, runtime)
        read: list[int] = []
        await transitions(runtime, 12, read)
        assert len(seen) >= 1
        assert max(read) < bound
        pinned: list[int] = []
        with a_long_reader(db_path):
            await transitions(runtime, 12, pinned)
        assert max(pinned) > bound, "the same work under a snapshot that is held"
        nursery.cancel_scope.cancel()


async def test_a_list_that_is_cancelled_half_way_holds_no_snapshot(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C55."""
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(SubmitMany([Submit("x", mode="manual") for _ in range(50)]))
        for checkpoints in range(12):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(company.tasks)
                    for _ in range(checkpoints):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()
            raw = runtime.database.reader._raw  # type: ignore[attr-defined]
            assert not raw.in_transaction
            await company.ask(a_task("ok", mode="manual"))
            cut = await storage.wal.shrink_wal(runtime.database, above_bytes=0)
            assert cut == storage.wal.WalState(0), "nobody is in the way"


async def test_a_wal_that_somebody_else_makes_grow_is_told_of_and_shrinks_when_he_goes(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C55: one warning when it is above its bound, however long; the sweep cuts it as soon as nobody is in the way."""
    assert (SHRINK_ABOVE_BYTES, WAL_BYTES_KEPT) == (16 * MB, 64 * MB)
    monkeypatch.setattr(storage.wal.shrink_wal, "__defaults__", (MB // 4,))
    monkeypatch.setattr(actors.runtime.housekeeping, "WAL_BYTES_KEPT", MB // 2)
    async with a_host(db_path) as runtime:
        sizes: list[int] = []
        with a_long_reader(db_path):
            await transitions(runtime, 3, sizes)
            await trio.sleep(10 * EVERY_S)
            assert runtime.statistics().wal_bytes >= sizes[-1] > MB
            (grown,) = of_kind(stored_events(db_path), "wal.grown")
            assert grown.data == {"bytes": grown.data["bytes"], "limit_bytes": MB // 2}
            assert grown.data["bytes"] > MB // 2
        await trio.sleep(2 * EVERY_S)
        assert runtime.statistics().wal_bytes < MB // 4
        assert len(of_kind(stored_events(db_path), "wal.grown")) == 1
        (shrunk,) = of_kind(stored_events(db_path), "wal.shrunk")
        assert shrunk.data["bytes"] < MB // 4
        assert await settled(runtime.company("k"), (await runtime.company("k").ask(a_task("ok"))).id)


async def test_the_writer_goes_on_while_the_wal_cannot_be_cut(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C55: the look waits for nobody, and is no outage."""
    async with a_host(db_path) as runtime:
        await runtime.company("k").ask(a_task("ok", id="a"))
        await settled(runtime.company("k"), "a")
        with a_long_reader(db_path):
            await runtime.company("k").ask(a_task("ok", id="b"))
            state = await storage.wal.shrink_wal(runtime.database, above_bytes=0)
            assert state.pinned
            assert state.bytes > 0
            await runtime.company("k").ask(a_task("ok", id="c"))
            assert await settled(runtime.company("k"), "c") == "completed"
    assert of_kind(stored_events(db_path), "store.unavailable") == []


# --- C60 --------------------------------------------------------------------------------------------------------------


async def waiting(company: Company, count: int) -> None:
    await company.ask(SubmitMany([Submit("x", mode="manual") for _ in range(count)]))


async def blocked(company: Company, count: int) -> None:
    await company.ask(a_task("fails", id="dead", tries_max=1))
    await settled(company, "dead")
    await company.ask(SubmitMany([Submit("x", depends_on=["dead"]) for _ in range(count)]))


async def completed(company: Company, count: int) -> None:
    await company.ask(SubmitMany([Submit("x", nodes=[]) for _ in range(count)]))


async def archived(company: Company, count: int) -> None:
    await company.ask(SubmitMany([Submit("x", id=f"t{n}", mode="manual") for n in range(count)]))
    for number in range(count):
        await company.tell(Archive(f"t{number}"))


BACKLOGS = {"waiting": waiting, "blocked": blocked, "completed": completed, "archived": archived}


@attrs.define
class Cost:
    """What something cost: steps of SQLite's machine, and calls of Python functions. Neither depends on the machine."""

    steps: int = 0
    calls: int = 0


@contextmanager
def counted(runtime: Runtime) -> Iterator[Cost]:
    cost = Cost()
    connections: list[Any] = [runtime.database.reader, runtime.database.writer._connection]

    def step() -> int:
        cost.steps += 1
        return 0

    def call(_frame: Any, event: str, _arg: Any) -> None:
        cost.calls += event == "call"

    for connection in connections:
        connection._raw.set_progress_handler(step, 10)
    sys.setprofile(call)
    try:
        yield cost
    finally:
        sys.setprofile(None)
        for connection in connections:
            connection._raw.set_progress_handler(None, 0)


async def cost_of_a_task(runtime: Runtime, name: str) -> Cost:
    """A task from its submission to its end, in a company that is there."""
    company = runtime.company(name)
    await company.ask(a_task("ok", id="first"))
    await settled(company, "first")
    await trio.testing.wait_all_tasks_blocked()
    with counted(runtime) as cost:
        await company.ask(a_task("ok", id="measured"))
        await settled(company, "measured")
        await trio.testing.wait_all_tasks_blocked()
    return cost


@pytest.mark.parametrize("kind", BACKLOGS)
async def test_a_task_costs_the_same_behind_a_long_backlog_as_behind_a_short_one(
    tmp_path: Path, autojump_clock: MockClock, kind: str
) -> None:
    """C60: in the company that has the backlog, and in another."""
    costs: dict[int, list[Cost]] = {}
    for count in (20, 1000):
        async with a_host(tmp_path / f"{count}.db", idle_s=3600) as runtime:
            await BACKLOGS[kind](runtime.company("k1"), count)
            await idle(runtime)
            costs[count] = [await cost_of_a_task(runtime, name) for name in ("k1", "k2")]
    for short, long in zip(costs[20], costs[1000], strict=True):
        assert long.steps <= 1.05 * short.steps
        assert long.calls <= 1.2 * short.calls


async def test_a_system_that_only_waits_costs_next_to_nothing(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C60: what is done, archived or long in the line is not looked at again and again."""
    monkeypatch.setattr(actors.runtime.sweep, "TASKS_A_SECOND", 0.1)
    costs: dict[str, Cost] = {}
    for kind in ("nothing", "completed", "archived", "waiting"):
        async with a_host(tmp_path / f"{kind}.db") as runtime:
            if kind != "nothing":
                await BACKLOGS[kind](runtime.company("k"), 400)
            await idle(runtime)
            await trio.sleep(10 * EVERY_S)
            assert runtime.statistics().companies == 0
            with counted(runtime) as cost:
                await trio.sleep(3600)
            costs[kind] = cost
    for kind in ("completed", "archived"):
        assert costs[kind].steps <= costs["nothing"].steps + 60 * 2, "a few steps a sweep"
    assert costs["waiting"].steps < costs["nothing"].steps + 5_000, "it was loaded once, not sixty times"


async def test_a_long_backlog_is_looked_at_in_turn_and_what_is_due_or_runs_every_time(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C60: 100 tasks are worth ten minutes of peace here."""
    monkeypatch.setattr(actors.runtime.sweep, "TASKS_A_SECOND", 100 / 600)
    loads: list[str] = []

    def noted(conn: Any, company: Any, check: Any) -> Any:
        loads.append(company.name)
        return load_company(conn, company, check)

    monkeypatch.setattr("actors.runtime.company.load_company", noted)
    async with a_host(db_path) as runtime:
        await waiting(runtime.company("long"), 100)
        await waiting(runtime.company("short"), 5)
        await trio.sleep(5 * EVERY_S)
        loads.clear()
        await trio.sleep(3600)
        assert 5 <= loads.count("long") <= 7
        assert 58 <= loads.count("short") <= 61
        await runtime.company("long").ask(a_task("ok", id="now"))
        assert await settled(runtime.company("long"), "now") == "completed"


def refreshed_by(runtime: Runtime, name: str) -> set[str]:
    """Tasks that are derived anew in the company from now on."""
    actor = runtime.actor(name)
    assert actor is not None
    assert actor.state is not None
    seen: set[str] = set()
    refresh = actor.state.refresh

    def noted(entry: Any, *, cause: str) -> None:
        seen.add(entry.task.id)
        refresh(entry, cause=cause)

    setattr(actor.state, "refresh", noted)  # noqa: B010 - of one instance
    return seen


async def test_the_sweep_s_question_costs_a_company_no_more_than_a_bound_and_everything_gets_its_turn(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C60: one company's backlog must not hold up the others while it is looked at."""
    monkeypatch.setattr(actors.runtime.recovery, "LOOKED_MAX", 50)
    costs: dict[int, Cost] = {}
    for count in (200, 800):
        async with a_host(tmp_path / f"{count}.db", idle_s=3600) as runtime:
            await waiting(runtime.company("k"), count)
            await idle(runtime)
            await runtime.sweeper.sweep()
            with counted(runtime) as costs[count]:
                await runtime.sweeper.sweep()
            seen = refreshed_by(runtime, "k")
            for _ in range(count // 50):
                await runtime.sweeper.sweep()
            assert len(seen) == count
    assert costs[800].calls <= 1.2 * costs[200].calls
