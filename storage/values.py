"""Values of our own: attrs classes that nobody changes, and that cost no more than classes which could be.

``attrs.frozen`` guards each field at run time, which makes an object twice as dear; a turn makes dozens. Here
the type checker is the guard: to it these classes are frozen. What a host gets into its hands is
``attrs.frozen`` all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

import attrs

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(attrs.field,))
def value(cls: type[T]) -> type[T]:
    """Make the class a value: slots, equality by fields, no hash."""
    return attrs.define(cls)


def changed(record: T, **fields: Any) -> T:
    """A copy of a `value` with other fields. As ``attrs.evolve``, which asks anew each time what fields there are.

    Raises ``KeyError`` for a field that the class does not have.
    """
    cls: Any = type(record)
    read, places = _layout(cls)
    values = list(read(record))
    for name, new in fields.items():
        values[places[name]] = new
    copy: T = cls(*values)
    return copy


def names_of(cls: Any) -> tuple[str, ...]:
    """The names of the fields of a `value`, in their order."""
    return tuple(field.name for field in attrs.fields(cls))


@cache
def _layout(cls: Any) -> tuple[Callable[[object], tuple[Any, ...]], Mapping[str, int]]:
    names = names_of(cls)
    return attrgetter(*names), {name: place for place, name in enumerate(names)}
