"""How long one task takes when there is nothing else to do."""

from __future__ import annotations

from time import perf_counter

import trio

from actors import Context, Submit, open_runtime
from tests.bench.protocol import Values
from tests.bench.stats import percentile


class Starts:
    """A handler that notes when it was started."""

    def __init__(self) -> None:
        self.at_s = 0.0
        self.started = trio.Event()

    async def __call__(self, _ctx: Context) -> int:
        self.at_s = perf_counter()
        self.started.set()
        return 1


async def latency(path: str, *, tasks: int, pause_s: float) -> Values:
    """From the submit to its answer, to the handler's start, and to the word that the end is durable."""
    asked, started, ended = [], [], []
    job = Starts()
    async with open_runtime(path, handlers={"job": job}) as runtime:
        company = runtime.company("acme")
        await company.when_settled((await company.ask(Submit("Warm up", handler="job"))).id)
        for _ in range(tasks):
            await trio.sleep(pause_s)
            start_s = perf_counter()
            task = await company.ask(Submit("Job", handler="job"))
            asked.append(perf_counter() - start_s)
            await company.when_settled(task.id)
            ended.append(perf_counter() - start_s)
            started.append(job.at_s - start_s)
    return {"answer_p50_ms": percentile(asked, 0.5) * 1000, **in_ms("start", started), **in_ms("end", ended)}


def in_ms(what: str, times_s: list[float]) -> dict[str, float]:
    """The middle and the 99th of a hundred."""
    return {
        f"{what}_p50_ms": percentile(times_s, 0.5) * 1000,
        f"{what}_p99_ms": percentile(times_s, 0.99) * 1000,
    }
