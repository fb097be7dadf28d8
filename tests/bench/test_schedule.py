from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.schedule import critical_path_s, lower_bound_s, work_s
from tests.bench.wfformat import Step

DIAMOND = (
    Step("top", (), 1.0),
    Step("short", (0,), 2.0),
    Step("long", (0,), 5.0),
    Step("bottom", (1, 2), 1.0),
)


@st.composite
def workflows(draw: st.DrawFn) -> tuple[Step, ...]:
    steps: list[Step] = []
    for place in range(draw(st.integers(0, 12))):
        parents = draw(st.sets(st.integers(0, place - 1), max_size=3)) if place else set()
        steps.append(Step(f"s{place}", tuple(sorted(parents)), draw(st.integers(0, 9))))
    return tuple(steps)


def longest_s(steps: tuple[Step, ...], place: int) -> float:
    """The definition, by recursion."""
    return steps[place].runtime_s + max((longest_s(steps, up) for up in steps[place].parents), default=0.0)


def test_the_critical_path_is_the_longest_chain() -> None:
    assert critical_path_s(DIAMOND) == 7.0
    assert work_s(DIAMOND) == 9.0


def test_nothing_takes_no_time() -> None:
    assert critical_path_s(()) == 0.0
    assert lower_bound_s((), 1) == 0.0


def test_few_slots_are_bound_by_the_work_and_many_by_the_path() -> None:
    assert lower_bound_s(DIAMOND, 1) == 9.0
    assert lower_bound_s(DIAMOND, 2) == 7.0
    assert lower_bound_s(DIAMOND, 100) == 7.0


def test_a_long_chain_needs_no_recursion() -> None:
    chain = tuple(Step(f"s{n}", (n - 1,) if n else (), 1.0) for n in range(50_000))
    assert critical_path_s(chain) == 50_000.0


def test_no_slots_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="slots"):
        lower_bound_s(DIAMOND, 0)


@given(steps=workflows(), slots=st.integers(1, 8))
def test_the_bound_is_what_its_definition_says(steps: tuple[Step, ...], slots: int) -> None:
    path_s = max((longest_s(steps, place) for place in range(len(steps))), default=0.0)
    assert critical_path_s(steps) == path_s
    assert lower_bound_s(steps, slots) == max(path_s, work_s(steps) / slots)
    assert path_s <= lower_bound_s(steps, slots) <= work_s(steps)
