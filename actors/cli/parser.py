"""The arguments of the command line, as values."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Literal, cast

import attrs

from actors.cli.steering import COMMANDS, Command, Given

TIMEOUT_S: Final = 10.0
"""How long a command waits for its answer: a host that lives takes a fraction of a second."""
DB_HELP: Final = "the database file"


@attrs.frozen
class TaskName:
    """A task as the command line names it: ``company/task``."""

    company: str
    task: str

    def __str__(self) -> str:
        return f"{self.company}/{self.task}"


def _tuple(names: Iterable[TaskName]) -> tuple[TaskName, ...]:
    return tuple(names)


@attrs.frozen
class RunOptions:
    """``run``, and what `demo` is made into. ``executions_max`` is ``None`` for the runtime's own default."""

    db: Path
    plan: Path
    retry: tuple[TaskName, ...] = attrs.field(default=(), converter=_tuple)
    start: tuple[TaskName, ...] = attrs.field(default=(), converter=_tuple)
    executions_max: int | None = None
    durability: Literal["full", "normal"] = "full"
    stay: bool = False
    json: bool = False


@attrs.frozen
class DemoOptions:
    db: Path
    json: bool = False


@attrs.frozen
class ReadOptions:
    """Everything that reads a database beside whoever runs it."""

    db: Path
    what: Literal["status", "queue", "explain", "timeline", "log", "result", "inbox"]
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


@attrs.frozen
class SteerOptions:
    """A message to the host. ``given`` holds the arguments of the command itself."""

    db: Path
    command: Command
    given: Given
    later: bool = False
    timeout_s: float = TIMEOUT_S
    message_id: str | None = None
    json: bool = False


Options = RunOptions | DemoOptions | ReadOptions | MaintenanceOptions | SteerOptions


def parse(argv: Sequence[str]) -> Options:
    """The options; a mistake ends in ``SystemExit`` with status 2, after a message on standard error."""
    given: dict[str, Any] = vars(_parser().parse_args(argv))
    make = given.pop("make")
    return cast(Options, make(**given))


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
exit status: 0 done, and all tasks of a run completed; 1 something failed, is blocked or waits for a person
(but for the one task that demo leaves for you); 2 the plan, the arguments or the database cannot be used;
130 interrupted.
"""
_EPILOGS: Final = {
    "run": """\
exit status: 0 all tasks completed; 1 something failed, is blocked or waits for a person;
2 the plan, the arguments or the database cannot be used; 130 interrupted.
""",
    "demo": """\
exit status: 0 it ended as it should, with at most one task left, which waits for you; 1 more is left;
2 the arguments or the database cannot be used; 130 interrupted.
""",
    "prune": """\
exit status: 0 done; 1 a process runs the database; 2 the arguments or the database cannot be used; 130 interrupted.
""",
    "delete": """\
exit status: 0 done; 1 a process runs the database, or --yes was not given; 2 the arguments or the database cannot be
used; 130 interrupted.
""",
}
_EPILOG_OF_READS: Final = """\
exit status: 0 done; 2 the arguments or the database cannot be used; 130 interrupted.
"""

_STEERING_EPILOG: Final = """\
exit status: 0 done (with --later or --timeout 0: sent); 1 refused, nothing was changed;
2 the arguments or the database cannot be used; 3 nothing was sent: no process runs the database and --later
was not given, or the inbox is full; 4 sent, but not answered in time; 130 interrupted.
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
    for command in COMMANDS:
        _add_steering(commands, command)
    return parser


Commands = Any
"""What `add_subparsers` returns; argparse has no public name for it."""


def _add(
    commands: Commands,
    name: str,
    help_text: str,
    more: str = "",
    epilog: str | None = None,
    **more_options: Any,
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help_text,
        description=f"{help_text[0].upper()}{help_text[1:]}.{more}",
        epilog=epilog or _EPILOGS.get(name, _EPILOG_OF_READS),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        **more_options,
    )
    parser.add_argument("--db", type=Path, required=True, metavar="FILE", help=DB_HELP)
    return parser


def _add_run(commands: Commands) -> None:
    more = (
        " Running it again continues where it was.\nCtrl-C once lets what runs finish, twice stops it now."
        " SIGTERM gives it 2 s.\nWhat was cut short runs again at no cost."
    )
    run = _add(commands, "run", "execute a plan until nothing can go on without a person", more, _EPILOG)
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
    run.add_argument(
        "--stay",
        action="store_true",
        help="do not end when nothing goes on: schedules fire, other commands may send something; Ctrl-C ends it",
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
        ("result", "what a task has come to"),
        ("log", "the stream of events"),
        ("inbox", "the messages that wait for the host, and its last answers"),
    ):
        read = _add(commands, what, help_text, " Works while another process runs the database.")
        read.set_defaults(make=ReadOptions, what=what)
        if what in ("explain", "timeline", "result"):
            read.add_argument("task", type=task_name, metavar="COMPANY/TASK")
        else:
            read.add_argument("--company", metavar="NAME", help="only of this company")
        if what in _JSON_LINES:
            read.add_argument("--json", action="store_true", help=_JSON_LINES[what])
        if what == "log":
            read.add_argument(
                "-f",
                "--follow",
                action="store_true",
                help="go on with what is yet to come; may be started before the first run",
            )
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


_JSON_LINES: Final = {
    "log": "a line of JSON for each event",
    "result": "one line of JSON",
    "inbox": "a line of JSON for each message",
}


def _add_steering(commands: Commands, command: Command) -> None:
    more = " Another process runs the database; it is told to."
    parser = _add(
        commands, command.name, command.help, more, _STEERING_EPILOG, argument_default=argparse.SUPPRESS
    )
    if command.about == "task":
        parser.add_argument("address", type=task_name, metavar="COMPANY/TASK")
    elif command.about == "new task":
        parser.add_argument("address", type=_new_task_name, metavar="COMPANY[/TASK]")
    else:
        parser.add_argument("company", metavar="COMPANY")
    command.arguments(parser)
    parser.add_argument(
        "--later",
        action="store_true",
        help="send it even if no process runs the database: the next one does it",
    )
    parser.add_argument(
        "--timeout",
        dest="timeout_s",
        type=_seconds,
        metavar="S",
        help=f"how many seconds to wait for the answer; 0 does not wait (default: {TIMEOUT_S:g})",
    )
    parser.add_argument(
        "--message-id", metavar="ID", help="sent again under the same id, it is done once and answered again"
    )
    parser.add_argument("--json", action="store_true", help="the answer as one line of JSON")
    parser.set_defaults(make=_steering(command))


def _steering(command: Command) -> Callable[..., SteerOptions]:
    def make(**values: Any) -> SteerOptions:
        own = [field.name for field in attrs.fields(SteerOptions) if field.name in values]
        options = {name: values.pop(name) for name in own}
        name: TaskName | tuple[str, str | None] | None = values.pop("address", None)
        if isinstance(name, TaskName):
            values |= {"company": name.company, "task": name.task}
        elif name is not None:
            values |= {"company": name[0], "task": name[1]}
        return SteerOptions(command=command, given=Given(**values), **options)

    return make


def _new_task_name(text: str) -> TaskName | tuple[str, None]:
    return task_name(text) if "/" in text else (text, None)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"a number of seconds from 0 is needed, not {text!r}")
    return value
