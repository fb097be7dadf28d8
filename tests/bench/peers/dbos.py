"""DBOS on SQLite: a workflow is a job, its steps are the links of a chain.

Its SQLite support opens the file with the journal that it has, so we put it into WAL mode beforehand.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from importlib import import_module
from time import perf_counter, process_time, sleep
from typing import Any

from tests.bench.protocol import Values
from tests.bench.stats import percentile

POLL_S = 0.001
LOOK_S = 0.002


@contextmanager
def _launched(path: str, *workflows: Callable[..., Any]) -> Iterator[tuple[Any, list[Any]]]:
    """DBOS running on the file, and the functions as its workflows."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    dbos = import_module("dbos").DBOS
    dbos(config={"name": "bench", "system_database_url": f"sqlite:///{path}", "log_level": "ERROR"})
    registered = [dbos.workflow()(workflow) for workflow in workflows]
    dbos.launch()
    try:
        yield dbos, registered
    finally:
        dbos.destroy()


def job(_number: int) -> int:
    return 1


def chain(path: str, *, tasks: int, seconds_max: float) -> Values:
    """The steps of one workflow, each recorded before the next; at most so many seconds."""
    step = import_module("dbos").DBOS.step()(job)

    def workflow() -> int:
        stop_s, number = perf_counter() + seconds_max, 0
        while number < tasks and perf_counter() < stop_s:
            step(number)
            number += 1
        return number

    with _launched(path, workflow) as (_, (run,)):
        start_s = perf_counter()
        count = run()
        return {"steps_per_s": count / (perf_counter() - start_s)}


def drain(path: str, *, jobs: int, workers: int, seconds_max: float) -> Values:
    """Workflows without steps wait in a queue that is polled every millisecond; its limit is 0 until the word."""
    with _launched(path, job) as (dbos, (run,)):
        queue = dbos.register_queue("bench", polling_interval_sec=POLL_S, worker_concurrency=0)
        _enqueue(queue, run, jobs, seconds_max)
        sleep(1.2)  # its manager looks for new queues once a second
        waiting = _count(path, "ENQUEUED")
        start_s, cpu_s = perf_counter(), process_time()
        queue.set_worker_concurrency(workers)
        done = 0
        while done < waiting and perf_counter() - start_s < seconds_max:
            sleep(LOOK_S)
            done = _count(path, "SUCCESS")
        took_s, cpu_s = perf_counter() - start_s, process_time() - cpu_s
        return {"jobs_per_s": done / took_s, "cpu_per_job_us": cpu_s / done * 1e6}


def _count(path: str, status: str) -> int:
    with closing(sqlite3.connect(path, timeout=30)) as connection:
        query = "SELECT count(*) FROM workflow_status WHERE status = ?"
        return int(connection.execute(query, (status,)).fetchone()[0])


def _enqueue(queue: Any, run: Any, jobs: int, seconds_max: float) -> int:
    stop_s, count = perf_counter() + seconds_max, 0
    while count < jobs and perf_counter() < stop_s:
        queue.enqueue(run, count)
        count += 1
    return count


def submit(path: str, *, jobs: int, seconds_max: float) -> Values:
    """Enqueue one workflow after the other."""
    with _launched(path, job) as (dbos, (run,)):
        queue = dbos.register_queue("bench", worker_concurrency=0)
        start_s = perf_counter()
        count = _enqueue(queue, run, jobs, seconds_max)
        return {"submits_per_s": count / (perf_counter() - start_s)}


def latency(path: str, *, tasks: int, pause_s: float) -> Values:
    """Workflows started directly, its quickest way: no queue, so no polling; until the handle gives the result."""
    began = [0.0]

    def note(_number: int) -> int:
        began[0] = perf_counter()
        return 1

    started, done = [], []
    with _launched(path, note) as (dbos, (run,)):
        for number in range(tasks):
            sleep(pause_s)
            start_s = perf_counter()
            dbos.start_workflow(run, number).get_result(polling_interval_sec=POLL_S)
            done.append(perf_counter() - start_s)
            started.append(began[0] - start_s)
    return {
        "start_p50_ms": percentile(started, 0.5) * 1000,
        "start_p99_ms": percentile(started, 0.99) * 1000,
        "end_p50_ms": percentile(done, 0.5) * 1000,
        "end_p99_ms": percentile(done, 0.99) * 1000,
    }


TASKS: Mapping[str, Callable[..., Values]] = {
    "chain": chain,
    "drain": drain,
    "submit": submit,
    "latency": latency,
}
