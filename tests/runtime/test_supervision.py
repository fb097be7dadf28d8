"""Actors that crash are started again after a rest that grows; one company's crashes are its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

import actors.core.decide
from actors import (
    ActorCrashed,
    Company,
    CompanyParked,
    Context,
    ReasonKind,
    RuntimeClosed,
    Stop,
    Submit,
    Unpark,
    WorkState,
)
from actors.core.restart import PARKED_ABOVE_S, QUIET_S, add_crash, delay_s
from actors.runtime.company import CompanyActor
from actors.runtime.execution import Executor
from storage.contract.companies import ClaimCompany
from tests.runtime.support import (
    Gated,
    GatedConnection,
    Wrapper,
    a_host,
    a_task,
    idle,
    kinds,
    of_kind,
    quiet,
    settled,
    sql,
    stored_events,
)

# --- the rest, as arithmetic ----------------------------------------------------------------------------------------


def test_the_rest_after_each_crash_in_a_row_doubles_up_to_a_minute() -> None:
    assert [delay_s(crashes) for crashes in range(11)] == [0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert delay_s(10**9) == 60


def test_a_quiet_minute_after_the_rest_forgets_the_crashes() -> None:
    crashes: tuple[float, ...] = ()
    now = 0.0
    for _ in range(4):
        crashes = add_crash(crashes, now)
        now += 1
    assert len(crashes) == 4
    last = crashes[-1]
    assert add_crash(crashes, last + QUIET_S + delay_s(4) - 0.001) == (*crashes, last + QUIET_S + 3.999)
    assert add_crash(crashes, last + QUIET_S + delay_s(4)) == (last + QUIET_S + 4,)


# --- the rest, as it is -----------------------------------------------------------------------------------------------


@attrs.define
class Broken:
    """While it is set, every message to these companies makes the actor crash."""

    companies: set[str] = attrs.field(factory=set)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Broken:
    made = Broken()
    decide = actors.core.decide.decide

    def bad_decide(draft: Any, message: Any, looked: Any) -> object:
        if draft.state.company.name in made.companies:
            raise ZeroDivisionError("a mistake of ours")
        return decide(draft, message, looked)

    monkeypatch.setattr("actors.runtime.company.decide", bad_decide)
    return made


async def crash(company: Company) -> None:
    with pytest.raises(ActorCrashed):
        await company.ask(Submit("makes it crash"))


async def times_of_rest(company: Company, crashes: int) -> list[float]:
    """How long an ask after each of so many crashes waits for the next actor; parked ones are waited out."""
    rests: list[float] = []
    for _ in range(crashes):
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        while True:
            try:
                await crash(company)
                break
            except CompanyParked as parked:
                await trio.sleep(parked.wait_s)
                await trio.testing.wait_all_tasks_blocked()
        rests.append(trio.current_time() - began)
    return rests


async def test_crashes_that_come_every_half_minute_are_in_a_row_though_the_company_has_nothing_to_do_between(
    db_path: Path, autojump_clock: MockClock, broken: Broken
) -> None:
    broken.companies.add("k")
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        for _ in range(4):
            await crash(company)
            await trio.sleep(30)
        await crash(company)
        with pytest.raises(CompanyParked):
            await trio.testing.wait_all_tasks_blocked()
            await company.ask(Submit("x"))
        await trio.sleep(600)
        assert runtime.supervisor.cells == (), "in the end it leaves"


async def test_a_crashed_actor_is_started_again_after_0_1_2_4_seconds_and_so_on_up_to_60(
    db_path: Path, autojump_clock: MockClock, broken: Broken
) -> None:
    broken.companies.add("k")
    async with a_host(db_path) as runtime:
        rests = await times_of_rest(runtime.company("k"), 11)
    assert rests == pytest.approx([0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60], abs=0.01)
    parked = of_kind(stored_events(db_path), "company.parked")
    assert [event.data["wait_s"] for event in parked] == [8, 16, 32, 60, 60, 60, 60]
    assert {event.data["cause"] for event in parked} == {"ZeroDivisionError: a mistake of ours"}


async def test_a_quiet_minute_and_it_begins_anew(
    db_path: Path, autojump_clock: MockClock, broken: Broken
) -> None:
    broken.companies.add("k")
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await times_of_rest(company, 4)
        await trio.sleep(QUIET_S + 4)
        rests = await times_of_rest(company, 3)
    assert rests == pytest.approx([0, 0, 1], abs=0.01)


async def parked_company(company: Company, broken: Broken) -> CompanyParked:
    """Crash it until it is parked, and return what an ask is told."""
    broken.companies.add(company.name)
    for _ in range(5):
        await crash(company)
    broken.companies.clear()
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(CompanyParked) as raised:
        await company.ask(Submit("is not taken"))
    return raised.value


async def test_messages_to_a_parked_company_are_told_the_cause_and_how_long(
    db_path: Path, autojump_clock: MockClock, broken: Broken
) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        parked = await parked_company(company, broken)
        assert (parked.company, parked.cause) == ("k", "ZeroDivisionError: a mistake of ours")
        assert 0 < parked.wait_s <= 8
        for send in (company.ask, company.tell):
            with pytest.raises(CompanyParked):
                await send(Submit("is not taken"))
        with pytest.raises(CompanyParked):
            company.tell_nowait(Submit("is not taken"))
        await trio.sleep(parked.wait_s)
        await trio.testing.wait_all_tasks_blocked()
        await company.ask(Submit("is taken", id="x"))
        assert [status.id for status in await company.tasks()] == ["x"]
    assert PARKED_ABOVE_S == 5


async def test_who_asked_before_it_was_parked_is_told_as_well_and_what_was_told_is_kept(
    db_path: Path, autojump_clock: MockClock, broken: Broken
) -> None:
    outcomes: list[object] = []

    async def ask(company: Company) -> None:
        try:
            outcomes.append(await company.ask(Submit("asked")))
        except Exception as error:
            outcomes.append(error)

    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        broken.companies.add("k")
        for _ in range(4):
            await crash(company)
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask, company)
            await trio.testing.wait_all_tasks_blocked()
            company.tell_nowait(Submit("told", id="told"))
            await trio.sleep(4.5)
            broken.companies.clear()
        assert sorted(type(outcome).__name__ for outcome in outcomes) == [
            "ActorCrashed",
            "CompanyParked",
            "CompanyParked",
        ]
        await trio.sleep(60)
        assert await settled(company, "told") == "completed"


async def test_while_it_is_parked_its_tasks_say_so_and_can_be_read(
    db_path: Path, autojump_clock: MockClock, broken: Broken
) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a", mode="manual"))
        parked = await parked_company(company, broken)
        gates = {reason.kind: reason for reason in (await company.explain("a")).gates}
        assert gates[ReasonKind.COMPANY_PARKED].text == parked.cause
        assert [status.state for status in await company.queue()] == [WorkState.HELD]


async def test_attempts_of_a_parked_company_go_on_and_are_recorded_afterwards(
    db_path: Path, autojump_clock: MockClock, broken: Broken
) -> None:
    work = Gated()
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await work.has_started()
        await parked_company(company, broken)
        work.open.set()
        assert await settled(company, "a") == "completed"
        assert len(await company.attempts("a")) == 1


async def test_unpark_ends_the_rest_at_once_and_forgets_the_crashes(
    db_path: Path, autojump_clock: MockClock, broken: Broken
) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await parked_company(company, broken)
        began = trio.current_time()
        assert (await company.ask(Unpark())).was_parked
        report = await company.ask(a_task("ok"))
        assert await settled(company, report.id) == "completed"
        assert trio.current_time() == began
        broken.companies.add("k")
        assert await times_of_rest(company, 3) == pytest.approx([0, 0, 1], abs=0.01)
        broken.companies.clear()
    told = of_kind(stored_events(db_path), "company.parked", "company.unparked")
    assert kinds(told) == ["company.parked", "company.unparked"]


async def test_unpark_of_a_company_that_is_not_parked_says_so(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        assert not (await runtime.company("k").ask(Unpark())).was_parked
    assert of_kind(stored_events(db_path), "company.unparked") == []


async def test_one_company_s_poison_uses_up_nobody_else_s_allowance(
    db_path: Path, autojump_clock: MockClock, broken: Broken
) -> None:
    """C61's last line."""
    async with a_host(db_path) as runtime:
        await parked_company(runtime.company("bad"), broken)
        broken.companies.add("good")
        assert await times_of_rest(runtime.company("good"), 2) == pytest.approx([0, 0], abs=0.01)


async def test_closing_does_not_wait_for_a_parked_company_s_rest(
    db_path: Path, autojump_clock: MockClock, broken: Broken
) -> None:
    work = Gated()
    async with a_host(db_path, {"work": work}, drain_s=0) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await work.has_started()
        await parked_company(company, broken)
        began = trio.current_time()
        await runtime.aclose()
        assert trio.current_time() - began < 1
    assert len(of_kind(stored_events(db_path), "attempt.interrupted")) == 1


# --- the watcher itself -----------------------------------------------------------------------------------------------


async def test_a_crash_that_cannot_even_be_written_down_reaches_nobody(
    db_path: Path, autojump_clock: MockClock, broken: Broken
) -> None:
    async with a_host(db_path) as runtime:
        sql(
            db_path,
            "CREATE TRIGGER no_crash BEFORE INSERT ON events WHEN NEW.kind = 'actor.crashed'"
            " BEGIN SELECT RAISE(ABORT, 'not even that'); END",
        )
        bad = runtime.company("bad")
        broken.companies.add("bad")
        await crash(bad)
        broken.companies.clear()
        other = await runtime.company("good").ask(a_task("ok"))
        assert await settled(runtime.company("good"), other.id) == "completed"
        report = await bad.ask(a_task("ok"))
        assert await settled(bad, report.id) == "completed"


async def test_a_company_that_cannot_even_be_made_reaches_nobody(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        sql(
            db_path,
            "CREATE TRIGGER no_company BEFORE INSERT ON companies WHEN NEW.name = 'bad'"
            " BEGIN SELECT RAISE(ABORT, 'not this one'); END",
        )
        with trio.move_on_after(300) as scope:
            with pytest.raises(CompanyParked):
                await runtime.company("bad").ask(Submit("x"))
        assert not scope.cancelled_caught
        other = await runtime.company("good").ask(a_task("ok"))
        assert await settled(runtime.company("good"), other.id) == "completed"


async def test_an_actor_that_was_replaced_ends_and_is_not_started_again(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """StaleEpoch: somebody else owns the company now."""
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a"))
        await idle(runtime)
        cell = runtime.supervisor.find("k")
        assert cell is not None
        await runtime.database.commit(ClaimCompany("k", create=True))
        with pytest.raises(RuntimeClosed, match="a newer actor owns the company"):
            await company.ask(Submit("comes too late", id="late"))
        await trio.testing.wait_all_tasks_blocked()
        assert runtime.supervisor.find("k") is None
        assert "late" not in {status.id for status in await company.tasks()}
    assert of_kind(stored_events(db_path), "actor.crashed") == []
    assert sql(db_path, "SELECT epoch FROM companies") == [(2,)]


async def test_a_replaced_actor_s_attempts_are_the_next_one_s_to_judge(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Gated()
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await work.has_started()
        await runtime.database.commit(ClaimCompany("k", create=True))
        with pytest.raises(RuntimeClosed):
            await company.ask(Submit("comes too late"))
        work.open.set()
        assert await settled(company, "a") == "completed"
        assert len(await company.attempts("a")) == 1


# --- adoption ---------------------------------------------------------------------------------------------------------


async def test_attempts_that_live_are_adopted_by_the_next_actor_and_run_only_once(
    db_path: Path, autojump_clock: MockClock, broken: Broken
) -> None:
    work = Gated("of the only attempt")
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await work.has_started()
        broken.companies.add("k")
        for _ in range(3):
            await crash(company)
        broken.companies.clear()
        await company.ask(a_task("ok", id="b"))
        assert (await company.status("a")).state is WorkState.RUNNING
        work.open.set()
        assert (await company.when_settled("a")).result == {"work": "of the only attempt"}
        assert await settled(company, "b") == "completed"
    assert len(work.contexts) == 1
    assert len(of_kind(stored_events(db_path), "attempt.started")) == 2


async def test_what_is_written_for_a_company_while_its_actor_is_replaced_is_written_under_the_new_claim(
    db_path: Path, autojump_clock: MockClock, broken: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process of an attempt is asked to be recorded while the next actor waits for its claim."""
    go, told = trio.Event(), trio.Event()
    gate, claim = Wrapper(GatedConnection), CompanyActor._claim

    def claim_slowly(actor: CompanyActor) -> Any:
        gate.made.shut()
        return claim(actor)

    async def work(ctx: Context) -> None:
        await go.wait()
        await ctx.record_process(4_242, "then")
        told.set()
        await trio.sleep(1)

    async with a_host(db_path, {"work": work}, wrap=gate) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        monkeypatch.setattr(CompanyActor, "_claim", claim_slowly)
        broken.companies.add("k")
        await crash(company)
        broken.companies.clear()
        await (
            trio.testing.wait_all_tasks_blocked()
        )  # the claim stands at the gate: what is recorded comes after it
        go.set()
        await trio.testing.wait_all_tasks_blocked()
        early = told.is_set()
        gate.made.let_go()
        assert not early
        await told.wait()
        assert sql(db_path, "SELECT pid, pid_started FROM attempts") == [(4_242, "then")]
        assert sql(db_path, "SELECT epoch FROM companies") == [(2,)]
        assert await settled(company, "a") == "completed"


async def test_an_attempt_that_ends_while_there_is_no_actor_is_told_of_again(
    db_path: Path, autojump_clock: MockClock, broken: Broken
) -> None:
    work = Gated()
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await work.has_started()
        broken.companies.add("k")
        for _ in range(4):
            await crash(company)
        work.open.set()  # the actor rests for 4 seconds now
        broken.companies.clear()
        await trio.testing.wait_all_tasks_blocked()
        assert len(runtime.registry) == 1
        assert await settled(company, "a") == "completed"
    told = kinds(of_kind(stored_events(db_path), "attempt.succeeded", "attempt.late", "attempt.interrupted"))
    assert told == ["attempt.succeeded"], "once, and as what it was"


async def test_an_attempt_that_ends_while_the_next_actor_loads_is_told_of_once(
    db_path: Path, autojump_clock: MockClock, broken: Broken
) -> None:
    """At every step of loading."""
    for steps in range(12):
        work = Gated()
        async with a_host(db_path, {"work": work}) as runtime:
            company = runtime.company(f"k{steps}")
            await company.ask(a_task("work", id="a"))
            await work.has_started()
            broken.companies.add(company.name)
            company.tell_nowait(Submit("makes it crash"))
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            work.open.set()
            await trio.testing.wait_all_tasks_blocked()
            broken.companies.clear()
            assert await settled(company, "a") == "completed"
            await quiet(company)
    told = of_kind(stored_events(db_path), "attempt.succeeded", "attempt.late", "attempt.interrupted")
    assert kinds(told) == ["attempt.succeeded"] * 12


async def test_a_run_that_was_stopping_when_its_actor_crashed_is_still_stopped(
    db_path: Path, autojump_clock: MockClock, broken: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C46: also if the crash came between the commit of the stop and the cancellation."""
    cancel = Executor.cancel
    mistakes = [ZeroDivisionError("while acting")]

    def bad_cancel(*args: Any) -> None:
        if mistakes:
            raise mistakes.pop()
        cancel(*args)

    work = Gated()
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await work.has_started()
        monkeypatch.setattr(Executor, "cancel", bad_cancel)
        with pytest.raises(ActorCrashed) as raised:
            await company.ask(Stop("a"))
        assert raised.value.happened
        with trio.fail_after(1):
            assert await settled(company, "a") == "stopped"
    assert work.cancelled == 1


async def test_a_handler_does_not_notice_that_its_actor_is_another_one(
    db_path: Path, autojump_clock: MockClock, broken: Broken
) -> None:
    half_way = trio.Event()
    go_on = trio.Event()

    async def work(ctx: Context) -> str:
        half_way.set()
        await go_on.wait()
        return (await ctx.company.ask(a_task("ok"))).id

    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a"))
        await half_way.wait()
        broken.companies.add("k")
        await crash(company)
        broken.companies.clear()
        go_on.set()
        assert (await company.when_settled("a")).result == {"work": "@2"}
