"""What becomes of the work of a process that died: it is found, counted, and told like any other end."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from actors import (
    AttemptEnd,
    Context,
    GiveUp,
    Node,
    NodeStatus,
    ReasonKind,
    RunStatus,
    SetLimits,
    Submit,
    SubmitMany,
)
from actors.handlers import Handler
from tests.invariants import check_file

from .harness import Kill, Life, Scenario, Script, World, assert_promises, deaths, live
from .scenarios import handlers

RESTARTS = 20


def _rows(path: Path, statement: str, *params: object) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as raw:
        return raw.execute(statement, params).fetchall()


def _ends(path: Path, task: str) -> list[str | None]:
    statement = (
        "SELECT attempt.end FROM attempts AS attempt JOIN tasks AS task USING (company_id, seq)"
        " WHERE task.id = ? ORDER BY attempt.run, attempt.pos, attempt.number"
    )
    return [row[0] for row in _rows(path, statement, task)]


def _die(world: World) -> None:
    assert world.life is not None
    world.life.die()


def _killers(world: World) -> Mapping[str, Handler]:
    async def killer(ctx: Context) -> None:
        world.effect(ctx)
        await trio.sleep(0.5)
        _die(world)

    return {**handlers(world), "killer": killer}


def _live_on(scenario: Scenario, path: Path, world: World) -> tuple[Life, int]:
    """Start the process again as often as it dies, and say how often that was."""
    for died in range(RESTARTS):
        life = live(scenario, path, world)
        if life.heir is None:
            return life, died
        path = life.heir
        check_file(path)
    raise AssertionError(f"it died {RESTARTS} times")


# --- C03: work that kills the process ------------------------------------------------------------------------


async def _a_killer_among_others(script: Script) -> None:
    await script.ask(SetLimits(runs_max=3))
    others = [Submit("other", handler="step", id=f"other {number}") for number in range(4)]
    await script.ask(SubmitMany([Submit("killer", handler="killer", id="killer"), *others]))
    await script.ask(Submit("elsewhere", handler="step", id="elsewhere"), company="other")
    await script.settled("killer", *(other.id or "" for other in others))
    await script.settled("elsewhere", company="other")


def test_a_node_under_which_the_process_dies_five_times_fails_and_the_others_run_on(folder: Path) -> None:
    """C03: a crash is not a failed try, but it is counted, or it would go on for ever."""
    world = World()
    scenario = Scenario("killer", _a_killer_among_others, _killers, executions_max=4)
    life, died = _live_on(scenario, folder / "a.db", world)
    assert died == 5
    assert _ends(life.path, "killer") == ["lost"] * 5
    settled = _rows(
        life.path, "SELECT id, status, reason FROM runs JOIN tasks USING (company_id, seq) ORDER BY id"
    )
    assert settled == [
        ("elsewhere", "completed", None),
        ("killer", "failed", "process died 5 times"),
        *((f"other {number}", "completed", None) for number in range(4)),
    ]
    assert _rows(life.path, "SELECT tries, unclean, error FROM nodes WHERE status = 'failed'") == [
        (0, 5, "process died 5 times")
    ]


async def _three_at_once(script: Script) -> None:
    await script.ask(SetLimits(runs_max=4))
    await script.ask(SubmitMany([Submit("suspect", handler="door", id=task) for task in ("a", "b")]))
    await script.ask(Submit("suspect", handler="door", id="c"), company="other")
    for task in ("a", "b"):
        await script.until(task, lambda status: bool(status.nodes and status.nodes[0].attempts))
    if script.world.facts.setdefault("deaths", 0) < 2:
        script.world.facts["deaths"] += 1
        await script.until(
            "c", lambda status: bool(status.nodes and status.nodes[0].attempts), company="other"
        )
        _die(script.world)
    await script.ask(Submit("innocent", handler="step", id="d"))
    await script.settled("d")  # nobody else is held up
    await _one_by_one(script)


async def _one_by_one(script: Script) -> None:
    """Of the suspects only one executes at any time, and the others say whom they wait for."""
    companies = {"a": "acme", "b": "acme", "c": "other"}
    while companies:
        await trio.sleep(1)
        seen = {
            task: await script.runtime.company(company).status(task) for task, company in companies.items()
        }
        (alive,) = (task for task, status in seen.items() if status.nodes[0].status is NodeStatus.RUNNING)
        label = f"{companies[alive]}/{alive}/1/door/{seen[alive].nodes[0].attempts}"
        for task, status in seen.items():
            if task != alive:
                (reason,) = status.reasons
                assert (reason.kind, reason.tasks) == (ReasonKind.EXECUTION_SLOT, (label,))
                assert reason.nodes == ("door",)
        script.world.facts[alive] = True
        await script.settled(alive, company=companies.pop(alive))


def test_suspects_of_all_companies_execute_one_at_a_time_until_they_succeed(folder: Path) -> None:
    world = World()
    scenario = Scenario("suspects", _three_at_once, handlers, executions_max=4)
    life, died = _live_on(scenario, folder / "a.db", world)
    assert died == 2
    assert _rows(life.path, "SELECT DISTINCT status, unclean FROM nodes") == [("succeeded", 0)]


def test_five_deaths_in_different_generations_of_the_process_are_told_with_their_number(folder: Path) -> None:
    world = World()

    async def drive(script: Script) -> None:
        await script.ask(Submit("killer", handler="killer", id="a"))
        await script.settled("a")

    life, _ = _live_on(Scenario("killer", drive, _killers), folder / "a.db", world)
    told = _rows(
        life.path,
        "SELECT kind, after, reason, data FROM events WHERE kind = 'attempt.lost' ORDER BY position",
    )
    assert told == [
        *(("attempt.lost", "pending", None, f'{{"unclean": {number}}}') for number in (1, 2, 3, 4)),
        ("attempt.lost", "failed", "process died 5 times", '{"unclean": 5}'),
    ]


def test_a_graceful_drain_uses_up_no_death_and_no_try(folder: Path) -> None:
    """C03, C44: ten restarts in good order, and the node is as good as new."""
    world = World()

    async def drive(script: Script) -> None:
        await script.ask(Submit("long", handler="door", id="a"))
        await script.until("a", lambda status: bool(status.nodes and status.nodes[0].attempts))
        if script.world.facts.setdefault("restarts", 0) < 10:
            script.world.facts["restarts"] += 1
            await script.runtime.aclose(now=script.world.facts["restarts"] % 2 == 0)
            return
        script.world.facts["a"] = True
        await script.settled("a")

    path = folder / "a.db"
    for _ in range(11):
        live(Scenario("drained", drive, handlers), path, world)
    assert _ends(path, "a") == ["interrupted"] * 10 + ["succeeded"]
    assert _rows(path, "SELECT status, tries, unclean, error FROM nodes") == [("succeeded", 0, 0, None)]


def test_a_success_forgets_the_deaths_before_it(folder: Path) -> None:
    world = World()

    def of(world: World) -> Mapping[str, Handler]:
        async def shaky(ctx: Context) -> str:
            world.effect(ctx)
            if ctx.attempt < 5:
                _die(world)
            return "alive"

        return {"shaky": shaky}

    async def drive(script: Script) -> None:
        await script.ask(Submit("shaky", handler="shaky", id="a"))
        await script.settled("a")

    life, died = _live_on(Scenario("shaky", drive, of), folder / "a.db", world)
    assert died == 4
    assert _rows(life.path, "SELECT status, unclean, result FROM nodes") == [("succeeded", 0, '"alive"')]


# --- C04: between the claim and the work ----------------------------------------------------------------------


async def _first_alone(script: Script) -> None:
    await script.ask(Submit("first", handler="step", id="a"))
    if script.world.facts.get("died"):
        await script.ask(Submit("second", handler="step", id="b"))
        await script.settled("b")
    await script.settled("a")


def test_a_death_between_the_claim_and_the_work_leaves_the_run_slot_to_the_next(folder: Path) -> None:
    """C04: with one run slot, whatever the moment, the next process finishes the run and starts another."""
    scenario = Scenario("first alone", _first_alone, handlers)
    lost: set[int] = set()
    for death in deaths(scenario, folder):
        with death.named():
            death.world.facts["died"] = True
            live(scenario, death.heir, death.world)
            check_file(death.heir)
            rows = _rows(death.heir, "SELECT seq, status, slot FROM runs ORDER BY seq")
            assert rows == [(1, "completed", 0), (2, "completed", 0)]
            ends = _ends(death.heir, "a")
            assert ends[-1] == "succeeded"
            assert set(ends[:-1]) <= {"lost"}
            lost.add(len(ends) - 1)
    assert lost == {0, 1}, "history shows at most one lost attempt, and at some moments one"


# --- C06: found dead, and told like any other failure ----------------------------------------------------------


def test_a_node_found_dead_blocks_its_dependents_just_as_one_that_failed(folder: Path) -> None:
    """C06: recovery and the ordinary end go through one function, so the same is said of both."""

    def of(world: World) -> Mapping[str, Handler]:
        async def gives_up(ctx: Context) -> None:
            raise GiveUp("no")

        return {**_killers(world), "gives up": gives_up}

    async def drive(script: Script, handler: str) -> None:
        tasks = [
            Submit("a", nodes=[Node("node", handler)], id="a"),
            Submit("b", handler="step", id="b", depends_on=["a"]),
        ]
        await script.ask(SubmitMany([*tasks, Submit("c", handler="step", id="c", depends_on=["b"])]))
        await script.settled("a")
        status = await script.until("b", lambda _: True)
        assert [(reason.kind, reason.tasks) for reason in status.reasons] == [
            (ReasonKind.UPSTREAM_FAILED, ("a",))
        ]

    told = {}
    for handler in ("killer", "gives up"):
        scenario = Scenario(handler, lambda script, handler=handler: drive(script, handler), of)  # type: ignore[misc]
        life, died = _live_on(scenario, folder / f"{handler}.db", World())
        assert died == (5 if handler == "killer" else 0)
        told[handler] = _rows(
            life.path,
            "SELECT kind, task, before, after, data FROM events WHERE position >"
            " (SELECT max(position) FROM events WHERE kind IN ('attempt.lost', 'attempt.failed'))"
            " AND company_id IS NOT NULL ORDER BY position",
        )
    assert told["killer"] == told["gives up"]
    assert [row[0] for row in told["killer"]] == ["run.failed", "tasks.blocked"]


# --- C01: orphans whose owner nobody knows any more ------------------------------------------------------------


async def _one(script: Script) -> None:
    await script.ask(Submit("a", handler="step", id="a"))
    await script.settled("a")


ONE = Scenario("one", _one, handlers)


@pytest.mark.parametrize("pruned", ["before the recovery", "while it goes on", "and the pruner died as well"])
def test_an_attempt_whose_host_row_is_gone_is_lost_all_the_same(folder: Path, pruned: str) -> None:
    """C01: whether the dead host's row goes first or last, the orphan is found, and found as lost."""
    world = World()
    heir = live(ONE, folder / "a.db", world, Kill(3, after=True)).heir
    assert heir is not None
    assert _ends(heir, "a") == [None]
    if pruned == "while it goes on":
        # the next process dies when it has begun and has not yet looked for orphans
        heir = live(ONE, heir, world, Kill(1, after=True)).heir
        assert heir is not None
    _prune_hosts(heir)
    if pruned == "and the pruner died as well":
        heir = live(ONE, heir, world, Kill(2, after=False)).heir
        assert heir is not None
        assert _ends(heir, "a") == [None]
    live(ONE, heir, world)
    check_file(heir)
    assert _ends(heir, "a") == ["lost", "succeeded"]
    assert _rows(heir, "SELECT status, slot FROM runs") == [("completed", 0)]


def _prune_hosts(path: Path) -> None:
    """What a clean-up of dead hosts would do. The number of one that is gone must not come again."""
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("DELETE FROM hosts")
        raw.commit()


def test_the_number_of_a_pruned_host_is_not_given_to_the_next(folder: Path) -> None:
    world = World()
    heir = live(ONE, folder / "a.db", world, Kill(3, after=True)).heir
    assert heir is not None
    _prune_hosts(heir)
    live(ONE, heir, world)
    assert _rows(heir, "SELECT host_id FROM attempts ORDER BY number") == [(1,), (2,)]


# --- what the file promises ------------------------------------------------------------------------------------


def test_every_promise_is_looked_for_when_the_file_is_opened_again(folder: Path) -> None:
    world = World()
    life = live(ONE, folder / "a.db", world)
    assert_promises(life.path, world)
    answers = [(message, reply) for message, reply in world.answers.values()]
    assert [type(message) for message, _ in answers] == [Submit]
    forged = attrs.evolve(answers[0][1], id="never submitted")
    world.answers[("acme", "forged", 1)] = (answers[0][0], forged)
    with pytest.raises(AssertionError, match="was forgotten"):
        assert_promises(life.path, world)


def test_the_dead_of_one_life_are_the_orphans_of_the_next_and_only_of_that(folder: Path) -> None:
    """The lost attempt is closed in the recovery's own commit; a third process finds nothing to recover."""
    world = World()
    heir = live(ONE, folder / "a.db", world, Kill(3, after=True)).heir
    assert heir is not None
    second = live(ONE, heir, world, Kill(4, after=True))
    assert second.heir is not None
    ends = _ends(second.heir, "a")
    assert ends in (["lost", None], ["lost", "succeeded"])
    live(ONE, second.heir, world)
    assert _ends(second.heir, "a").count("lost") == ends.count("lost") + ends.count(None)
    assert {end for end in _ends(second.heir, "a") if end} <= {AttemptEnd.LOST, AttemptEnd.SUCCEEDED}
    assert _rows(second.heir, "SELECT status FROM runs") == [(RunStatus.COMPLETED.value,)]
