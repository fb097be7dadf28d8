"""What the parent says to a measuring process, and what comes back: one JSON object each way.

The job is the process's only argument; the values are the last line of its standard output. Everything else that is
printed there goes to standard error, whoever prints it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

Params = Mapping[str, Any]
Values = Mapping[str, float]
"""Name → number. The name ends in its unit: ``_per_s``, ``_us``, ``_ms``, ``_s``, ``_mb``, or none for a count."""


class ChildFailed(Exception):
    """A measuring process gave no values; says why in one line."""


@attrs.frozen
class Job:
    """One run: who does what, of which size, on which file."""

    subject: str
    task: str
    path: str
    params: Params = attrs.field(factory=dict)

    def text(self) -> str:
        return json.dumps(attrs.asdict(self))

    @classmethod
    def of(cls, text: str) -> Job:
        return cls(**json.loads(text))


def values_text(values: Values) -> str:
    return json.dumps({"values": dict(values)})


def values_of(output: str) -> Values:
    """The values in the last line of a process's output; raises `ChildFailed` if it is something else."""
    lines = output.strip().splitlines()
    try:
        values = json.loads(lines[-1])["values"]
        return {str(name): float(value) for name, value in values.items()}
    except (IndexError, ValueError, KeyError, TypeError, AttributeError):
        raise ChildFailed(f"no values in the output: {lines[-1] if lines else 'nothing'!r}") from None


def peak_mb() -> float:
    """The most memory this process ever held, in MB. ``VmHWM`` begins anew with the program; ``ru_maxrss`` would still
    hold what its parent had when it was forked.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    import resource
    import sys

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1024 * 1024 if sys.platform == "darwin" else 1024)
