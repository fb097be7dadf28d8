"""What a turn must read before it can decide: rows that its messages name and memory does not hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from actors.codec import template_of
from actors.messages import (
    Edit,
    Message,
    Rerun,
    Retry,
    RunNow,
    SendBack,
    SetSchedule,
    StartNow,
    Submit,
    SubmitMany,
    Unset,
)
from storage.records import ScheduleRecord

from .budget import Booked
from .effects import AttemptKey
from .schedules.firing import ON_TIME_MS, Fired, needs_fired
from .schedules.state import due_of
from .state import CompanyState
from .task_state import current_node

AHEAD_MAX = 200
"""Schedules that one turn looks up after the wall clock went back: as many as it can move."""


@attrs.frozen
class Needs:
    """``ids``: tasks to load; ``keys``: idempotency keys to look up; ``closure``: tasks whose upstreams,
    all the way up, are asked, because a new edge may close a circle through tasks that are done. ``fired``:
    schedules of which it is asked which nominal times have fired, with the time from which. ``templates``:
    schedules whose tasks' upstreams are among ``ids``. ``booked``: attempts that have ended and say what they spent.
    """

    ids: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    content: frozenset[str] = frozenset()
    closure: frozenset[str] = frozenset()
    fired: Mapping[str, int] = attrs.field(factory=dict)
    templates: frozenset[str] = frozenset()
    booked: tuple[AttemptKey, ...] = ()

    def __bool__(self) -> bool:
        return bool(
            self.ids
            or self.keys
            or self.content
            or self.closure
            or self.fired
            or self.templates
            or self.booked
        )


NOTHING = Needs()


@attrs.frozen
class Prefetched:
    """What the reading found. ``contents``: digest by task id; ``edges``: task → upstreams, for those asked
    in ``closure``.
    """

    known: frozenset[str] = frozenset()
    """Ids that exist, whether or not they were taken into memory."""
    contents: dict[str, str | None] = attrs.field(factory=dict)
    keys: dict[str, str] = attrs.field(factory=dict)
    edges: dict[str, tuple[str, ...]] = attrs.field(factory=dict)
    fired: dict[str, Fired] = attrs.field(factory=dict)
    templates: frozenset[str] = frozenset()
    booked: Mapping[AttemptKey, Booked] = attrs.field(factory=dict)


NOTHING_FOUND = Prefetched()


def needs_of(
    state: CompanyState,
    messages: Sequence[Message[object]],
    now_ms: int,
    ended: tuple[AttemptKey, ...] = (),
) -> Needs:
    """What these messages need, and the schedules that have something to do at ``now_ms``, in one reading.

    ``ended``: attempts that say what they spent and are not running any more.
    """
    if not messages and not state.schedules.by_name:
        return Needs(booked=ended) if ended else NOTHING
    ids: set[str] = set()
    keys: set[str] = set()
    content: set[str] = set()
    closure: set[str] = set()
    joins = False
    fired, templates = _schedule_needs(state, now_ms, ids)
    for message in messages:
        if isinstance(message, Submit | SubmitMany):
            for submit in (message,) if isinstance(message, Submit) else message.tasks:
                closure.update(submit.depends_on)
                if submit.id is not None:
                    content.add(submit.id)
                if submit.key is not None:
                    keys.add(submit.key)
                joins = joins or submit.id in state.missing
        elif isinstance(message, Edit) and not isinstance(message.depends_on, Unset):
            ids.add(message.task)
            closure.update(message.depends_on)
            joins = True
        elif isinstance(message, SetSchedule):
            ids.update(message.task.depends_on)
            fired[message.name] = now_ms
        elif isinstance(message, RunNow):
            record = state.schedules.by_name.get(message.name)
            ids.update(() if record is None or record.bad is not None else template_needs(record))
        else:
            task = getattr(message, "task", None)
            if isinstance(task, str):
                ids.add(task)
                ids.update(_upstreams_again(state, message, task))
    ids |= closure
    return Needs(
        frozenset(task for task in ids if task not in state.entries or not state.entries[task].readable),
        frozenset(keys),
        frozenset(content),
        frozenset(closure) if joins else frozenset(),
        fired,
        templates,
        ended,
    )


def late_spenders(state: CompanyState, keys: Iterable[AttemptKey]) -> tuple[AttemptKey, ...]:
    """Of attempts that say what they spent, those whose end is committed."""
    return tuple([key for key in keys if not _is_running(state, key)])


def _is_running(state: CompanyState, key: AttemptKey) -> bool:
    entry = state.entries.get(key.task)
    return entry is not None and current_node(entry, key) is not None


def _schedule_needs(state: CompanyState, now_ms: int, ids: set[str]) -> tuple[dict[str, int], frozenset[str]]:
    """Of the schedules that have something to do, what is not in their rows; seldom anything. Adds to ``ids``.

    Of those that are due it is asked for the first alone: the others have their turn after it.
    """
    schedules = state.schedules
    if not schedules.by_name:
        return {}, frozenset()
    fired = {record.name: now_ms - ON_TIME_MS for record in schedules.ahead_of(now_ms)[:AHEAD_MAX]}
    first = None if state.company.paused_ms is not None else schedules.first()
    due = None if first is None else due_of(first)
    if first is None or due is None or due > now_ms:
        return fired, frozenset()
    if needs_fired(first):
        fired[first.name] = min(due, first.next_ms or due, fired.get(first.name, due))
    upstreams = template_needs(first)
    ids.update(upstreams)
    return fired, frozenset({first.name} if upstreams else ())


def template_needs(record: ScheduleRecord) -> tuple[str, ...]:
    """The upstreams of a schedule's task."""
    return template_of(record.template).depends_on if '"depends_on":' in record.template else ()


def _upstreams_again(state: CompanyState, message: Message[object], task: str) -> tuple[str, ...]:
    """A settled task waits for its upstreams again if it is revived; until then memory need not hold them."""
    entry = state.entries.get(task)
    revives = isinstance(message, Retry | StartNow | Rerun | SendBack)
    return entry.task.depends_on if revives and entry is not None else ()
