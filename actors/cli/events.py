"""One line for every kind of event, for people. Programs read `log --json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs

from actors import Event
from actors.sentences import clock, duration, listed, shortened

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
    sentence = SENTENCES.get(event.kind)
    if sentence is None:
        return event.kind  # a kind of a newer version
    return sentence.format_map(_Words(event)) if isinstance(sentence, str) else sentence(event)


def event_subject(event: Event) -> str:
    """``company/task``, or the company, or nothing for an event of the runtime."""
    return "/".join(part for part in (event.company, event.task) if part is not None)


def event_json(event: Event) -> dict[str, Any]:
    """The event as one JSON object: all fields, always."""
    return attrs.asdict(event, recurse=False) | {"data": dict(event.data)}


class _Words(dict[str, str]):
    """The words of a sentence: parts of an event by the names under `_PARTS`, or else values of its data."""

    def __init__(self, event: Event) -> None:
        super().__init__()
        self._event = event

    def __missing__(self, name: str) -> str:
        part = _PARTS.get(name)
        return _text(self._event, name) if part is None else part(self._event)


def _text(event: Event, key: str) -> str:
    return shortened(str(event.data.get(key, "?")))


def _because(event: Event) -> str:
    return f": {shortened(event.reason)}" if event.reason else ""


def _node(event: Event) -> str:
    return event.node or "?"


def _amount(event: Event, key: str) -> str:
    """An amount in the units of the host."""
    units = event.data.get(key)
    return "any amount" if units is None else f"{units:,}" if isinstance(units, int) else str(units)


def _moment(event: Event, key: str) -> str:
    at_ms = event.data.get(key)
    return clock(at_ms) if isinstance(at_ms, int) else "never"


def _again(event: Event) -> str:
    """What follows an attempt that did not succeed."""
    due = event.data.get("not_before_ms")
    if isinstance(due, int):
        later = due > event.at_ms
        return f", will be tried again {f'in {duration(due - event.at_ms)}' if later else 'at once'}"
    return ", no tries left" if event.after == "failed" else ""


def _names(event: Event, key: str) -> str:
    value = event.data.get(key)
    return listed(tuple(str(item) for item in value)) if isinstance(value, list | tuple) and value else ""


def _tasks(event: Event) -> str:
    count = event.data.get("count")
    return "1 task is" if count == 1 else f"{_text(event, 'count')} tasks are"


def _ids(event: Event) -> str:
    ids, count = event.data.get("ids"), event.data.get("count")
    shown = tuple(str(item) for item in ids[:IDS_SHOWN]) if isinstance(ids, list | tuple) else ()
    return listed(shown, count if isinstance(count, int) else 0)


def _interrupted(event: Event) -> str:
    """How many attempts, given as a number or one by one."""
    value = event.data.get("interrupted")
    return str(len(value)) if isinstance(value, list | tuple) else _text(event, "interrupted")


_PARTS: Final[Mapping[str, Callable[[Event], str]]] = MappingProxyType(
    {
        "node": _node,
        "attempt": lambda e: f"attempt {e.attempt} of {_node(e)}",
        "run": lambda e: str(e.run),
        "because": _because,
        "again": _again,
        "tasks_are": _tasks,
        "ids": _ids,
        "interrupted": _interrupted,
        "limit": lambda e: _amount(e, "limit"),
        "spent": lambda e: _amount(e, "spent"),
        "next_ms": lambda e: _moment(e, "next_ms"),
        "due_ms": lambda e: _moment(e, "due_ms"),
    }
)


def _submitted(event: Event) -> str:
    after = _names(event, "depends_on")
    title = shortened(str(event.data.get("title", "")), TITLE_CHARS_SHOWN)
    mode = {"manual": ", manual", "step": ", step by step"}.get(str(event.data.get("mode")), "")
    return f'submitted "{title}"{mode}' + (f", after {after}" if after else "")


def _scheduled(event: Event) -> str:
    at_ms = event.data.get("not_before_ms")
    return f"may not start before {clock(at_ms)}" if isinstance(at_ms, int) else "may start at any time"


def _fired(event: Event) -> str:
    how = "by hand" if event.data.get("manual") else f"for {_moment(event, 'nominal_ms')}"
    return f"submitted by schedule {_text(event, 'name')} {how}"


def _skipped(event: Event) -> str:
    count = event.data.get("count")
    least = "" if event.data.get("exact") else "at least "
    times = "1 fire" if count == 1 else f"{least}{_text(event, 'count')} fires"
    return f"schedule {_text(event, 'name')} skipped {times}{_because(event)}"


def _lost(event: Event) -> str:
    after = f"and has failed{_because(event)}" if event.after == "failed" else "and runs again"
    return f"attempt {event.attempt} of {_node(event)} was lost when its process died, {after}"


def _failed(event: Event) -> str:
    nodes = _names(event, "nodes")
    return f"failed in {nodes}" if nodes else f"failed{_because(event)}"  # the attempt's own line says why


def _requeued(event: Event) -> str:
    return "queued again" + (f" ({shortened(event.reason)})" if event.reason else "")


def _halted(event: Event) -> str:
    place = "before" if event.reason == "step" else "at"
    return f"waits for a person {place} {_names(event, 'nodes') or '?'}"


def _resumed(event: Event) -> str:
    how = "approved, continues after" if event.reason == "approve" else "continues with"
    return f"{how} {_node(event)}"


def _approved(event: Event) -> str:
    note = event.data.get("note")
    return f"gate {_node(event)} is approved" + (f": {shortened(str(note))}" if note else "")


def _sent_back(event: Event) -> str:
    count = event.data.get("count")
    others = f", with {count - 1} that used its result" if isinstance(count, int) and count > 1 else ""
    return f"node {_node(event)} is sent back{others}: {_text(event, 'feedback')}"


def _spent(event: Event) -> str:
    known = ", as far as is known" if event.data.get("assumed") else ""
    return f"attempt {event.attempt} of {_node(event)} has spent {_amount(event, 'spent')}{known}"


def _warned(event: Event) -> str:
    whose = "the budget" if event.task else "its budget"
    return f"{whose} of {_amount(event, 'limit')} is nearly used up: {_amount(event, 'spent')} spent"


SENTENCES: Final[Mapping[str, str | Callable[[Event], str]]] = MappingProxyType(
    {
        "process.started": "process {pid} opened the database",
        "process.stopped": "the database was closed; {interrupted} attempts interrupted",
        "store.unavailable": "the database cannot be written: {cause}",
        "store.recovered": "the database can be written again after {outage_s} s",
        "sweep.finished": "a sweep repaired {healed} of {companies} companies",
        "log.pruned": "{count} old lines of the log were deleted, up to position {floor}",
        "wal.grown": "the write-ahead log has grown to {bytes} bytes: a reader has been open for too long",
        "wal.shrunk": "the write-ahead log is small again",
        "company.deleting": "is being deleted",
        "company.deleted": "company {name} was deleted: {tasks} tasks, {events} events",
        "company.paused": "paused",
        "company.unpaused": "continues after a pause",
        "company.limits_changed": "runs_max is now {runs_max} and weight {weight}",
        "company.budget_changed": "may now spend {limit}; {spent} spent",
        "budget.warned": _warned,
        "company.graph_defined": "graph {name} is defined, version {version}",
        "company.parked": "rests for {wait_s} s after crashes: {cause}",
        "company.unparked": "no longer rests",
        "actor.crashed": "its actor crashed and is restarted: {cause}",
        "message.refused": "{message} was refused{because}",
        "task.submitted": _submitted,
        "task.edited": lambda e: f"changed: {_names(e, 'fields') or '?'}",
        "task.started": "started by a person",
        "task.moved_first": "moved to the front",
        "task.scheduled": _scheduled,
        "task.archived": "archived",
        "task.unarchived": "brought back",
        "task.quarantined": "quarantined{because}",
        "task.released": "no longer quarantined",
        "schedule.set": "schedule {name} is set, next fire {next_ms}",
        "schedule.paused": "schedule {name} is paused",
        "schedule.resumed": "schedule {name} continues, next fire {next_ms}",
        "schedule.removed": "schedule {name} was removed",
        "schedule.fired": _fired,
        "schedule.skipped": _skipped,
        "schedule.disabled": "schedule {name} is disabled{because}",
        "schedule.clock_back": "the clock was set back; schedule {name} continues at {due_ms}",
        "run.created": "run {run} was created",
        "run.admitted": "starts (run slot {slot})",
        "run.completed": "completed",
        "run.failed": _failed,
        "run.stopping": "is being stopped",
        "run.stopped": "stopped{because}",
        "run.requeued": _requeued,
        "run.halted": _halted,
        "run.resumed": _resumed,
        "gate.reached": "gate {node} is reached",
        "gate.approved": _approved,
        "node.sent_back": _sent_back,
        "node.reset": "node {node} gets new tries",
        "node.due": "node {node} is tried again now",
        "tasks.pruned": "old tasks were deleted: {ids}",
        "attempts.pruned": "{count} old attempts were deleted",
        "attempt.started": "{attempt} starts",
        "attempt.succeeded": "{attempt} succeeded",
        "attempt.failed": "{attempt} failed{again}{because}",
        "attempt.timed_out": "{attempt} took too long{again}{because}",
        "attempt.stalled": "{attempt} was silent for too long{again}{because}",
        "attempt.quiet": "{attempt} has been silent for {quiet_s} s; it is ended after {stall_s} s",
        "attempt.postponed": "{attempt} asked to be postponed{again}{because}",
        "attempt.interrupted": "{attempt} was interrupted ({why}) and runs again",
        "attempt.stopped": "{attempt} was stopped",
        "attempt.superseded": "{attempt} was superseded",
        "attempt.lost": _lost,
        "attempt.spent": _spent,
        "attempt.late": "{attempt} reported too late ({outcome}); nothing changed",
        "attempt.abandoned": "{attempt} did not end within {grace_s} s and was left behind",
        "attempt.illegal": "{attempt} made an illegal move in phase {phase}",
        "tasks.blocked": "{tasks_are} blocked by {cause}: {ids}",
        "tasks.unblocked": "{tasks_are} no longer blocked: {ids}",
    }
)
"""A sentence for every kind of event: text with parts of the event in it, or a function that makes it."""
