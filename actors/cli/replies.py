"""What a command prints when its message was carried out: the reply as a sentence, without its subject."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from actors.cli.output import present_ms
from actors.sentences import listed, moment, shortened

IDS_SHOWN: Final = 10


@attrs.frozen
class Given:
    """The arguments of one command: its address, and by field what else was given."""

    company: str
    task: str | None = None
    values: Mapping[str, Any] = attrs.field(factory=dict)


def either(changed: str, otherwise: str) -> Callable[[Given, Any], str]:
    """One sentence if the message changed something, another if not."""
    return lambda _, reply: changed if reply.changed else otherwise


def submitted(_: Given, reply: Any) -> str:
    return "existed already: nothing changed" if reply.existing else "is submitted"


def stopped(_: Given, reply: Any) -> str:
    if not reply.changed:
        return f"is {reply.status} already: nothing changed"
    return "is being stopped" if str(reply.status) == "stopping" else "was stopped"


def put_first(_: Given, reply: Any) -> str:
    if not reply.changed:
        return "is running already: nothing changed"
    if not reply.holders:
        return "goes first"
    return f"goes first, as soon as a run slot is free ({listed(tuple(reply.holders))} hold them now)"


def approved(given: Given, _reply: Any) -> str:
    return f"is approved at gate {given.values['gate']}"


def sent_back(given: Given, reply: Any) -> str:
    return f"does {given.values['node']} again, in run {reply.run}"


def rerun(_: Given, reply: Any) -> str:
    return f"runs again, as run {reply.run}"


def unparked(_: Given, reply: Any) -> str:
    return "tries again now" if reply.was_parked else "was not resting"


def limits(_: Given, reply: Any) -> str:
    kept = "" if reply.changed else ", as before"
    return f"{may_run(reply.runs_max)} and has weight {reply.weight}{kept}"


def may_run(runs_max: int) -> str:
    if runs_max == 0:
        return "may not run any task"
    return "may run 1 task at a time" if runs_max == 1 else f"may run {runs_max} tasks at once"


def budget(_: Given, reply: Any) -> str:
    kept = "" if reply.changed else ", as before"
    return f"{may_spend(reply)}{kept}; {reply.spent:,} spent, {reply.reserved:,} reserved"


def may_spend(reply: Any) -> str:
    return "may spend any amount" if reply.limit is None else f"may spend {reply.limit:,} in all"


def goal(given: Given, reply: Any) -> str:
    if not reply.tasks:
        return f"has nothing to stop for goal {given.values['goal']}"
    many = "1 task" if len(reply.tasks) == 1 else f"{len(reply.tasks)} tasks"
    shown = listed(tuple(reply.tasks[:IDS_SHOWN]), len(reply.tasks))
    return f"stops {many} of goal {given.values['goal']}: {shown}"


def graph(given: Given, reply: Any) -> str:
    kept = "" if reply.changed else ", as before"
    return f"has graph {given.values['graph']}, version {reply.version}{kept}"


def schedule(given: Given, reply: Any) -> str:
    name = given.values["name"]
    if reply.disabled is not None:
        return f"has schedule {name}, which is disabled: {shortened(reply.disabled)}"
    if reply.next_ms is None:
        return f"no longer has schedule {name}"
    paused = ", paused" if reply.paused else ""
    kept = "" if reply.changed else ", as before"
    return f"has schedule {name}{paused}{kept}; its next time is {moment(reply.next_ms, present_ms())}"
