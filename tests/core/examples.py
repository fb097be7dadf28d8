"""How Hypothesis looks: the same examples every time, or many new ones with ``TURNKEEPER_SEARCH=factor``."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

FACTOR = int(os.environ.get("TURNKEEPER_SEARCH", "0"))


def examples(count: int) -> settings:
    """So many examples; so many times the factor where something is looked for."""
    return settings(
        deadline=None,
        derandomize=FACTOR == 0,
        max_examples=count * max(1, FACTOR),
        suppress_health_check=[HealthCheck.too_slow],
    )
