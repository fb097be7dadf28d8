"""Blocked dissolves when its cause is gone, by whatever way; an id is never silently somebody else's."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from actors import (
    Archive,
    Company,
    Context,
    IdConflict,
    InvalidName,
    KeyConflict,
    Rerun,
    Retry,
    Submit,
    WorkState,
)
from actors.runtime.mailbox import Mailbox
from actors.testing import run_until_idle
from tests.conftest import Opened


class Repairable:
    """A handler that fails for the tasks that are broken."""

    def __init__(self, *broken: str) -> None:
        self.broken = set(broken)

    async def __call__(self, ctx: Context) -> str:
        if ctx.task in self.broken:
            raise RuntimeError("broken")
        return "ok"


async def chain(company: Company, *, tries: int = 1) -> None:
    await company.ask(Submit("a", handler="work", id="A", tries_max=tries))
    await company.ask(Submit("b", handler="work", id="B", depends_on=["A"]))
    await company.ask(Submit("c", handler="work", id="C", depends_on=["B"]))


async def test_downstream_runs_when_the_upstream_is_repaired_by_a_retry(
    opened: Opened, autojump_clock: MockClock
) -> None:
    """C18 (i)."""
    work = Repairable("A")
    async with opened({"work": work}) as runtime:
        company = runtime.company("k")
        await chain(company)
        await run_until_idle(runtime)
        assert [(await company.status(task)).state.value for task in "ABC"] == [
            "failed",
            "blocked",
            "blocked",
        ]
        work.broken.clear()
        await company.ask(Retry("A"))
        await run_until_idle(runtime)
        assert [(await company.status(task)).state.value for task in "ABC"] == ["completed"] * 3


async def test_downstream_runs_when_the_upstream_succeeds_in_a_new_run(
    opened: Opened, autojump_clock: MockClock
) -> None:
    """C18 (i), by a rerun; what needs another dead upstream stays blocked and names it."""
    work = Repairable("A", "D")
    async with opened({"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(Submit("a", handler="work", id="A", tries_max=1))
        await company.ask(Submit("d", handler="work", id="D", tries_max=1))
        await company.ask(Submit("b", handler="work", id="B", depends_on=["A", "D"]))
        await run_until_idle(runtime)
        (gate, *_) = (await company.explain("B")).gates
        assert (gate.kind.value, gate.tasks) == ("upstream_failed", ("A", "D"))
        work.broken.discard("A")
        await company.ask(Rerun("A"))
        await run_until_idle(runtime)
        (gate, *_) = (await company.explain("B")).gates
        assert (gate.kind.value, gate.tasks) == ("upstream_failed", ("D",))


async def test_downstream_is_only_waiting_while_the_upstream_is_tried_again_by_itself(
    opened: Opened, autojump_clock: MockClock
) -> None:
    """C18 (iii): a failure that will be retried blocks nobody."""
    work = Repairable("A")
    async with opened({"work": work}) as runtime:
        company = runtime.company("k")
        await chain(company, tries=3)
        await trio.sleep(0.5)
        assert [(await company.status(task)).state.value for task in "ABC"] == [
            "running",
            "waiting",
            "waiting",
        ]
        work.broken.clear()
        await run_until_idle(runtime)
        assert [(await company.status(task)).state.value for task in "ABC"] == ["completed"] * 3


async def test_the_sweep_alone_heals_when_every_wake_is_lost(
    opened: Opened, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C18 (iv): reports and messages still arrive; nothing else wakes anybody."""
    work = Repairable("A")
    async with opened({"work": work}) as runtime:
        company = runtime.company("k")
        await chain(company)
        await run_until_idle(runtime)
        work.broken.clear()
        monkeypatch.setattr(runtime.slots, "_wake", lambda _company: None)
        monkeypatch.setattr(runtime.supervisor, "wake", lambda _company: None)
        monkeypatch.setattr(Mailbox, "wake", lambda _mailbox: None)
        await company.tell(Retry("A"))
        began_s = trio.current_time()
        while (await company.status("C")).state is not WorkState.COMPLETED:
            await trio.sleep(1)
            assert trio.current_time() - began_s < 6 * 61
    assert runtime.last_sweep is not None


async def test_a_reused_id_says_existing_or_conflict_and_is_never_dropped(
    opened: Opened, autojump_clock: MockClock
) -> None:
    """C52: after it finished, while it runs, after it was archived; and the same with a key."""
    async with opened({"work": Repairable()}) as runtime:
        company = runtime.company("k")
        first = await company.ask(Submit("x", handler="work", id="X", key="k1", payload={"n": 1}))
        again = await company.ask(Submit("x", handler="work", id="X", key="k1", payload={"n": 1}))
        assert (again.id, again.existing, first.existing) == ("X", True, False)
        await company.when_settled("X")
        assert (await company.ask(Submit("x", handler="work", id="X", key="k1", payload={"n": 1}))).existing
        with pytest.raises(IdConflict) as taken:
            await company.ask(Submit("other", handler="work", id="X"))
        assert taken.value.task == "X"
        with pytest.raises(KeyConflict) as used:
            await company.ask(Submit("x", handler="work", key="k1", payload={"n": 2}))
        assert (used.value.key, used.value.task) == ("k1", "X")
        await company.ask(Archive("X"))
        with pytest.raises(IdConflict):
            await company.ask(Submit("other", handler="work", id="X"))
        assert len(await company.tasks(archived=True)) == 1


@pytest.mark.parametrize("name", ["a", "a:b", "A", "é", "🦉", "%_'\"--", "a b"])
async def test_companies_with_awkward_names_do_not_see_each_other(
    name: str, opened: Opened, autojump_clock: MockClock, db_path: Path
) -> None:
    """C50."""
    async with opened({"work": Repairable()}) as runtime:
        await runtime.company(name).ask(Submit("mine", handler="work", id=name))
        await runtime.company("other").ask(Submit("theirs", handler="work", id="a:b2"))
        await run_until_idle(runtime)
        assert [task.id for task in await runtime.company(name).tasks()] == [name]
        assert await runtime.companies() == tuple(sorted((name, "other")))
    raw = sqlite3.connect(db_path)
    assert raw.execute("SELECT count(*) FROM tasks").fetchone() == (2,)
    raw.close()


@pytest.mark.parametrize("name", ["", "a/b", "a ", " a", "e\u0301", "a\nb", "x" * 10_000, "\ud800"])
async def test_unusable_names_are_refused_at_the_edge(
    name: str, opened: Opened, autojump_clock: MockClock
) -> None:
    """C50: the decomposed form among them, so that two that look the same are never two companies."""
    async with opened({}) as runtime:
        with pytest.raises(InvalidName):
            runtime.company(name)
        assert await runtime.companies() == ()
