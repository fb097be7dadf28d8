"""The statements, read once from ``sql/queries.sql``. None is put together in Python."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType


def _load(text: str) -> Mapping[str, str]:
    """``-- name: x`` begins a statement; the comments under it say why."""
    named: dict[str, str] = {}
    for part in re.split(r"^-- name: ", text, flags=re.MULTILINE)[1:]:
        name, _, body = part.partition("\n")
        if name in named:
            raise ValueError(f"two statements are named {name}")
        lines = [line for line in body.splitlines() if not line.lstrip().startswith("--")]
        named[name.strip()] = "\n".join(lines).strip().rstrip(";")
    return MappingProxyType(named)


SQL: Mapping[str, str] = _load(
    resources.files("storage.sqlite").joinpath("sql", "queries.sql").read_text("utf-8")
)
"""Name → statement. A wrong name is a ``KeyError`` at once, not an SQL error in somebody's unit."""
