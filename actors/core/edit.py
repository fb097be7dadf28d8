"""Changing a task. Priority, tries and send-backs count at once; the rest at the next admission, so not while the run
is active.
"""

from __future__ import annotations

from typing import Any

from actors.errors import DependencyCycle, MoveRefused, TaskUnknown, UnknownGraph
from actors.messages import Edit, Moved, Unset
from storage.records import NodeStatus, RunStatus

from .budget import warn
from .cycles import circle_through, recheck_cycles
from .draft import Draft
from .entry import Entry
from .needs import Looked
from .shape import node_payloads, shape_of, shape_text
from .submit import check_handlers, check_upstreams, nodes_of, upstreams_in

_PLAIN = ("priority", "tries_max", "send_backs_max", "budget", "mode", "goal", "depends_on", "fail_fast")
"""Fields of `Edit` that are fields of the record under the same name."""


def decide_edit(draft: Draft, message: Edit, looked: Looked) -> Moved:
    entry = _entry(draft, message)
    assert entry.run is not None
    if not isinstance(message.depends_on, Unset):
        _check_edges(draft, entry, message.depends_on, looked)
    fields: dict[str, Any] = {name: getattr(message, name) for name in _PLAIN if name in message.changes}
    if "depends_on" in fields:
        fields["depends_on"] = tuple(sorted(fields["depends_on"]))
    if "not_before" in message.changes:
        fields["not_before_ms"] = message.not_before_ms
    fields.update(_shape_fields(draft, entry, message))
    before = entry.task
    draft.task(entry, **fields)
    if not isinstance(message.depends_on, Unset):
        recheck_cycles(draft)
    if not isinstance(message.title, Unset):
        draft.write("set_title", seq=entry.task.seq, title=message.title)
    if "payload" in message.changes:
        draft.write("set_payload", seq=entry.task.seq, payload=message.payload_text)
        _raise_generations(draft, entry)
    draft.event("task.edited", entry, fields=sorted(message.changes))
    warn(draft, entry, before, entry.task)
    if "not_before" in message.changes:
        draft.event("task.scheduled", entry, not_before_ms=message.not_before_ms)
    late = entry.admitted and message.changes & {"depends_on", "not_before", "handler", "nodes", "graph"}
    note = (
        "the nodes, upstreams and start of this run are fixed: the change counts from the next run on"
        if late
        else None
    )
    return Moved(entry.task.id, entry.run.number, entry.run.status, note=note)


def _entry(draft: Draft, message: Edit) -> Entry:
    """The task, if it may be edited so as it stands."""
    entry = draft.state.entries.get(message.task)
    if entry is None:
        raise TaskUnknown(draft.state.company.name, message.task)
    draft.about = message.task
    if entry.task.archived_ms is not None:
        raise MoveRefused(
            "Edit", message.task, "archived", "is archived: use Unarchive first", ("Unarchive",)
        )
    if entry.quarantined is not None:
        text = f"is quarantined ({entry.quarantined}): use Retry, Stop or Archive"
        raise MoveRefused("Edit", message.task, "quarantined", text, ("Retry", "Stop", "Archive"))
    if entry.run is None:
        raise MoveRefused("Edit", message.task, "run_missing", "has no run: its rows are incomplete", ())
    status = entry.run.status
    if status is RunStatus.COMPLETED:
        raise MoveRefused(
            "Edit", message.task, status.value, "is completed: use Rerun to do it again", ("Rerun",)
        )
    if status.active and not message.at_once:
        text = f"is {status.value}: only priority, tries_max, send_backs_max and budget can be changed now"
        raise MoveRefused(
            "Edit", message.task, status.value, text, ("Stop",) if status is RunStatus.RUNNING else ()
        )
    return entry


def _check_edges(draft: Draft, entry: Entry, upstreams: tuple[str, ...], looked: Looked) -> None:
    task = entry.task.id
    check_upstreams(draft.state, looked, task, upstreams, frozenset())
    above = upstreams_in(draft.state, looked)
    path = circle_through(task, lambda name: upstreams if name == task else above(name))
    if path is not None:
        raise DependencyCycle(path)


def _shape_fields(draft: Draft, entry: Entry, message: Edit) -> dict[str, Any]:
    """The record's fields for a new handler, new nodes or another graph."""
    if not isinstance(message.graph, Unset):
        if message.graph not in draft.state.graphs:
            raise UnknownGraph(message.graph)
        return {"graph": message.graph, "shape": "[]"}
    if isinstance(message.handler, Unset) and isinstance(message.nodes, Unset):
        return {}
    nodes = nodes_of(
        None if isinstance(message.handler, Unset) else message.handler,
        None if isinstance(message.nodes, Unset) else message.nodes,
    )
    shape = shape_of(shape_text(nodes))
    check_handlers(draft.state, shape)
    draft.write("set_node_payloads", seq=entry.task.seq, node_payloads=node_payloads(nodes))
    return {"graph": None, "shape": shape.text}


def _raise_generations(draft: Draft, entry: Entry) -> None:
    """A node that was tried but not finished will work on another payload: its results so far are of an
    older generation.
    """
    for node in tuple(entry.nodes or ()):
        if node.status is not NodeStatus.SUCCEEDED and node.attempts > 0:
            draft.node(entry, node.pos, generation=node.generation + 1)
