"""The few figures of a report that the README shows, each beside those it is compared with."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from tests.bench.report import Report, Row
from tests.bench.stats import paired_ratio, spread
from tests.bench.table import figure, label, markdown


@attrs.frozen
class Figure:
    """One line: a value of one case. It is compared with the same value of other cases."""

    says: str
    key: str
    value: str
    against: tuple[str, ...] = ()


FIGURES = (
    Figure(
        "10,000 jobs of 100 companies, 128 slots",
        "drain/ours",
        "jobs_per_s",
        ("drain/raw", "drain/huey-one", "drain/huey", "drain/dbos"),
    ),
    Figure("the same with 16 slots", "drain/default", "jobs_per_s", ("drain/raw", "drain/huey-one")),
    Figure(
        "submits by 100 senders of 100 companies", "submit/senders", "submits_per_s", ("submit/huey-100",)
    ),
    Figure(
        "submits by 100 senders of one company", "submit/one-company", "submits_per_s", ("submit/huey-100",)
    ),
    Figure("submits in one message", "submit/many", "submits_per_s", ("submit/huey",)),
    Figure("submits, each awaited", "submit/one", "submits_per_s", ("submit/huey", "submit/dbos")),
    Figure(
        "submit to start on an idle system, half of them", "latency/ours", "start_p50_ms", ("latency/huey",)
    ),
    Figure("the same, 99 of 100", "latency/ours", "start_p99_ms", ("latency/huey",)),
    Figure("a chain of 1,000 dependent tasks", "chain/tasks", "steps_per_s", ("chain/dbos",)),
    Figure("a chain of 1,000 nodes", "chain/nodes", "steps_per_s", ("chain/dbos",)),
    Figure("drain behind 100,000 waiting tasks", "backlog/many", "jobs_per_s", ("backlog/few",)),
    Figure("drain after 100,000 completed tasks", "pile/many", "jobs_per_s", ("pile/few",)),
    Figure("drain while somebody reads every event", "events/read", "jobs_per_s", ("events/alone",)),
    Figure("start with 100,000 idle companies", "companies/idle", "startup_s", ("companies/few",)),
    Figure("memory with 100,000 idle companies", "companies/idle", "peak_mb"),
    Figure("memory after 10,000 jobs", "memory/jobs", "peak_mb", ("memory/huey",)),
    Figure("memory that 100,000 waiting tasks add", "memory/waiting", "above_mb"),
)

HEAD = ("measure", "value", "median", "beside")


def summary(report: Report) -> str:
    """Markdown: the machine and the versions, and one line for each figure that the report has."""
    facts = [f"{what}: {value}" for what, value in report.machine.items()]
    facts += [f"{what} {value}" for what, value in report.versions.items()]
    rounds = max((len(row.rounds) for row in report.rows), default=0)
    return "\n".join(
        [
            f"Measured on: {' · '.join(facts)}. Medians of {rounds} rounds.",
            "",
            _table([HEAD, *_lines(report)]),
        ]
    )


def _table(rows: list[tuple[str, ...]]) -> str:
    return markdown(rows, right=frozenset({2}))


def _lines(report: Report) -> Iterator[tuple[str, ...]]:
    for line in FIGURES:
        row = report.row(line.key)
        if row is None or line.value not in _names(row):
            continue
        median = spread(list(row.of(line.value).values())).median
        others = [report.row(key) for key in line.against]
        beside = [_beside(row, other, line.value) for other in others if other is not None]
        yield line.says, label(line.value), figure(median), " · ".join(filter(None, beside)) or "–"


def _names(row: Row) -> set[str]:
    return {name for values in row.rounds.values() for name in values}


def _beside(row: Row, other: Row, value: str) -> str | None:
    ratio = paired_ratio(row.of(value), other.of(value))
    return None if ratio is None else f"{figure(ratio)} × {other.who.removeprefix('turnkeeper, ')}"
