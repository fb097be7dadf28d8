"""The arguments of the command line, as values."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, cast

import attrs

DB_HELP: Final = "the database file"


@attrs.frozen
class TaskName:
    """A task as the command line names it: ``company/task``."""

    company: str
    task: str

    def __str__(self) -> str:
        return f"{self.company}/{self.task}"


@attrs.frozen
class RunOptions:
    """``run``, and what `demo` is made into. ``executions_max`` is ``None`` for the runtime's own default."""

    db: Path
    plan: Path
    retry: tuple[TaskName, ...] = ()
    start: tuple[TaskName, ...] = ()
    executions_max: int | None = None
    durability: Literal["full", "normal"] = "full"
    json: bool = False


@attrs.frozen
class DemoOptions:
    db: Path
    json: bool = False


@attrs.frozen
class ReadOptions:
    """Everything that reads a database beside whoever runs it."""

    db: Path
    what: Literal["status", "queue", "explain", "timeline", "log"]
    company: str | None = None
    task: TaskName | None = None
    follow: bool = False
    json: bool = False
    after: int | None = None


@attrs.frozen
class BackupOptions:
    db: Path
    target: Path


@attrs.frozen
class PruneOptions:
    """For how many days what is kept; ``None`` for ever."""

    db: Path
    events_days: int | None = None
    attempts_days: int | None = None
    tasks_days: int | None = None
    archived_days: int | None = None
    keys_days: int | None = None


@attrs.frozen
class DeleteOptions:
    db: Path
    company: str
    yes: bool = False


MaintenanceOptions = BackupOptions | PruneOptions | DeleteOptions
Options = RunOptions | DemoOptions | ReadOptions | MaintenanceOptions


def parse(argv: Sequence[str]) -> Options:
    """The options; a mistake ends in ``SystemExit`` with status 2, after a message on standard error."""
    given: dict[str, Any] = vars(_parser().parse_args(argv))
    make = given.pop("make")
    return cast(Options, make(**{key: tuple(v) if isinstance(v, list) else v for key, v in given.items()}))


def task_name(text: str) -> TaskName:
    company, slash, task = text.partition("/")
    if not (slash and company and task) or "/" in task:
        raise argparse.ArgumentTypeError(f"a task is named COMPANY/TASK, not {text!r}")
    return TaskName(company, task)


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS_MAX:
        raise argparse.ArgumentTypeError(f"a whole number from 0 is needed, not {text!r}")
    return int(text)


_DIGITS_MAX: Final = 18

_EPILOG: Final = """\
exit status: 0 all tasks completed; 1 something failed, is blocked or waits for a person;
2 the plan, the arguments or the database cannot be used; 130 interrupted.
prune and delete also end with 1 while a process runs the database.
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m actors",
        description="Turnkeeper: a durable task queue for each of your companies.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    _add_run(commands)
    _add_demo(commands)
    _add_reads(commands)
    _add_maintenance(commands)
    return parser


Commands = Any
"""What `add_subparsers` returns; argparse has no public name for it."""


def _add(commands: Commands, name: str, help_text: str, more: str = "") -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help_text,
        description=f"{help_text[0].upper()}{help_text[1:]}.{more}",
        epilog=_EPILOG if name == "run" else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--db", type=Path, required=True, metavar="FILE", help=DB_HELP)
    return parser


def _add_run(commands: Commands) -> None:
    more = (
        " Running it again continues where it was.\nCtrl-C once lets what runs finish, twice stops it now."
        " SIGTERM gives it 2 s.\nWhat was cut short runs again at no cost."
    )
    run = _add(commands, "run", "execute a plan until nothing can go on without a person", more)
    run.add_argument("plan", type=Path, metavar="PLAN.toml")
    for option, what in (
        ("--retry", "go on with a failed or stopped task"),
        ("--start", "start a manual task"),
    ):
        run.add_argument(
            option,
            type=task_name,
            action="append",
            default=[],
            metavar="COMPANY/TASK",
            help=f"{what}; repeatable",
        )
    run.add_argument("--executions-max", type=_whole, metavar="N", help="how many nodes may execute at once")
    run.add_argument(
        "--durability",
        choices=("full", "normal"),
        default="full",
        help="normal: faster; a power cut (not a crash) may take the last moments (default: full)",
    )
    run.add_argument("--json", action="store_true", help="every event as a line of JSON, and a summary")
    run.set_defaults(make=RunOptions)


def _add_demo(commands: Commands) -> None:
    demo = _add(commands, "demo", "execute a plan that comes with the package, and say what happened")
    demo.add_argument("--json", action="store_true", help="every event as a line of JSON, and a summary")
    demo.set_defaults(make=DemoOptions)


def _add_reads(commands: Commands) -> None:
    for what, help_text in (
        ("status", "where every task stands"),
        ("queue", "the unsettled tasks in the order of their queue"),
        ("explain", "why a task does not run"),
        ("timeline", "what happened to a task"),
        ("log", "the stream of events"),
    ):
        read = _add(commands, what, help_text, " Works while another process runs the database.")
        read.set_defaults(make=ReadOptions, what=what)
        if what in ("explain", "timeline"):
            read.add_argument("task", type=task_name, metavar="COMPANY/TASK")
        else:
            read.add_argument("--company", metavar="NAME", help="only of this company")
        if what == "log":
            read.add_argument("-f", "--follow", action="store_true", help="go on with what is yet to come")
            read.add_argument("--json", action="store_true", help="a line of JSON for each event")
            read.add_argument(
                "--after", type=_whole, metavar="N", help="only what stands after position N, without a gap"
            )


def _add_maintenance(commands: Commands) -> None:
    more = " Works while another process runs the database."
    backup = _add(commands, "backup", "write a checked copy of the database to a new file", more)
    backup.add_argument("target", type=Path, metavar="TARGET", help="a file that does not exist yet")
    backup.set_defaults(make=BackupOptions)
    more = " No process may run the database. What is not named is kept for ever."
    prune = _add(commands, "prune", "let go of what is old", more)
    for name, what in (
        ("events", "lines of the log"),
        ("attempts", "attempts of runs that are settled"),
        ("tasks", "completed tasks that no other depends on"),
        ("archived", "archived tasks that no other depends on"),
        ("keys", "idempotency keys, and with them the tasks that were submitted under one"),
    ):
        prune.add_argument(f"--{name}-days", type=_whole, metavar="N", help=f"keep {what} for N days")
    prune.set_defaults(make=PruneOptions)
    more = " No process may run the database."
    delete = _add(commands, "delete", "delete a company with all that it has", more)
    delete.add_argument("company", metavar="COMPANY")
    delete.add_argument("--yes", action="store_true", help="really; without it, only say what would go")
    delete.set_defaults(make=DeleteOptions)
