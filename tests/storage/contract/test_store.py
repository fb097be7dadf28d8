"""What every store promises of its operations and queries, whichever they are."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from storage.contract.companies import ClaimCompany, FindCompany, ListCompanies
from storage.contract.events import LogPlace, ReadLog, RecordCompanyEvents, RecordEvents
from storage.contract.inbox import ListAddressed, PutMessage
from storage.contract.store import Pending
from storage.contract.turns import CommitTurn
from storage.errors import OutcomeUnknown, QueryRefused, StoreClosed, UnitRefused
from storage.records import CompanyRecord, EventRecord, RunRecord, RunStatus, TaskRecord
from storage.writes import TaskTexts

from .engines import ENGINES, Engine, Opened, opened

pytestmark = [pytest.mark.parametrize("engine", ENGINES), pytest.mark.planted]


def event(number: int) -> EventRecord:
    return EventRecord("wal.grown", number)


def refused_turn(company: CompanyRecord) -> CommitTurn:
    """A turn that writes a task and a run, and then pins an upstream that is not completed."""
    return CommitTurn(
        company.claim,
        new_tasks=[(TaskRecord(7, "t7", 2, 1), TaskTexts("x"))],
        new_runs=[RunRecord(7, 1, RunStatus.QUEUED, 1)],
        edges=[(7, ("nobody",))],
        pins=[7],
        events=[EventRecord("task.submitted", 1, "t7", 7)],
    )


async def outcome_of(pending: Pending[Any]) -> object:
    try:
        return await pending.wait()
    except Exception as error:
        return error


def is_down(here: Opened) -> bool:
    return here.store.cause is not None


async def times(here: Opened) -> list[int]:
    """When the events of the log happened, in its order."""
    return [line.at_ms for line in (await here.store.fetch(ReadLog(None, LogPlace(), 10_000))).lines]


# --- order and durability -----------------------------------------------------------------------------------


async def test_operations_take_effect_in_the_order_in_which_they_were_submitted(
    tmp_path: Path, engine: Engine
) -> None:
    async with opened(engine, tmp_path / "x.db") as here:
        pending = [here.store.submit(RecordEvents([event(number)])) for number in range(600)]
        positions = [await each.wait() for each in reversed(pending)]
        assert positions == list(range(600, 0, -1))
        assert await times(here) == list(range(600))


async def test_what_is_answered_is_in_the_file_and_the_next_query_sees_it(
    tmp_path: Path, engine: Engine
) -> None:
    async with opened(engine, tmp_path / "x.db") as here:
        for name in "abc":
            company = await here.company(name)
            assert f"'{name}'" in here.contents()
            assert await here.store.fetch(FindCompany(name)) == company
        assert await here.store.fetch(ListCompanies()) == ("a", "b", "c")


# --- all or nothing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [0, 1, 2, "alone"])
async def test_an_operation_that_raises_has_changed_nothing_and_its_neighbours_do_not_notice(
    tmp_path: Path, engine: Engine, position: int | str
) -> None:
    async with opened(engine, tmp_path / "x.db") as here:
        company = await here.company()
        asked: list[Any] = [] if position == "alone" else [RecordEvents([event(1)]), RecordEvents([event(2)])]
        bad = refused_turn(company)
        asked.insert(position if isinstance(position, int) else 0, bad)
        pending = [here.store.submit(each) for each in asked]
        for each, one in zip(asked, pending, strict=True):
            assert isinstance(await outcome_of(one), UnitRefused) == (each is bad)
        assert await times(here) == ([] if position == "alone" else [1, 2])
        assert "t7" not in here.contents()
        assert (await here.store.commit(RecordCompanyEvents(company.claim, [event(3)]))).first_seq == 1


async def test_an_outage_is_waited_out_and_each_operation_happens_once(
    tmp_path: Path, engine: Engine, autojump_clock: MockClock
) -> None:
    async with opened(engine, tmp_path / "x.db", fails=3) as here:
        first, second = (
            here.store.submit(RecordEvents([event(1)])),
            here.store.submit(RecordEvents([event(2)])),
        )
        while not is_down(here):
            await trio.sleep(0.01)
        later = here.store.submit(RecordEvents([event(3)]))
        assert [await each.wait() for each in (first, second, later)] == [1, 2, 3]
        assert not is_down(here)
        assert await times(here) == [1, 2, 3]


# --- queries ------------------------------------------------------------------------------------------------


async def test_a_query_sees_one_moment(tmp_path: Path, engine: Engine) -> None:
    async with opened(engine, tmp_path / "x.db") as here, trio.open_nursery() as nursery:

        async def write() -> None:
            for number in range(100):
                await here.store.commit(RecordEvents([event(number), event(number)]))
            nursery.cancel_scope.cancel()

        nursery.start_soon(write)
        seen = 0
        while seen < 200:
            lines = await times(here)
            assert len(lines) % 2 == 0
            assert len(lines) >= seen
            seen = len(lines)


async def test_what_is_built_of_an_answer_is_built_where_it_was_read(tmp_path: Path, engine: Engine) -> None:
    async with opened(engine, tmp_path / "x.db") as here:
        await here.company()

        def build(names: tuple[str, ...]) -> tuple[tuple[str, ...], bool]:
            return names, threading.current_thread() is threading.main_thread()

        assert await here.store.fetch_with(ListCompanies(), build) == (("acme",), engine == "inline")

        def broken(_names: tuple[str, ...]) -> None:
            raise LookupError("the builder's own")

        with pytest.raises(LookupError, match="the builder's own"):
            await here.store.fetch_with(ListCompanies(), broken)
        assert await here.store.fetch(ListCompanies()) == ("acme",)


async def test_what_the_database_cannot_do_is_told_by_type_and_stops_nothing_else(
    tmp_path: Path, engine: Engine
) -> None:
    async with opened(engine, tmp_path / "x.db") as here:
        here.damage()
        with pytest.raises(QueryRefused, match="could not answer"):
            await here.store.fetch(ListAddressed())
        with pytest.raises(UnitRefused, match="changed nothing"):
            await here.store.commit(PutMessage("acme", "m", "{}", 1))
        assert here.store.cause is None
        await here.company()
        assert await here.store.fetch(ListCompanies()) == ("acme",)


# --- cancellation and closing -------------------------------------------------------------------------------


async def test_who_is_cancelled_stops_waiting_and_the_operation_stands(
    tmp_path: Path, engine: Engine
) -> None:
    async with opened(engine, tmp_path / "x.db") as here:
        with trio.CancelScope() as scope:
            scope.cancel()
            await here.store.commit(RecordEvents([event(1)]))
        assert scope.cancelled_caught
        with trio.CancelScope() as scope:
            scope.cancel()
            await here.store.fetch(ListCompanies())
        assert scope.cancelled_caught
        await here.store.commit(RecordEvents([event(2)]))
        assert await times(here) == [1, 2]


async def test_closing_commits_what_was_handed_in_and_refuses_what_comes_later(
    tmp_path: Path, engine: Engine
) -> None:
    async with opened(engine, tmp_path / "x.db") as here:
        pending = [here.store.submit(RecordEvents([event(number)])) for number in range(300)]
    assert [await each.wait() for each in pending] == list(range(1, 301))
    with pytest.raises(StoreClosed):
        here.store.submit(RecordEvents([event(301)]))
    with pytest.raises(StoreClosed):
        await here.store.commit(ClaimCompany("acme", create=True))
    with pytest.raises(StoreClosed):
        await here.store.fetch(ListCompanies())
    async with opened(engine, tmp_path / "x.db") as again:
        assert await times(again) == list(range(300))


async def test_closing_in_an_outage_waits_a_while_and_then_says_that_it_does_not_know(
    tmp_path: Path, engine: Engine, autojump_clock: MockClock
) -> None:
    async with opened(engine, tmp_path / "x.db", fails=1_000) as here:
        pending = here.store.submit(RecordEvents([event(1)]))
        began_s = trio.current_time()
    assert 1 < trio.current_time() - began_s < 10
    assert isinstance(await outcome_of(pending), OutcomeUnknown)
    async with opened(engine, tmp_path / "x.db") as again:
        assert await times(again) == []
