"""What a turn must read before it can decide: rows that its messages name and memory does not hold."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from actors.messages import Edit, Message, Submit, SubmitMany, Unset

from .state import CompanyState


@attrs.frozen
class Needs:
    """``ids``: tasks to load; ``keys``: idempotency keys to look up; ``closure``: tasks whose upstreams,
    all the way up, are asked.
    """

    ids: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    content: frozenset[str] = frozenset()
    closure: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.ids or self.keys or self.content or self.closure)


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


def needs_of(state: CompanyState, messages: Iterable[Message[object]]) -> Needs:
    """What these messages need, in one reading."""
    ids: set[str] = set()
    keys: set[str] = set()
    content: set[str] = set()
    closure: set[str] = set()
    for message in messages:
        if isinstance(message, Submit | SubmitMany):
            for submit in (message,) if isinstance(message, Submit) else message.tasks:
                ids.update(submit.depends_on)
                if submit.id is not None:
                    content.add(submit.id)
                if submit.key is not None:
                    keys.add(submit.key)
        elif isinstance(message, Edit) and not isinstance(message.depends_on, Unset):
            ids.update(message.depends_on)
            ids.add(message.task)
            closure.update(message.depends_on)
        else:
            task = getattr(message, "task", None)
            if isinstance(task, str):
                ids.add(task)
    return Needs(
        frozenset(task for task in ids if task not in state.entries),
        frozenset(keys),
        frozenset(content),
        frozenset(closure),
    )
