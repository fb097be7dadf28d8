"""The table of all commands, and the parser that is made of it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from actors.cli.arguments import Argument, Arguments, TaskName, count, option, seconds, switch, task_name
from actors.cli.fields import did_you_mean
from actors.cli.message_commands import MESSAGE_COMMANDS, MessageCommand
from actors.cli.options import (
    TIMEOUT_S,
    BackupOptions,
    DeleteOptions,
    DemoOptions,
    Options,
    PruneOptions,
    ReadOptions,
    RunOptions,
    SendOptions,
    What,
)
from actors.cli.replies import Given

_UNUSABLE: Final = "the arguments or the database cannot be used"
_STATUS_OF_RUN: Final = (
    "0 all tasks completed; 1 something failed, is blocked or waits for a person;\n"
    f"2 the plan, {_UNUSABLE}; 130 interrupted."
)
_STATUS_OF_DEMO: Final = (
    "0 it ended as intended, with at most one task left, which waits for you;\n"
    f"1 more is left; 2 {_UNUSABLE}; 130 interrupted."
)
_STATUS_OF_READ: Final = f"0 done; 2 {_UNUSABLE}; 130 interrupted."
_STATUS_OF_RESULT: Final = f"0 the task is completed; 1 it is not; 2 {_UNUSABLE}; 130 interrupted."
_STATUS_OF_OFFLINE: Final = (
    f"0 done; 1 a process runs the database, or nothing was confirmed;\n2 {_UNUSABLE}; 130 interrupted."
)
_STATUS_OF_MESSAGE: Final = (
    "0 done (with --later or --timeout 0: sent); 1 refused, nothing changed;\n"
    f"2 {_UNUSABLE};\n"
    "3 nothing was sent: no process runs the database and --later was not given, or the inbox is full;\n"
    "4 sent, but not answered in time; 130 interrupted."
)
_STATUS: Final = (
    "0 done, and all tasks of a run completed; 1 something failed, is blocked or waits for a person;\n"
    f"2 the plan, {_UNUSABLE}; 130 interrupted."
)

_BESIDE: Final = " Works while another process runs the database."
_OFFLINE: Final = " No process may run the database."
_MESSAGE: Final = " The process that runs the database carries it out."

GROUPS: Final = ("run", "look", "tasks", "companies", "maintenance")
"""The headings under which the help lists the commands."""

Make = Callable[..., Options]


@attrs.frozen
class Command:
    """``make``: the options, from ``db`` and the arguments by name. ``more``: sentences after the first one of its
    help. ``statuses``: what its exit statuses mean.
    """

    name: str
    group: str
    help: str
    make: Make
    arguments: Arguments
    more: str = ""
    statuses: str = _STATUS_OF_READ

    def add_to(self, commands: Any) -> None:
        """``commands`` is what `add_subparsers` returned; argparse has no public name for it."""
        parser = commands.add_parser(
            self.name,
            description=f"{self.help[0].upper()}{self.help[1:]}.{self.more}",
            epilog=f"exit status: {self.statuses}\n",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,
        )
        for argument in (DB, *self.arguments):
            argument.add_to(parser)
        parser.set_defaults(make=self.make)


DB: Final = option("--db", "FILE", "the database file", type=Path, required=True)
TASK: Final = Argument("task", metavar="COMPANY/TASK", type=task_name)
ONE_COMPANY: Final = option("--company", "NAME", "only this company")
EVENTS_AS_JSON: Final = switch("--json", "print each event as a line of JSON, and a summary")


def _read(name: What, help: str, *arguments: Argument, statuses: str = _STATUS_OF_READ) -> Command:
    return Command(name, "look", help, partial(ReadOptions, what=name), arguments, _BESIDE, statuses)


def _days(kind: str, what: str) -> Argument:
    return option(f"--{kind}-days", "N", f"keep {what} for N days", type=count)


def _prune_options(db: Path, **days: int) -> PruneOptions:
    return PruneOptions(db, {name.removesuffix("_days"): number for name, number in days.items()})


_OWN_COMMANDS: Final = (
    Command(
        "run",
        "run",
        "execute a plan until only a person can make it continue",
        RunOptions,
        (
            Argument("plan", type=Path, metavar="PLAN.toml"),
            option(
                *("--retry", "COMPANY/TASK", "continue a failed or stopped task; repeatable"),
                type=task_name,
                action="append",
            ),
            option(
                *("--start", "COMPANY/TASK", "start a manual task; repeatable"),
                type=task_name,
                action="append",
            ),
            option("--executions-max", "N", "how many nodes may execute at once", type=count),
            Argument(
                "--durability",
                choices=("full", "normal"),
                help="normal is faster, but a power cut (not a crash) may lose the last moments (default: full)",
            ),
            switch("--stay", "stay when nothing continues, for schedules and other commands; Ctrl-C ends it"),
            EVENTS_AS_JSON,
        ),
        " Running it again continues where it was.\nThe first Ctrl-C lets running attempts finish, the second stops"
        " them. SIGTERM gives them 2 s.\nAn interrupted attempt runs again and costs no try.",
        _STATUS_OF_RUN,
    ),
    Command(
        *("demo", "run", "execute a plan that comes with the package, and say what happened"),
        DemoOptions,
        (EVENTS_AS_JSON,),
        statuses=_STATUS_OF_DEMO,
    ),
    _read("status", "show the state of every task", ONE_COMPANY),
    _read("queue", "list the unsettled tasks in the order of their queue", ONE_COMPANY),
    _read("explain", "explain why a task does not run", TASK),
    _read("timeline", "show what happened to a task", TASK),
    _read(
        *("result", "show the results of a task", TASK),
        switch("--json", "one line of JSON"),
        statuses=_STATUS_OF_RESULT,
    ),
    _read(
        "log",
        "show the stream of events",
        ONE_COMPANY,
        switch("--json", "a line of JSON for each event"),
        Argument(
            *("-f", "--follow"),
            action="store_true",
            help="continue with new events; may be started before the first run",
        ),
        option("--after", "N", "only events after position N, without a gap", type=count),
    ),
    _read(
        "inbox",
        "list the messages that wait for the host, and its last answers",
        ONE_COMPANY,
        switch("--json", "a line of JSON for each message"),
    ),
    Command(
        *("backup", "maintenance", "write a checked copy of the database to a new file"),
        BackupOptions,
        (Argument("target", type=Path, metavar="TARGET", help="a file that does not exist yet"),),
        _BESIDE,
    ),
    Command(
        *("prune", "maintenance", "delete old data"),
        _prune_options,
        (
            _days("events", "lines of the log"),
            _days("attempts", "attempts of settled runs"),
            _days("tasks", "completed tasks that no other task depends on"),
            _days("archived", "archived tasks that no other task depends on"),
            _days("keys", "idempotency keys, and the tasks that were submitted under them,"),
        ),
        f"{_OFFLINE} What is not named is kept for ever.",
        _STATUS_OF_OFFLINE,
    ),
    Command(
        *("delete", "maintenance", "delete a company and everything it has"),
        DeleteOptions,
        (
            Argument("company", metavar="COMPANY"),
            switch("--yes", "delete it; without this, only say what would be deleted"),
        ),
        _OFFLINE,
        _STATUS_OF_OFFLINE,
    ),
)

# --- the commands that send a message -----------------------------------------------------------------------


def _new_task_name(text: str) -> TaskName | Given:
    return task_name(text) if "/" in text else Given(text)


_ADDRESSES: Final = {
    "task": Argument("address", type=task_name, metavar="COMPANY/TASK"),
    "new task": Argument("address", type=_new_task_name, metavar="COMPANY[/TASK]"),
    "company": Argument("address", type=Given, metavar="COMPANY"),
}
_SENDING: Final = (
    switch("--later", "send it even if no process runs the database: the next one carries it out"),
    option(
        "--timeout",
        "S",
        f"how many seconds to wait for the answer; 0 does not wait (default: {TIMEOUT_S:g})",
        dest="timeout_s",
        type=seconds,
    ),
    option("--message-id", "ID", "sent again under the same id, it is carried out once and answered again"),
    switch("--json", "print the answer as one line of JSON"),
)
_SENDING_NAMES: Final = ("db", "later", "timeout_s", "message_id", "json")


def _message_command(command: MessageCommand) -> Command:
    group = "companies" if command.about == "company" else "tasks"
    arguments = (_ADDRESSES[command.about], *command.arguments, *_SENDING)
    make = partial(_send_options, command)
    return Command(command.name, group, command.help, make, arguments, _MESSAGE, _STATUS_OF_MESSAGE)


def _send_options(command: MessageCommand, address: TaskName | Given, **values: Any) -> SendOptions:
    options = {name: values.pop(name) for name in _SENDING_NAMES if name in values}
    task = address.task if isinstance(address, TaskName) else None
    return SendOptions(command=command, given=Given(address.company, task, values), **options)


COMMANDS: Final = {
    command.name: command
    for command in (*_OWN_COMMANDS, *(_message_command(one) for one in MESSAGE_COMMANDS))
}

# --- the parser ---------------------------------------------------------------------------------------------


def parse(argv: Sequence[str]) -> Options:
    """The options; a mistake ends in ``SystemExit`` with status 2, after a message on standard error."""
    parser = argparse.ArgumentParser(
        prog="python -m actors",
        usage="%(prog)s [-h] COMMAND ...",
        description=f"Turnkeeper: a durable task queue for each of your companies.\n\n{_listed()}",
        epilog=f"exit status: {_STATUS}\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(
        required=True, metavar="COMMAND", help=argparse.SUPPRESS, prog="python -m actors"
    )
    for command in COMMANDS.values():
        command.add_to(commands)
    if argv and not argv[0].startswith("-") and argv[0] not in COMMANDS:
        parser.error(f"there is no command {argv[0]!r}{did_you_mean(argv[0], COMMANDS)}")
    given: dict[str, Any] = vars(parser.parse_args(argv))
    make: Make = given.pop("make")
    return make(**given)


def _listed() -> str:
    """Every command with what it does, by group."""
    width = max(map(len, COMMANDS))
    groups = []
    for group in GROUPS:
        lines = [f"  {one.name:<{width}}  {one.help}" for one in COMMANDS.values() if one.group == group]
        groups.append("\n".join([f"{group}:", *lines]))
    return "\n\n".join(groups)
