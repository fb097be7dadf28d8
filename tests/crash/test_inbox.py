"""Messages of other processes while the host is killed at every commit: each is carried out once, and answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from actors import (
    CompanySettings,
    GoalStopped,
    InvalidMessage,
    Moved,
    Pause,
    Rerun,
    RunStatus,
    SetLimits,
    Start,
    Stop,
    StopGoal,
    Submit,
    SubmitMany,
    Submitted,
    TaskUnknown,
    Unpause,
)
from tests.inbox.support import Post, taken
from tests.runtime.support import sql

from .harness import Kill, Scenario, Script, exhaust
from .scenarios import handlers

SENT: list[tuple[str, Any, Any]] = [
    # none has an id or a key of its own, so one that is carried out twice leaves a second task, run or limit behind
    ("acme", Submit("first", handler="step"), Submitted("@1", 1, 1)),
    ("acme", Submit("second", handler="step", mode="manual"), Submitted("@2", 2, 1)),
    ("other", Submit("theirs", handler="step"), Submitted("@1", 1, 1)),
    ("acme", Stop("@2"), Moved("@2", 1, RunStatus.STOPPED)),
    ("acme", Rerun("@2"), Moved("@2", 2, RunStatus.QUEUED)),
    ("acme", Start("nobody"), TaskUnknown),
    ("acme", Start("@1"), None),
    ("other", Pause(), CompanySettings(paused=True, runs_max=1, weight=1)),
    (
        "acme",
        SubmitMany(
            [Submit("third", handler="step", depends_on=["@1"]), Submit("fourth", mode="manual", goal="g")]
        ),
        (Submitted("@3", 3, 1), Submitted("@4", 4, 1)),
    ),
    ("acme", SetLimits(runs_max=2), CompanySettings(paused=False, runs_max=2, weight=1)),
    ("acme", StopGoal("g"), GoalStopped("g", ("@4",))),
    ("other", Rerun("@2"), TaskUnknown),
    ("other", Unpause(), CompanySettings(paused=False, runs_max=1, weight=1)),
    ("acme", Rerun("@4"), Moved("@4", 2, RunStatus.QUEUED)),
]
BROKEN = len(SENT)


async def drive(script: Script) -> None:
    """Say everything, also what an earlier life has heard already, under the same ids."""
    post = Post(Path(script.runtime.path))
    for number, (company, message, _) in enumerate(SENT):
        post.send(message, company, id=f"m{number}")
        if number == BROKEN // 2 and not sql(post.path, "SELECT 1 FROM inbox WHERE id = 'broken'"):
            post.plant("no message", "acme", "broken")
    await taken(script.runtime)
    _check_answers(script, post)
    await script.settled("@1", "@2", "@3", "@4")
    await script.settled("@1", company="other")
    assert post.waiting == []


def _check_answers(script: Script, post: Post) -> None:
    script._refuse_the_dead()
    for number, (company, _, expected) in enumerate(SENT):
        letter = post.letter(f"m{number}", company)
        assert not letter.waiting
        if isinstance(expected, type):
            assert type(letter.error) is expected
        elif expected is not None:  # how far a task had come is not what is shown here
            assert letter.reply == expected, f"m{number}"
    assert isinstance(post.error("broken"), InvalidMessage)
    answers = sql(post.path, "SELECT company, id, answered_ms, answer FROM inbox ORDER BY number")
    for company, id, answered_ms, answer in answers:
        first = script.world.facts.setdefault(f"{company}/{id}", (answered_ms, answer))
        assert first == (answered_ms, answer), "it was answered once more"


INBOX = Scenario("inbox", drive, handlers, commits_min=11)


def test_a_kill_at_any_commit_makes_no_message_happen_twice_or_not_at_all(folder: Path) -> None:
    kills = exhaust(INBOX, folder)
    assert kills >= 2 * INBOX.commits_min


def test_nor_does_a_second_kill_while_the_next_host_takes_what_was_left(folder: Path) -> None:
    under_way = Kill(4, after=False)  # some are answered, some wait
    kills = exhaust(INBOX, folder, first=under_way)
    assert kills >= 2 * INBOX.commits_min


def test_what_was_left_while_no_host_ran_is_done_once_whenever_the_first_is_killed(folder: Path) -> None:
    """The messages are there before any process has looked, so that its start-up is among what is killed."""
    kills = exhaust(INBOX, folder, first=Kill(2, after=False))
    assert kills >= 2 * INBOX.commits_min
