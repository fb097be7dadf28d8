from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.stats import Spread, paired_ratio, percentile, spread

VALUES = st.lists(st.floats(0.001, 1e9), min_size=1, max_size=50)


def test_a_spread_has_the_middle_and_both_ends() -> None:
    assert spread([3.0, 1.0, 2.0]) == Spread(median=2.0, low=1.0, high=3.0, count=3)
    assert spread([4.0, 1.0]).median == 2.5


def test_nothing_has_no_spread_and_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        spread([])
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_a_percentile_is_a_value_that_was_measured() -> None:
    hundred = [float(n) for n in range(100, 0, -1)]
    assert percentile(hundred, 0.5) == 50.0
    assert percentile(hundred, 0.99) == 99.0
    assert percentile(hundred, 1) == 100.0
    assert percentile(hundred, 0) == 1.0
    assert percentile([7.0], 0.99) == 7.0


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_outside_of_nothing_and_all_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="share"):
        percentile([1.0], share)


@given(values=VALUES, share=st.floats(0, 1))
def test_at_least_the_share_of_the_values_does_not_exceed_the_percentile(
    values: list[float], share: float
) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values)


def test_a_ratio_is_taken_round_by_round_so_a_slow_hour_drops_out() -> None:
    mine = {0: 100.0, 1: 10.0, 2: 1.0}
    theirs = {0: 50.0, 1: 5.0, 2: 0.5}
    assert paired_ratio(mine, theirs) == 2.0


def test_rounds_that_only_one_has_do_not_count() -> None:
    assert paired_ratio({0: 6.0, 1: 1.0}, {0: 2.0, 2: 1.0}) == 3.0
    assert paired_ratio({0: 6.0}, {1: 2.0}) is None
    assert paired_ratio({0: 6.0}, {0: 0.0}) is None
