"""The tests of the runtime run on a clock that jumps, with what is said to structlog kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

Logs = list[Any]


@pytest.fixture(autouse=True)
def logs() -> Iterator[Logs]:
    """What was said to structlog."""
    with capture_logs() as entries:
        yield entries
