"""The command line from its arguments to its exit status."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from typing import Any, Final, TextIO

import structlog
import trio

import actors
from actors.cli.demo import DemoHook, as_intended, demo_folder, demo_lines, demo_options
from actors.cli.interrupts import EXIT_INTERRUPTED
from actors.cli.maintenance import maintain
from actors.cli.options import DemoOptions, Options, ReadOptions, RunOptions, SendOptions
from actors.cli.outcome import all_completed, next_steps, summary_lines, unfinished, why
from actors.cli.output import Output, complain, present_ms
from actors.cli.parser import parse
from actors.cli.plan import PlanError, read_plan
from actors.cli.progress import View, open_view
from actors.cli.read import CompanyNotThere, read
from actors.cli.run import Ended, execute
from actors.cli.sending import send
from actors.cli.submission import TaskNotThere

EXIT_COMPLETED: Final = 0
EXIT_UNFINISHED: Final = 1
EXIT_UNUSABLE: Final = 2
CONTINUE: Final = "Run the same command again to continue."

_UNUSABLE: Final = (
    PlanError,
    TaskNotThere,
    CompanyNotThere,
    actors.CompanyUnknown,
    actors.TaskUnknown,
    actors.CursorTooOld,
    actors.BackupFailed,
    actors.DatabaseInUse,
    actors.ForkedProcess,
    actors.InvalidJson,
    actors.InvalidMessage,
    actors.InvalidName,
    actors.MessageConflict,
    actors.NotADatabase,
    actors.SchemaTooNew,
    actors.StoreUnavailable,
)
"""Errors whose cause is in the arguments, the plan or the database."""


def main(argv: Sequence[str]) -> int:
    """Carry out one command; returns the exit status. Raises only errors that are bugs of Turnkeeper."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a stream that cannot say "→" says it otherwise
    try:
        options = parse(argv)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else EXIT_UNUSABLE
    try:
        return trio.run(_carry_out, options)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except (*_UNUSABLE, actors.TurnkeeperError, BaseExceptionGroup) as error:
        return _exit_status_of(error)


async def _carry_out(options: Options) -> int:
    _log_to(complain, complain)
    if isinstance(options, ReadOptions):
        return await read(options, Output(sys.stdout))
    if isinstance(options, SendOptions):
        return await send(options, Output(sys.stdout))
    if not isinstance(options, RunOptions | DemoOptions):
        return await maintain(options, Output(sys.stdout))
    stdout = sys.stdout
    with redirect_stdout(sys.stderr) if options.json else nullcontext():  # what functions of the plan print
        if isinstance(options, DemoOptions):
            return await _demo(options, stdout)
        return await _run(options, stdout)


async def _run(options: RunOptions, stdout: TextIO) -> int:
    plan = read_plan(options.plan)
    with open_view(stdout, json=options.json) as view:
        _log_to(view.note, view.warn)
        ended = await execute(plan, options, view)
        steps = next_steps(ended.statuses, options.plan, options.db)
        more = ["", "Try next:", *(f"  {step}" for step in steps)] if steps else []
        return _summarise(view, ended, exit_status(ended), more)


async def _demo(options: DemoOptions, stdout: TextIO) -> int:
    run = demo_options(options)
    plan = read_plan(run.plan, folder=demo_folder())
    with open_view(stdout, json=options.json) as view:
        _log_to(view.note, view.warn)
        ended = await execute(plan, run, view, DemoHook(view))
        status = exit_status(ended)
        if status == EXIT_UNFINISHED and as_intended(ended.statuses):
            status = EXIT_COMPLETED
        return _summarise(view, ended, status, demo_lines(run, ended.statuses))


def _summarise(view: View, ended: Ended, status: int, more: list[str]) -> int:
    """How it ended, and ``more`` unless it was interrupted; returns the status."""
    view.summary([*_summary(ended), *(["", CONTINUE] if ended.interrupts else more)], facts(ended, status))
    return status


def exit_status(ended: Ended) -> int:
    if ended.interrupts:
        return EXIT_INTERRUPTED
    return EXIT_COMPLETED if all_completed(ended.statuses) else EXIT_UNFINISHED


def _summary(ended: Ended) -> list[str]:
    lines = summary_lines(ended.tallies, ended.statuses, present_ms())
    lines += [f"{attempt} was interrupted and runs again" for attempt in ended.report.interrupted]
    lines += [f"{attempt} did not end and was left behind" for attempt in ended.report.abandoned]
    return lines


def facts(ended: Ended, status: int) -> dict[str, Any]:
    """The summary for programs."""
    now_ms = present_ms()
    return {
        "exit_status": status,
        "companies": {
            company: {"total": one.total, "states": {state.value: n for state, n in one.states.items()}}
            for company, one in ended.tallies.items()
        },
        "unfinished": [
            {"company": one.company, "task": one.id, "state": one.state.value, "why": why(one, now_ms)}
            for one in unfinished(ended.statuses)
        ],
        "interrupted": list(ended.report.interrupted),
        "abandoned": list(ended.report.abandoned),
    }


# --- errors -------------------------------------------------------------------------------------------------


def _exit_status_of(error: BaseException) -> int:
    """Print what cannot be used, in one line; raise any other error again."""
    leaves = list(_leaves(error))
    if all(isinstance(leaf, KeyboardInterrupt) for leaf in leaves):
        return EXIT_INTERRUPTED
    if not all(isinstance(leaf, (*_UNUSABLE, actors.TurnkeeperError)) for leaf in leaves):
        raise error
    complain(str(leaves[0]))
    return EXIT_UNUSABLE if isinstance(leaves[0], _UNUSABLE) else EXIT_UNFINISHED


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


# --- the structured log -------------------------------------------------------------------------------------


def _log_to(note: Callable[[str], None], warn: Callable[[str], None]) -> None:
    """Show what functions of the plan log, and what the runtime has to say of itself; from a warning on it is a
    diagnosis. Events come to the view as events, so their log lines are dropped. Unconfigured, structlog would
    write all of it to standard output.
    """

    def show(_logger: object, method: str, entry: Mapping[str, Any]) -> str:
        said = str(entry.get("event", ""))
        if said not in actors.KINDS:
            who = "/".join(str(entry[key]) for key in ("company", "task") if key in entry)
            rest = ", ".join(f"{key}={value}" for key, value in entry.items() if key not in _LOG_KEYS)
            text = ": ".join(part for part in (who, said, rest) if part)
            (note if method in _TALK else warn)(text)
        raise structlog.DropEvent

    structlog.configure(processors=[show], cache_logger_on_first_use=False)


_TALK: Final = frozenset({"debug", "info", "msg"})
_LOG_KEYS: Final = frozenset({"event", "company", "task", "run", "node", "attempt"})
