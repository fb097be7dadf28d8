"""The arguments become values, or one message and status 2."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

import actors
from actors.cli import main
from actors.cli.arguments import TaskName
from actors.cli.message_commands import MESSAGE_COMMANDS
from actors.cli.options import (
    BackupOptions,
    DeleteOptions,
    DemoOptions,
    PruneOptions,
    ReadOptions,
    RunOptions,
    SendOptions,
)
from actors.cli.parser import parse

DB = Path("x.db")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("run p.toml --db x.db", RunOptions(DB, Path("p.toml"))),
        (
            "run p.toml --db x.db --retry a/b --retry c/d --start e/f --executions-max 0 --durability normal --json",
            RunOptions(
                DB,
                Path("p.toml"),
                retry=(TaskName("a", "b"), TaskName("c", "d")),
                start=(TaskName("e", "f"),),
                executions_max=0,
                durability="normal",
                json=True,
            ),
        ),
        ("demo --db x.db", DemoOptions(DB)),
        ("demo --json --db x.db", DemoOptions(DB, json=True)),
        ("status --db x.db", ReadOptions(DB, "status")),
        ("queue --db x.db --company a", ReadOptions(DB, "queue", company="a")),
        ("explain a/b --db x.db", ReadOptions(DB, "explain", task=TaskName("a", "b"))),
        ("timeline a/b --db x.db", ReadOptions(DB, "timeline", task=TaskName("a", "b"))),
        ("log --db x.db", ReadOptions(DB, "log")),
        ("log --after 0 --db x.db", ReadOptions(DB, "log", after=0)),
        ("backup y.db --db x.db", BackupOptions(DB, Path("y.db"))),
        ("prune --db x.db", PruneOptions(DB)),
        (
            "prune --db x.db --events-days 1 --attempts-days 2 --tasks-days 3 --archived-days 4 --keys-days 0",
            PruneOptions(DB, {"events": 1, "attempts": 2, "tasks": 3, "archived": 4, "keys": 0}),
        ),
        ("delete acme --db x.db", DeleteOptions(DB, "acme")),
        ("delete acme --yes --db x.db", DeleteOptions(DB, "acme", yes=True)),
        ("run p.toml --stay --db x.db", RunOptions(DB, Path("p.toml"), stay=True)),
        ("result a/b --json --db x.db", ReadOptions(DB, "result", task=TaskName("a", "b"), json=True)),
        ("inbox --company a --db x.db", ReadOptions(DB, "inbox", company="a")),
        (
            "log -f --json --after 12 --company a --db x.db",
            ReadOptions(DB, "log", company="a", follow=True, json=True, after=12),
        ),
    ],
)
def test_arguments_become_options(argv: str, expected: object) -> None:
    assert parse(argv.split()) == expected


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("start a/b", actors.Start("b")),
        ("budget a 1000", actors.SetBudget(1000)),
        ("budget a none", actors.SetBudget(None)),
        ("next a/b", actors.Next("b")),
        ("approve a/b gate", actors.Approve("b", "gate")),
        ("approve a/b gate --note fine", actors.Approve("b", "gate", "fine")),
        ("send-back a/b draft shorter", actors.SendBack("b", "draft", "shorter")),
        ("rerun a/b --from draft --payload 1", actors.Rerun("b", from_node="draft", payload=1)),
        ("edit a/b --budget 5", actors.Edit("b", budget=5)),
        ("edit a/b --no-budget", actors.Edit("b", budget=None)),
        ("submit a/b title --budget 0", actors.Submit("title", id="b", budget=0)),
        ("start-now a/b", actors.StartNow("b")),
        ("stop a/b", actors.Stop("b")),
        ("retry a/b", actors.Retry("b")),
        ("rerun a/b", actors.Rerun("b")),
        ("rerun a/b --payload null", actors.Rerun("b", payload=None)),
        ("archive a/b", actors.Archive("b")),
        ("unarchive a/b", actors.Unarchive("b")),
        ("pause a", actors.Pause()),
        ("unpause a", actors.Unpause()),
        ("unpark a", actors.Unpark()),
        ("limits a --weight 3", actors.SetLimits(weight=3)),
        ("limits a --runs-max 0 --weight 3", actors.SetLimits(runs_max=0, weight=3)),
        ("stop-goal a g", actors.StopGoal("g")),
        ("pause-schedule a s", actors.PauseSchedule("s")),
        ("resume-schedule a s", actors.ResumeSchedule("s")),
        ("remove-schedule a s", actors.RemoveSchedule("s")),
        ("run-now a s", actors.RunNow("s")),
        ("schedule a s title --every 90", actors.SetSchedule("s", every=90, task=actors.Submit("title"))),
        (
            (
                "schedule a s title --cron 30_7_*_*_* --zone Europe/Berlin --overlap queue --misfire skip"
                " --jitter 5 --handler h --priority 1"
            ),
            actors.SetSchedule(
                "s",
                cron="30 7 * * *",
                zone="Europe/Berlin",
                overlap="queue",
                misfire="skip",
                jitter_s=5,
                task=actors.Submit("title", handler="h", priority=1),
            ),
        ),
        (
            "submit a t --not-before 2030-01-01T08:00+01:00",
            actors.Submit("t", not_before=datetime(2030, 1, 1, 7, tzinfo=UTC)),
        ),
        ("edit a/b --not-before none", actors.Edit("b", not_before=None)),
        ("submit a title", actors.Submit("title")),
        (
            "submit a/b title --handler h --payload [1]",
            actors.Submit("title", id="b", handler="h", payload=[1]),
        ),
        (
            (
                "submit a title --graph g --priority P1 --mode manual --depends-on x --depends-on y"
                " --goal g --key k --tries-max 2 --fail-fast"
            ),
            actors.Submit(
                "title",
                graph="g",
                priority=1,
                mode="manual",
                depends_on=["x", "y"],
                goal="g",
                key="k",
                tries_max=2,
                fail_fast=True,
            ),
        ),
        (
            "submit a t --run true",
            actors.Submit("t", nodes=[actors.Node("main", "command", payload={"shell": "true"})]),
        ),
        ("submit a t --priority -3", actors.Submit("t", priority=-3)),
        ("edit a/b --priority 7", actors.Edit("b", priority=7)),
        (
            "edit a/b --no-goal --no-depends-on --no-fail-fast",
            actors.Edit("b", goal=None, depends_on=[], fail_fast=False),
        ),
        (
            "edit a/b --title t --run x",
            actors.Edit("b", title="t", nodes=[actors.Node("main", "command", payload={"shell": "x"})]),
        ),
    ],
)
def test_arguments_become_the_message_that_is_sent(argv: str, message: object) -> None:
    words = [word.replace("_", " ") for word in argv.split()]
    options = parse([*words, "--db", "x.db"])
    assert isinstance(options, SendOptions)
    assert options.command.message(options.given) == message
    assert type(message) is options.command.kind
    assert options.given.company == "a"
    assert (options.db, options.later, options.timeout_s, options.message_id, options.json) == (
        *(DB, False, 10.0, None),
        False,
    )


def test_every_command_takes_the_same_arguments_besides_its_own() -> None:
    options = parse(
        ["pause", "a", "--later", "--timeout", "2.5", "--message-id", "m", "--json", "--db", "x.db"]
    )
    assert isinstance(options, SendOptions)
    assert (options.later, options.timeout_s, options.message_id, options.json) == (True, 2.5, "m", True)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("", "the following arguments are required: COMMAND"),
        ("walk", "there is no command 'walk'"),
        ("statsu", "there is no command 'statsu': did you mean \"status\"?"),
        ("run p.toml", "the following arguments are required: --db"),
        ("run --db x.db", "the following arguments are required: PLAN.toml"),
        ("run p.toml --db x.db --retry b", "a task is named COMPANY/TASK, not 'b'"),
        ("run p.toml --db x.db --retry a/b/c", "a task is named COMPANY/TASK, not 'a/b/c'"),
        ("run p.toml --db x.db --start /b", "a task is named COMPANY/TASK, not '/b'"),
        ("run p.toml --db x.db --executions-max -1", "must be an integer of 0 or more, not '-1'"),
        ("run p.toml --db x.db --executions-max ²", "must be an integer of 0 or more, not '²'"),
        ("run p.toml --db x.db --durability some", "invalid choice: 'some'"),
        ("run p.toml --db x.db --dur full", "unrecognized arguments: --dur full"),
        ("explain --db x.db", "the following arguments are required: COMPANY/TASK"),
        ("log --db x.db --after 99999999999999999999", "must be an integer of 0 or more"),
        ("status --db x.db --follow", "unrecognized arguments: --follow"),
        ("backup --db x.db", "the following arguments are required: TARGET"),
        ("prune --db x.db --tasks-days 1.5", "must be an integer of 0 or more, not '1.5'"),
        ("delete --db x.db --yes", "the following arguments are required: COMPANY"),
        ("budget acme --db x.db", "the following arguments are required: N"),
        ("budget acme -x --db x.db", "the following arguments are required: N"),
        ("budget acme 1.5 --db x.db", "must be an integer, not '1.5'"),
        ("approve acme/t --db x.db", "the following arguments are required: GATE"),
        ("next acme --db x.db", "a task is named COMPANY/TASK, not 'acme'"),
    ],
)
def test_a_mistake_in_the_arguments_is_said_and_ends_with_status_2(
    argv: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(argv.split())
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err


@pytest.mark.parametrize("argv", [[], ["run"], ["nonsense"]])
def test_the_exit_status_of_a_wrong_argument_is_2(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    assert capsys.readouterr().err.startswith("usage: ")


def test_help_names_every_command_and_the_exit_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    reads = ("status", "queue", "explain", "timeline", "result", "log", "inbox")
    for word in (
        "run",
        "demo",
        "backup",
        "prune",
        "delete",
        *reads,
        *(command.name for command in MESSAGE_COMMANDS),
        "130 interrupted",
    ):
        assert word in out
