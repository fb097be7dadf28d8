"""Live progress and the attempt's own log: nothing of them touches the database, and nobody is slowed by them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import structlog
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors import Context, Progress, Submit
from actors.testing import run_until_idle
from tests.conftest import Opened
from tests.inside import inside


async def test_a_reader_sees_the_latest_of_each_attempt_and_nothing_is_stored(
    opened: Opened, autojump_clock: MockClock, db_path: Path
) -> None:
    seen: list[Progress] = []

    async def work(ctx: Context) -> None:
        for step in range(100):
            ctx.progress(f"step {step}")
        await trio.sleep(1)
        ctx.progress("nearly")
        await trio.sleep(1)

    async with opened({"work": work}) as runtime:

        async def read() -> None:
            async for progress in runtime.progress(company="a"):
                seen.append(progress)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await wait_all_tasks_blocked()
            task = await runtime.company("a").ask(Submit("x", handler="work"))
            await runtime.company("b").ask(Submit("y", handler="work"))
            await run_until_idle(runtime)
            events = len(await runtime.company("a").timeline(task.id))
            nursery.cancel_scope.cancel()
    assert seen == [
        Progress("a", task.id, 1, "work", 1, "step 99"),
        Progress("a", task.id, 1, "work", 1, "nearly"),
    ]
    assert events == 5, "submitted, admitted, started, succeeded, completed: progress is no event"
    dumped = "\n".join(sqlite3.connect(db_path).iterdump())
    assert "nearly" not in dumped


async def test_a_handler_that_reports_all_the_time_wakes_nobody_but_readers_ten_times_a_second(
    opened: Opened, autojump_clock: MockClock
) -> None:
    stop = False
    batches = 0

    async def chatty(ctx: Context) -> int:
        count = 0
        while not stop:
            ctx.progress(str(count))
            count += 1
            if count % 100 == 0:
                await trio.sleep(0.001)
        return count

    async with opened({"chatty": chatty}) as runtime:

        async def read() -> None:
            nonlocal batches
            async for _ in runtime.progress():
                batches += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await runtime.company("a").ask(Submit("x", handler="chatty"))
            before = inside(runtime).services.store.statistics.units
            await trio.sleep(2)
            assert inside(runtime).services.store.statistics.units == before
            assert 10 <= batches <= 21
            stop = True
            await run_until_idle(runtime)
            nursery.cancel_scope.cancel()


async def test_status_tells_the_latest_progress(opened: Opened, autojump_clock: MockClock) -> None:
    async def work(ctx: Context) -> None:
        ctx.progress("half")
        await trio.sleep(100)

    async with opened({"work": work}) as runtime:
        task = await runtime.company("a").ask(Submit("x", handler="work"))
        await trio.sleep(1)
        (reason,) = (await runtime.company("a").status(task.id)).reasons
        assert (reason.kind.value, reason.text) == ("executing", "half")


async def test_the_attempts_log_is_bound_to_who_it_is(opened: Opened, autojump_clock: MockClock) -> None:
    async def work(ctx: Context) -> None:
        ctx.log.info("thinking", about="bread")

    with structlog.testing.capture_logs() as lines:
        async with opened({"work": work}) as runtime:
            task = await runtime.company("a").ask(Submit("x", handler="work"))
            await run_until_idle(runtime)
    said = [line for line in lines if line["event"] == "thinking"]
    assert said == [
        {
            "event": "thinking",
            "log_level": "info",
            "about": "bread",
            "company": "a",
            "task": task.id,
            "run": 1,
            "node": "work",
            "attempt": 1,
        }
    ]
