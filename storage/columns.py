"""Which fields of the records a statement writes or reads, in which order: the one place that says so.

The order is that of the records' fields; here stand only the fields that a statement leaves out. The
statements in ``sql/queries.sql`` list their columns in the same order, which a test compares.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from enum import Enum
from operator import attrgetter, itemgetter
from typing import Any, Final, TypeVar, get_args, get_type_hints

from storage.records import AttemptRecord, CompanyRecord, EventRecord, NodeRecord, RunRecord, TaskRecord
from storage.values import names_of

T = TypeVar("T")
Row = tuple[Any, ...]


def fields(kind: type[Any], *, without: Collection[str] = ()) -> tuple[str, ...]:
    """The names of a record's fields, in their order. Raises ``ValueError`` if one that is left out is unknown."""
    names = names_of(kind)
    if unknown := set(without) - set(names):
        raise ValueError(f"{kind.__name__} has no field {', '.join(sorted(unknown))}")
    return tuple(name for name in names if name not in without)


# --- written ------------------------------------------------------------------------------------------------

UPDATE_COMPANY: Final = (*fields(CompanyRecord, without=("company_id", "name", "epoch")), "company_id")
INSERT_TASK: Final = ("company_id", *fields(TaskRecord, without=("depends_on", "not_before_ms", "schedule")))
"""The texts of a task come after these; the rest of it is written by statements of its own."""
UPDATE_TASK: Final = (
    *(name for name in INSERT_TASK if name not in ("company_id", "seq", "id", "created_ms")),
    *("company_id", "seq"),
)
INSERT_RUN: Final = ("company_id", *fields(RunRecord))
UPDATE_RUN: Final = (
    *fields(RunRecord, without=("seq", "number", "created_ms")),
    *("company_id", "seq", "number"),
)
INSERT_NODE: Final = ("company_id", *fields(NodeRecord, without=("spent",)), "result")
UPDATE_NODE: Final = (
    *fields(NodeRecord, without=("seq", "run", "pos", "spec", "spent")),
    *("result", "company_id", "seq", "run", "pos"),
)
INSERT_ATTEMPT: Final = (
    "company_id",
    *fields(AttemptRecord, without=("ended_ms", "end", "error", "spent", "assumed")),
)
END_ATTEMPT: Final = (
    *("ended_ms", "end", "error", "spent", "assumed"),
    *("company_id", "seq", "run", "pos", "number"),
)
INSERT_EVENT: Final = ("company_id", "event_seq", *fields(EventRecord))
"""``event_seq`` is the column ``seq``; ``data`` is written as a text."""


def row_of(kind: type[T], names: Sequence[str], *given: str) -> Callable[..., Row]:
    """The function that takes a record, and the values of the columns ``given``, and returns the named columns as
    SQLite stores them.

    Enumerations and booleans are converted: SQLite takes them only by way of an adapter, which is slower.
    """
    hints = get_type_hints(kind)
    own = [name for name in names if name not in given]
    read = attrgetter(*own)
    converted = [(place, one) for place, name in enumerate(own) if (one := _stored(hints[name])) is not None]
    in_order = itemgetter(*map([*own, *given].index, names))

    def row(record: T, *values: Any) -> Row:
        made = [*read(record), *values]
        for place, convert in converted:
            made[place] = convert(made[place])
        ordered: Row = in_order(made)
        return ordered

    return row


def _stored(hint: Any) -> Callable[[Any], Any] | None:
    """What makes a value of the field one that SQLite stores; ``None`` if it is one."""
    kind = _plain(hint)
    if issubclass(kind, Enum):
        return attrgetter("value")
    return int if kind is bool else None


def _plain(hint: Any) -> type[Any]:
    """The class of a field; of one that may be ``None``, what it is otherwise."""
    kinds = [one for one in get_args(hint) or (hint,) if isinstance(one, type) and one is not type(None)]
    return kinds[0] if len(kinds) == 1 else object


# --- read ---------------------------------------------------------------------------------------------------

TASK_READ: Final = fields(TaskRecord, without=("depends_on",))
RUN_READ: Final = fields(RunRecord, without=("seq",))
"""Read together with its task, whose ``seq`` is the run's."""
NODE_READ: Final = fields(NodeRecord)
RUN_BEGINS: Final = len(TASK_READ)
WHY: Final = RUN_BEGINS + len(RUN_READ)
"""Where a row of a task with its run says why the task is quarantined."""


def record_of(kind: type[T]) -> Callable[[Sequence[Any]], T]:
    """The function that makes a record of the values of all its fields, as SQLite returns them.

    It raises ``ValueError`` for a value that an enumeration does not have.
    """
    hints = get_type_hints(kind)
    kinds = [(place, _plain(hints[name])) for place, name in enumerate(names_of(kind))]
    converted = [(place, one) for place, one in kinds if one is bool or issubclass(one, Enum)]

    def build(values: Sequence[Any]) -> T:
        made = list(values)
        for place, convert in converted:
            made[place] = convert(made[place])
        return kind(*made)

    return build
