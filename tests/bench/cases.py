"""What is measured, of which size, and what is set against what. Two tables: the full run, and the quick one."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs

MEASURES: Mapping[str, str] = MappingProxyType(
    {
        "drain": "one-node jobs of 100 companies, all waiting; until the last end is durable",
        "submit": "tasks taken in, each answered when it is durable; nothing runs meanwhile",
        "latency": "one task on an idle system",
        "chain": "steps that depend on each other",
        "backlog": "drain of jobs that go first, in a file with a backlog behind them",
        "pile": "drain, and start-up, in a file with completed tasks",
        "companies": "companies that are idle in the file, and companies active at once",
        "events": "drain while somebody reads every event",
        "big": "single big things, and what another company notices of them",
        "memory": "the peak of the whole process",
    }
)
"""Name → what it measures."""


@attrs.frozen
class Case:
    """One row. ``against`` are the keys of the cases that its values are divided by."""

    key: str
    subject: str
    who: str
    """The subject and what is particular about it here, for people."""
    task: str
    params: Mapping[str, Any]
    against: tuple[str, ...] = ()
    fill: Mapping[str, Any] | None = None
    """What the file holds beforehand (see `tests.bench.peers.raw.fill`), written by a process of its own."""
    show: tuple[str, ...] = ()
    """The values that belong in the table; empty: all but the peak of memory."""

    @property
    def measure(self) -> str:
        return self.key.partition("/")[0]


@attrs.frozen
class Sizes:
    jobs: int = 10_000
    peer_jobs: int = 3_000
    dbos_jobs: int = 1_000
    seconds_max: float = 10.0
    """A peer's rate is taken over so long at most."""
    one_by_one: int = 1_000
    latency_tasks: int = 500
    steps: int = 1_000
    few: int = 1_000
    many: int = 100_000
    behind: int = 5_000
    idle: int = 100_000
    active: int = 10_000
    big: int = 10_000
    chain: int = 20_000
    nodes: int = 5_000


FULL = Sizes()
QUICK = Sizes(
    jobs=500,
    peer_jobs=200,
    dbos_jobs=20,
    seconds_max=0.5,
    one_by_one=50,
    latency_tasks=30,
    steps=50,
    few=100,
    many=2_000,
    behind=200,
    idle=2_000,
    active=200,
    big=500,
    chain=500,
    nodes=250,
)

COMPANIES = 100
SLOTS = 128
"""Execution slots of a drain: one for each company, so that what limits it is the queue."""
DEFAULT_SLOTS = 16
WORKERS = 4
"""Threads of a peer that works in threads. huey is measured with one as well, its own default: which of them is faster
depends on what a synced write costs.
"""
SENDERS = 100
PAUSE_S = 0.01


def cases(sizes: Sizes) -> tuple[Case, ...]:
    """Every case of every measure, those that are compared next to each other."""
    return (
        *_drain(sizes),
        *_submit(sizes),
        *_latency(sizes),
        *_chain(sizes),
        *_backlog(sizes),
        *_pile(sizes),
        *_companies(sizes),
        *_events(sizes),
        *_big(sizes),
        *_memory(sizes),
    )


def _ours(key: str, what: str, task: str, params: Mapping[str, Any], *against: str, **more: Any) -> Case:
    who = f"turnkeeper, {what}" if what else "turnkeeper"
    return Case(key, "turnkeeper", who, task, params, against, **more)


def _drain(sizes: Sizes) -> tuple[Case, ...]:
    load = {"jobs": sizes.jobs, "companies": COMPANIES}
    huey = {"jobs": sizes.peer_jobs, "workers": WORKERS, "seconds_max": sizes.seconds_max}
    dbos = {"jobs": sizes.dbos_jobs, "workers": WORKERS, "seconds_max": sizes.seconds_max}
    peers = ("drain/huey-one", "drain/huey", "drain/huey-no-results", "drain/raw", "drain/dbos")

    def ours(name: str, slots: int) -> Case:
        return _ours(f"drain/{name}", f"{slots} slots", "drain", {**load, "executions_max": slots}, *peers)

    return (
        ours("ours", SLOTS),
        ours("default", DEFAULT_SLOTS),
        Case("drain/raw", "raw", "raw loop", "drain", load),
        Case("drain/huey-one", "huey", "huey, 1 thread", "drain", {**huey, "workers": 1}),
        Case("drain/huey", "huey", f"huey, {WORKERS} threads", "drain", huey),
        Case("drain/huey-no-results", "huey", "huey, no results", "drain", {**huey, "results": False}),
        Case("drain/dbos", "dbos", "DBOS queue", "drain", dbos),
    )


def _submit(sizes: Sizes) -> tuple[Case, ...]:
    jobs, one = sizes.jobs, sizes.one_by_one
    many_senders = {"jobs": jobs, "senders": SENDERS, "companies": COMPANIES}
    one_company = {**many_senders, "companies": 1}
    huey = {"jobs": one, "seconds_max": sizes.seconds_max}
    rivals = ("submit/huey-100", "submit/huey", "submit/raw", "submit/dbos")
    return (
        _ours("submit/senders", f"{SENDERS} senders, a company each", "senders", many_senders, *rivals),
        _ours("submit/one-company", f"{SENDERS} senders, one company", "senders", one_company, *rivals),
        _ours("submit/many", "SubmitMany", "many", {"jobs": jobs}, *rivals),
        _ours("submit/one", "one awaited at a time", "one_at_a_time", {"jobs": one}, *rivals),
        Case("submit/raw", "raw", "raw loop", "submit", {"jobs": jobs, "companies": COMPANIES}),
        Case("submit/huey-100", "huey", f"huey, {SENDERS} senders", "submit", {**huey, "senders": SENDERS}),
        Case("submit/huey", "huey", "huey, one sender", "submit", {**huey, "senders": 1}),
        Case("submit/dbos", "dbos", "DBOS, one sender", "submit", huey),
    )


def _latency(sizes: Sizes) -> tuple[Case, ...]:
    params = {"tasks": sizes.latency_tasks, "pause_s": PAUSE_S}
    return (
        _ours("latency/ours", "", "latency", params, "latency/huey", "latency/dbos"),
        Case("latency/huey", "huey", "huey, polling each ms", "latency", params),
        Case("latency/dbos", "dbos", "DBOS, started directly", "latency", params),
    )


def _chain(sizes: Sizes) -> tuple[Case, ...]:
    params = {"tasks": sizes.steps}
    return (
        _ours("chain/tasks", "dependent tasks", "chain", params, "chain/dbos"),
        _ours("chain/nodes", "nodes of one run", "steps", params, "chain/dbos"),
        Case("chain/dbos", "dbos", "DBOS steps", "chain", {**params, "seconds_max": sizes.seconds_max}),
    )


def _backlog(sizes: Sizes) -> tuple[Case, ...]:
    params = {"jobs": sizes.behind, "companies": COMPANIES, "executions_max": SLOTS}

    def case(name: str, waiting: int, *against: str) -> Case:
        fill = {"jobs": waiting, "companies": COMPANIES, "done": False}
        return _ours(f"backlog/{name}", f"{waiting:,} waiting", "backlog", params, *against, fill=fill)

    return case("few", sizes.few), case("many", sizes.many, "backlog/few")


def _pile(sizes: Sizes) -> tuple[Case, ...]:
    params = {"jobs": sizes.behind, "companies": COMPANIES, "executions_max": SLOTS}

    def case(name: str, done: int, *against: str) -> Case:
        fill = {"jobs": done, "companies": COMPANIES, "done": True}
        return _ours(f"pile/{name}", f"{done:,} completed", "pile", params, *against, fill=fill)

    return case("few", sizes.few), case("many", sizes.many, "pile/few")


def _companies(sizes: Sizes) -> tuple[Case, ...]:
    shown = ("startup_s", "resident_actors", "peak_mb")

    def idle(name: str, count: int, *against: str) -> Case:
        fill = {"jobs": count, "companies": count, "done": True}
        return _ours(f"companies/{name}", f"{count:,} idle", "idle", {}, *against, fill=fill, show=shown)

    active = {"companies": sizes.active}
    more = ("all_executing_s", "all_ended_s", "resident_actors", "peak_mb")
    return (
        idle("few", sizes.idle // 100),
        idle("idle", sizes.idle, "companies/few"),
        _ours("companies/active", f"{sizes.active:,} active", "active", active, show=more),
    )


def _events(sizes: Sizes) -> tuple[Case, ...]:
    params = {"jobs": sizes.jobs, "companies": COMPANIES, "executions_max": SLOTS}
    shown = ("jobs_per_s", "cpu_per_job_us", "events_read", "reader_behind_ms")
    return (
        _ours("events/alone", "nobody reads", "drain", params, show=shown),
        _ours(
            "events/read", "one reads all", "drain", {**params, "reader": True}, "events/alone", show=shown
        ),
    )


def _big(sizes: Sizes) -> tuple[Case, ...]:
    """Each at its size and at a fifth of it: what is linear takes five times as long."""

    def pair(name: str, what: str, task: str, count: str, size: int) -> tuple[Case, ...]:
        fifth = size // 5
        return (
            _ours(f"big/{name}-fifth", f"{what} {fifth:,}", task, {count: fifth}),
            _ours(f"big/{name}", f"{what} {size:,}", task, {count: size}, f"big/{name}-fifth"),
        )

    return (
        *pair("message", "message of", "message", "tasks", sizes.big),
        *pair("fan-in", "fan-in of", "fan_in", "tasks", sizes.big),
        *pair("chain", "chain of", "chain_of", "tasks", sizes.chain),
        *pair("graph", "nodes of one task:", "graph", "nodes", sizes.nodes),
    )


def _memory(sizes: Sizes) -> tuple[Case, ...]:
    drained = {"jobs": sizes.jobs, "companies": COMPANIES, "executions_max": SLOTS}
    waiting = {"jobs": sizes.many, "companies": COMPANIES}
    huey = {"jobs": sizes.peer_jobs, "workers": WORKERS, "seconds_max": sizes.seconds_max}
    shown = ("peak_mb", "above_mb")
    rival = "memory/huey"
    return (
        _ours("memory/jobs", f"{sizes.jobs:,} jobs done", "drain", drained, rival, show=shown),
        _ours("memory/waiting", f"{sizes.many:,} waiting", "waiting", waiting, show=shown),
        Case(rival, "huey", f"huey, {sizes.peer_jobs:,} tasks done", "drain", huey, show=shown),
    )
