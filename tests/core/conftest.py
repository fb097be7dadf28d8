"""Hypothesis: the same examples every time, and ``--hypothesis-profile=search`` to look for new ones."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "search", deadline=None, max_examples=3_000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")
