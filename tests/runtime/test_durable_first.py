"""Durable, then visible, then acted upon: before the commit returns nothing is published, answered or started."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from actors import Company, Event, Message, Node, Runtime, Start, Stop, Submit, WorkState
from tests.inside import inside
from tests.runtime.support import (
    Gated,
    GatedConnection,
    Wrapper,
    a_host,
    a_task,
    idle,
    kinds,
    settled,
    stored_events,
)


@attrs.define
class Scene:
    """A company with a manual task, a gate before its commits, and a subscriber."""

    runtime: Runtime
    gate: Wrapper
    work: Gated
    nursery: trio.Nursery
    seen: list[Event] = attrs.field(factory=list)
    answers: list[object] = attrs.field(factory=list)

    @property
    def company(self) -> Company:
        return self.runtime.company("k")

    async def listen(self) -> None:
        async for event in self.runtime.events():
            self.seen.append(event)

    async def ask(self, message: Message[object]) -> None:
        self.answers.append(await self.company.ask(message))

    async def ask_behind_the_gate(self, message: Message[object]) -> int:
        """Ask; returns when its commit waits at the gate, with the number of events seen so far."""
        self.gate.made.shut()
        self.nursery.start_soon(self.ask, message)
        await self.gate.made.is_asked()
        await trio.testing.wait_all_tasks_blocked()
        return len(self.seen)


@asynccontextmanager
async def a_scene(path: Path, *tasks: Submit) -> AsyncIterator[Scene]:
    gate, work = Wrapper(GatedConnection), Gated()
    async with a_host(path, {"work": work}, wrap=gate) as runtime, trio.open_nursery() as nursery:
        scene = Scene(runtime, gate, work, nursery)
        nursery.start_soon(scene.listen)
        for task in tasks:
            await scene.company.ask(task)
        await trio.testing.wait_all_tasks_blocked()
        try:
            yield scene
        finally:
            gate.made.let_go()
            work.open.set()
        await idle(runtime)
        nursery.cancel_scope.cancel()


async def test_nothing_is_seen_answered_or_started_before_the_commit_returns(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_scene(db_path, a_task("work", id="a", mode="manual")) as scene:
        before = await scene.ask_behind_the_gate(Start("a"))
        await trio.sleep(1)
        assert scene.answers == []
        assert scene.work.contexts == []
        assert len(scene.seen) == before
        assert stored_events(db_path) == scene.seen
        scene.gate.made.let_go()
        await scene.work.has_started()
        await trio.testing.wait_all_tasks_blocked()
        assert kinds(scene.seen[before:]) == ["task.started", "run.admitted", "attempt.started"]
        assert len(scene.answers) == 1


async def test_a_read_in_the_middle_of_a_turn_waits_for_its_commit_and_shows_only_what_is_committed(
    db_path: Path, autojump_clock: MockClock
) -> None:
    states: list[WorkState] = []

    async with a_scene(db_path, a_task("work", id="a", mode="manual")) as scene:

        async def read() -> None:
            states.append((await scene.company.status("a")).state)

        await scene.ask_behind_the_gate(Start("a"))
        scene.nursery.start_soon(read)
        await trio.sleep(1)
        assert states == []
        scene.gate.made.let_go()
        await trio.testing.wait_all_tasks_blocked()
        assert states == [WorkState.RUNNING]


async def test_a_cancellation_reaches_the_handler_only_when_the_stop_is_durable(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_scene(db_path) as scene:
        await scene.company.ask(a_task("work", id="a"))
        await scene.work.has_started()
        await scene.ask_behind_the_gate(Stop("a"))
        await trio.sleep(1)
        assert scene.work.cancelled == 0
        scene.gate.made.let_go()
        assert await settled(scene.company, "a") == "stopped"
        assert scene.work.cancelled == 1


async def test_a_result_is_nobody_s_input_before_it_is_durable(
    db_path: Path, autojump_clock: MockClock
) -> None:
    second = Gated()
    gate, first = Wrapper(GatedConnection), Gated("of the first")
    async with a_host(db_path, {"first": first, "second": second}, wrap=gate) as runtime:
        company = runtime.company("k")
        nodes = [Node("one", "first"), Node("two", "second", after=["one"])]
        await company.ask(a_task(nodes=nodes, id="a"))
        await first.has_started()
        gate.made.shut()
        first.open.set()
        await gate.made.is_asked()
        await trio.sleep(1)
        assert second.contexts == []
        gate.made.let_go()
        await second.has_started()
        assert dict(second.contexts[0].inputs) == {"one": "of the first"}
        second.open.set()
        assert await settled(company, "a") == "completed"


@pytest.mark.parametrize("behind", [1, 40])
async def test_a_company_s_next_turn_waits_for_the_last_one_s_commit_and_takes_what_has_come(
    db_path: Path, autojump_clock: MockClock, behind: int
) -> None:
    async with a_scene(db_path, Submit("so that the actor is there")) as scene:
        await scene.ask_behind_the_gate(Submit("first"))
        for number in range(behind):
            await scene.company.tell(Submit(f"behind {number}"))
        await trio.sleep(1)
        cell = inside(scene.runtime).services.directory.find("k")
        assert cell is not None
        assert cell.mailbox.depths == (behind, 0)
        scene.gate.made.let_go()
        await idle(scene.runtime)
        assert len(await scene.company.tasks()) == 2 + behind


async def test_an_ask_that_is_cancelled_stops_waiting_and_its_message_stands(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_scene(db_path) as scene:
        scene.gate.made.shut()
        with trio.move_on_after(5) as scope:
            await scene.company.ask(Submit("given up on", id="x"))
        assert scope.cancelled_caught
        scene.gate.made.let_go()
        await idle(scene.runtime)
        assert (await scene.company.status("x")).state is WorkState.COMPLETED
