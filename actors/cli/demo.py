"""``demo``: a plan that comes with the package, executed like any other, and one screen about what happened.

In addition it does what a person would do: when the observatory is stuck it sends `Retry`, so that blocked tasks can
be seen to continue.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from actors import Retry, Runtime, TaskStatus, WorkState
from actors.cli.options import DemoOptions, RunOptions
from actors.cli.progress import View

PLAN: Final = Path(__file__).with_name("demo.toml")
STUCK: Final = ("observatory", "dome")
MANUAL: Final = ("bakery", "open-shop")


def publish(ctx: Any) -> dict[str, str]:
    """The function that a task of the demo calls; plain, so it runs in a worker thread."""
    ctx.progress("printing")
    return {"published": ctx.key}


def demo_options(options: DemoOptions) -> RunOptions:
    return RunOptions(db=options.db, plan=PLAN, json=options.json)


def demo_folder() -> Path:
    """Where its commands run: not the folder of the package."""
    return Path.cwd()


class DemoHook:
    """Retries the failed task once it blocks everything else."""

    def __init__(self, view: View) -> None:
        self._view = view

    async def __call__(self, runtime: Runtime, statuses: Sequence[TaskStatus]) -> bool:
        here = {(status.company, status.id): status.state for status in statuses}
        if here.get(STUCK) is not WorkState.FAILED:
            return False
        blocked = sum(state is WorkState.BLOCKED for state in here.values())
        company, task = STUCK
        self._view.note(f"{blocked} tasks are blocked by {company}/{task}. The demo retries it, as you would")
        await runtime.company(company).ask(Retry(task))
        return True


def as_intended(statuses: Sequence[TaskStatus]) -> bool:
    """Whether only the manual task is left, as it should be."""
    return all(status.state in (WorkState.COMPLETED, WorkState.HELD) for status in statuses)


def demo_lines(options: RunOptions, statuses: Sequence[TaskStatus]) -> list[str]:
    """What happened and what to try next."""
    db = ["--db", str(options.db)]
    manual = next((s for s in statuses if (s.company, s.id) == MANUAL and s.state is WorkState.HELD), None)
    steps = [
        ("where everything stands", ["status", *db]),
        ("how the failure was retried by itself", ["timeline", "bakery/bread", *db]),
        ("how a person's retry freed two tasks", ["log", "--company", "observatory", *db]),
    ]
    if manual is not None:
        steps.insert(1, ("why the shop is closed", ["explain", "/".join(MANUAL), *db]))
        steps.append(("open it", ["run", str(options.plan), *db, "--start", "/".join(MANUAL)]))
    lines = [
        "",
        "What happened: bakery/bread failed at the scales and was tried again by itself, then baked three loaves",
        "at once. observatory/dome gave up, which blocked two tasks, until one retry set them free.",
        "",
        "Try next:",
    ]
    width = max(len(what) for what, _ in steps)
    return lines + [
        f"  {what:<{width}}  {shlex.join(['python', '-m', 'actors', *command])}" for what, command in steps
    ]
