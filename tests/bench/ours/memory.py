"""What waiting work weighs. The peak of the process is added to every measure; here it is the measure."""

from __future__ import annotations

import trio

from actors import Context, Handler, Submit, open_runtime
from tests.bench.ours.common import names_of, other, submit_jobs
from tests.bench.protocol import Values, peak_mb


async def waiting(path: str, *, jobs: int, companies: int) -> Values:
    """So many tasks wait behind one that executes in each company, so that every company has its actor and its queue.

    ``above_mb`` is what they took over what the same program needed before the first. They are submitted to one
    company after the other, so that the messages under way weigh little.
    """
    names = names_of(companies)

    async def hold(_ctx: Context) -> None:
        await trio.sleep_forever()

    handlers: dict[str, Handler] = {"hold": hold, "job": other}
    async with open_runtime(path, handlers=handlers, executions_max=companies) as runtime:
        for name in names:
            await runtime.company(name).ask(Submit("Hold", handler="hold"))
        before_mb = peak_mb()
        for place, name in enumerate(names):
            await submit_jobs(runtime, [name], len(range(place, jobs, companies)))
        values = {"above_mb": peak_mb() - before_mb}
        await runtime.aclose(now=True)
        return values
