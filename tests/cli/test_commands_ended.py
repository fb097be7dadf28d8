"""Command nodes are ended with all that they started, by their host or by the next one."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from actors import commands as module
from actors import processes
from actors.commands import (
    CommandFailed,
    command,
    end_orphan,
)

from .command_support import PATIENCE_S, gone, python, shell

# --- ended with all it started ----------------------------------------------------------------------------

CHILDREN = """
import os, signal, sys
child = os.fork()
if {deaf}:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if child:
    print(child, flush=True)
signal.pause()
signal.pause()
"""


@pytest.mark.parametrize("deaf", [False, True])
async def test_a_cancelled_command_is_ended_with_its_children(
    deaf: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "TERM_GRACE_S", 0.2 if deaf else PATIENCE_S)
    ctx = python(CHILDREN.format(deaf=deaf))
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(command, ctx)
            await ctx.spoke.wait()
            nursery.cancel_scope.cancel()
    await gone(ctx.pid)
    await gone(int(ctx.said[0]))


async def test_a_cancelled_command_may_still_say_its_last_words_and_end_by_itself() -> None:
    line = "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.02; done"
    ctx = shell(line)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(command, ctx)
        await ctx.spoke.wait()
        nursery.cancel_scope.cancel()
    assert ctx.said[-1] == "bye"


async def test_a_command_is_ended_when_it_is_cancelled_while_it_is_recorded() -> None:
    ctx = shell("true")
    ctx.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(command, ctx)
        await ctx.recorded.wait()
        nursery.cancel_scope.cancel()
    await gone(ctx.pid)


async def test_children_that_keep_the_pipe_open_do_not_keep_the_command() -> None:
    ctx = shell("sleep 1000 & echo $!")
    with trio.fail_after(PATIENCE_S):
        result = await command(ctx)
    await gone(int(result["output"]))


async def test_a_child_that_left_the_group_keeps_neither_the_command_nor_gets_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PIPE_GRACE_S", 0.1)
    code = "import subprocess, sys; print(subprocess.Popen(['sleep', '1000'], start_new_session=True).pid)"
    with trio.fail_after(PATIENCE_S):
        result = await command(python(code))
    child = int(result["output"])
    assert await processes.started_of(child) is not None
    os.kill(child, signal.SIGKILL)


async def test_a_command_that_ended_leaves_no_open_pipe_behind() -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    await command(shell("true"))
    with pytest.raises(CommandFailed):
        await command(shell("exit 1"))
    after = sorted(os.listdir("/proc/self/fd"))
    new = [fd for fd in after if fd not in before and Path(f"/proc/self/fd/{fd}").exists()]
    assert not [fd for fd in new if stat.S_ISFIFO(os.stat(f"/proc/self/fd/{fd}").st_mode)]


# --- orphans ----------------------------------------------------------------------------------------------


async def test_an_orphan_is_ended_with_its_group_even_if_it_does_not_listen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "TERM_GRACE_S", 0.2)
    code = CHILDREN.format(deaf=True)
    orphan = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE)
    assert orphan.stdout is not None
    with orphan, orphan.stdout as stdout:
        child = int(stdout.readline())
        started = await processes.started_of(orphan.pid)
        assert started
        assert await end_orphan(orphan.pid, started)
        assert orphan.wait() == -signal.SIGKILL
    await gone(child)


async def test_a_process_that_started_at_another_time_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as other:
        started = await processes.started_of(other.pid)
        assert not await end_orphan(other.pid, f"{started}0")
        assert not await end_orphan(other.pid, "")
        assert other.poll() is None
        other.kill()


async def test_a_process_that_does_not_lead_a_group_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "1000"]) as other:
        started = await processes.started_of(other.pid)
        assert started
        assert not await end_orphan(other.pid, started)
        assert other.poll() is None
        other.kill()


async def test_an_orphan_that_has_vanished_is_no_error() -> None:
    with subprocess.Popen(["true"], start_new_session=True) as gone_by_then:
        started = await processes.started_of(gone_by_then.pid) or "x"
    assert not await end_orphan(gone_by_then.pid, started)


MARKS = ["TURNKEEPER_TASK=a b", "TURNKEEPER_ATTEMPT=3"]


async def test_what_an_orphan_that_has_ended_left_in_its_group_is_ended_too() -> None:
    line = "sleep 1000 & echo $!"
    env = {**os.environ, **dict(mark.split("=") for mark in MARKS)}
    orphan = subprocess.Popen(
        ["/bin/sh", "-c", f"read word; {line}"],
        env=env,
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert orphan.stdin is not None
    assert orphan.stdout is not None
    with orphan, orphan.stdout as stdout:
        started = await processes.started_of(orphan.pid)
        assert started
        orphan.stdin.close()
        child = int(stdout.readline())
        orphan.wait()
        assert not await end_orphan(orphan.pid, started)
        assert not await end_orphan(orphan.pid, started, ["TURNKEEPER_TASK=a b", "TURNKEEPER_ATTEMPT=4"])
        assert await processes.started_of(child) is not None
        assert await end_orphan(orphan.pid, started, MARKS)
    await gone(child)


async def test_a_process_that_was_given_the_number_of_an_orphan_is_left_alone_whatever_its_marks() -> None:
    env = {**os.environ, **dict(mark.split("=") for mark in MARKS)}
    with subprocess.Popen(["sleep", "1000"], start_new_session=True, env=env) as other:
        started = await processes.started_of(other.pid)
        assert not await end_orphan(other.pid, f"{started}0", MARKS)
        assert other.poll() is None
        other.kill()


async def test_the_start_of_a_process_is_known_without_proc_too() -> None:
    with subprocess.Popen(["sleep", "1000"]) as other:
        started = await processes._started_by_ps(other.pid)
        assert started
        assert started == await processes._started_by_ps(other.pid)
        other.kill()
        other.wait()
        assert await processes._started_by_ps(other.pid) is None
