from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.report import Report, Row, read_report
from tests.bench.table import figure, label, lines, markdown, render


def a_row(key: str, *rounds: float, who: str = "somebody", against: tuple[str, ...] = ()) -> Row:
    values = {number: {"jobs_per_s": value, "peak_mb": 40.0} for number, value in enumerate(rounds)}
    return Row(key, "turnkeeper", who, {"jobs": 10}, against, rounds=dict(values))


def a_report(*rows: Row, missing: tuple[str, ...] = ()) -> Report:
    return Report({"processor": "an abacus"}, {"Python": "3"}, quick=False, rows=[*rows], missing=[*missing])


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (5.0, "5"),
        (10_000.0, "10,000"),
        (12_345.6, "12,346"),
        (99.96, "100.0"),
        (12.34, "12.3"),
        (1.234, "1.23"),
        (0.1234, "0.123"),
        (-1.5, "-1.50"),
    ],
)
def test_figures_have_three_digits_or_all_before_the_point(value: float, shown: str) -> None:
    assert figure(value) == shown


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("jobs_per_s", "jobs/s"),
        ("start_p50_ms", "start p50 (ms)"),
        ("cpu_per_job_us", "cpu per job (µs)"),
        ("peak_mb", "peak (MB)"),
        ("took_s", "took (s)"),
        ("units_per_commit", "units per commit"),
    ],
)
def test_the_unit_is_read_from_the_end_of_a_name(name: str, shown: str) -> None:
    assert label(name) == shown


def test_a_row_says_its_median_its_ends_and_its_ratio_to_those_it_is_set_against() -> None:
    report = a_report(
        a_row("drain/ours", 100.0, 300.0, 200.0, who="turnkeeper", against=("drain/peer", "drain/gone")),
        a_row("drain/peer", 50.0, 100.0, 50.0, who="a peer"),
    )
    assert list(lines(report)) == [
        ("drain", "turnkeeper", "jobs/s", "200", "100 – 300", "3 × a peer"),
        ("", "a peer", "jobs/s", "50", "50 – 100", ""),
    ]


def test_the_peak_of_memory_is_shown_where_it_is_asked_for() -> None:
    row = a_row("memory/ours", 1.0)
    assert row.names == ["jobs_per_s"]
    row.show = ("peak_mb", "not_measured")
    assert row.names == ["peak_mb"]


def test_a_case_that_failed_says_so_and_keeps_the_rounds_it_had() -> None:
    row = a_row("drain/ours", 100.0, who="turnkeeper")
    row.error = "boom | bang"
    assert list(lines(a_report(row))) == [
        ("drain", "turnkeeper", "failed", "–", "–", "boom / bang"),
        ("", "", "jobs/s", "100", "one run", ""),
    ]


def test_the_columns_of_figures_stand_to_the_right() -> None:
    text = markdown([("a", "b", "c", "d", "e", "f"), ("x", "y", "z", "100", "1 – 2", "")])
    assert text.splitlines() == [
        "| a | b | c |   d |     e | f |",
        "| - | - | - | --: | ----: | - |",
        "| x | y | z | 100 | 1 – 2 |   |",
    ]


def test_the_whole_says_the_machine_the_durability_and_who_is_missing() -> None:
    text = render(a_report(a_row("drain/ours", 1.0), missing=("huey",)))
    assert "processor: an abacus" in text
    assert "synchronous=FULL" in text
    assert "huey is not installed and was left out" in text
    assert "quick run" not in text


def test_a_report_that_was_kept_reads_back_as_it_was(tmp_path: Path) -> None:
    report = a_report(a_row("drain/ours", 1.5, 2.5, against=("drain/peer",)), missing=("dbos",))
    report.write(tmp_path / "report.json")
    assert read_report(tmp_path / "report.json") == report


@pytest.mark.parametrize("text", ["[]", "{}", '{"rows": [{}]}', '{"rows": 3}', "nonsense"])
def test_another_file_is_no_report(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(ValueError, match=r"not a report|Expecting"):
        read_report(tmp_path / "other.json")
