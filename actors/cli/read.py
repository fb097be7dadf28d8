"""The commands that only read: they work from any process, whether the database is run by another one or by
none."""

from __future__ import annotations

import time
from collections.abc import Iterable

from actors import Reader, open_reader
from actors.cli.events import closing, event_json, event_line, what_happened
from actors.cli.output import Output
from actors.cli.parser import ReadOptions, TaskName
from actors.cli.standing import name_of, tally, why, word
from actors.cli.text import clock, duration, moment, plain, reason_sentence, relative

STATUS_TASKS_SHOWN = 200
"""Of each company in `status`; `queue` and `log` have the rest."""


class CompanyNotThere(Exception):
    """The database has no company of this name."""

    def __init__(self, company: str, known: Iterable[str]) -> None:
        names = ", ".join(plain(name) for name in sorted(known)[:10])
        super().__init__(f"there is no company {plain(company)}" + (f"; there are: {names}" if names else ""))


async def read(options: ReadOptions, out: Output) -> None:
    """Carry out one reading command; raises `CompanyNotThere`, `TaskUnknown`, `StorageError`."""
    async with open_reader(options.db) as reader:
        await _COMMANDS[options.what](reader, options, out)


async def _companies(reader: Reader, options: ReadOptions) -> list[str]:
    known = await reader.companies()
    wanted = options.task.company if options.task is not None else options.company
    if wanted is None:
        return list(known)
    if wanted not in known:
        raise CompanyNotThere(wanted, known)
    return [wanted]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


async def _status(reader: Reader, options: ReadOptions, out: Output) -> None:
    companies = await _companies(reader, options)
    owner = reader.owner
    if owner is None:
        out.line("no process runs this database")
    else:
        out.line(plain(f"process {owner.pid} runs this database since {owner.started_at}"))
    now_ms = _now_ms()
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


async def _queue(reader: Reader, options: ReadOptions, out: Output) -> None:
    now_ms = _now_ms()
    for company in await _companies(reader, options):
        for status in await reader.company(company).queue():
            place = str(status.position) if status.position else "-"
            out.line(
                f"{place:>5}  {word(status.state):<9}  P{status.priority}  {name_of(status)} {why(status, now_ms)}"
            )


async def _explain(reader: Reader, options: ReadOptions, out: Output) -> None:
    name = _task(options)
    await _companies(reader, options)
    company = reader.company(name.company)
    status = await company.status(name.task)
    explanation = await company.explain(name.task)
    now_ms = _now_ms()
    out.line(f"{name_of(status)}: {plain(status.title)}")
    out.line(f"{word(explanation.state)}, run {status.run}, created {moment(status.created_ms, now_ms)}")
    for gate in explanation.gates:
        out.line(f"  {reason_sentence(gate, now_ms)}")
    if not explanation.gates:
        out.line("  nothing holds it up")
    for node in status.nodes:
        again = "" if node.not_before_ms is None else f", again {relative(node.not_before_ms, now_ms)}"
        tries = f", {node.tries} failed {'try' if node.tries == 1 else 'tries'}" if node.tries else ""
        out.line(f"  node {plain(node.name)}: {node.status}{tries}{again}")
        for line in (node.error or "").splitlines():
            out.line(f"    {plain(line)}")


async def _timeline(reader: Reader, options: ReadOptions, out: Output) -> None:
    name = _task(options)
    await _companies(reader, options)
    began_ms: int | None = None
    for event in await reader.company(name.company).timeline(name.task):
        began_ms = event.at_ms if began_ms is None else began_ms
        passed = f"+{duration(event.at_ms - began_ms)}"
        out.line(f"{event.position:>6}  {clock(event.at_ms)}  {passed:>9}  {what_happened(event)}")


async def _log(reader: Reader, options: ReadOptions, out: Output) -> None:
    await _companies(reader, options)
    found = reader.events(company=options.company, after=options.after, follow=options.follow)
    async with closing(found) as events:
        async for event in events:
            if options.json:
                out.json(event_json(event))
            else:
                out.line(event_line(event))
            if out.broken:
                return


def _task(options: ReadOptions) -> TaskName:
    assert options.task is not None, "the parser asks for it"
    return options.task


_COMMANDS = {"status": _status, "queue": _queue, "explain": _explain, "timeline": _timeline, "log": _log}
