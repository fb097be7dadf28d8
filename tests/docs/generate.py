"""The generated parts of the pages. ``python -m tests.docs.generate`` writes them; a test compares."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from actors.core.transitions import NODE_MOVES, RUN_MOVES, SCHEDULE_MOVES, Table
from actors.events import KINDS
from tests.bench.report import read_report
from tests.bench.summary import summary

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "tests" / "bench" / "measured.json"


def events() -> str:
    rows = [
        f"| `{name}` | {kind.level} | {', '.join(f'`{field}`' for field in kind.fields) or '–'} | {kind.says} |"
        for name, kind in KINDS.items()
    ]
    return "\n".join(["| kind | level | data | says |", "| --- | --- | --- | --- |", *rows])


def _drawn(table: Table[StrEnum]) -> str:
    lines = ["```mermaid", "stateDiagram-v2"]
    for before, row in table.items():
        for after, verb in row.items():
            lines.append(f"    {'[*]' if before is None else before.value} --> {after.value}: {verb}")
    return "\n".join([*lines, "```"])


def moves() -> str:
    tables: dict[str, Table[Any]] = {"Run": RUN_MOVES, "Node": NODE_MOVES, "Schedule": SCHEDULE_MOVES}
    return "\n\n".join(part for name, table in tables.items() for part in (f"**{name}**", _drawn(table)))


def performance() -> str:
    """From the run whose values are kept beside the benchmark: every value of every round."""
    return summary(read_report(MEASURED))


PARTS: Final[Mapping[str, tuple[str, Callable[[], str]]]] = MappingProxyType(
    {
        "docs/events.md": ("events", events),
        "docs/messages.md": ("moves", moves),
        "docs/performance.md": ("performance", performance),
    }
)
"""Page → the name of the part that is generated in it, and what makes the part."""


def with_generated(page: str, text: str) -> str:
    """The page's text with its generated part as the code has it now."""
    name, part = PARTS[page]
    pattern = rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)"
    text, found = re.subn(pattern, lambda m: f"{m[1]}{part()}\n{m[2]}", text, flags=re.DOTALL)
    assert found == 1, page
    return text


if __name__ == "__main__":
    for page in PARTS:
        file = ROOT / page
        file.write_text(with_generated(page, file.read_text("utf-8")), "utf-8")
