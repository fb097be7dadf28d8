"""What `tests.test_structure` leaves open: closed lists for the core and for the command line.

There, what must not be imported is named; here, whatever is not named must not be imported.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import actors
from tests.test_structure import FILES, ROOT, imports_of, module_of

VALUES_AND_ARITHMETIC = {
    *(
        "__future__",
        "attrs",
        "bisect",
        "collections",
        "contextlib",
        "enum",
        "functools",
        "graphlib",
        "hashlib",
    ),
    *("heapq", "itertools", "math", "re", "types", "typing", "zlib"),
    "heapq",
    *("itertools", "math", "re", "types", "typing", "zlib"),
}
WORDS = {"storage.records", "storage.codec", "storage.errors", "storage.values", "storage.writes"}
TRANSLATIONS: Mapping[str, str] = {
    "actors.core.loading": "storage.contract.loading",
    "actors.core.to_rows": "storage.contract.turns",
    "actors.core.turn": "storage.contract.turns",
}
"""Where rows become facts and changes become rows: pure functions from and to the store's own values."""

CORE = [path for path in FILES if module_of(path).startswith("actors.core")]
CLI = [path for path in FILES if module_of(path).startswith(("actors.cli", "actors.__main__"))]


def modules_imported(path: Path) -> set[str]:
    """The modules alone, where `imports_of` also gives what is taken from them."""
    known = {module_of(other) for other in FILES}
    return {
        name for name in imports_of(path) if name in known or name.split(".")[0] not in ("actors", "storage")
    }


@pytest.mark.parametrize("path", CORE, ids=module_of)
def test_the_core_imports_values_and_arithmetic_and_nothing_else(path: Path) -> None:
    foreign = {name.split(".")[0] for name in modules_imported(path)} - {"actors", "storage"}
    assert foreign <= VALUES_AND_ARITHMETIC


@pytest.mark.parametrize("path", CORE, ids=module_of)
def test_the_core_knows_the_store_by_its_words_and_its_rows_in_one_place_each(path: Path) -> None:
    stored = {name for name in modules_imported(path) if name.startswith("storage.")}
    assert stored <= WORDS | {TRANSLATIONS.get(module_of(path), "")}


PUBLIC_MODULES = {"actors", "actors.commands", "actors.sentences", "actors.codec"}


@pytest.mark.parametrize("path", CLI, ids=module_of)
def test_the_command_line_takes_public_names_its_own_modules_and_the_commands(path: Path) -> None:
    ours = {name for name in modules_imported(path) if name.split(".")[0] in ("actors", "storage")}
    assert {name for name in ours if not name.startswith("actors.cli")} <= PUBLIC_MODULES
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "actors" and not node.level:
            assert {alias.name for alias in node.names} - {"cli", "commands"} <= set(actors.__all__)


def test_importing_the_core_loads_neither_trio_nor_a_clock_of_its_own() -> None:
    """As far as the core itself goes: the package around it is left out."""
    program = f"""
import sys, types
package = types.ModuleType("actors")
package.__path__ = [{str(ROOT / "actors")!r}]
sys.modules["actors"] = package
import actors.core.decide, actors.core.advance, actors.core.reports, actors.core.work_state
loaded = {{name.split(".")[0] for name in sys.modules}}
print(sorted(loaded & {{"trio", "aiosqlite", "asyncio", "structlog", "random"}}))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert ran.stdout.strip() == "[]"
