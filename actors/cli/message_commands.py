"""The commands that send a message to the host: one table, from which their arguments, their message and what
they print are derived.

A command is a line of `MESSAGE_COMMANDS`. It says what its address names (a task or a company), which arguments it
takes, which message these become, and which sentence tells the reply. What is the same for all of them (sending,
waiting, refusals, JSON) is in `actors.cli.sending`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, cast

import attrs

import actors
from actors.cli import replies
from actors.cli.arguments import Argument, Arguments, integer, integer_or_none, option, switch
from actors.cli.fields import Table
from actors.cli.plan import COMMAND
from actors.cli.replies import Given, either
from actors.cli.source import read_source
from actors.cli.steps import ONLY_NODE, StepReader
from actors.cli.task_arguments import EDIT, PAYLOAD, SCHEDULE, SET_SCHEDULE, TIMES, TITLE, WORK


def _fields(given: Given) -> dict[str, Any]:
    """The arguments as fields of the message: they have the same names, but for ``--run``."""
    fields = dict(given.values)
    line = fields.pop("run", None)
    if line is not None:
        fields["nodes"] = [actors.Node(ONLY_NODE, COMMAND, payload={"shell": line})]
    return fields


@attrs.frozen
class MessageCommand:
    """``kind``: the message it sends. ``said``: the sentence for the reply, without its subject. ``arguments``: what it
    takes besides the address; an option that is not given is absent. ``make``: the message, where it is not ``kind``
    of the task and the arguments. ``then``: whether to print too where the task stands now. ``founds``: whether the
    company need not exist yet.
    """

    kind: type[actors.Message[Any]]
    help: str
    said: Callable[[Given, Any], str]
    arguments: Arguments = ()
    make: Callable[[Given], actors.Message[Any]] | None = None
    then: bool = False
    founds: bool = False

    @property
    def name(self) -> str:
        """That of the message, as a terminal writes it: ``StartNow`` is ``start-now``, ``SetLimits`` is ``limits``."""
        return re.sub(r"(?<!^)(?=[A-Z])", "-", self.kind.__name__.removeprefix("Set")).lower()

    @property
    def about(self) -> Literal["task", "new task", "company"]:
        """What the address names; the id of a new task may be left out."""
        if self.kind is actors.Submit:
            return "new task"
        first = next((field.name for field in attrs.fields(cast(Any, self.kind))), None)
        return "task" if first == "task" else "company"

    @property
    def required_words(self) -> tuple[str, ...]:
        """The words that it cannot do without, besides the address, as the help calls them."""
        return tuple(word for one in self.arguments if (word := one.required_word) is not None)

    def message(self, given: Given) -> actors.Message[Any]:
        """Raises `InvalidMessage`, `InvalidName`, `InvalidJson`, and `PlanError` for a file that cannot be used."""
        if self.make is not None:
            return self.make(given)
        address = {"task": given.task} if self.about == "task" else {}
        return self.kind(**address, **_fields(given))


# --- messages that are more than their arguments ------------------------------------------------------------


def _submit(given: Given) -> actors.Submit:
    return actors.Submit(id=given.task, **_fields(given))


def _set_schedule(given: Given) -> actors.SetSchedule:
    fields = _fields(given)
    times = {name: fields.pop(name) for name in TIMES if name in fields}
    return actors.SetSchedule(**times, task=actors.Submit(**fields))


def _define_graph(given: Given) -> actors.DefineGraph:
    """The graph of a file. Imports the modules of its functions, as reading a plan does."""
    path: Path = given.values["file"]
    source = read_source(path)
    table = Table(source, (), source.values)
    table.allow(("nodes",))
    steps = StepReader(COMMAND, path.parent.resolve())
    nodes = tuple(steps.node(node) for node in table.tables("nodes"))
    return table.build(actors.DefineGraph, {"name": given.values["graph"], "nodes": nodes}, {})


# --- the table ----------------------------------------------------------------------------------------------

MESSAGE_COMMANDS: Final = (
    MessageCommand(
        actors.Submit,
        "add a task",
        replies.submitted,
        (
            Argument("title", metavar="TITLE", help=TITLE),
            *WORK,
            switch("--fail-fast", "the first step that fails stops the others"),
            option("--key", "KEY", "idempotency key: submitted again under it, it is the same task"),
        ),
        make=_submit,
        then=True,
        founds=True,
    ),
    MessageCommand(
        actors.Start,
        "start a manual task",
        either("was started", "did not need a start: nothing changed"),
        then=True,
    ),
    MessageCommand(
        actors.StartNow,
        "put a task first, even if it is manual or its company is paused",
        replies.put_first,
        then=True,
    ),
    MessageCommand(actors.Stop, "stop a task", replies.stopped),
    MessageCommand(
        actors.Retry,
        "continue a failed or stopped task",
        either("continues", "is continuing already"),
        then=True,
    ),
    MessageCommand(
        actors.Next,
        "let the next step of a task in step mode start",
        either("continues", "is continuing already"),
    ),
    MessageCommand(
        actors.Approve,
        "approve a gate that a task waits at",
        replies.approved,
        (
            Argument("gate", metavar="GATE", help="the gate to approve"),
            option("--note", "TEXT", "a note for the steps after the gate"),
        ),
        then=True,
    ),
    MessageCommand(
        actors.SendBack,
        "have the result of a step done again",
        replies.sent_back,
        (
            Argument("node", metavar="NODE", help="the step whose result is sent back"),
            Argument("feedback", metavar="FEEDBACK", help="what should be different"),
        ),
        then=True,
    ),
    MessageCommand(
        actors.Rerun,
        "run a task again from the beginning, or from a step on",
        replies.rerun,
        (
            option(
                "--from", "NODE", "begin with this step; keep the results it has no part in", dest="from_node"
            ),
            PAYLOAD,
        ),
        then=True,
    ),
    MessageCommand(
        actors.Edit, "change a task", either("was changed", "is like this already: nothing changed"), EDIT
    ),
    MessageCommand(actors.Archive, "archive a task", either("was archived", "was archived before")),
    MessageCommand(
        actors.Unarchive,
        "bring back an archived task",
        either("was brought back", "was not archived"),
        then=True,
    ),
    MessageCommand(
        actors.Pause,
        "start nothing new in a company",
        either("is paused: running attempts finish, nothing new starts", "was paused already"),
    ),
    MessageCommand(actors.Unpause, "end the pause of a company", either("continues", "was not paused")),
    MessageCommand(
        actors.SetLimits,
        "set how much a company may do at once",
        replies.limits,
        (
            option(
                "--runs-max", "N", "how many of its tasks may run at once; 0: nothing starts", type=integer
            ),
            option("--weight", "N", "how many execution slots in a row it gets in each round", type=integer),
        ),
        founds=True,
    ),
    MessageCommand(
        actors.SetBudget,
        "set how much a company may spend in all",
        replies.budget,
        (
            Argument(
                "limit",
                metavar="N",
                type=integer_or_none,
                help="in units of the host; 0: nothing starts; none: no limit",
            ),
        ),
        founds=True,
    ),
    MessageCommand(
        actors.SetSchedule,
        "submit a task again and again, or change when",
        replies.schedule,
        SET_SCHEDULE,
        make=_set_schedule,
        founds=True,
    ),
    MessageCommand(actors.PauseSchedule, "pause a schedule", replies.schedule, (SCHEDULE,)),
    MessageCommand(actors.ResumeSchedule, "end the pause of a schedule", replies.schedule, (SCHEDULE,)),
    MessageCommand(
        actors.RemoveSchedule,
        "remove a schedule; the tasks that it submitted stay",
        replies.schedule,
        (SCHEDULE,),
    ),
    MessageCommand(
        actors.RunNow,
        "submit the task of a schedule now, in addition to its times",
        replies.submitted,
        (SCHEDULE,),
        then=True,
    ),
    MessageCommand(
        actors.StopGoal,
        "stop all unsettled tasks of a goal",
        replies.goal,
        (Argument("goal", metavar="GOAL", help="the goal of the tasks"),),
    ),
    MessageCommand(actors.Unpark, "let a company that rests after crashes try again", replies.unparked),
    MessageCommand(
        actors.DefineGraph,
        "define a named graph, for tasks to use",
        replies.graph,
        (
            Argument("graph", metavar="NAME", help="the name of the graph"),
            Argument(
                "file",
                metavar="FILE.toml",
                type=Path,
                help="its steps: [[nodes]], written like those of a plan's graph",
            ),
        ),
        make=_define_graph,
        founds=True,
    ),
)

COMMAND_OF: Final[Mapping[str, MessageCommand]] = MappingProxyType(
    {command.kind.__name__: command for command in MESSAGE_COMMANDS}
)
"""The command that sends a message: a refusal names messages, and a terminal knows commands."""
