"""Words for people: times, reasons and events, one sentence each.

Everything that came from outside (titles, ids, error texts, output of commands) passes `plain` before it
reaches a terminal, so none of it can move the cursor, change colours, or hide behind a change of writing
direction.
"""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import attrs

from actors.messages.views import Reason, ReasonKind

ERROR_CHARS_SHOWN: Final = 300
"""Of an error, in one line; `timeline` and `log --json` have all of it."""


def plain(text: str) -> str:
    """``text`` in one line, with everything that is not visible written as an escape (``\\x1b``, ``\\u202e``,
    ``\\n``)."""
    if text.isprintable():
        return text
    return "".join(char if _is_seen(char) else char.encode("unicode_escape").decode("ascii") for char in text)


def _is_seen(char: str) -> bool:
    return char.isprintable() or unicodedata.category(char) == "Zs"


def shortened(text: str, chars_max: int = ERROR_CHARS_SHOWN) -> str:
    """``text`` as `plain` shows it, the middle cut out if it is long: beginning and end say most."""
    shown = plain(text.strip().replace("\n", " | "))
    if len(shown) <= chars_max:
        return shown
    half = chars_max // 2
    return f"{shown[:half]} … {shown[-half:]}"


# --- times --------------------------------------------------------------------------------------------------


def clock(at_ms: int) -> str:
    """A moment in local time, to the second."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000))
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"


def duration(ms: int) -> str:
    """A length of time in its largest two units."""
    if ms < 0:
        ms = 0
    if ms < 10_000:
        return f"{ms / 1000:.1f} s"
    seconds = round(ms / 1000)
    for size, unit, below, below_unit in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= size:
            rest = seconds % size // below
            return f"{seconds // size} {unit}" + (f" {rest} {below_unit}" if rest else "")
    return f"{seconds} s"


def relative(at_ms: int, now_ms: int) -> str:
    """A moment as seen from now."""
    return f"in {duration(at_ms - now_ms)}" if at_ms > now_ms else f"{duration(now_ms - at_ms)} ago"


def moment(at_ms: int, now_ms: int) -> str:
    """A moment both ways; the date is left out if it is today's."""
    at, now = clock(at_ms), clock(now_ms)
    return f"{at[11:] if at[:10] == now[:10] else at} ({relative(at_ms, now_ms)})"


# --- reasons ------------------------------------------------------------------------------------------------


def describe_reason(
    reason: Reason, *, subject: str = "it", company: str | None = None, now_ms: int | None = None
) -> str:
    """A reason as a sentence that a person would say, in one line: "it waits for collect and 2 more".

    ``subject`` is what the sentence is about. ``company`` is put before the ids of tasks, so that they can
    be given to the command line. Times are local and relative to ``now_ms`` (ms since the epoch; by default
    the present). There is a sentence for every kind. What came from outside is made safe for a terminal.
    """
    at_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    if company is not None and reason.kind is not ReasonKind.EXECUTION_SLOT:  # those names have it already
        reason = attrs.evolve(reason, tasks=tuple(f"{company}/{task}" for task in reason.tasks))
    return f"{subject} {reason_sentence(reason, at_ms)}"


def reason_sentence(reason: Reason, now_ms: int) -> str:
    """The sentence without its subject."""
    return REASONS[reason.kind](reason, now_ms)


def _tasks(reason: Reason) -> str:
    return listed(reason.tasks, reason.count)


def listed(names: tuple[str, ...], count: int = 0) -> str:
    """Names with the number of those that are not shown."""
    more = max(count, len(names)) - len(names)
    shown = ", ".join(plain(name) for name in names)
    return f"{shown} and {more} more" if shown and more else shown or str(count)


def _nodes(reason: Reason) -> str:
    return listed(reason.nodes, reason.count)


def _because(reason: Reason) -> str:
    return f": {shortened(reason.text)}" if reason.text else ""


def _when(reason: Reason, now_ms: int) -> str:
    return "" if reason.at_ms is None else f" at {moment(reason.at_ms, now_ms)}"


def _since(reason: Reason, now_ms: int) -> str:
    return "" if reason.at_ms is None else f" since {moment(reason.at_ms, now_ms)}"


def _failed(reason: Reason, now_ms: int) -> str:
    where = f" in {_nodes(reason)}" if reason.nodes else ""
    tries = reason.numbers.get("tries")
    after = "" if tries is None else f" after {tries} {'try' if tries == 1 else 'tries'}"
    return f"failed{where}{after}{_when(reason, now_ms)}{_because(reason)}"


def _run_slots(reason: Reason, _now_ms: int) -> str:
    most = reason.numbers.get("runs_max")
    if most == 0:
        return "waits: the company's runs_max is 0, so nothing starts"
    taken = (
        f"waits for a run slot: the company's {most} are taken by {_tasks(reason)}"
        if most != 1
        else f"runs after {_tasks(reason)}"
    )
    return f"{taken} ({shortened(reason.text)})" if reason.text else taken


def _halted(reason: Reason, now_ms: int) -> str:
    return f"is halted{_since(reason, now_ms)} and waits for a person{_because(reason)}"


def _ending(reason: Reason, now_ms: int) -> str:
    return f"is ending{_since(reason, now_ms)}" + (
        f", {_nodes(reason)} is still alive" if reason.nodes else ""
    )


def _approval(reason: Reason, now_ms: int) -> str:
    return f"waits for a person to approve {_nodes(reason)}{_since(reason, now_ms)}"


def _step(reason: Reason, now_ms: int) -> str:
    return f"goes step by step: a person has to let {_nodes(reason)} start{_since(reason, now_ms)}"


def _budget(reason: Reason, now_ms: int) -> str:
    """Halted on it since a time, or waiting for it."""
    of = {name: f"{number:,}" for name, number in reason.numbers.items()}
    whose = "the company's budget" if reason.text == "company" else "its budget"
    limit = f" of {of['limit']}" if "limit" in of else ""
    numbers = f"{of.get('spent', '?')} spent, {of.get('reserved', '?')} reserved, {of.get('estimate', '?')} estimated"
    what = f" for {_nodes(reason)}" if reason.nodes else ""
    if reason.at_ms is not None:
        return f"is halted on {whose}{limit}{what}{_since(reason, now_ms)}: {numbers}"
    return f"waits for {whose}{limit}{what}: {numbers}"


def _ahead(reason: Reason, _now_ms: int) -> str:
    return f"comes after {_tasks(reason)}" if reason.tasks else "is the next to start"


def _no_host(reason: Reason, _now_ms: int) -> str:
    if reason.nodes:
        return (
            f"waits: no process runs this database. {_nodes(reason)} was executing when the last one ended, "
            "and runs again with the next"
        )
    return "waits: no process runs this database"


def _cycle(reason: Reason, _now_ms: int) -> str:
    path = " → ".join(plain(task) for task in reason.tasks)
    return f"waits for itself: {path}" if path else "waits for itself"


def _named(reason: Reason) -> str:
    return f": {_nodes(reason)}" if reason.nodes else ""


def _upstream(what: str) -> Callable[[Reason, int], str]:
    return lambda reason, _now_ms: f"depends on {_tasks(reason)}, which {what}"


def _simple(text: str) -> Callable[[Reason, int], str]:
    return lambda reason, _now_ms: f"{text}{_because(reason)}"


REASONS: Final[Mapping[ReasonKind, Callable[[Reason, int], str]]] = MappingProxyType(
    {
        ReasonKind.ARCHIVED: lambda r, now: f"was archived{_when(r, now)}",
        ReasonKind.COMPLETED: lambda r, now: f"completed{_when(r, now)}",
        ReasonKind.FAILED: _failed,
        ReasonKind.STOPPED: lambda r, now: f"was stopped{_when(r, now)}{_because(r)}",
        ReasonKind.QUARANTINED: _simple("is quarantined: its stored data cannot be trusted"),
        ReasonKind.EXECUTING: lambda r, now: f"executes {_nodes(r)}{_since(r, now)}{_because(r)}",
        ReasonKind.WAITING: lambda r, now: f"waits in {_nodes(r)}{_since(r, now)}{_because(r)}",
        ReasonKind.ABANDONED_LIMIT: lambda r, _: (
            f"waits: {r.count} attempts were left behind and are still alive, so nothing new starts{_because(r)}"
        ),
        ReasonKind.BACKING_OFF: lambda r, now: f"tries {_nodes(r)} again{_when(r, now)}{_because(r)}",
        ReasonKind.EXECUTION_SLOT: lambda r, _: f"waits for an execution slot for {_nodes(r)}{_held_by(r)}",
        ReasonKind.NODE_READY: lambda r, _: f"is about to start {_nodes(r)}{_because(r)}",
        ReasonKind.ENDING: _ending,
        ReasonKind.APPROVAL: _approval,
        ReasonKind.STEP: _step,
        ReasonKind.HALTED: _halted,
        ReasonKind.UPSTREAM_FAILED: _upstream("failed"),
        ReasonKind.UPSTREAM_STOPPED: _upstream("was stopped"),
        ReasonKind.UPSTREAM_HALTED: _upstream("is halted"),
        ReasonKind.UPSTREAM_BLOCKED: _upstream("is blocked itself"),
        ReasonKind.UPSTREAM_MISSING: _upstream("does not exist"),
        ReasonKind.UPSTREAM_ARCHIVED: _upstream("was archived before it completed"),
        ReasonKind.UPSTREAM_QUARANTINED: _upstream("is quarantined"),
        ReasonKind.DEPENDENCY_CYCLE: _cycle,
        ReasonKind.RUN_MISSING: _simple("has no run: its rows are incomplete"),
        ReasonKind.HANDLER_MISSING: lambda r, _: (
            f"needs a handler that is not registered here{_because(r) or _named(r)}"
        ),
        ReasonKind.GRAPH_MISSING: _simple("needs a graph that is not defined"),
        ReasonKind.UPSTREAM_UNFINISHED: lambda r, _: f"waits for {_tasks(r)}",
        ReasonKind.NOT_BEFORE: lambda r, now: f"is scheduled: not before {moment(r.at_ms or 0, now)}",
        ReasonKind.MANUAL: lambda r, now: f"waits for a person to start it{_since(r, now)}",
        ReasonKind.COMPANY_PAUSED: lambda r, now: f"waits: the company is paused{_since(r, now)}",
        ReasonKind.COMPANY_PARKED: lambda r, now: (
            f"waits: the company rests after crashes{_until(r, now)}{_because(r)}"
        ),
        ReasonKind.DRAINING: _simple("waits: the host is closing, nothing new starts"),
        ReasonKind.STORE_UNAVAILABLE: _simple("waits: the database cannot be written at present"),
        ReasonKind.RUN_SLOTS: _run_slots,
        ReasonKind.TASKS_AHEAD: _ahead,
        ReasonKind.NO_HOST: _no_host,
        ReasonKind.BUDGET: _budget,
    }
)
"""A sentence for every kind of reason, without its subject, which is the task."""


def _held_by(reason: Reason) -> str:
    holders = listed(reason.tasks, reason.count) if reason.tasks else plain(reason.text or "")
    return f", all held by {holders}" if holders else ""


def _until(reason: Reason, now_ms: int) -> str:
    return "" if reason.at_ms is None else f" until {moment(reason.at_ms, now_ms)}"
