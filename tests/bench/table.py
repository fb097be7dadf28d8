"""A report as one table, in Markdown that is aligned for the eye."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.bench.cases import MEASURES
from tests.bench.peers import SUBJECTS
from tests.bench.report import Report, Row
from tests.bench.stats import paired_ratio, spread

HEAD = ("measure", "who", "value", "median", "min – max", "this ÷ other")
UNITS = (("_per_s", "/s"), ("_ms", " (ms)"), ("_us", " (µs)"), ("_mb", " (MB)"), ("_s", " (s)"))
NO_RATIO = frozenset({"units_per_commit", "resident_actors", "neighbour_before_p50_ms"})
"""Values that are there to explain the others."""


def label(name: str) -> str:
    """``start_p50_ms`` → ``start p50 (ms)``."""
    for suffix, unit in UNITS:
        if name.endswith(suffix):
            return name.removesuffix(suffix).replace("_", " ") + unit
    return name.replace("_", " ")


def figure(value: float) -> str:
    """Three digits, or all of those before the point."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:,.{digits}f}"


def ratios(report: Report, row: Row, name: str) -> str:
    """This row divided by those it is set against, as far as they have the same value."""
    found = []
    for key in row.against:
        other = report.row(key)
        if other is None or name not in other.names or name in NO_RATIO:
            continue
        ratio = paired_ratio(row.of(name), other.of(name))
        if ratio is not None:
            found.append(f"{figure(ratio)} × {other.who.removeprefix('turnkeeper, ')}")
    return " · ".join(found)


def lines(report: Report) -> Iterator[tuple[str, ...]]:
    for measure in MEASURES:
        first = True
        for row in report.rows:
            if row.measure != measure:
                continue
            for cells in _row_lines(report, row):
                yield (measure if first else "", *cells)
                first = False


def _row_lines(report: Report, row: Row) -> Iterator[tuple[str, ...]]:
    if row.error is not None:
        yield row.who, "failed", "–", "–", row.error.replace("|", "/")
    who = row.who if row.error is None else ""
    for name in row.names:
        seen = spread(list(row.of(name).values()))
        ends = f"{figure(seen.low)} – {figure(seen.high)}" if seen.count > 1 else "one run"
        yield who, label(name), figure(seen.median), ends, ratios(report, row, name)
        who = ""


def markdown(rows: Sequence[Sequence[str]], *, right: frozenset[int] = frozenset({3, 4})) -> str:
    """The first row is the head. The columns of figures stand to the right."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rule = ["-" * (width - 1) + ":" if place in right else "-" * width for place, width in enumerate(widths)]
    return "\n".join([line(rows[0]), f"| {' | '.join(rule)} |", *(line(row) for row in rows[1:])])


def render(report: Report) -> str:
    """Everything there is to say: the machine, the table, the measures, and what each subject does not do."""
    subjects = dict.fromkeys(row.subject for row in report.rows)
    measures = dict.fromkeys(row.measure for row in report.rows)
    parts = [
        " · ".join(f"{what}: {value}" for what, value in report.machine.items()),
        " · ".join(f"{what} {value}" for what, value in report.versions.items()),
        "",
        markdown([HEAD, *lines(report)]),
        "",
        "Rates: more is better; times, memory: less is. A ratio is the median of those inside a round.",
        "",
        *(f"- {measure}: {MEASURES[measure]}" for measure in measures),
        "",
        *(f"- {name}: {SUBJECTS[name].durability}" for name in subjects),
        "",
        *(f"- {name} lacks: {SUBJECTS[name].lacks}" for name in subjects if name != "turnkeeper"),
        *(
            f"- {name} is not installed and was left out: pip install -e '.[bench]'"
            for name in report.missing
        ),
    ]
    if report.quick:
        parts += [
            "",
            "A quick run: small sizes and few rounds. It shows that things work, not how fast they are.",
        ]
    return "\n".join(parts)
