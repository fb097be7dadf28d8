"""A guard for objects that must not be used in a forked child."""

from __future__ import annotations

import os

from storage.errors import ForkedProcess


class ForkGuard:
    """Remembers the process it was made in."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def check(self) -> None:
        """Raise `ForkedProcess` in any other process."""
        if os.getpid() != self._pid:
            raise ForkedProcess(self._pid)
