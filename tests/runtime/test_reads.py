"""Reads: the same from memory as from the tables, in this process as in any other, and never more than is committed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from actors import (
    Archive,
    AttemptEnd,
    Backoff,
    Company,
    Context,
    DefineGraph,
    Gate,
    InvalidName,
    Next,
    Node,
    NodeStatus,
    NotADatabase,
    Reader,
    Reads,
    ReasonKind,
    Rerun,
    RunStatus,
    Runtime,
    SendBack,
    SetLimits,
    SetSchedule,
    Stop,
    Submit,
    TaskUnknown,
    Unpause,
    WorkState,
    open_reader,
)
from actors.handlers import Handler
from actors.testing import VirtualClock
from storage.inline import InlineConnection
from storage.opening import open_reader as open_connection
from tests.runtime.support import Gated, a_host, a_task, idle, quiet


@asynccontextmanager
async def a_reader(path: Path) -> AsyncIterator[Reader]:
    """`open_reader` without its thread, for virtual time."""
    connection = InlineConnection(open_connection(path))
    try:
        yield Reader(str(path), connection, VirtualClock())
    finally:
        await connection.aclose()


async def everything(reads: Reads, ids: list[str]) -> dict[str, Any]:
    """All that can be read of a company's tasks."""
    return {
        "queue": await reads.queue(),
        "tasks": await reads.tasks(archived=True),
        "schedules": await reads.schedules(),
        **{f"status {task}": await reads.status(task) for task in ids},
        **{f"explain {task}": await reads.explain(task) for task in ids},
        **{f"timeline {task}": await reads.timeline(task) for task in ids},
        **{f"result {task}": await reads.result(task) for task in ids},
        **{f"attempts {task}": await reads.attempts(task) for task in ids},
    }


@asynccontextmanager
async def a_company_in_every_state(path: Path) -> AsyncIterator[tuple[Runtime, list[str]]]:
    """Tasks of one company in each of the states that a host at work can show."""
    work = Gated()

    async def half(ctx: Context) -> str:
        if ctx.node == "bad":
            raise ValueError("no luck")
        return ctx.node

    handlers: dict[str, Handler] = {"work": work, "half": half}
    async with a_host(path, handlers) as runtime:
        company = runtime.company("k")
        await company.ask(DefineGraph("g", [Node("n", "ok"), Node("m", "ok", after=["n"])]))
        for task in (
            a_task("ok", id="completed", payload={"x": 1}),
            a_task("fails", id="failed", tries_max=1),
            a_task(nodes=[Node("good", "half"), Node("bad", "half", tries_max=1)], id="half failed"),
            a_task("ok", id="rerun"),
            a_task("ok", id="put away"),
        ):
            await company.ask(task)
            await company.when_settled(str(task.id))
        await company.ask(Archive("put away"))
        judged: list[Node | Gate] = [
            Node("n", "ok"),
            Gate("gate", after=["n"]),
            Node("m", "ok", after=["gate"]),
        ]
        await company.ask(a_task(nodes=judged, id="at a gate"))
        await company.ask(a_task(nodes=[Node("n", "ok"), Node("m", "ok")], id="before a step", mode="step"))
        await quiet(company)
        await company.ask(SendBack("at a gate", "n", "do it again"))
        await company.ask(Next("before a step"))
        await quiet(company)
        await company.ask(SetLimits(runs_max=2))
        await company.ask(a_task("work", id="running", goal="g"))
        await company.ask(a_task(nodes=[Node("n", "fails", retry=Backoff(base_s=5000))], id="rests"))
        await work.has_started()
        await company.ask(Rerun("rerun"))
        for task in (
            a_task("ok", id="held", mode="manual"),
            a_task("ok", id="later", not_before="2027-01-01T00:00:00Z"),
            a_task("ok", id="not so late", not_before="2025-01-01T00:00:00Z"),
            a_task("ok", id="waits", depends_on=["held", "completed"]),
            a_task("ok", id="blocked", depends_on=["failed", "held"]),
            a_task("ok", id="blocked further", depends_on=["blocked"]),
            a_task("ok", id="queued", priority=9),
            a_task(graph="g", id="of a graph", goal="g"),
            a_task("ok", id="stopped"),
        ):
            await company.ask(task)
        await company.ask(Stop("stopped"))
        await company.ask(SetSchedule("s", every=60, task=a_task("ok")))
        await trio.testing.wait_all_tasks_blocked()
        ids = [status.id for status in await company.tasks(archived=True)]
        assert len(ids) == 18
        yield runtime, ids
        work.open.set()
        for left in ("held", "rests", "later"):
            await company.ask(Stop(left))
        await idle(runtime)


# --- the same everywhere ----------------------------------------------------------------------------------------------


async def test_memory_and_tables_say_the_same_of_every_task(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_company_in_every_state(db_path) as (runtime, ids), a_reader(db_path) as reader:
        assert runtime.actor("k") is not None
        told = await everything(runtime.company("k"), ids)
        read = await everything(reader.company("k"), ids)
        assert reader.owner is not None
        for what, value in told.items():
            assert read[what] == value, what
        states = {status.id: status.state.value for status in told["tasks"]}
    assert states == {
        "completed": "completed",
        "failed": "failed",
        "half failed": "failed",
        "rerun": "queued",
        "put away": "archived",
        "at a gate": "halted",
        "before a step": "halted",
        "running": "running",
        "rests": "running",
        "held": "held",
        "later": "scheduled",
        "not so late": "queued",
        "waits": "waiting",
        "blocked": "blocked",
        "blocked further": "blocked",
        "queued": "queued",
        "of a graph": "queued",
        "stopped": "stopped",
    }


async def test_a_company_that_is_not_in_memory_is_read_from_the_tables_by_the_same_code(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        for task in (
            a_task("ok", id="a"),
            a_task("ok", id="b", mode="manual"),
            a_task("ok", id="c", depends_on=["b"]),
        ):
            await company.ask(task)
        await idle(runtime)
        before = await everything(company, ["a", "b", "c"])
        await trio.sleep(30)
        assert runtime.actor("k") is None
        assert await everything(company, ["a", "b", "c"]) == before
        assert runtime.actor("k") is None, "a read starts no actor"


async def test_where_no_host_runs_every_unfinished_task_says_so(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=0))
        await company.ask(a_task("ok", id="waits"))
        await company.ask(a_task("ok", id="held", mode="manual"))
        await company.ask(a_task("ok", id="stopped"))
        await company.ask(Stop("stopped"))
    async with a_reader(db_path) as reader:
        assert reader.owner is None
        company_reads = reader.company("k")
        for task in ("waits", "held"):
            gates = [reason.kind for reason in (await company_reads.explain(task)).gates]
            assert ReasonKind.NO_HOST in gates
        assert [r.kind for r in (await company_reads.status("stopped")).reasons] == [ReasonKind.STOPPED]
        async with a_host(db_path):
            gates = [reason.kind for reason in (await company_reads.explain("waits")).gates]
            assert ReasonKind.NO_HOST not in gates


def test_another_connection_on_a_thread_reads_beside_a_host_that_is_at_work(tmp_path: Path) -> None:
    """`open_reader` itself, on the real clock."""
    path = tmp_path / "test.db"

    async def main() -> None:
        work = Gated()
        async with a_host(path, {"work": work}) as runtime:
            company = runtime.company("k")
            await company.ask(a_task("work", id="a"))
            await work.has_started()
            async with open_reader(path) as reader:
                assert await reader.companies() == ("k",)
                assert (await reader.company("k").status("a")).state is WorkState.RUNNING
                work.open.set()
                await company.when_settled("a")
                assert await reader.company("k").result("a") == {"work": "done"}

    trio.run(main)


async def test_a_file_that_is_none_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello " * 1000)
    for name in ("notes.txt", "nothing.db"):
        with pytest.raises(NotADatabase):
            async with open_reader(tmp_path / name):
                raise AssertionError("not reached")


# --- what is not there ------------------------------------------------------------------------------------------------


async def test_a_task_or_company_that_does_not_exist_is_said_to_be_unknown(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path, timeless=True) as runtime, a_reader(db_path) as reader:
        await runtime.company("k").ask(Submit("x"))
        for reads in (
            runtime.company("k"),
            runtime.company("nobody"),
            reader.company("k"),
            reader.company("nobody"),
        ):
            for read in (reads.status, reads.explain, reads.timeline, reads.result, reads.attempts):
                with pytest.raises(TaskUnknown):
                    await read("gone")
        assert await runtime.company("nobody").queue() == ()
        assert await runtime.company("nobody").tasks() == ()
        assert await runtime.companies() == ("k",), "reading makes no company"
        with pytest.raises(InvalidName):
            await runtime.company("k").status("a/b")
        with pytest.raises(TaskUnknown):
            await runtime.company("k").when_settled("gone")


# --- what is shown ----------------------------------------------------------------------------------------------------


async def test_the_queue_shows_who_holds_the_slots_and_then_the_line_in_its_order(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_company_in_every_state(db_path) as (runtime, _):
        company = runtime.company("k")
        line = [(status.id, status.position) for status in await company.queue()]
        assert line == [
            ("running", 0),
            ("rests", 0),
            ("rerun", 1),
            ("at a gate", 0),
            ("before a step", 0),
            ("held", 2),
            ("later", 3),
            ("not so late", 4),
            ("waits", 5),
            ("blocked", 0),
            ("blocked further", 0),
            ("of a graph", 6),
            ("queued", 7),
        ]
        assert [status.id for status in await company.queue(goal="g")] == ["running", "of a graph"]


async def test_a_status_tells_the_nodes_before_and_after_the_run_begins(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_company_in_every_state(db_path) as (runtime, _):
        company = runtime.company("k")
        before = (await company.status("of a graph")).nodes
        assert [(node.name, node.handler, node.status) for node in before] == [
            ("n", "ok", NodeStatus.PENDING),
            ("m", "ok", NodeStatus.PENDING),
        ]
        after = (await company.status("half failed")).nodes
        assert [(node.name, node.status, node.tries, node.error) for node in after] == [
            ("good", NodeStatus.SUCCEEDED, 0, None),
            ("bad", NodeStatus.FAILED, 1, "ValueError: no luck"),
        ]
        assert await company.result("half failed") == {"good": "good"}
        assert await company.result("held") == {}


async def test_attempts_of_every_run_are_told_oldest_first(db_path: Path, autojump_clock: MockClock) -> None:
    async def work(ctx: Context) -> str:
        await trio.sleep(1)
        if ctx.run == 1 and ctx.attempt == 1:
            raise ValueError("no luck")
        return "done"

    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await company.when_settled("a")
        await company.ask(Rerun("a"))
        await trio.sleep(0.5)
        views = await company.attempts("a")
        assert [(view.run, view.node, view.number, view.end, view.error) for view in views] == [
            (1, "work", 1, AttemptEnd.FAILED, "ValueError: no luck"),
            (1, "work", 2, AttemptEnd.SUCCEEDED, None),
            (2, "work", 1, None, None),
        ]
        assert views[2].ended_ms is None
        await company.when_settled("a")


async def test_an_outcome_is_that_of_the_newest_run(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_host(db_path, timeless=True) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a", payload=1))
        first = await company.when_settled("a")
        await company.ask(Rerun("a", payload=2))
        second = await company.when_settled("a")
        assert [(o.run, o.status, o.result) for o in (first, second)] == [
            (1, RunStatus.COMPLETED, {"ok": 1}),
            (2, RunStatus.COMPLETED, {"ok": 2}),
        ]


async def test_waiting_for_a_task_that_has_long_ended_returns_at_once(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a"))
        await idle(runtime)
        await trio.sleep(600)
        began = trio.current_time()
        assert (await company.when_settled("a")).status is RunStatus.COMPLETED
        assert trio.current_time() == began
        await company.when_idle()
        assert trio.current_time() == began


async def test_many_who_wait_for_many_tasks_are_all_told(db_path: Path, autojump_clock: MockClock) -> None:
    ended: list[str] = []

    async def wait(company: Company, task: str) -> None:
        ended.append((await company.when_settled(task)).task)

    async with a_host(db_path, timeless=True) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=0))
        for number in range(30):
            await company.ask(a_task("ok", id=f"t{number}"))
        async with trio.open_nursery() as nursery:
            for number in range(30):
                nursery.start_soon(wait, company, f"t{number}")
            await trio.testing.wait_all_tasks_blocked()
            await company.ask(SetLimits(runs_max=3))
        assert sorted(ended) == sorted(f"t{number}" for number in range(30))


async def test_idle_means_that_nothing_is_in_flight_whatever_is_queued(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Gated()
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.when_idle()
        await company.ask(a_task("work", id="a"))
        await company.ask(a_task("ok", id="b", mode="manual"))
        with trio.move_on_after(600) as scope:
            await company.when_idle()
        assert scope.cancelled_caught
        work.open.set()
        with trio.fail_after(1):
            await company.when_idle()
        assert (await company.ask(Unpause())).changed is False
