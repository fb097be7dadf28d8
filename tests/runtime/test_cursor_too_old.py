"""A reader of the log is told when lines that it has not seen are gone: there is never a silent gap."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import actors.runtime.log
from actors import CursorTooOld, Event, Retention, Runtime, Start, Submit, SubmitMany, open_reader
from tests.runtime.support import a_host, a_task, idle, of_kind, settled, sql, stored_events

ALL = Retention(events_s=0)
"""Everything that is older than this moment."""


async def read(runtime: Runtime, count: int, **where: Any) -> list[Event]:
    """The first lines that a reader is given."""
    seen: list[Event] = []
    async for event in runtime.events(**where):
        seen.append(event)
        if len(seen) == count:
            break
    return seen


async def refused(runtime: Runtime, **where: Any) -> CursorTooOld:
    with pytest.raises(CursorTooOld) as caught:
        await read(runtime, 1, **where)
    return caught.value


@asynccontextmanager
async def a_cut_log(path: Path) -> AsyncIterator[Runtime]:
    """Companies j and k have said something that is gone; then k goes on. Position 7 is the last that went."""
    async with a_host(path) as runtime:
        await runtime.company("j").ask(a_task("ok", id="a", mode="manual"))
        await runtime.company("k").ask(a_task("ok", id="a"))
        await settled(runtime.company("k"), "a")
        await trio.sleep(1)
        assert (await runtime.prune(ALL)).events == 7
        await runtime.company("k").ask(a_task("ok", id="b", mode="manual"))
        yield runtime


async def test_a_cursor_below_the_floor_is_refused_and_told_where_the_floor_is(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_cut_log(db_path) as runtime:
        for after in (0, 1, 6):
            error = await refused(runtime, after=after)
            assert (error.after, error.floor, error.company) == (after, 7, None)
            assert "continue with after=7" in str(error)
            assert "Retention(events_s=…)" in str(error)
        first, second = await read(runtime, 2, after=7)
        assert [first.kind, second.kind] == ["log.pruned", "task.submitted"]
        assert first.data["floor"] == 7


async def test_without_a_cursor_a_reader_begins_with_the_oldest_line_that_is_there(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_cut_log(db_path) as runtime:
        assert await read(runtime, 2) == stored_events(db_path)
        assert [event.task for event in await read(runtime, 1, company="k")] == ["b"]


async def test_a_company_s_own_floor_counts_for_its_readers(db_path: Path, autojump_clock: MockClock) -> None:
    """Whoever has seen the last line of a quiet company misses nothing, however much of the others is gone."""
    async with a_cut_log(db_path) as runtime:
        await runtime.company("j").ask(Start("a"))
        await idle(runtime)
        error = await refused(runtime, company="j", after=1)
        assert (error.after, error.floor, error.company) == (1, 2, "j")
        (started, *_) = await read(runtime, 1, company="j", after=2)
        assert (started.kind, started.seq) == ("task.started", 2)
        assert (await refused(runtime, company="k", after=2)).floor == 7
        (submitted,) = await read(runtime, 1, company="k", after=7)
        assert (submitted.task, submitted.seq) == ("b", 6)


async def test_a_cursor_between_two_lines_of_a_company_finds_the_next_above_its_floor(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_cut_log(db_path) as runtime:
        for number in range(20):
            await runtime.company("jk"[number % 2]).ask(Submit("x", id=f"t{number}", mode="manual"))
        everything = stored_events(db_path)
        for after in range(7, everything[-1].position):
            mine = [event for event in everything if event.company == "k" and event.position > after]
            assert await read(runtime, len(mine), company="k", after=after) == mine


@pytest.mark.parametrize("company", [None, "k"])
async def test_a_reader_that_is_overtaken_gets_what_it_has_fetched_and_then_hears_of_it(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, company: str | None
) -> None:
    monkeypatch.setattr(actors.runtime.log, "PAGE", 5)
    async with a_host(db_path) as runtime:
        await runtime.company("k").ask(SubmitMany([Submit("x", mode="manual") for _ in range(20)]))
        everything = [event for event in stored_events(db_path) if company in (None, event.company)]
        events = runtime.events(company=company)
        seen = [await anext(events)]
        await trio.sleep(1)
        await runtime.prune(ALL)
        floor = everything[-1].position
        with pytest.raises(CursorTooOld) as caught:
            async for event in events:
                seen.append(event)
        assert seen == everything[:5]
        assert (caught.value.after, caught.value.floor) == (seen[-1].position, floor)
        with pytest.raises(CursorTooOld):
            await anext(events)


async def test_one_that_follows_and_keeps_up_never_notices(db_path: Path, autojump_clock: MockClock) -> None:
    seen: list[Event] = []

    async def follow(runtime: Runtime) -> None:
        async for event in runtime.events():
            seen.append(event)

    async with (
        trio.open_nursery() as nursery,
        a_host(db_path, retention=Retention(events_s=60)) as runtime,
    ):
        nursery.start_soon(follow, runtime)
        for number in range(20):
            await runtime.company("k").ask(Submit("x", id=f"t{number}", nodes=[]))
            await trio.sleep(60)
    positions = [event.position for event in seen]
    assert positions == list(range(1, len(seen) + 1))
    assert len(of_kind(seen, "run.completed")) == 20
    assert len(of_kind(seen, "log.pruned")) > 10


async def test_the_floor_holds_in_the_next_process_and_for_readers_of_the_file(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_cut_log(db_path):
        pass
    async with a_host(db_path) as runtime:
        assert (await refused(runtime, after=6)).floor == 7
    autojump_clock.autojump_threshold = 10  # the reader's thread must not be jumped over
    async with open_reader(db_path) as reader:
        with pytest.raises(CursorTooOld):
            await anext(reader.events(after=6))
        with pytest.raises(CursorTooOld):
            await anext(reader.events(company="j", after=1, follow=True))
        assert [event async for event in reader.events()] == stored_events(db_path)


async def test_a_floor_that_was_raised_when_the_process_died_is_where_the_lines_end(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """Floor and lines go in one commit: the file never has a line below its floor, nor a gap above it."""
    async with a_cut_log(db_path):
        lowest = sql(db_path, "SELECT min(position) FROM events")[0][0]
        assert sql(db_path, "SELECT position FROM floors WHERE company_id = 0") == [(lowest - 1,)]
        assert sql(db_path, "SELECT company_id, position, seq FROM floors WHERE company_id > 0") == [
            (1, 2, 1),
            (2, 7, 5),
        ]
