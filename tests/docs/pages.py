"""The pages that people read, and the blocks in them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = (README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))


class Block(NamedTuple):
    page: str
    language: str
    body: str
    line: int

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    return [
        Block(page.name, found[1], found[2], text.count("\n", 0, found.start()) + 1)
        for found in re.finditer(r"^```(\S+)[^\n]*\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    ]


BLOCKS = tuple(block for page in PAGES for block in blocks(page))


def commands(page: str) -> list[str]:
    """The lines of the page's ``sh`` blocks, in their order."""
    return [
        line
        for block in BLOCKS
        if block.page == page and block.language == "sh"
        for line in block.body.splitlines()
    ]
