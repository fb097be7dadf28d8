"""What can be said to a company, and what it answers.

A message is a frozen value that checks itself when it is built: what cannot be carried out at all raises
`InvalidMessage`, `InvalidName` or `InvalidJson` right there, in the sender's code. What depends on the
company's state is decided by its actor and answered with a reply or a `Refused` error. The reply type
follows from the message class: ``await company.ask(Submit(…))`` is a `Submitted`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Generic, TypeVar, cast

import attrs

from actors.errors import InvalidMessage
from actors.recurrence import EVERY_MIN_MS, TIME_MAX_MS, cron_of
from storage.codec import JSON_BYTES_MAX, check_name, encode
from storage.records import Misfire, Mode, Overlap, RunStatus

R_co = TypeVar("R_co", covariant=True)

PRIORITY_DEFAULT = 2
PRIORITY_MAX = 1_000_000
ATTEMPTS_MAX_DEFAULT = 3
ATTEMPTS_MAX_LIMIT = 1_000
SEND_BACKS_MAX_DEFAULT = 10
"""Of one node in one run: a review that is never content would otherwise go round for ever."""
SEND_BACKS_MAX_LIMIT = 1_000
FEEDBACK_CHARS_MAX = 10_000
"""A page or two: it stands in the row of every node that is done again. More belongs in a file that it names."""
STALL_S_DEFAULT = 3600.0
"""An hour without a word and an attempt counts as stalled."""
TITLE_CHARS_MAX = 500
NODES_MAX = 10_000
"""Nodes of one run. A message is decided in one go, so it has a bound."""
TASKS_MAX = 10_000
"""Tasks of one SubmitMany."""
DEPENDS_ON_MAX = 10_000
RUNS_MAX_LIMIT = 1_000_000
UNITS_MAX = 10**15
"""Of an estimate, or what one attempt spends. Nine thousand such sums fit into SQLite's integers."""
LIMIT_MAX = 9 * 10**18
"""Of a budget: as far as what is spent is counted."""
WEIGHT_LIMIT = 1_000
SECONDS_LIMIT = 10 * 365 * 86_400.0
"""Ten years: a longer duration is a mistake, and sums of it stay exact."""

JITTER_S_LIMIT = 86_400.0
"""A day: what is to start so much later than its time wants another time."""


class Unset:
    """The type of `UNSET`: a field of `Edit` or `Rerun` that is left as it is."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset()


class Message(Generic[R_co]):
    """Base of everything a company can be told. ``R_co`` is the type of its reply."""

    __slots__ = ()
    control: ClassVar[bool] = False
    """Control messages go by the system lane, so they may overtake submits that were sent but not yet taken."""


# --- checks -------------------------------------------------------------------------------------------------


def _whole(value: object, what: str, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidMessage(f"{what} must be a whole number, not {value!r}")
    if not low <= value <= high:
        raise InvalidMessage(f"{what} must be from {low} to {high}, not {value}")
    return value


def _seconds(value: object, what: str, *, positive: bool = True) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidMessage(f"{what} must be a number of seconds, not {value!r}")
    if not (value > 0 if positive else value >= 0) or not value <= SECONDS_LIMIT:
        raise InvalidMessage(
            f"{what} must be {'above' if positive else 'at least'} 0 s and at most ten years, not {value}"
        )
    return float(value)


def _priority(value: object) -> int:
    if isinstance(value, str):
        match = re.fullmatch(r"[Pp]?([0-9]{1,7})", value)
        if match is None:
            raise InvalidMessage(f'priority must be a whole number or "P" and a number, not {value!r}')
        value = int(match.group(1))
    return _whole(value, "priority", -PRIORITY_MAX, PRIORITY_MAX)


def _attempts_max(value: object) -> int:
    return _whole(value, "attempts_max", 1, ATTEMPTS_MAX_LIMIT)


def _send_backs_max(value: object) -> int:
    return _whole(value, "send_backs_max", 0, SEND_BACKS_MAX_LIMIT)


def _budget(value: object) -> int:
    return _units(value, "budget", LIMIT_MAX)


def _units(value: object, what: str, most: int = UNITS_MAX) -> int:
    """Of a budget: tokens, cents, whatever the host counts in."""
    return _whole(value, what, 0, most)


def _words(value: object, what: str) -> str:
    """What a person says: some lines of text."""
    if not isinstance(value, str):
        raise InvalidMessage(f"{what} must be text, not {value!r}")
    if len(value) > FEEDBACK_CHARS_MAX:
        raise InvalidMessage(
            f"{what} has {len(value)} characters, more than the {FEEDBACK_CHARS_MAX} allowed"
        )
    if any((ord(char) < 32 and char not in "\n\r\t") or 0xD800 <= ord(char) < 0xE000 for char in value):
        raise InvalidMessage(f"{what} must not hold control characters or lone surrogates")
    return value


def _feedback(value: object) -> str:
    if not _words(value, "feedback").strip():
        raise InvalidMessage("feedback must not be blank: say what is to be done otherwise")
    return str(value)


def _title(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidMessage(f"title must be text that is not blank, not {value!r}")
    if len(value) > TITLE_CHARS_MAX:
        raise InvalidMessage(f"title has {len(value)} characters, more than the {TITLE_CHARS_MAX} allowed")
    if any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 or 0xD800 <= ord(char) < 0xE000 for char in value):
        raise InvalidMessage("title must not hold control characters or lone surrogates")
    return value


def _mode(value: object) -> Mode:
    try:
        return Mode(str(value))
    except ValueError:
        raise InvalidMessage(f'mode must be "auto", "manual" or "step", not {value!r}') from None


def _names(value: object, what: str, limit: int) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidMessage(f"{what} must be a list of names, not {value!r}")
    names = tuple(check_name(item, what=f"a name in {what}") for item in value)
    if len(names) > limit:
        raise InvalidMessage(f"{what} holds {len(names)} names, more than the {limit} allowed")
    if len(set(names)) != len(names):
        raise InvalidMessage(f"{what} names {next(n for n in names if names.count(n) > 1)!r} twice")
    return names


def _bool(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidMessage(f"{what} must be true or false, not {value!r}")
    return value


Validator = Callable[[Any, "attrs.Attribute[Any]", Any], None]


def _is(check: Callable[[Any], Any]) -> Validator:
    """The attrs validator that runs ``check``; ``None`` and `UNSET` pass where the field's default allows
    them.
    """

    def validate(_message: object, attribute: attrs.Attribute[Any], value: object) -> None:
        edits = isinstance(attribute.default, Unset)
        if edits and isinstance(value, Unset):
            return
        if value is None and (attribute.default is None or (edits and attribute.name in _ERASABLE)):
            return
        check(value)

    return validate


_ERASABLE = frozenset({"goal", "attempts_max", "send_backs_max", "budget"})
"""Fields from which `Edit` can take the value away."""


def _name(what: str) -> Callable[[Any], str]:
    return lambda value: check_name(value, what=what)


def _to_priority(value: int | str) -> int:
    return _priority(value)


def _to_mode(value: Mode | str) -> Mode:
    return _mode(value)


def _to_after(value: Iterable[str]) -> tuple[str, ...]:
    return _names(value, "after", NODES_MAX)


def _to_depends_on(value: Iterable[str]) -> tuple[str, ...]:
    return _names(value, "depends_on", DEPENDS_ON_MAX)


def _to_nodes(value: Iterable[Node | Gate]) -> tuple[Node | Gate, ...]:
    return _nodes(value)


def _to_nodes_or_none(value: Iterable[Node | Gate] | None) -> tuple[Node | Gate, ...] | None:
    return None if value is None else _nodes(value)


def _new_priority(value: int | str | Unset) -> int | Unset:
    return value if isinstance(value, Unset) else _priority(value)


def _new_mode(value: Mode | str | Unset) -> Mode | Unset:
    return value if isinstance(value, Unset) else _mode(value)


def _new_depends_on(value: Iterable[str] | Unset) -> tuple[str, ...] | Unset:
    return value if isinstance(value, Unset) else _to_depends_on(value)


def _new_nodes(value: Iterable[Node | Gate] | Unset) -> tuple[Node | Gate, ...] | Unset:
    return value if isinstance(value, Unset) else _nodes(value)


def _payload_text(value: object, what: str = "payload") -> str | None:
    return None if value is None else encode(value, what=what, bytes_max=JSON_BYTES_MAX)


def _moment(value: object, what: str = "not_before") -> datetime:
    """A point in time, in UTC: a datetime with a zone, or its ISO 8601 text with an offset."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InvalidMessage(f"{what} must be a date and time in ISO 8601, not {value!r}") from None
    if not isinstance(value, datetime):
        raise InvalidMessage(f"{what} must be a datetime with a time zone, not {value!r}")
    if value.utcoffset() is None:
        raise InvalidMessage(
            f"{what} {value.isoformat()} has no time zone, so it says no moment: give it one, "
            'as datetime(…, tzinfo=ZoneInfo("Europe/Berlin"))'
        )
    try:
        moment = value.astimezone(UTC)
    except OverflowError:
        moment = None
    if moment is None or not 0 <= _ms(moment) < TIME_MAX_MS:
        raise InvalidMessage(f"{what} must be from 1970 to 9998, not {value.isoformat()}")
    return moment


def _ms(moment: datetime) -> int:
    """Whole milliseconds, rounded up: what may not begin before it does not."""
    return -((_EPOCH - moment) // timedelta(milliseconds=1))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _to_moment(value: datetime | str | None) -> datetime | None:
    return None if value is None else _moment(value)


def _new_moment(value: datetime | str | Unset | None) -> datetime | Unset | None:
    return value if value is None or isinstance(value, Unset) else _moment(value)


# --- nodes --------------------------------------------------------------------------------------------------


@attrs.frozen
class Backoff:
    """Waits between tries: ``base_s`` × ``factor`` ** (tries − 1), at most ``max_s``, plus up to 10 % jitter."""

    base_s: float = attrs.field(default=1.0, validator=_is(lambda v: _seconds(v, "base_s", positive=False)))
    factor: float = attrs.field(default=2.0)
    max_s: float = attrs.field(default=3600.0, validator=_is(lambda v: _seconds(v, "max_s", positive=False)))

    @factor.validator
    def _check_factor(self, _attribute: object, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= 1_000:
            raise InvalidMessage(f"factor must be from 1 to 1000, not {value!r}")


def _backoff(value: object) -> Backoff:
    if not isinstance(value, Backoff):
        raise InvalidMessage(f"retry must be a Backoff, not {value!r}")
    return value


def _stall_s(value: object) -> float | None:
    return None if value is None else _seconds(value, "stall_s")


def _own_name(node: Any) -> str:
    return cast("str", node.name)


@attrs.frozen
class Node:
    """One step of a run, executed by the handler registered under ``handler`` (default: the node's own name).

    ``after`` names the nodes whose results it uses. ``attempts_max`` counts tries, the first included;
    ``None`` takes the task's. ``timeout_s`` bounds one attempt, ``stall_s`` the time in which it says nothing
    (`Context.progress`; waiting does not count). ``None`` is no bound: with both none, a handler that hangs
    keeps its execution slot. ``send_backs_max`` is how often its result may be sent back (`SendBack`); ``None``
    takes the task's. ``estimate``: what one attempt is expected to spend (`Context.spend`), in the units of the
    budgets; so much is reserved while it lives.
    """

    name: str = attrs.field(validator=_is(_name("a node's name")))
    handler: str = attrs.field(
        default=attrs.Factory(_own_name, takes_self=True), validator=_is(_name("a handler's name"))
    )
    after: tuple[str, ...] = attrs.field(default=(), kw_only=True, converter=_to_after)
    payload: Any = attrs.field(default=None, kw_only=True)
    attempts_max: int | None = attrs.field(default=None, kw_only=True, validator=_is(_attempts_max))
    timeout_s: float | None = attrs.field(
        default=None, kw_only=True, validator=_is(lambda v: _seconds(v, "timeout_s"))
    )
    stall_s: float | None = attrs.field(default=STALL_S_DEFAULT, kw_only=True, validator=_is(_stall_s))
    retry: Backoff = attrs.field(factory=Backoff, kw_only=True, validator=_is(_backoff))
    send_backs_max: int | None = attrs.field(default=None, kw_only=True, validator=_is(_send_backs_max))
    estimate: int = attrs.field(default=0, kw_only=True, validator=_is(lambda v: _units(v, "estimate")))
    payload_text: str | None = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(
            self, "payload_text", _payload_text(self.payload, f"payload of node {self.name!r}")
        )


@attrs.frozen
class Gate:
    """A node that waits for a person. It is *reached* when the nodes that it is ``after`` have all succeeded.

    When nothing else of the run can go on, the run halts and its run slot is free. `Approve` answers the gate, also
    while other branches still run: it succeeds with ``{"approved": true, "note": …}``. `SendBack` has the result
    that it judges done again.
    """

    name: str = attrs.field(validator=_is(_name("a gate's name")))
    after: tuple[str, ...] = attrs.field(default=(), kw_only=True, converter=_to_after)
    payload_text: ClassVar[None] = None
    """What a handler would be given; a gate has none."""


def _nodes(value: object) -> tuple[Node | Gate, ...]:
    """The nodes if they form a graph: distinct names, known ``after``, no cycle (walked without recursion)."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidMessage(f"nodes must be a list of Node and Gate, not {value!r}")
    nodes = tuple(value)
    if len(nodes) > NODES_MAX:
        raise InvalidMessage(f"{len(nodes)} nodes are more than the {NODES_MAX} of one run")
    by_name: dict[str, Node | Gate] = {}
    for node in nodes:
        if not isinstance(node, Node | Gate):
            raise InvalidMessage(f"nodes must be Node or Gate, not {node!r}")
        if node.name in by_name:
            raise InvalidMessage(f"two nodes are named {node.name!r}")
        by_name[node.name] = node
    for node in nodes:
        for upstream in node.after:
            if upstream not in by_name:
                raise InvalidMessage(
                    f"node {node.name!r} is after {upstream!r}, which is not a node of this graph"
                )
    _refuse_node_cycle(nodes)
    return nodes


def _refuse_node_cycle(nodes: tuple[Node | Gate, ...]) -> None:
    unmet = {node.name: len(node.after) for node in nodes}
    users: dict[str, list[str]] = {node.name: [] for node in nodes}
    for node in nodes:
        for upstream in node.after:
            users[upstream].append(node.name)
    free = [name for name, count in unmet.items() if count == 0]
    while free:
        name = free.pop()
        del unmet[name]
        for user in users[name]:
            unmet[user] -= 1
            if unmet[user] == 0:
                free.append(user)
    if unmet:
        raise InvalidMessage(f"nodes form a cycle among: {', '.join(sorted(unmet)[:10])}")


# --- replies ------------------------------------------------------------------------------------------------


@attrs.frozen
class Submitted:
    """A task is stored. ``existing`` is true when an equal one was already there under the same key or id."""

    id: str
    seq: int
    run: int
    existing: bool = False


@attrs.frozen
class Moved:
    """Where the task stands now. ``changed`` is false when there was nothing to do.

    ``holders`` names the tasks whose runs hold the run slots when `StartNow` found the company full.
    ``note`` says what else the sender should know.
    """

    id: str
    run: int
    status: RunStatus
    changed: bool = True
    holders: tuple[str, ...] = ()
    note: str | None = None


@attrs.frozen
class CompanySettings:
    """The company's settings after the message."""

    paused: bool
    runs_max: int
    weight: int
    changed: bool = True


@attrs.frozen
class BudgetSettings:
    """The company's budget after the message: the limit (``None``: none), what is spent, and what the attempts that
    live have reserved.
    """

    limit: int | None
    spent: int
    reserved: int
    changed: bool = True


@attrs.frozen
class GoalStopped:
    """Ids of the tasks of the goal that were stopped, or are stopping, by this message."""

    goal: str
    tasks: tuple[str, ...]


@attrs.frozen
class GraphDefined:
    """The graph's newest version; it rises with each definition that differs."""

    name: str
    version: int
    changed: bool = True


@attrs.frozen
class ScheduleSettings:
    """A schedule after the message. ``next_ms``: the nominal time of its next fire, ms UTC; ``None`` if it was
    removed, or is ``disabled``, which says why.
    """

    name: str
    next_ms: int | None
    paused: bool = False
    disabled: str | None = None
    changed: bool = True


@attrs.frozen
class Unparked:
    """Whether the company was parked."""

    was_parked: bool


# --- messages about tasks -----------------------------------------------------------------------------------


def _task_id(value: object) -> str:
    return check_name(value, what="a task id")


def _chosen_id(value: object) -> str:
    name = check_name(value, what="a task id")
    if re.fullmatch(r"@[0-9]+", name):
        raise InvalidMessage(
            f"task id {name!r}: ids of @ and a number are given by the queue; choose another"
        )
    return name


@attrs.frozen
class Submit(Message[Submitted]):
    """Add a task. Give ``handler`` (one node of that name), ``nodes``, ``graph`` (a name), or none: a run
    without nodes.

    ``priority``: lower first, "P2" means 2. ``mode="manual"`` waits for `Start`; ``mode="step"`` halts before each
    node's start, and `Next` lets one start. ``depends_on``: ids in this company whose newest runs must be completed.
    ``id`` and ``key`` are unique in the company while the task's row lives: the same content again returns the
    existing task, other content is a conflict. ``attempts_max`` is the tries of nodes that do not say their own,
    ``send_backs_max`` how often the result of such a node may be sent back. ``fail_fast``: the first node that
    gives up stops the others; gates that are reached are then not waited for. ``not_before``: a datetime with a time
    zone (or its ISO 8601 text with an offset) before which it does not start, but for `StartNow`. ``budget``: what all
    its runs may spend together (`Context.spend`), beside the company's budget; 0: nothing of it starts.
    """

    title: str = attrs.field(validator=_is(_title))
    handler: str | None = attrs.field(default=None, kw_only=True, validator=_is(_name("a handler's name")))
    nodes: tuple[Node | Gate, ...] | None = attrs.field(
        default=None, kw_only=True, converter=_to_nodes_or_none
    )
    graph: str | None = attrs.field(default=None, kw_only=True, validator=_is(_name("a graph's name")))
    payload: Any = attrs.field(default=None, kw_only=True)
    priority: int = attrs.field(default=PRIORITY_DEFAULT, kw_only=True, converter=_to_priority)
    mode: Mode = attrs.field(default=Mode.AUTO, kw_only=True, converter=_to_mode)
    depends_on: tuple[str, ...] = attrs.field(default=(), kw_only=True, converter=_to_depends_on)
    goal: str | None = attrs.field(default=None, kw_only=True, validator=_is(_name("a goal's name")))
    id: str | None = attrs.field(default=None, kw_only=True, validator=_is(_chosen_id))
    key: str | None = attrs.field(default=None, kw_only=True, validator=_is(_name("an idempotency key")))
    attempts_max: int | None = attrs.field(default=None, kw_only=True, validator=_is(_attempts_max))
    fail_fast: bool = attrs.field(default=False, kw_only=True, validator=_is(lambda v: _bool(v, "fail_fast")))
    not_before: datetime | None = attrs.field(default=None, kw_only=True, converter=_to_moment)
    send_backs_max: int | None = attrs.field(default=None, kw_only=True, validator=_is(_send_backs_max))
    budget: int | None = attrs.field(default=None, kw_only=True, validator=_is(_budget))
    payload_text: str | None = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        if sum(given is not None for given in (self.handler, self.nodes, self.graph)) > 1:
            raise InvalidMessage("give one of handler, nodes and graph, not several")
        if self.id is not None and self.id in self.depends_on:
            raise InvalidMessage(f"task {self.id!r} depends on itself")
        object.__setattr__(self, "payload_text", _payload_text(self.payload))

    @property
    def not_before_ms(self) -> int | None:
        """``not_before`` as integer milliseconds UTC."""
        return None if self.not_before is None else _ms(self.not_before)


def _submits(value: object) -> tuple[Submit, ...]:
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

    tasks: tuple[Submit, ...] = attrs.field(converter=_submits)


@attrs.frozen
class Start(Message[Moved]):
    """Open the gate of a manual task."""

    task: str = attrs.field(validator=_is(_task_id))


@attrs.frozen
class StartNow(Message[Moved]):
    """Put a task first in order and open its manual gate, its not-before and the company's pause for it; never
    dependencies or limits.
    """

    task: str = attrs.field(validator=_is(_task_id))


@attrs.frozen
class Stop(Message[Moved]):
    """Stop the newest run. A live attempt gets the grace; then its slot is taken from it."""

    task: str = attrs.field(validator=_is(_task_id))
    control: ClassVar[bool] = True


@attrs.frozen
class Retry(Message[Moved]):
    """Go on with a failed or stopped run, or one that is halted on budget: kept results stay, the other nodes get a
    fresh allowance. What waits for a person at a gate or before a step is not retried: see `Approve`, `Next`,
    `SendBack`. Refused with the numbers while the budget is still short.
    """

    task: str = attrs.field(validator=_is(_task_id))


@attrs.frozen
class Next(Message[Moved]):
    """Let the next node of a halted task of ``mode="step"`` start: the first in the graph that is ready. Its further
    tries need no `Next` of their own.
    """

    task: str = attrs.field(validator=_is(_task_id))


@attrs.frozen
class Approve(Message[Moved]):
    """Answer a gate that is reached: it succeeds with ``{"approved": true, "note": note}``. A halted run goes on at
    its old place in the line.
    """

    task: str = attrs.field(validator=_is(_task_id))
    gate: str = attrs.field(validator=_is(_name("a gate's name")))
    note: str | None = attrs.field(default=None, validator=_is(lambda v: _words(v, "note")))


@attrs.frozen
class SendBack(Message[Moved]):
    """Have the result of ``node`` done again, with ``feedback`` for every attempt at it (`Context.feedback`).

    In a run that is not completed it is reset in its place, with every node that used the result; attempts of those
    that live are superseded: what they return is late. Of a completed one a new run is made, which keeps the other
    results. The generation of what is reset rises. Refused without a result to judge, for blank feedback
    (`InvalidMessage`), and after ``send_backs_max`` times.
    """

    task: str = attrs.field(validator=_is(_task_id))
    node: str = attrs.field(validator=_is(_name("a node's name")))
    feedback: str = attrs.field(validator=_is(_feedback))


@attrs.frozen
class Rerun(Message[Moved]):
    """Do the task again as a new run, with ``payload`` in place of the task's if it is given.

    From the beginning; or with ``from_node`` from that node on, where the new run keeps the results of all nodes that
    do not use its result, and without another ``payload`` also the payload of the run before it.
    """

    task: str = attrs.field(validator=_is(_task_id))
    from_node: str | None = attrs.field(default=None, kw_only=True, validator=_is(_name("a node's name")))
    payload: Any = attrs.field(default=UNSET, kw_only=True)
    payload_text: str | None = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        text = None if isinstance(self.payload, Unset) else encode(self.payload, what="payload")
        object.__setattr__(self, "payload_text", text)


@attrs.frozen
class Edit(Message[Moved]):
    """Change a task. ``priority``, ``attempts_max``, ``send_backs_max`` and ``budget`` count at once; the rest at the
    next admission.

    ``depends_on``, ``not_before`` and the nodes are read at a run's first admission, so for a run that was
    admitted they count from the next run on. ``not_before=None`` takes it away.
    """

    task: str = attrs.field(validator=_is(_task_id))
    priority: int | Unset = attrs.field(default=UNSET, kw_only=True, converter=_new_priority)
    attempts_max: int | Unset | None = attrs.field(default=UNSET, kw_only=True, validator=_is(_attempts_max))
    title: str | Unset = attrs.field(default=UNSET, kw_only=True, validator=_is(_title))
    payload: Any = attrs.field(default=UNSET, kw_only=True)
    mode: Mode | Unset = attrs.field(default=UNSET, kw_only=True, converter=_new_mode)
    goal: str | Unset | None = attrs.field(default=UNSET, kw_only=True, validator=_is(_name("a goal's name")))
    depends_on: tuple[str, ...] | Unset = attrs.field(default=UNSET, kw_only=True, converter=_new_depends_on)
    handler: str | Unset = attrs.field(default=UNSET, kw_only=True, validator=_is(_name("a handler's name")))
    nodes: tuple[Node | Gate, ...] | Unset = attrs.field(default=UNSET, kw_only=True, converter=_new_nodes)
    graph: str | Unset = attrs.field(default=UNSET, kw_only=True, validator=_is(_name("a graph's name")))
    fail_fast: bool | Unset = attrs.field(
        default=UNSET, kw_only=True, validator=_is(lambda v: _bool(v, "fail_fast"))
    )
    not_before: datetime | Unset | None = attrs.field(default=UNSET, kw_only=True, converter=_new_moment)
    send_backs_max: int | Unset | None = attrs.field(
        default=UNSET, kw_only=True, validator=_is(_send_backs_max)
    )
    budget: int | Unset | None = attrs.field(default=UNSET, kw_only=True, validator=_is(_budget))
    payload_text: str | None = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        if not self.changes:
            raise InvalidMessage("Edit changes nothing: give at least one field")
        if len(self.changes & {"handler", "nodes", "graph"}) > 1:
            raise InvalidMessage("give one of handler, nodes and graph, not several")
        text = None if isinstance(self.payload, Unset) else _payload_text(self.payload)
        object.__setattr__(self, "payload_text", text)

    @property
    def changes(self) -> frozenset[str]:
        """Names of the fields that were given."""
        return frozenset(name for name in EDIT_FIELDS if not isinstance(getattr(self, name), Unset))

    @property
    def not_before_ms(self) -> int | None:
        """``not_before`` as integer milliseconds UTC; ``None`` also where it is left as it is."""
        return _ms(self.not_before) if isinstance(self.not_before, datetime) else None

    @property
    def at_once(self) -> bool:
        """Whether every given field counts at once."""
        return self.changes <= {"priority", "attempts_max", "send_backs_max", "budget"}


EDIT_FIELDS = (
    "priority",
    "attempts_max",
    "title",
    "payload",
    "mode",
    "goal",
    "depends_on",
    "handler",
    "nodes",
    "graph",
    "fail_fast",
    "not_before",
    "send_backs_max",
    "budget",
)


@attrs.frozen
class Archive(Message[Moved]):
    """Put a task away: in no queue and no sweep; it answers only `Unarchive` and reads. Refused while active."""

    task: str = attrs.field(validator=_is(_task_id))


@attrs.frozen
class Unarchive(Message[Moved]):
    """Bring an archived task back as it was when it was put away."""

    task: str = attrs.field(validator=_is(_task_id))


# --- messages about the company -----------------------------------------------------------------------------


@attrs.frozen
class DefineGraph(Message[GraphDefined]):
    """Give a graph a name. A run copies the newest definition at its first admission; runs admitted before
    keep theirs.
    """

    name: str = attrs.field(validator=_is(_name("a graph's name")))
    nodes: tuple[Node | Gate, ...] = attrs.field(converter=_to_nodes)


@attrs.frozen
class Pause(Message[CompanySettings]):
    """Stop admission and new attempts; live attempts finish, runs keep their slots. Only `Unpause` ends it."""

    control: ClassVar[bool] = True


@attrs.frozen
class Unpause(Message[CompanySettings]):
    """End a `Pause`: whatever is due starts."""

    control: ClassVar[bool] = True


@attrs.frozen
class SetLimits(Message[CompanySettings]):
    """``runs_max``: how many runs of the company may be active at once; 0 holds everything. Lowering it
    stops nothing. ``weight``: how many execution slots in a row the company gets in each round.
    """

    runs_max: int | Unset = attrs.field(
        default=UNSET, kw_only=True, validator=_is(lambda v: _whole(v, "runs_max", 0, RUNS_MAX_LIMIT))
    )
    weight: int | Unset = attrs.field(
        default=UNSET, kw_only=True, validator=_is(lambda v: _whole(v, "weight", 1, WEIGHT_LIMIT))
    )
    control: ClassVar[bool] = True

    def __attrs_post_init__(self) -> None:
        if isinstance(self.runs_max, Unset) and isinstance(self.weight, Unset):
            raise InvalidMessage("SetLimits changes nothing: give runs_max or weight")


def _limit(value: object) -> int | None:
    return None if value is None else _units(value, "limit", LIMIT_MAX)


@attrs.frozen
class SetBudget(Message[BudgetSettings]):
    """What the company may spend in all, what it has spent so far included, in whole units of the host's choice
    (tokens, cents). ``None``: no limit; 0: nothing starts.

    An attempt starts if what is spent, what others have reserved and its own estimate are within the limit
    (`Node.estimate`). What waits for the budget starts by itself when it is raised; a run that was halted on it needs
    `Retry`. Lowering it stops nothing. The budget of one task is a field of `Submit` and `Edit`.
    """

    limit: int | None = attrs.field(validator=lambda _message, _attribute, value: _limit(value))


@attrs.frozen
class StopGoal(Message[GoalStopped]):
    """`Stop` every unsettled task of a goal, in one commit."""

    goal: str = attrs.field(validator=_is(_name("a goal's name")))
    control: ClassVar[bool] = True


@attrs.frozen
class Unpark(Message[Unparked]):
    """End the rest of a company whose actor crashed too often, and forget its crashes."""

    control: ClassVar[bool] = True


# --- messages about schedules -------------------------------------------------------------------------------


def _schedule_name(value: object) -> str:
    return check_name(value, what="a schedule's name")


def _to_every(value: float | timedelta | None) -> float | None:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if value is None:
        return None
    seconds = _seconds(value, "every")
    if round(seconds * 1000) < EVERY_MIN_MS:
        raise InvalidMessage(f"every must be at least {EVERY_MIN_MS // 1000} s, not {seconds} s")
    return seconds


def _to_overlap(value: Overlap | str) -> Overlap:
    try:
        return Overlap(str(value))
    except ValueError:
        raise InvalidMessage(f'overlap must be "skip" or "queue", not {value!r}') from None


def _to_misfire(value: Misfire | str) -> Misfire:
    try:
        return Misfire(str(value))
    except ValueError:
        raise InvalidMessage(f'misfire must be "latest" or "skip", not {value!r}') from None


def _to_jitter_s(value: float) -> float:
    seconds = _seconds(value, "jitter_s", positive=False)
    if seconds > JITTER_S_LIMIT:
        raise InvalidMessage(f"jitter_s must be at most a day ({JITTER_S_LIMIT:.0f} s), not {seconds}")
    return seconds


def _template(value: object) -> Submit:
    if not isinstance(value, Submit):
        raise InvalidMessage(f"a schedule's task must be a Submit, not {value!r}")
    for name in ("id", "key", "not_before"):
        if getattr(value, name) is not None:
            raise InvalidMessage(
                f"a schedule's task must not have {name}: each fire makes a task of its own, at its own time"
            )
    return value


@attrs.frozen
class SetSchedule(Message[ScheduleSettings]):
    """Make a schedule, or change the one of this name. Every fire submits ``task`` anew.

    ``cron``: five fields, read on the clock of ``zone`` (an IANA name; UTC if it is left out). ``every``: seconds (or
    a timedelta) from now and from then on. ``overlap``: what to do at a fire while a task of the schedule is not
    settled: ``"skip"`` it or ``"queue"`` it. ``misfire``: after an absence, fire once for the ``"latest"`` time that
    was missed, or ``"skip"`` them all; a fire that is less than a minute late was not missed. ``jitter_s``: each fire's
    task starts up to so many seconds later, the same for the same fire.

    The same again changes nothing. A new ``cron``, ``every`` or ``zone`` counts from its next time on and fires
    nothing by itself; a paused schedule stays paused; a disabled one is enabled. Raises `InvalidMessage` for a
    cron text that no date fits.
    """

    name: str = attrs.field(validator=_is(_schedule_name))
    cron: str | None = attrs.field(default=None, kw_only=True)
    every: float | None = attrs.field(default=None, kw_only=True, converter=_to_every)
    zone: str | None = attrs.field(default=None, kw_only=True)
    task: Submit = attrs.field(kw_only=True, validator=_is(_template))
    overlap: Overlap = attrs.field(default=Overlap.SKIP, kw_only=True, converter=_to_overlap)
    misfire: Misfire = attrs.field(default=Misfire.LATEST, kw_only=True, converter=_to_misfire)
    jitter_s: float = attrs.field(default=0.0, kw_only=True, converter=_to_jitter_s)

    def __attrs_post_init__(self) -> None:
        if (self.cron is None) == (self.every is None):
            raise InvalidMessage("give one of cron and every")
        if self.cron is None:
            if self.zone is not None:
                raise InvalidMessage("zone belongs to cron: an interval is the same in every zone")
            return
        for what, value in (("cron", self.cron), ("zone", self.zone)):
            if value is not None and not isinstance(value, str):
                raise InvalidMessage(f"{what} must be text, not {value!r}")
        cron_of(self.cron, "UTC" if self.zone is None else self.zone)

    @property
    def every_ms(self) -> int | None:
        """``every`` as integer milliseconds."""
        return None if self.every is None else round(self.every * 1000)

    @property
    def jitter_ms(self) -> int:
        """``jitter_s`` as integer milliseconds."""
        return round(self.jitter_s * 1000)


@attrs.frozen
class PauseSchedule(Message[ScheduleSettings]):
    """Hold a schedule until `ResumeSchedule`. It stays paused over restarts and changes; `RunNow` still works."""

    name: str = attrs.field(validator=_is(_schedule_name))


@attrs.frozen
class ResumeSchedule(Message[ScheduleSettings]):
    """End a `PauseSchedule`. What fell due meanwhile follows the schedule's misfire rule, at once."""

    name: str = attrs.field(validator=_is(_schedule_name))


@attrs.frozen
class RemoveSchedule(Message[ScheduleSettings]):
    """Take a schedule away. Tasks that it made stay."""

    name: str = attrs.field(validator=_is(_schedule_name))


@attrs.frozen
class RunNow(Message[Submitted]):
    """Submit the schedule's task now, besides its times: the next fire stays where it was. The task counts for
    overlap, but this message does not ask whether another one is under way.
    """

    name: str = attrs.field(validator=_is(_schedule_name))
