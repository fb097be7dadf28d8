"""The turn: one at a time in a company, never inside another, and each of bounded size."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

import actors.core.advance
from actors import Context, Edit, Event, Node, Runtime, SetLimits, Submit, SubmitMany, WorkState
from actors.core.advance import MOVES_MAX
from actors.core.turn import Turn
from actors.runtime.company import BATCH_MAX, CompanyActor
from actors.runtime.taken import Taken
from tests.inside import inside
from tests.runtime.support import a_host, a_task, idle, of_kind, quiet, stored_events


@attrs.define
class Watch:
    """What was seen of all turns."""

    turns: int = 0
    most_moves: int = 0
    most_messages: int = 0
    deepest: int = 0
    inside: dict[str, int] = attrs.field(factory=lambda: defaultdict(int))
    deciding: bool = False


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Every turn of every company is watched: none may begin inside another, none may decide inside another."""
    seen = Watch()
    run_turn, decide_turn, act = CompanyActor._turn, CompanyActor._decide, CompanyActor._act

    async def turn(actor: CompanyActor) -> bool:
        assert seen.inside[actor.name] == 0, "a turn began inside another"
        seen.inside[actor.name] += 1
        seen.turns += 1
        try:
            return await run_turn(actor)
        finally:
            seen.inside[actor.name] -= 1

    def decide(actor: CompanyActor, taken: Taken, *rest: Any) -> Turn:
        with alone():
            made = decide_turn(actor, taken, *rest)
        seen.most_moves = max(seen.most_moves, made.draft.moves)
        seen.most_messages = max(seen.most_messages, len(taken.envelopes))
        return made

    def acting(*args: Any) -> None:
        with alone():
            act(*args)

    @contextmanager
    def alone() -> Iterator[None]:
        assert not seen.deciding, "the pure part was entered again from within"
        seen.deciding = True
        try:
            yield
        finally:
            seen.deciding = False

    def deep(decide_one: Any) -> Any:
        def wrapped(*args: Any) -> Any:
            depth, frame = 0, sys._getframe()
            while frame.f_back is not None:
                depth, frame = depth + 1, frame.f_back
            seen.deepest = max(seen.deepest, depth)
            return decide_one(*args)

        return wrapped

    monkeypatch.setattr(CompanyActor, "_turn", turn)
    monkeypatch.setattr(CompanyActor, "_decide", decide)
    monkeypatch.setattr(CompanyActor, "_act", acting)
    monkeypatch.setattr("actors.core.advance.finish", deep(actors.core.advance.finish))
    return seen


async def reacts(runtime: Runtime, reactions: list[Event]) -> None:
    """A subscriber that sends messages in reaction to what it sees."""
    async for event in runtime.events(company="k"):
        if event.kind == "run.completed" and len(reactions) < 60:
            reactions.append(event)
            company = runtime.company("k")
            await company.tell(Submit("a reaction", handler="chats"))
            company.tell_nowait(Submit("another"))


async def test_no_turn_begins_inside_another_whoever_sends_and_whenever(
    db_path: Path, autojump_clock: MockClock, watch: Watch
) -> None:
    """Handlers ask their own company, a subscriber answers events with messages, runs end in their first turn."""

    async def chats(ctx: Context) -> str:
        made = await ctx.company.ask(Submit("a child"))
        await ctx.company.ask(Edit(ctx.task, priority=1))
        return made.id

    reactions: list[Event] = []
    async with a_host(db_path, {"chats": chats}, timeless=True) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=10))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reacts, runtime, reactions)
            async with trio.open_nursery() as senders:
                for number in range(30):
                    senders.start_soon(company.ask, Submit(f"task {number}", handler="chats"))
            while len(reactions) < 60:
                await inside(runtime).services.notifier.news.wait()
            await idle(runtime)
            nursery.cancel_scope.cancel()
        statuses = await company.tasks()
    assert len(statuses) == 30 + 30 + 60 * 2 + 60
    assert {status.state for status in statuses} == {WorkState.COMPLETED}
    assert watch.turns > 10


@pytest.mark.parametrize(("runs_max", "many"), [(1, 3_000), (7, 1_000)])
async def test_thousands_of_runs_without_nodes_complete_in_turns_of_bounded_size_without_recursion(
    db_path: Path, autojump_clock: MockClock, watch: Watch, runs_max: int, many: int
) -> None:
    async with a_host(db_path, timeless=True) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=runs_max))
        await company.ask(SubmitMany([Submit("few") for _ in range(10)]))
        await quiet(company)
        depth_of_few = watch.deepest
        before = watch.turns
        await company.ask(SubmitMany([Submit("many") for _ in range(many)]))
        await quiet(company)
        actor = inside(runtime).services.directory.memory("k")
        assert actor is not None
        assert actor.state is not None
        assert actor.state.entries == {}, "nothing of what has ended stays in memory"
    assert watch.deepest == depth_of_few
    assert watch.most_moves == MOVES_MAX
    assert watch.turns - before >= many * 2 / MOVES_MAX
    completed = of_kind(stored_events(db_path), "run.completed")
    assert [event.task for event in completed] == [f"@{number}" for number in range(1, many + 11)]


async def test_a_chain_of_tasks_without_nodes_runs_through_without_recursion(
    db_path: Path, autojump_clock: MockClock, watch: Watch
) -> None:
    chain = [
        Submit("link", id=f"t{number}", depends_on=[f"t{number - 1}"] if number else [])
        for number in range(1_000)
    ]
    async with a_host(db_path, timeless=True) as runtime:
        company = runtime.company("k")
        await company.ask(SubmitMany(chain))
        await quiet(company)
        assert (await company.status("t999")).state is WorkState.COMPLETED
    assert watch.deepest < 150
    assert watch.most_moves <= MOVES_MAX


async def test_a_turn_takes_a_bounded_number_of_messages(
    db_path: Path, autojump_clock: MockClock, watch: Watch
) -> None:
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        for number in range(350):
            company.tell_nowait(Submit(f"task {number}", mode="manual"))
        await quiet(company)
        assert trio.current_time() == 0, "the next turn takes the rest at once"
        assert len(await company.tasks()) == 350
    assert watch.most_messages == BATCH_MAX


async def test_finishing_one_run_and_starting_the_next_is_one_commit(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path, timeless=True) as runtime:
        company = runtime.company("k")
        await company.ask(SubmitMany([a_task("ok", id="a"), a_task("ok", id="b")]))
        commits: list[list[str]] = []
        publisher = inside(runtime).services.publisher
        publish = publisher.published

        def published(name: str, events: tuple[Any, ...], committed: Any) -> None:
            commits.append([event.kind for event in events])
            publish(name, events, committed)

        setattr(publisher, "published", published)  # noqa: B010 - a method of one instance
        await idle(runtime)
    together = ["attempt.succeeded", "run.completed", "run.admitted", "attempt.started"]
    assert [commit for commit in commits if commit][-2:] == [together, together[:2]]


async def test_a_company_that_is_at_its_fixed_point_makes_no_turn(
    db_path: Path, autojump_clock: MockClock, watch: Watch
) -> None:
    """For hours of virtual time: an actor that has nothing to do leaves, and nobody asks it but the sweep."""
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a"))
        await idle(runtime)
        before, events = watch.turns, len(stored_events(db_path))
        await trio.sleep(6 * 3600)
        assert watch.turns - before <= 2
        assert len(stored_events(db_path)) == events
        assert inside(runtime).services.directory.cells == ()


async def test_one_company_s_long_queue_delays_no_other_s_turn(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path, timeless=True) as runtime:
        busy, other = runtime.company("busy"), runtime.company("other")
        await busy.ask(SubmitMany([Submit("many", nodes=[Node("n", "ok")]) for _ in range(120)]))
        report = await other.ask(a_task("ok"))
        await other.when_settled(report.id)
        left = len(await busy.queue())
        assert left > 100
        await idle(runtime)
