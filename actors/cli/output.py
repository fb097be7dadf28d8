"""Lines to a stream that may be gone: a closed pipe ends the output, never the work.

Everything that the command line prints passes through here, and here it is made safe for a terminal: what came from
outside (titles, errors, output of commands) cannot move the cursor, change colours or the direction of writing.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from typing import Any, TextIO

from actors.sentences import plain


class Output:
    """Standard output, line by line. After the reader has gone everything is dropped; ``broken`` says so."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.broken = False

    def line(self, text: str = "") -> None:
        """One line for people; whatever in it is not visible is written as an escape."""
        self._write(plain(text))

    def lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.line(line)

    def json(self, value: dict[str, Any]) -> None:
        """One line for programs, which holds no invisible characters either."""
        text = json.dumps(value, ensure_ascii=False, default=str)
        if not text.isprintable():
            text = "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)
        self._write(text)

    def _write(self, line: str) -> None:
        if self.broken:
            return
        try:
            self._stream.write(f"{line}\n")
            self._stream.flush()
        except OSError:
            self.broken = True


def complain(text: str) -> None:
    """One line on standard error."""
    Output(sys.stderr).line(f"turnkeeper: {text}")


def present_ms() -> int:
    """The wall clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
