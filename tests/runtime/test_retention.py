"""What is old goes, in small units that tell of themselves; what is still needed stays, however old."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import actors.runtime.pruning
from actors import (
    Archive,
    Event,
    KeyConflict,
    Node,
    PruneReport,
    Rerun,
    Retention,
    Retry,
    Runtime,
    Start,
    StoreUnavailable,
    Submit,
    SubmitMany,
    TaskUnknown,
    Unarchive,
    WorkState,
)
from actors.runtime.housekeeping import WALK_AT_LEAST_EVERY_S, _between_walks_s
from actors.runtime.sweep import EVERY_S
from actors.testing import EPOCH_MS, VirtualClock
from storage.loading import claim_company
from storage.retention import LOOKED_MAX, ROWS_MAX
from tests.runtime.support import (
    Gated,
    GatedConnection,
    Scripted,
    Stubborn,
    Wrapper,
    a_host,
    a_task,
    idle,
    kinds,
    of_kind,
    settled,
    sql,
    stored_events,
)

T = TypeVar("T")

DAY_S = 86_400.0
LONG_S = 3 * 3600.0
"""Long after everything that is short here."""
LATE_S = 200.0
"""So much later than its age, an hour or less, a thing is gone: the time between two walks and two passes."""


async def tasks_of(runtime: Runtime, company: str = "k") -> list[str]:
    return [status.id for status in await runtime.company(company).tasks(archived=True)]


def counts(path: Path) -> dict[str, int]:
    """How many rows each table has."""
    names = [row[0] for row in sql(path, "SELECT name FROM sqlite_schema WHERE type = 'table'")]
    return {name: sql(path, f"SELECT count(*) FROM {name}")[0][0] for name in names if name[:7] != "sqlite_"}


# --- the settings ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["events_s", "attempts_s", "tasks_s", "archived_s", "keys_s"])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), True, "7"])
def test_an_age_is_a_number_of_seconds(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a number of seconds of at least 0 or None"):
        Retention(**{name: value})


async def test_a_retention_has_to_be_one(db_path: Path, autojump_clock: MockClock) -> None:
    with pytest.raises(ValueError, match="retention must be a Retention"):
        async with a_host(db_path, retention={"events_s": 1}):
            pass


def test_companies_are_walked_so_often_that_nothing_stays_much_longer_than_its_age() -> None:
    assert _between_walks_s(Retention(tasks_s=60, attempts_s=DAY_S)) == EVERY_S
    assert _between_walks_s(Retention(tasks_s=DAY_S, archived_s=10 * DAY_S)) == DAY_S / 50
    assert _between_walks_s(Retention(tasks_s=365 * DAY_S)) == WALK_AT_LEAST_EVERY_S


async def test_by_default_nothing_goes_however_old_it_is(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a"))
        await settled(company, "a")
        await company.ask(a_task("ok", id="b"))
        await settled(company, "b")
        await company.ask(Archive("b"))
        before = counts(db_path)
        commits = runtime.database.writer.statistics.units
        await trio.sleep(LONG_S)
        assert counts(db_path) == before
        assert runtime.database.writer.statistics.units == commits
        assert runtime.last_prune is None
        assert (await runtime.prune()) == PruneReport(EPOCH_MS + round(LONG_S * 1000))


# --- tasks ------------------------------------------------------------------------------------------------------------


async def test_a_completed_task_goes_whole_when_it_is_old_and_the_log_says_so(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path, retention=Retention(tasks_s=3600)) as runtime:
        company = runtime.company("k")
        nodes = [Node("n", "ok"), Node("m", "ok", after=["n"])]
        await company.ask(a_task(nodes=nodes, id="a"))
        await settled(company, "a")
        await trio.sleep(1800)
        await company.ask(a_task("ok", id="b"))
        await settled(company, "b")
        await trio.sleep(1799)
        assert await tasks_of(runtime) == ["a", "b"]
        await trio.sleep(LATE_S)
        assert await tasks_of(runtime) == ["b"]
        with pytest.raises(TaskUnknown):
            await company.status("a")
        assert {name: counts(db_path)[name] for name in ("tasks", "runs", "nodes", "attempts")} == {
            "tasks": 1,
            "runs": 1,
            "nodes": 1,
            "attempts": 1,
        }
        (told,) = of_kind(stored_events(db_path), "tasks.pruned")
        assert told == Event(
            told.position, "k", told.seq, told.at_ms, "tasks.pruned", data={"count": 1, "ids": ["a"]}
        )
        assert runtime.last_prune is not None
        assert runtime.statistics().last_prune == runtime.last_prune


async def test_what_is_not_completed_stays_until_it_is_archived(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path, retention=Retention(tasks_s=60, archived_s=3600)) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("fails", id="failed", tries_max=1))
        await company.ask(a_task("ok", id="held", mode="manual"))
        await company.ask(a_task("ok", id="done"))
        await idle(runtime)
        await trio.sleep(LONG_S)
        assert await tasks_of(runtime) == ["failed", "held"]
        await company.ask(Archive("failed"))
        await company.ask(Archive("held"))
        await trio.sleep(3500)
        assert await tasks_of(runtime) == ["failed", "held"]
        await trio.sleep(100 + LATE_S)
        assert await tasks_of(runtime) == []


async def test_archived_tasks_stay_where_only_completed_ones_go(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path, retention=Retention(tasks_s=60)) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a"))
        await settled(company, "a")
        await company.ask(Archive("a"))
        await trio.sleep(LONG_S)
        assert await tasks_of(runtime) == ["a"]


async def test_a_quarantined_task_waits_for_a_person_even_if_it_is_completed(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path, retention=Retention(tasks_s=60), idle_s=1) as runtime:
        company = runtime.company("k")
        for task in ("a", "b"):
            await company.ask(a_task("ok", id=task))
            await settled(company, task)
        sql(db_path, "INSERT INTO quarantine (company_id, seq, at_ms, why) VALUES (1, 1, 0, 'planted')")
        await trio.sleep(LONG_S)
        assert await tasks_of(runtime) == ["a"]
        await company.ask(Archive("a"))
        assert (await runtime.prune(Retention(archived_s=0))).tasks == 0  # not before now
        await trio.sleep(1)
        assert (await runtime.prune(Retention(archived_s=0))).tasks == 1
        assert counts(db_path)["quarantine"] == 0


async def test_a_task_goes_by_its_newest_run_and_not_while_that_is_open(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Gated()
    async with a_host(db_path, {"work": work}, retention=Retention(tasks_s=3600)) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        work.open.set()
        await settled(company, "a")
        work.open = trio.Event()
        await company.ask(Rerun("a"))
        await work.has_started(2)
        await trio.sleep(LONG_S)
        assert await tasks_of(runtime) == ["a"]
        work.open.set()
        await settled(company, "a")
        await trio.sleep(3500)
        assert await tasks_of(runtime) == ["a"]
        await trio.sleep(100 + LATE_S)
        assert await tasks_of(runtime) == []
        assert counts(db_path)["runs"] == 0


# --- keys -------------------------------------------------------------------------------------------------------------


async def test_a_key_lives_with_its_task_which_stays_until_the_key_may_go(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path, retention=Retention(tasks_s=60, keys_s=3600)) as runtime:
        company = runtime.company("k")
        first = await company.ask(a_task("ok", key="once"))
        await settled(company, first.id)
        await company.ask(a_task("ok", id="without"))
        await trio.sleep(3500)
        assert await tasks_of(runtime) == [first.id]
        assert (await company.ask(a_task("ok", key="once"))).existing
        with pytest.raises(KeyConflict):
            await company.ask(a_task("fails", key="once"))
        await trio.sleep(100 + LATE_S)
        assert await tasks_of(runtime) == []
        again = await company.ask(a_task("fails", key="once"))
        assert (again.existing, again.seq) == (False, 3)


async def test_where_keys_are_kept_for_ever_so_are_their_tasks(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path, retention=Retention(tasks_s=60, archived_s=60)) as runtime:
        company = runtime.company("k")
        first = await company.ask(a_task("ok", key="once"))
        await settled(company, first.id)
        await trio.sleep(LONG_S)
        await company.ask(Archive(first.id))
        await trio.sleep(LONG_S)
        assert await tasks_of(runtime) == [first.id]


# --- who depends on whom ----------------------------------------------------------------------------------------------


async def test_an_upstream_stays_for_whom_it_is_a_condition_or_an_input(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """Of the two that need it one has not started and one has failed and may be done again."""
    work = Scripted([ValueError("no luck"), "done"])
    async with a_host(db_path, {"work": work}, retention=Retention(tasks_s=60), idle_s=1) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a"))
        await company.ask(a_task("ok", id="held", depends_on=["a"], mode="manual"))
        await company.ask(a_task("work", id="failed", depends_on=["a"], tries_max=1))
        await settled(company, "failed")
        await trio.sleep(LONG_S)
        assert await tasks_of(runtime) == ["a", "held", "failed"]
        await company.ask(Start("held"))
        assert await settled(company, "held") == "completed"
        await trio.sleep(LONG_S)
        assert await tasks_of(runtime) == ["a", "failed"]
        await company.ask(Rerun("failed"))
        assert await settled(company, "failed") == "completed"
        await trio.sleep(LATE_S + 60)
        assert await tasks_of(runtime) == []


@pytest.mark.parametrize("order", [1, -1], ids=["upstreams first", "dependents first"])
async def test_a_chain_goes_from_its_end_in_one_pass(
    db_path: Path, autojump_clock: MockClock, order: int
) -> None:
    """Longer than a unit and than a look, so that it goes on from one to the next."""
    length = 2 * LOOKED_MAX + 50
    chain = [Submit("x", id=f"t{n}", nodes=[], depends_on=[f"t{n - 1}"] if n else []) for n in range(length)]
    async with a_host(db_path, retention=Retention(tasks_s=60)) as runtime:
        company = runtime.company("k")
        await company.ask(SubmitMany(chain[::order]))
        await company.ask(Submit("in the middle", id="m", mode="manual", depends_on=["t100"]))
        await idle(runtime)
        await trio.sleep(60 + LATE_S)
        assert set(await tasks_of(runtime)) == {f"t{n}" for n in range(101)} | {"m"}
        await company.ask(Start("m"))
        await idle(runtime)
        await trio.sleep(60 + LATE_S)
        assert await tasks_of(runtime) == []
    told = of_kind(stored_events(db_path), "tasks.pruned")
    assert sum(event.data["count"] for event in told) == length + 1
    assert all(event.data["count"] <= actors.runtime.pruning.TASKS_MAX for event in told)
    assert len(told) <= 10, "many in one unit"


async def test_many_that_need_the_same_go_and_it_goes_after_the_last(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        hub = [Submit("hub", id="hub", nodes=[])]
        users = [Submit("x", id=f"u{n}", nodes=[], depends_on=["hub"]) for n in range(300)]
        await company.ask(SubmitMany(hub + users))
        await company.ask(a_task("ok", id="held", mode="manual", depends_on=["hub"]))
        await idle(runtime)
        await trio.sleep(1)
        assert (await runtime.prune(Retention(tasks_s=0))).tasks == 300
        assert await tasks_of(runtime) == ["hub", "held"]
        await company.ask(Archive("held"))
        await trio.sleep(1)
        assert (await runtime.prune(Retention(tasks_s=0, archived_s=0))).tasks == 2


# --- turns ------------------------------------------------------------------------------------------------------------


class HeldReading:
    """The database as an actor sees it: the next reading is made, and its answer held back."""

    def __init__(self, runtime: Runtime) -> None:
        self._database = runtime.database
        self.open, self.made = trio.Event(), trio.Event()

    async def read(self, body: Callable[[sqlite3.Connection], T]) -> T:
        found = await self._database.read(body)
        self.made.set()
        await self.open.wait()
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


@pytest.mark.parametrize("message", ["needs it", "does it again"])
async def test_what_a_turn_has_read_does_not_go_before_its_commit(
    db_path: Path, autojump_clock: MockClock, message: str
) -> None:
    async with a_host(db_path, idle_s=3600) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a"))
        await settled(company, "a")
        await trio.sleep(5)
        reading = HeldReading(runtime)
        runtime.surroundings.database = reading  # type: ignore[assignment]
        if message == "needs it":
            await company.tell(a_task("ok", id="b", depends_on=["a"], mode="manual"))
        else:
            await company.tell(Rerun("a"))
        await reading.made.wait()  # and now the turn believes that the task is there
        reports: list[PruneReport] = []

        async def prune() -> None:
            reports.append(await runtime.prune(Retention(tasks_s=0)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(prune)
            await trio.testing.wait_all_tasks_blocked()
            reading.open.set()
        await idle(runtime)
        assert [report.tasks for report in reports] == [0]
        assert "a" in await tasks_of(runtime)
        if message == "needs it":
            await company.ask(Start("b"))
            assert await settled(company, "b") == "completed"
        else:
            assert (await company.status("a")).run == 2
    assert of_kind(stored_events(db_path), "actor.crashed") == []


async def test_what_an_actor_that_just_came_has_read_does_not_go_either(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """Nobody lives when the unit is made; before it is committed somebody comes, reads and decides."""
    async with a_host(db_path, idle_s=1) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a"))
        await settled(company, "a")
        await trio.sleep(60)
        assert runtime.actor("k") is None
        between = runtime.housekeeper.between_turns
        looked, go_on = trio.Event(), trio.Event()

        async def later(*args: Any) -> Any:
            looked.set()
            await go_on.wait()
            return await between(*args)

        setattr(runtime.housekeeper, "between_turns", later)  # noqa: B010 - of one instance
        reports: list[PruneReport] = []

        async def prune() -> None:
            reports.append(await runtime.prune(Retention(tasks_s=0)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(prune)
            await looked.wait()
            await company.ask(a_task("ok", id="b", depends_on=["a"], mode="manual"))
            await trio.sleep(60)  # it has left again: only the epoch tells that it was there
            assert runtime.actor("k") is None
            go_on.set()
        assert [report.tasks for report in reports] == [0]
        assert await tasks_of(runtime) == ["a", "b"]


async def test_a_unit_that_was_made_before_an_actor_came_is_refused_by_its_epoch(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """Another process might run the company by then, and have read what is to go."""
    async with a_host(db_path, idle_s=1) as runtime:
        await runtime.company("k").ask(a_task("ok", id="a"))
        await settled(runtime.company("k"), "a")
        await trio.sleep(60)
        between = runtime.housekeeper.between_turns

        async def after_a_claim(*args: Any) -> Any:
            await runtime.database.writer.commit(lambda conn: claim_company(conn, "k").epoch)
            return await between(*args)

        setattr(runtime.housekeeper, "between_turns", after_a_claim)  # noqa: B010 - of one instance
        assert (await runtime.prune(Retention(tasks_s=0))).tasks == 0
        delattr(runtime.housekeeper, "between_turns")
        assert (await runtime.prune(Retention(tasks_s=0))).tasks == 1


async def test_what_the_actor_holds_in_memory_stays_until_it_has_left(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """Memory keeps a task that was set aside, and what a person then says to it goes by memory."""
    async with a_host(db_path, idle_s=30) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a", mode="manual"))
        await trio.sleep(40)
        assert runtime.actor("k") is None
        sql(db_path, "INSERT INTO quarantine (company_id, seq, at_ms, why) VALUES (1, 1, 0, 'planted')")
        await company.ask(Archive("a"))
        await trio.sleep(1)
        assert (await runtime.prune(Retention(archived_s=0))).tasks == 0
        await company.ask(Unarchive("a"))
        assert (await company.status("a")).state is WorkState.STOPPED
        await company.ask(Archive("a"))
        await trio.sleep(200)
        assert runtime.actor("k") is None
        assert (await runtime.prune(Retention(archived_s=0))).tasks == 1


async def test_a_message_that_comes_after_a_task_went_hears_that_it_is_not_there(
    db_path: Path, autojump_clock: MockClock
) -> None:
    gate = Wrapper(GatedConnection)
    async with a_host(db_path, wrap=gate, idle_s=1) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a"))
        await settled(company, "a")
        await trio.sleep(60)
        gate.made.shut()
        refused: list[str] = []

        async def rerun() -> None:
            try:
                await company.ask(Rerun("a"))
            except TaskUnknown as error:
                refused.append(error.task)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.prune, Retention(tasks_s=0))
            await gate.made.is_asked()
            nursery.start_soon(rerun)
            await trio.testing.wait_all_tasks_blocked()
            gate.made.let_go()
        assert refused == ["a"]
    assert of_kind(stored_events(db_path), "actor.crashed") == []


async def test_a_company_is_pruned_while_it_works(db_path: Path, autojump_clock: MockClock) -> None:
    work = Gated()
    async with a_host(db_path, {"work": work}, retention=Retention(tasks_s=60)) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a"))
        await settled(company, "a")
        await company.ask(a_task("work", id="b"))
        await work.has_started()
        await trio.sleep(60 + LATE_S)
        assert await tasks_of(runtime) == ["b"]
        work.open.set()
        assert await settled(company, "b") == "completed"


async def test_a_parked_company_is_left_alone_until_it_is_back(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a"))
        await settled(company, "a")
        await trio.sleep(5)
        cell = runtime.supervisor.find("k")
        assert cell is not None
        cell.parked = "planted"
        assert await runtime.prune(Retention(tasks_s=0)) == PruneReport(runtime.now_ms())
        cell.parked = None
        assert (await runtime.prune(Retention(tasks_s=0))).tasks == 1


# --- attempts ---------------------------------------------------------------------------------------------------------


async def test_attempts_of_settled_runs_go_and_results_and_numbers_stay(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Scripted([ValueError("no luck"), ValueError("no luck"), "done", ValueError("again")])
    async with a_host(db_path, {"work": work}, retention=Retention(attempts_s=3600)) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await settled(company, "a")
        await company.ask(a_task("work", id="b", tries_max=1))
        assert await settled(company, "b") == "failed"
        assert len(await company.attempts("a")) == 3
        await trio.sleep(3600 + LATE_S)
        assert await company.attempts("a") == ()
        assert await company.attempts("b") == ()
        assert await company.result("a") == {"work": "done"}
        await company.ask(Retry("b"))
        await settled(company, "b")
        (attempt,) = await company.attempts("b")
        assert attempt.number == 2
    told = of_kind(stored_events(db_path), "attempts.pruned")
    assert [event.data for event in told] == [{"count": 4}]


async def test_attempts_of_a_run_that_lives_stay_however_old(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Scripted([ValueError("no luck"), "never"])
    retry = Gated()

    async def then_waits(ctx: Any) -> object:
        return await (work(ctx) if work.calls == 0 else retry(ctx))

    async with a_host(db_path, {"work": then_waits}, retention=Retention(attempts_s=60)) as runtime:
        company = runtime.company("k")
        nodes = [Node("n", "work", stall_s=None)]
        await company.ask(a_task(nodes=nodes, id="a"))
        await retry.has_started()
        await trio.sleep(LONG_S)
        assert [attempt.number for attempt in await company.attempts("a")] == [1, 2]
        retry.open.set()
        await settled(company, "a")
        await trio.sleep(60 + LATE_S)
        assert await company.attempts("a") == ()


async def test_many_attempts_go_in_small_units(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        nodes = [Node(f"n{n}", "ok") for n in range(2 * LOOKED_MAX + 10)]
        await company.ask(a_task(nodes=nodes, id="a"))
        await settled(company, "a")
        await trio.sleep(1)
        assert (await runtime.prune(Retention(attempts_s=0))).attempts == len(nodes)
    told = of_kind(stored_events(db_path), "attempts.pruned")
    assert [event.data["count"] for event in told] == [LOOKED_MAX, LOOKED_MAX, 10]


async def test_what_an_attempt_was_left_behind_of_stays_until_it_has_returned(
    db_path: Path, autojump_clock: MockClock
) -> None:
    deaf = Stubborn()
    retention = Retention(tasks_s=60, attempts_s=60)
    async with a_host(db_path, {"deaf": deaf}, stop_grace_s=1, retention=retention) as runtime:
        company = runtime.company("k")
        nodes = [Node("n", "deaf", timeout_s=5, tries_max=2)]
        await company.ask(a_task(nodes=nodes, id="a"))
        await deaf.has_started(2)
        await settled(company, "a")
        sql(db_path, "UPDATE nodes SET status = 'succeeded', result = '1'")  # as if a third had come through
        sql(db_path, "UPDATE runs SET status = 'completed'")
        await trio.sleep(LONG_S)
        assert len(runtime.registry.abandoned) == 2
        assert counts(db_path)["attempts"] == 2
        assert await tasks_of(runtime) == ["a"]
        sql(db_path, "UPDATE nodes SET status = 'failed', result = NULL")
        sql(db_path, "UPDATE runs SET status = 'failed'")
        deaf.open.set()
        await idle(runtime)
        await trio.sleep(LATE_S)
        assert counts(db_path)["attempts"] == 0
    assert len(of_kind(stored_events(db_path), "attempt.late")) == 2


# --- small, and among others ------------------------------------------------------------------------------------------


async def test_a_pass_goes_in_units_between_which_others_get_their_turn(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(SubmitMany([Submit("x", nodes=[]) for _ in range(1000)]))
        await idle(runtime)
        await trio.sleep(1)
        lines = len(stored_events(db_path))
        asked: list[int] = []

        async def others() -> None:
            while True:
                began = runtime.database.writer.statistics.batches
                await runtime.company("other").ask(a_task("ok", mode="manual"))
                asked.append(runtime.database.writer.statistics.batches - began)
                await trio.sleep(0.001)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            report = await runtime.prune(Retention(events_s=0, tasks_s=0))
            nursery.cancel_scope.cancel()
        assert report.tasks == 1000
        assert report.events >= lines
        assert len(asked) > 20
        assert max(asked) <= 3, "nobody waits for more than the unit under way"
    told = of_kind(stored_events(db_path), "log.pruned")
    assert all(event.data["count"] <= ROWS_MAX for event in told)


async def test_one_company_s_trouble_does_not_keep_the_others_from_being_pruned(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        for name in ("j", "k", "l"):
            await runtime.company(name).ask(a_task("ok", id="a"))
            await settled(runtime.company(name), "a")
        sql(
            db_path,
            "CREATE TRIGGER stays BEFORE DELETE ON tasks WHEN OLD.company_id = 2"
            " BEGIN SELECT RAISE(ABORT, 'planted'); END",
        )
        await trio.sleep(60)
        report = await runtime.prune(Retention(tasks_s=0))
        assert (report.tasks, report.errors) == (2, 1)
        assert [await tasks_of(runtime, name) for name in ("j", "k", "l")] == [[], ["a"], []]
        sql(db_path, "DROP TRIGGER stays")
        assert (await runtime.prune(Retention(tasks_s=0))).tasks == 1


async def test_a_store_that_is_away_only_delays_it(
    db_path: Path, autojump_clock: MockClock, logs: list[Any]
) -> None:
    from tests.storage.connections import Flaky, sqlite_error

    wrapper = Wrapper(Flaky)
    async with a_host(db_path, wrap=wrapper, retention=Retention(tasks_s=60)) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a"))
        await settled(company, "a")
        wrapper.made.down = sqlite_error(sqlite3.SQLITE_FULL)

        async def run(_work: object) -> Any:
            await trio.lowlevel.checkpoint()
            raise wrapper.made.down

        setattr(runtime.database.reader, "run", run)  # noqa: B010 - of one instance
        with pytest.raises(StoreUnavailable):
            await runtime.prune(Retention(tasks_s=0))
        await trio.sleep(600)
        assert [entry["event"] for entry in logs].count("housekeeping.failed") in (9, 10)
        wrapper.made.down = None
        vars(runtime.database.reader).pop("run")
        await trio.sleep(LATE_S)
        assert await tasks_of(runtime) == []


async def test_a_pass_and_the_walks_of_the_sweep_never_run_at_the_same_time(
    db_path: Path, autojump_clock: MockClock
) -> None:
    gate = Wrapper(GatedConnection)
    async with a_host(db_path, wrap=gate, retention=Retention(tasks_s=60)) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a"))
        await settled(company, "a")
        await trio.sleep(100)
        gate.made.shut()
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(runtime.prune)
            await trio.sleep(10)
            asked = gate.made.asked - gate.made.done
            gate.made.let_go()
        assert asked <= 1
        assert await tasks_of(runtime) == []
    assert len(of_kind(stored_events(db_path), "tasks.pruned")) == 1


# --- the log ----------------------------------------------------------------------------------------------------------


async def test_the_log_goes_from_its_beginning_and_numbers_go_on(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path, retention=Retention(events_s=3600)) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a", mode="manual"))
        last = stored_events(db_path)[-1]
        await trio.sleep(3000)
        await company.ask(Start("a"))
        await settled(company, "a")
        await trio.sleep(600 + LATE_S)
        left = stored_events(db_path)
        assert left[0].kind == "task.started"
        assert left[0].position == last.position + 1
        assert [event.seq for event in left if event.company == "k"] == [2, 3, 4, 5, 6]
        (told,) = of_kind(left, "log.pruned")
        assert told == Event(
            told.position,
            None,
            None,
            told.at_ms,
            "log.pruned",
            data={"floor": last.position, "count": 2, "hosts": 0},
        )
        assert (await company.status("a")).state is WorkState.COMPLETED
        assert kinds(await company.timeline("a"))[0] == "task.started"


async def test_a_log_of_nothing_but_prunings_is_left_alone(db_path: Path, autojump_clock: MockClock) -> None:
    """Or each pass would have something to tell to the next, for ever."""
    async with a_host(db_path, retention=Retention(events_s=600)) as runtime:
        await runtime.company("k").ask(a_task("ok", id="a", mode="manual"))
        await trio.sleep(LONG_S)
        (left,) = stored_events(db_path)
        assert left.kind == "log.pruned"
        await trio.sleep(LONG_S)
        assert stored_events(db_path) == [left]
        await runtime.company("k").ask(a_task("ok", id="b", mode="manual"))
        await trio.sleep(LONG_S)
        (left,) = stored_events(db_path)
        assert left.data["count"] == 2, "it went with the next that was worth it"


async def test_positions_and_numbers_are_not_given_again_when_everything_is_gone(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        await runtime.company("k").ask(a_task("ok", id="a", mode="manual"))
        await trio.sleep(1)
        await runtime.prune(Retention(events_s=0))
        (told,) = stored_events(db_path)
        sql(db_path, "DELETE FROM events")
        sql(db_path, "UPDATE floors SET position = ? WHERE company_id = 0", told.position)
        await runtime.company("k").ask(Start("a"))
        await idle(runtime)
        first = stored_events(db_path)[0]
        assert first.position == told.position + 1
        assert first.seq == 2


@pytest.mark.parametrize("lines", [3, ROWS_MAX + 20])
async def test_lines_of_a_clock_that_was_ahead_go_with_the_next_that_are_old(
    db_path: Path, autojump_clock: MockClock, lines: int
) -> None:
    clock = VirtualClock()
    async with a_host(db_path, clock=clock) as runtime:
        company = runtime.company("k")
        clock.jump(100 * 365 * DAY_S)
        await company.ask(SubmitMany([Submit("x", mode="manual") for _ in range(lines)]))
        clock.jump(-100 * 365 * DAY_S)
        await trio.sleep(1)
        assert (await runtime.prune(Retention(events_s=0))).events == 1, "nothing says yet how old they are"
        await company.ask(Submit("x", mode="manual"))
        await trio.sleep(1)
        assert (await runtime.prune(Retention(events_s=0))).events == lines + 2
        assert kinds(stored_events(db_path))[0] == "log.pruned"


async def test_a_line_that_is_young_keeps_what_stands_behind_it(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """The clock was set back: what came later has an older time. The log goes from its beginning or not at all."""
    clock = VirtualClock()
    async with a_host(db_path, clock=clock) as runtime:
        await trio.sleep(1000)
        await runtime.company("k").ask(a_task("ok", id="a", mode="manual"))
        clock.jump(-900)
        await runtime.company("k").ask(a_task("ok", id="b", mode="manual"))
        clock.jump(1000)
        report = await runtime.prune(Retention(events_s=500))
        assert report.events == 1
        assert [event.task for event in stored_events(db_path, "k")] == ["a", "b"]


async def test_rows_of_past_processes_go_with_the_log_but_the_newest(
    db_path: Path, autojump_clock: MockClock
) -> None:
    clock = VirtualClock()
    for _ in range(3):
        async with a_host(db_path, clock=clock):
            await trio.sleep(100)
    async with a_host(db_path, clock=clock) as runtime:
        await trio.sleep(100)
        await runtime.prune(Retention(events_s=50))
        assert sql(db_path, "SELECT host_id FROM hosts") == [(4,)]
    (told,) = of_kind(stored_events(db_path), "log.pruned")
    assert told.data["hosts"] == 3


async def test_every_table_has_what_it_had_after_a_pass_in_which_nothing_is_old(
    db_path: Path, autojump_clock: MockClock
) -> None:
    hour = Retention(events_s=3600, attempts_s=3600, tasks_s=3600, archived_s=3600, keys_s=3600)
    async with a_host(db_path, retention=hour) as runtime:
        company = runtime.company("k")
        for task in ("a", "b"):
            await company.ask(a_task("ok", id=task))
            await settled(company, task)
        await company.ask(Archive("b"))
        before = counts(db_path)
        await trio.sleep(3590)
        assert counts(db_path) == before
        await trio.sleep(LATE_S)
        with closing(sqlite3.connect(db_path)) as raw:
            assert raw.execute("SELECT count(*) FROM tasks").fetchone() == (0,)
            assert raw.execute("SELECT count(*) FROM attempts").fetchone() == (0,)
