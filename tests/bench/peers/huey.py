"""huey with its SQLite storage, synced at every commit and polled every millisecond, in worker threads.

A rate is taken over at most so many tasks or seconds, whichever comes first: a fair rate needs no more, and a slow
disk does not make the comparison take an hour.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from time import perf_counter, process_time, sleep
from typing import Any

from tests.bench.protocol import Values
from tests.bench.stats import percentile

POLL_S = 0.001


def _open(path: str, *, results: bool = True) -> Any:
    """``results=False``: nothing is written when a task has ended, so only its beginning is durable."""
    logging.getLogger("huey").setLevel(logging.ERROR)
    queue = import_module("huey").SqliteHuey("bench", filename=path, fsync=True, timeout=60, results=results)
    synchronous = queue.storage.conn.execute("PRAGMA synchronous").fetchone()
    journal = queue.storage.conn.execute("PRAGMA journal_mode").fetchone()
    assert (synchronous, journal) == ((2,), ("wal",)), "not the durability that the table claims"
    return queue


def _job(_number: int) -> int:
    return 1


@contextmanager
def _consuming(queue: Any, workers: int) -> Iterator[None]:
    consumer = queue.create_consumer(
        workers=workers,
        worker_type="thread",
        initial_delay=POLL_S,
        max_delay=POLL_S,
        backoff=1.0,
        periodic=False,
        check_worker_health=False,
    )
    consumer.start()
    try:
        yield
    finally:
        consumer.stop(graceful=True)


class _Done:
    """Counts ends: huey says so after the result is stored."""

    def __init__(self, queue: Any, expected: int) -> None:
        self.count = 0
        self.at_s = 0.0
        self.all = threading.Event()
        self._expected = expected
        self._lock = threading.Lock()
        queue.signal(import_module("huey.signals").SIGNAL_COMPLETE)(self._ended)

    def _ended(self, _signal: str, _task: Any) -> None:
        with self._lock:
            self.count += 1
            self.at_s = perf_counter()
            if self.count >= self._expected:
                self.all.set()


def drain(path: str, *, jobs: int, workers: int, seconds_max: float, results: bool = True) -> Values:
    queue = _open(path, results=results)
    job = queue.task()(_job)
    blobs = [("bench", queue.serialize_task(job.s(number)), 0.0) for number in range(jobs)]
    with queue.storage.db(commit=True) as cursor:  # in one transaction: filling the queue is not the measure
        cursor.executemany("insert into task (queue, data, priority) values (?, ?, ?)", blobs)
    done = _Done(queue, jobs)
    start_s, cpu_s = perf_counter(), process_time()
    with _consuming(queue, workers):
        done.all.wait(seconds_max)
        count, took_s, cpu_s = done.count, done.at_s - start_s, process_time() - cpu_s
    return {"jobs_per_s": count / took_s, "cpu_per_job_us": cpu_s / count * 1e6}


def submit(path: str, *, jobs: int, senders: int, seconds_max: float) -> Values:
    """Enqueue from so many threads at once; huey has no way to enqueue many together."""
    queue = _open(path)
    job = queue.task()(_job)
    stop_s = perf_counter() + seconds_max
    counts = [0] * senders

    def send(place: int) -> None:
        for number in range(place, jobs, senders):
            if perf_counter() > stop_s:
                return
            job(number)
            counts[place] += 1

    threads = [threading.Thread(target=send, args=(place,)) for place in range(senders)]
    start_s = perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"submits_per_s": sum(counts) / (perf_counter() - start_s)}


def latency(path: str, *, tasks: int, pause_s: float) -> Values:
    """From the submit to the start, and until the result is stored: told by huey's own signal, not by polling."""
    queue = _open(path)
    times: dict[str, float] = {}

    def note(_number: int) -> int:
        times["start"] = perf_counter()
        return 1

    job = queue.task()(note)
    ended = threading.Event()

    def complete(_signal: str, _task: Any) -> None:
        times["end"] = perf_counter()
        ended.set()

    queue.signal(import_module("huey.signals").SIGNAL_COMPLETE)(complete)
    asked, started, done = [], [], []
    with _consuming(queue, 1):
        for number in range(tasks):
            sleep(pause_s)
            ended.clear()
            start_s = perf_counter()
            job(number)
            asked.append(perf_counter() - start_s)
            ended.wait()
            started.append(times["start"] - start_s)
            done.append(times["end"] - start_s)
    return {
        "answer_p50_ms": percentile(asked, 0.5) * 1000,
        "start_p50_ms": percentile(started, 0.5) * 1000,
        "start_p99_ms": percentile(started, 0.99) * 1000,
        "end_p50_ms": percentile(done, 0.5) * 1000,
        "end_p99_ms": percentile(done, 0.99) * 1000,
    }


TASKS: Mapping[str, Callable[..., Values]] = {"drain": drain, "submit": submit, "latency": latency}
