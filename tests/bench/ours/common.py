"""What the measures share: companies that are held until the clock starts, and knowing when all is durable."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from actors import Context, Runtime, SetLimits, Submit, SubmitMany

MANY = 1_000
"""Tasks of one message, where the message itself is not what is measured."""


def names_of(companies: int) -> list[str]:
    return [f"company-{number}" for number in range(companies)]


class Countdown:
    """A handler that counts its calls; ``reached`` is set by the last one expected."""

    def __init__(self, expected: int) -> None:
        self.left = expected
        self.reached = trio.Event()

    async def __call__(self, _ctx: Context) -> int:
        self.left -= 1
        if self.left == 0:
            self.reached.set()
        return 1


async def other(_ctx: Context) -> int:
    """A handler that nobody counts."""
    return 1


async def limit(runtime: Runtime, names: Sequence[str], runs_max: int) -> None:
    """Set the limit of every company; 0 holds it. Returns when that is durable."""
    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(runtime.company(name).ask, SetLimits(runs_max=runs_max))


async def release(runtime: Runtime, names: Sequence[str], runs_max: int = 1) -> None:
    """Let every company run, without waiting until each has heard it."""
    for name in names:
        await runtime.company(name).tell(SetLimits(runs_max=runs_max))


async def submit_jobs(
    runtime: Runtime, names: Sequence[str], jobs: int, *, handler: str = "job", priority: int = 2
) -> None:
    """Spread one-node jobs evenly over the companies. Returns when they are durable."""
    each, more = divmod(jobs, len(names))
    async with trio.open_nursery() as nursery:
        for place, name in enumerate(names):
            nursery.start_soon(_submit, runtime, name, each + (place < more), handler, priority)


async def _submit(runtime: Runtime, name: str, jobs: int, handler: str, priority: int) -> None:
    for start in range(0, jobs, MANY):
        tasks = [Submit("Job", handler=handler, priority=priority) for _ in range(min(MANY, jobs - start))]
        await runtime.company(name).ask(SubmitMany(tasks))


async def all_durable(runtime: Runtime, names: Sequence[str]) -> None:
    """Wait until nothing is in flight: every end that was reported is committed."""
    for name in names:
        await runtime.company(name).when_idle()
