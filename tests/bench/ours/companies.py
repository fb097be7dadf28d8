"""Many companies: those with nothing to do should cost nothing, and many may have something to do at once."""

from __future__ import annotations

from time import perf_counter

import trio

from actors import Context, Runtime, Submit, open_runtime
from tests.bench.ours.common import names_of, other
from tests.bench.protocol import Values
from tests.inside import inside


def residents(runtime: Runtime) -> int:
    """How many companies have an actor."""
    return len(inside(runtime).services.directory.cells)


async def idle(path: str) -> Values:
    """Open a file full of companies whose work is done. Start-up ends with the first sweep."""
    start_s = perf_counter()
    async with open_runtime(path, handlers={"job": other}) as runtime:
        startup_s = perf_counter() - start_s
        return {"startup_s": startup_s, "resident_actors": residents(runtime)}


async def active(path: str, *, companies: int) -> Values:
    """One task each for so many companies, all executing at the same moment; then all end."""
    names, left = names_of(companies), companies
    all_started, let_go = trio.Event(), trio.Event()

    async def job(_ctx: Context) -> int:
        nonlocal left
        left -= 1
        if left == 0:
            all_started.set()
        await let_go.wait()
        return 1

    async with open_runtime(path, handlers={"job": job}, executions_max=companies) as runtime:
        start_s = perf_counter()
        for name in names:
            await runtime.company(name).tell(Submit("Job", handler="job"))
        await all_started.wait()
        started_s, count = perf_counter() - start_s, residents(runtime)
        start_s = perf_counter()
        let_go.set()
        for name in names:
            await runtime.company(name).when_idle()
        return {
            "all_executing_s": started_s,
            "all_ended_s": perf_counter() - start_s,
            "resident_actors": count,
        }
