"""The command line: the first host of the runtime. It uses what every host can use, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Carry out one command; returns the exit status."""
    from actors.cli.app import main as carry_out

    return carry_out(argv)
