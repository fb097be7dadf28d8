"""The runtime's own tests once more, over a store that is away at every third operation.

Nothing may depend on whether the disk was there at the first try. The same functions run as in their own modules,
over `tests.faulty.FaultyStore`, which shows as well that the runtime needs nothing but the contract.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import trio
from trio.testing import MockClock

import actors.runtime.opening
import storage.group_commit
from storage.contract.loading import LoadCompany
from storage.contract.recovery import FindProcesses
from storage.contract.store import Operation
from storage.contract.turns import Prefetch
from tests.faulty import Faults, open_faulty_store

from . import (
    test_admission,
    test_attempt_ends,
    test_context,
    test_passivation,
    test_people,
    test_reads,
    test_repair,
)
from .support import Gated, a_host, a_task, idle, settled

MODULES: tuple[ModuleType, ...] = (
    test_admission,
    test_attempt_ends,
    test_context,
    test_passivation,
    test_people,
    test_reads,
    test_repair,
)


@pytest.fixture(autouse=True)
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    """The store of every runtime in the test is away at every third operation, and back at once."""
    made = Faults({Operation: 3})
    monkeypatch.setattr(actors.runtime.opening, "open_store", partial(open_faulty_store, faults=made))
    monkeypatch.setattr(storage.group_commit, "RETRY_FIRST_S", 0.0)
    return made


for module in MODULES:
    for name, item in vars(module).items():
        if name.startswith("test_") and callable(item):
            globals()[f"{module.__name__.rpartition('.')[2]}__{name}"] = item


async def test_readings_that_fail_or_are_slow_are_made_again_and_nothing_runs_twice(
    db_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading, the reading of a turn and the question what became of an attempt fail in turn."""
    faults = Faults({LoadCompany: 2, Prefetch: 3, FindProcesses: 2, Operation: 5})
    slow = {LoadCompany: 0.2, Prefetch: 0.1}
    opened = partial(open_faulty_store, faults=faults, delays_s=slow)
    monkeypatch.setattr(actors.runtime.opening, "open_store", opened)
    work = Gated()
    work.open.set()
    async with a_host(db_path, {"work": work}, idle_s=1) as runtime:
        for turn in range(4):
            for name in "abc":
                company = runtime.company(name)
                upstreams = [f"t{turn - 1}"] if turn else []
                await company.ask(a_task("work", id=f"t{turn}", depends_on=upstreams, key=f"k{turn}"))
                again = await company.ask(a_task("work", id=f"t{turn}", depends_on=upstreams, key=f"k{turn}"))
                assert again.id == f"t{turn}"
            await idle(runtime)
            await trio.sleep(30)  # everybody leaves and is loaded anew
        for name in "abc":
            for turn in range(4):
                assert await settled(runtime.company(name), f"t{turn}") == "completed"
    assert sorted(work.started) == sorted([f"t{turn}" for turn in range(4)] * 3)
    assert faults.count > 10


async def test_the_store_is_away_as_often_as_it_is_meant_to_be(
    db_path: Path, autojump_clock: MockClock, faults: Faults
) -> None:
    async with a_host(db_path) as runtime:
        for number in range(10):
            await runtime.company("k").ask(a_task(id=f"t{number}"))
        await idle(runtime)
    assert faults.count > 5
