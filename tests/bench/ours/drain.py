"""How fast work that is waiting gets done: alone, in a chain, behind a backlog, after a pile of finished work."""

from __future__ import annotations

from time import perf_counter, process_time

import trio

from actors import Handler, Node, Runtime, Submit, SubmitMany, open_runtime
from tests.bench.ours.common import (
    Countdown,
    all_durable,
    limit,
    names_of,
    other,
    release,
    submit_jobs,
)
from tests.bench.protocol import Values
from tests.inside import inside

MILLISECOND_S = 0.001


async def drain(path: str, *, jobs: int, companies: int, executions_max: int, reader: bool = False) -> Values:
    """Jobs are waiting; the clock runs from the word go until the last end is durable.

    With ``reader`` somebody reads every event meanwhile: how far behind it is when the last job is done counts too.
    """
    names, job = names_of(companies), Countdown(jobs)
    async with open_runtime(path, handlers={"job": job}, executions_max=executions_max) as runtime:
        await limit(runtime, names, 0)
        await submit_jobs(runtime, names, jobs)
        follower = Follower(jobs)
        async with trio.open_nursery() as nursery:
            if reader:
                nursery.start_soon(follower.follow, runtime)
            before, start_s, cpu_s = inside(runtime).services.store.statistics, perf_counter(), process_time()
            await release(runtime, names)
            await job.reached.wait()
            await all_durable(runtime, names)
            took_s, cpu_s = perf_counter() - start_s, process_time() - cpu_s
            after = inside(runtime).services.store.statistics
            if reader:
                await follower.done.wait()
            lag_s = perf_counter() - start_s - took_s
    batches = max(1, after.batches - before.batches)
    values = {
        "jobs_per_s": jobs / took_s,
        "cpu_per_job_us": cpu_s / jobs * 1e6,
        "units_per_commit": (after.units - before.units) / batches,
    }
    if reader:
        values |= {"events_read": follower.events, "reader_behind_ms": lag_s / MILLISECOND_S}
    return values


class Follower:
    """Reads the log of all companies from its beginning until it has seen so many runs completed."""

    def __init__(self, runs: int) -> None:
        self._runs = runs
        self.events = 0
        self.done = trio.Event()

    async def follow(self, runtime: Runtime) -> None:
        async for event in runtime.events():
            self.events += 1
            self._runs -= event.kind == "run.completed"
            if self._runs == 0:
                break
        self.done.set()


async def chain(path: str, *, tasks: int) -> Values:
    """Tasks of one company, each depending on the one before."""
    job = Countdown(tasks)
    async with open_runtime(path, handlers={"job": job}) as runtime:
        await limit(runtime, ["acme"], 0)
        many = [
            Submit("Link", handler="job", id=f"t{n}", depends_on=[f"t{n - 1}"] if n else [])
            for n in range(tasks)
        ]
        await runtime.company("acme").ask(SubmitMany(many))
        start_s = perf_counter()
        await release(runtime, ["acme"])
        await job.reached.wait()
        await all_durable(runtime, ["acme"])
        return {"steps_per_s": tasks / (perf_counter() - start_s)}


async def steps(path: str, *, tasks: int) -> Values:
    """The nodes of one run, each after the one before."""
    job = Countdown(tasks)
    nodes = [Node(f"n{n}", "job", after=[f"n{n - 1}"] if n else []) for n in range(tasks)]
    async with open_runtime(path, handlers={"job": job}) as runtime:
        await limit(runtime, ["acme"], 0)
        await runtime.company("acme").ask(Submit("Chain", nodes=nodes))
        start_s = perf_counter()
        await release(runtime, ["acme"])
        await job.reached.wait()
        await all_durable(runtime, ["acme"])
        return {"steps_per_s": tasks / (perf_counter() - start_s)}


async def backlog(path: str, *, jobs: int, companies: int, executions_max: int) -> Values:
    """Jobs that go first, in companies whose file already holds a backlog of waiting ones behind them.

    The backlog was written with the limit at 0, so nothing moves until the word.
    """
    names, job = names_of(companies), Countdown(jobs)
    handlers: dict[str, Handler] = {"first": job, "job": other}
    async with open_runtime(path, handlers=handlers, executions_max=executions_max) as runtime:
        await limit(runtime, names, 0)
        await submit_jobs(runtime, names, jobs, handler="first", priority=1)
        start_s = perf_counter()
        await release(runtime, names)
        await job.reached.wait()
        took_s = perf_counter() - start_s
        await runtime.aclose(now=True)
    return {"jobs_per_s": jobs / took_s}


async def pile(path: str, *, jobs: int, companies: int, executions_max: int) -> Values:
    """A drain in a file that already holds completed tasks; and how long it takes to open it."""
    open_s = perf_counter()
    async with open_runtime(path, handlers={"job": other}):
        startup_s = perf_counter() - open_s
    values = await drain(path, jobs=jobs, companies=companies, executions_max=executions_max)
    return {"jobs_per_s": values["jobs_per_s"], "startup_s": startup_s}
