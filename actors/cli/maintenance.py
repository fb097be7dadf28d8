"""The commands that maintain a database: a copy of it, pruning, deleting a company."""

from __future__ import annotations

from typing import Final

import trio

from actors import DatabaseInUse, Retention, backup, delete_company, open_reader, prune
from actors.cli.interrupts import EXIT_INTERRUPTED, Interrupts
from actors.cli.options import BackupOptions, DeleteOptions, MaintenanceOptions, PruneOptions
from actors.cli.output import Output, complain
from actors.cli.read import require_company

DAY_S: Final = 86_400.0
DONE: Final = 0
NOT_DONE: Final = 1
MISUSED: Final = 2


async def maintain(options: MaintenanceOptions, out: Output) -> int:
    """Carry out the command; returns the exit status. Ctrl-C stops it: what was done so far stays done, and an
    incomplete copy is removed.
    """
    status = EXIT_INTERRUPTED
    with Interrupts() as interrupts:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_stop_when_interrupted, interrupts, nursery.cancel_scope)
            status = await _carry_out(options, out)
            nursery.cancel_scope.cancel()
    return status


async def _stop_when_interrupted(interrupts: Interrupts, scope: trio.CancelScope) -> None:
    await interrupts.reach(1)
    scope.cancel()


async def _carry_out(options: MaintenanceOptions, out: Output) -> int:
    if isinstance(options, BackupOptions):
        return await _backup(options, out)
    try:
        return await (_prune(options, out) if isinstance(options, PruneOptions) else _delete(options, out))
    except DatabaseInUse as error:
        complain(
            f"{error}. A running host prunes by itself (open_runtime(retention=…)) or when asked (Runtime.prune)"
        )
        return NOT_DONE


async def _backup(options: BackupOptions, out: Output) -> int:
    size = await backup(options.db, options.target)
    out.line(f"{options.target}: {size} bytes, checked")
    return DONE


async def _prune(options: PruneOptions, out: Output) -> int:
    retention = Retention(**{f"{kind}_s": days * DAY_S for kind, days in options.days.items()})
    if retention.keeps_all:
        complain(
            "nothing to prune: say how many days to keep what, with --events-days, --tasks-days and so on"
        )
        return MISUSED
    report = await prune(options.db, retention)
    failed = f"; {report.errors} companies could not be pruned" if report.errors else ""
    out.line(f"deleted: {report.tasks} tasks, {report.attempts} attempts, {report.events} events{failed}")
    return NOT_DONE if report.errors else DONE


async def _delete(options: DeleteOptions, out: Output) -> int:
    if not options.yes:
        return await _ask(options, out)
    deleted = await delete_company(options.db, options.company)
    out.line(
        f"{deleted.name} is deleted:"
        f" {deleted.tasks} tasks, {deleted.attempts} attempts, {deleted.events} events"
    )
    return DONE


async def _ask(options: DeleteOptions, out: Output) -> int:
    """Say what would go."""
    async with open_reader(options.db) as reader:
        await require_company(reader, options.company)
        tasks = await reader.company(options.company).tasks(archived=True)
    out.line(
        f"{options.company} has {len(tasks)} tasks. Add --yes to delete them for ever, with their results and events"
    )
    return NOT_DONE
