"""The whole, with real threads on a real file, killed at any moment."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from .child import COMPANIES, TASKS
from .processes import assert_left_in_order, has_schema, hosts, rows

ROUNDS = 8


def test_a_host_killed_at_random_loses_nothing_and_accepts_everything_once(tmp_path: Path) -> None:
    seed = int(os.environ.get("TURNKEEPER_SEED") or random.randrange(1 << 32))
    sys.stdout.write(f"TURNKEEPER_SEED={seed}\n")  # shown when it fails
    chance = random.Random(seed)
    path = tmp_path / "companies.db"
    with hosts("much", path) as host:
        for number in range(ROUNDS):
            host.start()
            if number % 2:
                host.wait_for("submitted")
            time.sleep(chance.uniform(0, 0.15))
            host.kill()
            assert host.ended()[0] in (
                -signal.SIGKILL,
                0,
            )  # a late one may find everything done, and end first
            if path.exists() and has_schema(path):  # the first may die before it has made the tables
                assert_left_in_order(path, closed=False)
        host.start()
        assert host.ended() == (0, ["submitted", "settled"])
    assert_left_in_order(path, closed=True)
    _assert_all_done_once(path)


def _assert_all_done_once(path: Path) -> None:
    expected = {
        (name, f"t{n}", node) for name in COMPANIES for n in range(1, TASKS + 1) for node in (0, 1, 2)
    }
    done = rows(
        path,
        "SELECT name, id, pos, node.generation FROM nodes AS node JOIN tasks USING (company_id, seq)"
        " JOIN companies USING (company_id) WHERE node.status = 'succeeded'",
    )
    assert {row[:3] for row in done} == expected
    assert {row[3] for row in done} == {0}
    accepted = rows(path, "SELECT company_id, seq, run, pos FROM attempts WHERE end = 'succeeded'")
    assert len(accepted) == len(set(accepted)) == len(expected)
    assert rows(path, "SELECT DISTINCT status, slot FROM runs") == [("completed", 0)]
    world = Counter(Path(f"{path}.world").read_text().split())
    assert world.keys() == {f"{name}/{task}/1/{'abc'[node]}/0" for name, task, node in expected}, (
        "every node worked, and under one key only"
    )
    ends = dict(rows(path, "SELECT end, count(*) FROM attempts GROUP BY end"))
    assert ends.keys() <= {"succeeded", "lost", "interrupted"}


def test_a_handler_that_ends_the_process_fails_after_five_times_and_the_others_are_done(
    tmp_path: Path,
) -> None:
    """C03 for real: the process is started again as often as it dies."""
    path = tmp_path / "companies.db"
    with hosts("killer", path) as host:
        for _ in range(5):
            host.start()
            assert host.ended()[0] == 9
        host.start()
        status, said = host.ended()
    assert status == 0
    assert said == ["kills failed process died 5 times", *(f"t{n} completed None" for n in range(4))]
    assert Counter(Path(f"{path}.world").read_text().split())["acme/kills/1/kills/0"] == 5
    assert_left_in_order(path, closed=True)
