"""A running host steered from a terminal: a host in a process of its own, and commands against it."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from actors import Submit
from actors.cli import main
from actors.runtime import inbox_host
from storage.contract.inbox import WAITING_MAX_OF_COMPANY
from tests.inbox.support import Post
from tests.runtime.support import sql

from .conftest import PATIENCE_S, Done, Place
from .support import STEERED, Gates, read_until

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

    place.plan(STEERED)
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
    place.plan(STEERED)
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
    monkeypatch.setattr(
        inbox_host, "EACH_MAX", 1
    )  # so that it takes a while, in which nothing goes on by itself
    place.plan(STEERED)
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
    place.plan(STEERED)
    place.run()
    Post(place.db).fill(WAITING_MAX_OF_COMPANY - 1, "acme")
    assert place.cli("pause", "acme", "--later").status == 0
    done = place.cli("pause", "acme", "--later")
    assert (done.status, done.out) == (3, "")
    assert "the inbox of company 'acme' holds 1000 messages that wait" in done.err


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
