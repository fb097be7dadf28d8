"""Medians, their spread, and ratios that hold on a machine whose speed drifts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

import attrs


@attrs.frozen
class Spread:
    """What several runs gave: the middle, both ends, and how many there were."""

    median: float
    low: float
    high: float
    count: int


def spread(values: Sequence[float]) -> Spread:
    """Raises ``ValueError`` if there is nothing to summarise."""
    if not values:
        raise ValueError("no values")
    return Spread(median(values), min(values), max(values), len(values))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` (0 to 1) of the values do not exceed: always one that was measured."""
    if not values:
        raise ValueError("no values")
    if not 0 <= share <= 1:
        raise ValueError(f"share must be from 0 to 1, not {share}")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def paired_ratio(mine: Mapping[int, float], theirs: Mapping[int, float]) -> float | None:
    """The median over the rounds that both have of mine ÷ theirs; ``None`` if no round can be compared.

    Both ran within moments of each other in a round, so a machine that is slow for a while drops out.
    """
    ratios = [mine[number] / theirs[number] for number in mine.keys() & theirs.keys() if theirs[number] > 0]
    return median(ratios) if ratios else None
