"""The sweep heals alone what wakes and reports missed, page by page, whatever one company does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from trio.testing import MockClock

import actors.runtime.sweep
from actors import Archive, Company, Pause, Rerun, Runtime, SetLimits, Stop, SubmitMany, WorkState
from actors.runtime.execution import Executor
from actors.runtime.mailbox import Envelope, Mailbox, Sweep
from actors.runtime.sweep import ANSWER_S, EVERY_S, PAGE
from tests.runtime.support import Gated, Scripted, a_host, a_task, of_kind, settled, sql, stored_events


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """No wake reaches any actor but the sweep's, and none looks up by itself."""
    put_nowait, wake = Mailbox.put_nowait, Mailbox.wake

    def silent_put(mailbox: Mailbox, envelope: Envelope) -> bool:
        is_put = put_nowait(mailbox, envelope)
        if isinstance(envelope.content, Sweep):
            wake(mailbox)
        return is_put

    monkeypatch.setattr(Mailbox, "put_nowait", silent_put)
    monkeypatch.setattr(Mailbox, "wake", lambda _mailbox: None)
    monkeypatch.setattr("actors.runtime.company.LOOK_AGAIN_S", 10_000_000.0)


# --- alone --------------------------------------------------------------------------------------------------------


async def test_with_every_wake_suppressed_messages_and_reports_still_arrive_within_a_sweep(
    db_path: Path, autojump_clock: MockClock, deaf: None
) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        for _ in range(3):
            began = trio.current_time()
            report = await company.ask(a_task("ok"))  # the first starts the actor, which looks when it begins
            assert trio.current_time() - began <= EVERY_S
            began = trio.current_time()
            assert await settled(company, report.id) == "completed"
            assert trio.current_time() - began <= 2 * EVERY_S


async def test_with_hooks_off_what_was_blocked_still_runs_after_its_upstream_was_repaired(
    db_path: Path, autojump_clock: MockClock, deaf: None
) -> None:
    """C18 (iv)."""
    work = Scripted([ValueError("no luck"), "done"])
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(
            SubmitMany(
                [
                    a_task("work", id="a", tries_max=1),
                    a_task("ok", id="b", depends_on=["a"]),
                    a_task("ok", id="c", depends_on=["b"]),
                ]
            )
        )
        assert await settled(company, "a") == "failed"
        await company.ask(Rerun("a"))
        for task in ("a", "b", "c"):
            began = trio.current_time()
            assert await settled(company, task) == "completed"
            assert trio.current_time() - began <= EVERY_S


async def test_a_slot_that_nobody_was_told_of_is_used_after_the_next_sweep(
    db_path: Path, autojump_clock: MockClock, deaf: None
) -> None:
    work = Gated()
    async with a_host(db_path, {"work": work}, executions_max=1) as runtime:
        await runtime.company("one").ask(a_task("work", id="a"))
        await work.has_started()
        await runtime.company("two").ask(a_task("ok", id="b"))
        work.open.set()
        began = trio.current_time()
        assert await settled(runtime.company("two"), "b") == "completed"
        assert trio.current_time() - began <= 3 * EVERY_S


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Attempts of these companies are durable, and then nobody runs them."""
    companies: set[str] = set()
    start = Executor.start

    def start_or_lose(executor: Executor, attempt: Any, effect: Any, inputs: Any) -> None:
        if attempt.ref.company in companies:
            registry = getattr(executor, "_registry")  # noqa: B009
            registry.free_slot(attempt)
            registry.finish(attempt.ref)
        else:
            start(executor, attempt, effect, inputs)

    monkeypatch.setattr(Executor, "start", start_or_lose)
    return companies


async def test_an_attempt_that_nobody_runs_is_found_and_runs_again(
    db_path: Path, autojump_clock: MockClock, lost: set[str]
) -> None:
    lost.add("k")
    async with a_host(db_path, idle_s=3600) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a"))
        await trio.testing.wait_all_tasks_blocked()
        assert len(runtime.registry) == 0
        lost.clear()
        began = trio.current_time()
        assert await settled(company, "a") == "completed"
        assert trio.current_time() - began <= EVERY_S
        assert (await company.status("a")).nodes[0].tries == 0
    events = stored_events(db_path)
    (found,) = of_kind(events, "attempt.interrupted")
    assert found.data == {"why": "found by the sweep: nobody was running it"}
    (finished,) = of_kind(events, "sweep.finished")
    assert finished.data == {"healed": 1, "companies": 1}


async def test_one_orphan_behind_five_hundred_that_must_not_be_touched_is_found_in_one_sweep(
    db_path: Path, autojump_clock: MockClock, lost: set[str]
) -> None:
    """C64."""
    work = Gated()
    lost.add("orphan")
    async with a_host(db_path, {"work": work}, executions_max=600) as runtime:
        async with trio.open_nursery() as nursery:
            for number in range(500):
                nursery.start_soon(runtime.company(f"k{number:03}").ask, a_task("work"))
        await runtime.company("orphan").ask(a_task("ok", id="a"))
        await work.has_started(500)
        lost.clear()
        report = await runtime.sweeper.sweep()
        assert (report.companies, report.healed, report.errors) == (501, 1, 0)
        assert await settled(runtime.company("orphan"), "a") == "completed"
        assert work.running == 500
        assert len(work.contexts) == 500
        work.open.set()
    assert of_kind(stored_events(db_path), "attempt.late") == []


# --- bounded --------------------------------------------------------------------------------------------------------


@attrs.define
class Asked:
    """Which companies each page of each sweep asked."""

    pages: list[list[str]] = attrs.field(factory=list)

    @property
    def names(self) -> list[str]:
        return [name for page in self.pages for name in page]


def watched(runtime: Runtime) -> Asked:
    seen = Asked()
    ask = runtime.sweeper._ask

    async def watched_ask(names: list[str]) -> Any:
        seen.pages.append(names)
        return await ask(names)

    setattr(runtime.sweeper, "_ask", watched_ask)  # noqa: B010 - of one instance
    return seen


async def companies_with_queued_tasks(runtime: Runtime, count: int) -> list[Company]:
    companies = [runtime.company(f"k{number}") for number in range(count)]
    for company in companies:
        await company.ask(a_task("ok", id="a", mode="manual"))
    return companies


async def test_those_that_only_wait_are_asked_in_turn_oldest_first_and_a_bounded_number_at_a_time(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors.runtime.sweep, "QUEUED_MAX", 3)
    monkeypatch.setattr(actors.runtime.sweep, "PAGE", 2)
    async with a_host(db_path) as runtime:
        await companies_with_queued_tasks(runtime, 7)
        await trio.sleep(5)
        seen = watched(runtime)
        for _ in range(3):
            await trio.sleep(1)
            await runtime.sweeper.sweep()
    assert all(len(page) <= 2 for page in seen.pages)
    assert len(seen.names) == 9
    assert set(seen.names) == {f"k{number}" for number in range(7)}
    assert PAGE == 100


async def test_those_that_run_or_are_due_are_asked_every_time(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors.runtime.sweep, "QUEUED_MAX", 1)
    work = Gated()
    async with a_host(db_path, {"work": work}) as runtime:
        await companies_with_queued_tasks(runtime, 4)
        await runtime.company("runs").ask(a_task("work"))
        await work.has_started()
        seen = watched(runtime)
        for _ in range(3):
            await trio.sleep(1)
            await runtime.sweeper.sweep()
        assert seen.names.count("runs") == 3
        work.open.set()


async def test_settled_and_archived_tasks_are_in_no_sweep(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a"))
        await company.ask(a_task("ok", id="b", mode="manual"))
        await company.when_settled("a")
        await company.ask(Archive("b"))
        report = await runtime.sweeper.sweep()
        assert report.companies == 0


async def test_one_company_s_error_does_not_stop_the_sweep(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_host(db_path) as runtime:
        await companies_with_queued_tasks(runtime, 5)
        await trio.sleep(60)
        cell = runtime.supervisor.cell

        def bad_cell(name: str) -> Any:
            if name == "k2":
                raise ZeroDivisionError("not this one")
            return cell(name)

        setattr(runtime.supervisor, "cell", bad_cell)  # noqa: B010 - of one instance
        report = await runtime.sweeper.sweep()
        assert (report.companies, report.errors) == (5, 1)


async def test_a_company_that_does_not_answer_costs_its_page_a_while_and_the_others_nothing(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors.runtime.sweep, "PAGE", 2)
    async with a_host(db_path, idle_s=3600) as runtime:
        await companies_with_queued_tasks(runtime, 4)
        cell = runtime.supervisor.find("k1")
        assert cell is not None
        cell.mailbox = Mailbox()  # what is put there is taken by nobody
        began = trio.current_time()
        report = await runtime.sweeper.sweep()
        assert trio.current_time() - began == pytest.approx(ANSWER_S)
        assert (report.companies, report.errors) == (4, 1)


# --- as it runs -------------------------------------------------------------------------------------------------------


async def test_the_last_sweep_can_be_read_and_the_first_is_at_the_start(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        first = runtime.last_sweep
        assert first is not None
        assert (first.companies, first.healed, first.errors) == (0, 0, 0)
        await trio.sleep(EVERY_S * 2.5)
        second = runtime.last_sweep
        assert second is not None
        assert second.at_ms - first.at_ms == 2 * EVERY_S * 1000


async def test_a_sweep_that_heals_nothing_is_not_stored(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_host(db_path) as runtime:
        await companies_with_queued_tasks(runtime, 3)
        events = len(stored_events(db_path))
        await trio.sleep(3600)
        assert len(stored_events(db_path)) == events


async def test_it_runs_while_everything_is_paused_and_needs_no_slot(
    db_path: Path, autojump_clock: MockClock, lost: set[str]
) -> None:
    lost.add("k")
    async with a_host(db_path, executions_max=1) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a"))
        await trio.testing.wait_all_tasks_blocked()
        await company.ask(Pause())
        lost.clear()
        work = await runtime.sweeper.sweep()
        assert work.healed == 1
        assert [view.end.value for view in await company.attempts("a") if view.end] == ["interrupted"]
        assert (await company.status("a")).state is WorkState.RUNNING
        await company.ask(Stop("a"))


async def test_it_never_overlaps_itself(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = most = count = 0
    async with a_host(db_path) as runtime:

        async def slow() -> Any:
            nonlocal at_once, most, count
            at_once, count = at_once + 1, count + 1
            most = max(most, at_once)
            await trio.sleep(200)
            at_once -= 1

        setattr(runtime.sweeper, "sweep", slow)  # noqa: B010 - of one instance
        await trio.sleep(2_000)
    assert most == 1
    assert count == pytest.approx(2_000 / 260, abs=1)


async def test_an_error_in_the_sweep_itself_is_said_and_the_next_one_comes(
    db_path: Path, autojump_clock: MockClock, logs: list[dict[str, Any]]
) -> None:
    async with a_host(db_path) as runtime:

        async def bad() -> Any:
            raise ZeroDivisionError("a mistake of ours")

        setattr(runtime.sweeper, "sweep", bad)  # noqa: B010 - of one instance
        await trio.sleep(EVERY_S * 3.5)
        report = await runtime.company("k").ask(a_task("ok"))
        assert await settled(runtime.company("k"), report.id) == "completed"
    assert len([entry for entry in logs if entry["event"] == "sweep.failed"]) == 3


async def test_start_up_is_a_sweep_and_finds_what_the_last_process_left(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Gated()
    async with a_host(db_path, {"work": work}, executions_max=20, drain_s=0) as runtime:
        for number in range(10):
            await runtime.company(f"k{number}").ask(a_task("work", id="a"))
        await runtime.company("queued").ask(SetLimits(runs_max=0))
        await runtime.company("queued").ask(a_task("ok", id="a"))
        await work.has_started(10)
    work.open.set()
    async with a_host(db_path, {"work": work}) as runtime:
        assert runtime.last_sweep is not None
        assert runtime.last_sweep.companies == 11
        for number in range(10):
            assert await settled(runtime.company(f"k{number}"), "a") == "completed"
        await runtime.company("queued").ask(SetLimits(runs_max=1))
        assert await settled(runtime.company("queued"), "a") == "completed"


async def test_a_planted_row_is_found_by_a_sweep_when_its_company_is_not_there(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """Whatever says in the file that something can go on is enough."""
    async with a_host(db_path) as runtime:
        (company,) = await companies_with_queued_tasks(runtime, 1)
        await trio.sleep(30)
        assert runtime.supervisor.cells == ()
        sql(db_path, "UPDATE runs SET started = 1")
        assert await settled(company, "a") == "completed"
        assert trio.current_time() <= 2 * EVERY_S
