"""Execution slots: first come first served over all companies, and never more than there are."""

from __future__ import annotations

from pathlib import Path

import pytest
from trio.testing import MockClock

from actors import Context, ReasonKind, SetLimits, Stop, Submit, SubmitMany, WorkState
from actors.core.effects import AttemptKey
from actors.runtime.attempts import AttemptRef, Registry
from actors.runtime.options import ABANDONED_MAX
from actors.runtime.slots import Slots, TurnSlots
from tests.inside import inside
from tests.runtime.support import Gated, GatedConnection, Wrapper, a_host, a_node, a_task, idle, settled

# --- the line ---------------------------------------------------------------------------------------------------


class Line:
    """Slots without a runtime: who was woken, and what a turn of a company takes."""

    def __init__(self, executions_max: int) -> None:
        self.woken: list[str] = []
        self.registry = Registry()
        self.slots = Slots(executions_max, self.registry, self.woken.append, abandoned_max=ABANDONED_MAX)
        self._pos = 0

    def turn(self, company: str) -> TurnSlots:
        return TurnSlots(company, self.slots, self.registry)

    def take(self, turn: TurnSlots) -> bool:
        self._pos += 1
        return turn.reserve(AttemptKey("task", 1, 1, self._pos, 1))

    def keep(self, turn: TurnSlots) -> None:
        """What the turn reserved has begun."""
        for attempt in list(self.registry):
            if attempt.ref in getattr(turn, "_reserved"):  # noqa: B009
                turn.started(attempt.ref)

    def end_one(self) -> None:
        attempt = self.registry.holders[0]
        self.registry.free_slot(attempt)
        self.registry.finish(attempt.ref)
        self.slots.offer()


def full_line(executions_max: int = 1) -> Line:
    line = Line(executions_max)
    turn = line.turn("first")
    for _ in range(executions_max):
        assert line.take(turn)
    line.keep(turn)
    turn.give_back()
    return line


def test_a_slot_that_becomes_free_is_offered_to_the_first_in_line_and_kept_for_it() -> None:
    line = full_line()
    line.slots.want("a")
    line.slots.want("b")
    line.end_one()
    assert line.woken == ["a"]
    assert not line.take(line.turn("b"))
    assert line.take(line.turn("a"))


def test_nobody_overtakes_those_in_line() -> None:
    line = full_line(2)
    line.slots.want("a")
    line.end_one()
    line.end_one()
    assert line.woken == ["a"]
    late = line.turn("late")
    assert line.take(late), "one slot is kept for a, the other is free"
    assert not line.take(late)


def test_what_a_turn_does_not_use_goes_to_the_next_in_line() -> None:
    line = full_line()
    line.slots.want("a")
    line.slots.want("b")
    line.end_one()
    line.turn("a").give_back()
    assert line.woken == ["a", "b"]


def test_an_offer_that_comes_while_a_turn_commits_keeps_its_place_for_the_next_turn() -> None:
    line = full_line()
    line.slots.want("a")
    line.slots.want("b")
    turn = line.turn("a")
    assert not line.take(turn)
    line.end_one()
    turn.give_back()
    assert line.woken == ["a"]
    assert line.take(line.turn("a"))


def test_one_who_leaves_gives_up_its_place_and_its_offer() -> None:
    line = full_line()
    for company in ("a", "b", "c"):
        line.slots.want(company)
    line.slots.leave("b")
    line.end_one()
    line.slots.leave("a")
    assert line.woken == ["a", "c"]


def test_what_a_refused_turn_reserved_goes_back() -> None:
    line = Line(2)
    turn = line.turn("a")
    assert line.take(turn)
    assert line.take(turn)
    turn.sent()
    turn.give_back()
    assert line.registry.slots_in_use == 0
    assert len(line.registry) == 0
    assert line.slots.free == 2


def test_only_what_began_keeps_its_slot() -> None:
    line = Line(2)
    turn = line.turn("a")
    line.take(turn)
    line.take(turn)
    turn.sent()
    begun = turn.started(AttemptRef("a", AttemptKey("task", 1, 1, 1, 1)))
    turn.give_back()
    assert [attempt.ref for attempt in line.registry] == [begun.ref]
    assert line.slots.free == 1


# --- the whole --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executions_max", [1, 3])
async def test_executing_attempts_of_many_companies_never_exceed_the_limit(
    db_path: Path, autojump_clock: MockClock, executions_max: int
) -> None:
    work = Gated()
    async with a_host(db_path, {"work": work}, executions_max=executions_max, timeless=True) as runtime:
        for number in range(12):
            company = runtime.company(f"k{number}")
            await company.ask(SetLimits(runs_max=2))
            await company.ask(SubmitMany([a_task("work"), a_task("work")]))
        await work.has_started(executions_max)
        assert work.running == executions_max
        assert inside(runtime).services.registry.slots_in_use == executions_max
        work.open.set()
        await idle(runtime)
    assert work.most == executions_max
    assert len(work.contexts) == 24


async def test_companies_that_wait_are_served_in_the_order_in_which_they_came(
    db_path: Path, autojump_clock: MockClock
) -> None:
    first, rest = Gated(), Gated()
    rest.open.set()
    async with a_host(db_path, {"first": first, "rest": rest}, executions_max=1, timeless=True) as runtime:
        await runtime.company("k").ask(a_task("first"))
        await first.has_started()
        names = [f"k{number}" for number in range(12)]
        for name in names:
            await runtime.company(name).ask(a_task("rest", id=f"of {name}"))
        first.open.set()
        await idle(runtime)
    assert rest.started == [f"of {name}" for name in names]


async def test_one_with_many_ready_nodes_goes_to_the_end_of_the_line_after_each(
    db_path: Path, autojump_clock: MockClock
) -> None:
    ran: list[str] = []

    async def note(ctx: Context) -> None:
        ran.append(ctx.company.name)

    first = Gated()
    async with a_host(db_path, {"first": first, "note": note}, executions_max=1, timeless=True) as runtime:
        await runtime.company("holder").ask(a_task("first"))
        await first.has_started()
        many = [a_node(f"n{number}", "note") for number in range(6)]
        await runtime.company("many").ask(a_task(nodes=many))
        for name in ("b", "c"):
            await runtime.company(name).ask(a_task("note"))
        first.open.set()
        await idle(runtime)
    assert ran == ["many", "b", "c", "many", "many", "many", "many", "many"]


async def test_without_execution_slots_runs_are_admitted_and_everything_is_held(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path, executions_max=0) as runtime:
        company = runtime.company("k")
        await company.ask(a_task(id="a"))
        await company.when_idle()
        status = await company.status("a")
        assert status.state is WorkState.RUNNING
        assert [reason.kind for reason in status.reasons] == [ReasonKind.EXECUTION_SLOT]
        assert await company.attempts("a") == ()
        await company.ask(Stop("a"))
        assert await settled(company, "a") == "stopped"
    async with a_host(db_path) as runtime:
        await runtime.company("k").ask(a_task(id="b"))
        assert await settled(runtime.company("k"), "b") == "completed"


async def test_explain_names_who_holds_the_execution_slots(db_path: Path, autojump_clock: MockClock) -> None:
    work = Gated()
    async with a_host(db_path, {"work": work}, executions_max=1, timeless=True) as runtime:
        await runtime.company("one").ask(a_task("work", id="a"))
        await work.has_started()
        other = runtime.company("two")
        await other.ask(a_task("work", id="b"))
        (reason,) = (await other.status("b")).reasons
        assert (reason.kind, reason.tasks, reason.nodes) == (
            ReasonKind.EXECUTION_SLOT,
            ("one/a/1/work/1",),
            ("work",),
        )
        work.open.set()
        await idle(runtime)


async def test_a_slot_is_free_as_soon_as_the_handler_has_returned_though_its_result_waits_for_the_commit(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work, gate = Gated(), Wrapper(GatedConnection)
    async with a_host(db_path, {"work": work}, executions_max=1, wrap=gate) as runtime:
        company = runtime.company("k")
        await company.ask(Submit("t", handler="work", id="a"))
        await work.has_started()
        gate.made.shut()
        work.open.set()
        await gate.made.is_asked()
        assert inside(runtime).services.registry.slots_in_use == 0
        assert len(inside(runtime).services.registry) == 1
        gate.made.let_go()
        assert await settled(company, "a") == "completed"
