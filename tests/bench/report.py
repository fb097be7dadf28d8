"""What a run of the benchmark found: every value of every round, so that nothing has to be taken on trust."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from tests.bench.protocol import Values


@attrs.define
class Row:
    """One case and what its rounds gave. ``error`` says why a round gave nothing."""

    key: str
    subject: str
    who: str
    params: Mapping[str, Any]
    against: tuple[str, ...] = ()
    show: tuple[str, ...] = ()
    rounds: dict[int, Values] = attrs.field(factory=dict)
    error: str | None = None

    @property
    def measure(self) -> str:
        return self.key.partition("/")[0]

    def of(self, name: str) -> dict[int, float]:
        """The rounds of one value."""
        return {number: values[name] for number, values in self.rounds.items() if name in values}

    @property
    def names(self) -> list[str]:
        """The values that belong in the table, in their order."""
        found = dict.fromkeys(name for values in self.rounds.values() for name in values)
        if self.show:
            return [name for name in self.show if name in found]
        return [name for name in found if name != "peak_mb"]


@attrs.define
class Report:
    machine: Mapping[str, str]
    versions: Mapping[str, str]
    quick: bool
    rows: list[Row] = attrs.field(factory=list)
    missing: list[str] = attrs.field(factory=list)
    """Peers that are not installed: they were left out."""

    def row(self, key: str) -> Row | None:
        return next((row for row in self.rows if row.key == key), None)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(attrs.asdict(self), indent=1, ensure_ascii=False) + "\n", "utf-8")


def read_report(path: Path) -> Report:
    """A report that `Report.write` wrote; raises ``ValueError`` for anything else."""
    try:
        found = json.loads(path.read_text("utf-8"))
        rows = [_row(row) for row in found.pop("rows")]
        return Report(rows=rows, **found)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a report of this benchmark: {error!r}") from None


def _row(found: dict[str, Any]) -> Row:
    rounds = {int(number): values for number, values in found.pop("rounds").items()}
    against, show = tuple(found.pop("against")), tuple(found.pop("show"))
    return Row(rounds=rounds, against=against, show=show, **found)
