"""``python -m actors``, and the command ``turnkeeper``: the command line."""

from __future__ import annotations

import sys

from actors.cli import main


def run() -> int:
    """The console script: returns the exit status."""
    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(run())
