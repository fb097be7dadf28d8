"""The event stream is API: whole events, in commit order, dense per company, continued from a cursor."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import structlog
import trio
from trio.testing import MockClock

from actors import KINDS, Context, Event, Node, Retry, Runtime, Start, Stop, Submit, open_reader
from actors.testing import EPOCH_MS, run_until_idle
from tests.conftest import Opened


class Flaky:
    def __init__(self) -> None:
        self.fails = 1

    async def __call__(self, ctx: Context) -> str:
        await trio.sleep(1)
        if self.fails:
            self.fails -= 1
            raise ValueError("not yet")
        return f"{ctx.node} done"


async def until(runtime: Runtime, kind: str, **where: object) -> list[Event]:
    """The company's log up to the first event of this kind."""
    seen: list[Event] = []
    async for event in runtime.events(company="k", **where):  # type: ignore[arg-type]
        seen.append(event)
        if event.kind == kind:
            break
    return seen


async def test_the_whole_life_of_a_task_is_told_word_for_word(
    opened: Opened, autojump_clock: MockClock
) -> None:
    async with opened({"work": Flaky()}) as runtime:
        await runtime.company("k").ask(
            Submit(
                "Report",
                nodes=[Node("a", "work"), Node("b", "work", after=["a"])],
                id="r",
                goal="g",
                priority=1,
            )
        )
        told = await until(runtime, "run.completed")
    due = told[3].data["not_before_ms"]
    assert EPOCH_MS + 2_000 <= due <= EPOCH_MS + 2_100

    def event(seq: int, kind: str, at_ms: int, **fields: object) -> Event:
        data = fields.pop("data", {})
        return Event(seq + 1, "k", seq, at_ms, kind, "r", 1, data=data, **fields)  # type: ignore[arg-type]

    first = {"title": "Report", "priority": 1, "mode": "auto", "goal": "g", "depends_on": []}
    began, tried, ended = EPOCH_MS, EPOCH_MS + 1_000, due + 1_000
    assert told == [
        event(1, "task.submitted", began, after="queued", data=first),
        event(2, "run.admitted", began, before="queued", after="running", data={"slot": 1}),
        event(
            3,
            "attempt.started",
            began,
            node="a",
            attempt=1,
            before="pending",
            after="running",
            data={"generation": 0},
        ),
        event(
            4,
            "attempt.failed",
            tried,
            node="a",
            attempt=1,
            before="running",
            after="pending",
            reason="ValueError: not yet",
            data={"tries": 1, "not_before_ms": due},
        ),
        event(
            5,
            "attempt.started",
            due,
            node="a",
            attempt=2,
            before="pending",
            after="running",
            data={"generation": 0},
        ),
        event(6, "attempt.succeeded", ended, node="a", attempt=2, before="running", after="succeeded"),
        event(
            7,
            "attempt.started",
            ended,
            node="b",
            attempt=1,
            before="pending",
            after="running",
            data={"generation": 0},
        ),
        event(
            8, "attempt.succeeded", ended + 1_000, node="b", attempt=1, before="running", after="succeeded"
        ),
        event(9, "run.completed", ended + 1_000, before="running", after="completed"),
    ]


async def test_a_reader_goes_on_from_its_cursor_without_gap_or_repeat(
    opened: Opened, autojump_clock: MockClock, db_path: Path
) -> None:
    """C66: readers of one company and of all, restarted after every few events."""
    async with opened({"work": Flaky()}) as runtime:
        for name in ("j", "k"):
            for number in range(5):
                await runtime.company(name).ask(Submit("x", handler="work", id=f"t{number}"))
        await run_until_idle(runtime)
        everything = (
            sqlite3.connect(db_path).execute("SELECT position, company_id, seq FROM events").fetchall()
        )
        for company in (None, "k"):
            seen: list[Event] = []
            total = len(everything) if company is None else sum(row[1] == 2 for row in everything)
            while len(seen) < total:
                fresh = 0
                async for event in runtime.events(company=company, after=seen[-1].position if seen else 0):
                    seen.append(event)
                    fresh += 1
                    if fresh == 3 or len(seen) == total:
                        break
            positions = [event.position for event in seen]
            assert positions == sorted(set(positions))
            if company is None:
                assert positions == [row[0] for row in everything]
            else:
                assert [event.seq for event in seen] == list(range(1, total + 1))


async def test_a_live_reader_has_no_seam_and_ends_when_the_runtime_closes(
    opened: Opened, autojump_clock: MockClock
) -> None:
    seen: list[Event] = []
    async with trio.open_nursery() as nursery, opened({"work": Flaky()}) as runtime:

        async def follow() -> None:
            async for event in runtime.events(company="k"):
                seen.append(event)
                await trio.sleep(0.01)  # a slow one

        nursery.start_soon(follow)
        for number in range(20):
            await runtime.company("k").ask(Submit("x", handler="work", id=f"t{number}"))
            await trio.sleep(0.1)
        await run_until_idle(runtime)
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    assert len([event for event in seen if event.kind == "run.completed"]) == 20


async def test_one_event_says_how_many_became_blocked_and_by_whom(
    opened: Opened, autojump_clock: MockClock
) -> None:
    async def fails(_ctx: Context) -> None:
        raise RuntimeError("no")

    async def fine(_ctx: Context) -> None:
        pass

    async with opened({"fails": fails, "fine": fine}) as runtime:
        company = runtime.company("k")
        await company.ask(Submit("x", handler="fails", id="A", tries_max=1, mode="manual"))
        for number in range(3):
            await company.ask(Submit("y", handler="fine", id=f"B{number}", depends_on=["A"]))
        await company.ask(Start("A"))
        await company.when_settled("A")
        blocked = (await until(runtime, "tasks.blocked"))[-1]
        assert (blocked.task, dict(blocked.data)) == (
            None,
            {"cause": "A", "count": 3, "ids": ["B0", "B1", "B2"]},
        )
        await company.ask(Retry("A"))
        unblocked = (await until(runtime, "tasks.unblocked"))[-1]
        assert dict(unblocked.data) == {"cause": "A", "count": 3, "ids": ["B0", "B1", "B2"]}


async def test_every_event_goes_to_structlog_at_the_level_of_its_kind(
    opened: Opened, autojump_clock: MockClock
) -> None:
    with structlog.testing.capture_logs() as lines:
        async with opened({"work": Flaky()}) as runtime:
            company = runtime.company("k")
            await company.ask(Submit("x", handler="work", id="t"))
            await run_until_idle(runtime)
            await company.tell(Stop("nobody"))
            told = await until(runtime, "message.refused")
    logged = [line for line in lines if line.get("company") == "k"]
    assert [line["event"] for line in logged] == [event.kind for event in told]
    assert [line["position"] for line in logged] == [event.position for event in told]
    assert all(line["log_level"] == KINDS[line["event"]].level for line in logged)
    assert told[-1].reason == "company 'k' has no task 'nobody': check the id, or submit it first"


async def test_another_process_reads_the_same_and_says_where_no_host_runs(
    opened: Opened, autojump_clock: MockClock, db_path: Path
) -> None:
    async with opened({"work": Flaky()}) as runtime:
        company = runtime.company("k")
        await company.ask(Submit("x", handler="work", id="held", mode="manual"))
        await company.ask(Submit("y", handler="work", id="done"))
        await run_until_idle(runtime)
        ours = (await company.status("done"), await company.timeline("done"), await company.attempts("done"))
    async with open_reader(db_path) as reader:
        assert reader.owner is None
        theirs = reader.company("k")
        assert (
            await theirs.status("done"),
            await theirs.timeline("done"),
            await theirs.attempts("done"),
        ) == ours
        assert await theirs.result("done") == {"work": "work done"}
        kinds = [gate.kind.value for gate in (await theirs.explain("held")).gates]
        assert kinds == ["manual", "no_host"]
        assert [event.kind async for event in reader.events()][-1] == "process.stopped"
