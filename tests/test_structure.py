"""The shape of the tree: imports go one way, the pure middle is pure, and the public surface is what is documented."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import actors
import actors.testing
from storage.sqlite.statements import SQL

ROOT = Path(__file__).parents[1]
FILES = sorted([*ROOT.glob("actors/**/*.py"), *ROOT.glob("storage/**/*.py")])


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path, *, types_too: bool = True) -> Iterator[str]:
    """Absolute names of what the file imports, wherever in it."""
    package = module_of(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    tree = ast.parse(path.read_text("utf-8"))
    skipped = set() if types_too else _type_checking(tree)
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            yield name
            yield from (f"{name}.{alias.name}" for alias in node.names)


def _type_checking(tree: ast.AST) -> set[ast.AST]:
    """Everything under ``if TYPE_CHECKING``: it is not imported when the program runs."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            found.update(child for part in node.body for child in ast.walk(part))
    return found


LEAVES = (
    "actors.errors",
    "actors.messages",
    "actors.events",
    "actors.runtime.retention.policy",
    "actors.messages.views",
    "actors.recurrence",
    "actors.retention",
    "actors.recurrence",
)
PURE = (
    "trio",
    "time",
    "datetime",
    "random",
    "os",
    "sqlite3",
    "threading",
    "asyncio",
    "aiosqlite",
    "structlog",
    "pathlib",
)
MAY: dict[str, tuple[str, ...]] = {
    # whoever begins with the key may import of our own only what begins with one of these
    "storage.": ("storage",),
    "actors.errors": ("storage.errors", "storage.codec"),
    "actors.messages": (
        "storage.codec",
        "storage.records",
        "actors.errors",
        "actors.recurrence",
        "actors.messages",
    ),
    "actors.recurrence": ("actors.errors",),
    "actors.events": (),
    "actors.runtime.retention.policy": ("storage.contract.retention",),
    "actors.messages.views": ("storage.records",),
    "actors.sentences": ("actors.messages.views",),
    "actors.codec": ("storage.codec", "actors.errors", "actors.messages", "actors.converter"),
    "actors.converter": ("actors.errors", "actors.messages"),
    "actors.core.": (
        "storage.records",
        "storage.values",
        "storage.codec",
        "storage.contract.turns",
        "storage.contract.loading",
        "storage.writes",
        "actors.codec",
        "actors.converter",
        "actors.core",
        *LEAVES,
    ),
    "actors.handlers": ("storage.codec", "storage.logging", "actors.core", *LEAVES),
    "actors.commands": ("actors.processes", "actors.handlers", *LEAVES, "storage.codec"),
    "actors.processes": (),
    "actors.runtime.": (
        "storage",
        "actors.core",
        "actors.runtime",
        "actors.handlers",
        "actors.processes",
        "actors.commands",
        "actors.codec",
        *LEAVES,
    ),
    "actors.host": ("storage", "actors.runtime", "actors.handlers", *LEAVES),
    "actors.testing": ("actors.host", "actors.runtime", "actors.handlers"),
    "actors.cli": ("actors",),
}


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_go_one_way(path: Path) -> None:
    module = module_of(path)
    key = max(
        (k for k in MAY if f"{module}.".startswith(k if k.endswith(".") else f"{k}.")), key=len, default=None
    )
    if module in ("actors", "actors.__main__", "storage"):
        return
    assert key is not None, f"{module} has no place in the order"
    ours = {name for name in imports_of(path, types_too=False) if name.split(".")[0] in ("actors", "storage")}
    strangers = {
        name for name in ours if not any(f"{name}.".startswith(f"{allowed}.") for allowed in MAY[key])
    }
    assert strangers == set()


def test_no_imports_go_in_a_circle() -> None:
    """Not even for types, and not inside a function: a circle has no bottom to begin reading at."""
    modules = {module_of(path): path for path in FILES}
    graph = {
        module: {name for name in imports_of(path) if name in modules and name != module}
        for module, path in modules.items()
        if not path.name.startswith("__")
    }
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("path", [p for p in FILES if module_of(p).startswith("actors.core")], ids=module_of)
def test_the_pure_middle_knows_no_clock_no_chance_and_no_input_or_output(path: Path) -> None:
    assert {name for name in imports_of(path) if name.split(".")[0] in PURE} == set()


@pytest.mark.parametrize("path", [p for p in FILES if module_of(p).startswith("actors.cli")], ids=module_of)
def test_the_command_line_uses_only_the_public_surface(path: Path) -> None:
    """It is the first host. Beside `actors` it knows its own modules and the handler of commands."""
    inner = ("actors.core", "actors.runtime", "storage")
    assert {name for name in imports_of(path) if name.startswith(inner)} == set()


CONVERTED = ("actors.runtime.retention", "actors.runtime.inbox", "actors.runtime.maintenance")


@pytest.mark.parametrize("path", [p for p in FILES if module_of(p).startswith(CONVERTED)], ids=module_of)
def test_retention_and_the_inbox_know_the_store_by_its_contract(path: Path) -> None:
    engine = ("sqlite3", "storage.sqlite")
    assert {name for name in imports_of(path, types_too=False) if name.startswith(engine)} == set()


ENGINE_DOORS = {"actors.runtime.opening"}
"""Where stores are opened, and nothing but opened: the only modules of `actors` that may know an engine."""
SQL_TEXT = re.compile(
    r"\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|ALTER|PRAGMA|BEGIN|SAVEPOINT|WITH)\s", re.ASCII
)
CONNECTION_METHODS = {
    "execute",
    "executemany",
    "executescript",
    "fetchone",
    "fetchall",
    "fetchmany",
    "cursor",
}
ACTORS = [path for path in FILES if module_of(path).startswith("actors")]


def _texts_of(tree: ast.AST) -> set[str]:
    """String constants that are no docstrings."""
    said = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said
    }


@pytest.mark.parametrize("path", ACTORS, ids=module_of)
def test_actors_know_the_store_by_its_contract_alone(path: Path) -> None:
    """No engine outside of the door, no SQL, no connection."""
    tree = ast.parse(path.read_text("utf-8"))
    engine = {
        name for name in imports_of(path) if name.startswith(("storage.sqlite", "storage.group_commit"))
    }
    assert not engine or module_of(path) in ENGINE_DOORS
    assert not {name for name in imports_of(path) if name.split(".")[0] in ("sqlite3", "aiosqlite")}
    assert {text for text in _texts_of(tree) if SQL_TEXT.match(text)} == set()
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert attributes & CONNECTION_METHODS == set()
    arguments = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    assert arguments & {"conn", "raw", "cursor"} == set()


def test_actors_name_no_statement() -> None:
    """A name of one word may be an ordinary word."""
    names = {name for name in SQL if "_" in name}
    naming = {module_of(path) for path in ACTORS if _texts_of(ast.parse(path.read_text("utf-8"))) & names}
    assert naming == set()


def test_what_the_store_promises_knows_no_engine() -> None:
    """The contract and the group commit stand above every engine."""
    for path in FILES:
        if module_of(path).startswith(
            ("storage.contract", "storage.group_commit", "storage.errors", "storage.records")
        ):
            names = imports_of(path)
            assert not {name for name in names if name.startswith(("sqlite3", "aiosqlite", "storage.sqlite"))}


def test_only_the_bridge_knows_asyncio() -> None:
    knows = {
        module_of(path) for path in FILES if {"asyncio", "aiosqlite", "trio_asyncio"} & set(imports_of(path))
    }
    assert knows == {"storage.sqlite.bridge"}


def test_importing_starts_nothing_and_loads_no_aiosqlite() -> None:
    code = (
        "import sys, threading; before = threading.active_count(); import actors; "
        "print(threading.active_count() - before, [m for m in ('aiosqlite', 'trio_asyncio') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "0 []\n"


SURFACE = {
    "errors": {
        "ActorCrashed", "BackupFailed", "CompanyActive", "CompanyDeleted", "CompanyParked", "CompanyUnknown",
        "CursorTooOld", "DatabaseInUse", "DependencyCycle", "ForkedProcess", "GiveUp", "IdConflict", "InboxFull",
        "InvalidJson", "InvalidMessage", "InvalidName", "InvalidSpend", "KeyConflict", "MailboxFull", "MessageConflict",
        "MoveRefused", "NotADatabase", "OutcomeUnknown", "Refused", "RetryAfter", "RuntimeClosed", "ScheduleRefused",
        "SchemaTooNew", "StoreLost", "StoreUnavailable", "TaskUnknown", "TurnkeeperError", "UnknownGraph",
        "UnknownHandler", "UnknownSchedule", "UnknownUpstream", "WouldDeadlock",
    },
    "messages": {
        "UNSET", "Approve", "Archive", "Backoff", "BudgetSettings", "CompanySettings", "DefineGraph", "Edit",
        "Gate", "GoalStopped", "GraphDefined", "Message", "Moved", "Next", "Node", "Pause", "PauseSchedule",
        "RemoveSchedule", "Rerun", "ResumeSchedule", "Retry", "RunNow", "ScheduleSettings", "SendBack",
        "SetBudget", "SetLimits", "SetSchedule", "Start", "StartNow", "Stop", "StopGoal", "Submit",
        "SubmitMany", "Submitted", "Unarchive", "Unpark", "Unparked", "Unpause",
    },
    "runtime": {
        "Company", "Context", "Handler", "Inbox", "Letter", "Progress", "Reader", "Reads", "Runtime", "Statistics",
        "SweepReport", "open_inbox", "open_reader", "open_runtime",
    },
    "retention": {"DeletedCompany", "PruneReport", "Retention", "backup", "delete_company", "prune"},
    "reads": {
        "AttemptEnd", "AttemptView", "BudgetView", "ClosingReport", "Event", "Explanation", "KINDS", "LimitsView",
        "Misfire", "Mode", "NodeStatus", "NodeView", "Outcome", "Overlap", "Owner", "Reason", "ReasonKind", "RunStatus",
        "ScheduleView", "TaskStatus", "WorkState", "describe_reason",
    },
}  # fmt: skip


def test_the_public_surface_is_what_is_documented() -> None:
    assert set(actors.__all__) == set().union(*SURFACE.values())
    assert all(hasattr(actors, name) for name in actors.__all__)


@pytest.mark.parametrize("name", sorted(set(actors.__all__) - {"KINDS", "UNSET", "Handler"}))
def test_every_public_name_says_what_it_is(name: str) -> None:
    said = getattr(actors, name).__doc__
    assert said
    assert not said.startswith(f"{name}("), "attrs's own words are not ours"
