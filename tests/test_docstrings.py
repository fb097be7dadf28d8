"""What docstrings say of modules and fields is true of the code."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType

import attrs
import pytest

import actors.errors
import actors.messages
import actors.runtime.mailbox
import storage
import storage.contract
import storage.errors

TABLES = [storage, storage.contract, actors.messages]


@pytest.mark.parametrize("package", TABLES, ids=lambda package: str(package.__name__))
def test_the_table_of_a_package_lists_the_modules_that_it_has(package: ModuleType) -> None:
    rows = re.findall(r"^\| (`[^|]*) \|", package.__doc__ or "", re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    folder = Path(package.__path__[0])
    there = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    there |= {path.parent.name for path in folder.glob("*/__init__.py")}
    assert sorted(listed) == sorted(there)


def classes_of(module: ModuleType) -> list[type]:
    return [
        one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__
    ]


ERRORS = [kind for module in (actors.errors, storage.errors) for kind in classes_of(module)]
RECORDS = [
    kind for module in (actors.messages.replies, actors.messages.views, actors.runtime.mailbox)
    for kind in classes_of(module) if attrs.has(kind)
]  # fmt: skip
NOT_FIELDS = {"depends_on", "status", "tasks", "tell", "ask", "tell_nowait", "graph", "after", "floor"}
"""Names in the docstrings of errors that are those of methods, of arguments, and of fields of messages."""


def named(kind: type) -> set[str]:
    """The plain names that a class's docstring quotes as code."""
    return set(re.findall(r"``([a-z]\w*)``", kind.__doc__ or ""))


def fields_of(kind: type) -> set[str]:
    if attrs.has(kind):
        return {field.name for field in attrs.fields(kind)}
    return set(inspect.signature(kind).parameters) if "__init__" in vars(kind) else set()


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: str(kind.__name__))
def test_an_error_speaks_of_fields_that_it_has(kind: type) -> None:
    assert named(kind) <= fields_of(kind) | NOT_FIELDS


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: str(kind.__name__))
def test_a_reply_and_a_view_speak_of_fields_that_they_have(kind: type) -> None:
    assert named(kind) <= fields_of(kind)
