"""The event stream: the kinds of events and their data. This table is part of the API.

An event is one line of the log, committed with the change that it reports: nothing appears before its commit,
``position`` increases in commit order over all companies, and ``seq`` has no gaps within a company. A reader
continues from the last ``position`` it saw. Derived states are not stored, so they have one event per cause
and commit (``tasks.blocked``), never one per task. Positions in the queue are never events.

Pruning is reported by ``tasks.pruned``, ``attempts.pruned`` and ``log.pruned``, in the commit that prunes. The log
is pruned only from its beginning, so the rest has no gaps. Deleting a company deletes its lines too;
``company.deleted`` is an event of the runtime and stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs


@attrs.frozen
class Event:
    """One line of the log.

    ``before`` and ``after`` are the states of the object of the kind: the run for ``run.*``, the node for
    ``attempt.*`` and ``node.*``. ``at_ms`` is the wall clock of the writing process, integer milliseconds
    UTC: it may go back; ``position`` never does. Runtime events have no ``company`` and no ``seq``.
    """

    position: int
    company: str | None
    seq: int | None
    at_ms: int
    kind: str
    task: str | None = None
    run: int | None = None
    node: str | None = None
    attempt: int | None = None
    before: str | None = None
    after: str | None = None
    reason: str | None = None
    data: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class Kind:
    """One row of the table: its level in structlog, its data fields, its meaning."""

    level: str
    fields: tuple[str, ...]
    says: str


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "process.started": Kind("info", ("pid", "host_id"), "a process opened the database as its owner"),
        "process.stopped": Kind("info", ("host_id", "interrupted", "abandoned"), "it closed the database"),
        "store.unavailable": Kind(
            "error", ("cause",), "the database cannot be written for now; the writer keeps trying"
        ),
        "store.recovered": Kind("info", ("outage_s",), "the database can be written again"),
        "sweep.finished": Kind("info", ("healed", "companies"), "a sweep found and healed something"),
        "log.pruned": Kind(
            "info",
            ("floor", "count", "hosts"),
            "old lines up to the position floor were removed, and past processes",
        ),
        "wal.grown": Kind(
            "warning",
            ("bytes", "limit_bytes"),
            "a reader holds an old snapshot, so the write-ahead log grows",
        ),
        "wal.shrunk": Kind("info", ("bytes",), "it is small again"),
        "company.deleting": Kind("info", (), "the company was deleted; its rows are being removed"),
        "company.deleted": Kind(
            "info",
            ("name", "tasks", "attempts", "events"),
            "all its rows are removed, and its lines of the log",
        ),
        "company.paused": Kind("info", (), "admission and new attempts are paused"),
        "company.unpaused": Kind("info", (), "the pause has ended"),
        "company.limits_changed": Kind("info", ("runs_max", "weight"), "the limits from now on"),
        "company.budget_changed": Kind(
            "info",
            ("limit", "spent", "reserved"),
            "the budget from now on; without a limit it may spend anything",
        ),
        "budget.warned": Kind(
            "warning",
            ("limit", "spent", "reserved"),
            "four fifths of the budget are spent: the task's if the event names one, otherwise the company's",
        ),
        "company.graph_defined": Kind(
            "info", ("name", "version", "nodes"), "a graph has a new newest definition"
        ),
        "company.parked": Kind(
            "error", ("cause", "wait_s"), "the actor crashed too often and rests for wait_s seconds"
        ),
        "company.unparked": Kind("info", (), "a person ended the rest"),
        "actor.crashed": Kind("error", ("cause",), "the actor failed and is restarted"),
        "message.refused": Kind(
            "warning", ("message",), "a message sent with tell was refused; reason says why"
        ),
        "task.submitted": Kind(
            "info", ("title", "priority", "mode", "goal", "depends_on"), "a task and its first run are stored"
        ),
        "task.edited": Kind("info", ("fields",), "a task was changed"),
        "task.started": Kind("info", (), "the manual gate of the run was opened"),
        "task.moved_first": Kind("info", ("front",), "StartNow put the run first and past a company pause"),
        "task.scheduled": Kind(
            "info", ("not_before_ms",), "the time before which a task may not start was set, or taken away"
        ),
        "task.archived": Kind("info", (), "a task was put away"),
        "task.unarchived": Kind("info", (), "it was brought back"),
        "task.quarantined": Kind(
            "error", ("interrupted",), "its rows or transitions are invalid; reason says why"
        ),
        "task.released": Kind("info", (), "a person lifted the quarantine"),
        "schedule.set": Kind(
            "info",
            ("name", "cron", "every_ms", "zone", "overlap", "misfire", "jitter_ms", "next_ms"),
            "a schedule was made or changed",
        ),
        "schedule.paused": Kind("info", ("name", "next_ms"), "it does not fire until it is resumed"),
        "schedule.resumed": Kind("info", ("name", "next_ms"), "a person ended the pause"),
        "schedule.removed": Kind("info", ("name",), "a schedule is gone; its tasks stay"),
        "schedule.fired": Kind(
            "info", ("name", "nominal_ms", "manual"), "it made a task, for its nominal time or by RunNow"
        ),
        "schedule.skipped": Kind(
            "warning",
            ("name", "count", "exact", "last_ms"),
            "count nominal times were skipped (at least, unless exact); reason says why, last_ms is the latest of them",
        ),
        "schedule.disabled": Kind("error", ("name",), "it cannot fire; reason says why"),
        "schedule.clock_back": Kind(
            "warning",
            ("name", "back_ms", "next_ms", "due_ms"),
            "the wall clock went back; these are its next times",
        ),
        "run.created": Kind(
            "info",
            ("carried",),
            "Rerun or SendBack created a new run; carried is how many nodes keep their results",
        ),
        "run.admitted": Kind("info", ("slot",), "the run took a run slot; upstream runs are pinned"),
        "run.completed": Kind("info", (), "all its nodes succeeded"),
        "run.failed": Kind("warning", ("nodes",), "a node failed for good and no other node can proceed"),
        "run.stopping": Kind("info", (), "a stop was requested; attempts are still alive"),
        "run.stopped": Kind("info", ("skipped",), "no attempt is alive"),
        "run.requeued": Kind(
            "info", ("nodes",), "it continues at its old place; these nodes got a fresh allowance of tries"
        ),
        "run.halted": Kind(
            "info",
            ("count", "nodes"),
            "it waits for a person and frees its run slot; reason says for what (approval, step, budget), nodes where",
        ),
        "run.resumed": Kind(
            "info", (), "Approve or Next let it continue from this node, at its old place; tries are kept"
        ),
        "gate.reached": Kind("info", (), "all nodes before the gate succeeded; it waits for a person"),
        "gate.approved": Kind("info", ("note",), "a person approved it"),
        "node.reset": Kind("info", (), "Retry gave a failed node of a running run a fresh allowance"),
        "node.sent_back": Kind(
            "info",
            ("feedback", "generation", "send_backs", "count", "nodes"),
            "its result is redone, with the nodes that used it (count and nodes list them all)",
        ),
        "node.due": Kind("info", (), "Retry ended a node's backoff; its tries are kept"),
        "tasks.pruned": Kind("info", ("count", "ids"), "tasks that settled long ago were removed"),
        "attempts.pruned": Kind("info", ("count",), "attempts that ended long ago were removed"),
        "attempt.started": Kind("info", ("generation",), "a try at a node began"),
        "attempt.succeeded": Kind("info", (), "its result was accepted"),
        "attempt.failed": Kind(
            "warning", ("tries", "not_before_ms"), "it failed; after says whether it is tried again"
        ),
        "attempt.timed_out": Kind("warning", ("tries", "not_before_ms"), "it took longer than its limit"),
        "attempt.stalled": Kind(
            "warning", ("tries", "not_before_ms"), "it reported nothing for longer than its limit"
        ),
        "attempt.quiet": Kind(
            "warning", ("quiet_s", "stall_s"), "it has reported nothing for half of its stall limit"
        ),
        "attempt.postponed": Kind(
            "info", ("not_before_ms",), "the handler asked to be tried again later; costs no try"
        ),
        "attempt.interrupted": Kind("warning", ("why",), "shutdown, or a fault of the runtime; costs no try"),
        "attempt.stopped": Kind("info", (), "its run was stopped"),
        "attempt.superseded": Kind("info", (), "its input was sent back; costs no try"),
        "attempt.lost": Kind("error", ("unclean",), "the process died while it executed; costs no try"),
        "attempt.spent": Kind(
            "info",
            ("spent", "added", "assumed"),
            "added is what was booked; if assumed, the amount is unknown and the estimate was booked",
        ),
        "attempt.late": Kind(
            "warning",
            ("outcome",),
            "it reported after its end was committed; only its spending was booked",
        ),
        "attempt.abandoned": Kind(
            "warning", ("grace_s",), "it did not end within the grace period and was abandoned"
        ),
        "attempt.illegal": Kind(
            "error", ("phase",), "an illegal phase transition; the attempt ends as interrupted"
        ),
        "tasks.blocked": Kind(
            "warning", ("cause", "count", "ids"), "tasks that cannot start as things stand"
        ),
        "tasks.unblocked": Kind("info", ("cause", "count", "ids"), "their cause no longer holds"),
    }
)
"""Kind → level, data fields, meaning. Every event's data holds exactly the fields of its kind."""
