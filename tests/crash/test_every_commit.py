"""A process that is killed at any commit leaves nothing behind but a lost attempt."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.invariants import check_file

from .harness import Kill, Scenario, deaths, exhaust, live
from .scenarios import CHAIN, CUT_LOG, DELETE, SCENARIOS


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_kill_before_or_after_any_commit_shows_nowhere_in_the_end(scenario: Scenario, folder: Path) -> None:
    kills = exhaust(scenario, folder)
    assert kills >= 2 * scenario.commits_min


def test_a_kill_before_or_after_any_commit_of_the_recovery_shows_nowhere_in_the_end(folder: Path) -> None:
    under_way = Kill(3, after=True)  # the first node executes
    kills = exhaust(CHAIN, folder, first=under_way)
    assert kills >= 2 * CHAIN.commits_min


def test_a_kill_while_the_log_is_let_go_leaves_no_gap_above_its_floor(folder: Path) -> None:
    """`check_file` looks at each file that a process left behind: lines and floors went together, or not at all."""
    cut = 0
    kills = 0
    for death in deaths(CUT_LOG, folder):
        with death.named(), closing(sqlite3.connect(death.heir)) as raw:
            cut += raw.execute("SELECT count(*) FROM floors").fetchone()[0]
            live(CUT_LOG, death.heir, death.world)
            check_file(death.heir)
            assert raw.execute("SELECT count(*) FROM floors").fetchone() == (3,)
            assert raw.execute("SELECT count(*) FROM runs WHERE status = 'completed'").fetchone() == (8,)
        kills += 1
    assert kills >= 2 * CUT_LOG.commits_min
    assert cut > 0, "some died after the log was cut for the first time"


def test_a_deletion_that_is_cut_short_is_finished_and_told_once_with_all_that_went(folder: Path) -> None:
    told = "SELECT data ->> 'name', data ->> 'tasks' FROM events WHERE kind = 'company.deleted'"
    half_way = 0
    for death in deaths(DELETE, folder):
        with death.named(), closing(sqlite3.connect(death.heir)) as raw:
            half_way += raw.execute("SELECT count(*) FROM deletions WHERE attempts > 0").fetchone()[0]
            live(DELETE, death.heir, death.world)
            assert raw.execute(told).fetchall() == [("doomed", 3)]
    assert half_way >= 4, "some died between two units of it"
