"""What a type checker infers for `ask`. The assertions of this file are mypy's; running it only imports it.

A comment ``type: ignore[assert-type]`` that is not needed is an error under mypy's strict mode, so the last
function fails if the replies were inferred as `Any`.
"""

from __future__ import annotations

import inspect
from typing import assert_type

import pytest

import actors
from actors import (
    Approve,
    Archive,
    BudgetSettings,
    Company,
    CompanySettings,
    DefineGraph,
    Edit,
    GoalStopped,
    GraphDefined,
    Inbox,
    Message,
    Moved,
    Next,
    Node,
    Pause,
    PauseSchedule,
    RemoveSchedule,
    Rerun,
    ResumeSchedule,
    Retry,
    RunNow,
    ScheduleSettings,
    SendBack,
    SetBudget,
    SetLimits,
    SetSchedule,
    Start,
    StartNow,
    Stop,
    StopGoal,
    Submit,
    SubmitMany,
    Submitted,
    Unarchive,
    Unpark,
    Unparked,
    Unpause,
)


async def about_tasks(acme: Company) -> None:
    assert_type(await acme.ask(Submit("t")), Submitted)
    assert_type(await acme.ask(SubmitMany([Submit("t")])), tuple[Submitted, ...])
    assert_type(await acme.ask(Start("t")), Moved)
    assert_type(await acme.ask(StartNow("t")), Moved)
    assert_type(await acme.ask(Stop("t")), Moved)
    assert_type(await acme.ask(Retry("t")), Moved)
    assert_type(await acme.ask(Next("t")), Moved)
    assert_type(await acme.ask(Approve("t", "gate")), Moved)
    assert_type(await acme.ask(SendBack("t", "node", "why")), Moved)
    assert_type(await acme.ask(Rerun("t")), Moved)
    assert_type(await acme.ask(Edit("t", priority=1)), Moved)
    assert_type(await acme.ask(Archive("t")), Moved)
    assert_type(await acme.ask(Unarchive("t")), Moved)


async def about_companies(acme: Company) -> None:
    assert_type(await acme.ask(DefineGraph("g", [Node("n")])), GraphDefined)
    assert_type(await acme.ask(Pause()), CompanySettings)
    assert_type(await acme.ask(Unpause()), CompanySettings)
    assert_type(await acme.ask(SetLimits(runs_max=2)), CompanySettings)
    assert_type(await acme.ask(SetBudget(1)), BudgetSettings)
    assert_type(await acme.ask(StopGoal("g")), GoalStopped)
    assert_type(await acme.ask(Unpark()), Unparked)
    assert_type(await acme.ask(SetSchedule("s", every=60, task=Submit("t"))), ScheduleSettings)
    assert_type(await acme.ask(PauseSchedule("s")), ScheduleSettings)
    assert_type(await acme.ask(ResumeSchedule("s")), ScheduleSettings)
    assert_type(await acme.ask(RemoveSchedule("s")), ScheduleSettings)
    assert_type(await acme.ask(RunNow("s")), Submitted)


async def from_another_process(inbox: Inbox) -> None:
    assert_type(await inbox.ask("acme", Submit("t")), Submitted)
    assert_type(await inbox.ask("acme", Pause()), CompanySettings)


async def mistakes(acme: Company) -> None:
    assert_type(await acme.ask(Start("t")), Submitted)  # type: ignore[assert-type]
    await acme.ask("start t")  # type: ignore[arg-type]
    Submit(17)  # type: ignore[arg-type]


MESSAGES = sorted(
    name
    for name in actors.__all__
    if inspect.isclass(cls := getattr(actors, name)) and issubclass(cls, Message) and cls is not Message
)


@pytest.mark.parametrize("name", MESSAGES)
def test_the_reply_of_every_message_is_asserted(name: str) -> None:
    lines = inspect.getsource(about_tasks) + inspect.getsource(about_companies)
    assert lines.count(f"assert_type(await acme.ask({name}(") == 1
