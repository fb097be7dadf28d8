"""Taking in tasks: what is unknown, circular or in conflict is refused, and nothing of it stays."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence

import attrs

from actors.errors import (
    DependencyCycle,
    IdConflict,
    KeyConflict,
    UnknownGraph,
    UnknownHandler,
    UnknownUpstream,
)
from actors.messages import Gate, Node, Submit, SubmitMany, Submitted
from storage.codec import encode
from storage.records import TaskRecord

from .cycles import circle_through, find_cycle
from .draft import Draft, fresh_run
from .needs import Looked
from .shape import Shape, node_payloads, shape_of, shape_text
from .state import CompanyState


@attrs.frozen
class Fire:
    """What makes a task a schedule's: its nominal time, unless a person asked for it, and when it may start."""

    schedule: str
    nominal_ms: int | None = None
    not_before_ms: int | None = None


def decide_submit(draft: Draft, message: Submit, looked: Looked) -> Submitted:
    return _submit_all(draft, (message,), looked, frozenset())[0]


def decide_submit_many(draft: Draft, message: SubmitMany, looked: Looked) -> tuple[Submitted, ...]:
    batch = {task.id: task.depends_on for task in message.tasks if task.id is not None}
    circle = find_cycle(batch)
    if circle is not None:
        raise DependencyCycle(circle)
    return _submit_all(draft, message.tasks, looked, frozenset(batch))


def carry_out(draft: Draft, task: Submit, looked: Looked, fire: Fire) -> Submitted:
    """The task of a schedule. Raises the refusals of `Submit`; the caller takes the draft back."""
    return _submit(draft, task, looked, frozenset(), fire)


def check_template(draft: Draft, task: Submit, looked: Looked) -> None:
    """Raise what would refuse the task as things stand."""
    _check(draft, task, shape_of(shape_text(nodes_of(task.handler, task.nodes))))
    check_upstreams(draft.state, looked, "of the schedule", task.depends_on, frozenset())


def _check(draft: Draft, message: Submit, shape: Shape) -> None:
    """Raise `UnknownHandler` or `UnknownGraph` if that is how it stands."""
    if message.graph is None:
        check_handlers(draft.state, shape)
    elif message.graph not in draft.state.graphs:
        raise UnknownGraph(message.graph)


def _submit_all(
    draft: Draft, tasks: Sequence[Submit], looked: Looked, batch: frozenset[str]
) -> tuple[Submitted, ...]:
    awaited = [task.id for task in tasks if task.id is not None and task.id in draft.state.missing]
    answers = tuple(_submit(draft, task, looked, batch) for task in tasks)
    for task in awaited:  # planted rows wait for it: the one way in which a new task can close a circle
        circle = circle_through(task, upstreams_in(draft.state, looked))
        if circle is not None:
            raise DependencyCycle(circle)
    return answers


def upstreams_in(state: CompanyState, looked: Looked) -> Callable[[str], tuple[str, ...]]:
    """The upstreams of any task, in memory or not, as far as ``looked`` was asked for them."""

    def upstreams(task: str) -> tuple[str, ...]:
        entry = state.entries.get(task)
        return entry.task.depends_on if entry is not None else looked.edges.get(task, ())

    return upstreams


def check_handlers(state: CompanyState, shape: Shape) -> None:
    """Raise `UnknownHandler` for handlers that this host has not registered."""
    lacking = state.lacking_handlers(shape.handlers)
    if lacking:
        raise UnknownHandler(lacking)


def check_upstreams(
    state: CompanyState, looked: Looked, task: str, upstreams: Iterable[str], batch: frozenset[str]
) -> None:
    """Raise `UnknownUpstream` for ids that no task of the company has."""
    missing = [
        upstream
        for upstream in upstreams
        if upstream not in state.entries and upstream not in looked.known and upstream not in batch
    ]
    if missing:
        raise UnknownUpstream(task, missing)


def nodes_of(handler: str | None, nodes: tuple[Node | Gate, ...] | None) -> tuple[Node | Gate, ...]:
    return (Node(handler),) if handler is not None else nodes or ()


def _submit(
    draft: Draft, message: Submit, looked: Looked, batch: frozenset[str], fire: Fire | None = None
) -> Submitted:
    state = draft.state
    nodes = nodes_of(message.handler, message.nodes)
    text = shape_text(nodes)
    content = _content(message, text, nodes) if message.key is not None or message.id is not None else None
    existing = _existing(draft, message, looked, content)
    if existing is not None:
        return existing
    shape = shape_of(text)
    _check(draft, message, shape)
    seq = state.company.task_seq + 1
    task = message.id if message.id is not None else f"@{seq}"
    if fire is None:  # else it is the schedule that would be to blame
        draft.about = task
    check_upstreams(state, looked, task, message.depends_on, batch)
    draft.company(task_seq=seq)
    not_before_ms = message.not_before_ms if fire is None else fire.not_before_ms
    record = TaskRecord(
        seq=seq,
        id=task,
        priority=message.priority,
        created_ms=draft.now_ms,
        mode=message.mode,
        goal=message.goal,
        depends_on=tuple(sorted(message.depends_on)),  # edges are rows, and rows have no order of their own
        graph=message.graph,
        shape=shape.text,
        tries_max=message.tries_max,
        fail_fast=message.fail_fast,
        not_before_ms=not_before_ms,
        schedule=None if fire is None else fire.schedule,
        send_backs_max=message.send_backs_max,
        budget=message.budget,
    )
    entry = draft.add_task(record, fresh_run(record, 1, draft.now_ms))
    draft.write(
        "set_task_texts",
        seq=seq,
        title=message.title,
        payload=message.payload_text,
        node_payloads=node_payloads(nodes),
        key=message.key,
        content=content,
    )
    draft.note_submitted(task, message.key, content)
    draft.event(
        "task.submitted",
        entry,
        after="queued",
        title=message.title,
        priority=message.priority,
        mode=message.mode.value,
        goal=message.goal,
        depends_on=list(message.depends_on[:100]),
    )
    if fire is not None:
        draft.write("set_task_fire", seq=seq, schedule=fire.schedule, nominal_ms=fire.nominal_ms)
    if not_before_ms is not None:
        draft.event("task.scheduled", entry, not_before_ms=not_before_ms)
    return Submitted(task, seq, 1)


def _content(message: Submit, shape: str, nodes: tuple[Node | Gate, ...]) -> str:
    """Digest of everything that was asked for, so that the same request can be told from another under the
    same name.
    """
    parts = encode(
        [
            message.title,
            message.graph,
            message.priority,
            message.mode.value,
            sorted(message.depends_on),
            message.goal,
            message.tries_max,
            message.fail_fast,
            message.send_backs_max,
            message.payload_text,
            [node.payload_text for node in nodes],
            shape,
            *(() if message.not_before_ms is None else (message.not_before_ms,)),
            *(() if message.budget is None else (["budget", message.budget],)),
        ],
        bytes_max=1 << 28,
    )
    return hashlib.sha256(parts.encode("utf-8")).hexdigest()


def _existing(draft: Draft, message: Submit, looked: Looked, content: str | None) -> Submitted | None:
    """The task that is already there under this key or id; raises a conflict if it is another one."""
    if message.key is not None:
        holder = draft.keys.get(message.key, looked.keys.get(message.key))
        if holder is not None:
            if message.id not in (None, holder) or _content_of(draft, looked, holder) != content:
                raise KeyConflict(message.key, holder)
            return _found(draft, holder)
    if message.id is not None and (message.id in draft.contents or message.id in looked.contents):
        if _content_of(draft, looked, message.id) != content:
            raise IdConflict(message.id)
        return _found(draft, message.id)
    return None


def _content_of(draft: Draft, looked: Looked, task: str) -> str | None:
    return draft.contents[task] if task in draft.contents else looked.contents.get(task)


def _found(draft: Draft, task: str) -> Submitted:
    entry = draft.state.entries[task]
    return Submitted(task, entry.task.seq, 0 if entry.run is None else entry.run.number, existing=True)
