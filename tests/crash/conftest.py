"""Where killed processes leave their files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where that is possible: a hundred databases are made and dropped, and none of them has to last."""
    if not MEMORY.is_dir():
        yield tmp_path
        return
    made = Path(tempfile.mkdtemp(prefix="turnkeeper-", dir=MEMORY))
    try:
        yield made
    finally:
        shutil.rmtree(made)
