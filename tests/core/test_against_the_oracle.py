"""Whatever is said to a company and whatever its attempts report: what memory derives is what the definitions say.

After every message, after every turn, after every refused one, after every eviction and every loading, all of it is
compared with the definitions of `oracle`, and with what a new actor would load from the tables.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given

import actors.core.heap

from .examples import examples
from .walking import GRAPHS, Walk

chance = st.randoms(use_true_random=False)


@given(chance)
@examples(40)
def test_memory_is_what_the_definitions_say_after_every_step(rng: Random) -> None:
    walk = Walk(rng)
    walk.go(steps=12)
    walk.world.check_tables()


@pytest.mark.parametrize("seed", range(6))
def test_memory_is_what_the_definitions_say_on_a_long_walk(seed: int) -> None:
    walk = Walk(Random(seed))
    walk.go(steps=120)
    walk.world.check_tables()


def test_memory_is_what_the_definitions_say_on_long_walks_among_people() -> None:
    """Gates, steps, results that are sent back, new runs from a node on: something of each happens on the way."""
    told: Counter[str] = Counter()
    for seed in range(8):
        walk = Walk(Random(seed), people=True, graphs=GRAPHS[4:])
        walk.go(steps=200)
        walk.world.check_tables()
        told.update(event.kind for event in walk.world.events)
        told["carried"] += sum(event.data["carried"] for event in walk.world.told("run.created"))
    seen = {
        "gate.reached",
        "gate.approved",
        "run.halted",
        "run.resumed",
        "node.sent_back",
        "attempt.superseded",
    }
    assert {*seen, "carried"} <= (+told).keys()


@pytest.mark.parametrize("seed", range(8, 11))
def test_due_times_are_what_the_definitions_say_however_often_they_are_cleared(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors.core.heap, "HEAP_SLACK", -1_000_000)  # at every change
    walk = Walk(Random(seed))
    walk.go(steps=120)
    walk.world.check_tables()


@pytest.mark.parametrize("seed", range(6))
def test_planted_rows_change_nothing_about_that(seed: int) -> None:
    Walk(Random(seed), planting=True).go(steps=100)
