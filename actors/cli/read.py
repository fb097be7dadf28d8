"""The commands that only read: they work from any process, whether or not another one runs the database."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import trio

from actors import (
    BudgetView,
    Explanation,
    LimitsView,
    NodeView,
    NotADatabase,
    Reader,
    RunStatus,
    TaskStatus,
    TaskUnknown,
    WorkState,
    describe_reason,
    open_inbox,
    open_reader,
)
from actors.cli.advice import advice
from actors.cli.arguments import TaskName
from actors.cli.events import event_json, event_line, what_happened
from actors.cli.letters import letter_facts, letter_line, waiting_submit
from actors.cli.options import ReadOptions
from actors.cli.outcome import name_of, tally, why, word
from actors.cli.output import Output, complain, present_ms
from actors.cli.replies import may_run, may_spend
from actors.sentences import clock, duration, moment, relative

EXIT_READ: Final = 0
EXIT_NO_RESULT: Final = 1
"""`result` of a task that is not completed: what is shown is not all of it."""
LETTERS_SHOWN: Final = 50
"""Of those that wait and of those that were answered, each."""
LOOK_PAUSE_S: Final = 0.25
STATUS_TASKS_SHOWN: Final = 200
"""Of each company in `status`; `queue` and `log` have the rest."""


class CompanyNotThere(Exception):
    """The database has no company of this name."""

    def __init__(self, company: str, known: Iterable[str]) -> None:
        names = ", ".join(sorted(known)[:10])
        super().__init__(f"there is no company {company}" + (f"; there are: {names}" if names else ""))


async def read(options: ReadOptions, out: Output) -> int:
    """Carry out one reading command and return the exit status.

    ``log --follow`` may be started before the first run: it waits for a database and a company that are not there
    yet, and says so on standard error. Raises `CompanyNotThere`, `TaskUnknown`, `StorageError`.
    """
    if options.follow:
        await _until_there(options.db)
    async with open_reader(options.db) as reader:
        try:
            companies = [] if options.what == "inbox" else await _companies(reader, options)
            return await _COMMANDS[options.what](reader, options, companies, out)
        except (CompanyNotThere, TaskUnknown):
            if options.what == "explain" and await _explain_waiting(_task(options), options.db, out):
                return EXIT_READ
            raise


async def require_company(reader: Reader, company: str, more: Iterable[str] = ()) -> None:
    """Raise `CompanyNotThere` for a company that neither the database nor ``more`` has."""
    known = {*await reader.companies(), *more}
    if company not in known:
        raise CompanyNotThere(company, known)


async def _until_there(db: Path) -> None:
    waits = False
    while True:
        try:
            async with open_reader(db):
                return
        except NotADatabase as error:
            if not error.absent or not db.parent.is_dir():
                raise
        if not waits:
            complain(f"there is no database {db} yet: waiting for the first run to create it")
            waits = True
        await trio.sleep(LOOK_PAUSE_S)


async def _companies(reader: Reader, options: ReadOptions) -> list[str]:
    """The companies to show. One that is not there yet may be followed."""
    wanted = options.task.company if options.task is not None else options.company
    if wanted is None:
        return list(await reader.companies())
    try:
        await require_company(reader, wanted)
    except CompanyNotThere as error:
        if not options.follow:
            raise
        complain(f"{error}. Waiting for it")
    return [wanted]


def _task(options: ReadOptions) -> TaskName:
    assert options.task is not None, "the parser asks for it"
    return options.task


# --- all tasks ----------------------------------------------------------------------------------------------


async def _status(reader: Reader, _options: ReadOptions, companies: list[str], out: Output) -> int:
    owner = reader.owner
    if owner is None:
        out.line("no process runs this database")
    else:
        out.line(f"process {owner.pid} has run this database since {owner.started_at}")
    now_ms = present_ms()
    for name in companies:
        company = reader.company(name)
        statuses = await company.tasks()
        out.line()
        out.line(f"{name}: {tally(statuses).sentence()}")
        out.line(f"  {_allowed(await company.limits(), await company.budget(), now_ms)}")
        out.lines(f"  {_titled(status)} {why(status, now_ms)}" for status in statuses[:STATUS_TASKS_SHOWN])
        if len(statuses) > STATUS_TASKS_SHOWN:
            out.line(f"  … and {len(statuses) - STATUS_TASKS_SHOWN} more")
    return EXIT_READ


def _allowed(limits: LimitsView, budget: BudgetView, now_ms: int) -> str:
    """What the company may do, as one line."""
    parts = [f"{may_run(limits.runs_max)} (weight {limits.weight})"]
    if budget.limit is not None or budget.spent or budget.reserved:
        parts.append(f"{may_spend(budget)} ({budget.spent:,} spent, {budget.reserved:,} reserved)")
    if limits.paused_ms is not None:
        parts.append(f"paused since {moment(limits.paused_ms, now_ms)}")
    return "; ".join(parts)


def _titled(status: TaskStatus) -> str:
    """The id, and the title where it says more."""
    return status.id if status.title in ("", status.id) else f'{status.id} "{status.title}"'


async def _queue(reader: Reader, _options: ReadOptions, companies: list[str], out: Output) -> int:
    now_ms = present_ms()
    for company in companies:
        for status in await reader.company(company).queue():
            place = str(status.position) if status.position else "-"
            said = f"{name_of(status)} {why(status, now_ms)}"
            out.line(f"{place:>5}  {word(status.state):<9}  P{status.priority}  {said}")
    return EXIT_READ


# --- one task -----------------------------------------------------------------------------------------------


async def _explain(reader: Reader, options: ReadOptions, _companies: list[str], out: Output) -> int:
    name = _task(options)
    company = reader.company(name.company)
    status = await company.status(name.task)
    explanation = await company.explain(name.task)
    now_ms = present_ms()
    out.lines(_gate_lines(status, explanation, options.db, now_ms, host=reader.owner is not None))
    out.line(f'"{status.title}", run {status.run}, submitted at {moment(status.created_ms, now_ms)}')
    for node in status.nodes:
        out.lines(_node_lines(node, now_ms))
    return EXIT_READ


def _gate_lines(
    status: TaskStatus, explanation: Explanation, db: Path, now_ms: int, *, host: bool
) -> Iterator[str]:
    """A sentence for each closed gate, and what can be done about it."""
    for place, gate in enumerate(explanation.gates or status.reasons):
        subject = "it" if place == 0 else "It also"
        said = describe_reason(gate, subject=subject, company=status.company, now_ms=now_ms)
        yield f"{_begun(status, said) if place == 0 else said}."
        step = advice(gate, status.company, status.id, db, host=host)
        if step is not None:
            yield f"  {step}"


_STATES_SAID: Final = frozenset({WorkState.HELD, WorkState.BLOCKED, WorkState.QUEUED})
"""States that say something which their first reason does not."""


def _begun(status: TaskStatus, said: str) -> str:
    """The first sentence, which has the task as its subject."""
    if status.state in _STATES_SAID:
        return f"{name_of(status)} is {status.state}: {said}"
    return f"{name_of(status)} {said.removeprefix('it ')}"


def _node_lines(node: NodeView, now_ms: int) -> Iterator[str]:
    again = "" if node.not_before_ms is None else f", again {relative(node.not_before_ms, now_ms)}"
    tries = f", {node.tries} failed {'try' if node.tries == 1 else 'tries'}" if node.tries else ""
    waits = "" if node.reached_ms is None else f", has waited for a person since {clock(node.reached_ms)}"
    kind = "gate" if node.gate else "node"
    yield f"  {kind} {node.name}: {node.status}{tries}{again}{waits}"
    if node.feedback is not None:
        yield "    was sent back:"
    yield from (f"      {line}" for line in (node.feedback or "").splitlines())
    yield from (f"    {line}" for line in (node.error or "").splitlines())


async def _explain_waiting(name: TaskName, db: Path, out: Output) -> bool:
    """Explain a task that the database does not have yet, but the inbox has; says whether it has."""
    async with open_inbox(db) as inbox:
        letter = await waiting_submit(inbox, name)
        host = inbox.owner is not None
    if letter is None:
        return False
    sent = moment(letter.sent_ms, present_ms())
    who = (
        "the process that runs this database has not read it yet" if host else "no process runs this database"
    )
    out.line(f"{name} is not submitted yet: message {letter.id}, sent at {sent}, waits in the inbox; {who}.")
    if not host:
        out.line("  The next process that runs it carries the message out.")
    return True


async def _result(reader: Reader, options: ReadOptions, _companies: list[str], out: Output) -> int:
    name = _task(options)
    company = reader.company(name.company)
    status = await company.status(name.task)
    found = await company.result(name.task)
    if options.json:
        about = {"company": name.company, "task": name.task, "run": status.run, "state": status.state.value}
        out.json({**about, "result": dict(found)})
    else:
        out.line(f"{name_of(status)} {why(status, present_ms())}")
        for node, value in found.items():
            out.line(f"{node}:")
            text = json.dumps(value, ensure_ascii=False, indent=2)
            out.lines(f"  {line}" for line in text.splitlines())
    return EXIT_READ if status.run_status is RunStatus.COMPLETED else EXIT_NO_RESULT


async def _timeline(reader: Reader, options: ReadOptions, _companies: list[str], out: Output) -> int:
    name = _task(options)
    events = await reader.company(name.company).timeline(name.task)
    for event in events:
        passed = f"+{duration(event.at_ms - events[0].at_ms)}"
        out.line(f"{event.position:>6}  {clock(event.at_ms)}  {passed:>9}  {what_happened(event)}")
    return EXIT_READ


# --- the log and the inbox ----------------------------------------------------------------------------------


async def _log(reader: Reader, options: ReadOptions, _companies: list[str], out: Output) -> int:
    async for event in reader.events(company=options.company, after=options.after, follow=options.follow):
        if options.json:
            out.json(event_json(event))
        else:
            out.line(event_line(event))
        if out.broken:
            break
    return EXIT_READ


async def _inbox(_reader: Reader, options: ReadOptions, _companies: list[str], out: Output) -> int:
    """What waits, in its order, and the last answers, the newest at the end."""
    async with open_inbox(options.db) as inbox:
        waiting = await inbox.waiting(company=options.company, limit=LETTERS_SHOWN)
        answered = await inbox.answered(company=options.company, limit=LETTERS_SHOWN)
        host = inbox.owner is not None
    now_ms = present_ms()
    for letter in (*reversed(answered), *waiting):
        if options.json:
            out.json(letter_facts(letter))
        else:
            out.line(letter_line(letter, now_ms))
    if waiting and not host and not options.json:
        out.line("no process runs this database: the next one carries out what waits")
    return EXIT_READ


_Read = Callable[[Reader, ReadOptions, list[str], Output], Awaitable[int]]
_COMMANDS: Final[Mapping[str, _Read]] = MappingProxyType(
    {
        "status": _status,
        "queue": _queue,
        "explain": _explain,
        "timeline": _timeline,
        "result": _result,
        "log": _log,
        "inbox": _inbox,
    }
)
