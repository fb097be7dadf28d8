"""Single things that are big, and what another company notices of them while they happen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter

import attrs
import trio

from actors import Company, Handler, Node, Runtime, Stop, Submit, SubmitMany, open_runtime
from tests.bench.ours.common import limit, other, release
from tests.bench.ours.latency import Starts
from tests.bench.protocol import Values
from tests.bench.stats import percentile

PROBE_S = 0.005
"""Rest between two probes: the other company is busy, not flooding."""
BEFORE_S = 0.3
"""How long the other company is watched before anything big happens."""
TASKS_MAX = 10_000
"""The most tasks of one message."""


@attrs.define
class Neighbour:
    """Another company, asked again and again how long a task of its own takes to start."""

    company: Company
    handler: Starts
    took_s: list[float] = attrs.field(factory=list)
    before: int = 0

    async def probe(self) -> None:
        while True:
            self.handler.started = trio.Event()
            start_s = perf_counter()
            await self.company.tell(Submit("Probe", handler="probe"))
            await self.handler.started.wait()
            self.took_s.append(perf_counter() - start_s)
            await trio.sleep(PROBE_S)

    def values(self) -> Values:
        before, during = self.took_s[: self.before], self.took_s[self.before :]
        return {
            "neighbour_before_p50_ms": percentile(before, 0.5) * 1000,
            "neighbour_p50_ms": percentile(during, 0.5) * 1000,
            "neighbour_worst_ms": max(during) * 1000,
        }


@asynccontextmanager
async def _beside_a_neighbour(path: str) -> AsyncIterator[tuple[Company, Neighbour, Runtime]]:
    starts = Starts()
    handlers: dict[str, Handler] = {"probe": starts, "job": other}
    async with open_runtime(path, handlers=handlers) as runtime:
        neighbour = Neighbour(runtime.company("neighbour"), starts)
        await limit(runtime, ["acme"], 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(neighbour.probe)
            await trio.sleep(BEFORE_S)
            neighbour.before = len(neighbour.took_s)
            yield runtime.company("acme"), neighbour, runtime
            await _one_more(neighbour)
            nursery.cancel_scope.cancel()
        await runtime.aclose(now=True)


async def _one_more(neighbour: Neighbour) -> None:
    """A probe that was under way has to be counted: it is the one that waited longest."""
    seen = len(neighbour.took_s)
    while len(neighbour.took_s) <= seen:
        await trio.sleep(PROBE_S)


async def message(path: str, *, tasks: int) -> Values:
    """One message with so many tasks, until it is answered."""
    async with _beside_a_neighbour(path) as (acme, neighbour, _):
        many = SubmitMany([Submit("Job", handler="job") for _ in range(tasks)])
        start_s = perf_counter()
        await acme.ask(many)
        took_s = perf_counter() - start_s
    return {"took_s": took_s, **neighbour.values()}


async def fan_in(path: str, *, tasks: int) -> Values:
    """So many tasks without nodes, and one that depends on all of them: from the word go until it is completed."""
    async with _beside_a_neighbour(path) as (acme, neighbour, runtime):
        ids = [f"t{number}" for number in range(tasks)]
        await acme.ask(SubmitMany([Submit("One of many", id=task) for task in ids]))
        await acme.ask(Submit("All", id="all", depends_on=ids))
        start_s = perf_counter()
        await release(runtime, ["acme"])
        await acme.when_settled("all")
        took_s = perf_counter() - start_s
    return {"took_s": took_s, **neighbour.values()}


async def chain_of(path: str, *, tasks: int) -> Values:
    """A chain of tasks without nodes: from the word go until the last is completed; and a second one whose first task
    is stopped, until everything behind it is known to be blocked.
    """
    async with _beside_a_neighbour(path) as (acme, neighbour, runtime):
        await _submit_chain(acme, "x", tasks)
        start_s = perf_counter()
        await acme.ask(Stop("x0"))
        blocked_s = perf_counter() - start_s
        await _submit_chain(acme, "t", tasks)
        start_s = perf_counter()
        await release(runtime, ["acme"])
        await acme.when_settled(f"t{tasks - 1}")
        took_s = perf_counter() - start_s
    return {"took_s": took_s, "blocked_s": blocked_s, **neighbour.values()}


async def _submit_chain(acme: Company, letter: str, tasks: int) -> None:
    for start in range(0, tasks, TASKS_MAX):
        part = range(start, min(start + TASKS_MAX, tasks))
        links = [
            Submit("Link", id=f"{letter}{n}", depends_on=[f"{letter}{n - 1}"] if n else []) for n in part
        ]
        await acme.ask(SubmitMany(links))


async def graph(path: str, *, nodes: int) -> Values:
    """One task whose nodes form a tree, each executed: from its submit until it is completed."""
    async with _beside_a_neighbour(path) as (acme, neighbour, runtime):
        await release(runtime, ["acme"])
        tree = [Node(f"n{n}", "job", after=[f"n{(n - 1) // 2}"] if n else []) for n in range(nodes)]
        start_s = perf_counter()
        task = await acme.ask(Submit("Tree", nodes=tree))
        await acme.when_settled(task.id)
        took_s = perf_counter() - start_s
    return {"took_s": took_s, **neighbour.values()}
