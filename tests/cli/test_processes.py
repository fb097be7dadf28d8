"""The command line as a process: signals, sudden death, a second process beside it, a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import termios
import time
from contextlib import suppress
from pathlib import Path

import pytest

from actors import AttemptEnd, Event
from actors.cli import run

from .conftest import PATIENCE_S, Place
from .support import Finish, Gates, alarm, ends_of, events_of, read_until, until_gone

GATED = """
    [companies.acme]

    [[companies.acme.tasks]]
    id = "gated"
    run = "echo $$ > up.fifo; read word < go.fifo; echo got $word"

    [[companies.acme.tasks]]
    id = "after"
    depends_on = ["gated"]
    run = "true"
"""
"""The first task says that it is up, with its pid, and waits until it may go on."""


@pytest.fixture
def gates(place: Place) -> Gates:
    place.plan(GATED)
    return Gates(place.folder)


# --- signals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_one_ctrl_c_lets_what_executes_finish_and_starts_nothing_new(
    place: Place, gates: Gates, finish: Finish, number: signal.Signals
) -> None:
    process = place.start("run", "plan.toml")
    gates.until_up()
    process.send_signal(number)
    read_until(process, "interrupted: running attempts may finish")
    gates.go()
    done = finish(process)
    assert (done.status, done.err) == (130, "")
    assert "acme  1 of 2 completed, 1 queued" in done.lines
    assert done.lines[-1] == "Run the same command again to continue."
    assert ends_of(place.db, "gated") == [AttemptEnd.SUCCEEDED]
    assert ends_of(place.db, "after") == []
    again = place.run()
    assert again.status == 0
    assert again.lines[-1] == "acme  2 of 2 completed"


def test_two_ctrl_c_stop_it_now_and_running_it_again_costs_no_try(
    place: Place, gates: Gates, finish: Finish
) -> None:
    process = place.start("run", "plan.toml")
    pid = gates.until_up()
    process.send_signal(signal.SIGINT)
    read_until(process, "interrupted: running attempts may finish")
    process.send_signal(signal.SIGINT)
    done = finish(process)
    assert done.status == 130
    assert "not finished after" not in done.out
    assert "acme/gated/1/main/1 was interrupted and runs again" in done.lines
    until_gone(pid)
    assert ends_of(place.db, "gated") == [AttemptEnd.INTERRUPTED]
    process = place.start("run", "plan.toml")
    gates.until_up()
    gates.go()
    assert finish(process).status == 0
    assert ends_of(place.db, "gated") == [AttemptEnd.INTERRUPTED, AttemptEnd.SUCCEEDED]


def test_the_third_signal_ends_even_a_process_whose_event_loop_is_held_up(
    place: Place, finish: Finish
) -> None:
    (place.folder / "plan_functions_hog.py").write_text(
        "import time\nasync def hog(ctx):\n    print('hogging', flush=True)\n    time.sleep(1000)\n"
    )
    place.plan("[[companies.acme.tasks]]\nid = 'a'\ncall = 'plan_functions_hog:hog'\n")
    process = place.start("run", "plan.toml")
    read_until(process, "hogging")
    sent = 0
    with alarm():
        while (
            process.poll() is None
        ):  # of several at once some count as one, or only when the loop turns again
            process.send_signal(signal.SIGINT)
            sent += 1
            time.sleep(0.1)
    assert sent >= 3
    assert finish(process).status == 130


IMPATIENT = """
import sys
from actors.cli import main, run
run.STOP_GRACE_S = 0.2
sys.exit(main(sys.argv[1:]))
"""


def test_a_plain_function_that_does_not_end_does_not_keep_the_process(place: Place, finish: Finish) -> None:
    (place.folder / "plan_functions_deaf.py").write_text(
        "import time\ndef deaf(ctx):\n    print('deaf', flush=True)\n    time.sleep(1000)\n"
    )
    place.plan("[[companies.acme.tasks]]\nid = 'a'\ncall = 'plan_functions_deaf:deaf'\n")
    process = place.start("run", "plan.toml", via=("-c", IMPATIENT))
    read_until(process, "deaf")
    process.send_signal(signal.SIGINT)
    read_until(process, "interrupted: ")
    process.send_signal(signal.SIGINT)
    done = finish(process)
    assert done.status == 130
    assert "acme/a/1/main/1 did not end and was left behind" in done.lines


def test_what_has_not_finished_when_the_patience_ends_is_stopped(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "DRAIN_S", 0.1)
    (place.folder / "plan_functions_slow.py").write_text(
        "import os, signal, trio\nasync def slow(ctx):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n    await trio.sleep_forever()\n"
    )
    place.plan("[[companies.acme.tasks]]\nid = 'a'\ncall = 'plan_functions_slow:slow'\n")
    done = place.run()
    assert done.status == 130
    assert "not finished after 0.1 s: stopping now" in done.lines
    assert ends_of(place.db, "a") == [AttemptEnd.INTERRUPTED]


# --- sudden death -----------------------------------------------------------------------------------------


def test_a_run_that_was_killed_goes_on_where_it_was_and_its_orphan_is_ended_first(
    place: Place, gates: Gates, finish: Finish
) -> None:
    process = place.start("run", "plan.toml")
    orphan = gates.until_up()
    process.kill()
    assert finish(process).status == -signal.SIGKILL
    inputs = place.db.with_name("x.db.inputs")
    (left,) = inputs.iterdir()
    process = place.start("run", "plan.toml")
    gates.until_up()
    until_gone(orphan)
    (its_own,) = inputs.iterdir()
    assert its_own != left, "the private input of the dead host's command is gone"
    gates.go()
    done = finish(process)
    assert done.status == 0
    assert done.err == f"turnkeeper: acme/gated: command.orphan_ended: pid={orphan}\n"
    assert "orphan_ended" not in done.out
    assert ends_of(place.db, "gated") == [AttemptEnd.LOST, AttemptEnd.SUCCEEDED]
    assert not inputs.exists()


def test_the_demo_killed_again_and_again_is_finished_by_running_it_again(
    place: Place, finish: Finish
) -> None:
    ends = []
    for midway in ("bakery/flour: attempt 1", "bakery/bread: attempt 2", "The demo retries it"):
        process = place.start("demo")
        with suppress(AssertionError):  # the run before may have come further than we have read
            read_until(process, midway)
        process.kill()
        ends.append(finish(process).status)
    assert ends[0] == -signal.SIGKILL
    assert set(ends) <= {-signal.SIGKILL, 0}
    done = finish(place.start("demo"))
    assert (done.status, done.err) == (0, "")
    assert "bakery       3 of 4 completed, 1 manual" in done.lines
    assert "observatory  3 of 3 completed" in done.lines
    events = events_of(place.db)
    accepted = [
        (event.company, event.task, event.node) for event in events if event.kind == "attempt.succeeded"
    ]
    assert len(accepted) == len(set(accepted)) == 10


def test_the_demo_shows_what_it_promises_and_its_commands_can_be_pasted(place: Place, finish: Finish) -> None:
    said = place.cli("demo", "--help").out
    assert "0 it ended as intended, with at most one task left, which waits for you" in said
    done = finish(place.start("demo"))
    assert (done.status, done.err) == (0, "")
    for word in (
        "bakery/bread: attempt 1 of weigh failed, will be tried again in",
        "observatory: 2 tasks are blocked by dome: observe, publish",
        "observatory: 2 tasks are no longer blocked: observe, publish",
        "bakery/open-shop waits for a person to start it since ",
        "Try next:",
    ):
        assert word in done.out
    pasted = [line.partition("python -m actors ")[2].split() for line in done.lines if "-m actors" in line]
    assert [words[0] for words in pasted] == ["status", "explain", "timeline", "log", "run"]
    for words in pasted:
        at = words.index("--db")
        assert place.cli(*words[:at], *words[at + 2 :]).status == 0
    assert place.cli("status").lines[2] == "bakery: 4 of 4 completed"


# --- beside a running host ----------------------------------------------------------------------------------


def test_a_database_is_read_beside_the_process_that_runs_it_and_cannot_be_run_twice(
    place: Place, gates: Gates, finish: Finish
) -> None:
    host = place.start("run", "plan.toml")
    gates.until_up()
    status = place.cli("status").lines
    assert status[0].startswith(f"process {host.pid} has run this database since ")
    assert status[2] == "acme: 0 of 2 completed, 1 running, 1 waiting"
    assert status[3] == "  may run 1 task at a time (weight 1)"
    assert status[4].startswith("  gated executes main")
    assert status[5] == "  after waits for gated"
    queue = place.cli("queue").lines
    assert [line.split()[1:4] for line in queue] == [
        ["running", "P2", "acme/gated"],
        ["waiting", "P2", "acme/after"],
    ]
    assert place.cli("explain", "acme/after").lines[0] == "acme/after waits for acme/gated."
    assert len(place.cli("timeline", "acme/gated").lines) == 3
    second = place.run()
    assert (second.status, second.out) == (2, "")
    assert f"is in use by process {host.pid}" in second.err
    gates.go()
    assert finish(host).status == 0
    assert place.cli("status").lines[0] == "no process runs this database"


def test_a_followed_log_shows_events_as_they_come_until_ctrl_c(
    place: Place, gates: Gates, finish: Finish
) -> None:
    host = place.start("run", "plan.toml")
    gates.until_up()
    log = place.start("log", "--follow", "--json")
    read_until(log, '"attempt.started"')
    gates.go()
    assert finish(host).status == 0
    read_until(log, '"process.stopped"')
    log.send_signal(signal.SIGINT)
    done = finish(log)
    assert (done.status, done.out, done.err) == (130, "", "")


@pytest.mark.parametrize("company", [None, "acme"])
@pytest.mark.parametrize("there", ["nothing", "an empty file", "a database of another company"])
def test_a_log_can_be_followed_before_the_first_run(
    place: Place, finish: Finish, company: str | None, there: str
) -> None:
    if there == "an empty file":
        place.db.touch()
    elif there == "a database of another company":
        place.plan("[[companies.other.tasks]]\nid = 'a'\nrun = 'true'\n")
        assert place.run().status == 0
    only = ["--company", company] if company else []
    log = place.start("log", "-f", "--json", *only)
    waits_for_the_file = there != "a database of another company"
    if waits_for_the_file or company:
        what = (
            f"there is no database {place.db} yet: waiting for the first run to create it"
            if waits_for_the_file
            else "there is no company acme; there are: other. Waiting for it"
        )
        assert log.stderr is not None
        with alarm():
            assert log.stderr.readline() == f"turnkeeper: {what}\n"
    if waits_for_the_file:
        assert place.db.exists() is (there == "an empty file"), "waiting makes nothing"
    place.plan("[[companies.acme.tasks]]\nid = 'a'\nrun = 'true'\n", name="second.toml")
    assert place.cli("run", place.folder / "second.toml").status == 0
    read_until(log, '"run.completed"' if company else '"process.stopped"')
    log.send_signal(signal.SIGINT)
    assert finish(log).status == 130


def test_a_reader_of_the_output_may_leave_and_the_work_goes_on(
    place: Place, gates: Gates, finish: Finish
) -> None:
    process = place.start("run", "plan.toml", "--json")
    gates.until_up()
    assert process.stdout is not None
    assert Event(**json.loads(process.stdout.readline())).kind == "process.started"
    process.stdout.close()
    process.stdout = None
    gates.go()
    done = finish(process)
    assert (done.status, done.err) == (0, "turnkeeper: acme: 2 tasks added\n")


# --- a terminal -------------------------------------------------------------------------------------------


def test_a_terminal_shows_a_bar_for_each_company_and_then_the_summary(place: Place) -> None:
    place.plan(
        """
        [[companies.acme.tasks]]
        id = "good"
        run = "true"

        [[companies.beta.tasks]]
        id = "bad"
        tries_max = 1
        run = "echo [red]careful; exit 5"
        """
    )
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    env = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
    env |= {"TERM": "xterm-256color", "PYTHONPATH": str(Path(__file__).parents[2])}
    process = place.start("run", "plan.toml", stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    shown = read_terminal(ours)
    assert process.wait(PATIENCE_S) == 1
    assert "\x1b[" in shown
    assert "acme" in shown
    assert "1/1" in shown
    assert "0/1" in shown
    assert (
        "beta/bad: attempt 1 of main failed, no tries left: CommandFailed: exit status 5 | [red]careful"
        in shown
    )
    tail = shown.replace("\r\n", "\n").rpartition("acme  1 of 1 completed\n")[2]
    assert tail.startswith("beta  0 of 1 completed, 1 failed\n\nbeta/bad failed in main")


def read_terminal(descriptor: int) -> str:
    shown = b""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s and select.select([descriptor], [], [], PATIENCE_S)[0]:
        try:
            data = os.read(descriptor, 65536)
        except OSError:  # Linux says so when the other side was closed
            break
        if not data:
            break
        shown += data
    os.close(descriptor)
    return shown.decode("utf-8", "replace")


def test_a_run_that_stays_fires_schedules_until_it_is_interrupted(place: Place, finish: Finish) -> None:
    place.plan("[[companies.acme.schedules]]\nname = 'beat'\nevery = 1\nrun = 'true'\n")
    process = place.start("run", "plan.toml", "--stay")
    for _ in range(3):
        read_until(process, "submitted by schedule beat for")
    process.send_signal(signal.SIGINT)
    assert finish(process).status == 130
