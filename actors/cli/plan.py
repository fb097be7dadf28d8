"""The plan: a TOML file that says what companies have to do. It is read whole and checked before anything
is written.

::

[companies.acme]                     # one table for each company
runs_max = 2                         # how many of its tasks may be active at once; left out: as it is, at first 1
weight = 1                           # execution slots in a row that it gets in each round; left out: as it is
budget = 100000                      # what it may spend in all, in units of your own; false: no limit; left out: as is

[[companies.acme.tasks]]             # a task of one step
id = "collect"                       # required; unique in the company
run = "curl -fsS https://… > sales.csv"

[[companies.acme.tasks]]             # a task of several steps, which form a graph
id = "report"
title = "Weekly report"              # default: the id
depends_on = ["collect"]             # ids in this company that must be completed first
priority = 1                         # lower goes first; default 2

[[companies.acme.tasks.nodes]]
name = "table"
argv = ["{python}", "table.py", "sales.csv"]
timeout_s = 60

[[companies.acme.tasks.nodes]]
name = "text"
after = ["table"]                    # the nodes whose results it uses
call = "report:write_text"           # a function of a module beside the plan, or installed
tries_max = 5
retry = { base_s = 2, factor = 2, max_s = 60 }

[[companies.acme.tasks.nodes]]
name = "approve"
after = ["text"]
gate = true                          # waits until a person approves it; meanwhile other tasks go on

**A task** has ``id``, and at will ``title``, ``priority``, ``depends_on``, ``mode`` (``"auto"``;
``"manual"``: waits for ``--start``; ``"step"``: a person lets each node start), ``not_before`` (a date and time
with an offset), ``goal``, ``tries_max`` (tries of a node, the first included; default 3), ``send_backs_max``
(how often the result of a node may be sent back; default 10), ``budget`` (what all its runs may spend), ``fail_fast``,
``payload``. What it does is one of
``run``, ``argv``, ``call``, ``nodes`` or ``graph``; with none of them it is a milestone, completed when the tasks
it depends on are.

**A step** (a node, or a task with one step) is one of

- ``run``: a line for ``/bin/sh -c``;
- ``argv``: a program and its arguments, no shell. The word ``{python}`` stands for the interpreter that
runs the plan;
- ``call``: ``"module:function"``, called with the attempt's context; async, or plain in a worker thread.
The plan's folder is on ``sys.path``. It is imported when the plan is read.

and can have ``timeout_s`` (for one attempt), ``stall_s`` (how long an attempt may say nothing; a command
speaks by its output; default 3600, ``false`` for no limit), ``retry`` (waits between tries: ``base_s``,
``factor``, ``max_s``), ``estimate`` (what an attempt is expected to spend, in the units of the budgets), ``payload``
(any value), and if it is a command ``cwd`` (relative to the plan's folder,
which is the default) and ``env`` (added to the environment). Given on a task with ``nodes``, these
are the defaults of its nodes; ``env`` is merged. What a command finds in its environment and what becomes
its result is said in `actors.commands`.

**A schedule**, ``[[companies.acme.schedules]]``, has a ``name``, when it fires, and what it then submits, written as
in a task without ``id``, ``depends_on`` and ``not_before`` (``title`` defaults to the name). It fires at the times of
``cron`` (five fields, on the clock of ``zone``, an IANA name; default ``"UTC"``) or each ``every`` seconds. ``overlap``
is ``"skip"`` (default: no fire while a task of it is not settled) or ``"queue"``; ``misfire`` is ``"latest"`` (default:
after an absence it fires once) or ``"skip"``; ``jitter_s`` spreads starts. The plan's word counts: a schedule that it
has otherwise than it is stored is changed, and fires nothing by that. One that it no longer has stays.

**A graph** that several tasks use is written once, as ``[[companies.acme.graphs.NAME.nodes]]``, and named
with ``graph = "NAME"``.

A task is stored once, under its id. If the plan says something else about it later, the stored one stays,
and `run` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import attrs

from actors import DefineGraph, InvalidName, SetBudget, SetLimits, SetSchedule, StopGoal, Submit
from actors.cli.fields import Table, did_you_mean
from actors.cli.source import PlanError, read_source
from actors.cli.steps import STEP_KEYS, StepReader
from actors.commands import commands

__all__ = ["COMMAND", "CompanyPlan", "Plan", "PlanError", "in_dependency_order", "read_plan"]

COMMAND: Final = "command"
"""The name of the handler of command nodes. Functions have a colon in theirs, so they cannot be mistaken
for it."""

_COMPANY_KEYS: Final = ("runs_max", "weight", "graphs", "tasks", "schedules", "budget")
_PLAIN_KEYS: Final = (
    "id",
    "title",
    "priority",
    "depends_on",
    "mode",
    "not_before",
    "goal",
    "tries_max",
    "send_backs_max",
    "budget",
    "fail_fast",
    "payload",
)
_STEP_SETTINGS: Final = ("cwd", "env", "timeout_s", "stall_s", "retry", "estimate")
_DOES_KEYS: Final = (*STEP_KEYS, "nodes", "graph")
_TASK_KEYS: Final = (*_PLAIN_KEYS, *_DOES_KEYS, *_STEP_SETTINGS)
_WHEN_KEYS: Final = ("name", "cron", "every", "zone", "overlap", "misfire", "jitter_s")
_TEMPLATE_KEYS: Final = tuple(key for key in _PLAIN_KEYS if key not in ("id", "depends_on", "not_before"))
_SCHEDULE_KEYS: Final = (*_WHEN_KEYS, *_TEMPLATE_KEYS, *_DOES_KEYS, *_STEP_SETTINGS)


@attrs.frozen
class CompanyPlan:
    """What a plan says about one company. ``limits``, ``budget``: ``None`` when they are to stay as they are."""

    name: str
    limits: SetLimits | None
    graphs: tuple[DefineGraph, ...]
    tasks: tuple[Submit, ...]
    schedules: tuple[SetSchedule, ...] = ()
    budget: SetBudget | None = None


@attrs.frozen
class Plan:
    """A plan that was read and found good. ``handlers`` is what `open_runtime` needs to execute it."""

    path: Path
    companies: tuple[CompanyPlan, ...]
    handlers: Mapping[str, Callable[..., Any]]


def read_plan(path: Path, *, folder: Path | None = None) -> Plan:
    """Read a plan; raises `PlanError`. Imports the modules of its functions, and writes nothing.

    ``folder`` is where its commands run and its modules are looked for, by default the folder of the plan.
    """
    source = read_source(path)
    steps = StepReader(COMMAND, (path.parent if folder is None else folder).resolve())
    root = Table(source, (), source.values)
    root.allow(("companies",))
    companies = tuple(_company(name, table, steps) for name, table in root.named_tables("companies"))
    if not companies:
        raise PlanError(path, "a plan needs at least one company: a table [companies.NAME]")
    handlers = {COMMAND: commands(steps.folder), **steps.calls}
    return Plan(path, companies, MappingProxyType(handlers))


def _company(name: str, table: Table, steps: StepReader) -> CompanyPlan:
    _check_company_name(name, table)
    table.allow(_COMPANY_KEYS)
    limits = _limits(table)
    graphs = tuple(_graph(graph, inner, steps) for graph, inner in table.named_tables("graphs"))
    tables = table.tables("tasks")
    names = [graph.name for graph in graphs]
    tasks = tuple(_task(inner, names, steps) for inner in tables)
    _check_tasks(tasks, tables)
    return CompanyPlan(name, limits, graphs, tasks, _schedules(table, names, steps), _budget(table))


def _limits(table: Table) -> SetLimits | None:
    given = {key: table.get(key) for key in ("runs_max", "weight") if table.has(key)}
    return table.build(SetLimits, given, {}) if given else None


def _budget(table: Table) -> SetBudget | None:
    if not table.has("budget"):
        return None
    limit = None if table.get("budget") is False else table.get("budget")
    return table.build(SetBudget, {"limit": limit}, {"limit": "budget"})


def _check_company_name(name: str, table: Table) -> None:
    try:
        StopGoal(goal=name)  # all names obey one rule
    except InvalidName as error:
        table.fail(str(error).replace("a goal's name", "a company's name", 1))


def _graph(name: str, table: Table, steps: StepReader) -> DefineGraph:
    table.allow(("nodes",))
    nodes = tuple(steps.node(node) for node in table.tables("nodes"))
    return table.build(DefineGraph, {"name": name, "nodes": nodes}, {})


def _task(table: Table, graphs: Sequence[str], steps: StepReader) -> Submit:
    table.allow(_TASK_KEYS)
    name = table.text("id")
    if name is None:
        table.fail("a task needs an id")
    return _submit(
        table, name, _PLAIN_KEYS, graphs, steps, {"title": "title" if table.has("title") else "id"}
    )


def _schedules(table: Table, graphs: Sequence[str], steps: StepReader) -> tuple[SetSchedule, ...]:
    tables = table.tables("schedules")
    schedules = tuple(_schedule(inner, graphs, steps) for inner in tables)
    names: set[str] = set()
    for schedule, inner in zip(schedules, tables, strict=True):
        if schedule.name in names:
            inner.fail(f"this company has two schedules {schedule.name!r}", "name")
        names.add(schedule.name)
    return schedules


def _schedule(table: Table, graphs: Sequence[str], steps: StepReader) -> SetSchedule:
    table.allow(_SCHEDULE_KEYS)
    name = table.text("name")
    if name is None:
        table.fail("a schedule needs a name")
    title = {"title": "title" if table.has("title") else "name"}
    task = _submit(table, name, _TEMPLATE_KEYS, graphs, steps, title)
    arguments: dict[str, Any] = {key: table.get(key) for key in table.given(_WHEN_KEYS)}

    def beside(key: str) -> dict[str, Any]:
        when = {"cron": {}, "every": {}, "zone": {"cron": "* * * * *"}}.get(key, {"every": 60})
        return {"task": task, **when}

    return table.build(SetSchedule, arguments | {"task": task}, {}, beside)


def _submit(
    table: Table,
    title: str,
    plain: Sequence[str],
    graphs: Sequence[str],
    steps: StepReader,
    keys: Mapping[str, str],
) -> Submit:
    arguments: dict[str, Any] = {"title": title} | {key: table.get(key) for key in table.given(plain)}
    does = table.given(_DOES_KEYS)
    if len(does) > 1:
        table.fail(f"a task has one of {', '.join(_DOES_KEYS)}, not {' and '.join(does)}", does[1])
    settings = table.given(_STEP_SETTINGS)
    if settings and does in ([], ["graph"]):
        table.fail("belongs to a step, and this task has none of its own", settings[0])
    if does == ["graph"]:
        arguments["graph"] = _known_graph(table, graphs)
    elif does == ["nodes"]:
        arguments["nodes"] = tuple(steps.node(node, table) for node in table.tables("nodes"))
    elif does:
        arguments["nodes"] = (steps.only_node(table),)
    return table.build(Submit, arguments, keys)


def _known_graph(table: Table, graphs: Sequence[str]) -> str:
    graph = table.text("graph") or ""
    if graph not in graphs:
        table.fail(f"this company has no graph {graph!r}{did_you_mean(graph, graphs)}", "graph")
    return graph


def _check_tasks(tasks: Sequence[Submit], tables: Sequence[Table]) -> None:
    """Ids are unique, dependencies are known, and nothing waits for itself."""
    at: dict[str, Table] = {}
    for task, table in zip(tasks, tables, strict=True):
        name = task.id or ""
        if name in at:
            first = table.source.line((*at[name].place, "id"))
            table.fail(
                f"this company has two tasks {name!r}" + (f", the first on line {first}" if first else ""),
                "id",
            )
        at[name] = table
    for task, table in zip(tasks, tables, strict=True):
        for upstream in task.depends_on:
            if upstream not in at:
                hint = did_you_mean(upstream, list(at))
                table.fail(f"this company has no task {upstream!r}{hint}", "depends_on")
    try:
        in_dependency_order(tasks)
    except CycleError as error:
        cycle: list[str] = error.args[1][::-1]  # it leads from an upstream task to those that need it
        at[cycle[0]].fail(f"dependencies form a cycle: {' → '.join(_shortened(cycle))}", "depends_on")


def in_dependency_order(tasks: Sequence[Submit]) -> list[Submit]:
    """The tasks, each after those it depends on and otherwise as they stand. Raises `CycleError`."""
    by_id = {task.id or "": task for task in tasks}
    sorter = TopologicalSorter(dict.fromkeys(by_id, ()))
    for name, task in by_id.items():
        sorter.add(name, *task.depends_on)
    return [by_id[name] for name in sorter.static_order()]


_CYCLE_SHOWN: Final = 12


def _shortened(path: list[str]) -> list[str]:
    return path if len(path) <= _CYCLE_SHOWN else [*path[:6], "…", *path[-5:]]
