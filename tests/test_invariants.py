"""The checker checks: for each of its rules a planted row that it finds, and a sound file in which it finds nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from actors import (
    Approve,
    Archive,
    Context,
    Gate,
    GiveUp,
    Next,
    Node,
    Pause,
    Retention,
    RunNow,
    Runtime,
    SendBack,
    SetBudget,
    SetLimits,
    SetSchedule,
    Stop,
    Submit,
)
from actors.core.effects import AttemptKey
from actors.runtime.attempts import AttemptRef
from actors.testing import run_until_idle
from storage.values import changed
from tests.inside import inside

from .conftest import Opened
from .invariants import LOOKS, RULES, Broken, check_file, check_runtime

Plant = list[str]

PLANTS: dict[str, Plant] = {
    "a task has at least one run": ["DELETE FROM runs WHERE seq = 5"],
    "runs of a task are numbered from one without a gap": ["UPDATE runs SET number = 7 WHERE seq = 5"],
    "only the newest run of a task is unsettled": [
        "INSERT INTO runs (company_id, seq, number, status, created_ms) VALUES (1, 5, 2, 'queued', 0)",
        "UPDATE runs SET status = 'queued', settled_ms = NULL WHERE seq = 5",
    ],
    "an active run has a slot of its own": [
        "DROP INDEX runs_slot",
        "DROP TRIGGER runs_admission_by_update",
        "UPDATE runs SET slot = 1, status = 'running', admitted_ms = 1, settled_ms = NULL WHERE seq IN (4, 5)",
    ],
    "a run holds a slot exactly while it is active": ["UPDATE runs SET slot = 1 WHERE seq = 1"],
    "a run that was never admitted has no nodes": ["UPDATE runs SET admitted_ms = NULL WHERE seq = 1"],
    "nodes of a run are numbered from zero without a gap": [
        "UPDATE nodes SET pos = 5 WHERE seq = 1 AND pos = 1",
        "UPDATE attempts SET pos = 5 WHERE seq = 1 AND pos = 1",
    ],
    "every node of a completed run has succeeded": [
        "UPDATE nodes SET status = 'pending', result = NULL WHERE seq = 1 AND pos = 1"
    ],
    "a failed run has a failed node, or is quarantined": [
        "UPDATE nodes SET status = 'skipped' WHERE seq = 2"
    ],
    "no node waits in a run that was stopped": ["UPDATE nodes SET status = 'pending' WHERE seq = 3"],
    "a node runs only in an active run": ["UPDATE nodes SET status = 'running' WHERE seq = 2"],
    "a node that runs has an open attempt, its last one": [
        "UPDATE nodes SET status = 'running' WHERE seq = 2"
    ],
    "an attempt that lives is of its node's generation, or of one before if it is superseded": [
        "UPDATE attempts SET ended_ms = NULL, end = NULL, generation = 5 WHERE seq = 2"
    ],
    "only a live attempt is superseded": ["UPDATE nodes SET superseded = 1 WHERE seq = 2"],
    "an open attempt is the last one of a node that runs": [
        "UPDATE attempts SET ended_ms = NULL, end = NULL WHERE seq = 2"
    ],
    "attempts of a node are numbered from one without a gap": ["UPDATE nodes SET attempts = 9 WHERE seq = 2"],
    "a node has a result exactly if it succeeded": ["UPDATE nodes SET result = '1' WHERE seq = 2"],
    "of one generation one result is accepted": [
        "DROP INDEX attempts_accepted",
        """INSERT INTO attempts SELECT company_id, seq, run, pos, 2, generation, host_id, started_ms, ended_ms, end,
               error, pid, pid_started, reserved, spent, assumed FROM attempts WHERE seq = 1 AND pos = 0""",
    ],
    "a node has succeeded exactly if an attempt of its generation has": [
        "UPDATE attempts SET end = 'failed' WHERE seq = 1 AND pos = 0"
    ],
    "a result without an attempt is that of the run before": [
        "UPDATE nodes SET result = '7' WHERE seq = 6 AND run = 2 AND pos = 0"
    ],
    "a gate has no attempts": ["UPDATE nodes SET attempts = 1 WHERE seq = 6 AND pos = 1"],
    "a gate has succeeded exactly as somebody approved it": [
        "UPDATE nodes SET result = '1' WHERE seq = 6 AND run = 1 AND pos = 1"
    ],
    "who waits since when is a gate whose upstream nodes have all succeeded": [
        "UPDATE nodes SET status = 'pending', result = NULL WHERE seq = 6 AND run = 2 AND pos = 0"
    ],
    "a halted run says since when and what it waits for": ["UPDATE runs SET reason = 'why' WHERE seq = 7"],
    "nothing of a halted run is alive, and a person can make it go on": [
        "UPDATE nodes SET status = 'skipped' WHERE seq = 7"
    ],
    "feedback is of a generation that began with it": ["UPDATE nodes SET feedback = 'no' WHERE seq = 2"],
    "a node was sent back as often as the log says": ["UPDATE nodes SET send_backs = 9 WHERE seq = 6"],
    "what a node works with, or has its result from, has succeeded": [
        "UPDATE nodes SET status = 'pending', result = NULL WHERE seq = 1 AND pos = 0"
    ],
    "no more tries are counted than attempts failed": ["UPDATE nodes SET tries = 9 WHERE seq = 2"],
    "no more deaths are counted than attempts were lost": ["UPDATE nodes SET unclean = 1 WHERE seq = 2"],
    "only a node that may be tried again has a time to wait for": [
        "UPDATE nodes SET not_before_ms = 1 WHERE seq = 2"
    ],
    "what was pinned is a completed run of the upstream": ["UPDATE edges SET pinned_run = 3"],
    "an upstream exists": ["UPDATE edges SET upstream = 'nobody'"],
    "the company's counters are not behind its rows": ["UPDATE companies SET task_seq = 1"],
    "events of a company are numbered from one, or from its floor, without a gap": [
        "DELETE FROM events WHERE seq = 1",
        "INSERT INTO floors VALUES (0, 100, 0), (1, 1, 2)",
    ],
    "nothing is left below the floor": ["INSERT INTO floors VALUES (0, 1, 0)"],
    "the floor of a company is one of the lines that went": ["INSERT INTO floors VALUES (1, 7, 1)"],
    "a company has a name, or is being deleted": ["UPDATE companies SET name = NULL"],
    "every row is a company's that exists": [
        "UPDATE events SET company_id = 99 WHERE seq = 1 AND company_id = 1"
    ],
    "positions rise with the numbers": [
        "UPDATE events SET seq = 1000 WHERE seq = 2",
        "UPDATE events SET seq = 2 WHERE seq = 3",
        "UPDATE events SET seq = 3 WHERE seq = 1000",
    ],
    "the file knows when the next node becomes due": [
        "UPDATE nodes SET status = 'pending', not_before_ms = 1 << 60 WHERE seq = 2",
        "UPDATE runs SET status = 'queued', settled_ms = NULL WHERE seq = 2",
    ],
    "an attempt belongs to a host that was there": ["UPDATE attempts SET host_id = 99 WHERE seq = 2"],
    "foreign keys are kept": ["UPDATE attempts SET seq = 77 WHERE seq = 2"],
    "the file is whole": [
        "PRAGMA writable_schema = ON",
        "DELETE FROM sqlite_schema WHERE name = 'events_task'",
    ],
    "an event carries exactly the fields of its kind": [
        "UPDATE events SET data = NULL WHERE kind = 'run.admitted'"
    ],
    "each move of a run goes on from where the last one ended": [
        "UPDATE events SET before = 'stopping' WHERE kind = 'run.completed'"
    ],
    "the log ends where the runs are": ["UPDATE events SET after = 'failed' WHERE kind = 'run.completed'"],
    "every attempt is told from beginning to end": ["UPDATE attempts SET end = 'timed_out' WHERE seq = 2"],
    "the log ends where the company's settings are": ["UPDATE companies SET paused_ms = NULL"],
    "the log ends where the tasks are": ["UPDATE tasks SET archived_ms = NULL"],
    "the file knows when the next task may start": ["UPDATE companies SET due_ms = NULL"],
    "the file knows when the next schedule is due": ["UPDATE companies SET due_ms = 1 << 60"],
    "a nominal time of a schedule has one task": [
        "DROP INDEX tasks_nominal",
        "UPDATE tasks SET schedule = 's', nominal_ms = 5",
    ],
    "what is reserved is what attempts that live have reserved": [
        "UPDATE tasks SET reserved = 5 WHERE id = 'h'"
    ],
    "what is spent is what is booked of all attempts": ["UPDATE companies SET spent = spent + 1"],
    "an attempt that lives has reserved no more than its estimate leaves": [
        "UPDATE attempts SET reserved = 7 WHERE seq = 1"
    ],
    "the log ends where the budgets are": ["UPDATE companies SET budget = 5 WHERE name = 'acme'"],
    "the log ends where the schedules are": ["UPDATE schedules SET paused_ms = 5"],
    "every task of a schedule is told as its fire": [
        "UPDATE tasks SET nominal_ms = 5 WHERE schedule IS NOT NULL"
    ],
    "dependencies have no circle": ["INSERT INTO edges (company_id, seq, upstream) VALUES (1, 1, 'e')"],
}


async def _something_of_everything(runtime: Runtime) -> None:
    company = runtime.company("acme")
    await company.ask(SetLimits(runs_max=2))
    await company.ask(Submit("two nodes", nodes=[Node("n", "ok"), Node("m", "ok", after=["n"])], id="a"))
    await company.ask(Submit("fails", handler="fails", id="b"))
    await company.ask(Submit("stopped", handler="endless", id="c"))
    await company.when_settled("b")
    await trio.sleep(1)
    await company.ask(Stop("c"))
    await company.ask(Submit("put away", id="d", mode="manual"))
    await company.ask(Archive("d"))
    await company.ask(Submit("comes after", handler="ok", id="e", depends_on=["a"]))
    judged: list[Node | Gate] = [Node("n", "ok"), Gate("gate", after=["n"]), Node("m", "ok", after=["gate"])]
    await company.ask(Submit("approved, and sent back", nodes=judged, id="f"))
    await company.ask(Submit("two steps", nodes=[Node("n", "ok"), Node("m", "ok")], mode="step", id="g"))
    await run_until_idle(runtime)
    await company.ask(Approve("f", "gate", "well done"))
    await company.ask(Next("g"))
    await run_until_idle(runtime)
    await company.ask(SendBack("f", "gate", "on second thoughts"))
    await run_until_idle(runtime)
    await company.ask(SetBudget(100))
    costly = [Node("n", "spends", estimate=30), Node("m", "spends", after=["n"], estimate=70)]
    await company.ask(Submit("halted on budget", nodes=costly, id="h"))
    await run_until_idle(runtime)
    await company.ask(Pause())
    timed = runtime.company("timed")
    await timed.ask(SetSchedule("s", every=3600, task=Submit("at its time")))
    await timed.ask(RunNow("s"))
    await timed.ask(Submit("later", id="later", not_before="2027-01-01T00:00:00Z"))


async def _ok(ctx: Context) -> int:
    return 1


async def _fails(ctx: Context) -> None:
    raise GiveUp("no")


async def _endless(ctx: Context) -> None:
    await trio.sleep_forever()


async def _spends(ctx: Context) -> None:
    ctx.spend(40)


HANDLERS = {"spends": _spends, "ok": _ok, "fails": _fails, "endless": _endless}


@pytest.fixture
async def sound(db_path: Path, opened: Opened, autojump_clock: MockClock) -> Path:
    """A closed database in which something of everything happened."""
    async with opened(HANDLERS) as runtime:
        await _something_of_everything(runtime)
    return db_path


async def test_a_sound_file_breaks_no_rule(sound: Path, autojump_clock: MockClock) -> None:
    check_file(sound)
    assert PLANTS.keys() == RULES.keys() | LOOKS.keys(), "each rule has a row that breaks it"


@pytest.mark.planted
@pytest.mark.parametrize("rule", [*RULES, *LOOKS])
async def test_each_rule_finds_what_breaks_it(sound: Path, autojump_clock: MockClock, rule: str) -> None:
    with closing(sqlite3.connect(sound, isolation_level=None)) as raw:
        raw.execute("PRAGMA ignore_check_constraints = ON")
        for statement in PLANTS[rule]:
            raw.execute(statement)
    with pytest.raises(Broken) as caught:
        check_file(sound)
    assert rule in caught.value.complaints


@pytest.mark.planted
@pytest.mark.parametrize(
    ("plant", "rule"),
    [
        ("DELETE FROM tasks WHERE id = 'd'", "the log ends where the tasks are"),
        ("DELETE FROM attempts WHERE seq = 2", "attempts of a node are numbered from one without a gap"),
        ("DELETE FROM events WHERE company_id = 1 AND seq = 8", "events of a company are numbered from one,"),
    ],
)
async def test_a_file_from_which_tasks_went_by_age_breaks_no_rule_and_what_else_is_missing_is_found(
    db_path: Path, opened: Opened, autojump_clock: MockClock, plant: str, rule: str
) -> None:
    async with opened(HANDLERS) as runtime:
        await _something_of_everything(runtime)
        await trio.sleep(1)
        assert (await runtime.prune(Retention(tasks_s=0))).tasks == 3
        assert [status.id for status in await runtime.company("acme").tasks()] == ["b", "c", "f", "g", "h"]
    check_file(db_path)
    with closing(sqlite3.connect(db_path, isolation_level=None)) as raw:
        raw.execute(plant)
    with pytest.raises(Broken, match=rule):
        check_file(db_path)


async def test_a_live_runtime_is_compared_with_its_file(opened: Opened, autojump_clock: MockClock) -> None:
    async with opened(HANDLERS) as runtime:
        await _something_of_everything(runtime)
        await check_runtime(runtime)
        actor = inside(runtime).services.directory.memory("acme")
        assert actor is not None
        assert actor.state is not None
        sound = actor.state.company
        actor.state.company = changed(sound, runs_max=99)
        with pytest.raises(AssertionError):
            await check_runtime(runtime)
        actor.state.company = sound


async def test_a_registration_that_only_one_map_has_is_found(
    opened: Opened, autojump_clock: MockClock, check_runtime: Callable[[Runtime], Awaitable[None]]
) -> None:
    async with opened(HANDLERS) as runtime:
        ref = AttemptRef("acme", AttemptKey("a", 1, 1, 0, 1))
        inside(runtime).services.registry._holding[ref] = inside(runtime).services.registry.begin(ref)
        await check_runtime(runtime)
        del inside(runtime).services.registry._holding[ref]
        with pytest.raises(AssertionError):
            await check_runtime(runtime)
        attempt = inside(runtime).services.registry.get(ref)
        assert attempt is not None
        attempt.slot = False
        inside(runtime).services.registry.finish(ref)
