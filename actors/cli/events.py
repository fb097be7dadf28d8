"""One line for every kind of event, for people. Programs read `log --json`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from types import MappingProxyType
from typing import Any, Final, cast

import attrs

from actors import Event
from actors.sentences import clock, duration, listed, plain, shortened

TITLE_CHARS_SHOWN: Final = 80
IDS_SHOWN: Final = 5


def event_line(event: Event) -> str:
    """Position, time, who, and what happened."""
    return f"{event.position:>6}  {clock(event.at_ms)}  {event_sentence(event)}"


def event_sentence(event: Event) -> str:
    """Who it is about and what happened."""
    subject = event_subject(event)
    return f"{subject}: {what_happened(event)}" if subject else what_happened(event)


def what_happened(event: Event) -> str:
    """The event without the one it is about."""
    tell = EVENTS.get(event.kind)
    return tell(event) if tell is not None else plain(event.kind)  # a kind of a newer version


def event_subject(event: Event) -> str:
    """``company/task``, or the company, or nothing for an event of the runtime."""
    return plain("/".join(part for part in (event.company, event.task) if part is not None))


def closing(events: AsyncIterator[Event]) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
    """The events, to be read in a block that closes their source when it is left, however that happens."""
    return aclosing(cast(AsyncGenerator[Event, None], events))


def event_json(event: Event) -> dict[str, Any]:
    """The event as one JSON object: all fields, always."""
    return attrs.asdict(event, recurse=False) | {"data": dict(event.data)}


def _text(event: Event, key: str) -> str:
    return shortened(str(event.data.get(key, "?")))


def _because(event: Event) -> str:
    return f": {shortened(event.reason)}" if event.reason else ""


def _units(event: Event, name: str) -> str:
    units = event.data.get(name)
    return "anything" if units is None else f"{units:,}" if isinstance(units, int) else plain(str(units))


def _attempt(event: Event) -> str:
    return f"attempt {event.attempt} of {plain(event.node or '?')}"


def _again(event: Event) -> str:
    """What comes after an attempt that did not succeed."""
    due = event.data.get("not_before_ms")
    if isinstance(due, int):
        return (
            f", tries again in {duration(due - event.at_ms)}"
            if due > event.at_ms
            else ", tries again at once"
        )
    return ", no tries left" if event.after == "failed" else ""


def _names(value: object) -> str:
    return listed(tuple(str(item) for item in value)) if isinstance(value, list | tuple) and value else ""


def _count(event: Event) -> str:
    count = event.data.get("count")
    return "1 task is" if count == 1 else f"{_text(event, 'count')} tasks are"


def _ids(event: Event) -> str:
    ids, count = event.data.get("ids"), event.data.get("count")
    shown = tuple(str(item) for item in ids[:IDS_SHOWN]) if isinstance(ids, list | tuple) else ()
    return listed(shown, count if isinstance(count, int) else 0)


def _submitted(event: Event) -> str:
    after = _names(event.data.get("depends_on"))
    title = shortened(str(event.data.get("title", "")), TITLE_CHARS_SHOWN)
    return f'submitted "{title}"{_mode(event)}' + (f", after {after}" if after else "")


def _moment(event: Event, key: str) -> str:
    at_ms = event.data.get(key)
    return clock(at_ms) if isinstance(at_ms, int) else "never"


def _scheduled(event: Event) -> str:
    at_ms = event.data.get("not_before_ms")
    return f"not before {clock(at_ms)}" if isinstance(at_ms, int) else "may start at any time"


def _fired(event: Event) -> str:
    how = "by hand" if event.data.get("manual") else f"for {_moment(event, 'nominal_ms')}"
    return f"made by schedule {_text(event, 'name')} {how}"


def _skipped(event: Event) -> str:
    count = event.data.get("count")
    least = "" if event.data.get("exact") else "at least "
    times = "1 time" if count == 1 else f"{least}{_text(event, 'count')} times"
    return f"schedule {_text(event, 'name')} left out {times}{_because(event)}"


def _blocked(event: Event) -> str:
    return f"{_count(event)} blocked by {_text(event, 'cause')}: {_ids(event)}"


def _unblocked(event: Event) -> str:
    return f"{_count(event)} free again: {_ids(event)}"


def _lost(event: Event) -> str:
    after = f"and given up{_because(event)}" if event.after == "failed" else "and runs again"
    return f"{_attempt(event)} was lost when its process died, {after}"


def _failed(event: Event) -> str:
    nodes = _names(event.data.get("nodes"))
    return f"failed in {nodes}" if nodes else f"failed{_because(event)}"  # the attempt's own line says why


def _requeued(event: Event) -> str:
    return "queued again" + (f" ({shortened(event.reason)})" if event.reason else "")


def _halted(event: Event) -> str:
    nodes = _names(event.data.get("nodes")) or "?"
    return (
        f"waits for a person before {nodes}" if event.reason == "step" else f"waits for a person at {nodes}"
    )


def _resumed(event: Event) -> str:
    how = "approved, goes on after" if event.reason == "approve" else "goes on with"
    return f"{how} {plain(event.node or '?')}"


def _approved(event: Event) -> str:
    note = event.data.get("note")
    return f"gate {plain(event.node or '?')} is approved" + (f": {shortened(str(note))}" if note else "")


def _sent_back(event: Event) -> str:
    count = event.data.get("count")
    others = f", with {count - 1} that used it" if isinstance(count, int) and count > 1 else ""
    return f"node {plain(event.node or '?')} is sent back{others}: {_text(event, 'feedback')}"


def _mode(event: Event) -> str:
    mode = event.data.get("mode")
    return {"manual": ", manual", "step": ", step by step"}.get(str(mode), "")


def _closed(event: Event) -> str:
    return f"the database was closed; {_size(event, 'interrupted')} attempts interrupted"


def _size(event: Event, key: str) -> int | str:
    """A number, or how many there are."""
    value = event.data.get(key)
    return value if isinstance(value, int) else len(value) if isinstance(value, list | tuple) else "?"


EVENTS: Final[Mapping[str, Callable[[Event], str]]] = MappingProxyType(
    {
        "process.started": lambda e: f"process {_text(e, 'pid')} opened the database",
        "process.stopped": _closed,
        "store.unavailable": lambda e: f"the database cannot be written: {_text(e, 'cause')}",
        "store.recovered": lambda e: f"the database can be written again after {_text(e, 'outage_s')} s",
        "sweep.finished": lambda e: (
            f"a sweep set going again what stood still in {_text(e, 'healed')} of {_text(e, 'companies')} companies"
        ),
        "log.pruned": lambda e: (
            f"{_text(e, 'count')} old lines of the log, up to {_text(e, 'floor')}, are gone"
        ),
        "wal.grown": lambda e: (
            f"the write-ahead log has {_text(e, 'bytes')} bytes: somebody has been reading for too long"
        ),
        "wal.shrunk": lambda _: "the write-ahead log is small again",
        "company.deleting": lambda _: "is being deleted",
        "company.deleted": lambda e: (
            f"company {_text(e, 'name')} was deleted: {_text(e, 'tasks')} tasks, {_text(e, 'events')} events"
        ),
        "company.paused": lambda _: "paused",
        "company.unpaused": lambda _: "goes on after a pause",
        "company.limits_changed": lambda e: (
            f"runs_max is {_text(e, 'runs_max')} and weight {_text(e, 'weight')} from now on"
        ),
        "company.budget_changed": lambda e: (
            f"may spend {_units(e, 'limit')} from now on; {_units(e, 'spent')} are spent"
        ),
        "budget.warned": lambda e: (
            f"{'the budget' if e.task else 'its budget'} of {_units(e, 'limit')} is nearly used up: "
            f"{_units(e, 'spent')} are spent"
        ),
        "company.graph_defined": lambda e: (
            f"graph {_text(e, 'name')} is defined, version {_text(e, 'version')}"
        ),
        "company.parked": lambda e: f"rests for {_text(e, 'wait_s')} s after crashes: {_text(e, 'cause')}",
        "company.unparked": lambda _: "rests no longer",
        "actor.crashed": lambda e: f"its actor failed and is restarted: {_text(e, 'cause')}",
        "message.refused": lambda e: f"{_text(e, 'message')} was refused{_because(e)}",
        "task.submitted": _submitted,
        "task.edited": lambda e: f"changed: {_names(e.data.get('fields')) or '?'}",
        "task.started": lambda _: "started by a person",
        "task.moved_first": lambda _: "moved to the front",
        "task.scheduled": _scheduled,
        "task.archived": lambda _: "put away",
        "task.unarchived": lambda _: "brought back",
        "task.quarantined": lambda e: f"quarantined{_because(e)}",
        "task.released": lambda _: "no longer quarantined",
        "schedule.set": lambda e: f"schedule {_text(e, 'name')} is set, next {_moment(e, 'next_ms')}",
        "schedule.paused": lambda e: f"schedule {_text(e, 'name')} is paused",
        "schedule.resumed": lambda e: f"schedule {_text(e, 'name')} goes on, next {_moment(e, 'next_ms')}",
        "schedule.removed": lambda e: f"schedule {_text(e, 'name')} was removed",
        "schedule.fired": _fired,
        "schedule.skipped": _skipped,
        "schedule.disabled": lambda e: f"schedule {_text(e, 'name')} is disabled{_because(e)}",
        "schedule.clock_back": lambda e: (
            f"the clock went back; schedule {_text(e, 'name')} goes on at {_moment(e, 'due_ms')}"
        ),
        "run.created": lambda e: f"run {e.run} was made",
        "run.admitted": lambda e: f"starts (run slot {_text(e, 'slot')})",
        "run.completed": lambda _: "completed",
        "run.failed": _failed,
        "run.stopping": lambda _: "is being stopped",
        "run.stopped": lambda e: f"stopped{_because(e)}",
        "run.requeued": _requeued,
        "run.halted": _halted,
        "run.resumed": _resumed,
        "gate.reached": lambda e: f"gate {plain(e.node or '?')} is reached",
        "gate.approved": _approved,
        "node.sent_back": _sent_back,
        "node.reset": lambda e: f"node {plain(e.node or '?')} gets fresh tries",
        "node.due": lambda e: f"node {plain(e.node or '?')} is tried again now",
        "tasks.pruned": lambda e: f"old tasks are gone: {_ids(e)}",
        "attempts.pruned": lambda e: f"{_text(e, 'count')} old attempts are gone",
        "attempt.started": lambda e: f"{_attempt(e)} begins",
        "attempt.succeeded": lambda e: f"{_attempt(e)} succeeded",
        "attempt.failed": lambda e: f"{_attempt(e)} failed{_again(e)}{_because(e)}",
        "attempt.timed_out": lambda e: f"{_attempt(e)} took too long{_again(e)}{_because(e)}",
        "attempt.stalled": lambda e: f"{_attempt(e)} said nothing for too long{_again(e)}{_because(e)}",
        "attempt.quiet": lambda e: (
            f"{_attempt(e)} has said nothing for {_text(e, 'quiet_s')} s; at {_text(e, 'stall_s')} s it is ended"
        ),
        "attempt.postponed": lambda e: f"{_attempt(e)} asked for later{_again(e)}{_because(e)}",
        "attempt.interrupted": lambda e: f"{_attempt(e)} was interrupted ({_text(e, 'why')}) and runs again",
        "attempt.stopped": lambda e: f"{_attempt(e)} was stopped",
        "attempt.superseded": lambda e: f"{_attempt(e)} was superseded",
        "attempt.lost": _lost,
        "attempt.spent": lambda e: (
            f"{_attempt(e)} has spent {_units(e, 'spent')}"
            + (" as far as is known" if e.data.get("assumed") else "")
        ),
        "attempt.late": lambda e: f"{_attempt(e)} reported too late ({_text(e, 'outcome')}); nothing changed",
        "attempt.abandoned": lambda e: (
            f"{_attempt(e)} did not end within {_text(e, 'grace_s')} s and was left behind"
        ),
        "attempt.illegal": lambda e: f"{_attempt(e)} made an illegal move in phase {_text(e, 'phase')}",
        "tasks.blocked": _blocked,
        "tasks.unblocked": _unblocked,
    }
)
"""A sentence for every kind of event."""
