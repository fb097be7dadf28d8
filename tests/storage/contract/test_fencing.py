"""Nothing but the newest claim of a company changes it, whatever the operation, by whatever engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage.contract.events import RecordCompanyEvents
from storage.contract.recovery import DisableSchedule, Quarantine, RecordProcess
from storage.contract.retention import MarkDeleted
from storage.contract.store import CompanyOperation
from storage.contract.turns import AttemptPlace, CommitTurn
from storage.errors import StaleEpoch
from storage.records import Claim, EventRecord
from storage.values import changed

from . import test_retention
from .engines import ENGINES, Engine, opened
from .test_registry import all_of

pytestmark = pytest.mark.planted

EVENT = EventRecord("actor.crashed", 9)
CLAIMED: dict[str, Callable[[Claim], Any]] = {
    **test_retention.CLAIMED,
    "CommitTurn": lambda claim: CommitTurn(claim, due_ms=7, events=[EVENT]),
    "RecordCompanyEvents": lambda claim: RecordCompanyEvents(claim, [EVENT]),
    "Quarantine": lambda claim: Quarantine(claim, "t2", 2, "bad row", None, 9),
    "DisableSchedule": lambda claim: DisableSchedule(claim, "nightly", "why", 9),
    "RecordProcess": lambda claim: RecordProcess(claim, AttemptPlace(2, 1, 0, 1), 42, "then"),
}
"""An example of every operation on a company that changes something in the scene of the tests."""
STALE: dict[str, Callable[[Claim], Claim]] = {
    "an earlier epoch": lambda claim: changed(claim, epoch=claim.epoch - 1),
    "an epoch to come": lambda claim: changed(claim, epoch=claim.epoch + 1),
    "no such company": lambda claim: changed(claim, company_id=claim.company_id + 1),
}


def test_there_is_an_example_of_every_operation_on_a_company() -> None:
    assert CLAIMED.keys() == {kind.__name__ for kind in all_of(CompanyOperation)}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("stale", STALE)
@pytest.mark.parametrize("name", CLAIMED)
async def test_an_operation_with_a_stale_claim_changes_nothing(
    tmp_path: Path, engine: Engine, name: str, stale: str
) -> None:
    async with opened(engine, tmp_path / "x.db") as here:
        await here.company()
        company = await here.company()
        await here.task(company, 1)
        if name not in ("MarkDeleted", "DeleteSome"):  # which nothing may be running for
            await here.task(company, 2, settled=False)
            await here.schedule(company, "nightly")
        claim = company.claim
        if name == "DeleteSome":
            claim = (await here.store.commit(MarkDeleted(claim, (), "{}", 9))).claim
        before = here.contents()
        with pytest.raises(StaleEpoch, match="acme"):
            await here.store.commit(CLAIMED[name](STALE[stale](claim)))
        assert here.contents() == before
        await here.store.commit(CLAIMED[name](claim))
        assert here.contents() != before


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CLAIMED)
async def test_a_stale_one_in_a_group_is_refused_alone(tmp_path: Path, engine: Engine, name: str) -> None:
    async with opened(engine, tmp_path / "x.db") as here:
        company, other = await here.company(), await here.company("other")
        await here.company()
        first = here.store.submit(RecordCompanyEvents(other.claim, [EVENT]))
        stale = here.store.submit(CLAIMED[name](company.claim))
        last = here.store.submit(RecordCompanyEvents(other.claim, [EVENT]))
        with pytest.raises(StaleEpoch):
            await stale.wait()
        assert ((await first.wait()).first_seq, (await last.wait()).first_seq) == (1, 2)
