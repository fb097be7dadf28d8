"""Attempts that end once, retries that come once, and waiting for oneself: cases of other systems."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
from trio.testing import MockClock

from actors import (
    AttemptEnd,
    Backoff,
    Company,
    Context,
    MailboxFull,
    Message,
    Node,
    Pause,
    ReasonKind,
    Retry,
    Runtime,
    SetLimits,
    Stop,
    Submit,
    Unpause,
    WorkState,
    WouldDeadlock,
)
from tests.conftest import Opened
from tests.runtime.support import idle, of_kind, stored_events

# --- C12: cancelled becomes successful later ----------------------------------------------------------------------


@pytest.mark.parametrize("returns", ["a success", "a failure"])
@pytest.mark.parametrize("times", [1, 2])
async def test_what_was_stopped_by_force_stays_stopped_whatever_its_handler_returns_ten_seconds_later(
    opened: Opened, autojump_clock: MockClock, db_path: Path, returns: str, times: int
) -> None:
    """C12. Twice means: stopped, tried again, stopped again, and both return."""
    began = trio.Event()

    async def work(_ctx: Context) -> str:
        began.set()
        with trio.CancelScope(shield=True):
            await trio.sleep(10)
        if returns == "a failure":
            raise ValueError("too late")
        return "too late"

    async with opened({"work": work}, stop_grace_s=1) as runtime:
        company = runtime.company("k")
        await company.ask(Submit("a", handler="work", id="a"))
        await company.ask(Submit("b", handler="work", id="b", depends_on=["a"]))
        for number in range(times):
            if number:
                await company.ask(Retry("a"))
            await began.wait()
            began = trio.Event()
            await company.ask(Stop("a"))
            assert (await company.when_settled("a")).status.value == "stopped"
        facts = await company.status("a"), await company.attempts("a"), await company.result("a")
        with structlog.testing.capture_logs() as hooks:
            await trio.sleep(20)
            await idle(runtime)
        assert runtime.registry.abandoned == (), "all have returned"
        assert (await company.status("a"), await company.attempts("a"), await company.result("a")) == facts
        assert [view.end for view in facts[1]] == [AttemptEnd.STOPPED] * times
        dependent = await company.status("b")
        assert (dependent.state, dependent.run_status.value if dependent.run_status else None) == (
            WorkState.BLOCKED,
            "queued",
        )
        assert [reason.kind for reason in dependent.reasons] == [ReasonKind.UPSTREAM_STOPPED]
    assert [line["event"] for line in hooks] == ["attempt.late"] * times
    events = stored_events(db_path)
    outcome = "succeeded" if returns == "a success" else "stopped"
    assert [event.data["outcome"] for event in of_kind(events, "attempt.late")] == [outcome] * times
    assert of_kind(events, "attempt.succeeded", "attempt.failed", "run.completed") == []


# --- C32: the old timer of a retry meets what was resumed ---------------------------------------------------------


async def resumes_by_pause(company: Company) -> None:
    await company.ask(Pause())
    await trio.sleep(1)
    await company.ask(Unpause())


async def resumes_by_stop(company: Company) -> None:
    await company.ask(Stop("a"))
    await trio.sleep(1)
    await company.ask(Retry("a"))


async def resumes_by_retry_now(company: Company) -> None:
    await trio.sleep(1)
    await company.ask(Retry("a"))


@pytest.mark.parametrize(
    ("resumes", "from_s", "to_s", "tries"),
    [(resumes_by_pause, 30, 33.1, 1), (resumes_by_stop, 6, 6.1, 0), (resumes_by_retry_now, 6, 6.1, 1)],
)
async def test_the_old_time_of_a_retry_means_nothing_to_what_was_resumed_before_it(
    opened: Opened, autojump_clock: MockClock, resumes: Any, from_s: float, to_s: float, tries: int
) -> None:
    """C32: due in 30 s; paused at 5, resumed at 6, and the old time comes while the second attempt executes."""
    began: list[float] = []

    async def work(_ctx: Context) -> str:
        began.append(trio.current_time() - begin_s)
        if len(began) == 1:
            raise ValueError("no luck")
        await trio.sleep(100)
        return "done"

    async with opened({"work": work}, executions_max=5) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=5))
        begin_s = trio.current_time()
        node = Node("n", "work", retry=Backoff(base_s=30, factor=1))
        await company.ask(Submit("a", nodes=[node], id="a"))
        await company.when_idle()
        await trio.sleep(5)
        await resumes(company)
        with trio.move_on_after(40):
            while True:
                assert sum(a.ref.company == "k" for a in runtime.registry) <= 1
                await trio.sleep(1)
        assert (await company.status("a")).nodes[0].tries == tries
        assert (await company.when_settled("a")).result == {"n": "done"}
        await idle(runtime)
        first_s, second_s = began
        assert first_s < 0.1
        assert from_s <= second_s <= to_s, "the jitter is up to a tenth"
        assert [view.end for view in await company.attempts("a")] == [
            AttemptEnd.FAILED,
            AttemptEnd.SUCCEEDED,
        ]


# --- C69: an actor that waits for itself --------------------------------------------------------------------------


async def stops_itself(company: Company, _runtime: Runtime) -> object:
    return (await company.ask(Stop("self"))).status


async def stops_itself_and_waits_for_it(company: Company, _runtime: Runtime) -> object:
    await company.ask(Stop("self"))
    return await company.when_settled("self")


async def waits_for_itself(company: Company, _runtime: Runtime) -> object:
    return await company.when_settled("self")


async def waits_for_its_company(company: Company, _runtime: Runtime) -> object:
    await company.when_idle()
    return "idle"


async def closes(_company: Company, runtime: Runtime) -> object:
    return await runtime.aclose(now=True)


async def drains(_company: Company, runtime: Runtime) -> object:
    return await runtime.drain()


async def adds_a_task(company: Company, _runtime: Runtime) -> object:
    return (await company.ask(Submit("child", handler="ok"))).id


async def adds_a_task_and_waits_for_it(company: Company, _runtime: Runtime) -> object:
    """It would need the run slot that the one who waits holds."""
    child = await company.ask(Submit("child", handler="ok"))
    return await company.when_settled(child.id)


ENDS: Mapping[Any, AttemptEnd] = {
    stops_itself: AttemptEnd.STOPPED,
    stops_itself_and_waits_for_it: AttemptEnd.STOPPED,
    waits_for_itself: AttemptEnd.FAILED,
    waits_for_its_company: AttemptEnd.FAILED,
    closes: AttemptEnd.FAILED,
    drains: AttemptEnd.FAILED,
    adds_a_task: AttemptEnd.SUCCEEDED,
    adds_a_task_and_waits_for_it: AttemptEnd.FAILED,
}


@pytest.mark.parametrize("act", ENDS)
async def test_what_a_handler_asks_of_its_own_company_completes_or_says_at_once_that_it_never_would(
    opened: Opened, autojump_clock: MockClock, act: Any
) -> None:
    """C69."""
    runtimes: list[Runtime] = []
    raised: list[BaseException] = []

    async def ok(_ctx: Context) -> None:
        pass

    async def work(ctx: Context) -> object:
        try:
            return str(await act(ctx.company, runtimes[0]))
        except BaseException as error:
            raised.append(error)
            raise

    async with opened({"work": work, "ok": ok}) as runtime:
        runtimes.append(runtime)
        company = runtime.company("k")
        await company.ask(Submit("self", handler="work", id="self", tries_max=1))
        with trio.fail_after(1):
            await company.when_settled("self")
        assert [view.end for view in await company.attempts("self")] == [ENDS[act]]
        if ENDS[act] is AttemptEnd.FAILED:
            assert [type(error) for error in raised] == [WouldDeadlock]
        assert not runtime.closing


async def test_two_companies_whose_handlers_ask_each_other_at_once_both_go_on(
    opened: Opened, autojump_clock: MockClock
) -> None:
    """C69: each asks while the other waits for its answer."""
    both = [trio.Event(), trio.Event()]
    companies: list[Company] = []

    async def ok(_ctx: Context) -> None:
        pass

    async def work(ctx: Context) -> list[str]:
        me = 0 if ctx.company.name == "k1" else 1
        both[me].set()
        await both[1 - me].wait()
        other = companies[1 - me]
        messages: list[Message[Any]] = [
            Submit("child", handler="ok", id="child"),
            SetLimits(runs_max=2),
            Stop("child"),
        ]
        return [type(await other.ask(message)).__name__ for message in messages]

    async with opened({"work": work, "ok": ok}) as runtime:
        companies += [runtime.company("k1"), runtime.company("k2")]
        for company in companies:
            await company.ask(Submit("self", handler="work", id="self"))
        with trio.fail_after(1):
            results = [await company.when_settled("self") for company in companies]
        assert [outcome.result for outcome in results] == [
            {"work": ["Submitted", "CompanySettings", "Moved"]},
            {"work": ["Submitted", "CompanySettings", "Moved"]},
        ]


async def test_a_hook_of_the_log_may_speak_to_the_company_in_whose_turn_it_is_called(
    opened: Opened, autojump_clock: MockClock
) -> None:
    """C69: the host's structlog processors run within the turn, so they can only tell, and never wait."""
    companies: list[Company] = []
    refused: list[BaseException] = []

    async def ok(_ctx: Context) -> None:
        pass

    def hook(_logger: object, _method: str, entry: Any) -> str:
        if entry["event"] == "run.completed" and entry["task"] != "child":
            try:
                companies[0].tell_nowait(Submit("child", handler="ok", id="child"))
            except MailboxFull as error:
                refused.append(error)
        raise structlog.DropEvent

    structlog.configure(processors=[hook], cache_logger_on_first_use=False)
    try:
        async with opened({"ok": ok}) as runtime:
            companies.append(runtime.company("k"))
            await companies[0].ask(Submit("self", handler="ok", id="self"))
            with trio.fail_after(1):
                await companies[0].when_settled("self")
                await idle(runtime)
            assert (await companies[0].status("child")).state is WorkState.COMPLETED
    finally:
        structlog.reset_defaults()
    assert refused == []
