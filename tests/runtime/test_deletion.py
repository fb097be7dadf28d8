"""A company is deleted with all that it has, nobody else notices, and its name begins anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from actors import (
    CompanyActive,
    CompanyDeleted,
    CompanyParked,
    CompanyUnknown,
    CursorTooOld,
    DefineGraph,
    DeletedCompany,
    Event,
    InvalidName,
    Node,
    Retention,
    Runtime,
    RuntimeClosed,
    SetSchedule,
    Stop,
    Submit,
    SubmitMany,
    TaskUnknown,
)
from actors.runtime.deletion import DeleteSome, NotMarked, finish_deletion
from storage.errors import UnitRefused
from storage.retention import ROWS_MAX, TABLES, remove_some
from tests.runtime.support import (
    Gated,
    GatedConnection,
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


async def something_of_everything(runtime: Runtime, name: str) -> None:
    """Rows in every table that a company can have rows in."""
    company = runtime.company(name)
    await company.ask(DefineGraph("g", [Node("n", "ok")]))
    await company.ask(a_task(graph="g", id="a"))
    await company.ask(a_task("ok", id="b", depends_on=["a"]))
    await company.ask(a_task("fails", id="c", tries_max=1))
    await idle(runtime)
    await company.ask(a_task("ok", id="held", mode="manual", key="a key"))
    await company.ask(SetSchedule("s", every=3_600, task=Submit("x", handler="ok")))


def rows_of(path: Path, company_id: int) -> dict[str, list[Any]]:
    """Every row of the company, by table."""
    tables = [row[0] for row in sql(path, "SELECT name FROM sqlite_schema WHERE type = 'table'")]
    found = {}
    for table in tables:
        columns = {row[1] for row in sql(path, f"PRAGMA table_info({table})")}
        if "company_id" in columns:
            found[table] = sql(path, f"SELECT * FROM {table} WHERE company_id = ?", company_id)
    return {table: rows for table, rows in found.items() if rows}


async def test_all_rows_go_and_one_line_of_the_runtime_says_what_they_were(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        await runtime.company("other").ask(a_task("ok", id="a"))
        await something_of_everything(runtime, "k")
        await trio.sleep(1)
        await runtime.prune(Retention(events_s=0))
        await runtime.company("k").ask(a_task("ok", id="more", mode="manual"))
        sql(db_path, "INSERT INTO quarantine (company_id, seq, at_ms, why) VALUES (2, 3, 0, 'planted')")
        before = rows_of(db_path, 2)
        assert before.keys() | {"deletions"} == {
            name for name, table in TABLES.items() if table.of_company is not None
        }
        others = rows_of(db_path, 1)
        deleted = await runtime.delete_company("k")
        assert rows_of(db_path, 2) == {}
        assert rows_of(db_path, 1) == others
        assert deleted == DeletedCompany("k", tasks=5, attempts=3, events=2)
        told = stored_events(db_path)[-1]
        assert told == Event(
            told.position,
            None,
            None,
            told.at_ms,
            "company.deleted",
            data={"name": "k", "tasks": 5, "attempts": 3, "events": 2},
        )
        assert await runtime.companies() == ("other",)
        with pytest.raises(TaskUnknown):
            await runtime.company("k").status("a")


@pytest.mark.parametrize("resident", [True, False])
async def test_the_name_begins_anew_with_an_id_and_numbers_of_its_own(
    db_path: Path, autojump_clock: MockClock, resident: bool
) -> None:
    async with a_host(db_path, idle_s=5) as runtime:
        company = runtime.company("k")
        await something_of_everything(runtime, "k")
        await trio.sleep(0 if resident else 30)
        assert (runtime.actor("k") is not None) is resident
        last = stored_events(db_path)[-1].position
        await runtime.delete_company("k")
        again = await company.ask(a_task("ok", id="a", key="a key"))
        assert (again.seq, again.existing) == (1, False)
        assert await settled(company, "a") == "completed"
        assert sql(db_path, "SELECT company_id, name, epoch FROM companies") == [(2, "k", 1)]
        mine = stored_events(db_path, "k")
        assert [event.seq for event in mine] == [1, 2, 3, 4, 5]
        assert mine[0].position > last


async def test_a_company_in_which_something_runs_is_not_deleted(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work, deaf = Gated(), Stubborn()
    async with a_host(db_path, {"work": work, "deaf": deaf}, stop_grace_s=1) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await work.has_started()
        with pytest.raises(CompanyActive, match="wait until it has ended") as caught:
            await runtime.delete_company("k")
        assert (caught.value.tasks, caught.value.attempts) == (("a",), ("k/a/1/work/1",))
        assert (await company.status("a")).run_status == "running"
        work.open.set()
        await settled(company, "a")
        await company.ask(a_task("deaf", id="b"))
        await deaf.has_started()
        await company.ask(Stop("b"))
        await settled(company, "b")
        with pytest.raises(CompanyActive) as caught:
            await runtime.delete_company("k")
        assert (caught.value.tasks, caught.value.attempts) == ((), ("k/b/1/deaf/1",))
        await trio.sleep(60)  # nobody lives there but the attempt that was left behind
        with pytest.raises(CompanyActive):
            await runtime.delete_company("k")
        assert "company.deleting" not in kinds(stored_events(db_path))
        deaf.open.set()
        await idle(runtime)
        assert (await runtime.delete_company("k")).tasks == 2


async def test_what_does_not_exist_or_is_no_name_is_refused(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_host(db_path) as runtime:
        with pytest.raises(CompanyUnknown) as caught:
            await runtime.delete_company("nobody")
        assert caught.value.company == "nobody"
        with pytest.raises(InvalidName):
            await runtime.delete_company("a/b")
        assert sql(db_path, "SELECT * FROM companies") == []


async def test_messages_that_were_not_taken_hear_of_it_and_later_ones_make_a_new_company(
    db_path: Path, autojump_clock: MockClock
) -> None:
    gate = Wrapper(GatedConnection)
    async with a_host(db_path, wrap=gate) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a", mode="manual"))
        answers: list[object] = []

        async def ask(message: Submit) -> None:
            try:
                answers.append(await company.ask(message))
            except CompanyDeleted as error:
                answers.append(error.company)

        async with trio.open_nursery() as nursery:
            gate.made.shut()
            nursery.start_soon(runtime.delete_company, "k")
            await gate.made.is_asked()
            nursery.start_soon(ask, a_task("ok", id="b"))
            await trio.testing.wait_all_tasks_blocked()
            gate.made.let_go()
        assert answers == ["k"]
        assert await runtime.companies() == ()
        assert (await company.ask(a_task("ok", id="c"))).seq == 1
        assert [status.id for status in await company.tasks()] == ["c"]


async def test_whoever_waits_for_a_task_of_it_hears_that_it_is_not_there(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a", mode="manual"))
        heard: list[str] = []

        async def wait() -> None:
            try:
                await company.when_settled("a")
            except TaskUnknown as error:
                heard.append(error.task)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            await runtime.delete_company("k")
        assert heard == ["a"]


async def test_a_reader_of_its_log_hears_of_it_and_can_read_on_with_the_next_of_that_name(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(SubmitMany([Submit("x", mode="manual") for _ in range(5)]))
        events = runtime.events(company="k")
        for _ in range(5):
            await anext(events)
        await runtime.delete_company("k")
        await company.ask(a_task("ok", id="new", mode="manual"))
        with pytest.raises(CursorTooOld) as caught:
            await anext(events)
        assert caught.value.company == "k"
        first = await anext(runtime.events(company="k", after=stored_events(db_path)[0].position))
        assert (first.task, first.seq) == ("new", 1)


async def test_the_whole_log_goes_on_over_a_deletion_and_names_the_company_until_it_is_gone(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Event] = []

    async def when_all_have_read(*args: Any) -> Any:
        await trio.testing.wait_all_tasks_blocked()
        return await finish_deletion(*args)

    monkeypatch.setattr("actors.runtime.housekeeping.finish_deletion", when_all_have_read)

    async def follow(runtime: Runtime) -> None:
        async for event in runtime.events():
            seen.append(event)

    async with trio.open_nursery() as nursery, a_host(db_path) as runtime:
        nursery.start_soon(follow, runtime)
        await runtime.company("k").ask(a_task("ok", id="a", mode="manual"))
        await trio.testing.wait_all_tasks_blocked()
        await runtime.delete_company("k")
        await runtime.company("k").ask(a_task("ok", id="b", mode="manual"))
    told = [(event.kind, event.company) for event in seen]
    assert ("company.deleting", "k") in told
    assert told.index(("company.deleting", "k")) < told.index(("company.deleted", None))
    assert [event.task for event in of_kind(seen, "task.submitted")] == ["a", "b"]


async def test_it_goes_in_small_units_between_which_others_get_their_turn(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[int] = []

    def watched(conn: Any, company_id: int) -> dict[str, int]:
        counts = remove_some(conn, company_id)
        removed.append(sum(counts.values()))
        return counts

    monkeypatch.setattr("actors.runtime.deletion.remove_some", watched)
    async with a_host(db_path) as runtime:
        await runtime.company("k").ask(SubmitMany([Submit("x", nodes=[]) for _ in range(1000)]))
        await idle(runtime)
        answered: list[int] = []

        async def others() -> None:
            while True:
                await runtime.company("other").ask(a_task("ok", mode="manual"))
                answered.append(len(removed))
                await trio.sleep(0.01)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            deleted = await runtime.delete_company("k")
            nursery.cancel_scope.cancel()
    assert (deleted.tasks, deleted.events) == (1000, 3001)
    assert max(removed) == ROWS_MAX
    assert len(removed) == 12
    assert len(set(answered)) > 6, "others came in between"


async def test_who_stops_waiting_does_not_stop_it(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_host(db_path) as runtime:
        await runtime.company("k").ask(SubmitMany([Submit("x", mode="manual") for _ in range(2000)]))
        with trio.move_on_after(0.015) as scope:
            await runtime.delete_company("k")
        assert scope.cancelled_caught
        assert sql(db_path, "SELECT name FROM companies") == [(None,)]
        await trio.sleep(1)
        assert sql(db_path, "SELECT name FROM companies") == []
    (told,) = of_kind(stored_events(db_path), "company.deleted")
    assert told.data["tasks"] == 2000


@pytest.mark.parametrize("when", ["before", "while it is committed"])
async def test_who_stops_waiting_for_the_mark_leaves_it_made_and_finished_or_not_made(
    db_path: Path, autojump_clock: MockClock, when: str
) -> None:
    gate = Wrapper(GatedConnection)
    async with a_host(db_path, wrap=gate, idle_s=3600) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a", mode="manual"))
        gate.made.shut()
        if when == "before":
            await company.tell(a_task("ok", id="b", mode="manual"))  # the actor is busy with this
            await gate.made.is_asked()
        with trio.move_on_after(1):
            await runtime.delete_company("k")
        gate.made.let_go()
        await trio.sleep(100)
        left = ("k",) if when == "before" else ()
        assert await runtime.companies() == left
        assert sql(db_path, "SELECT * FROM deletions") == []


async def test_of_two_that_delete_it_one_does_and_one_hears_that_it_is_not_there(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        await runtime.company("k").ask(SubmitMany([Submit("x", mode="manual") for _ in range(1500)]))
        outcomes: list[object] = []

        async def delete() -> None:
            try:
                outcomes.append((await runtime.delete_company("k")).tasks)
            except CompanyUnknown:
                outcomes.append("unknown")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(delete)
            nursery.start_soon(delete)
        assert sorted(outcomes, key=str) == [1500, "unknown"]
    assert len(of_kind(stored_events(db_path), "company.deleted")) == 1


async def test_it_does_not_come_back_by_being_looked_at(db_path: Path, autojump_clock: MockClock) -> None:
    """A sweep or a wake that still had its name finds nobody, and makes nobody."""
    async with a_host(db_path) as runtime:
        await something_of_everything(runtime, "k")
        await runtime.delete_company("k")
        assert await runtime.sweeper._ask(["k"]) == (0, 0)
        runtime.supervisor.wake("k")
        await trio.testing.wait_all_tasks_blocked()
        assert runtime.supervisor.find("k") is None
        assert await runtime.companies() == ()
        assert sql(db_path, "SELECT * FROM companies") == []


async def test_a_message_that_comes_while_nobody_is_found_makes_the_company(
    db_path: Path, autojump_clock: MockClock
) -> None:
    gate = Wrapper(GatedConnection)
    async with a_host(db_path, wrap=gate) as runtime:
        gate.made.shut()
        runtime.supervisor.wake("k")
        await gate.made.is_asked()
        await runtime.company("k").tell(a_task("ok", id="a", mode="manual"))
        gate.made.let_go()
        await idle(runtime)
        assert [status.id for status in await runtime.company("k").tasks()] == ["a"]


async def test_one_that_is_parked_has_to_be_unparked_first(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_host(db_path) as runtime:
        await runtime.company("k").ask(a_task("ok", id="a", mode="manual"))
        cell = runtime.supervisor.find("k")
        assert cell is not None
        cell.parked = "planted"
        with pytest.raises(CompanyParked):
            await runtime.delete_company("k")
        cell.parked = None
        assert (await runtime.delete_company("k")).tasks == 1


async def test_an_actor_of_it_that_was_overlooked_can_write_nothing_any_more(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a", mode="manual"))
        assert runtime.actor("k") is not None
        monkeypatch.setattr("actors.runtime.housekeeping.finish_deletion", AsyncMock(return_value="later"))
        setattr(runtime.supervisor, "find", lambda _name: None)  # noqa: B010 - of one instance
        await runtime.delete_company("k")
        delattr(runtime.supervisor, "find")
        assert sql(db_path, "SELECT name FROM companies") == [(None,)]
        with pytest.raises(RuntimeClosed, match="epoch"):
            await company.ask(a_task("ok", id="b"))
        assert (await company.ask(a_task("ok", id="b"))).seq == 1


async def test_nothing_of_a_company_that_nobody_deleted_goes(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        await something_of_everything(runtime, "k")
        before = rows_of(db_path, 1)
        with pytest.raises(NotMarked):
            await runtime.database.writer.commit(DeleteSome(1, 0))
        assert rows_of(db_path, 1) == before


async def test_it_can_be_done_by_a_handler_of_another_company_and_not_by_its_own(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async def delete(ctx: Any) -> object:
        return (await runtime.delete_company(ctx.payload)).tasks

    async with a_host(db_path, {"delete": delete}) as runtime:
        await runtime.company("k").ask(a_task("ok", id="a", mode="manual"))
        boss = runtime.company("boss")
        await boss.ask(a_task("delete", id="other", payload="k"))
        outcome = await boss.when_settled("other")
        assert outcome.result == {"delete": 1}
        await boss.ask(a_task("delete", id="own", payload="boss", tries_max=1))
        failed = await boss.when_settled("own")
        assert failed.reason is not None
        assert failed.reason.startswith(
            "CompanyActive: company 'boss' cannot be deleted while work of it is under way"
        )


async def test_a_runtime_that_closes_deletes_nothing_more(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_host(db_path) as runtime:
        await runtime.company("k").ask(a_task("ok", id="a", mode="manual"))
    with pytest.raises(RuntimeClosed):
        await runtime.delete_company("k")
    assert sql(db_path, "SELECT name FROM companies") == [("k",)]


async def test_a_unit_for_the_company_that_had_the_name_before_is_not_for_the_one_that_has_it_now(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """Pruning found something in a company that was deleted before it could act; the next one must not suffer."""
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a"))
        await settled(company, "a")
        await trio.sleep(1)
        between = runtime.housekeeper.between_turns

        async def late(*args: Any) -> Any:
            await runtime.delete_company("k")
            await company.ask(a_task("ok", id="a"))
            await settled(company, "a")
            return await between(*args)

        setattr(runtime.housekeeper, "between_turns", late)  # noqa: B010 - of one instance
        report = await runtime.prune(Retention(tasks_s=0))
        assert (report.tasks, report.errors) == (0, 0)
        assert (await company.ask(a_task("ok", id="b", mode="manual"))).seq == 2


async def test_one_deletion_that_cannot_go_on_keeps_nothing_else_from_being_tidied(
    db_path: Path, autojump_clock: MockClock, logs: list[Any]
) -> None:
    async with a_host(db_path, retention=Retention(tasks_s=60)) as runtime:
        await runtime.company("k").ask(a_task("ok", id="a", mode="manual"))
        await runtime.company("other").ask(a_task("ok", id="a"))
        await settled(runtime.company("other"), "a")
        stays = "CREATE TRIGGER stays BEFORE DELETE ON tasks WHEN OLD.company_id = 1"
        sql(db_path, f"{stays} BEGIN SELECT RAISE(ABORT, 'planted'); END")
        with pytest.raises(UnitRefused):
            await runtime.delete_company("k")
        await trio.sleep(300)
        assert await runtime.company("other").tasks() == ()
        assert "deletion.failed" in {entry["event"] for entry in logs}
        sql(db_path, "DROP TRIGGER stays")
        await trio.sleep(100)
        assert sql(db_path, "SELECT name FROM companies") == [("other",)]
