"""A node that was executing when the process died twice is a suspect: suspects start one at a time.

Whatever ran beside the one that kills the process dies with it and is suspected too; alone each of them
succeeds and is cleared, and the one that kills comes to its fifth death.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from actors import AttemptEnd, Context, Submit, WorkState, open_reader
from actors.processes import started_of
from actors.testing import open_test_runtime, run_until_idle
from storage.sqlite.ownership import acquire
from tests.conftest import Opened

HOST = """
import os, sys, trio
from actors import Submit, open_runtime

path, life = sys.argv[1], int(sys.argv[2])
started = {name: trio.Event() for name in "acd"}

def say(*words):
    out = os.open(f"{path}.world", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(out, (" ".join(map(str, (life, *words))) + "\\n").encode())
    os.close(out)

async def kills(ctx):
    say("begins", "b")
    for name in {1: "ac", 2: "ac", 3: "d", 4: "d"}.get(life, ""):
        await started[name].wait()
    os._exit(9)

async def innocent(ctx):
    name = ctx.company.name
    say("begins", name)
    started[name].set()
    if life <= {"a": 2, "c": 2, "d": 4}[name]:
        await trio.sleep_forever()
    say("ends", name)
    return "fine"

async def main():
    async with open_runtime(path, handlers={"kills": kills, "innocent": innocent}, durability="normal") as runtime:
        names = "abc" if life < 3 else "abcd"
        for name in names:
            await runtime.company(name).ask(Submit("x", handler="kills" if name == "b" else "innocent", id="task"))
        for name in names:
            await runtime.company(name).when_settled("task")

trio.run(main)
"""
"""In its first two lives the killer dies when two innocents execute beside it, in the next two when a new one does."""
HANGS_S = 300.0


def lives_of(path: Path) -> list[int]:
    """Start the host again as often as it dies; the statuses with which it ended."""
    codes: list[int] = []
    while not codes or codes[-1] != 0:
        assert len(codes) < 12, codes
        argv = [sys.executable, "-c", HOST, str(path), str(len(codes) + 1)]
        codes.append(subprocess.run(argv, timeout=HANGS_S, capture_output=True, check=False).returncode)
    return codes


async def test_a_node_under_which_the_process_died_twice_starts_alone_and_the_fifth_death_fails_it(
    db_path: Path,
) -> None:
    """And those who only ran beside it are not failed: alone they succeed, and nothing is held against them."""
    assert lives_of(db_path) == [9] * 5 + [0]
    async with open_reader(db_path) as reader:
        killer = await reader.company("b").status("task")
        assert (killer.state, killer.nodes[0].error, killer.nodes[0].tries) == (
            WorkState.FAILED,
            "process died 5 times",
            0,
        )
        ends = [attempt.end for attempt in await reader.company("b").attempts("task")]
        assert ends == [AttemptEnd.LOST] * 5
        for name in ("a", "c", "d"):
            status = await reader.company(name).status("task")
            assert (status.state, status.nodes[0].tries) == (WorkState.COMPLETED, 0)
            ends = [attempt.end for attempt in await reader.company(name).attempts("task")]
            assert ends == [AttemptEnd.LOST] * 2 + [AttemptEnd.SUCCEEDED]
    assert_no_suspect_ran_beside_another(Path(f"{db_path}.world").read_text().splitlines())


def assert_no_suspect_ran_beside_another(world: list[str]) -> None:
    deaths: Counter[str] = Counter()
    for life, lines in groupby((line.split() for line in world), key=itemgetter(0)):
        live: set[str] = set()
        for _, what, name in lines:
            if what == "ends":
                live.remove(name)
                continue
            beside = {each for each in live if deaths[each] >= 2}
            assert deaths[name] < 2 or not beside, f"in life {life} the suspect {name} began beside {beside}"
            live.add(name)
        deaths.update(live)
    assert deaths == {"a": 2, "b": 5, "c": 2, "d": 2}


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

async def main(path, shell):
    async with open_runtime(path, handlers={"command": commands()}, durability="normal") as runtime:
        nodes = [Node(name, "command", payload={"shell": shell}) for name in sys.argv[3:]]
        await runtime.company("a").ask(Submit("x", nodes=nodes, id="task"))
        print((await runtime.company("a").when_settled("task")).result, flush=True)

trio.run(main, sys.argv[1], sys.argv[2])
"""
ORPHAN = """
here=$TURNKEEPER_NODE
if [ $TURNKEEPER_ATTEMPT = 1 ]; then
    {first}
    sleep 1000 & echo $! > $here-child
    echo $$ > $here-made; mv $here-made $here-leader
    while :; do sleep 1; done
fi
for pid in $(cat *-leader *-child); do
    state=$(cut -d ' ' -f 3 /proc/$pid/stat 2>/dev/null)
    test "${{state:-Z}}" = Z || echo "beside $pid"
done
echo done
"""
"""The first attempt and its child go on for ever; the second says who of the first ones is still alive."""


async def pids_of(folder: Path, node: str) -> tuple[int, int]:
    """Wait for a command; its pid and its child's."""
    with trio.fail_after(HANGS_S):
        while not (folder / f"{node}-leader").exists():
            await trio.sleep(0.02)
    return int((folder / f"{node}-leader").read_text()), int((folder / f"{node}-child").read_text())


@pytest.fixture
def orphans() -> Iterator[list[tuple[int, int]]]:
    """Commands and their children; what a test leaves of them is ended."""
    known: list[tuple[int, int]] = []
    yield known
    for leader, _ in known:
        with suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)


@pytest.mark.parametrize("how", ["all are there", "they are deaf", "their leaders have ended"])
async def test_commands_that_outlived_their_host_are_ended_before_their_nodes_run_again(
    db_path: Path, tmp_path: Path, orphans: list[tuple[int, int]], how: str
) -> None:
    shell = ORPHAN.format(first="trap '' TERM" if how == "they are deaf" else "")
    argv = [sys.executable, "-c", COMMAND_HOST, str(db_path), shell, "m", "n"]
    first = subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.DEVNULL)
    orphans += [await pids_of(tmp_path, node) for node in ("m", "n")]
    first.kill()
    first.wait(HANGS_S)
    for leader, child in orphans:
        if how == "their leaders have ended":
            os.kill(leader, signal.SIGKILL)
            with trio.fail_after(HANGS_S):
                while await started_of(leader) is not None:
                    await trio.sleep(0.02)
        else:
            assert await started_of(leader) is not None, "the command lives on alone"
        assert await started_of(child) is not None
    done = subprocess.run(argv, cwd=tmp_path, timeout=HANGS_S, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = {"exit_code": 0, "output": "done\n"}
    assert done.stdout.splitlines()[-1] == str({"m": expected, "n": expected})
    async with open_reader(db_path) as reader:
        ends = Counter(attempt.end for attempt in await reader.company("a").attempts("task"))
        assert ends == {AttemptEnd.LOST: 2, AttemptEnd.SUCCEEDED: 2}
