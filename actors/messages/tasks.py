"""Messages about tasks."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, ClassVar

import attrs

from actors.errors import InvalidMessage
from storage.codec import encode
from storage.records import Mode

from .base import PRIORITY_DEFAULT, TASKS_MAX, UNSET, Message, Unset
from .checks import (
    a_boolean,
    a_budget,
    a_chosen_id,
    a_name,
    a_number_of_send_backs,
    a_number_of_tries,
    a_task_id,
    a_title,
    checked,
    milliseconds,
    optional,
    payload_text,
    to_depends_on,
    to_mode,
    to_moment,
    to_priority,
)
from .graph import Gate, Node, to_nodes, to_nodes_or_none
from .replies import Moved, Submitted


@attrs.frozen
class Submit(Message[Submitted]):
    """Add a task. Give ``handler`` (one node of that name), ``nodes``, ``graph`` (a name), or none, for a
    run without nodes.

    ``priority``: lower goes first; "P2" means 2. ``mode="manual"`` waits for `Start`; ``mode="step"`` halts before each
    node's start, and `Next` lets one start. ``depends_on``: ids in this company whose newest runs must be completed.
    ``id`` and ``key`` are unique in the company while the task's row lives: the same content again returns the
    existing task, other content is a conflict. ``tries_max`` is the tries of nodes that do not say their own,
    ``send_backs_max`` how often the result of such a node may be sent back. ``fail_fast``: the first node that
    gives up stops the others; gates that are reached are then not waited for. ``not_before``: a datetime with a time
    zone (or its ISO 8601 text with an offset) before which it does not start, but for `StartNow`. ``budget``: what all
    its runs may spend together (`Context.spend`), beside the company's budget; 0: nothing of it starts.
    """

    title: str = attrs.field(validator=checked(a_title))
    handler: str | None = attrs.field(
        default=None, kw_only=True, validator=checked(a_name("a handler's name"))
    )
    nodes: tuple[Node | Gate, ...] | None = attrs.field(
        default=None, kw_only=True, converter=to_nodes_or_none
    )
    graph: str | None = attrs.field(default=None, kw_only=True, validator=checked(a_name("a graph's name")))
    payload: Any = attrs.field(default=None, kw_only=True)
    priority: int = attrs.field(default=PRIORITY_DEFAULT, kw_only=True, converter=to_priority)
    mode: Mode = attrs.field(default=Mode.AUTO, kw_only=True, converter=to_mode)
    depends_on: tuple[str, ...] = attrs.field(default=(), kw_only=True, converter=to_depends_on)
    goal: str | None = attrs.field(default=None, kw_only=True, validator=checked(a_name("a goal's name")))
    id: str | None = attrs.field(default=None, kw_only=True, validator=checked(a_chosen_id))
    key: str | None = attrs.field(default=None, kw_only=True, validator=checked(a_name("an idempotency key")))
    tries_max: int | None = attrs.field(default=None, kw_only=True, validator=checked(a_number_of_tries))
    fail_fast: bool = attrs.field(default=False, kw_only=True, validator=checked(a_boolean))
    not_before: datetime | None = attrs.field(default=None, kw_only=True, converter=to_moment)
    send_backs_max: int | None = attrs.field(
        default=None, kw_only=True, validator=checked(a_number_of_send_backs)
    )
    budget: int | None = attrs.field(default=None, kw_only=True, validator=checked(a_budget))
    payload_text: str | None = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        if sum(given is not None for given in (self.handler, self.nodes, self.graph)) > 1:
            raise InvalidMessage("give at most one of handler, nodes and graph")
        if self.id is not None and self.id in self.depends_on:
            raise InvalidMessage(f"task {self.id!r} depends on itself")
        object.__setattr__(self, "payload_text", payload_text(self.payload))

    @property
    def not_before_ms(self) -> int | None:
        """``not_before`` as integer milliseconds UTC."""
        return None if self.not_before is None else milliseconds(self.not_before)


def to_submits(value: Iterable[Submit]) -> tuple[Submit, ...]:
    if not isinstance(value, Iterable):
        raise InvalidMessage(f"tasks must be a list of Submit, not {value!r}")
    tasks = tuple(value)
    if not 1 <= len(tasks) <= TASKS_MAX:
        raise InvalidMessage(f"SubmitMany takes 1 to {TASKS_MAX} tasks, not {len(tasks)}")
    seen: set[str] = set()
    for task in tasks:
        if not isinstance(task, Submit):
            raise InvalidMessage(f"tasks must be Submit, not {task!r}")
        if task.id is not None and task.id in seen:
            raise InvalidMessage(f"two tasks have the id {task.id!r}")
        if task.id is not None:
            seen.add(task.id)
    return tasks


@attrs.frozen
class SubmitMany(Message[tuple[Submitted, ...]]):
    """Add tasks that may depend on each other in any order: one commit, all or none."""

    tasks: tuple[Submit, ...] = attrs.field(converter=to_submits)


@attrs.frozen
class Start(Message[Moved]):
    """Let a task of ``mode="manual"`` start."""

    task: str = attrs.field(validator=checked(a_task_id))


@attrs.frozen
class StartNow(Message[Moved]):
    """Put a task first in the queue, past its manual gate, its ``not_before`` and a pause of the company. It still
    waits for its dependencies and for the limits.
    """

    task: str = attrs.field(validator=checked(a_task_id))


@attrs.frozen
class Stop(Message[Moved]):
    """Stop the newest run. A live attempt gets the grace period to end; then it loses its slot."""

    task: str = attrs.field(validator=checked(a_task_id))
    control: ClassVar[bool] = True


@attrs.frozen
class Retry(Message[Moved]):
    """Continue a failed or stopped run, or one that is halted on its budget: results are kept, and the other nodes
    get a fresh allowance of tries. A run that waits for a person at a gate or before a step is not retried: see
    `Approve`, `Next`, `SendBack`. Refused with the numbers while the budget is still short.
    """

    task: str = attrs.field(validator=checked(a_task_id))


@attrs.frozen
class Rerun(Message[Moved]):
    """Do the task again in a new run, with ``payload`` instead of the task's if it is given.

    From the beginning; or with ``from_node`` from that node on, where the new run keeps the results of all nodes that
    do not use its result, and without another ``payload`` also the payload of the run before it.
    """

    task: str = attrs.field(validator=checked(a_task_id))
    from_node: str | None = attrs.field(
        default=None, kw_only=True, validator=checked(a_name("a node's name"))
    )
    payload: Any = attrs.field(default=UNSET, kw_only=True)
    payload_text: str | None = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        text = None if isinstance(self.payload, Unset) else encode(self.payload, what="payload")
        object.__setattr__(self, "payload_text", text)


# --- converters of Edit, whose fields may be left as they are ------------------------------------------------


def _new_priority(value: int | str | Unset) -> int | Unset:
    return value if isinstance(value, Unset) else to_priority(value)


def _new_mode(value: Mode | str | Unset) -> Mode | Unset:
    return value if isinstance(value, Unset) else to_mode(value)


def _new_depends_on(value: Iterable[str] | Unset) -> tuple[str, ...] | Unset:
    return value if isinstance(value, Unset) else to_depends_on(value)


def _new_nodes(value: Iterable[Node | Gate] | Unset) -> tuple[Node | Gate, ...] | Unset:
    return value if isinstance(value, Unset) else to_nodes(value)


def _new_moment(value: datetime | str | Unset | None) -> datetime | Unset | None:
    return value if isinstance(value, Unset) else to_moment(value)


@attrs.frozen
class Edit(Message[Moved]):
    """Change a task. ``priority``, ``tries_max``, ``send_backs_max`` and ``budget`` count at once; the rest at the
    next admission.

    ``depends_on``, ``not_before`` and the nodes are read at a run's first admission, so for a run that was
    admitted they count from the next run on. ``not_before=None`` takes it away.
    """

    task: str = attrs.field(validator=checked(a_task_id))
    priority: int | Unset = attrs.field(default=UNSET, kw_only=True, converter=_new_priority)
    tries_max: int | Unset | None = attrs.field(
        default=UNSET, kw_only=True, validator=checked(optional(a_number_of_tries))
    )
    title: str | Unset = attrs.field(default=UNSET, kw_only=True, validator=checked(a_title))
    payload: Any = attrs.field(default=UNSET, kw_only=True)
    mode: Mode | Unset = attrs.field(default=UNSET, kw_only=True, converter=_new_mode)
    goal: str | Unset | None = attrs.field(
        default=UNSET, kw_only=True, validator=checked(optional(a_name("a goal's name")))
    )
    depends_on: tuple[str, ...] | Unset = attrs.field(default=UNSET, kw_only=True, converter=_new_depends_on)
    handler: str | Unset = attrs.field(
        default=UNSET, kw_only=True, validator=checked(a_name("a handler's name"))
    )
    nodes: tuple[Node | Gate, ...] | Unset = attrs.field(default=UNSET, kw_only=True, converter=_new_nodes)
    graph: str | Unset = attrs.field(default=UNSET, kw_only=True, validator=checked(a_name("a graph's name")))
    fail_fast: bool | Unset = attrs.field(default=UNSET, kw_only=True, validator=checked(a_boolean))
    not_before: datetime | Unset | None = attrs.field(default=UNSET, kw_only=True, converter=_new_moment)
    send_backs_max: int | Unset | None = attrs.field(
        default=UNSET, kw_only=True, validator=checked(optional(a_number_of_send_backs))
    )
    budget: int | Unset | None = attrs.field(
        default=UNSET, kw_only=True, validator=checked(optional(a_budget))
    )
    payload_text: str | None = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        if not self.changes:
            raise InvalidMessage("Edit changes nothing: give at least one field")
        if len(self.changes & {"handler", "nodes", "graph"}) > 1:
            raise InvalidMessage("give at most one of handler, nodes and graph")
        object.__setattr__(self, "payload_text", payload_text(self.payload))

    @property
    def changes(self) -> frozenset[str]:
        """Names of the fields that were given."""
        return frozenset(name for name in EDIT_FIELDS if not isinstance(getattr(self, name), Unset))

    @property
    def not_before_ms(self) -> int | None:
        """``not_before`` as integer milliseconds UTC; ``None`` also where it is left as it is."""
        return milliseconds(self.not_before) if isinstance(self.not_before, datetime) else None

    @property
    def at_once(self) -> bool:
        """Whether every given field counts at once."""
        return self.changes <= {"priority", "tries_max", "send_backs_max", "budget"}


EDIT_FIELDS = tuple(field.name for field in attrs.fields(Edit) if isinstance(field.default, Unset))


@attrs.frozen
class Archive(Message[Moved]):
    """Put a task away. It is in no queue and takes only `Unarchive`. Refused while it is active."""

    task: str = attrs.field(validator=checked(a_task_id))


@attrs.frozen
class Unarchive(Message[Moved]):
    """Bring an archived task back as it was when it was put away."""

    task: str = attrs.field(validator=checked(a_task_id))
