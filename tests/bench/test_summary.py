"""The figures for the README: taken from the report, beside those that they are compared with."""

from __future__ import annotations

import pytest

from tests.bench.cases import FULL, cases
from tests.bench.protocol import Values
from tests.bench.report import Report, Row, read_report
from tests.bench.summary import FIGURES, summary
from tests.docs.generate import MEASURED, performance


def a_row(key: str, who: str, *rates: float) -> Row:
    rounds: dict[int, Values] = {number: {"jobs_per_s": rate} for number, rate in enumerate(rates)}
    return Row(key, "turnkeeper", who, {}, rounds=rounds)


def test_a_line_has_the_median_and_the_ratios_inside_the_rounds() -> None:
    rows = [
        a_row("drain/ours", "turnkeeper, 128 slots", 100, 300, 200),
        a_row("drain/raw", "raw loop", 200, 600, 400),
    ]
    told = summary(Report({"cores": "2"}, {"python": "3"}, quick=False, rows=rows)).splitlines()
    assert told[0] == "Measured on: cores: 2 · python 3. Medians of 3 rounds."
    (line,) = [line for line in told if "128 slots" in line]
    assert [cell.strip() for cell in line.strip("|").split("|")][1:] == ["jobs/s", "200", "0.500 × raw loop"]


def test_what_was_not_measured_has_no_line() -> None:
    assert len(summary(Report({}, {}, quick=False)).splitlines()) == 4


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.says)
def test_every_figure_and_what_it_is_compared_with_is_a_case(figure: object) -> None:
    keys = {case.key for case in cases(FULL)}
    (line,) = [each for each in FIGURES if each is figure]
    assert {line.key, *line.against} <= keys


def test_every_figure_of_the_readme_was_measured() -> None:
    assert MEASURED.exists()
    assert [line for line in FIGURES if f"| {line.says}" not in performance()] == []


def test_what_the_readme_shows_is_no_quick_run() -> None:
    assert not read_report(MEASURED).quick
