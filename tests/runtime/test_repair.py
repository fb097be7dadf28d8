"""Dependencies that fail and are repaired, retries that keep their place, and ids that are used again: end to end."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from actors import (
    Archive,
    Backoff,
    Company,
    Context,
    Edit,
    IdConflict,
    KeyConflict,
    Node,
    ReasonKind,
    Rerun,
    Retry,
    Stop,
    Submit,
    Unarchive,
    WorkState,
)
from actors.handlers import Handler
from tests.runtime.support import (
    Gated,
    Scripted,
    a_host,
    a_task,
    idle,
    kinds,
    of_kind,
    settled,
    stored_events,
)

# --- repaired upstreams -----------------------------------------------------------------------------------------------


async def test_what_a_failure_blocked_runs_when_the_upstream_is_rerun_with_success(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C18 (i)."""
    script, gate = Scripted([ValueError("no luck"), "done"]), Gated()

    async def work(ctx: Context) -> object:
        await gate(ctx)
        return await script(ctx)

    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a", tries_max=1))
        await company.ask(a_task("ok", id="b", depends_on=["a"]))
        await company.ask(a_task("ok", id="c", depends_on=["b"]))
        gate.open.set()
        assert await settled(company, "a") == "failed"
        b, c = await company.status("b"), await company.status("c")
        assert (b.state, b.reasons[0].kind, b.reasons[0].tasks) == (
            WorkState.BLOCKED,
            ReasonKind.UPSTREAM_FAILED,
            ("a",),
        )
        assert (c.state, c.reasons[0].kind, c.reasons[0].tasks) == (
            WorkState.BLOCKED,
            ReasonKind.UPSTREAM_BLOCKED,
            ("b",),
        )
        await company.ask(Rerun("a"))
        assert await settled(company, "c") == "completed"
    flips = of_kind(stored_events(db_path), "tasks.blocked", "tasks.unblocked")
    assert [(event.kind, event.data["cause"], event.data["ids"]) for event in flips] == [
        ("tasks.blocked", "a", ["b", "c"]),
        ("tasks.unblocked", "a", ["b", "c"]),
    ]


async def test_what_a_failure_blocked_runs_when_the_upstream_is_retried_with_success(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C18: the same by Retry."""
    work = Scripted([ValueError("no luck"), "done"])
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a", tries_max=1))
        await company.ask(a_task("ok", id="b", depends_on=["a"]))
        await company.when_settled("a")
        await company.ask(Retry("a"))
        assert await settled(company, "b") == "completed"


async def test_an_upstream_that_retries_by_itself_blocks_nobody_meanwhile(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C18 (iii): a failure that will be retried is not failed."""
    work = Scripted([ValueError("no luck"), "done"])
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        node = Node("n", "work", retry=Backoff(base_s=100))
        await company.ask(a_task(nodes=[node], id="a"))
        await company.ask(a_task("ok", id="b", depends_on=["a"]))
        await company.when_idle()
        assert (await company.status("b")).state is WorkState.WAITING
        assert await settled(company, "b") == "completed"
    assert of_kind(stored_events(db_path), "tasks.blocked", "tasks.unblocked") == []


async def test_a_task_with_another_dead_upstream_stays_blocked_and_names_it(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C18: B also needs failed D."""
    work = Scripted([ValueError("no luck"), "done"])
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a", tries_max=1))
        await company.ask(a_task("fails", id="d", tries_max=1))
        await company.ask(a_task("ok", id="b", depends_on=["a", "d"]))
        await company.when_settled("d")
        assert (await company.status("b")).reasons[0].tasks == ("a", "d")
        await company.ask(Retry("a"))
        await company.when_settled("a")
        status = await company.status("b")
        assert (status.state, status.reasons[0].tasks) == (WorkState.BLOCKED, ("d",))


async def test_every_way_in_which_an_upstream_can_be_out_of_the_way_is_told_apart(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C21: done, failed, stopped, archived before it ran, archived after it was done."""
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a1"))
        await company.ask(a_task("fails", id="a2", tries_max=1))
        await company.ask(a_task("ok", id="a3", mode="manual"))
        await company.ask(a_task("ok", id="a4", mode="manual"))
        await company.ask(a_task("ok", id="a5"))
        await idle(runtime)
        upstreams = ["a1", "a2", "a3", "a4", "a5"]
        await company.ask(a_task("ok", id="b", depends_on=upstreams))
        assert (await company.status("b")).state is WorkState.BLOCKED, "by the failed one"
        await company.ask(Stop("a3"))
        await company.ask(Archive("a4"))
        await company.ask(Archive("a5"))
        status = await company.status("b")
        assert [(reason.kind, reason.tasks) for reason in status.reasons] == [
            (ReasonKind.UPSTREAM_FAILED, ("a2",)),
            (ReasonKind.UPSTREAM_STOPPED, ("a3",)),
            (ReasonKind.UPSTREAM_ARCHIVED, ("a4",)),
        ]
        await company.ask(Unarchive("a4"))
        await company.ask(Retry("a4"))
        await company.ask(Retry("a3"))
        await company.when_settled("a4")
        await company.when_settled("a3")
        assert [(r.kind, r.tasks) for r in (await company.status("b")).reasons] == [
            (ReasonKind.UPSTREAM_FAILED, ("a2",))
        ]


async def test_letting_go_of_the_dead_upstreams_frees_the_task(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C21: detaching."""
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="good"))
        await company.ask(a_task("fails", id="bad", tries_max=1))
        await company.ask(a_task("ok", id="b", depends_on=["good", "bad"]))
        await company.when_settled("bad")
        await company.ask(Edit("b", depends_on=["good"]))
        assert await settled(company, "b") == "completed"


async def test_a_dependency_that_is_done_before_the_task_is_submitted_is_done(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C19."""
    async with a_host(db_path, timeless=True) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a"))
        await idle(runtime)
        actor = runtime.actor("k")
        assert actor is None or actor.state is None or "a" not in actor.state.entries
        await company.ask(a_task("ok", id="b", depends_on=["a"]))
        assert await settled(company, "b") == "completed"


async def test_a_dependency_that_ends_in_the_turn_in_which_the_task_is_submitted_is_done(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C19: report and submit in one turn, in both orders."""
    for task, order in (("a", 0), ("b", 1)):
        work = Gated()
        async with a_host(db_path, {"work": work}, timeless=True) as runtime:
            company = runtime.company(f"k{order}")
            await company.ask(a_task("work", id=task))
            await work.has_started()
            if order:
                company.tell_nowait(a_task("ok", id="after", depends_on=[task]))
                work.open.set()
            else:
                work.open.set()
                await trio.lowlevel.checkpoint()
                company.tell_nowait(a_task("ok", id="after", depends_on=[task]))
            await idle(runtime)
            assert await settled(company, "after") == "completed"


# --- one's old place --------------------------------------------------------------------------------------------------


async def test_what_is_retried_keeps_its_old_place_however_many_came_later(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C28: the run keeps its run slot while it backs off, so with one slot nobody overtakes it at all."""
    ran: list[str] = []

    async def work(ctx: Context) -> None:
        ran.append(ctx.task)
        if ctx.task == "a" and ctx.attempt == 1:
            raise ValueError("no luck")

    node = Node("n", "work", retry=Backoff(base_s=10))
    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task(nodes=[node], id="a"))
        for task in ("b", "c"):
            await company.ask(a_task("work", id=task))
        for task in "defghijk":
            await trio.sleep(1)
            await company.ask(a_task("work", id=task))
        await idle(runtime)
    assert ran == ["a", "a", "b", "c", *"defghijk"]


@pytest.mark.parametrize("how", ["retry by a person", "a restart"])
async def test_what_was_stopped_or_interrupted_goes_before_all_that_came_later(
    db_path: Path, autojump_clock: MockClock, how: str
) -> None:
    """C28: after a stop, after a restart."""
    ran: list[str] = []
    work = Gated()

    async def note(ctx: Context) -> None:
        ran.append(ctx.task)

    handlers: dict[str, Handler] = {"work": work, "note": note}
    async with a_host(db_path, handlers, drain_s=0) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="first"))
        for task in ("b", "c"):
            await company.ask(a_task("note", id=task))
        await work.has_started()
        if how != "a restart":
            await company.ask(a_task("work", id="holder", priority=0))
            await company.ask(Stop("first"))
            await work.has_started(2)
            await company.ask(Retry("first"))
            assert [status.id for status in await company.queue()] == ["holder", "first", "b", "c"]
    work.open.set()
    async with a_host(db_path, handlers) as runtime:
        await idle(runtime)
    assert work.started[-1] == "first"
    assert ran == ["b", "c"]
    order = [event.task for event in of_kind(stored_events(db_path), "run.completed")]
    assert [task for task in order if task != "holder"] == ["first", "b", "c"]


# --- ids and keys that are used again ------------------------------------------------------------------------------


async def test_an_id_that_is_used_again_says_existing_or_conflict_and_never_makes_a_task_vanish(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C52: while it waits, while it runs, when it has ended, when it is put away; in memory or not."""
    work = Gated()
    same = Submit("x", handler="work", id="x", payload=1)
    other = Submit("x", handler="work", id="x", payload=2)

    async def both(company: Company) -> None:
        report = await company.ask(same)
        assert (report.id, report.seq, report.existing) == ("x", 1, True)
        with pytest.raises(IdConflict, match="task id 'x' belongs to a task with other content"):
            await company.ask(other)

    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        first = await company.ask(same)
        assert not first.existing
        await both(company)
        await work.has_started()
        await both(company)
        work.open.set()
        await company.when_settled("x")
        await both(company)
        await trio.sleep(600)
        await both(company)
        await company.ask(Archive("x"))
        await both(company)
    async with a_host(db_path, {"work": work}) as runtime:
        await both(runtime.company("k"))
        assert len(await runtime.company("k").tasks(archived=True)) == 1
    assert len(work.contexts) == 1


async def test_an_idempotency_key_gives_back_the_task_it_made_or_says_whose_it_is(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C52: the same key with another payload."""
    async with a_host(db_path, timeless=True) as runtime:
        company = runtime.company("k")
        first = await company.ask(Submit("x", handler="ok", key="order 7", payload=1))
        again = await company.ask(Submit("x", handler="ok", key="order 7", payload=1))
        assert (again.id, again.existing) == (first.id, True)
        with pytest.raises(KeyConflict) as raised:
            await company.ask(Submit("x", handler="ok", key="order 7", payload=2))
        assert (raised.value.key, raised.value.task) == ("order 7", first.id)
        elsewhere = await runtime.company("other").ask(Submit("x", handler="ok", key="order 7", payload=2))
        assert not elsewhere.existing
        await idle(runtime)
    submitted = of_kind(stored_events(db_path), "task.submitted")
    assert kinds(submitted) == ["task.submitted"] * 2
