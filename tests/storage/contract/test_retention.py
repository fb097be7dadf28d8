"""Pruning and deletion, by whatever engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage.contract.companies import FindCompany, ListCompanies
from storage.contract.inbox import FindMessage, PutMessage
from storage.contract.retention import (
    FIRST_ATTEMPT,
    ROWS_MAX,
    Cutoffs,
    Deleted,
    DeleteSome,
    FindOldAttempts,
    FindOldCompanies,
    FindOldLogEnd,
    FindOldTasks,
    FindPrunableTasks,
    Found,
    ListDeletions,
    MarkDeleted,
    OldCompany,
    Page,
    PruneAttempts,
    PruneLog,
    PruneTasks,
    StillActive,
)
from storage.contract.store import Operation
from storage.errors import StaleEpoch
from storage.records import Claim

from .engines import ENGINES, Engine, Opened, opened

pytestmark = [pytest.mark.parametrize("engine", ENGINES), pytest.mark.planted]

ALL = Cutoffs(100, events_ms=100, attempts_ms=100, tasks_ms=100, archived_ms=100, keys_ms=100)
OLD = OldCompany(1, "acme", 1_000, 1_000)


async def delete_all(here: Opened, claim: Claim) -> tuple[Deleted, int]:
    """The end of the deletion, and in how many steps it was reached."""
    steps = 1
    while (deleted := await here.store.commit(DeleteSome(claim, 9))) is None:
        steps += 1
    return deleted, steps


# --- fencing ------------------------------------------------------------------------------------------------

CLAIMED: dict[str, Callable[[Claim], Operation[Any]]] = {
    "PruneAttempts": lambda claim: PruneAttempts(claim, [(1, 1, 0, 1)], 100, 9),
    "PruneTasks": lambda claim: PruneTasks(claim, [1], ALL, 9),
    "MarkDeleted": lambda claim: MarkDeleted(claim, (), "{}", 9),
    "DeleteSome": lambda claim: DeleteSome(claim, 9),
}


@pytest.mark.parametrize("name", CLAIMED)
async def test_an_actor_that_comes_after_the_look_fences_what_was_found(
    tmp_path: Path, engine: Engine, name: str
) -> None:
    async with opened(engine, tmp_path / "x.db") as here:
        company = await here.company()
        await here.task(company, 1)
        found = await here.store.fetch(FindPrunableTasks(company.company_id, ALL, [1], 10))
        assert found is not None
        assert found.epoch == company.epoch
        await here.company()
        before = here.contents()
        with pytest.raises(StaleEpoch):
            await here.store.commit(CLAIMED[name](company.claim))
        assert here.contents() == before


@pytest.mark.parametrize("name", [name for name in CLAIMED if name != "DeleteSome"])
async def test_a_mark_ends_every_claim_but_its_own(tmp_path: Path, engine: Engine, name: str) -> None:
    async with opened(engine, tmp_path / "x.db") as here:
        company = await here.company()
        await here.task(company, 1)
        marked = await here.store.commit(MarkDeleted(company.claim, (), "{}", 9))
        before = here.contents()
        for claim in (company.claim, marked.claim):
            with pytest.raises(StaleEpoch):
                await here.store.commit(CLAIMED[name](claim))
        assert here.contents() == before


# --- the log ------------------------------------------------------------------------------------------------


async def test_the_beginning_of_the_log_goes_up_to_what_was_found(tmp_path: Path, engine: Engine) -> None:
    async with opened(engine, tmp_path / "x.db") as here:
        company = await here.company()
        for seq in (1, 2):
            await here.task(company, seq)
        assert await here.store.fetch(FindOldLogEnd(Cutoffs(100, events_ms=1))) is None, "all is young"
        last = await here.store.fetch(FindOldLogEnd(ALL))
        assert last == 2
        pruned = await here.store.commit(PruneLog(1, 100, 9))
        assert pruned is not None
        assert (pruned.count, pruned.logged.seq) == (1, None)
        assert pruned.logged.event.data == {"floor": 1, "count": 1, "hosts": 0}
        assert await here.store.commit(PruneLog(1, 100, 9)) is None, "it is gone already"
        await here.store.commit(PruneLog(2, 100, 9))
        assert await here.store.fetch(FindOldLogEnd(ALL)) is None, "only events of pruning are left"


# --- attempts and tasks -------------------------------------------------------------------------------------


async def test_only_companies_with_something_old_are_found(tmp_path: Path, engine: Engine) -> None:
    async with opened(engine, tmp_path / "x.db") as here:
        await here.task(await here.company(), 1)
        await here.company("empty")
        found = await here.store.fetch(FindOldCompanies(ALL))
        assert found == Page([OldCompany(1, "acme", 2, 2)], None)
        young = Cutoffs(100, attempts_ms=1, tasks_ms=1)
        assert (await here.store.fetch(FindOldCompanies(young))).found == []


async def test_attempts_of_settled_runs_go_and_others_stay(tmp_path: Path, engine: Engine) -> None:
    async with opened(engine, tmp_path / "x.db") as here:
        company = await here.company()
        await here.task(company, 1)
        await here.task(company, 2, settled=False)
        page = await here.store.fetch(FindOldAttempts(OLD, 100, FIRST_ATTEMPT))
        assert page == Page((Found(company.epoch, [(1, 1, 0, 1)]),), None)
        both = PruneAttempts(company.claim, [(1, 1, 0, 1), (2, 1, 0, 1)], 100, 9)
        pruned = await here.store.commit(both)
        assert pruned is not None
        assert (pruned.count, pruned.logged.event.kind) == (1, "attempts.pruned")
        assert pruned.logged.seq == 3, "the third event of the company"
        before = here.contents()
        assert await here.store.commit(both) is None
        assert here.contents() == before


async def test_a_chain_of_tasks_goes_from_its_end(tmp_path: Path, engine: Engine) -> None:
    async with opened(engine, tmp_path / "x.db") as here:
        company = await here.company()
        await here.task(company, 1)
        await here.task(company, 2, "t1")
        await here.task(company, 3, "t2")
        assert (await here.store.fetch(FindOldTasks(OLD, ALL))).found == [1, 2, 3]
        found = await here.store.fetch(FindPrunableTasks(1, ALL, [1, 2, 3], 2))
        assert found == Found(company.epoch, {3: "t3", 2: "t2"})
        claim = company.claim
        assert await here.store.commit(PruneTasks(claim, [1, 2], ALL, 9)) is None, "another depends on each"
        pruned = await here.store.commit(PruneTasks(claim, [3, 2], ALL, 9))
        assert pruned is not None
        assert (pruned.seqs, list(pruned.freed)) == (frozenset({2, 3}), [1])
        assert pruned.logged.event.data == {"count": 2, "ids": ["t3", "t2"]}
        assert (await here.store.fetch(FindOldTasks(OLD, ALL))).found == [1]


async def test_a_task_that_is_not_settled_stays(tmp_path: Path, engine: Engine) -> None:
    async with opened(engine, tmp_path / "x.db") as here:
        company = await here.company()
        await here.task(company, 1, settled=False)
        assert (await here.store.fetch(FindOldTasks(OLD, ALL))).found == []
        assert await here.store.fetch(FindPrunableTasks(1, ALL, [1], 10)) == Found(company.epoch, {})
        assert await here.store.commit(PruneTasks(company.claim, [1], ALL, 9)) is None


# --- deleting a company -------------------------------------------------------------------------------------


async def test_a_mark_hides_the_company_frees_its_name_and_answers_what_waits(
    tmp_path: Path, engine: Engine
) -> None:
    async with opened(engine, tmp_path / "x.db") as here:
        company = await here.company()
        await here.store.commit(PutMessage("acme", "m", "{}", 1))
        marked = await here.store.commit(MarkDeleted(company.claim, (), '{"gone":1}', 9))
        assert (marked.logged.event.kind, marked.logged.seq) == ("company.deleting", 1)
        assert await here.store.fetch(ListDeletions()) == (marked.claim,)
        assert await here.store.fetch(FindCompany("acme")) is None
        assert await here.store.fetch(ListCompanies()) == ()
        message = await here.store.fetch(FindMessage("acme", "m"))
        assert message is not None
        assert (message.answer, message.answered_ms) == ('{"gone":1}', 9)
        other = await here.company()
        assert (other.company_id, other.epoch) == (2, 1)


async def test_a_company_that_is_active_is_not_marked(tmp_path: Path, engine: Engine) -> None:
    async with opened(engine, tmp_path / "x.db") as here:
        company = await here.company()
        claim = company.claim
        with pytest.raises(StillActive) as alive:
            await here.store.commit(MarkDeleted(claim, ("a/label",), "{}", 9))
        assert (alive.value.tasks, alive.value.attempts) == ((), ("a/label",))
        await here.task(company, 1, settled=False)
        before = here.contents()
        with pytest.raises(StillActive) as active:
            await here.store.commit(MarkDeleted(claim, (), "{}", 9))
        assert (active.value.tasks, active.value.attempts) == (("t1",), ())
        assert here.contents() == before


async def test_a_deletion_goes_in_steps_and_leaves_nothing_but_its_event(
    tmp_path: Path, engine: Engine
) -> None:
    async with opened(engine, tmp_path / "x.db") as here:
        company = await here.company()
        count = ROWS_MAX // 5
        for seq in range(1, count + 1):
            await here.task(company, seq)
        marked = await here.store.commit(MarkDeleted(company.claim, (), "{}", 9))
        deleted, steps = await delete_all(here, marked.claim)
        assert (deleted.name, deleted.tasks, deleted.attempts) == ("acme", count, count)
        assert (deleted.events, deleted.logged.event.kind) == (count + 1, "company.deleted")
        assert steps == 3, "five rows for each task, one event more, and the company itself"
        assert await here.store.fetch(ListDeletions()) == ()
        with pytest.raises(StaleEpoch):
            await here.store.commit(DeleteSome(marked.claim, 9))
