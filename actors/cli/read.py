"""The commands that only read: they work from any process, whether the database is run by another one or by
none."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
import trio

from actors import (
    Letter,
    NotADatabase,
    Reader,
    RunStatus,
    TaskStatus,
    TurnkeeperError,
    WorkState,
    describe_reason,
    open_inbox,
    open_reader,
)
from actors.cli.advice import advice
from actors.cli.events import closing, event_json, event_line, what_happened
from actors.cli.output import Output, complain
from actors.cli.parser import ReadOptions, TaskName
from actors.cli.standing import name_of, tally, why, word
from actors.cli.steering import COMMAND_OF
from actors.sentences import clock, duration, moment, plain, relative, shortened

EXIT_READ = 0
EXIT_NO_RESULT = 1
"""`result` of a task that is not completed: what is shown is not all of it."""
LETTERS_SHOWN = 50
"""Of those that wait and of those that were answered, each."""
LOOK_PAUSE_S = 0.25
STATUS_TASKS_SHOWN = 200
"""Of each company in `status`; `queue` and `log` have the rest."""


class CompanyNotThere(Exception):
    """The database has no company of this name."""

    def __init__(self, company: str, known: Iterable[str]) -> None:
        names = ", ".join(plain(name) for name in sorted(known)[:10])
        super().__init__(f"there is no company {plain(company)}" + (f"; there are: {names}" if names else ""))


async def read(options: ReadOptions, out: Output) -> int:
    """Carry out one reading command and return the exit status.

    Who follows may come before the first run: a database and a company that are not there yet are waited for,
    and standard error says so. Raises `CompanyNotThere`, `TaskUnknown`, `StorageError`.
    """
    if options.follow:
        await _until_there(options.db)
    async with open_reader(options.db) as reader:
        return await _COMMANDS[options.what](reader, options, out)


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
            complain(f"there is no database {plain(str(db))} yet: waits for the first run to make it")
            waits = True
        await trio.sleep(LOOK_PAUSE_S)


async def _companies(reader: Reader, options: ReadOptions) -> list[str]:
    wanted = options.task.company if options.task is not None else options.company
    if wanted is None:
        return list(await reader.companies())
    await require_company(reader, wanted)
    return [wanted]


def present_ms() -> int:
    return time.time_ns() // 1_000_000


async def _status(reader: Reader, options: ReadOptions, out: Output) -> int:
    companies = await _companies(reader, options)
    owner = reader.owner
    if owner is None:
        out.line("no process runs this database")
    else:
        out.line(plain(f"process {owner.pid} runs this database since {owner.started_at}"))
    now_ms = present_ms()
    for company in companies:
        statuses = await reader.company(company).tasks()
        one = tally(statuses)
        rest = f", {one.words()}" if one.words() else ""
        out.line()
        out.line(f"{plain(company)}: {one.completed} of {one.total} completed{rest}")
        for status in statuses[:STATUS_TASKS_SHOWN]:
            out.line(f"  {plain(status.id)} {why(status, now_ms)}")
        if len(statuses) > STATUS_TASKS_SHOWN:
            out.line(f"  … and {len(statuses) - STATUS_TASKS_SHOWN} more")
    return EXIT_READ


async def _queue(reader: Reader, options: ReadOptions, out: Output) -> int:
    now_ms = present_ms()
    for company in await _companies(reader, options):
        for status in await reader.company(company).queue():
            place = str(status.position) if status.position else "-"
            out.line(
                f"{place:>5}  {word(status.state):<9}  P{status.priority}  {name_of(status)} {why(status, now_ms)}"
            )
    return EXIT_READ


async def _explain(reader: Reader, options: ReadOptions, out: Output) -> int:
    name = _task(options)
    await _companies(reader, options)
    company = reader.company(name.company)
    status = await company.status(name.task)
    explanation = await company.explain(name.task)
    now_ms = present_ms()
    gates = explanation.gates or status.reasons
    for place, gate in enumerate(gates):
        said = describe_reason(
            gate, subject="it" if place == 0 else "it also", company=name.company, now_ms=now_ms
        )
        out.line(f"{_begun(status, said) if place == 0 else said[0].upper() + said[1:]}.")
        step = advice(gate, name.company, name.task, options.db)
        if step is not None:
            out.line(f"  {step}")
    submitted = moment(status.created_ms, now_ms)
    out.line(f'"{plain(status.title)}", run {status.run}, submitted at {submitted}')
    for node in status.nodes:
        again = "" if node.not_before_ms is None else f", again {relative(node.not_before_ms, now_ms)}"
        tries = f", {node.tries} failed {'try' if node.tries == 1 else 'tries'}" if node.tries else ""
        waits = "" if node.reached_ms is None else f", waits for a person since {clock(node.reached_ms)}"
        kind = "gate" if node.gate else "node"
        out.line(f"  {kind} {plain(node.name)}: {node.status}{tries}{again}{waits}")
        if node.feedback is not None:
            out.line("    was sent back:")
        for line in (node.feedback or "").splitlines():
            out.line(f"      {plain(line)}")
        for line in (node.error or "").splitlines():
            out.line(f"    {plain(line)}")
    return EXIT_READ


_STATES_SAID = frozenset({WorkState.HELD, WorkState.BLOCKED, WorkState.QUEUED})
"""States that say something which their first reason does not."""


def _begun(status: TaskStatus, said: str) -> str:
    """The first sentence, which has the task as its subject."""
    if status.state in _STATES_SAID:
        return f"{name_of(status)} is {status.state}: {said}"
    return f"{name_of(status)} {said.removeprefix('it ')}"


async def _result(reader: Reader, options: ReadOptions, out: Output) -> int:
    name = _task(options)
    await _companies(reader, options)
    company = reader.company(name.company)
    status = await company.status(name.task)
    found = await company.result(name.task)
    completed = status.run_status is RunStatus.COMPLETED
    if options.json:
        told = {"company": name.company, "task": name.task, "run": status.run, "state": status.state.value}
        out.json({**told, "result": dict(found)})
        return EXIT_READ if completed else EXIT_NO_RESULT
    out.line(f"{name_of(status)} {why(status, present_ms())}")
    for node, value in found.items():
        out.line(f"{plain(node)}:")
        for line in json.dumps(value, ensure_ascii=False, indent=2).splitlines():
            out.line(f"  {plain(line)}")
    return EXIT_READ if completed else EXIT_NO_RESULT


async def _timeline(reader: Reader, options: ReadOptions, out: Output) -> int:
    name = _task(options)
    await _companies(reader, options)
    began_ms: int | None = None
    for event in await reader.company(name.company).timeline(name.task):
        began_ms = event.at_ms if began_ms is None else began_ms
        passed = f"+{duration(event.at_ms - began_ms)}"
        out.line(f"{event.position:>6}  {clock(event.at_ms)}  {passed:>9}  {what_happened(event)}")
    return EXIT_READ


async def _log(reader: Reader, options: ReadOptions, out: Output) -> int:
    try:
        await _companies(reader, options)
    except CompanyNotThere as error:
        if not options.follow:
            raise
        complain(f"{error}. Waits for it")
    found = reader.events(company=options.company, after=options.after, follow=options.follow)
    async with closing(found) as events:
        async for event in events:
            if options.json:
                out.json(event_json(event))
            else:
                out.line(event_line(event))
            if out.broken:
                break
    return EXIT_READ


def _task(options: ReadOptions) -> TaskName:
    assert options.task is not None, "the parser asks for it"
    return options.task


async def _inbox(_reader: Reader, options: ReadOptions, out: Output) -> int:
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
            out.line(_letter_line(letter, now_ms))
    if waiting and not host and not options.json:
        out.line("no process runs this database: what waits is done by the next one")
    return EXIT_READ


def _letter_line(letter: Letter, now_ms: int) -> str:
    outcome = "waits" if letter.waiting else "done" if letter.error is None else "refused"
    said = f"{outcome:<7}  {plain(letter.company)}: {_letter_says(letter)}, sent at {moment(letter.sent_ms, now_ms)}"
    because = f": {shortened(str(letter.error))}" if letter.error is not None else ""
    return f"{said}, message {plain(letter.id)}{because}"


def _letter_says(letter: Letter) -> str:
    """The message in a few words: its command and what it is about."""
    if letter.message is None:
        return f"what is no message ({shortened(letter.text, 40)})"
    kind = type(letter.message).__name__
    command = COMMAND_OF.get(kind)
    about = next(
        (str(found) for name in _ABOUT if (found := getattr(letter.message, name, None)) is not None), ""
    )
    return f"{kind if command is None else command.name} {shortened(about, 60)}".rstrip()


_ABOUT = ("task", "id", "title", "goal", "name")
"""The field that says what a message is about: the first of these that it has."""


def letter_facts(letter: Letter) -> dict[str, Any]:
    """A message and its answer for programs. A message that nobody can read is ``null``."""
    return {
        "company": letter.company,
        "id": letter.id,
        "message": None if letter.message is None else json.loads(letter.text)["message"],
        "sent_ms": letter.sent_ms,
        "answered_ms": letter.answered_ms,
        "reply": _reply_facts(letter.reply),
        "error": None if letter.error is None else _error_facts(letter.error),
    }


def _reply_facts(reply: object) -> Any:
    if isinstance(reply, tuple):
        return [_reply_facts(one) for one in reply]
    return attrs.asdict(reply) if attrs.has(type(reply)) else reply  # type: ignore[arg-type]


def _error_facts(error: TurnkeeperError) -> dict[str, Any]:
    """Its class, its text, and the messages that would do instead."""
    return {
        "kind": type(error).__name__,
        "text": str(error),
        "advice": list(getattr(error, "advice", ())),
    }


_COMMANDS = {
    "status": _status,
    "queue": _queue,
    "explain": _explain,
    "timeline": _timeline,
    "result": _result,
    "log": _log,
    "inbox": _inbox,
}
