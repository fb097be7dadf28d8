"""``python -m actors``: the command line."""

from __future__ import annotations

import sys

from actors.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
