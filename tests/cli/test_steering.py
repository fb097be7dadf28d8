"""A running host steered from a terminal: a host in a process of its own, and commands against it."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import textwrap
import time
import tomllib
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest
import trio

from actors import Mode, Pause, Submit, open_inbox, open_runtime
from actors.cli import main
from actors.cli.message_commands import COMMAND_OF, MESSAGE_COMMANDS
from actors.runtime import intake
from actors.wire import message_kinds
from tests.inbox.support import Post
from tests.runtime.support import sql

from .conftest import PATIENCE_S, ROOT, Done, Place
from .support import Gates, read_until

PLAN = """
    [[companies.acme.tasks]]
    id = "collect"
    run = "echo 1 2 3"

    [[companies.acme.tasks]]
    id = "report"
    title = "Weekly report"
    mode = "manual"
    depends_on = ["collect"]
    run = "echo the report"

    [[companies.acme.tasks]]
    id = "broken"
    goal = "g"
    attempts_max = 1
    run = "test -e mended"

    [[companies.acme.tasks]]
    id = "after"
    goal = "g"
    depends_on = ["broken"]
    run = "true"
"""
STAYS = "nothing continues without a person"


@pytest.fixture
def host(place: Place) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Starts a host that stays, and waits until it has done what it can."""
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        process = place.start("run", "plan.toml", "--stay")
        started.append(process)
        read_until(process, STAYS)
        return process

    place.plan(PLAN)
    yield start
    for process in started:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def until(place: Place, task: str, state: str) -> None:
    """Wait until `explain` says so of the task."""
    end_s = time.monotonic() + PATIENCE_S
    while (said := place.cli("explain", task).lines[0]) and not said.startswith(f"{task} {state}"):
        assert time.monotonic() < end_s, said


Host = Callable[[], "subprocess.Popen[str]"]

# --- the life of some tasks -------------------------------------------------------------------------------------------


def test_a_person_steers_a_host_and_every_command_says_what_changed(place: Place, host: Host) -> None:
    host()

    def says(expected: str, *words: str) -> None:
        done = place.cli(*words)
        assert (done.status, done.err) == (0, ""), done
        assert done.out.startswith(expected), done.out
        assert done.out.endswith(".\n")

    says("acme/report was started; it ", "start", "acme/report")
    until(place, "acme/report", "completed")
    says("acme/report runs again, as run 2; it ", "rerun", "acme/report", "--payload", '{"week": 8}')
    until(place, "acme/report", "completed")
    says("acme/after was changed.", "edit", "acme/after", "--priority", "P1", "--title", "The end")
    says("acme/broken continues; it ", "retry", "acme/broken")
    until(place, "acme/broken", "failed")
    (place.folder / "mended").touch()
    says("acme/broken goes first; it ", "start-now", "acme/broken")
    until(place, "acme/after", "completed")
    says("acme is paused: running attempts finish, nothing new starts.", "pause", "acme")
    says("acme was paused already.", "pause", "acme")
    says(
        "acme/new is submitted; it waits: the company is paused since ",
        "submit",
        "acme/new",
        "New",
        "--run",
        "true",
    )
    says("acme/new existed already: nothing changed; it ", "submit", "acme/new", "New", "--run", "true")
    says("acme/@6 is submitted; it ", "submit", "acme", "Another", "--goal", "g", "--mode", "manual")
    says("acme stops 1 task of goal g: @6.", "stop-goal", "acme", "g")
    says("acme has nothing to stop for goal g.", "stop-goal", "acme", "g")
    says("acme/new was stopped.", "stop", "acme/new")
    says("acme/new is stopped already: nothing changed.", "stop", "acme/new")
    says("acme/new was archived.", "archive", "acme/new")
    says("acme/new was archived before.", "archive", "acme/new")
    says("acme/new was brought back; it was stopped at ", "unarchive", "acme/new")
    says("acme/new was not archived; it was stopped at ", "unarchive", "acme/new")
    says("acme continues.", "unpause", "acme")
    says("acme was not paused.", "unpause", "acme")
    says("acme was not resting.", "unpark", "acme")
    says("acme may run 2 tasks at once and has weight 1.", "limits", "acme", "--runs-max", "2")
    says("acme may run 2 tasks at once and has weight 1, as before.", "limits", "acme", "--weight", "1")
    says("new-company may not run any task", "limits", "new-company", "--runs-max", "0")
    graph = place.plan('[[nodes]]\nname = "one"\nrun = "echo one"\n', "graph.toml")
    says("acme has graph small, version 1.", "define-graph", "acme", "small", str(graph))
    says("acme has graph small, version 1, as before.", "define-graph", "acme", "small", str(graph))
    says("acme/drawn is submitted; it ", "submit", "acme/drawn", "Drawn", "--graph", "small")
    until(place, "acme/drawn", "completed")
    daily = ("schedule", "acme", "daily", "Daily report", "--cron", "30 7 * * *", "--run", "true")
    says("acme has schedule daily; its next time is ", *daily)
    says("acme has schedule daily, as before; its next time is ", *daily)
    says("acme has schedule daily, paused; its next time is ", "pause-schedule", "acme", "daily")
    says("acme has schedule daily; its next time is ", "resume-schedule", "acme", "daily")
    says("acme/@8 is submitted; it ", "run-now", "acme", "daily")
    says("acme no longer has schedule daily.", "remove-schedule", "acme", "daily")
    assert place.cli("run-now", "acme", "daily").status == 1
    assert place.cli("result", "acme/drawn").status == 0


def test_a_refusal_says_what_to_do_instead_as_a_command(place: Place, host: Host) -> None:
    host()
    done = place.cli("start", "acme/collect")
    assert (done.status, done.out) == (1, "")
    refused, instead = done.err.splitlines()
    assert refused == "turnkeeper: Start refused: task collect is completed: use Rerun to do it again"
    assert instead == f"turnkeeper: instead: python -m actors rerun acme/collect --db {place.db}"
    pasted = shlex.split(instead.partition("python -m actors ")[2])
    assert main(pasted) == 0
    unknown = place.cli("retry", "acme/nobody")
    assert (unknown.status, unknown.out) == (1, "")
    assert "company 'acme' has no task 'nobody'" in unknown.err
    nowhere = place.cli("submit", "acme", "t", "--handler", "nobody")
    assert (nowhere.status, nowhere.out) == (1, "")
    assert "no handler is registered as nobody" in nowhere.err


def test_answers_for_programs(place: Place, host: Host) -> None:
    host()
    done = place.cli("start", "acme/report", "--json", "--message-id", "mine")
    told = json.loads(done.out)
    assert (done.status, done.err, len(done.lines)) == (0, "", 1)
    assert told["outcome"] == "done"
    assert (told["company"], told["id"]) == ("acme", "mine")
    assert told["message"] == {"$": "Start", "task": "report"}
    assert (told["reply"]["id"], told["reply"]["run"], told["reply"]["changed"]) == ("report", 1, True)
    assert told["error"] is None
    again = json.loads(place.cli("start", "acme/report", "--json", "--message-id", "mine").out)
    assert again == told, "the same message has its first answer"
    refused = place.cli("start", "acme/collect", "--json")
    assert refused.status == 1
    told = json.loads(refused.out)
    assert told["outcome"] == "refused"
    assert told["error"] == {
        "kind": "MoveRefused",
        "text": "Start refused: task collect is completed: use Rerun to do it again",
        "advice": ["Rerun"],
    }
    conflict = place.cli("stop", "acme/report", "--message-id", "mine")
    assert (conflict.status, conflict.out) == (2, "")
    assert "was used for another message" in conflict.err


# --- without a host, and with one that does not answer ----------------------------------------------------------------


def test_where_no_host_runs_nothing_is_sent_unless_it_may_be_later(place: Place) -> None:
    place.plan(PLAN)
    assert place.run().status == 1
    done = place.cli("start", "acme/report")
    assert (done.status, done.out) == (3, "")
    assert f"no process runs {place.db}: nothing was sent" in done.err
    assert "--later" in done.err
    assert sql(place.db, "SELECT count(*) FROM inbox") == [(0,)]
    told = place.cli("start", "acme/report", "--json")
    assert told.status == 3
    assert json.loads(told.out) == {"outcome": "not_sent", "company": "acme", "id": None}
    later = place.cli("start", "acme/report", "--later", "--message-id", "mine")
    assert (later.status, later.err) == (0, "")
    assert later.lines == ["sent: the next process that runs this database carries it out (message mine)"]
    assert place.cli("submit", "fresh/a", "Fresh", "--later", "--run", "true").status == 0
    assert place.cli("start", "fresh/a", "--later").status == 0, "the company is there with what waits for it"
    listed = place.cli("inbox").lines
    assert [line.split(", sent at")[0] for line in listed[:3]] == [
        "waits    acme: start report",
        "waits    fresh: submit a",
        "waits    fresh: start a",
    ]
    assert listed[3] == "no process runs this database: the next one carries out what waits"
    again = place.run()
    assert "acme   2 of 4 completed, 1 blocked, 1 failed" in again.lines
    assert "fresh  1 of 1 completed" in again.lines
    done_by_now = place.cli("start", "acme/report", "--later", "--message-id", "mine")
    assert done_by_now.status == 0
    assert done_by_now.out.startswith("acme/report was started; it completed at ")


def test_a_run_does_all_that_waits_for_it_before_it_ends(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "EACH_MAX", 1)  # so that it takes a while, in which nothing goes on by itself
    place.plan(PLAN)
    place.run()
    post = Post(place.db)
    for number in range(200):
        post.send(Submit("later", id=f"t{number}", mode="manual"), "fresh")
    assert "fresh  0 of 200 completed, 200 manual" in place.run().lines
    assert post.waiting == []


def test_a_host_that_does_not_answer_in_time_does_it_later_and_the_answer_can_be_asked_for(
    place: Place, host: Host
) -> None:
    process = host()
    process.send_signal(signal.SIGSTOP)
    done = place.cli("start", "acme/report", "--timeout", "0.2", "--message-id", "mine")
    assert (done.status, done.out) == (4, "")
    assert "not answered yet after 0.2 s: message mine still waits" in done.err
    assert done.err.rstrip().endswith(f"Look with: python -m actors inbox --db {place.db}")
    told = place.cli("start", "acme/report", "--timeout", "0.1", "--json", "--message-id", "mine")
    assert (told.status, json.loads(told.out)["outcome"]) == (4, "unanswered")
    sent = place.cli("pause", "acme", "--timeout", "0")
    assert (sent.status, sent.err) == (0, "")
    assert sent.out.startswith("sent: the process that runs this database carries it out (message ")
    assert [line.split(", sent at")[0] for line in place.cli("inbox").lines] == [
        "waits    acme: start report",
        "waits    acme: pause",
    ]
    process.send_signal(signal.SIGCONT)
    answered = place.cli("start", "acme/report", "--message-id", "mine")
    assert answered.status == 0
    assert answered.out.startswith("acme/report was started; it ")


def test_a_host_that_is_killed_leaves_what_it_has_not_done_to_the_next(place: Place, host: Host) -> None:
    process = host()
    process.send_signal(signal.SIGSTOP)
    assert place.cli("start", "acme/report", "--timeout", "0").status == 0
    assert place.cli("submit", "acme", "once", "--timeout", "0", "--mode", "manual").status == 0
    process.kill()
    process.wait(PATIENCE_S)
    assert place.cli("pause", "acme").status == 3
    host()
    until(place, "acme/report", "completed")
    assert sql(place.db, "SELECT id FROM tasks WHERE title = 'once'") == [("@5",)]
    assert [line.split(", sent at")[0] for line in place.cli("inbox").lines] == [
        "done     acme: start report",
        "done     acme: submit once",
    ]


def test_an_inbox_that_is_full_takes_no_more(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from storage import inbox

    monkeypatch.setattr(inbox, "WAITING_MAX_OF_COMPANY", 1)
    place.plan(PLAN)
    place.run()
    assert place.cli("pause", "acme", "--later").status == 0
    done = place.cli("pause", "acme", "--later")
    assert (done.status, done.out) == (3, "")
    assert "the inbox of company 'acme' holds 1 messages that wait" in done.err


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
        ("edit acme/report --priority Phigh", 'priority must be a whole number or "P" and a number'),
        ("edit acme/report --payload {", "must be JSON"),
        ("edit acme/report --goal g --no-goal --mode hope", "invalid choice: 'hope'"),
        ("edit acme/report --run x --handler y", "not allowed with argument --run"),
        ("limits acme", "SetLimits changes nothing"),
        ("limits acme --runs-max -1", "runs_max must be from 0"),
        ("limits acme --runs-max x", "must be an integer"),
        ("submit acme", "the following arguments are required: TITLE"),
        ("submit /a title", "a task is named COMPANY/TASK"),
        ("submit acme/@7 title", "ids of @ and a number are given by the queue"),
        ("submit acme title --depends-on a/b", 'must not hold "/"'),
        ("pause acme --timeout -1", "must be a number of seconds of 0 or more"),
        ("pause acme --timeout nan", "must be a number of seconds of 0 or more"),
        ("pause acme --message-id a/b", 'must not hold "/"'),
        ("define-graph acme g none.toml", "none.toml"),
        ("result acme/nobody", "has no task 'nobody'"),
        ("explain acme/nobody", "has no task 'nobody'"),
    ],
)
def test_a_mistake_in_the_arguments_is_said_and_nothing_is_sent(place: Place, words: str, said: str) -> None:
    place.plan(PLAN)
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
    place.plan("[companies.acme]\nruns_max = 2\nweight = 3\nbudget = 1000\n" + textwrap.dedent(PLAN))
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
    place.plan(PLAN)
    place.run()
    step = place.cli("explain", "acme/report").lines[1]
    assert step == f"  Start it: python -m actors start acme/report --later --db {place.db}"
    assert main(shlex.split(step.partition("python -m actors ")[2])) == 0
    place.run()
    assert place.cli("explain", "acme/report").lines[0].startswith("acme/report completed at ")


# --- what is there ----------------------------------------------------------------------------------------------------


def test_explain_is_a_sentence_with_times_and_a_command_that_can_be_pasted(place: Place, host: Host) -> None:
    host()
    explained = place.cli("explain", "acme/report").lines
    assert explained[0].startswith("acme/report is held: it waits for a person to start it since ")
    assert explained[0].endswith(" ago).")
    assert explained[1] == f"  Start it: python -m actors start acme/report --db {place.db}"
    blocked = place.cli("explain", "acme/after").lines
    assert blocked[0] == "acme/after is blocked: it depends on acme/broken, which failed."
    failed = place.cli("explain", "acme/broken").lines
    assert failed[0].startswith("acme/broken failed in main after 1 try at ")
    (place.folder / "mended").touch()
    for lines, task in ((explained, "acme/report"), (blocked, "acme/broken")):
        assert main(shlex.split(lines[1].partition("python -m actors ")[2])) == 0
        until(place, task, "completed")
    assert (
        f"  See its results: python -m actors result acme/report --db {place.db}"
        in place.cli("explain", "acme/report").lines
    )


def test_results_can_be_read_and_a_task_without_says_where_it_stands(place: Place) -> None:
    place.plan(PLAN)
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


# --- a host that stays ------------------------------------------------------------------------------------------------


def test_a_host_that_stays_does_what_comes_and_ends_in_order_when_it_is_interrupted(
    place: Place, finish: Callable[[subprocess.Popen[str]], Done]
) -> None:
    place.plan("[[companies.acme.tasks]]\nid = 'a'\nrun = 'true'\n")
    process = place.start("run", "plan.toml", "--stay")
    read_until(process, STAYS)
    gates = Gates(place.folder)
    line = "echo $$ > up.fifo; read word < go.fifo; echo got $word"
    assert place.cli("submit", "acme/b", "b", "--run", line).status == 0
    gates.until_up()
    process.send_signal(signal.SIGINT)
    read_until(process, "interrupted: running attempts may finish")
    assert place.cli("submit", "acme/c", "c", "--run", "true").status == 0, "it still takes messages"
    gates.go()
    done = finish(process)
    assert done.status == 130
    assert "acme  2 of 3 completed, 1 queued" in done.lines
    assert place.run().status == 0


# --- the table --------------------------------------------------------------------------------------------------------


def test_every_command_has_a_name_of_its_own_and_sends_a_message_of_its_own() -> None:
    assert len({command.name for command in MESSAGE_COMMANDS}) == len(MESSAGE_COMMANDS) == len(COMMAND_OF)
    assert COMMAND_OF.keys() == message_kinds().keys() - {"SubmitMany"}, "many tasks are what a plan is for"


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
