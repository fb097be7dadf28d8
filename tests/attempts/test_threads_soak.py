"""A soak in real time: threads and commands that do not listen, handlers that hold up the loop, and the watchdog.

Nothing here is waited for by the clock. Each attempt says that it has begun and stands at a gate of its own; the test
opens gates, and times out, stalls and stops attempts, as the dice fall. In the end every gate is open: every slot has
to be free, nobody registered or left behind, and threads, processes, descriptors, children and objects are as many
as they were when the runtime was at rest before. The seed is printed; ``TURNKEEPER_SEED`` sets it.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import structlog
import trio

import actors.runtime.runtime
import actors.runtime.watchdog
from actors import AttemptEnd, Backoff, Context, Node, Refused, Runtime, SetLimits, Stop, Submit, WorkState
from actors import processes as groups
from actors.commands import commands
from actors.core import shape
from actors.core.reports import Report
from actors.core.state import CompanyState
from actors.core.transitions import Phase
from actors.handlers import freeze
from actors.processes import started_of
from actors.runtime.attempts import Attempt
from actors.runtime.company import CompanyActor
from actors.runtime.mailbox import Envelope, Reply
from actors.runtime.runtime import Options, run_database
from actors.runtime.supervisor import Cell
from actors.runtime.watchdog import Watchdog

HANGS_S = 300.0
COMPANIES = ("a", "b", "c", "d")
ROUNDS = 5
SLOTS = 6
ABANDONED_MAX = 5
LAST_BATCH = 30
"""Objects of the last units and reads, to which somebody who waits for the next still holds."""
KINDS = ("thread", "blocks", "swallows", "waits", "command", "deaf command")
FATES = ("open", "open", "timed_out", "stalled", "stop", "stay", "stay")
SHELL = """
{first}
echo $$ > tmp-$TURNKEEPER_COMPANY-$TURNKEEPER_TASK-$TURNKEEPER_NODE-$TURNKEEPER_ATTEMPT
gate=$TURNKEEPER_COMPANY-$TURNKEEPER_TASK-$TURNKEEPER_NODE-$TURNKEEPER_ATTEMPT
mv tmp-$gate began-$gate
until test -e open-$gate || test -e free; do sleep 0.02; done
"""
SHELLS = {"command": SHELL.format(first=""), "deaf command": SHELL.format(first="trap '' TERM INT HUP")}


@attrs.define(eq=False)
class Gate:
    """Where one attempt stands until it is opened, whether it stands there in a thread or in the loop."""

    thread: threading.Event = attrs.field(factory=threading.Event)
    loop: trio.Event = attrs.field(factory=trio.Event)

    def open(self) -> None:
        self.thread.set()
        self.loop.set()


class World:
    """The handlers, and what the test knows of their attempts."""

    def __init__(self, dice: random.Random, folder: Path) -> None:
        self.dice = dice
        self.folder = folder
        self.free = False
        self.gates: dict[str, Gate] = {}
        self.ran: Counter[str] = Counter()
        self.named: list[str | None] = []
        """What the watchdog said of each attempt that held up the loop."""
        self._spoke = threading.Event()

    @property
    def handlers(self) -> dict[str, Any]:
        command = commands(self.folder)
        own = (self.thread, self.swallows, self.waits, self.blocks)
        return {**{handler.__name__: handler for handler in own}, "command": command, "deaf command": command}

    def error(self, event: str, **fields: Any) -> None:
        """The watchdog's logger is this."""
        assert event == "loop.blocked"
        self.named.append(fields.get("attempt"))
        self._spoke.set()

    # --- handlers -------------------------------------------------------------------------------------------

    def _begin(self, ctx: Context) -> Gate:
        gate = Gate()
        if self.free:
            gate.open()
        self.gates[f"{ctx.company.name}-{ctx.task}-{ctx.node}-{ctx.attempt}"] = gate
        return gate

    def thread(self, ctx: Context) -> str:
        """Deaf to its cancellation; some raise, late or in time."""
        self.ran["thread"] += 1
        assert self._begin(ctx).thread.wait(HANGS_S)
        if not self.free and ctx.attempt % 3 == 2:
            raise ValueError("no luck")
        return "a thread"

    async def swallows(self, ctx: Context) -> str:
        self.ran["swallows"] += 1
        with trio.CancelScope(shield=True):
            await self._begin(ctx).loop.wait()
        return "swallowed"

    async def waits(self, ctx: Context) -> str:
        self.ran["waits"] += 1
        gate = self._begin(ctx)
        async with ctx.waiting("its gate"):
            await gate.loop.wait()
        return "waited"

    async def blocks(self, ctx: Context) -> str:
        """Holds up the loop until the watchdog has said so."""
        self.ran["blocks"] += 1
        if not self.free:
            self._begin(ctx)
            self._spoke.clear()
            assert self._spoke.wait(HANGS_S)
            assert self.named[-1] == f"{ctx.company.name}/{ctx.task}/{ctx.run}/{ctx.node}/{ctx.attempt}"
        return "blocked"

    # --- what the test does to them ---------------------------------------------------------------------------

    def has_begun(self, attempt: Attempt) -> bool:
        return _name(attempt) in self.gates or (self.folder / f"began-{_name(attempt)}").exists()

    def open(self, attempt: Attempt) -> None:
        if _name(attempt) in self.gates:
            self.gates[_name(attempt)].open()
        else:
            (self.folder / f"open-{_name(attempt)}").touch()

    def open_all(self) -> None:
        self.free = True
        (self.folder / "free").touch()
        for gate in tuple(self.gates.values()):
            gate.open()

    def pids(self) -> list[int]:
        """Of every command that ever ran."""
        return [int(file.read_text()) for file in self.folder.glob("began-*")]


def _name(attempt: Attempt) -> str:
    key = attempt.ref.key
    assert attempt.spec is not None
    return f"{attempt.ref.company}-{key.task}-{attempt.spec.name}-{key.number}"


def a_task(dice: random.Random, task: str, kinds: list[str]) -> Submit:
    """Its nodes may fail as often as they like, and have limits that nobody waits for."""
    nodes = [
        Node(
            f"n{number}",
            kind,
            payload={"shell": SHELLS[kind]} if kind in SHELLS else None,
            after=["n0"] if number and len(kinds) < len(KINDS) and dice.random() < 0.3 else [],
            tries_max=100,
            retry=Backoff(base_s=0),
            timeout_s=10 * HANGS_S,
            stall_s=10 * HANGS_S,
        )
        for number, kind in enumerate(kinds)
    ]
    return Submit(task, id=task, nodes=nodes)


async def until(what: Callable[[], bool]) -> None:
    with trio.fail_after(HANGS_S):
        while not what():
            await trio.sleep(0.005)


# --- the soak -------------------------------------------------------------------------------------------------


def _seeds() -> list[int]:
    given = os.environ.get("TURNKEEPER_SEED")
    return [int(given)] if given else [1, 2, random.randrange(1 << 32)]


@pytest.mark.parametrize("seed", _seeds(), ids=lambda seed: "seed")
async def test_after_threads_commands_and_blocked_loops_everything_is_as_it_was(
    seed: int, db_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sys.stdout.write(f"TURNKEEPER_SEED={seed}\n")  # shown when it fails
    folder = tmp_path / "world"
    folder.mkdir()
    world = World(random.Random(seed), folder)
    monkeypatch.setattr(actors.runtime.watchdog, "_log", world)
    monkeypatch.setattr(actors.runtime.runtime, "Watchdog", partial(Watchdog, beat_s=0.02, blocked_s=0.1))
    monkeypatch.setattr("trio._core._thread_cache.IDLE_TIMEOUT", 0.05)
    monkeypatch.setattr(groups, "TERM_GRACE_S", 0.05)
    options = Options(
        freeze(world.handlers),
        executions_max=SLOTS,
        stop_grace_s=0.05,
        waiting_max=3,
        abandoned_max=ABANDONED_MAX,
        idle_s=0.05,
    )
    before = threads()
    with structlog.testing.capture_logs() as lines:
        async with run_database(db_path, options, durability="normal") as runtime:
            try:
                await soak(runtime, world)
            finally:
                world.open_all()
            await assert_all_ended_well(runtime, world)
    said = {line["event"] for line in lines}
    assert said >= {"attempt.abandoned", "attempt.late"}, "some were left behind, and came back"
    assert not said & {"attempt.leak", "closing.waits", "actor.crashed"}
    await until(lambda: threads() == before)


async def soak(runtime: Runtime, world: World) -> None:
    world.free = True
    (world.folder / "free").touch()
    await submit(runtime, world, "warm", list(KINDS))
    at_rest = await rest_of(runtime)
    world.free = False
    (world.folder / "free").unlink()
    await submit(runtime, world, "first", list(KINDS))
    await disturb(runtime, world, {"thread": "timed_out"})
    dice = world.dice
    for number in range(ROUNDS):
        await submit(runtime, world, f"t{number}", [dice.choice(KINDS) for _ in range(dice.randrange(2, 5))])
        for _ in range(3):
            await disturb(runtime, world)
    world.open_all()
    now_at_rest = await rest_of(runtime)
    more = now_at_rest.pop("objects") - at_rest.pop("objects")
    assert not more.keys() & {Attempt, Report, Context, Envelope, Reply, Cell, CompanyActor, CompanyState}
    assert more.total() <= LAST_BATCH, more
    assert now_at_rest == at_rest
    assert len(runtime.registry.abandoned) == 0


async def submit(runtime: Runtime, world: World, task: str, kinds: list[str]) -> None:
    for name in COMPANIES:
        company = runtime.company(name)
        await company.ask(SetLimits(runs_max=2, weight=world.dice.randrange(1, 3)))
        await company.ask(a_task(world.dice, task, kinds))


async def disturb(runtime: Runtime, world: World, fates: Mapping[str, str] | None = None) -> None:
    """When everybody who executes stands at a gate: let some go, end some, stop some; or what ``fates`` has for their
    kind, and the others go.
    """
    await until(lambda: all(world.has_begun(a) for a in runtime.registry if a.phase is Phase.EXECUTING))
    runtime.registry.check()
    assert runtime.registry.slots_in_use <= SLOTS
    for attempt in [a for a in runtime.registry if a.spec is not None]:
        assert attempt.spec is not None
        fate = fates.get(attempt.spec.handler, "open") if fates else world.dice.choice(FATES)
        if fate == "open":
            world.open(attempt)
        elif fate == "stop":
            with suppress(Refused):  # it may have settled meanwhile
                await runtime.company(attempt.ref.company).ask(Stop(attempt.ref.key.task))
        elif fate != "stay":
            runtime.executor.cancel_attempt(attempt, fate)
    for attempt in runtime.registry.abandoned:
        if world.dice.random() < 0.5 or runtime.slots.held_up:
            world.open(attempt)


async def assert_all_ended_well(runtime: Runtime, world: World) -> None:
    ends: Counter[AttemptEnd | None] = Counter()
    for name in COMPANIES:
        company = runtime.company(name)
        for status in await company.tasks():
            assert status.state in (WorkState.COMPLETED, WorkState.STOPPED), status
            ends.update(view.end for view in await company.attempts(status.id))
    assert ends.keys() >= {AttemptEnd.SUCCEEDED, AttemptEnd.TIMED_OUT}
    assert None not in ends, "every attempt has an end"
    assert all(world.ran[kind] for kind in ("thread", "swallows", "waits", "blocks"))
    assert len(world.named) >= 1
    for pid in world.pids():
        assert await started_of(pid) is None, "a command lives on"
    counted = runtime.statistics()
    assert (counted.executing, counted.waiting, counted.abandoned, counted.active) == (0, 0, 0, 0)
    assert (runtime.slots.free, len(runtime.registry)) == (SLOTS, 0)
    runtime.registry.check()


# --- what is counted ------------------------------------------------------------------------------------------


async def rest_of(runtime: Runtime) -> dict[str, Any]:
    """Wait until nothing is in flight and every company has left; then what the process is made of."""
    for name in COMPANIES:
        with trio.fail_after(HANGS_S):
            await runtime.company(name).when_idle()
    await until(lambda: not (len(runtime.registry) or runtime.registry.abandoned or runtime.supervisor.cells))
    await until(lambda: not [name for name in threads() if name not in OURS])
    await trio.testing.wait_all_tasks_blocked()
    watch = runtime.executor._watch
    assert all(attempt.ended and attempt.report is None for _, _, attempt in watch._heap)
    watch._heap.clear()  # bounded, and looked through when it has grown
    shape.shape_of.cache_clear()
    shape.spec_of.cache_clear()
    shape.layout_of.cache_clear()
    gc.collect()
    return {
        "objects": Counter(type(thing) for thing in gc.get_objects() if _is_ours(thing)),
        "children": len(runtime._nursery.child_tasks),
        "threads": threads(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "inputs": runtime.private_folder.exists(),
    }


OURS = ("MainThread", "turnkeeper-store", "turnkeeper watchdog")


def threads() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate())


def _is_ours(thing: object) -> bool:
    return type(thing).__module__.startswith(("actors.", "storage."))
