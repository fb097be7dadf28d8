"""A unit that the database refuses never happened, and only who is guilty of it hears of it."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from actors import ActorCrashed, Company, Edit, Pause, Submit, Submitted, WorkState
from tests.inside import inside
from tests.runtime.support import Gated, a_host, a_task, idle, of_kind, quiet, settled, sql, stored_events

REFUSE_TITLE = """
CREATE TRIGGER refuse_title BEFORE INSERT ON tasks WHEN NEW.title LIKE 'poison%'
BEGIN SELECT RAISE(ABORT, 'no such title'); END
"""
"""A rule of the database that the code knows nothing about."""


@attrs.define
class Crowd:
    """Many who ask at once, and what each one got."""

    company: Company
    got: dict[str, Submitted | Exception] = attrs.field(factory=dict)

    async def ask(self, title: str) -> None:
        try:
            self.got[title] = await self.company.ask(Submit(title))
        except Exception as error:
            self.got[title] = error

    async def ask_all(self, titles: list[str]) -> None:
        async with trio.open_nursery() as nursery:
            for title in titles:
                nursery.start_soon(self.ask, title)


async def test_of_a_refused_unit_only_the_guilty_message_hears(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        sql(db_path, REFUSE_TITLE)
        crowd = Crowd(runtime.company("k"))
        titles = [f"{'poison' if number in (3, 17) else 'good'} {number}" for number in range(30)]
        await crowd.ask_all(titles)
        for title in titles:
            answer = crowd.got[title]
            if title.startswith("poison"):
                assert isinstance(answer, ActorCrashed)
                assert not answer.happened
                assert "no such title" in answer.cause
            else:
                assert isinstance(answer, Submitted)
        await quiet(crowd.company)
        assert len(await crowd.company.tasks()) == 28
    events = stored_events(db_path)
    assert of_kind(events, "actor.crashed") == [], "the actor lived on"
    assert len(of_kind(events, "task.submitted")) == 28


async def test_nothing_of_the_refused_message_stays_in_memory(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        sql(db_path, REFUSE_TITLE)
        company = runtime.company("k")
        await company.ask(Submit("good", id="a", mode="manual"))
        with pytest.raises(ActorCrashed):
            await company.ask(Submit("poison", id="b", depends_on=["a"], priority=0))
        assert [status.id for status in await company.queue()] == ["a"]
        report = await company.ask(Submit("good", id="b", depends_on=["a"], mode="manual"))
        assert (report.id, report.seq, report.existing) == ("b", 2, False)


async def test_a_unit_that_raises_something_else_is_a_refused_unit(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """What cannot even be bound to a statement is no less the guilty message's alone."""
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(Submit("manual", id="a", mode="manual"))
        message = Edit("a", title="x")
        object.__setattr__(message, "title", object())
        crowd = Crowd(company)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(crowd.ask_all, ["one", "two", "three"])
            with pytest.raises(ActorCrashed) as raised:
                await company.ask(message)
        assert not raised.value.happened
        assert all(isinstance(answer, Submitted) for answer in crowd.got.values())
        assert (await company.status("a")).title == "manual"


async def test_a_told_message_that_is_refused_disturbs_nobody(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        sql(db_path, REFUSE_TITLE)
        company = runtime.company("k")
        await company.tell(Submit("poison"))
        await company.tell(Submit("good", id="a"))
        await quiet(company)
        assert await settled(company, "a") == "completed"
    (event,) = of_kind(stored_events(db_path), "message.refused")
    assert event.data == {"message": "Submit"}
    assert event.reason is not None
    assert "no such title" in event.reason


async def test_other_companies_in_the_same_transaction_never_know(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        sql(db_path, REFUSE_TITLE)
        crowds = [Crowd(runtime.company(f"k{number}")) for number in range(5)]
        async with trio.open_nursery() as nursery:
            for number, crowd in enumerate(crowds):
                nursery.start_soon(crowd.ask, "poison" if number == 2 else "good")
        kinds = [type(next(iter(crowd.got.values()))) for crowd in crowds]
    assert kinds == [Submitted, Submitted, ActorCrashed, Submitted, Submitted]


async def test_a_control_message_beside_a_refused_one_is_done(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        sql(db_path, REFUSE_TITLE)
        company = runtime.company("k")
        await company.tell(Submit("poison"))
        settings = await company.ask(Pause())
        assert settings.paused
        await quiet(company)


async def test_a_report_that_is_refused_blames_no_message_and_its_task_is_set_aside_in_the_end(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Gated("poison")
    async with a_host(db_path, {"work": work}) as runtime:
        sql(
            db_path,
            "CREATE TRIGGER refuse_result BEFORE UPDATE ON nodes WHEN NEW.result = '\"poison\"'"
            " BEGIN SELECT RAISE(ABORT, 'no such result'); END",
        )
        company = runtime.company("k")
        await company.ask(a_task("work", id="bad"))
        await work.has_started()
        crowd = Crowd(company)
        async with trio.open_nursery() as nursery:
            work.open.set()
            nursery.start_soon(crowd.ask_all, [f"good {number}" for number in range(20)])
        assert [type(answer) for answer in crowd.got.values()] == [Submitted] * 20
        await idle(runtime)
        status = await company.status("bad")
        assert status.state is WorkState.QUARANTINED
        assert "no such result" in str(status.reasons[0].text)
        good = [status for status in await company.tasks() if status.id != "bad"]
        assert {status.state for status in good} == {WorkState.COMPLETED}
    about = [event.task for event in of_kind(stored_events(db_path), "actor.crashed")]
    assert about == ["bad", "bad"]


async def test_an_admission_that_is_refused_each_time_sets_its_task_aside_and_the_next_one_starts(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path) as runtime:
        sql(
            db_path,
            "CREATE TRIGGER refuse_start BEFORE INSERT ON attempts WHEN NEW.seq = 1"
            " BEGIN SELECT RAISE(ABORT, 'never this one'); END",
        )
        company = runtime.company("k")
        await company.ask(a_task("ok", id="bad"))
        await company.ask(a_task("ok", id="good"))
        assert await settled(company, "good") == "completed"
        assert (await company.status("bad")).state is WorkState.QUARANTINED
        assert inside(runtime).services.registry.slots_in_use == 0
