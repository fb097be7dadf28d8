"""Lanes: control overtakes what was sent and not taken, senders wait for room, and what was put stands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from actors import (
    Company,
    InvalidMessage,
    MailboxFull,
    Message,
    Pause,
    Runtime,
    SetLimits,
    Start,
    Stop,
    Submit,
    TaskUnknown,
    TurnkeeperError,
    WorkState,
)
from actors.runtime.mailbox import SYSTEM_MAX, USER_MAX
from tests.inside import inside
from tests.runtime.support import (
    GatedConnection,
    Wrapper,
    a_host,
    a_task,
    idle,
    of_kind,
    quiet,
    settled,
    stored_events,
)


@attrs.define
class Busy:
    """A company whose turn waits at the gate, so that what is sent stays in its mailbox."""

    runtime: Runtime
    gate: Wrapper

    @property
    def company(self) -> Company:
        return self.runtime.company("k")

    @property
    def depths(self) -> tuple[int, int]:
        cell = inside(self.runtime).services.directory.find("k")
        assert cell is not None
        return cell.mailbox.depths

    def fill(self) -> None:
        """As many messages as there is room for."""
        for number in range(USER_MAX):
            self.company.tell_nowait(Submit(f"filler {number}"))

    def go(self) -> None:
        self.gate.made.let_go()


@asynccontextmanager
async def a_busy_company(path: Path) -> AsyncIterator[Busy]:
    gate = Wrapper(GatedConnection)
    async with a_host(path, wrap=gate) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=0))
        await quiet(company)
        gate.made.shut()
        await company.tell(Submit("first", id="first"))
        await gate.made.is_asked()
        try:
            yield Busy(runtime, gate)
        finally:
            gate.made.let_go()
        await idle(runtime)


async def test_control_overtakes_submits_that_were_sent_and_not_taken(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_busy_company(db_path) as busy:
        for number in range(150):
            busy.company.tell_nowait(Submit(f"task {number}"))
        await busy.company.tell(Pause())
        assert busy.depths == (150, 1)
        busy.go()
        await quiet(busy.company)
    told = [event.kind for event in stored_events(db_path, "k")]
    paused = told.index("company.paused")
    assert told[:paused].count("task.submitted") == 1
    assert told[paused:].count("task.submitted") == 150


async def test_submits_keep_their_order(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_busy_company(db_path) as busy:
        for number in range(250):
            busy.company.tell_nowait(Submit(f"task {number}"))
        busy.go()
        await quiet(busy.company)
        titles = [status.title for status in await busy.company.tasks()]
    assert titles == ["first", *(f"task {number}" for number in range(250))]


async def test_telling_without_waiting_says_so_when_there_is_no_room(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_busy_company(db_path) as busy:
        busy.fill()
        with pytest.raises(MailboxFull) as raised:
            busy.company.tell_nowait(Submit("one too many"))
        assert (raised.value.company, raised.value.limit) == ("k", USER_MAX)
        busy.go()
        await quiet(busy.company)
        assert len(await busy.company.tasks()) == 1 + USER_MAX


@pytest.mark.parametrize("how", ["ask", "tell"])
async def test_asking_and_telling_wait_for_room(db_path: Path, autojump_clock: MockClock, how: str) -> None:
    sent: list[str] = []

    async with a_busy_company(db_path) as busy:
        busy.fill()

        async def send(title: str) -> None:
            await getattr(busy.company, how)(Submit(title))
            sent.append(title)

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(send, f"waits {number}")
            await trio.sleep(10)
            assert sent == []
            busy.go()
        assert len(sent) == 5
        await quiet(busy.company)
        assert len(await busy.company.tasks()) == 1 + USER_MAX + 5


async def test_a_full_lane_of_submits_keeps_no_control_message_out(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_busy_company(db_path) as busy:
        busy.fill()
        busy.company.tell_nowait(Stop("first"))
        assert busy.depths == (USER_MAX, 1)


async def test_control_messages_have_a_bound_of_their_own(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_busy_company(db_path) as busy:
        for _ in range(SYSTEM_MAX):
            busy.company.tell_nowait(Pause())
        with pytest.raises(MailboxFull):
            busy.company.tell_nowait(Pause())
        busy.company.tell_nowait(Submit("there is room in the other lane"))


async def test_a_sender_who_gives_up_waiting_for_room_has_sent_nothing(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_busy_company(db_path) as busy:
        busy.fill()
        with trio.move_on_after(5) as scope:
            await busy.company.ask(Submit("given up", id="given up"))
        assert scope.cancelled_caught
        busy.go()
        await quiet(busy.company)
        with pytest.raises(TaskUnknown):
            await busy.company.status("given up")


async def test_a_message_that_was_put_stands_when_its_sender_gives_up(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_busy_company(db_path) as busy:
        with trio.move_on_after(5) as scope:
            await busy.company.ask(Submit("given up", id="x"))
        assert scope.cancelled_caught
        busy.go()
        await quiet(busy.company)
        assert (await busy.company.status("x")).state is WorkState.QUEUED


async def test_a_refused_tell_becomes_an_event_and_a_refused_ask_an_error_alone(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path, timeless=True) as runtime:
        company = runtime.company("k")
        with pytest.raises(TaskUnknown) as raised:
            await company.ask(Start("nobody"))
        await company.tell(Start("nobody"))
        company.tell_nowait(Start("nobody"))
        await quiet(company)
    refused = of_kind(stored_events(db_path), "message.refused")
    assert [(event.reason, event.data) for event in refused] == [
        (str(raised.value), {"message": "Start"})
    ] * 2


async def test_what_is_no_message_is_refused_where_it_is_sent(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path, timeless=True) as runtime:
        company = runtime.company("k")
        things: list[object] = [None, "stop", 5, Message(), Submit]
        for thing in things:
            with pytest.raises(InvalidMessage, match="a company can be told a message"):
                await company.ask(thing)  # type: ignore[arg-type]
            with pytest.raises(InvalidMessage):
                company.tell_nowait(thing)  # type: ignore[arg-type]
        assert inside(runtime).services.directory.cells == ()


async def test_who_waits_for_room_when_the_runtime_closes_is_told(
    db_path: Path, autojump_clock: MockClock
) -> None:
    ended: list[object] = []
    async with a_busy_company(db_path) as busy:
        busy.fill()

        async def send() -> None:
            try:
                ended.append(await busy.company.ask(Submit("late")))
            except TurnkeeperError as error:
                ended.append(error)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(send)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(lambda: busy.runtime.aclose(now=True))
            await trio.testing.wait_all_tasks_blocked()
            busy.go()
    assert len(ended) == 3


async def test_many_senders_of_many_companies_are_all_answered(
    db_path: Path, autojump_clock: MockClock
) -> None:
    answers: list[tuple[str, str]] = []

    async with a_host(db_path, timeless=True) as runtime:

        async def send(name: str, number: int) -> None:
            report = await runtime.company(name).ask(a_task(None, id=f"t{number}"))
            answers.append((name, report.id))

        async with trio.open_nursery() as nursery:
            for number in range(40):
                for name in ("a", "b", "c"):
                    nursery.start_soon(send, name, number)
        assert len(answers) == 120
        await idle(runtime)
        assert await settled(runtime.company("b"), "t39") == "completed"
