"""The command line of the benchmark."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.cases import FULL, MEASURES, QUICK, cases
from tests.bench.machine import machine, versions
from tests.bench.report import Report, read_report
from tests.bench.run import present, run_all
from tests.bench.table import render

ROUNDS = 5
QUICK_ROUNDS = 1
EXIT_INTERRUPTED = 130

EPILOG = """\
measures:
{measures}

other commands:
  python -m tests.bench show FILE             the table of a run that was kept with --json
  python -m tests.bench replay FILE [--help]  a recorded workflow (WfFormat 1.4) as one company's tasks

The peers are an optional extra: pip install -e '.[bench]'. One that is missing is left out, and the table says so.
"""


def parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:<10} {says}" for name, says in MEASURES.items())
    found = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description="Measure Turnkeeper beside its peers; each run is a fresh process on a fresh file.",
        epilog=EPILOG.format(measures=listed),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--quick", action="store_true", help="small sizes, one round: under a minute")
    found.add_argument(
        "--only",
        action="append",
        choices=list(MEASURES),
        metavar="MEASURE",
        help="may be given several times",
    )
    found.add_argument(
        "--rounds", type=_at_least_one, metavar="N", help=f"default {ROUNDS}; quick {QUICK_ROUNDS}"
    )
    found.add_argument("--json", type=Path, metavar="FILE", help="keep every value of every round")
    found.add_argument(
        "--dir", type=Path, metavar="FOLDER", help="where the files are made; its disk is what is measured"
    )
    return found


def _at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def main(argv: Sequence[str]) -> int:
    """Carry out one command; returns the exit status: 1 if a case failed."""
    if argv[:1] == ["replay"]:
        from tests.bench.replay import main as replay

        return replay(argv[1:])
    if argv[:1] == ["show"]:
        return _show(argv[1:])
    options = parser().parse_args(argv)
    return _measure(options)


def _measure(options: argparse.Namespace) -> int:
    """Ctrl-C ends the measuring and shows what there is."""
    wanted = options.only or list(MEASURES)
    chosen = [case for case in cases(QUICK if options.quick else FULL) if case.measure in wanted]
    here, missing = present(chosen)
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    with TemporaryDirectory(dir=options.dir, prefix="turnkeeper-bench-") as name:
        report = Report(machine(Path(name)), versions(), options.quick, missing=missing)
        try:
            run_all(report, here, rounds, Path(name), _progress)
            status = int(any(row.error is not None for row in report.rows))
        except KeyboardInterrupt:
            status = EXIT_INTERRUPTED
    _say(render(report))
    if options.json is not None:
        report.write(options.json)
    return status


def _show(argv: Sequence[str]) -> int:
    found = argparse.ArgumentParser(prog="python -m tests.bench show")
    found.add_argument("file", type=Path)
    options = found.parse_args(argv)
    try:
        _say(render(read_report(options.file)))
    except (OSError, ValueError) as error:
        found.error(str(error))
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _progress(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
