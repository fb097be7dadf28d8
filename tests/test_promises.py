"""The ten promises of the design, one after the other, each in its shortest form. Details have tests of their own."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import actors.core.decide
import actors.core.turn
import actors.runtime.company
import actors.runtime.mailbox
from actors import (
    ActorCrashed,
    Archive,
    Company,
    Context,
    NodeStatus,
    OutcomeUnknown,
    Pause,
    ReasonKind,
    Retry,
    RunStatus,
    Runtime,
    RuntimeClosed,
    SetLimits,
    Stop,
    Submit,
    SubmitMany,
    Unpause,
    WorkState,
)
from actors.handlers import freeze
from actors.host import run_runtime
from actors.messages import Message
from actors.messages.views import BLOCKING
from actors.runtime.log import event_of
from actors.runtime.options import Options
from actors.testing import VirtualClock, run_until_idle
from storage.contract.events import LogPlace, ReadLog
from storage.sqlite.connection import Connection

from .conftest import Opened
from .storage.connections import Flaky, sqlite_error

Check = Callable[[Runtime], Awaitable[None]]


class Outside:
    """What handlers do and wait for."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.keys: list[str] = []
        self.working: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self.go = trio.Event()

    async def work(self, ctx: Context) -> str:
        """A second of work, counted while it lasts."""
        self.started.append(ctx.task)
        self.keys.append(ctx.key)
        for name in (ctx.company.name, "all"):
            self.working[name] = self.working.get(name, 0) + 1
            self.most[name] = max(self.most.get(name, 0), self.working[name])
        await trio.sleep(1)
        for name in (ctx.company.name, "all"):
            self.working[name] -= 1
        return ctx.task

    async def waits(self, ctx: Context) -> str:
        self.keys.append(ctx.key)
        await self.go.wait()
        return "went"

    async def fails(self, ctx: Context) -> None:
        self.keys.append(ctx.key)
        raise ValueError("no luck")

    async def deaf(self, ctx: Context) -> str:
        """Does not hear that it is cancelled, for a minute."""
        self.keys.append(ctx.key)
        with trio.CancelScope(shield=True):
            await trio.sleep(60)
        return "late"

    def handlers(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("work", "waits", "fails", "deaf")}


@pytest.fixture
def outside() -> Outside:
    return Outside()


def _kinds(events: list[Any]) -> list[str]:
    return [event.kind for event in events]


# --- 1. queueing, not refusing ------------------------------------------------------------------------------


async def test_submitting_to_a_busy_company_never_fails_for_being_busy(
    opened: Opened, autojump_clock: MockClock, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors.runtime.mailbox, "USER_MAX", 5)
    async with opened(outside.handlers()) as runtime:
        acme, seqs = runtime.company("acme"), list[int]()
        await acme.ask(Submit("busy", handler="waits", id="busy"))

        async def submit() -> None:
            seqs.append((await acme.ask(Submit("more", handler="work"))).seq)

        async with trio.open_nursery() as nursery:
            for _ in range(30):
                nursery.start_soon(submit)
        assert sorted(seqs) == list(range(2, 32))
        outside.go.set()
        await run_until_idle(runtime)


# --- 2. order -----------------------------------------------------------------------------------------------


async def test_the_order_is_priority_as_a_number_and_then_submission(
    opened: Opened, autojump_clock: MockClock, outside: Outside
) -> None:
    async with opened(outside.handlers()) as runtime:
        acme = runtime.company("acme")
        await acme.ask(SetLimits(runs_max=0))
        for task, priority in {"ten": 10, "two": 2, "P2": "P2", "minus": -1, "default": None}.items():
            given = {} if priority is None else {"priority": priority}
            await acme.ask(Submit(task, handler="work", id=task, **given))  # type: ignore[arg-type]
        for number in range(1, 12):
            await acme.ask(Submit("many", handler="work", id=f"n{number}", priority=20))
        await acme.ask(SetLimits(runs_max=1))
        await run_until_idle(runtime)
        expected = ["minus", "two", "P2", "default", "ten", *(f"n{number}" for number in range(1, 12))]
        assert outside.started == expected


async def test_a_task_that_cannot_start_does_not_hold_up_the_line_and_a_retried_one_keeps_its_place(
    opened: Opened, autojump_clock: MockClock, outside: Outside
) -> None:
    async with opened(outside.handlers()) as runtime:
        acme = runtime.company("acme")
        await acme.ask(Submit("fails", handler="fails", id="f", tries_max=1))
        await acme.when_settled("f")
        await acme.ask(SetLimits(runs_max=0))
        await acme.ask(Submit("held", handler="work", id="held", mode="manual"))
        await acme.ask(Submit("blocked", handler="work", id="blocked", depends_on=["f"]))
        await acme.ask(Submit("free", handler="work", id="free"))
        await acme.ask(Retry("f"))
        assert [(status.id, status.position) for status in await acme.queue()] == [
            ("f", 1),
            ("held", 2),
            ("blocked", 3),
            ("free", 4),
        ]
        await acme.ask(SetLimits(runs_max=1))
        await run_until_idle(runtime)
        assert outside.started == ["free"]


# --- 3. admission -------------------------------------------------------------------------------------------


async def test_no_admission_goes_above_the_run_limit_nor_an_execution_above_the_other(
    opened: Opened, autojump_clock: MockClock, outside: Outside, check_runtime: Check
) -> None:
    async with opened(outside.handlers(), executions_max=3) as runtime:
        for name in ("acme", "bolt"):
            company = runtime.company(name)
            await company.ask(SetLimits(runs_max=2))
            await company.ask(SubmitMany([Submit("t", handler="work") for _ in range(8)]))
        await check_runtime(runtime)
        await run_until_idle(runtime)
        assert outside.most == {"acme": 2, "bolt": 2, "all": 3}


async def test_lowering_the_limit_stops_nothing_and_lets_nothing_in_until_the_count_is_below(
    opened: Opened, autojump_clock: MockClock, outside: Outside
) -> None:
    async with opened(outside.handlers()) as runtime:
        acme = runtime.company("acme")
        await acme.ask(SetLimits(runs_max=3))
        await acme.ask(SubmitMany([Submit("t", handler="work", id=f"t{n}") for n in range(6)]))
        await trio.sleep(0.5)
        await acme.ask(SetLimits(runs_max=1))
        running = [status.id for status in await acme.queue() if status.state is WorkState.RUNNING]
        assert running == ["t0", "t1", "t2"]
        outside.most.clear()
        await trio.sleep(1)
        await run_until_idle(runtime)
        assert outside.most["acme"] == 1
        assert sorted(outside.started[:3]) == ["t0", "t1", "t2"]
        assert outside.started[3:] == ["t3", "t4", "t5"]


@pytest.mark.planted
async def test_the_file_itself_refuses_a_run_above_the_limit_and_a_slot_that_is_taken(
    opened: Opened, autojump_clock: MockClock, outside: Outside, db_path: Path
) -> None:
    async with opened(outside.handlers()) as runtime:
        acme = runtime.company("acme")
        await acme.ask(
            SubmitMany([Submit("t", handler="waits", id=f"t{n}", mode="manual") for n in range(3)])
        )
    take = "UPDATE runs SET status = 'running', admitted_ms = 1, slot = ? WHERE seq = ?"
    raw = sqlite3.connect(db_path, isolation_level=None)
    try:
        raw.execute(take, (1, 1))
        with pytest.raises(sqlite3.IntegrityError, match="runs_max reached"):
            raw.execute(take, (2, 2))
        raw.execute("UPDATE companies SET runs_max = 3")
        with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
            raw.execute(take, (1, 2))
        with pytest.raises(sqlite3.IntegrityError, match="runs_max reached"):
            raw.execute("UPDATE companies SET runs_max = 1")
            raw.execute(
                "INSERT INTO runs (company_id, seq, number, status, created_ms, admitted_ms, slot)"
                " VALUES (1, 3, 2, 'running', 1, 1, 2)"
            )
    finally:
        raw.close()


# --- 4. no lie in the queue -----------------------------------------------------------------------------------


async def test_every_task_that_is_not_running_says_exactly_why(
    opened: Opened, autojump_clock: MockClock, outside: Outside
) -> None:
    async with opened(outside.handlers()) as runtime:
        acme = runtime.company("acme")
        await acme.ask(Submit("fails", handler="fails", id="f", tries_max=1))
        await acme.when_settled("f")
        await acme.ask(Submit("runs", handler="waits", id="r"))
        await acme.ask(Submit("next", handler="work", id="n"))
        await acme.ask(Submit("then", handler="work", id="t"))
        await acme.ask(Submit("waits", handler="work", id="w", depends_on=["n"]))
        await acme.ask(Submit("held", handler="work", id="h", mode="manual"))
        await acme.ask(Submit("blocked", handler="work", id="b", depends_on=["f"]))
        await acme.ask(Submit("blocked as well", handler="work", id="bb", depends_on=["b", "n"]))
        said = {
            status.id: (
                status.state.value,
                [(gate.kind.value, gate.tasks) for gate in (await acme.explain(status.id)).gates],
            )
            for status in await acme.queue()
        }
        slots = ("run_slots", ("r",))
        assert said == {
            "r": ("running", [("executing", ())]),
            "n": ("queued", [slots]),
            "t": ("queued", [slots, ("tasks_ahead", ("n",))]),
            "w": ("waiting", [("upstream_unfinished", ("n",)), slots, ("tasks_ahead", ("n", "t"))]),
            "h": ("held", [("manual", ()), slots, ("tasks_ahead", ("n", "t"))]),
            "b": ("blocked", [("upstream_failed", ("f",)), slots, ("tasks_ahead", ("n", "t"))]),
            "bb": (
                "blocked",
                [
                    ("upstream_blocked", ("b",)),
                    ("upstream_unfinished", ("n",)),
                    slots,
                    ("tasks_ahead", ("n", "t")),
                ],
            ),
        }
        outside.go.set()
        await run_until_idle(runtime)


async def test_what_is_blocked_is_free_the_moment_its_cause_is_gone(
    opened: Opened, autojump_clock: MockClock, outside: Outside, check_runtime: Check
) -> None:
    mended = trio.Event()

    async def mends(ctx: Context) -> str:
        if not mended.is_set():
            raise ValueError("broken")
        return "mended"

    async with opened({**outside.handlers(), "mends": mends}) as runtime:
        acme = runtime.company("acme")
        chain = [
            Submit("t", handler="work", id=f"t{n}", depends_on=[f"t{n - 1}" if n else "f"]) for n in range(5)
        ]
        await acme.ask(SubmitMany([Submit("f", handler="mends", id="f", tries_max=1), *chain]))
        await acme.when_settled("f")
        assert {(await acme.status(f"t{n}")).state for n in range(5)} == {WorkState.BLOCKED}
        mended.set()
        await acme.ask(Retry("f"))
        assert (await acme.status("t4")).state is WorkState.WAITING
        await check_runtime(runtime)
        await run_until_idle(runtime)
        assert outside.started == [f"t{n}" for n in range(5)]
        told = [(event.kind, event.data["cause"], event.data["count"]) for event in await _tasks_events(acme)]
        assert told == [("tasks.blocked", "f", 5), ("tasks.unblocked", "f", 5)]


async def _tasks_events(company: Company) -> list[Any]:
    read = await company._services.store.fetch(ReadLog(None, LogPlace(), 1000))
    return [event for event in map(event_of, read.lines) if event.kind.startswith("tasks.")]


def test_reasons_that_block_are_those_that_no_waiting_ends() -> None:
    waits = {kind for kind in ReasonKind if kind.name.startswith("UPSTREAM")} - {
        ReasonKind.UPSTREAM_UNFINISHED
    }
    missing = {
        ReasonKind.DEPENDENCY_CYCLE,
        ReasonKind.RUN_MISSING,
        ReasonKind.HANDLER_MISSING,
        ReasonKind.GRAPH_MISSING,
    }
    assert waits | missing == BLOCKING


# --- 5. nothing is lost: tests/crash ----------------------------------------------------------------------------


async def test_what_was_asked_for_is_there_after_the_next_start(
    opened: Opened, autojump_clock: MockClock, outside: Outside
) -> None:
    async with opened(outside.handlers()) as runtime:
        acme = runtime.company("acme")
        await acme.ask(Pause())
        await acme.ask(SetLimits(runs_max=7))
        submitted = await acme.ask(Submit("t", handler="work", id="t", key="k", priority=5, goal="g"))
        await acme.ask(Submit("away", id="a", mode="manual"))
        await acme.ask(Archive("a"))
        before = await acme.tasks(archived=True)
    async with opened(outside.handlers()) as runtime:
        acme = runtime.company("acme")
        assert await acme.tasks(archived=True) == before
        again = await acme.ask(Submit("t", handler="work", id="t", key="k", priority=5, goal="g"))
        assert (again.id, again.seq, again.existing) == (submitted.id, submitted.seq, True)
        settings = await acme.ask(SetLimits(runs_max=7))
        assert (settings.paused, settings.runs_max, settings.changed) == (True, 7, False)
        await acme.ask(Unpause())
        await run_until_idle(runtime)


# --- 6. at least once, accepted once ----------------------------------------------------------------------------


async def test_a_result_that_comes_after_the_stop_was_committed_changes_nothing(
    opened: Opened, autojump_clock: MockClock, outside: Outside
) -> None:
    async with opened(outside.handlers(), stop_grace_s=120) as runtime:
        acme = runtime.company("acme")
        await acme.ask(Submit("t", handler="deaf", id="t"))
        await trio.sleep(1)
        await acme.ask(Stop("t"))
        outcome = await acme.when_settled("t")
        assert (outcome.status, outcome.result) == (RunStatus.STOPPED, {})
        (attempt,) = await acme.attempts("t")
        assert attempt.end is not None
        assert attempt.end.value == "stopped"


async def test_a_result_of_an_attempt_that_was_left_behind_is_late_and_changes_nothing(
    opened: Opened, autojump_clock: MockClock, outside: Outside
) -> None:
    async with opened(outside.handlers(), stop_grace_s=1) as runtime:
        acme = runtime.company("acme")
        await acme.ask(Submit("t", handler="deaf", id="t"))
        await trio.sleep(1)
        await acme.ask(Stop("t"))
        await acme.when_settled("t")
        await acme.ask(Retry("t"))
        await trio.sleep(100)
        told = [(event.kind, event.attempt) for event in await acme.timeline("t") if event.attempt]
        assert told == [
            ("attempt.started", 1),
            ("attempt.abandoned", 1),
            ("attempt.stopped", 1),
            ("attempt.started", 2),
            ("attempt.late", 1),
            ("attempt.succeeded", 2),
        ]
        assert outside.keys == ["acme/t/1/deaf/0"] * 2


async def test_the_idempotency_key_is_the_same_over_retries_and_a_person_s_retry(
    opened: Opened, autojump_clock: MockClock, outside: Outside
) -> None:
    async with opened(outside.handlers()) as runtime:
        acme = runtime.company("acme")
        await acme.ask(Submit("t", handler="fails", id="t", tries_max=2))
        await acme.when_settled("t")
        await acme.ask(Retry("t"))
        await run_until_idle(runtime)
        assert outside.keys == ["acme/t/1/fails/0"] * 4


@pytest.mark.planted
async def test_the_file_itself_refuses_a_second_result_of_one_generation(
    opened: Opened, autojump_clock: MockClock, outside: Outside, db_path: Path
) -> None:
    async with opened(outside.handlers()) as runtime:
        acme = runtime.company("acme")
        await acme.ask(Submit("t", handler="fails", id="t", tries_max=2))
        await acme.when_settled("t")
    raw = sqlite3.connect(db_path, isolation_level=None)
    try:
        raw.execute("UPDATE attempts SET end = 'succeeded' WHERE number = 1")
        with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
            raw.execute("UPDATE attempts SET end = 'succeeded' WHERE number = 2")
        with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
            raw.execute("UPDATE nodes SET result = '1'")
    finally:
        raw.close()


# --- 7. failed means given up -----------------------------------------------------------------------------------


async def test_a_failure_that_is_retried_leaves_its_error_shown_and_an_interruption_does_not_overwrite_it(
    opened: Opened, autojump_clock: MockClock, outside: Outside
) -> None:
    async def silent(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise KeyError
        await trio.sleep_forever()

    async with opened({"silent": silent}) as runtime:
        acme = runtime.company("acme")
        await acme.ask(Submit("t", handler="silent", id="t"))
        await trio.sleep(0.5)
        (node,) = (await acme.status("t")).nodes
        assert (node.status, node.error, node.tries) == (NodeStatus.PENDING, "KeyError", 1)
        assert (await acme.status("t")).state is WorkState.RUNNING
        await trio.sleep(2)
        (node,) = (await acme.status("t")).nodes
        assert (node.status, node.error, node.tries) == (NodeStatus.RUNNING, None, 1)
        await runtime.aclose(now=True)
        (node,) = (await acme.status("t")).nodes
        assert (node.status, node.error, node.tries) == (NodeStatus.PENDING, None, 1)


async def test_a_node_is_tried_exactly_as_often_as_it_may(
    opened: Opened, autojump_clock: MockClock, outside: Outside
) -> None:
    async with opened(outside.handlers()) as runtime:
        acme = runtime.company("acme")
        for tries in (1, 2, 4):
            await acme.ask(Submit("t", handler="fails", id=f"t{tries}", tries_max=tries))
            outcome = await acme.when_settled(f"t{tries}")
            assert (outcome.status, outcome.reason) == (RunStatus.FAILED, "ValueError: no luck")
            assert len(await acme.attempts(f"t{tries}")) == tries


# --- 8. one company's trouble is its own ------------------------------------------------------------------------


async def test_an_actor_that_crashes_and_a_handler_that_raises_are_no_one_else_s_trouble(
    opened: Opened, autojump_clock: MockClock, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = actors.core.decide.decide

    def treacherous(draft: Any, message: Message[Any], prefetched: Any) -> object:
        if isinstance(message, Submit) and message.title == "poison":
            raise ZeroDivisionError("planted")
        return decide(draft, message, prefetched)

    async def raises(ctx: Context) -> None:
        raise BaseExceptionGroup("all", [SystemExit(1), GeneratorExit()])

    monkeypatch.setattr(actors.core.turn, "decide", treacherous)
    async with opened({**outside.handlers(), "raises": raises}) as runtime:
        bolt, acme = runtime.company("bolt"), runtime.company("acme")
        await acme.ask(Submit("t", handler="work", id="t"))
        await bolt.ask(Submit("raises", handler="raises", id="r", tries_max=1))
        with pytest.raises(ActorCrashed, match="planted") as caught:
            await bolt.ask(Submit("poison", handler="work"))
        assert caught.value.happened is False
        await bolt.ask(Submit("good", handler="work", id="good"))
        await run_until_idle(runtime)
        assert (await acme.status("t")).state is WorkState.COMPLETED
        assert (await bolt.status("good")).state is WorkState.COMPLETED
        assert (await bolt.status("r")).state is WorkState.FAILED


# --- 9. a message is answered -----------------------------------------------------------------------------------


async def test_every_ask_is_answered_also_when_the_runtime_closes(
    opened: Opened, autojump_clock: MockClock, outside: Outside
) -> None:
    answered: list[str] = []
    async with opened(outside.handlers()) as runtime:
        acme = runtime.company("acme")

        async def ask(number: int) -> None:
            try:
                await acme.ask(Submit("t", id=f"t{number}", mode="manual"))
                answered.append("stored")
            except RuntimeClosed:
                answered.append("closed")

        async with trio.open_nursery() as nursery:
            for number in range(300):
                nursery.start_soon(ask, number)
            await trio.lowlevel.checkpoint()
            await runtime.aclose(now=True)
            with trio.fail_after(10):
                while len(answered) < 300:
                    await trio.sleep(0.1)
        assert len(await acme.tasks()) == answered.count("stored")
        with pytest.raises(RuntimeClosed):
            await acme.ask(Submit("too late"))


async def test_every_ask_is_answered_also_when_the_store_is_away_and_the_runtime_closes(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is under way, what waits in the mailbox, and who waits for room in it."""
    monkeypatch.setattr(actors.runtime.mailbox, "USER_MAX", 5)
    answered: list[type[BaseException]] = []
    stores: list[Flaky] = []

    def wrap(connection: Connection) -> Connection:
        stores.append(Flaky(connection))
        return stores[0]

    async def ask(company: Company) -> None:
        try:
            await company.ask(Submit("t", mode="manual"))
        except (RuntimeClosed, OutcomeUnknown) as error:
            answered.append(type(error))

    options = Options(freeze({}), clock_ms=VirtualClock())
    async with (
        run_runtime(db_path, options, how="inline", wrap=wrap) as runtime,
        trio.open_nursery() as nursery,
    ):
        await runtime.company("acme").ask(Submit("stored", mode="manual"))
        stores[0].down = sqlite_error(sqlite3.SQLITE_FULL)
        for _ in range(20):
            nursery.start_soon(ask, runtime.company("acme"))
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(600):
            await runtime.aclose(now=True)
            await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert len(answered) == 20
    assert RuntimeClosed in answered


# --- 10. the log is complete ------------------------------------------------------------------------------------


async def test_the_whole_story_of_a_task_is_told_in_its_order(
    opened: Opened, autojump_clock: MockClock, outside: Outside
) -> None:
    async with opened(outside.handlers()) as runtime:
        acme = runtime.company("acme")
        await acme.ask(Submit("t", handler="fails", id="t", tries_max=2))
        await acme.when_settled("t")
        await acme.ask(Archive("t"))
        events = await acme.timeline("t")
        assert [(event.kind, event.before, event.after) for event in events] == [
            ("task.submitted", None, "queued"),
            ("run.admitted", "queued", "running"),
            ("attempt.started", "pending", "running"),
            ("attempt.failed", "running", "pending"),
            ("attempt.started", "pending", "running"),
            ("attempt.failed", "running", "failed"),
            ("run.failed", "running", "failed"),
            ("task.archived", None, None),
        ]
        assert [event.seq for event in events] == list(range(1, 9))
