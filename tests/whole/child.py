"""Hosts in processes of their own: ``python -m tests.whole.child WHAT DATABASE``, or many of them by ``serve``.

Each says on standard output how far it is. What its handlers do outside is a line in ``DATABASE.world``, written in one
piece, so that it survives whatever happens to the process.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any

import structlog
import trio

from actors import Context, GiveUp, Node, Runtime, SetLimits, Submit, SubmitMany, open_runtime

COMPANIES = ("acme", "bolt")
TASKS = 6
"""Of each company; each depends on the one before the last, and has three nodes."""


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def of_world(path: str) -> Callable[[str], None]:
    def write(line: str) -> None:
        out = os.open(f"{path}.world", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(out, f"{line}\n".encode())
        os.close(out)

    return write


def handlers(path: str) -> dict[str, Any]:
    world = of_world(path)

    async def step(ctx: Context) -> object:
        world(ctx.key)
        await trio.sleep(0.01)
        return {"key": ctx.key, "inputs": sorted(ctx.inputs)}

    def plain(ctx: Context) -> object:
        world(ctx.key)
        time.sleep(0.01)
        return {"key": ctx.key, "inputs": sorted(ctx.inputs)}

    async def kills(ctx: Context) -> None:
        world(ctx.key)
        os._exit(9)

    async def endless(ctx: Context) -> None:
        say("executing")
        await trio.sleep_forever()

    async def slow_to_end(ctx: Context) -> None:
        """Takes a second over its end, whoever asks."""
        say("executing")
        try:
            await trio.sleep_forever()
        finally:
            say("ending")
            with trio.CancelScope(shield=True):
                await trio.sleep(1)

    def stubborn(ctx: Context) -> None:
        """A thread that does not end."""
        say("executing")
        time.sleep(60)

    async def gives_up(ctx: Context) -> None:
        raise GiveUp("no")

    return {
        "step": step,
        "plain": plain,
        "kills": kills,
        "endless": endless,
        "slow to end": slow_to_end,
        "stubborn": stubborn,
        "gives up": gives_up,
    }


def opened(path: str, **options: Any) -> Any:
    return open_runtime(path, handlers=handlers(path), **{"stop_grace_s": 1.0, "drain_s": 1.0, **options})


async def much(path: str) -> None:
    """Companies with tasks that depend on each other. Done when all are settled; may be started again and again."""
    nodes = [Node("a", "step"), Node("b", "plain", after=["a"]), Node("c", "step", after=["a", "b"])]
    async with opened(path, executions_max=4) as runtime:
        for name in COMPANIES:
            company = runtime.company(name)
            await company.ask(SetLimits(runs_max=2))
            tasks = [
                Submit(f"task {n}", id=f"t{n}", nodes=nodes, depends_on=[f"t{n - 2}"] if n > 2 else [])
                for n in range(1, TASKS + 1)
            ]
            await company.ask(SubmitMany(tasks))
        say("submitted")
        for name in COMPANIES:
            for n in range(1, TASKS + 1):
                await runtime.company(name).when_settled(f"t{n}")
        say("settled")


async def killer(path: str) -> None:
    """One task whose handler ends the process, and others."""
    async with opened(path, executions_max=2) as runtime:
        acme = runtime.company("acme")
        await acme.ask(SetLimits(runs_max=2))
        await acme.ask(Submit("kills", handler="kills", id="kills"))
        await acme.ask(SubmitMany([Submit("other", handler="step", id=f"t{n}") for n in range(4)]))
        for task in ("kills", *(f"t{n}" for n in range(4))):
            outcome = await acme.when_settled(task)
            say(task, outcome.status.value, outcome.reason)


async def normal_end(path: str) -> None:
    async with opened(path) as runtime:
        await runtime.company("acme").ask(Submit("done", handler="plain", id="a"))
        await runtime.company("acme").when_settled("a")
        say("leaving")


async def normal_end_with_a_thread_left(path: str) -> None:
    async with opened(path, stop_grace_s=0.2, drain_s=0.2) as runtime:
        await runtime.company("acme").ask(Submit("stubborn", handler="stubborn", id="a"))
        await trio.sleep(0.3)
        say("leaving")


async def exception_after_opening(path: str) -> None:
    async with opened(path) as runtime:
        await _begin(runtime, "endless")
        say("leaving")
        raise RuntimeError("the host's own mistake")


async def cancelled_while_opening(path: str) -> None:
    for deadline_s in (0.0, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032):
        with trio.move_on_after(deadline_s):
            async with opened(path) as runtime:
                await runtime.company("acme").ask(Submit("a", handler="step"))
                await trio.sleep_forever()
    say("leaving")


async def closing_cancelled(path: str) -> None:
    async with opened(path) as runtime:
        await _begin(runtime, "slow to end")
        with trio.move_on_after(0.1):
            say("leaving")
            await runtime.aclose()


async def copies_its_file(path: str) -> None:
    """Reads its own files, waits for a line while others look, and goes on."""
    async with opened(path, executions_max=0) as runtime:
        acme = runtime.company("acme")
        await acme.ask(Submit("before", handler="step"))
        if sys.stdin.readline() == "folder\n":
            shutil.copytree(os.path.dirname(path), f"{path}.copy")
        else:
            shutil.copy(path, f"{path}.copy")
        say("copied")
        sys.stdin.readline()
        for n in range(20):
            await acme.ask(Submit("after", handler="step", id=f"after{n}"))
        say("acknowledged")
        await trio.sleep_forever()


async def until_a_signal(path: str) -> None:
    async with opened(path) as runtime:
        await _begin(runtime, "endless")
        await trio.sleep_forever()


async def slow_until_a_signal(path: str) -> None:
    async with opened(path) as runtime:
        await _begin(runtime, "slow to end")
        await trio.sleep_forever()


async def _begin(runtime: Runtime, handler: str) -> None:
    await runtime.company("acme").ask(Submit(handler, handler=handler, id="a"))
    await trio.sleep(0.05)


def serve() -> None:
    """Hosts without the second that importing takes: forked for each ``WHAT DATABASE`` on standard input.

    Nothing is open in the process that forks. Each says its ``pid``; when it has ended, its status is said.
    """
    for order in sys.stdin:
        what, path = order.rstrip("\n").split(" ", 1)
        pid = os.fork()
        if pid == 0:
            say("pid", os.getpid())
            trio.run(globals()[what], path)
            return
        say("ended", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    if sys.argv[1] == "serve":
        serve()
    else:
        trio.run(globals()[sys.argv[1]], sys.argv[2])
        say("end")
