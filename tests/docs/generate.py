"""The generated parts of the README. ``python -m tests.docs.generate`` writes them; a test compares."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Any

from actors.core.transitions import NODE_MOVES, RUN_MOVES, SCHEDULE_MOVES, Table
from actors.events import KINDS
from tests.bench.report import read_report
from tests.bench.summary import summary

MEASURED = Path(__file__).parents[1] / "bench" / "measured.json"
README = Path(__file__).parents[2] / "README.md"


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


def with_generated(text: str) -> str:
    """The README with its generated parts as the code has them now."""
    for name, part in (("events", events()), ("moves", moves()), ("performance", performance())):
        pattern = rf"(<!-- generated: {name} -->\n).*?(<!-- end -->)"
        text, found = re.subn(pattern, lambda m, part=part: f"{m[1]}{part}\n{m[2]}", text, flags=re.DOTALL)  # type: ignore[misc]
        assert found == 1, name
    return text


if __name__ == "__main__":
    README.write_text(with_generated(README.read_text("utf-8")), "utf-8")
