"""The raw loop: the rows that a drain leaves behind, written by plain sqlite3, a hundred jobs to a transaction.

It shows what the schema and the disk allow. Every row is written as often as the queue writes it: a job is begun in
one transaction (run, node, attempt, two events) and ended in the next, together with the beginning of the next job of
its company. A test compares the rows with those of a real run, so the loop cannot fall behind the schema.

It also fills files: with companies whose tasks all wait, or are all done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter, process_time, time_ns
from typing import Any

from storage.sqlite.opening import open_writer
from tests.bench.protocol import Values

BATCH = 100
"""Jobs of one transaction."""

Job = tuple[int, int]
"""(company's id, task's sequence)"""

SHAPE = '[{"handler":"job","name":"job"}]'
SPEC = SHAPE[1:-1]

_COMPANY = "INSERT INTO companies (company_id, name, epoch, runs_max) VALUES (?, ?, 1, ?)"
_TASK = (
    "INSERT INTO tasks (company_id, seq, id, priority, created_ms, mode, shape, fail_fast, title, runless)"
    " VALUES (?, ?, ?, 2, ?, 'auto', ?, 0, 'Job', 0)"
)
_RUN = "INSERT INTO runs (company_id, seq, number, status, created_ms) VALUES (?, ?, 1, 'queued', ?)"
_ADMIT = (
    "UPDATE runs SET status = 'running', slot = 1, admitted_ms = ?"
    " WHERE company_id = ? AND seq = ? AND number = 1"
)
_COMPLETE = (
    "UPDATE runs SET status = 'completed', slot = 0, settled_ms = ?"
    " WHERE company_id = ? AND seq = ? AND number = 1"
)
_NODE = "INSERT INTO nodes (company_id, seq, run, pos, spec, status, attempts) VALUES (?, ?, 1, 0, ?, 'running', 1)"
_SUCCEED = (
    "UPDATE nodes SET status = 'succeeded', result = '1'"
    " WHERE company_id = ? AND seq = ? AND run = 1 AND pos = 0"
)
_ATTEMPT = (
    "INSERT INTO attempts (company_id, seq, run, pos, number, generation, host_id, started_ms)"
    " VALUES (?, ?, 1, 0, 1, 0, 1, ?)"
)
_END = (
    "UPDATE attempts SET ended_ms = ?, end = 'succeeded'"
    " WHERE company_id = ? AND seq = ? AND run = 1 AND pos = 0 AND number = 1"
)
_EVENT = (
    "INSERT INTO events (company_id, seq, at_ms, kind, task, task_seq, run, node, attempt, before, after, data)"
    " VALUES (?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?)"
)
_COUNTERS = "UPDATE companies SET task_seq = ?, event_seq = ? WHERE company_id = ?"

SUBMITTED = ("task.submitted", None, None, None, "queued")
ADMITTED = ("run.admitted", None, None, "queued", "running")
STARTED = ("attempt.started", "job", 1, "pending", "running")
SUCCEEDED = ("attempt.succeeded", "job", 1, "running", "succeeded")
COMPLETED = ("run.completed", None, None, "running", "completed")

_DATA: Mapping[str, str | None] = {
    "task.submitted": json.dumps(
        {"depends_on": [], "goal": None, "mode": "auto", "priority": 2, "title": "Job"}, sort_keys=True
    ),
    "run.admitted": '{"slot": 1}',
    "attempt.started": '{"generation": 0}',
}


class Loop:
    """Writes jobs from one stage to the next. Not safe for anything but measuring."""

    def __init__(self, path: str) -> None:
        self.connection = open_writer(path)
        self._event_seq: dict[int, int] = {}
        self._task_seq: dict[int, int] = {}

    def close(self) -> None:
        self.connection.close()

    def begin_companies(self, companies: int, runs_max: int) -> None:
        rows = [(number + 1, f"company-{number}", runs_max) for number in range(companies)]
        self._together([(_COMPANY, rows)])

    def submit(self, jobs: Sequence[Job]) -> None:
        now = _now_ms()
        self._task_seq.update(jobs)
        self._together(
            [
                (_TASK, [(c, s, f"@{s}", now, SHAPE) for c, s in jobs]),
                (_RUN, [(c, s, now) for c, s in jobs]),
                (_EVENT, self._events(jobs, now, SUBMITTED)),
                (_COUNTERS, self._counters(jobs)),
            ]
        )

    def step(self, ended: Sequence[Job], begun: Sequence[Job]) -> None:
        """One transaction: these jobs are done, and those begin."""
        now = _now_ms()
        events = [
            *self._events(ended, now, SUCCEEDED, COMPLETED),
            *self._events(begun, now, ADMITTED, STARTED),
        ]
        self._together(
            [
                (_COMPLETE, [(now, c, s) for c, s in ended]),
                (_ADMIT, [(now, c, s) for c, s in begun]),
                (_NODE, [(c, s, SPEC) for c, s in begun]),
                (_SUCCEED, list(ended)),
                (_ATTEMPT, [(c, s, now) for c, s in begun]),
                (_END, [(now, c, s) for c, s in ended]),
                (_EVENT, events),
                (_COUNTERS, self._counters([*ended, *begun])),
            ]
        )

    def _events(self, jobs: Sequence[Job], now: int, *kinds: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for company, seq in jobs:
            for kind, node, attempt, before, after in kinds:
                number = self._event_seq[company] = self._event_seq.get(company, 0) + 1
                data = _DATA.get(kind)
                rows.append((company, number, now, kind, f"@{seq}", seq, node, attempt, before, after, data))
        return rows

    def _counters(self, jobs: Sequence[Job]) -> list[tuple[int, int, int]]:
        companies = dict.fromkeys(company for company, _ in jobs)
        return [(self._task_seq.get(c, 0), self._event_seq.get(c, 0), c) for c in companies]

    def _together(self, statements: list[tuple[str, list[Any]]]) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        for statement, rows in statements:
            if rows:
                self.connection.executemany(statement, rows)
        self.connection.execute("COMMIT")


def _now_ms() -> int:
    return time_ns() // 1_000_000


def batches_of(jobs: int, companies: int, size: int = BATCH) -> Iterator[list[Job]]:
    """The jobs in rounds over the companies: a batch no larger than their number holds at most one of each."""
    names = range(1, companies + 1)
    order = [(company, seq) for seq in range(1, -(-jobs // companies) + 1) for company in names][:jobs]
    for start in range(0, len(order), size):
        yield order[start : start + size]


def submit(path: str, *, jobs: int, companies: int) -> Values:
    """Write the rows of submitted jobs."""
    loop = Loop(path)
    loop.begin_companies(companies, 0)
    start_s = perf_counter()
    for batch in batches_of(jobs, companies):
        loop.submit(batch)
    took_s = perf_counter() - start_s
    loop.close()
    return {"submits_per_s": jobs / took_s}


def drain(path: str, *, jobs: int, companies: int) -> Values:
    """Write the rows of jobs that are begun and done, after they were submitted."""
    loop = Loop(path)
    loop.begin_companies(companies, 1)
    size = min(BATCH, companies)
    for batch in batches_of(jobs, companies):
        loop.submit(batch)
    start_s, cpu_s = perf_counter(), process_time()
    _drain(loop, batches_of(jobs, companies, size))
    took_s, cpu_s = perf_counter() - start_s, process_time() - cpu_s
    loop.close()
    return {"jobs_per_s": jobs / took_s, "cpu_per_job_us": cpu_s / jobs * 1e6}


def _drain(loop: Loop, batches: Iterator[list[Job]]) -> None:
    executing: list[Job] = []
    for batch in batches:
        loop.step(executing, batch)
        executing = batch
    loop.step(executing, [])


def fill(path: str, *, jobs: int, companies: int, done: bool) -> Values:
    """A file with so many tasks, done, or waiting behind a limit of 0. No measure: large transactions, unsynced."""
    loop = Loop(path)
    loop.connection.execute("PRAGMA synchronous = OFF")
    loop.begin_companies(companies, 1)
    size = min(companies, 5_000)
    for batch in batches_of(jobs, companies, 5_000):
        loop.submit(batch)
    if done:
        _drain(loop, batches_of(jobs, companies, size))
    else:
        loop.connection.execute("UPDATE companies SET runs_max = 0")
    loop.close()
    return {}


TASKS: Mapping[str, Callable[..., Values]] = {"submit": submit, "drain": drain, "fill": fill}
