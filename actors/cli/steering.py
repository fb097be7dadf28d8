"""The commands that steer a running host: one table, from which their arguments, their message and what they
say are made.

A command is a line of `COMMANDS`. It says what it is about (a task or a company), which arguments it has
besides, which message they make, and what a person would say when it is done. Everything else, sending,
waiting, refusals, JSON, is the same for all of them and stands in `actors.cli.sending`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

import attrs

from actors import (
    Approve,
    Archive,
    DefineGraph,
    Edit,
    Message,
    Misfire,
    Mode,
    Next,
    Node,
    Overlap,
    Pause,
    PauseSchedule,
    RemoveSchedule,
    Rerun,
    ResumeSchedule,
    Retry,
    RunNow,
    SendBack,
    SetBudget,
    SetLimits,
    SetSchedule,
    Start,
    StartNow,
    Stop,
    StopGoal,
    Submit,
    Unarchive,
    Unpark,
    Unpause,
)
from actors.cli.fields import Table
from actors.cli.plan import COMMAND
from actors.cli.source import read_source
from actors.cli.steps import ONLY_NODE, StepReader
from actors.sentences import listed, moment, plain, shortened

Given = argparse.Namespace
"""The arguments of one command: ``company``, ``task`` where it is about one, and its own."""


@attrs.frozen
class Command:
    """``kind``: the message it sends. ``about``: what the address names; a new task's id may be left out.
    ``arguments`` adds what it takes besides; what is not given is not there. ``said`` is what changed, as a
    sentence without its subject, from the reply. ``then``: whether it is worth saying too where the task stands
    now. ``founds``: whether the company need not exist yet.
    """

    name: str
    help: str
    kind: type[Message[Any]]
    about: Literal["task", "new task", "company"]
    message: Callable[[Given], Message[Any]]
    said: Callable[[Given, Any], str]
    arguments: Callable[[argparse.ArgumentParser], None] = lambda _: None
    then: bool = False
    founds: bool = False

    @property
    def needs(self) -> tuple[str, ...]:
        """The words that it cannot do without, besides the address, as they are called in its help."""
        parser = argparse.ArgumentParser(add_help=False)
        self.arguments(parser)
        return tuple(str(one.metavar) for one in parser._actions if one.required and not one.option_strings)


def _of_schedule(name: str, help_text: str, kind: Callable[[str], Message[Any]]) -> Command:
    """A command that is nothing but a message about a schedule."""
    assert isinstance(kind, type)
    return Command(
        name, help_text, kind, "company", lambda given: kind(given.name), _said_schedule, _schedule_name
    )


def _of_task(
    name: str,
    help_text: str,
    kind: Callable[[str], Message[Any]],
    said: str,
    otherwise: str,
    *,
    then: bool = False,
) -> Command:
    """A command that is nothing but a message about a task."""
    assert isinstance(kind, type)
    return Command(
        name,
        help_text,
        kind,
        "task",
        lambda given: kind(given.task),
        lambda _, reply: said if reply.changed else otherwise,
        then=then,
    )


# --- arguments ----------------------------------------------------------------------------------------------


def json_value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"JSON is needed, and this is not: {error}") from None


def whole(text: str) -> int:
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > _DIGITS_MAX:
        raise argparse.ArgumentTypeError(f"a whole number is needed, not {text!r}")
    return int(text)


_DIGITS_MAX: Final = 18


def _priority(text: str) -> int | str:
    """A number, or "P2" and the like, which the message reads itself."""
    return text if text[:1] in ("P", "p") else whole(text)


def _work_arguments(parser: argparse.ArgumentParser) -> None:
    """What a task is made of; the same for a new one and for one that is changed. Absent where not given."""
    add = parser.add_argument
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--run", metavar="LINE", help="what it does: a line for the shell")
    what.add_argument("--handler", metavar="NAME", help="what it does: a handler of the host")
    what.add_argument("--graph", metavar="NAME", help="what it does: a graph of the company")
    add("--payload", type=json_value, metavar="JSON", help="what its handlers are given")
    add("--priority", type=_priority, metavar="N", help="lower goes first; at first 2")
    add("--mode", choices=[mode.value for mode in Mode], help="manual: it waits until it is started")
    add("--depends-on", action="append", metavar="ID", help="a task that must be completed first; repeatable")
    add("--goal", metavar="NAME", help="a label to stop tasks by")
    add("--budget", type=whole, metavar="N", help="what all its runs may spend, in units of the host's")
    add("--tries-max", type=whole, metavar="N", help="tries of each of its steps, the first included")
    add(
        "--not-before", type=_moment, metavar="TIME", help="ISO 8601 with an offset, or none: not before then"
    )


def _moment(text: str) -> str | None:
    """The message reads it."""
    return None if text == "none" else text


_WORK_FIELDS: Final = (
    "run",
    "handler",
    "graph",
    "payload",
    "priority",
    "mode",
    "depends_on",
    "goal",
    "tries_max",
    "budget",
    "not_before",
    "fail_fast",
    "key",
    "title",
)


def _work(given: Given) -> dict[str, Any]:
    """The fields of `Submit` and `Edit` that were given."""
    fields = {name: value for name, value in vars(given).items() if name in _WORK_FIELDS}
    line = fields.pop("run", None)
    if line is not None:
        fields["nodes"] = [Node(ONLY_NODE, COMMAND, payload={"shell": line})]
    return fields


def _submit_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("title", metavar="TITLE", help="what it is, for people")
    _work_arguments(parser)
    parser.add_argument("--fail-fast", action="store_true", help="the first step that fails stops all")
    parser.add_argument("--key", metavar="KEY", help="submitted again under it, it is the same task")


def _edit_arguments(parser: argparse.ArgumentParser) -> None:
    _work_arguments(parser)
    parser.add_argument("--title", metavar="TITLE", help="what it is, for people")
    parser.add_argument(
        "--fail-fast",
        action=argparse.BooleanOptionalAction,
        help="whether the first step that fails stops all",
    )
    parser.add_argument(
        "--no-budget", dest="budget", action="store_const", const=None, help="no limit of its own"
    )
    parser.add_argument("--no-goal", dest="goal", action="store_const", const=None, help="of no goal")
    parser.add_argument(
        "--no-depends-on",
        dest="depends_on",
        action="store_const",
        const=[],
        help="it needs no other task",
    )


def _approve_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("gate", metavar="GATE")
    parser.add_argument("--note", metavar="TEXT", help="what whoever comes after the gate is told")


def _send_back_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", metavar="NODE", help="whose result is judged")
    parser.add_argument("feedback", metavar="FEEDBACK", help="what is to be done otherwise")


def _limit(text: str) -> int | None:
    return None if text == "none" else whole(text)


def _budget_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "limit", type=_limit, metavar="N", help="in units of the host's; 0: nothing starts; none: no limit"
    )


def _rerun_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="from_node",
        metavar="NODE",
        help="from this step on; the results of those that do not use its result stay",
    )
    parser.add_argument(
        "--payload",
        type=json_value,
        metavar="JSON",
        help="what its handlers are given this time",
    )


def _limits_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runs-max",
        type=whole,
        metavar="N",
        help="how many of its tasks may be active at once; 0 holds everything",
    )
    parser.add_argument(
        "--weight",
        type=whole,
        metavar="N",
        help="how many execution slots in a row it gets in each round",
    )


def _graph_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("graph", metavar="NAME")
    parser.add_argument(
        "file", type=Path, metavar="FILE.toml", help="its steps: [[nodes]], as those of a plan's graph"
    )


def _schedule_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("title", metavar="TITLE", help="what each of its tasks is, for people")
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--cron", metavar="TEXT", help='five fields, as in "30 7 * * 1-5"')
    when.add_argument("--every", type=_number, metavar="SECONDS", help="from now, and from then on")
    parser.add_argument(
        "--zone", metavar="NAME", help="on whose clock cron is read, as in Europe/Berlin; at first UTC"
    )
    parser.add_argument(
        "--overlap",
        choices=[one.value for one in Overlap],
        help="what to do while an earlier task is not settled",
    )
    parser.add_argument(
        "--misfire", choices=[one.value for one in Misfire], help="what to do after an absence"
    )
    parser.add_argument(
        "--jitter", dest="jitter_s", type=_number, metavar="SECONDS", help="at most so much later"
    )
    _work_arguments(parser)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a number of seconds is needed, not {text!r}") from None


def _schedule_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="of the schedule")


def _goal_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("goal", metavar="GOAL")


def _only(given: Given, *names: str) -> dict[str, Any]:
    return {name: value for name, value in vars(given).items() if name in names}


# --- messages -----------------------------------------------------------------------------------------------


def _submit(given: Given) -> Submit:
    return Submit(id=given.task, **_work(given))


def _edit(given: Given) -> Edit:
    return Edit(given.task, **_work(given))


def _schedule(given: Given) -> SetSchedule:
    times = _only(given, "cron", "every", "zone", "overlap", "misfire", "jitter_s")
    return SetSchedule(given.name, task=Submit(**_work(given)), **times)


def _define_graph(given: Given) -> DefineGraph:
    """The graph of a file; raises `PlanError`. Imports the modules of its functions, as reading a plan does."""
    source = read_source(given.file)
    table = Table(source, (), source.values)
    table.allow(("nodes",))
    steps = StepReader(COMMAND, given.file.parent.resolve())
    nodes = tuple(steps.node(node) for node in table.tables("nodes"))
    return table.build(DefineGraph, {"name": given.graph, "nodes": nodes}, {})


# --- what is said -------------------------------------------------------------------------------------------


def _said_submitted(_: Given, reply: Any) -> str:
    return "was there already: nothing was changed" if reply.existing else "is submitted"


def _said_stopped(_: Given, reply: Any) -> str:
    if not reply.changed:
        return f"is {plain(str(reply.status))} already: nothing was changed"
    return "is being stopped" if str(reply.status) == "stopping" else "was stopped"


def _said_first(_: Given, reply: Any) -> str:
    if not reply.changed:
        return "is under way already: nothing was changed"
    held = (
        f", as soon as a run slot is free; {listed(tuple(reply.holders))} hold them" if reply.holders else ""
    )
    return f"goes first{held}"


def _said_limits(_: Given, reply: Any) -> str:
    runs = (
        "no task" if reply.runs_max == 0 else "1 task" if reply.runs_max == 1 else f"{reply.runs_max} tasks"
    )
    kept = "" if reply.changed else ", as before"
    return f"may have {runs} active at once and has weight {reply.weight}{kept}"


def _said_budget(_: Given, reply: Any) -> str:
    may = "may spend anything" if reply.limit is None else f"may spend {reply.limit:,} in all"
    kept = "" if reply.changed else ", as before"
    return f"{may}{kept}; {reply.spent:,} are spent, {reply.reserved:,} reserved"


def _said_goal(given: Given, reply: Any) -> str:
    if not reply.tasks:
        return f"has nothing to stop of goal {plain(given.goal)}"
    many = "1 task" if len(reply.tasks) == 1 else f"{len(reply.tasks)} tasks"
    return f"stops {many} of goal {plain(given.goal)}: {listed(tuple(reply.tasks[:_IDS_SHOWN]), len(reply.tasks))}"


_IDS_SHOWN: Final = 10


def _said_graph(given: Given, reply: Any) -> str:
    name = plain(given.graph)
    return (
        f"has graph {name}, version {reply.version}"
        if reply.changed
        else f"has graph {name} as it is, version {reply.version}"
    )


def _said_schedule(given: Given, reply: Any) -> str:
    said = f"has schedule {plain(given.name)}"
    if reply.disabled is not None:
        return f"{said}, which is disabled: {shortened(reply.disabled)}"
    if reply.next_ms is None:
        return f"has no schedule {plain(given.name)} any more"
    paused = ", paused" if reply.paused else ""
    kept = "" if reply.changed else " as it is"
    return f"{said}{kept}{paused}; its next time is {moment(reply.next_ms, time.time_ns() // 1_000_000)}"


# --- the table ----------------------------------------------------------------------------------------------

COMMANDS: Final[tuple[Command, ...]] = (
    Command(
        "submit",
        "add a task",
        Submit,
        "new task",
        _submit,
        _said_submitted,
        _submit_arguments,
        then=True,
        founds=True,
    ),
    _of_task(
        "start",
        "start a manual task",
        Start,
        "was started",
        "needed no start: nothing was changed",
        then=True,
    ),
    Command(
        "start-now",
        "put a task first, past its manual gate and a pause of the company",
        StartNow,
        "task",
        lambda given: StartNow(given.task),
        _said_first,
        then=True,
    ),
    Command("stop", "stop a task", Stop, "task", lambda given: Stop(given.task), _said_stopped),
    _of_task("retry", "go on with a failed or stopped task", Retry, "goes on", "goes on already", then=True),
    _of_task(
        "next", "let the next step of a task start that goes step by step", Next, "goes on", "goes on already"
    ),
    Command(
        "approve",
        "answer a gate that a task waits at",
        Approve,
        "task",
        lambda given: Approve(given.task, given.gate, **_only(given, "note")),
        lambda given, _: f"has its gate {plain(given.gate)} approved",
        _approve_arguments,
        then=True,
    ),
    Command(
        "send-back",
        "have the result of a step done again",
        SendBack,
        "task",
        lambda given: SendBack(given.task, given.node, given.feedback),
        lambda given, reply: f"does {plain(given.node)} again, in run {reply.run}",
        _send_back_arguments,
        then=True,
    ),
    Command(
        "rerun",
        "do a task again from the beginning, or from a step on",
        Rerun,
        "task",
        lambda given: Rerun(given.task, **_only(given, "from_node", "payload")),
        lambda _, reply: f"runs again, as run {reply.run}",
        _rerun_arguments,
        then=True,
    ),
    Command(
        "edit",
        "change a task",
        Edit,
        "task",
        _edit,
        lambda _, reply: "was changed" if reply.changed else "is so already: nothing was changed",
        _edit_arguments,
    ),
    _of_task("archive", "put a task away", Archive, "was put away", "was put away before"),
    _of_task(
        "unarchive",
        "bring back a task that was put away",
        Unarchive,
        "was brought back",
        "was not put away",
        then=True,
    ),
    Command(
        "pause",
        "start nothing new in a company",
        Pause,
        "company",
        lambda _: Pause(),
        lambda _, reply: (
            "is paused: what executes finishes, nothing new starts" if reply.changed else "was paused already"
        ),
    ),
    Command(
        "unpause",
        "end the pause of a company",
        Unpause,
        "company",
        lambda _: Unpause(),
        lambda _, reply: "goes on" if reply.changed else "was not paused",
    ),
    Command(
        "limits",
        "set what a company may do at once",
        SetLimits,
        "company",
        lambda given: SetLimits(**_only(given, "runs_max", "weight")),
        _said_limits,
        _limits_arguments,
        founds=True,
    ),
    Command(
        "budget",
        "set what a company may spend in all",
        SetBudget,
        "company",
        lambda given: SetBudget(**_only(given, "limit")),
        _said_budget,
        _budget_arguments,
        founds=True,
    ),
    Command(
        "schedule",
        "have a task submitted again and again, or change when",
        SetSchedule,
        "company",
        _schedule,
        _said_schedule,
        _schedule_arguments,
        founds=True,
    ),
    _of_schedule("pause-schedule", "hold a schedule", PauseSchedule),
    _of_schedule("resume-schedule", "end the pause of a schedule", ResumeSchedule),
    _of_schedule("remove-schedule", "take a schedule away; the tasks that it made stay", RemoveSchedule),
    Command(
        "run-now",
        "submit the task of a schedule now, besides its times",
        RunNow,
        "company",
        lambda given: RunNow(given.name),
        _said_submitted,
        _schedule_name,
        then=True,
    ),
    Command(
        "stop-goal",
        "stop all unsettled tasks of a goal",
        StopGoal,
        "company",
        lambda given: StopGoal(given.goal),
        _said_goal,
        _goal_arguments,
    ),
    Command(
        "unpark",
        "let a company try again that rests after crashes",
        Unpark,
        "company",
        lambda _: Unpark(),
        lambda _, reply: "tries again now" if reply.was_parked else "was not parked",
    ),
    Command(
        "define-graph",
        "give a graph a name, for tasks to use",
        DefineGraph,
        "company",
        _define_graph,
        _said_graph,
        _graph_arguments,
        founds=True,
    ),
)

COMMAND_OF: Final[Mapping[str, Command]] = MappingProxyType(
    {command.kind.__name__: command for command in COMMANDS}
)
"""The command that sends a message: a refusal names messages, and a terminal knows commands."""
