"""Messages that are sent without a host, mistakes in them, and what the database then has to show."""

from __future__ import annotations

import json
import shlex
import textwrap
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
import trio

from actors import Mode, Pause, Submit, open_inbox, open_runtime
from actors.cli import main
from actors.cli.message_commands import COMMAND_OF, MESSAGE_COMMANDS
from actors.codec import MESSAGES
from tests.inbox.support import Post
from tests.runtime.support import sql

from .conftest import ROOT, Place
from .support import STEERED

# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("start report", "a task is named COMPANY/TASK, not 'report'"),
        ("start acme/report more", "unrecognized arguments: more"),
        ("start acma/report", "there is no company acma; there are: acme"),
        ("pause acma", "there is no company acma"),
        ("edit acme/report", "Edit changes nothing: give at least one field"),
        ("edit acme/report --priority high", "must be an integer, not 'high'"),
        ("edit acme/report --priority Phigh", 'priority must be an integer or "P" and an integer'),
        ("edit acme/report --payload {", "must be JSON"),
        ("edit acme/report --goal g --no-goal --mode hope", "invalid choice: 'hope'"),
        ("edit acme/report --run x --handler y", "not allowed with argument --run"),
        ("limits acme", "SetLimits changes nothing"),
        ("limits acme --runs-max -1", "runs_max must be from 0"),
        ("limits acme --runs-max x", "must be an integer"),
        ("submit acme", "the following arguments are required: TITLE"),
        ("submit /a title", "a task is named COMPANY/TASK"),
        ("submit acme/@7 title", "the queue assigns ids of @ and a number"),
        ("submit acme title --depends-on a/b", 'must not contain "/"'),
        ("pause acme --timeout -1", "must be a number of seconds of 0 or more"),
        ("pause acme --timeout nan", "must be a number of seconds of 0 or more"),
        ("pause acme --message-id a/b", 'must not contain "/"'),
        ("define-graph acme g none.toml", "none.toml"),
        ("result acme/nobody", "has no task 'nobody'"),
        ("explain acme/nobody", "has no task 'nobody'"),
    ],
)
def test_a_mistake_in_the_arguments_is_said_and_nothing_is_sent(place: Place, words: str, said: str) -> None:
    place.plan(STEERED)
    trio.run(empty_company, place.db)
    done = place.cli(*words.split(), *(["--later"] if words.split()[0] not in ("result", "explain") else []))
    assert (done.status, done.out) == (2, ""), done
    assert said in done.err
    assert sql(place.db, "SELECT count(*) FROM inbox") == [(0,)]


async def empty_company(db: Path) -> None:
    async with open_runtime(db, handlers={}) as runtime:
        await runtime.company("acme").ask(Submit("Weekly report", id="report", mode="manual"))


def test_a_database_that_is_not_there_is_not_made(place: Place) -> None:
    for words in ("pause acme --later", "inbox", "result acme/a"):
        done = place.cli(*words.split())
        assert (done.status, done.out) == (2, "")
        assert "there is no such file" in done.err
    done = place.cli("submit", "acme", "New", "--run", "true")
    assert (done.status, done.out) == (3, "")
    assert done.err.endswith("Create one with run, or add --later to create it\n")
    assert list(place.folder.iterdir()) == []


def test_what_is_sent_for_later_may_be_the_first_of_a_database_and_is_explained_while_it_waits(
    place: Place,
) -> None:
    """A company can be founded from the terminal before any host has run. Until one does, the task exists only as
    a message, which `explain` says instead of denying that there is such a task.
    """
    sent = place.cli("submit", "acme/a", "First", "--run", "true", "--later", "--message-id", "mine")
    assert (sent.status, sent.err) == (0, "")
    assert [path.name for path in place.folder.iterdir() if ".new" in path.name] == []
    explained = place.cli("explain", "acme/a")
    assert explained.status == 0
    assert explained.lines[0].startswith("acme/a is not submitted yet: message mine, sent at ")
    assert explained.lines[0].endswith(", waits in the inbox; no process runs this database.")
    assert explained.lines[1] == "  The next process that runs it carries the message out."
    unknown = place.cli("explain", "acme/b")
    assert (unknown.status, unknown.out) == (2, "")
    place.plan("[companies.other]\n")
    assert "acme   1 of 1 completed" in place.run().lines
    assert place.cli("explain", "acme/a").lines[0].startswith("acme/a completed at ")


def test_a_status_shows_titles_and_what_each_company_may_do(place: Place) -> None:
    place.plan("[companies.acme]\nruns_max = 2\nweight = 3\nbudget = 1000\n" + textwrap.dedent(STEERED))
    place.run()
    assert place.cli("pause", "acme", "--later").status == 0
    place.run()
    status = place.cli("status").lines
    assert status[3].startswith(
        "  may run 2 tasks at once (weight 3); may spend 1,000 in all (0 spent, 0 reserved); paused since "
    )
    (report,) = (line for line in status if line.startswith("  report "))
    assert report.startswith('  report "Weekly report" ')
    assert [line for line in status if line.startswith("  collect completed")], "its title is its id"


def test_what_is_proposed_where_no_host_runs_can_be_pasted(place: Place) -> None:
    place.plan(STEERED)
    place.run()
    step = place.cli("explain", "acme/report").lines[1]
    assert step == f"  Start it: python -m actors start acme/report --later --db {place.db}"
    assert main(shlex.split(step.partition("python -m actors ")[2])) == 0
    place.run()
    assert place.cli("explain", "acme/report").lines[0].startswith("acme/report completed at ")


# --- what is there ------------------------------------------------------------


def test_results_can_be_read_and_a_task_without_says_where_it_stands(place: Place) -> None:
    place.plan(STEERED)
    place.run()
    done = place.cli("result", "acme/collect")
    assert done.status == 0
    assert done.lines[0].startswith("acme/collect completed at ")
    assert json.loads("".join(done.lines[2:])) == {"exit_code": 0, "output": "1 2 3\n"}
    told = place.cli("result", "acme/collect", "--json")
    assert json.loads(told.out) == {
        "company": "acme",
        "task": "collect",
        "run": 1,
        "state": "completed",
        "result": {"main": {"exit_code": 0, "output": "1 2 3\n"}},
    }
    none = place.cli("result", "acme/report")
    assert none.status == 1
    assert none.lines[0].startswith("acme/report waits for a person to start it since ")
    told = place.cli("result", "acme/after", "--json")
    assert (told.status, json.loads(told.out)["result"]) == (1, {})


def test_nothing_that_somebody_put_into_the_inbox_or_a_result_reaches_the_terminal_as_it_came(
    place: Place,
) -> None:
    evil = "\x1b[31m\u202e\x9b2J"
    place.plan('[[companies.acme.tasks]]\nid = "a"\nargv = ["printf", "\\\\033[31mred\\\\302\\\\2332J"]\n')
    assert place.run().status == 0
    post = Post(place.db)
    post.plant(evil, evil, evil)
    post.plant(json.dumps({"v": 1, "message": {"$": "Start", "task": "a"}}), "acme", f"{evil}2")
    sql(
        place.db,
        "UPDATE inbox SET answered_ms = 1, answer = ? WHERE company = 'acme'",
        json.dumps({"v": 1, "refused": {"$": "Sold", "text": evil, "advice": [evil]}}),
    )
    for words in (["inbox"], ["inbox", "--company", "acme"], ["result", "acme/a"]):
        done = place.cli(*words)
        assert done.status == 0
        assert not [char for char in ("\x1b", "\u202e", "\x9b") if char in done.out + done.err]
        assert "x1b[31m" in done.out or "u001b[31m" in done.out
    for line in place.cli("inbox", "--json").lines:
        assert json.loads(line)["company"] in (evil, "acme")


def test_the_inbox_of_one_company_alone_can_be_listed(place: Place) -> None:
    trio.run(empty_company, place.db)

    async def send() -> None:
        async with open_inbox(place.db) as inbox:
            await inbox.send("acme", Pause())
            await inbox.send("other", Pause())

    trio.run(send)
    assert len(place.cli("inbox").lines) == 3
    assert len(place.cli("inbox", "--company", "acme").lines) == 2
    told = [json.loads(line) for line in place.cli("inbox", "--json").lines]
    assert [(one["company"], one["message"], one["answered_ms"]) for one in told] == [
        ("acme", {"$": "Pause"}, None),
        ("other", {"$": "Pause"}, None),
    ]


# --- the table --------------------------------------------------------------------------------------------------------


def test_every_command_has_a_name_of_its_own_and_sends_a_message_of_its_own() -> None:
    assert len({command.name for command in MESSAGE_COMMANDS}) == len(MESSAGE_COMMANDS) == len(COMMAND_OF)
    assert COMMAND_OF.keys() == MESSAGES.keys() - {"SubmitMany"}, "many tasks are what a plan is for"


@pytest.mark.parametrize("command", MESSAGE_COMMANDS, ids=lambda command: command.name)
def test_a_command_says_what_it_does_and_what_its_exit_status_means(
    command: object, capsys: pytest.CaptureFixture[str]
) -> None:
    name = command.name  # type: ignore[attr-defined]
    assert main([name, "--help"]) == 0
    said = capsys.readouterr().out
    assert "3 nothing was sent" in said
    assert "4 sent, but not answered in time" in said
    assert "--later" in said


def test_a_mode_can_be_given_by_each_of_its_names(capsys: pytest.CaptureFixture[str]) -> None:
    main(["submit", "--help"])
    assert "{" + ",".join(Mode) + "}" in capsys.readouterr().out


def test_the_console_script_is_the_same_command(capsys: pytest.CaptureFixture[str]) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    module, _, function = scripts["turnkeeper"].partition(":")
    assert getattr(import_module(module), function).__doc__
    assert scripts == {"turnkeeper": "actors.__main__:run"}
