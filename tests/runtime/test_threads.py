"""Plain functions run in worker threads, which nobody can cancel. Real clock: a virtual one would jump over them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from actors import (
    AttemptEnd,
    Backoff,
    ClosingReport,
    Context,
    Node,
    RetryAfter,
    RunStatus,
    Stop,
    WorkState,
)
from tests.runtime.support import a_host, a_task, idle, of_kind, settled, stored_events

PATIENCE_S = 120.0
"""Before a test says that it hangs."""
GRACE_S = 0.05


@attrs.define(eq=False)
class Blocking:
    """A plain function that the test lets go."""

    result: object = "done"
    started: threading.Event = attrs.field(factory=threading.Event)
    open: threading.Event = attrs.field(factory=threading.Event)
    returned: threading.Event = attrs.field(factory=threading.Event)
    threads: list[str] = attrs.field(factory=list)

    def __call__(self, _ctx: Context) -> object:
        self.threads.append(threading.current_thread().name)
        self.started.set()
        try:
            assert self.open.wait(PATIENCE_S)
            if isinstance(self.result, BaseException):
                raise self.result
            return self.result
        finally:
            self.returned.set()

    async def has_started(self) -> None:
        with trio.fail_after(PATIENCE_S):
            while not self.started.is_set():
                await trio.sleep(0.001)


@pytest.fixture
def blocking() -> Iterator[Blocking]:
    made = Blocking()
    yield made
    made.open.set()


async def returned(work: Blocking) -> None:
    """Until the thread is gone from our books, too."""
    assert await trio.to_thread.run_sync(work.returned.wait, PATIENCE_S)
    await trio.testing.wait_all_tasks_blocked(0.01)


async def test_a_plain_function_runs_in_a_thread_of_its_own_beside_the_actor(
    db_path: Path, blocking: Blocking
) -> None:
    async with a_host(db_path, {"work": blocking}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await blocking.has_started()
        await company.ask(a_task("ok", id="b", mode="manual"))
        assert (await company.status("a")).state is WorkState.RUNNING
        blocking.open.set()
        assert (await company.when_settled("a")).result == {"work": "done"}
    assert blocking.threads == ["k/a/1/work/1"]


@pytest.mark.parametrize(
    ("error", "end", "text"),
    [
        (ValueError("no\0luck"), AttemptEnd.FAILED, r"ValueError: no\x00luck"),
        (SystemExit(3), AttemptEnd.FAILED, "SystemExit: 3"),
        (StopIteration("x"), AttemptEnd.FAILED, "RuntimeError: coroutine raised StopIteration"),
        (RetryAfter(1, "busy"), AttemptEnd.INTERRUPTED, "RetryAfter: busy"),
    ],
    ids=["an error", "an exit", "a StopIteration", "RetryAfter"],
)
async def test_what_a_thread_raises_is_what_a_handler_raises(
    db_path: Path, error: BaseException, end: AttemptEnd, text: str
) -> None:
    def work(ctx: Context) -> None:
        raise error

    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a", tries_max=1))
        with trio.fail_after(PATIENCE_S):
            while not (views := await company.attempts("a")) or views[0].end is None:
                await runtime.hub.news.wait()
        assert (views[0].end, views[0].error) == (end, text)
        await company.ask(Stop("a"))


async def test_a_plain_function_may_return_something_to_await(db_path: Path) -> None:
    async def inner(ctx: Context) -> str:
        assert trio.lowlevel.current_task() is not None
        return f"awaited for {ctx.task}"

    async with a_host(db_path, {"work": lambda _ctx: inner(_ctx)}) as runtime:
        await runtime.company("k").ask(a_task("work", id="a"))
        outcome = await runtime.company("k").when_settled("a")
        assert (outcome.reason, outcome.result) == (None, {"work": "awaited for a"})


async def test_progress_can_be_told_from_a_thread(db_path: Path, blocking: Blocking) -> None:
    def work(ctx: Context) -> object:
        ctx.progress("half way")
        return blocking(ctx)

    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await blocking.has_started()
        assert [reason.text for reason in (await company.status("a")).reasons] == ["half way"]
        blocking.open.set()
        await company.when_settled("a")


async def test_a_thread_can_ask_whether_it_should_end_and_ends_in_the_grace(db_path: Path) -> None:
    started, looked = threading.Event(), threading.Event()

    def work(ctx: Context) -> str:
        started.set()
        while not ctx.cancel_requested:
            looked.wait(0.001)
        return "ended"

    async with a_host(db_path, {"work": work}, stop_grace_s=PATIENCE_S) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        assert await trio.to_thread.run_sync(started.wait, PATIENCE_S)
        await company.ask(Stop("a"))
        with trio.fail_after(PATIENCE_S / 2):
            assert await settled(company, "a") == "stopped"
    assert of_kind(stored_events(db_path), "attempt.abandoned") == []


async def test_a_thread_that_does_not_end_is_left_behind_after_the_grace_and_its_result_is_late(
    db_path: Path, blocking: Blocking
) -> None:
    async with a_host(db_path, {"work": blocking}, stop_grace_s=GRACE_S, executions_max=1) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await company.ask(a_task("ok", id="b"))
        await blocking.has_started()
        await company.ask(Stop("a"))
        with trio.fail_after(PATIENCE_S):
            assert await settled(company, "a") == "stopped"
            assert await settled(company, "b") == "completed"
        assert [attempt.label for attempt in runtime.registry.abandoned] == ["k/a/1/work/1"]
        facts = await company.status("a"), await company.attempts("a")
        blocking.open.set()
        await returned(blocking)
        await idle(runtime)
        assert list(runtime.registry.abandoned) == []
        assert (await company.status("a"), await company.attempts("a")) == facts
    told = of_kind(stored_events(db_path), "attempt.abandoned", "attempt.stopped", "attempt.late")
    assert [(event.kind, event.task, event.node, event.attempt) for event in told] == [
        ("attempt.abandoned", "a", "work", 1),
        ("attempt.stopped", "a", "work", 1),
        ("attempt.late", "a", "work", 1),
    ]
    assert told[-1].data == {"outcome": "succeeded"}


async def test_a_late_error_of_a_thread_is_told_as_one(db_path: Path, blocking: Blocking) -> None:
    blocking.result = ValueError("too late")
    async with a_host(db_path, {"work": blocking}, stop_grace_s=0) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await blocking.has_started()
        await company.ask(Stop("a"))
        await company.when_settled("a")
        blocking.open.set()
        await returned(blocking)
        await idle(runtime)
    (late,) = of_kind(stored_events(db_path), "attempt.late")
    assert late.data == {"outcome": "failed"}


async def test_a_thread_that_takes_too_long_is_left_behind_and_tried_again(
    db_path: Path, blocking: Blocking
) -> None:
    def work(ctx: Context) -> object:
        return blocking(ctx) if ctx.attempt == 1 else "of the second"

    async with a_host(db_path, {"work": work}, stop_grace_s=0) as runtime:
        company = runtime.company("k")
        node = Node("n", "work", timeout_s=0.05, retry=Backoff(base_s=0))
        await company.ask(a_task(nodes=[node], id="a"))
        with trio.fail_after(PATIENCE_S):
            outcome = await company.when_settled("a")
        assert outcome.result == {"n": "of the second"}
        views = await company.attempts("a")
        assert [view.end for view in views] == [AttemptEnd.TIMED_OUT, AttemptEnd.SUCCEEDED]
        blocking.open.set()
        await returned(blocking)


async def test_closing_names_the_thread_that_it_leaves_behind_and_does_not_wait_for_it(
    db_path: Path, blocking: Blocking
) -> None:
    async with a_host(db_path, {"work": blocking}, stop_grace_s=GRACE_S) as runtime:
        await runtime.company("k").ask(a_task("work", id="a"))
        await blocking.has_started()
        with trio.fail_after(PATIENCE_S):
            report = await runtime.aclose(now=True)
        assert report.abandoned == ("k/a/1/work/1",)
        assert report.interrupted == ("k/a/1/work/1",)
        assert not blocking.returned.is_set()
    async with a_host(db_path, {"work": lambda _ctx: "again"}) as runtime:
        outcome = await runtime.company("k").when_settled("a")
        assert (outcome.status, outcome.result) == (RunStatus.COMPLETED, {"work": "again"})
        assert (await runtime.company("k").status("a")).nodes[0].tries == 0
    blocking.open.set()
    await returned(blocking)


@pytest.mark.parametrize("signals", [1, 2], ids=["the drain has its limit", "a second signal ends it"])
async def test_a_drain_that_a_thread_would_hold_for_ever_ends_and_says_what_it_left(
    db_path: Path, blocking: Blocking, signals: int
) -> None:
    """C45."""
    drain_s = GRACE_S if signals == 1 else 1_000 * PATIENCE_S
    async with a_host(db_path, {"work": blocking}, stop_grace_s=GRACE_S, drain_s=drain_s) as runtime:
        await runtime.company("k").ask(a_task("work", id="a"))
        await blocking.has_started()
        reports: list[ClosingReport] = []

        async def close(*, now: bool) -> None:
            reports.append(await runtime.aclose(now=now))

        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: close(now=False))
                await trio.testing.wait_all_tasks_blocked()
                if signals == 2:
                    assert not runtime.closing
                    nursery.start_soon(lambda: close(now=True))
        left = ClosingReport(interrupted=("k/a/1/work/1",), abandoned=("k/a/1/work/1",))
        assert reports == [left] * signals
        assert not blocking.returned.is_set()
    told = of_kind(stored_events(db_path), "attempt.abandoned", "attempt.interrupted", "process.stopped")
    assert [(event.kind, event.task) for event in told] == [
        ("attempt.abandoned", "a"),
        ("attempt.interrupted", "a"),
        ("process.stopped", None),
    ]
    assert (told[2].data["interrupted"], told[2].data["abandoned"]) == (1, 1)


async def test_what_a_thread_returns_inside_the_grace_of_closing_counts(db_path: Path) -> None:
    started = threading.Event()

    def work(ctx: Context) -> str:
        started.set()
        while not ctx.cancel_requested:
            threading.Event().wait(0.001)
        return "saved"

    async with a_host(db_path, {"work": work}, stop_grace_s=PATIENCE_S) as runtime:
        await runtime.company("k").ask(a_task("work", id="a"))
        assert await trio.to_thread.run_sync(started.wait, PATIENCE_S)
        with trio.fail_after(PATIENCE_S / 2):
            assert await runtime.aclose(now=True) == ClosingReport()
    async with a_host(db_path, {"work": work}) as runtime:
        assert await runtime.company("k").result("a") == {"work": "saved"}


async def test_as_many_threads_run_at_once_as_there_are_execution_slots(db_path: Path) -> None:
    """Trio's own limit of forty is not ours."""
    barrier = threading.Barrier(50)

    def work(ctx: Context) -> int:
        return barrier.wait(PATIENCE_S)

    async with a_host(db_path, {"work": work}, executions_max=50) as runtime:
        company = runtime.company("k")
        await company.ask(a_task(nodes=[Node(str(number), "work") for number in range(50)], id="a"))
        outcome = await company.when_settled("a")
    assert sorted(outcome.result.values()) == list(range(50))
