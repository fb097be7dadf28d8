"""Lines to a stream that may be gone: a closed pipe ends the output, never the work."""

from __future__ import annotations

import json
import sys
from typing import Any, TextIO


class Output:
    """Standard output, line by line. After the reader has gone everything is dropped; ``broken`` says so."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.broken = False

    def line(self, text: str = "") -> None:
        if self.broken:
            return
        try:
            self._stream.write(f"{text}\n")
            self._stream.flush()
        except OSError:
            self.broken = True

    def json(self, value: dict[str, Any]) -> None:
        self.line(json.dumps(value, ensure_ascii=False, default=str))


def complain(text: str) -> None:
    """One line on standard error."""
    Output(sys.stderr).line(f"turnkeeper: {text}")
