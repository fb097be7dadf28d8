"""Running the cases: each run a fresh process on a fresh file, the cases of a measure taking turns."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from tests.bench.cases import Case
from tests.bench.peers import version_of
from tests.bench.protocol import ChildFailed, Job, Values, values_of
from tests.bench.report import Report, Row

ROOT = Path(__file__).parents[2]
RUN_S = 900.0
"""The longest that one run may take."""

Say = Callable[[str], None]


def run_job(job: Job, *, timeout_s: float = RUN_S) -> Values:
    """One run in a process of its own; raises `ChildFailed`."""
    command = [sys.executable, "-m", "tests.bench.child", job.text()]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise ChildFailed(f"took longer than {timeout_s:g} s") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise ChildFailed(said[-1] if said else f"ended with {done.returncode}")
    return values_of(done.stdout)


def run_case(case: Case, folder: Path) -> Values:
    """One run of a case on a file that nobody has seen before."""
    with TemporaryDirectory(dir=folder, prefix=case.key.replace("/", "-")) as fresh:
        path = str(Path(fresh) / "bench.db")
        if case.fill is not None:
            run_job(Job("raw", "fill", path, case.fill))
        return run_job(Job(case.subject, case.task, path, case.params))


def present(cases: Iterable[Case]) -> tuple[list[Case], list[str]]:
    """The cases whose subjects are installed, and the names of those that are not."""
    cases = list(cases)
    missing = [name for name in dict.fromkeys(case.subject for case in cases) if version_of(name) is None]
    return [case for case in cases if case.subject not in missing], missing


def run_all(report: Report, cases: Sequence[Case], rounds: int, folder: Path, say: Say) -> None:
    """Fill in the report. A case that fails is noted and left out of the rounds that follow; the others go on."""
    for measure, group in groupby(cases, key=lambda case: case.measure):
        here = [(case, _row(case)) for case in group]
        report.rows.extend(row for _, row in here)
        for number in range(rounds):
            for case, row in here:
                if row.error is None:
                    _run_once(case, row, number, folder, f"{measure}, round {number + 1} of {rounds}", say)


def _row(case: Case) -> Row:
    return Row(case.key, case.subject, case.who, case.params, case.against, case.show)


def _run_once(case: Case, row: Row, number: int, folder: Path, where: str, say: Say) -> None:
    start_s = perf_counter()
    try:
        row.rounds[number] = run_case(case, folder)
    except ChildFailed as failure:
        row.error = str(failure)
        say(f"{where}: {case.who} failed: {failure}")
    else:
        say(f"{where}: {case.who} ({perf_counter() - start_s:.1f} s)")
