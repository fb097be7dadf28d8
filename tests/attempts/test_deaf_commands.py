"""Commands that ignore signals: killed with all they started, or, if even that does not help, left behind and counted.

Real processes on a real clock. What is waited for is an event or a file, never a time.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from actors import AttemptEnd, Backoff, Node, Runtime, Stop, Submit, WorkState, processes
from actors.commands import commands
from actors.runtime.attempts import Attempt
from tests.inside import inside
from tests.runtime.support import a_host, kinds, of_kind, stored_events

PATIENCE_S = 120.0
DEAF = """
test $TURNKEEPER_ATTEMPT = 2 && exit 0
trap '' TERM INT HUP
sleep 1000 & echo $! > child
echo $$ > made; mv made up
while :; do sleep 1; done
"""
"""The first attempt and its child hear nothing; the second does nothing."""


def deaf() -> Submit:
    """With limits that no test waits for."""
    limits: dict[str, Any] = {"timeout_s": 10 * PATIENCE_S, "stall_s": 10 * PATIENCE_S}
    node = Node("n", "command", payload={"shell": DEAF}, retry=Backoff(base_s=0), **limits)
    return Submit("deaf", id="deaf", nodes=[node])


async def until_up(folder: Path) -> tuple[int, int]:
    """Wait until the command is deaf; its pid and its child's."""
    with trio.fail_after(PATIENCE_S):
        while not (folder / "up").exists():
            await trio.sleep(0.01)
    return int((folder / "up").read_text()), int((folder / "child").read_text())


async def until_gone(*pids: int) -> None:
    with trio.fail_after(PATIENCE_S):
        for pid in pids:
            while await processes.started_of(pid) is not None:
                await trio.sleep(0.01)


async def until_left_behind(runtime: Runtime, count: int) -> None:
    with trio.fail_after(PATIENCE_S):
        while len(inside(runtime).services.registry.abandoned) != count:
            await trio.sleep(0.01)


def its_attempt(runtime: Runtime) -> Attempt:
    (attempt,) = (attempt for attempt in inside(runtime).services.registry if attempt.ref.company == "k")
    return attempt


@pytest.mark.parametrize("why", ["timed_out", "stalled"])
async def test_a_deaf_command_is_killed_with_its_children_and_its_slot_is_free_and_its_node_goes_on(
    db_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(processes, "TERM_GRACE_S", 0.1)
    monkeypatch.setattr(processes, "KILL_GRACE_S", PATIENCE_S)
    options: dict[str, Any] = {"executions_max": 1, "stop_grace_s": PATIENCE_S}
    async with a_host(db_path, {"command": commands(tmp_path)}, **options) as runtime:
        company = runtime.company("k")
        await company.ask(deaf())
        pids = await until_up(tmp_path)
        await runtime.company("other").ask(Submit("behind it", id="o", handler="ok"))
        inside(runtime).executor.cancel_attempt(its_attempt(runtime), why)
        with trio.fail_after(PATIENCE_S):
            outcome = await company.when_settled("deaf")
            await runtime.company("other").when_settled("o")
        assert outcome.status.value == "completed"
        await until_gone(*pids)
        assert [view.end for view in await company.attempts("deaf")] == [
            AttemptEnd(why),
            AttemptEnd.SUCCEEDED,
        ]
        assert (await company.status("deaf")).nodes[0].tries == 1
        assert (runtime.statistics().executing, runtime.statistics().abandoned) == (0, 0)
    assert of_kind(stored_events(db_path), "attempt.abandoned") == []


async def test_a_deaf_command_that_is_stopped_is_killed_within_the_grace(
    db_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "TERM_GRACE_S", 0.1)
    async with a_host(
        db_path, {"command": commands(tmp_path)}, executions_max=1, stop_grace_s=PATIENCE_S
    ) as runtime:
        company = runtime.company("k")
        await company.ask(deaf())
        await company.ask(Submit("next", id="next", handler="ok"))
        pids = await until_up(tmp_path)
        await company.ask(Stop("deaf"))
        with trio.fail_after(PATIENCE_S):
            assert (await company.when_settled("deaf")).status.value == "stopped"
            assert (await company.when_settled("next")).status.value == "completed"
        await until_gone(*pids)
    assert of_kind(stored_events(db_path), "attempt.abandoned") == []


# --- those that the kernel does not end -----------------------------------------------------------------------


@attrs.define
class Stuck:
    """A process in uninterruptible sleep: it gets no signal until it is let go."""

    pid: int = 0
    asked: list[int] = attrs.field(factory=list)

    def let_go(self) -> None:
        pid, self.pid = self.pid, 0
        if pid:
            os.killpg(pid, signal.SIGKILL)


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stuck]:
    made, signal_group = Stuck(), processes._signal_group

    def withheld(pid: int, number: int) -> bool:
        if number and pid == made.pid:
            made.asked.append(number)
            return True
        return signal_group(pid, number)

    monkeypatch.setattr(processes, "_signal_group", withheld)
    for name in ("TERM_GRACE_S", "KILL_GRACE_S"):
        monkeypatch.setattr(processes, name, 0.05)
    yield made
    made.let_go()


async def test_a_command_that_cannot_be_killed_is_left_behind_and_counted_until_it_is_gone(
    db_path: Path, tmp_path: Path, stuck: Stuck
) -> None:
    options: dict[str, Any] = {"executions_max": 1, "stop_grace_s": 0.5, "abandoned_max": 1}
    async with a_host(db_path, {"command": commands(tmp_path)}, **options) as runtime:
        company = runtime.company("k")
        await company.ask(deaf())
        pids = await until_up(tmp_path)
        stuck.pid = pids[0]
        first = its_attempt(runtime)
        inside(runtime).executor.cancel_attempt(first, "timed_out")
        await until_left_behind(runtime, 1)
        assert inside(runtime).services.registry.abandoned == (first,)
        assert (runtime.statistics().abandoned, inside(runtime).services.registry.slots_in_use) == (1, 0)
        assert [view.end for view in await company.attempts("deaf")] == [AttemptEnd.TIMED_OUT]
        held_up = await company.status("deaf")
        assert held_up.state is WorkState.RUNNING, "at abandoned_max its next attempt has to wait"
        with trio.fail_after(PATIENCE_S):
            while signal.SIGKILL not in stuck.asked:
                await trio.sleep(0.01)
        stuck.let_go()
        with trio.fail_after(PATIENCE_S):
            assert (await company.when_settled("deaf")).status.value == "completed"
        await until_gone(*pids)
        await until_left_behind(runtime, 0)
        assert stuck.asked == [signal.SIGTERM, signal.SIGKILL], "once each: nobody asks it again and again"
        assert [view.end for view in await company.attempts("deaf")] == [
            AttemptEnd.TIMED_OUT,
            AttemptEnd.SUCCEEDED,
        ]
    told = of_kind(stored_events(db_path), "attempt.abandoned", "attempt.timed_out", "attempt.late")
    assert kinds(told) == ["attempt.abandoned", "attempt.timed_out", "attempt.late"]


async def test_below_abandoned_max_the_node_goes_on_beside_a_command_that_cannot_be_killed(
    db_path: Path, tmp_path: Path, stuck: Stuck
) -> None:
    options: dict[str, Any] = {"executions_max": 1, "stop_grace_s": 0.5, "abandoned_max": 2}
    async with a_host(db_path, {"command": commands(tmp_path)}, **options) as runtime:
        company = runtime.company("k")
        await company.ask(deaf())
        pids = await until_up(tmp_path)
        stuck.pid = pids[0]
        inside(runtime).executor.cancel_attempt(its_attempt(runtime), "timed_out")
        with trio.fail_after(PATIENCE_S):
            assert (await company.when_settled("deaf")).status.value == "completed"
        assert runtime.statistics().abandoned == 1
        assert await processes.started_of(stuck.pid) is not None
        stuck.let_go()
        await until_gone(*pids)


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # by which Trio waits for the process
async def test_closing_does_not_wait_for_a_command_that_cannot_be_killed_and_names_it(
    db_path: Path, tmp_path: Path, stuck: Stuck
) -> None:
    async with a_host(db_path, {"command": commands(tmp_path)}, stop_grace_s=0.5) as runtime:
        await runtime.company("k").ask(deaf())
        stuck.pid, child = await until_up(tmp_path)
        with trio.fail_after(PATIENCE_S):
            report = await runtime.aclose(now=True)
        assert report.interrupted == report.abandoned == ("k/deaf/1/n/1",)
        assert await processes.started_of(stuck.pid) is not None
    pid = stuck.pid
    stuck.let_go()
    await until_gone(pid, child)
