"""A node that was executing when the process died twice is a suspect: suspects start one at a time.

Whatever ran beside the one that kills the process dies with it and is suspected too; alone each of them
succeeds and is cleared, and the one that kills comes to its fifth death.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from actors import AttemptEnd, Context, Submit, WorkState, open_reader
from actors.processes import started_of
from actors.testing import open_test_runtime, run_until_idle
from storage.ownership import acquire
from tests.conftest import Opened

HOST = """
import os, sys, trio
from actors import Node, Submit, open_runtime

async def kills(ctx):
    os._exit(9)

async def innocent(ctx):
    await trio.sleep(0.4)
    return "fine"

async def main(path):
    async with open_runtime(path, handlers={"kills": kills, "innocent": innocent}, durability="normal") as runtime:
        for name, handler in (("a", "innocent"), ("b", "kills"), ("c", "innocent")):
            await runtime.company(name).ask(Submit("x", handler=handler, id="task"))
        for name in ("a", "b", "c"):
            await runtime.company(name).when_settled("task")

trio.run(main, sys.argv[1])
"""


def host(path: Path) -> int:
    return subprocess.run(
        [sys.executable, "-c", HOST, str(path)], timeout=60, capture_output=True, check=False
    ).returncode


async def test_the_fifth_death_fails_the_one_that_kills_and_innocents_are_cleared(db_path: Path) -> None:
    codes = []
    while (code := host(db_path)) != 0:
        codes.append(code)
        assert len(codes) < 12
    async with open_reader(db_path) as reader:
        kills = await reader.company("b").status("task")
        assert (kills.state, kills.nodes[0].error) == (WorkState.FAILED, "process died 5 times")
        for name in ("a", "c"):
            status = await reader.company(name).status("task")
            assert (status.state, status.nodes[0].tries) == (WorkState.COMPLETED, 0)
        ends = [attempt.end for attempt in await reader.company("b").attempts("task")]
        assert ends == [AttemptEnd.LOST] * 5
    assert codes == [9] * 5


@pytest.fixture
def twice_lost(db_path: Path) -> None:
    """A database in which three nodes of three companies were executing at two deaths of the process."""
    import sqlite3

    async def never(_ctx: Context) -> None:
        await trio.sleep_forever()

    async def make() -> None:
        async with open_test_runtime(db_path, handlers={"work": never}) as runtime:
            for name in ("a", "b", "c"):
                await runtime.company(name).ask(Submit("x", handler="work", id="task"))
            await trio.sleep(1)
            await runtime.aclose(now=True)

    trio.run(make, clock=MockClock(autojump_threshold=0))
    with acquire(db_path):
        raw = sqlite3.connect(db_path)
        raw.execute("UPDATE nodes SET unclean = 2")
        raw.commit()
        raw.close()


@pytest.mark.planted  # the log knows nothing of the deaths
async def test_suspects_start_one_at_a_time_and_explain_says_why(
    twice_lost: None, opened: Opened, autojump_clock: MockClock
) -> None:
    live: set[str] = set()
    together: list[int] = []

    async def work(ctx: Context) -> None:
        live.add(ctx.company.name)
        together.append(len(live))
        await trio.sleep(10)
        live.discard(ctx.company.name)

    async with opened({"work": work}) as runtime:
        await runtime.company("d").ask(Submit("beside", handler="work", id="task"))
        await trio.sleep(1)
        assert len(live) == 2, "one suspect, and the one that nobody suspects"
        waiting = [name for name in ("a", "b", "c") if name not in live]
        for name in waiting:
            (reason,) = (await runtime.company(name).status("task")).reasons
            assert (reason.kind.value, reason.nodes) == ("execution_slot", ("work",))
        await run_until_idle(runtime)
        for name in ("a", "b", "c", "d"):
            assert (await runtime.company(name).status("task")).state is WorkState.COMPLETED
    assert max(together) == 2


COMMAND_HOST = """
import sys, trio
from actors import Node, Submit, open_runtime
from actors.commands import commands

async def main(path):
    async with open_runtime(path, handlers={"command": commands()}, durability="normal") as runtime:
        shell = "echo $$ > pid-$TURNKEEPER_ATTEMPT; if [ $TURNKEEPER_ATTEMPT = 1 ]; then sleep 600; fi; echo done"
        node = Node("n", "command", payload={"shell": shell})
        await runtime.company("a").ask(Submit("x", nodes=[node], id="task"))
        print(await runtime.company("a").when_settled("task"), flush=True)

trio.run(main, sys.argv[1])
"""


async def test_a_command_that_outlived_its_host_is_ended_before_its_node_runs_again(
    db_path: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", COMMAND_HOST, str(db_path)]
    first = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    pid_file = tmp_path / "pid-1"
    with trio.fail_after(30):
        while not (pid_file.exists() and pid_file.read_text().strip()):
            await trio.sleep(0.02)
    orphan = int(pid_file.read_text())
    first.send_signal(signal.SIGKILL)
    first.wait(10)
    assert await started_of(orphan) is not None, "the command lives on alone"
    done = subprocess.run(command, cwd=tmp_path, timeout=60, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert await started_of(orphan) is None
    assert "'output': 'done" in done.stdout
