"""``python -m tests.bench``: the command line."""

from __future__ import annotations

import sys

from tests.bench.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
