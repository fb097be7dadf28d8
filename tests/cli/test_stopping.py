"""`run` is ended from outside: by Ctrl-C or a service manager, at any moment. No lock is left and no try is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from actors import AttemptEnd, NodeStatus, RetryAfter
from actors.cli import interrupts, run
from actors.commands import CommandFailed
from actors.processes import KILL_GRACE_S, TERM_GRACE_S
from tests.whole.processes import assert_left_in_order

from .conftest import PATIENCE_S, Done, Place
from .support import Finish, Gates, alarm, ends_of, events_of, read_until, status_of, until_gone

LIMIT_S = 10.0
"""From SIGTERM to SIGKILL: Docker's, the shortest of the usual ones."""
SLACK_S = 2.0
"""What is left of it for everything that takes no time on a machine with nothing else to do."""

LONG = """
    [[companies.acme.tasks]]
    id = "long"
    tries_max = 1
    run = '''
    {first}
    sleep 1000 & echo $! > child
    echo $$ > up.fifo
    test $TURNKEEPER_ATTEMPT = 2 && exit 0
    while :; do sleep 1; done
    '''
"""
"""A command with a child: it says that it is up, with its pid, and its first attempt never ends by itself. A failure
would be its last: it has one try.
"""
DEAF = "trap '' TERM INT HUP"


class Long:
    """The process that runs `LONG`, and what is left of it."""

    def __init__(self, place: Place, finish: Finish, first: str = "") -> None:
        self._place = place
        self._finish = finish
        self._up = place.folder / "up.fifo"
        os.mkfifo(self._up)
        place.plan(textwrap.dedent(LONG).format(first=first))
        self.process: subprocess.Popen[str] = place.start("run", "plan.toml")
        self.command = self._until_up()

    def _until_up(self) -> int:
        with alarm(), self._up.open() as up:
            return int(up.read())

    @property
    def child(self) -> int:
        return int((self._place.folder / "child").read_text())

    def ended_within(self, limit_s: float) -> Done:
        """What a service manager does: it waits, and kills what is left. That must not be necessary."""
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
        return self._finish(self.process)

    def assert_nothing_was_lost(self) -> None:
        for pid in (self.command, self.child):
            until_gone(pid)
        assert_interrupted_at_no_cost(self._place, "long")
        process = self._place.start("run", "plan.toml")
        self._until_up()
        assert self._finish(process).status == 0
        assert ends_of(self._place.db, "long") == [AttemptEnd.INTERRUPTED, AttemptEnd.SUCCEEDED]
        assert status_of(self._place.db, "long").nodes[0].tries == 0


Begin = Callable[..., Long]


@pytest.fixture
def begin(place: Place, finish: Finish) -> Iterator[Begin]:
    """``begin(first="…")``: a `Long` whose command says ``first`` first; what a test leaves of it is ended."""
    made: list[Long] = []

    def begin_one(first: str = "") -> Long:
        made.append(Long(place, finish, first))
        return made[-1]

    yield begin_one
    for long in made:
        with suppress(ProcessLookupError):
            os.killpg(long.command, signal.SIGKILL)


def assert_interrupted_at_no_cost(place: Place, task: str) -> None:
    assert_left_in_order(place.db, closed=True)
    assert ends_of(place.db, task) == [AttemptEnd.INTERRUPTED]
    (node,) = status_of(place.db, task).nodes
    assert (node.status, node.tries) == (NodeStatus.PENDING, 0)
    assert "attempt.lost" not in [event.kind for event in events_of(place.db)]


# --- SIGTERM ------------------------------------------------------------------------------------------------


def test_the_time_for_everything_after_sigterm_is_below_what_service_managers_give() -> None:
    assert TERM_GRACE_S + KILL_GRACE_S < run.STOP_GRACE_S, (
        "a command is killed before its attempt is given up"
    )
    assert run.HASTY_DRAIN_S + run.STOP_GRACE_S <= LIMIT_S - SLACK_S


def the_process(long: Long) -> None:
    long.process.send_signal(signal.SIGTERM)


def its_process_group(long: Long) -> None:
    os.killpg(long.process.pid, signal.SIGTERM)


def its_control_group(long: Long) -> None:
    the_process(long)
    os.killpg(long.command, signal.SIGTERM)


def its_control_group_and_the_commands_first(long: Long) -> None:
    os.killpg(long.command, signal.SIGTERM)
    the_process(long)


@pytest.mark.parametrize(
    "send",
    [the_process, its_process_group, its_control_group, its_control_group_and_the_commands_first],
)
def test_a_service_managers_stop_within_its_limit_leaves_no_lock_and_costs_no_tries(
    begin: Begin, send: Callable[[Long], None]
) -> None:
    long = begin()
    send(long)
    done = long.ended_within(LIMIT_S)
    assert (done.status, done.err) == (130, "")
    assert done.lines[-1] == "Run the same command again to continue."
    long.assert_nothing_was_lost()


def test_a_command_that_catches_the_signal_and_exits_with_a_status_was_interrupted_too(
    begin: Begin,
) -> None:
    long = begin(first="trap 'exit 143' TERM")
    its_control_group(long)
    assert long.ended_within(LIMIT_S).status == 130
    long.assert_nothing_was_lost()


def test_commands_that_do_not_listen_are_killed_and_the_stop_still_ends_in_time(begin: Begin) -> None:
    long = begin(first=DEAF)
    its_control_group(long)
    assert long.ended_within(LIMIT_S + 10).status == 130  # what it may take on a loaded machine
    long.assert_nothing_was_lost()


PATIENT = """
import sys
from actors.cli import main, run
run.HASTY_DRAIN_S = 1_000.0
sys.exit(main(sys.argv[1:]))
"""


def test_what_finishes_soon_after_sigterm_counts_and_nothing_new_starts(place: Place, finish: Finish) -> None:
    gates = Gates(place.folder)
    place.plan(
        """
        [[companies.acme.tasks]]
        id = "short"
        run = "echo up; read word < go.fifo"

        [[companies.acme.tasks]]
        id = "after"
        depends_on = ["short"]
        run = "true"
        """
    )
    process = place.start("run", "plan.toml", via=("-c", PATIENT))
    read_until(process, "attempt 1 of main starts")
    process.send_signal(signal.SIGTERM)
    read_until(process, "interrupted: running attempts may finish within 1000 s")
    gates.go()
    assert finish(process).status == 130
    assert (ends_of(place.db, "short"), ends_of(place.db, "after")) == ([AttemptEnd.SUCCEEDED], [])


# --- Ctrl-C -------------------------------------------------------------------------------------------------


def test_ctrl_c_twice_leaves_no_lock_no_orphan_and_costs_no_try(begin: Begin) -> None:
    long = begin()
    long.process.send_signal(signal.SIGINT)
    read_until(long.process, "interrupted: running attempts may finish, nothing new starts")
    long.process.send_signal(signal.SIGINT)
    done = long.ended_within(PATIENCE_S)
    assert (done.status, done.err) == (130, "")
    long.assert_nothing_was_lost()


def test_a_command_that_fails_by_itself_while_ctrl_c_waits_for_it_has_failed(
    place: Place, finish: Finish
) -> None:
    gates = Gates(place.folder)
    place.plan(
        "[[companies.acme.tasks]]\nid = 'a'\ntries_max = 1\nrun = 'echo up; read word < go.fifo; exit 3'\n"
    )
    process = place.start("run", "plan.toml")
    read_until(process, "attempt 1 of main starts")
    process.send_signal(signal.SIGINT)
    read_until(process, "interrupted: ")
    gates.go()
    assert finish(process).status == 130
    assert ends_of(place.db, "a") == [AttemptEnd.FAILED]


# --- at any moment ------------------------------------------------------------------------------------------

AT = """
import os, signal, sys
import actors.runtime.closing
import actors.runtime.kernel
from actors.cli import main, run

def first(owner, name):
    '''Send ourselves the signal as ``owner.name`` is called for the first time.'''
    inner, sent = getattr(owner, name), []
    def wrapped(*args, **options):
        if not sent:
            sent.append(os.kill(os.getpid(), signal.{signal}))
        return inner(*args, **options)
    setattr(owner, name, wrapped)

first({where})
sys.exit(main(sys.argv[1:]))
"""
MOMENTS: Mapping[str, str] = MappingProxyType(
    {
        "before the database is opened": "run, 'open_runtime'",
        "when it is owned": "actors.runtime.kernel, 'BeginHost'",
        "in the sweep at the start": "actors.runtime.kernel, '_begin'",
        "when it is open": "run, '_Session'",
        "while the plan is submitted": "run, 'submit'",
        "in the first look": "run, 'tally'",
        "as closing begins": "actors.runtime.closing.Closing, 'aclose'",
        "as closing ends": "actors.runtime.closing.Closing, '_say_stopped'",
        "when it is closed": "run._Session, 'show_the_last_events'",
    }
)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_stop_at_any_moment_from_the_opening_to_the_close_loses_nothing(
    place: Place, finish: Finish, moment: str, number: signal.Signals
) -> None:
    """A second process finds work that is ready at its start, and work that it is given by the plan."""
    place.plan("[[companies.acme.tasks]]\nid = 'a'\ntries_max = 1\nrun = 'echo a >> done'\n")
    assert place.run("--executions-max", "0").status == 1
    place.plan(
        """
        [[companies.acme.tasks]]
        id = "a"
        tries_max = 1
        run = "echo a >> done"

        [[companies.acme.tasks]]
        id = "b"
        tries_max = 1
        run = "echo b >> done"
        """
    )
    code = AT.format(signal=number.name, where=MOMENTS[moment])
    done = finish(place.start("run", "plan.toml", via=("-c", code)))
    assert (done.status, done.err) == (130, "")
    assert_left_in_order(place.db, closed=True)
    assert place.run().status == 0
    told = [event.kind for event in events_of(place.db)]
    assert not {"attempt.lost", "attempt.failed"} & set(told)
    assert [(place.folder / "done").read_text().count(task) for task in "ab"] == [1, 1]
    assert told.count("process.stopped") == told.count("process.started") == 3


# --- whose fault it was -------------------------------------------------------------------------------------


def _failing(number: int | None, told: interrupts.Interrupts) -> interrupts.CostsNoTry:
    async def command(_ctx: Any) -> dict[str, Any]:
        raise CommandFailed("no luck", number)

    return interrupts.CostsNoTry(command, told)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL, None])
async def test_a_command_that_fails_while_nobody_is_told_to_end_has_failed(
    autojump_clock: MockClock, number: int | None
) -> None:
    began_s = trio.current_time()
    with interrupts.Interrupts() as told, pytest.raises(CommandFailed):
        await _failing(number, told)(SimpleNamespace(cancel_requested=False))
    assert trio.current_time() - began_s <= interrupts.OURS_TOO_S


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_command_that_died_of_a_signal_just_before_we_got_it_was_interrupted(
    autojump_clock: MockClock, number: int
) -> None:
    async def get_it(told: interrupts.Interrupts) -> None:
        await trio.sleep(interrupts.OURS_TOO_S / 2)
        told._receive(number, None)

    with interrupts.Interrupts() as told:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(get_it, told)
            with pytest.raises(RetryAfter, match="no luck"):
                await _failing(number, told)(SimpleNamespace(cancel_requested=False))


async def test_a_command_that_is_ended_by_its_own_time_limit_after_sigterm_has_still_failed(
    autojump_clock: MockClock,
) -> None:
    with interrupts.Interrupts() as told:
        told._receive(signal.SIGTERM, None)
        with pytest.raises(RetryAfter):
            await _failing(1, told)(SimpleNamespace(cancel_requested=False))
        with pytest.raises(CommandFailed):
            await _failing(1, told)(SimpleNamespace(cancel_requested=True))
