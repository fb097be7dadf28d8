"""What a person can do about a reason, as a command that can be pasted."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from actors import Reason, ReasonKind
from actors.cli.message_commands import COMMAND_OF

Advice = tuple[str, tuple[str, ...]]
"""What it does, and the words of the command, without the database."""
Advise = Callable[[Reason, str, str], Advice | None]
"""Advice for the reason of a task; the company, and the task with its company."""

_NEED_A_HOST: Final = frozenset(command.name for command in COMMAND_OF.values())


def command_line(words: tuple[str, ...], db: Path, *, host: bool = True) -> str:
    """A command as it can be pasted into a terminal. Without a host, a message can only be sent for later."""
    later = [] if host or words[0] not in _NEED_A_HOST else ["--later"]
    return shlex.join(["python", "-m", "actors", *words, *later, "--db", str(db)])


def advice(reason: Reason, company: str, task: str, db: Path, *, host: bool = True) -> str | None:
    """One thing to do about the reason: what it does, and the command. ``None`` where only time helps.

    ``host``: whether a process runs the database.
    """
    advise = _ADVICE.get(reason.kind)
    found = None if advise is None else advise(reason, company, f"{company}/{task}")
    if found is None:
        return None
    what, words = found
    return f"{what}: {command_line(words, db, host=host)}"


def _on_task(what: str, command: str) -> Advise:
    return lambda _reason, _company, name: (what, (command, name))


def _on_company(what: str, command: str) -> Advise:
    return lambda _reason, company, _name: (what, (command, company))


def _on_first(what: str, command: str) -> Advise:
    """About the first task that the reason names."""
    return lambda reason, company, _name: (
        (what, (command, f"{company}/{reason.tasks[0]}")) if reason.tasks else None
    )


def _run_slots(reason: Reason, company: str, _name: str) -> Advice | None:
    more = str(reason.numbers.get("runs_max", 0) + 1)
    return "Let more run at once", ("limits", company, "--runs-max", more)


def _budget(reason: Reason, company: str, name: str) -> Advice | None:
    """More, as far as is needed; or, where there is enough by now, continuing."""
    numbers = reason.numbers
    limit = numbers.get("limit")
    wanted = numbers.get("spent", 0) + numbers.get("reserved", 0) + max(1, numbers.get("estimate", 0))
    if limit is None or wanted <= limit:
        return ("Continue it", ("retry", name))
    if reason.text == "company":
        return ("Let the company spend more", ("budget", company, str(wanted)))
    return ("Let it spend more", ("edit", name, "--budget", str(wanted)))


def _approval(reason: Reason, _company: str, name: str) -> Advice | None:
    return ("Approve it", ("approve", name, reason.nodes[0])) if reason.nodes else None


def _ahead(reason: Reason, _company: str, name: str) -> Advice | None:
    return ("Put it first", ("start-now", name)) if reason.tasks else None


_ADVICE: Final[Mapping[ReasonKind, Advise]] = MappingProxyType(
    {
        ReasonKind.ARCHIVED: _on_task("Bring it back", "unarchive"),
        ReasonKind.COMPLETED: _on_task("See its results", "result"),
        ReasonKind.FAILED: _on_task("Continue it", "retry"),
        ReasonKind.STOPPED: _on_task("Continue it", "retry"),
        ReasonKind.QUARANTINED: _on_task("Trust it again", "retry"),
        ReasonKind.BACKING_OFF: _on_task("Try it now", "retry"),
        ReasonKind.HALTED: _on_task("Continue it", "retry"),
        ReasonKind.UPSTREAM_FAILED: _on_first("Continue that", "retry"),
        ReasonKind.UPSTREAM_STOPPED: _on_first("Continue that", "retry"),
        ReasonKind.UPSTREAM_HALTED: _on_first("See why", "explain"),
        ReasonKind.UPSTREAM_BLOCKED: _on_first("See why", "explain"),
        ReasonKind.UPSTREAM_ARCHIVED: _on_first("Bring that back", "unarchive"),
        ReasonKind.UPSTREAM_QUARANTINED: _on_first("See why", "explain"),
        ReasonKind.UPSTREAM_UNFINISHED: _on_first("See where that stands", "explain"),
        ReasonKind.NOT_BEFORE: _on_task("Start it now", "start-now"),
        ReasonKind.MANUAL: _on_task("Start it", "start"),
        ReasonKind.COMPANY_PAUSED: _on_company("End the pause", "unpause"),
        ReasonKind.COMPANY_PARKED: _on_company("Try again now", "unpark"),
        ReasonKind.RUN_SLOTS: _run_slots,
        ReasonKind.TASKS_AHEAD: _ahead,
        ReasonKind.BUDGET: _budget,
        ReasonKind.APPROVAL: _approval,
        ReasonKind.STEP: _on_task("Let it continue", "next"),
        ReasonKind.NO_HOST: lambda _reason, _company, _name: ("Run it", ("run", "PLAN.toml")),
    }
)
"""What helps against a reason. Those that are absent pass by themselves, or need more than a command."""
