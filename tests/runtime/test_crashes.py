"""An exception while deciding: nothing happened, the guilty message is told; a task that does it twice is set
aside.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

import actors.core.advance
import actors.core.decide
import actors.core.prefetch
import actors.core.reports
from actors import (
    ActorCrashed,
    Archive,
    AttemptEnd,
    Company,
    CompanyParked,
    Edit,
    MoveRefused,
    ReasonKind,
    Rerun,
    Retry,
    RunStatus,
    SetLimits,
    Start,
    StartNow,
    Stop,
    Submit,
    Unpark,
    WorkState,
)
from actors.core.draft import Draft
from actors.core.prefetch import Needs
from actors.core.state import CompanyState
from actors.core.task_state import TaskState
from actors.runtime.executor import Executor
from tests.inside import inside
from tests.runtime.support import (
    Gated,
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


class Bug(Exception):
    """A mistake of ours."""


@attrs.define
class Bugs:
    """Mistakes that the test puts into the code: for such messages, and for admitting these tasks."""

    kinds: set[type] = attrs.field(factory=set)
    titles: set[str] = attrs.field(factory=set)
    tasks: set[str] = attrs.field(factory=set)
    hits: int = 0


@pytest.fixture
def bugs(monkeypatch: pytest.MonkeyPatch) -> Bugs:
    made = Bugs()
    decide, admit = actors.core.decide.decide, actors.core.advance.admit

    def bad_decide(draft: Draft, message: Any, prefetched: Any) -> object:
        reply = decide(draft, message, prefetched)
        if type(message) in made.kinds or getattr(message, "title", None) in made.titles:
            made.hits += 1
            raise Bug("in the middle of it")
        return reply

    def bad_admit(draft: Draft, entry: TaskState) -> None:
        admit(draft, entry)
        if entry.task.id in made.tasks:
            made.hits += 1
            raise Bug(f"about {entry.task.id}")

    monkeypatch.setattr("actors.core.turn.decide", bad_decide)
    monkeypatch.setattr("actors.core.advance.admit", bad_admit)
    return made


async def outcome_of(company: Company, message: Any) -> object:
    try:
        return await company.ask(message)
    except Exception as error:
        return error


# --- one message -----------------------------------------------------------------------------------------------------


async def test_the_guilty_message_is_told_that_nothing_happened_and_the_others_are_done(
    db_path: Path, autojump_clock: MockClock, bugs: Bugs
) -> None:
    bugs.titles.add("bad")
    outcomes: dict[int, object] = {}

    async def ask(company: Company, number: int) -> None:
        title = "bad" if number == 5 else "good"
        outcomes[number] = await outcome_of(company, Submit(title, id=f"t{number}"))

    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(ask, company, number)
        guilty = outcomes.pop(5)
        assert isinstance(guilty, ActorCrashed)
        assert (guilty.company, guilty.cause, guilty.happened) == ("k", "Bug: in the middle of it", False)
        assert not any(isinstance(outcome, Exception) for outcome in outcomes.values())
        await quiet(company)
        assert "t5" not in {status.id for status in await company.tasks()}
    assert bugs.hits == 1, "it is not taken again"
    (crashed,) = of_kind(stored_events(db_path), "actor.crashed")
    assert crashed.data == {"cause": "Bug: in the middle of it"}


async def test_a_told_message_that_makes_the_actor_crash_is_not_taken_again(
    db_path: Path, autojump_clock: MockClock, bugs: Bugs
) -> None:
    bugs.titles.add("bad")
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.tell(Submit("bad"))
        await company.tell(Submit("good", id="a"))
        await quiet(company)
        assert await settled(company, "a") == "completed"
    assert bugs.hits == 1


async def test_a_message_that_cannot_even_be_looked_up_is_answered_and_not_taken_again(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mistake is made before deciding, when the rows that the messages name are read."""
    needs_of = actors.core.prefetch.needs_of
    hits: list[int] = []

    def bad_needs_of(state: CompanyState, messages: list[Any], *more: Any) -> Needs:
        if any(getattr(message, "title", None) == "bad" for message in messages):
            hits.append(len(messages))
            raise Bug("before it")
        return needs_of(state, messages, *more)

    monkeypatch.setattr("actors.runtime.company.needs_of", bad_needs_of)
    outcomes: list[object] = []
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=0))
        for title in ("before", "bad", "after"):
            company.tell_nowait(Submit(title))

        async def ask() -> None:
            outcomes.append(await outcome_of(company, Submit("bad")))

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
        assert [status.title for status in await company.tasks()] == ["before", "after"]
    (outcome,) = outcomes
    assert isinstance(outcome, ActorCrashed)
    assert (outcome.cause, outcome.happened) == ("Bug: before it", False)
    assert hits[1:] == [1, 1], "alone each of them is found guilty, and no other"


async def test_what_came_before_and_after_the_guilty_one_keeps_its_order(
    db_path: Path, autojump_clock: MockClock, bugs: Bugs
) -> None:
    bugs.titles.add("bad")
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=0))
        for title in ("one", "two", "bad", "three", "four"):
            company.tell_nowait(Submit(title, nodes=[]))
        await company.ask(Submit("five"))
        titles = [status.title for status in await company.queue()]
    assert titles == ["one", "two", "three", "four", "five"]


async def test_one_company_s_crash_is_its_own(db_path: Path, autojump_clock: MockClock, bugs: Bugs) -> None:
    bugs.titles.add("bad")
    work = Gated()
    async with a_host(db_path, {"work": work}) as runtime:
        other = runtime.company("other")
        await other.ask(a_task("work", id="a"))
        await work.has_started()
        assert isinstance(await outcome_of(runtime.company("k"), Submit("bad")), ActorCrashed)
        work.open.set()
        assert await settled(other, "a") == "completed"
        assert of_kind(stored_events(db_path, "other"), "actor.crashed") == []


async def test_an_error_after_the_commit_is_answered_with_it_happened(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Executor.start
    mistakes = [Bug("while acting")]

    def bad_start(*args: Any) -> None:
        if mistakes:
            raise mistakes.pop()
        start(*args)

    monkeypatch.setattr(Executor, "start", bad_start)
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        outcome = await outcome_of(company, a_task("ok", id="a"))
        assert isinstance(outcome, ActorCrashed)
        assert outcome.happened
        assert await settled(company, "a") == "completed", "its attempt is found nowhere and runs again"
        assert [view.end for view in await company.attempts("a")] == [
            AttemptEnd.INTERRUPTED,
            AttemptEnd.SUCCEEDED,
        ]


# --- one task ---------------------------------------------------------------------------------------------------------


async def set_aside(company: Company, bugs: Bugs, task: str = "bad", **fields: Any) -> None:
    """A task whose admission goes wrong each time."""
    bugs.tasks.add(task)
    await company.tell(a_task("ok", id=task, **fields))
    await quiet(company)
    with trio.fail_after(60):
        while (await company.status(task)).state is not WorkState.QUARANTINED:
            await trio.sleep(1)


async def test_two_exceptions_in_a_row_about_one_task_set_it_aside_and_the_others_go_on(
    db_path: Path, autojump_clock: MockClock, bugs: Bugs
) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await set_aside(company, bugs)
        assert bugs.hits == 2
        status = await company.status("bad")
        assert [reason.kind for reason in status.reasons] == [ReasonKind.QUARANTINED]
        assert status.reasons[0].text == "its moves failed twice: Bug: about bad"
        await company.ask(a_task("ok", id="good"))
        assert await settled(company, "good") == "completed"
    ((why, traceback),) = sql(db_path, "SELECT why, traceback FROM quarantine")
    assert why == "its moves failed twice: Bug: about bad"
    assert "in bad_admit" in traceback
    assert traceback.endswith("Bug: about bad\n")
    crashed = of_kind(stored_events(db_path), "actor.crashed", "task.quarantined")
    assert [(event.kind, event.task) for event in crashed] == [
        ("actor.crashed", "bad"),
        ("task.quarantined", "bad"),
        ("actor.crashed", "bad"),
    ]


async def test_a_task_that_was_set_aside_stays_so_in_the_next_process(
    db_path: Path, autojump_clock: MockClock, bugs: Bugs
) -> None:
    async with a_host(db_path) as runtime:
        await set_aside(runtime.company("k"), bugs)
    bugs.tasks.clear()
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="good"))
        assert await settled(company, "good") == "completed"
        assert (await company.status("bad")).state is WorkState.QUARANTINED


async def test_one_exception_about_each_of_two_tasks_sets_nobody_aside(
    db_path: Path, autojump_clock: MockClock, bugs: Bugs
) -> None:
    bugs.titles.update({"x", "y"})
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=0))
        await company.ask(a_task("ok", id="a"))
        await company.ask(a_task("ok", id="b"))
        for task, title in (("a", "x"), ("b", "y"), ("a", "x")):
            assert isinstance(await outcome_of(company, Edit(task, title=title)), ActorCrashed)
        assert {status.state for status in await company.tasks()} == {WorkState.QUEUED}


async def test_retry_lifts_the_quarantine_and_the_task_goes_on(
    db_path: Path, autojump_clock: MockClock, bugs: Bugs
) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await set_aside(company, bugs)
        bugs.tasks.clear()
        await company.ask(Retry("bad"))
        assert await settled(company, "bad") == "completed"
        assert sql(db_path, "SELECT count(*) FROM quarantine") == [(0,)]
    assert kinds(of_kind(stored_events(db_path), "task.quarantined", "task.released")) == [
        "task.quarantined",
        "task.released",
    ]


async def test_stop_and_archive_work_on_a_task_that_was_set_aside(
    db_path: Path, autojump_clock: MockClock, bugs: Bugs
) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await set_aside(company, bugs, "one")
        await set_aside(company, bugs, "two")
        assert (await company.ask(Stop("one"))).status is RunStatus.STOPPED
        assert (await company.status("one")).state is WorkState.STOPPED
        assert (await company.ask(Archive("two"))).status is RunStatus.STOPPED
        assert (await company.status("two")).state is WorkState.ARCHIVED


@pytest.mark.parametrize("message", [Start, StartNow, Rerun])
async def test_every_other_message_is_refused_and_says_what_would_do(
    db_path: Path, autojump_clock: MockClock, bugs: Bugs, message: Any
) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await set_aside(company, bugs)
        with pytest.raises(MoveRefused) as raised:
            await company.ask(message("bad"))
        assert (raised.value.state, raised.value.advice) == ("quarantined", ("Retry", "Stop", "Archive"))


async def test_dependents_are_blocked_by_it_and_freed_with_it(
    db_path: Path, autojump_clock: MockClock, bugs: Bugs
) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await set_aside(company, bugs)
        await company.ask(a_task("ok", id="after", depends_on=["bad"]))
        status = await company.status("after")
        assert status.state is WorkState.BLOCKED
        assert (status.reasons[0].kind, status.reasons[0].tasks) == (
            ReasonKind.UPSTREAM_QUARANTINED,
            ("bad",),
        )
        bugs.tasks.clear()
        await company.ask(Retry("bad"))
        assert await settled(company, "after") == "completed"


async def test_setting_a_running_task_aside_interrupts_its_attempts_and_frees_its_slots(
    db_path: Path, autojump_clock: MockClock, bugs: Bugs
) -> None:
    work = Gated()
    bugs.kinds.add(Stop)
    async with a_host(db_path, {"work": work}, executions_max=1) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="bad"))
        await work.has_started()
        await company.ask(a_task("ok", id="next"))
        for _ in range(2):
            assert isinstance(await outcome_of(company, Stop("bad")), ActorCrashed)
        bugs.kinds.clear()
        assert await settled(company, "next") == "completed"
        status = await company.status("bad")
        assert (status.state, status.run_status) == (WorkState.QUARANTINED, RunStatus.FAILED)
        assert [view.end for view in await company.attempts("bad")] == [AttemptEnd.INTERRUPTED]
        assert work.cancelled == 1
        await idle(runtime)
        assert len(inside(runtime).services.registry) == 0
    (event,) = of_kind(stored_events(db_path), "task.quarantined")
    assert event.data == {"interrupted": 1}


async def test_a_task_that_goes_on_crashing_its_actor_when_it_is_set_aside_parks_the_company(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report that cannot be booked stays: setting its task aside again and again would never let the actor rest."""
    decide_report = actors.core.reports.decide_report

    def bad_decide_report(draft: Draft, report: Any, *more: Any) -> bool:
        draft.about = report.key.task
        if report.key.task == "bad":
            raise Bug("it cannot be booked")
        return decide_report(draft, report, *more)

    monkeypatch.setattr("actors.core.turn.decide_report", bad_decide_report)
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="bad"))
        await trio.sleep(60)
        assert runtime.statistics().parked == ("k",)
        with pytest.raises(CompanyParked):
            await company.ask(Submit("x"))
        monkeypatch.undo()
        await company.ask(Unpark())
        await idle(runtime)
        assert await company.ask(Submit("x", id="x")) is not None
    told = stored_events(db_path)
    assert len(of_kind(told, "task.quarantined")) == 1
    assert len(of_kind(told, "actor.crashed")) < 12
