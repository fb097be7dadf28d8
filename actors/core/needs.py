"""What a turn must read before it can decide: rows that its messages name and memory does not hold."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from actors.messages import Edit, Message, Rerun, Retry, StartNow, Submit, SubmitMany, Unset

from .state import CompanyState


@attrs.frozen
class Needs:
    """``ids``: tasks to load; ``keys``: idempotency keys to look up; ``closure``: tasks whose upstreams,
    all the way up, are asked, because a new edge may close a circle through tasks that are done.
    """

    ids: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    content: frozenset[str] = frozenset()
    closure: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.ids or self.keys or self.content or self.closure)


NOTHING = Needs()


@attrs.frozen
class Looked:
    """What the reading found. ``contents``: digest by task id; ``edges``: task → upstreams, for those asked
    in ``closure``.
    """

    known: frozenset[str] = frozenset()
    """Ids that exist, whether or not they were taken into memory."""
    contents: dict[str, str | None] = attrs.field(factory=dict)
    keys: dict[str, str] = attrs.field(factory=dict)
    edges: dict[str, tuple[str, ...]] = attrs.field(factory=dict)


NOTHING_FOUND = Looked()


def needs_of(state: CompanyState, messages: Sequence[Message[object]]) -> Needs:
    """What these messages need, in one reading."""
    if not messages:
        return NOTHING
    ids: set[str] = set()
    keys: set[str] = set()
    content: set[str] = set()
    closure: set[str] = set()
    joins = False
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
    )


def _upstreams_again(state: CompanyState, message: Message[object], task: str) -> tuple[str, ...]:
    """A settled task waits for its upstreams again if it is revived; until then memory need not hold them."""
    entry = state.entries.get(task)
    revives = isinstance(message, Retry | StartNow | Rerun)
    return entry.task.depends_on if revives and entry is not None else ()
