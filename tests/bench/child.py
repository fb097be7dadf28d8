"""A measuring process: ``python -m tests.bench.child JOB``. Imports only the subject that it measures."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module

from tests.bench.protocol import Job, Values, peak_mb, values_text

MODULES: Mapping[str, str] = {
    "turnkeeper": "tests.bench.ours",
    "raw": "tests.bench.peers.raw",
    "huey": "tests.bench.peers.huey",
    "dbos": "tests.bench.peers.dbos",
}
"""Each has ``TASKS``: name of a task → function of the file's path and the params, which returns values."""


def perform(job: Job) -> Values:
    """Do the job here; adds the peak of this process's memory."""
    tasks: Mapping[str, Callable[..., Values]] = import_module(MODULES[job.subject]).TASKS
    values = tasks[job.task](job.path, **job.params)
    return {**values, "peak_mb": peak_mb()}


def main() -> None:
    ours = os.dup(1)
    os.dup2(2, 1)  # a peer that prints must not spoil the answer
    values = perform(Job.of(sys.argv[1]))
    with os.fdopen(ours, "w") as answer:
        answer.write(values_text(values) + "\n")


if __name__ == "__main__":
    main()
    sys.stderr.flush()
    os._exit(0)  # whatever threads a peer has left behind: the values are out
