"""A recorded workflow as one company's tasks, run for real with its run times scaled down.

Each recorded task is a task that depends on its parents and sleeps. The company may have as many runs as there are
slots. Everything is submitted before the clock starts, so what is measured is the scheduling.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import trio

from actors import Context, Submit, SubmitMany, open_runtime
from tests.bench.ours.common import MANY, all_durable, limit, release
from tests.bench.schedule import critical_path_s, lower_bound_s, work_s
from tests.bench.wfformat import BadWorkflow, Step, in_order, read_workflow

SCALE = 0.01
SLOTS = 16
TITLE_CHARS = 200


async def replay(path: str, steps: Sequence[Step], *, scale: float, slots: int) -> float:
    """Run the workflow; returns its makespan in seconds, from the first admission allowed to the last durable end."""
    left, all_done = len(steps), trio.Event()

    async def work(ctx: Context) -> None:
        nonlocal left
        await trio.sleep(ctx.payload)
        left -= 1
        if left == 0:
            all_done.set()

    async with open_runtime(path, handlers={"work": work}, executions_max=slots) as runtime:
        await limit(runtime, ["replay"], 0)
        submits = [_submit(steps, place, scale) for place in in_order(steps)]
        for start in range(0, len(submits), MANY):
            await runtime.company("replay").ask(SubmitMany(submits[start : start + MANY]))
        start_s = perf_counter()
        await release(runtime, ["replay"], slots)
        await all_done.wait()
        await all_durable(runtime, ["replay"])
        return perf_counter() - start_s


def _submit(steps: Sequence[Step], place: int, scale: float) -> Submit:
    """A higher recorded priority goes first; with us a lower number does."""
    step = steps[place]
    title = "".join(char for char in step.name if char.isprintable()).strip()[:TITLE_CHARS]
    return Submit(
        title or f"Task {place}",
        handler="work",
        id=f"t{place}",
        depends_on=[f"t{parent}" for parent in step.parents],
        priority=-(step.priority or 0),
        payload=step.runtime_s * scale,
    )


def summary(steps: Sequence[Step], *, makespan_s: float, scale: float, slots: int) -> list[str]:
    """What there is to say, the makespan set against what no schedule can beat."""
    path_s, work, bound_s = (
        critical_path_s(steps) * scale,
        work_s(steps) * scale,
        lower_bound_s(steps, slots) * scale,
    )
    lines = [
        f"tasks            {len(steps):,} with {sum(len(step.parents) for step in steps):,} dependencies",
        f"work             {work:.3f} s, run times × {scale:g}",
        f"critical path    {path_s:.3f} s",
        f"at best          {bound_s:.3f} s on {slots} slots (no schedule is shorter; maybe none is as short)",
        f"makespan         {makespan_s:.3f} s",
    ]
    if bound_s > 0:
        per_task_ms = (makespan_s - bound_s) / len(steps) * 1000
        lines += [
            f"÷ critical path  {makespan_s / path_s:.3f}",
            f"÷ at best        {makespan_s / bound_s:.3f} ({per_task_ms:.2f} ms more for each task)",
        ]
    return lines


def main(argv: Sequence[str]) -> int:
    """The command ``replay``; returns the exit status, 2 for a file that cannot be replayed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench replay",
        description="Run a recorded workflow (WfFormat 1.4) as one company's tasks, its run times scaled down.",
    )
    parser.add_argument("file", type=Path, metavar="FILE.json")
    parser.add_argument("--scale", type=_positive, default=SCALE, metavar="X", help=f"default {SCALE}")
    parser.add_argument("--slots", type=_slots, default=SLOTS, metavar="N", help=f"default {SLOTS}")
    options = parser.parse_args(argv)
    try:
        steps = read_workflow(options.file)
    except BadWorkflow as error:
        sys.stderr.write(f"{error}\n")
        return 2
    try:
        with TemporaryDirectory(prefix="turnkeeper-replay-") as folder:
            run = partial(replay, f"{folder}/replay.db", steps, scale=options.scale, slots=options.slots)
            makespan_s = trio.run(run)
    except KeyboardInterrupt:
        return 130
    for line in summary(steps, makespan_s=makespan_s, scale=options.scale, slots=options.slots):
        sys.stdout.write(f"{line}\n")
    return 0


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError("must be above 0")
    return value


def _slots(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 10_000:
        raise argparse.ArgumentTypeError("must be from 1 to 10000")
    return value
