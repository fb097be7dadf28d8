"""The runtime's own tests once more, over a store that is away at every third operation, and at every third reading of
a turn.

Nothing of a task may depend on whether the disk was there at the first try. The same functions run as in their own
modules, over `tests.faulty.FaultyStore`, which shows as well that the runtime needs nothing but the contract.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import ModuleType

import pytest

import actors.runtime.opening
from storage.contract.recovery import FindProcesses
from storage.contract.store import Operation
from storage.contract.turns import Prefetch
from tests.faulty import Faults, open_faulty_store

from . import (
    test_admission,
    test_attempt_ends,
    test_bad_rows,
    test_budgets,
    test_context,
    test_crashes,
    test_lanes,
    test_passivation,
    test_people,
    test_reads,
    test_repair,
    test_schedules,
    test_slots,
    test_stop,
    test_stream,
    test_supervision,
)

MODULES: tuple[ModuleType, ...] = (
    test_admission,
    test_attempt_ends,
    test_bad_rows,
    test_budgets,
    test_context,
    test_crashes,
    test_lanes,
    test_passivation,
    test_people,
    test_reads,
    test_repair,
    test_schedules,
    test_slots,
    test_stop,
    test_stream,
    test_supervision,
)
EVERY = {Operation: 3, Prefetch: 3, FindProcesses: 2}


@pytest.fixture(autouse=True)
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    """The store of every runtime in the test is away now and then; each of them struck."""
    made = Faults(EVERY)
    opened = partial(open_faulty_store, faults=made, delays_s={Prefetch: 0.01})
    monkeypatch.setattr(actors.runtime.opening, "open_store", opened)
    yield made
    assert made.count, "nothing went wrong"


for module in MODULES:
    for name, item in vars(module).items():
        if name.startswith("test_") and callable(item):
            globals()[f"{module.__name__.rpartition('.')[2]}__{name}"] = item
