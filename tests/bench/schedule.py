"""What no schedule of a workflow can beat."""

from __future__ import annotations

from collections.abc import Sequence

from tests.bench.wfformat import Step, in_order


def critical_path_s(steps: Sequence[Step]) -> float:
    """The longest chain of run times along the parents: the makespan with as many slots as one likes."""
    ends = [0.0] * len(steps)
    for place in in_order(steps):
        step = steps[place]
        ends[place] = step.runtime_s + max((ends[parent] for parent in step.parents), default=0.0)
    return max(ends, default=0.0)


def work_s(steps: Sequence[Step]) -> float:
    """All run times together: the makespan with one slot."""
    return sum(step.runtime_s for step in steps)


def lower_bound_s(steps: Sequence[Step], slots: int) -> float:
    """No schedule on so many slots is shorter. It may be that none reaches it either."""
    if slots < 1:
        raise ValueError(f"slots must be at least 1, not {slots}")
    return max(critical_path_s(steps), work_s(steps) / slots)
