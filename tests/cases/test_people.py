"""What a person says costs the work nothing: send-backs and restarts are no failures."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from actors import (
    AttemptEnd,
    Backoff,
    Context,
    Gate,
    MoveRefused,
    Node,
    NodeStatus,
    SendBack,
    Submit,
    WorkState,
)
from actors.testing import run_until_idle
from tests.conftest import Opened


async def test_send_backs_and_drains_do_not_count_towards_the_backoff_nor_use_up_tries(
    opened: Opened, autojump_clock: MockClock
) -> None:
    """C31: sent back with feedback six times, requeued by a drain twice, then failed once; base 2 s."""
    fails: list[bool] = []
    waits = False
    heard: list[str | None] = []

    async def work(ctx: Context) -> str:
        heard.append(ctx.feedback)
        if waits:
            await trio.sleep_forever()
        if fails:
            fails.pop()
            raise RuntimeError("for once")
        return f"version {ctx.generation}"

    node = Node("n", "work", retry=Backoff(base_s=2, factor=100), tries_max=3, send_backs_max=7)
    async with opened({"work": work}) as runtime:
        company = runtime.company("K")
        await company.ask(Submit("judged", id="A", nodes=[node, Gate("gate", after=["n"])]))
        await run_until_idle(runtime)
        for number in range(1, 6):
            await company.ask(SendBack("A", "n", f"feedback {number}"))
            await run_until_idle(runtime)
        waits = True
        await company.ask(SendBack("A", "n", "feedback 6"))
        await trio.sleep(1)
        await runtime.drain(timeout_s=5)
    async with opened({"work": work}, drain_s=5) as runtime:
        await trio.sleep(1)
    waits, fails = False, [True]

    async with opened({"work": work}) as runtime:
        company = runtime.company("K")
        await trio.sleep(1)
        status = await company.status("A")
        (n, _) = status.nodes
        assert (status.state, n.status, n.tries, n.generation, n.send_backs) == (
            WorkState.RUNNING,
            NodeStatus.PENDING,
            1,
            6,
            6,
        )
        failure = (await company.attempts("A"))[-1]
        assert failure.end is AttemptEnd.FAILED
        assert failure.ended_ms is not None
        assert n.not_before_ms is not None
        # the delay of failure no. 1: the second one's would be 200 s
        assert 2.0 <= (n.not_before_ms - failure.ended_ms) / 1000 <= 2.2
        fails.extend([True, True])
        await run_until_idle(runtime)
        status = await company.status("A")
        assert (status.state, status.nodes[0].tries) == (WorkState.FAILED, 3), "cap − 1 attempts were left"
        ends = [attempt.end for attempt in await company.attempts("A")]
        assert ends == [
            *[AttemptEnd.SUCCEEDED] * 6,
            *[AttemptEnd.INTERRUPTED] * 2,
            *[AttemptEnd.FAILED] * 3,
        ]
    assert heard == [
        None,
        *(f"feedback {number}" for number in range(1, 6)),
        *["feedback 6"] * 5,
    ]


async def test_send_backs_have_a_limit_of_their_own(opened: Opened, autojump_clock: MockClock) -> None:
    """C31: failures use up none of it, and it uses up no tries."""
    fails: list[bool] = []

    async def work(ctx: Context) -> str:
        if fails:
            fails.pop()
            raise RuntimeError("for once")
        return "done"

    node = Node("n", "work", retry=Backoff(base_s=2), tries_max=2, send_backs_max=3)
    async with opened({"work": work}) as runtime:
        company = runtime.company("K")
        await company.ask(Submit("judged", id="A", nodes=[node, Gate("gate", after=["n"])]))
        await run_until_idle(runtime)
        for _ in range(3):
            fails.append(True)  # each generation fails once and then succeeds
            await company.ask(SendBack("A", "n", "again"))
            await run_until_idle(runtime)
            assert (await company.status("A")).state is WorkState.HALTED
        with pytest.raises(MoveRefused, match="sent back 3 times of 3"):
            await company.ask(SendBack("A", "n", "again"))
        assert len(await company.attempts("A")) == 1 + 3 * 2
