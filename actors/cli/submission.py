"""Submitting a plan, and the moves that the arguments of `run` ask for."""

from __future__ import annotations

from actors import (
    Company,
    IdConflict,
    MoveRefused,
    Retry,
    Runtime,
    Start,
    Submit,
    SubmitMany,
    Submitted,
    TaskUnknown,
    open_reader,
)
from actors.cli.arguments import TaskName
from actors.cli.options import RunOptions
from actors.cli.plan import CompanyPlan, Plan, in_dependency_order
from actors.cli.progress import View
from actors.sentences import listed


class TaskNotThere(Exception):
    """An argument names a task that is neither in the plan nor in the database; nothing was written."""

    def __init__(self, name: TaskName) -> None:
        super().__init__(f"there is no task {name} in the plan or the database")
        self.name = name


async def require_tasks(plan: Plan, options: RunOptions) -> None:
    """Raise `TaskNotThere` for the first argument that names an unknown task."""
    planned = {(company.name, task.id) for company in plan.companies for task in company.tasks}
    unplanned = [
        name for name in (*options.retry, *options.start) if (name.company, name.task) not in planned
    ]
    if not unplanned:
        return
    if not options.db.exists():
        raise TaskNotThere(unplanned[0])
    async with open_reader(options.db) as reader:
        companies = await reader.companies()
        for name in unplanned:
            if name.company not in companies:
                raise TaskNotThere(name)
            try:
                await reader.company(name.company).status(name.task)
            except TaskUnknown:
                raise TaskNotThere(name) from None


async def submit(company: Company, plan: CompanyPlan, view: View) -> None:
    """Limits, graphs, schedules, tasks. A task that is stored with other content stays as it is, and that is said."""
    if plan.limits is not None:
        await company.ask(plan.limits)
    if plan.budget is not None:
        await company.ask(plan.budget)
    for graph in plan.graphs:
        await company.ask(graph)
    for schedule in plan.schedules:
        settings = await company.ask(schedule)
        if settings.changed:
            view.note(f"{plan.name}: schedule {schedule.name} is set")
    if not plan.tasks:
        return
    kept: list[str] = []
    try:
        stored = await company.ask(SubmitMany(plan.tasks))
    except IdConflict:
        stored, kept = await _submit_each(company, plan.tasks)
    new = sum(not one.existing for one in stored)
    if new:
        view.note(f"{plan.name}: {new} {'task' if new == 1 else 'tasks'} added")
    if kept:
        some = listed(tuple(kept[:_NAMED_MAX]), len(kept))
        view.note(
            f"{plan.name}: changed in the plan but kept as stored: {some}. "
            "Give a task another id to run its new definition"
        )


_NAMED_MAX = 10


async def _submit_each(
    company: Company, tasks: tuple[Submit, ...]
) -> tuple[tuple[Submitted, ...], list[str]]:
    """One by one, upstream first, so that one that conflicts holds up no other; also says which did."""
    stored: list[Submitted] = []
    kept: list[str] = []
    for task in in_dependency_order(tasks):
        try:
            stored.append(await company.ask(task))
        except IdConflict as conflict:
            kept.append(conflict.task)
    return tuple(stored), kept


async def move(runtime: Runtime, options: RunOptions, view: View) -> None:
    """What ``--retry`` and ``--start`` ask for. A move that is refused is reported and changes nothing."""
    asked = [(name, Retry(name.task)) for name in options.retry]
    asked_too = [(name, Start(name.task)) for name in options.start]
    for name, message in (*asked, *asked_too):
        try:
            moved = await runtime.company(name.company).ask(message)
        except MoveRefused as refusal:
            view.note(f"{name.company}: {refusal}")
        else:
            if not moved.changed:
                view.note(f"{name}: nothing to do, it is {moved.status}")
