"""A process that is killed at any commit leaves nothing behind but a lost attempt."""

from __future__ import annotations

from pathlib import Path

import pytest

from .harness import Kill, Scenario, exhaust
from .scenarios import CHAIN, SCENARIOS


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_kill_before_or_after_any_commit_shows_nowhere_in_the_end(scenario: Scenario, folder: Path) -> None:
    kills = exhaust(scenario, folder)
    assert kills >= 2 * scenario.commits_min


def test_a_kill_before_or_after_any_commit_of_the_recovery_shows_nowhere_in_the_end(folder: Path) -> None:
    under_way = Kill(3, after=True)  # the first node executes
    kills = exhaust(CHAIN, folder, first=under_way)
    assert kills >= 2 * CHAIN.commits_min
