"""How fast work is taken in: every submit is answered, and the answer is durable. Nothing runs meanwhile."""

from __future__ import annotations

from time import perf_counter

import trio

from actors import Company, Submit, SubmitMany, open_runtime
from tests.bench.ours.common import MANY, limit, names_of, other
from tests.bench.protocol import Values
from tests.inside import inside


async def senders(path: str, *, jobs: int, senders: int, companies: int) -> Values:
    """Many senders at once, each awaiting every answer before its next submit."""
    names = names_of(companies)
    async with open_runtime(path, handlers={"job": other}) as runtime:
        await limit(runtime, names, 0)
        before, start_s = inside(runtime).services.store.statistics, perf_counter()
        async with trio.open_nursery() as nursery:
            for number in range(senders):
                company = runtime.company(names[number % companies])
                nursery.start_soon(_send, company, len(range(number, jobs, senders)))
        took_s, after = perf_counter() - start_s, inside(runtime).services.store.statistics
    batches = max(1, after.batches - before.batches)
    return {"submits_per_s": jobs / took_s, "units_per_commit": (after.units - before.units) / batches}


async def _send(company: Company, jobs: int) -> None:
    for _ in range(jobs):
        await company.ask(Submit("Job", handler="job"))


async def many(path: str, *, jobs: int) -> Values:
    """One sender, one company, messages of a thousand."""
    async with open_runtime(path, handlers={"job": other}) as runtime:
        await limit(runtime, ["acme"], 0)
        start_s = perf_counter()
        for start in range(0, jobs, MANY):
            tasks = [Submit("Job", handler="job") for _ in range(min(MANY, jobs - start))]
            await runtime.company("acme").ask(SubmitMany(tasks))
        return {"submits_per_s": jobs / (perf_counter() - start_s)}


async def one_at_a_time(path: str, *, jobs: int) -> Values:
    """One sender that awaits each answer: the whole way to the disk and back, every time."""
    async with open_runtime(path, handlers={"job": other}) as runtime:
        await limit(runtime, ["acme"], 0)
        start_s = perf_counter()
        await _send(runtime.company("acme"), jobs)
        return {"submits_per_s": jobs / (perf_counter() - start_s)}
