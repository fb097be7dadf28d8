"""Killing the process at every commit, and seeing that nothing of it shows.

A *life* is one process: a Trio run of its own on a virtual clock, with the store inline, so that nothing
happens beside it. The writer's connection is wrapped: it counts the transactions and, before or after the
k-th one, the process dies. At that moment the files are copied as they are, which is what a SIGKILL leaves
to the next process (pages that were written belong to the kernel); whatever the remains of the dead life
still try, every call to its database raises, and nobody looks at its files again.

The next life opens the copy, goes on with the same script, and has to end where an undisturbed life ends:
the same states, results and tries, and the same story but for what the crash itself adds to it. What an
``ask`` had answered before the kill must be there when the copy is opened.

`exhaust` does so before and after every single commit. It counts the commits of an undisturbed life first
and fails if the kills that really happened are not exactly those.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import attrs
import pytest
import trio
from trio.testing import MockClock

import actors.runtime.closing
import storage.sqlite.deletion
import storage.sqlite.retention
from actors import Context, Retention, Runtime, Submit, SubmitMany, Submitted, TaskStatus
from actors.handlers import Handler, freeze
from actors.host import run_runtime
from actors.messages import (
    Approve,
    Archive,
    DefineGraph,
    Edit,
    Message,
    Next,
    Pause,
    PauseSchedule,
    RemoveSchedule,
    Rerun,
    ResumeSchedule,
    Retry,
    RunNow,
    SendBack,
    SetBudget,
    SetLimits,
    SetSchedule,
    Start,
    StartNow,
    Stop,
    Unarchive,
    Unpause,
)
from actors.runtime.options import Options
from actors.testing import EPOCH_MS, VirtualClock, run_until_idle
from storage.sqlite.connection import Connection
from tests.inside import inside
from tests.invariants import check_file, check_runtime
from tests.stores import rows_of, sqlite_of

R = TypeVar("R")
T = TypeVar("T")

BETWEEN_LIVES_MS = 1_000
"""How long a database lies there before the next process opens it."""
PATIENCE_S = 100_000.0
"""Virtual seconds after which a life is taken to hang."""


HOP = 3
"""Turns of the event loop between asking for a transaction and its beginning. A thread takes as long, and whoever acts
on what is not durable yet has the time to do so.
"""


class Killed(BaseException):
    """The process is dead: raised by everything that its remains ask of the database."""


@attrs.frozen
class Kill:
    """Die before, or after, the commit of this number, counted from one in each life."""

    commit: int
    after: bool

    def __str__(self) -> str:
        return f"killed {'after' if self.after else 'before'} commit {self.commit}"


@attrs.define
class Life:
    """One process on one database file."""

    path: Path
    kill: Kill | None = None
    commits: int = 0
    dead: bool = False
    heir: Path | None = None
    """What the process left behind: the database as it was at its death."""
    options: Options | None = None
    runtime: Runtime | None = None

    def wrap(self, connection: Connection) -> Connection:
        return _Mortal(connection, self)

    def refuse_the_dead(self) -> None:
        if self.dead:
            raise Killed

    def die(self) -> None:
        """Nothing of this process gets any further than here."""
        self.refuse_the_dead()
        self.dead = True
        self.heir = _copy(self.path, self.path.with_name(f"{self.path.stem}x.db"))
        if self.runtime is not None:
            sqlite_of(self.runtime).reader._raw.close()  # type: ignore[attr-defined]
        if self.options is not None:
            object.__setattr__(self.options, "stop_grace_s", 0.0)  # its remains wait for nothing
        raise Killed


def _copy(path: Path, to: Path) -> Path:
    """The files as the kernel has them. The shared memory beside them belongs to the processes, and dies with them."""
    for suffix in ("", "-wal"):
        if (old := Path(f"{path}{suffix}")).exists():
            shutil.copyfile(old, f"{to}{suffix}")
    return to


class _Mortal:
    """The writer's connection: counts transactions, and dies at one."""

    def __init__(self, inner: Connection, life: Life) -> None:
        self._inner = inner
        self._life = life

    async def run(self, work: Callable[[sqlite3.Connection], T], /) -> T:
        life = self._life
        life.refuse_the_dead()
        for _ in range(HOP):
            await trio.lowlevel.cancel_shielded_checkpoint()
        life.refuse_the_dead()
        life.commits += 1
        if life.kill == Kill(life.commits, after=False):
            life.die()
        if life.kill == Kill(life.commits, after=True):
            return await self._inner.run(lambda raw: _then(work(raw), life.die))
        return await self._inner.run(work)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _then(value: T, act: Callable[[], None]) -> T:
    act()
    return value


# --- what outlives processes --------------------------------------------------------------------------------


@attrs.define
class World:
    """All that is outside the process: the things that handlers did, and what the script was answered."""

    clock_ms: int = EPOCH_MS
    effects: Counter[str] = attrs.field(factory=Counter)
    """idempotency key → how often the handler got to work with it."""
    answers: dict[tuple[str, str, int], tuple[Message[Any], Any]] = attrs.field(factory=dict)
    """(company, message, how many-eth of this kind in the script) → the message and its reply."""
    facts: dict[str, Any] = attrs.field(factory=dict)
    """Whatever a scenario wants to be so outside: a service that is down, a door that is open."""
    life: Life | None = None

    def effect(self, ctx: Context) -> None:
        """A handler does its work. A dead process does none."""
        assert self.life is not None
        self.life.refuse_the_dead()
        self.effects[ctx.key] += 1


class Script:
    """What a driver says and waits for. Its asks remember their answers over lives."""

    def jump(self, seconds: float) -> None:
        """The wall clock leaps, once whatever happens."""
        assert self.world.life is not None
        assert self.world.life.options is not None
        clock = self.world.life.options.clock_ms
        assert isinstance(clock, VirtualClock)
        if not self.world.facts.get("jumped"):
            self.world.facts["jumped"] = True
            clock.jump(seconds)

    def __init__(self, runtime: Runtime, world: World) -> None:
        self.runtime = runtime
        self.world = world
        self._said: Counter[tuple[str, str]] = Counter()

    async def ask(self, message: Message[R], company: str = "acme") -> R:
        """Ask, unless an earlier life was answered. A submit is said again in any case, and must find its task."""
        said = (company, repr(message))
        self._said[said] += 1
        key = (*said, self._said[said])
        known = self.world.answers.get(key)
        if known is not None and not isinstance(message, Submit | SubmitMany):
            reply: R = known[1]
            return reply
        reply = await self.runtime.company(company).ask(message)
        self._refuse_the_dead()
        if known is not None:
            _same_tasks(known[1], reply)
        else:
            self.world.answers[key] = (message, reply)
        return reply

    async def until(
        self, task: str, looks: Callable[[TaskStatus], bool], company: str = "acme"
    ) -> TaskStatus:
        """Wait until the task looks so."""
        while True:
            news = inside(self.runtime).services.notifier.news
            status = await self.runtime.company(company).status(task)
            if looks(status):
                return status
            await news.wait()
            self._refuse_the_dead()

    async def told(self, kind: str) -> bool:
        """Whether the log has such an event."""
        statement = "SELECT 1 FROM events WHERE kind = ? LIMIT 1"
        return bool(await rows_of(inside(self.runtime).services.store, statement, kind))

    async def count(self, table: str) -> int:
        """How many rows the table has."""
        self._refuse_the_dead()
        statement = f"SELECT count(*) FROM {table}"
        ((count,),) = await rows_of(inside(self.runtime).services.store, statement)
        return int(count)

    async def fired(self, *, by_hand: bool = False) -> int:
        """How many tasks the schedules have made."""
        statement = "SELECT count(*) FROM tasks WHERE schedule IS NOT NULL AND (nominal_ms IS NULL) = ?"
        rows = await rows_of(inside(self.runtime).services.store, statement, by_hand)
        return int(rows[0][0])

    async def until_fired(self, count: int) -> None:
        """Wait until the schedules have fired so often by themselves."""
        while True:
            news = inside(self.runtime).services.notifier.news
            if await self.fired() >= count:
                return
            await news.wait()
            self._refuse_the_dead()

    async def settled(self, *tasks: str, company: str = "acme") -> None:
        for task in tasks:
            await self.runtime.company(company).when_settled(task)
            self._refuse_the_dead()

    def _refuse_the_dead(self) -> None:
        assert self.world.life is not None
        self.world.life.refuse_the_dead()


def _same_tasks(before: Any, now: Any) -> None:
    pairs = [(before, now)] if isinstance(now, Submitted) else list(zip(before, now, strict=True))
    for old, new in pairs:
        assert (new.id, new.seq, new.existing) == (old.id, old.seq, True), "an answered submit was forgotten"


@attrs.frozen
class Scenario:
    """``drive`` may be begun again from the top in a later life; ``handlers`` act on the world by `World.effect`."""

    name: str
    drive: Callable[[Script], Awaitable[None]]
    handlers: Callable[[World], Mapping[str, Handler]]
    executions_max: int = 2
    retention: Retention = attrs.field(factory=Retention)
    commits_min: int = 7
    """So many commits it has at least, or it does not do what it says."""


# --- living -------------------------------------------------------------------------------------------------


def live(scenario: Scenario, path: Path, world: World, kill: Kill | None = None) -> Life:
    """One process from its start to its end, or to its death."""
    life = world.life = Life(path, kill)
    clock = VirtualClock(world.clock_ms + BETWEEN_LIVES_MS)

    async def main() -> None:
        life.options = Options(
            freeze(scenario.handlers(world)),
            scenario.executions_max,
            clock_ms=clock,
            stop_grace_s=5.0,
            retention=scenario.retention,
        )
        try:
            with trio.fail_after(PATIENCE_S):
                async with run_runtime(
                    path, life.options, durability="normal", how="inline", wrap=life.wrap
                ) as life.runtime:
                    assert_promises(path, world)
                    await scenario.drive(Script(life.runtime, world))
                    await run_until_idle(life.runtime)
                    await check_runtime(life.runtime)
        except BaseException:
            if not life.dead:
                raise
        finally:
            world.clock_ms = clock()

    with _deterministic(scenario), pytest.MonkeyPatch.context() as patch:
        patch.setattr(actors.runtime.closing, "SETTLE_S", 0.0)
        for module in (storage.sqlite.deletion, storage.sqlite.retention):
            patch.setattr(module, "ROWS_MAX", 5)  # so that what goes in steps goes in several
        trio.run(main, clock=MockClock(autojump_threshold=0))
    return life


@contextmanager
def _deterministic(scenario: Scenario) -> Iterator[None]:
    """Trio shuffles what runs next. Here the same run makes the same commits, in an order of the scenario's own."""
    run = trio._core._run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)
        run._r.seed(scenario.name)
        yield


# --- what must be ------------------------------------------------------------------------------------------


PROOF: Mapping[type, tuple[str, ...]] = MappingProxyType(
    {
        Start: ("task.started",),
        StartNow: ("task.moved_first",),
        Stop: ("run.stopping", "run.stopped"),
        Retry: ("run.requeued", "node.reset", "node.due"),
        Rerun: ("run.created",),
        Next: ("run.resumed",),
        Approve: ("gate.approved",),
        SendBack: ("node.sent_back",),
        Archive: ("task.archived",),
        Unarchive: ("task.unarchived",),
        Edit: ("task.edited",),
        Pause: ("company.paused",),
        Unpause: ("company.unpaused",),
        SetLimits: ("company.limits_changed",),
        SetBudget: ("company.budget_changed",),
        DefineGraph: ("company.graph_defined",),
        SetSchedule: ("schedule.set",),
        PauseSchedule: ("schedule.paused",),
        ResumeSchedule: ("schedule.resumed",),
        RemoveSchedule: ("schedule.removed",),
    }
)
"""Message → the events of which one must be in the log for each answer that said something changed."""


def assert_promises(path: Path, world: World) -> None:
    """What `ask` answered is there."""
    wanted: Counter[tuple[str, type, str | None]] = Counter()
    with closing(sqlite3.connect(path)) as raw:
        for (company, _, _), (message, reply) in world.answers.items():
            if isinstance(message, Submit | SubmitMany | RunNow):
                for one in reply if isinstance(message, SubmitMany) else (reply,):
                    assert _count(raw, company, one.id, ("task.submitted",)) == 1, f"{one} was forgotten"
            elif reply.changed:
                task = getattr(message, "task", None)
                wanted[(company, type(message), task if isinstance(task, str) else None)] += 1
        for (company, kind, task), count in wanted.items():
            found = _count(raw, company, task, PROOF[kind])
            assert found >= count, f"{kind.__name__} {task} was answered {count} times; {found} in the log"


def _count(raw: sqlite3.Connection, company: str, task: str | None, kinds: tuple[str, ...]) -> int:
    rows = raw.execute(
        "SELECT count(*) FROM events JOIN companies USING (company_id)"
        " WHERE name = ? AND task IS ? AND kind IN (SELECT value FROM json_each(?))",
        (company, task, json.dumps(kinds)),
    ).fetchall()
    return int(rows[0][0])


def picture(path: Path) -> dict[str, Any]:
    """Where everything stands, without times, and without what only says that a process died."""
    with closing(sqlite3.connect(path)) as raw:
        tasks = raw.execute(
            "SELECT name, seq, id, priority, mode, title, payload, archived_ms IS NOT NULL, schedule,"
            " nominal_ms IS NOT NULL, not_before_ms FROM tasks"
            " JOIN companies USING (company_id) ORDER BY name, seq"
        ).fetchall()
        runs = raw.execute(
            "SELECT name, seq, number, status, slot, started, front, reason, payload, step, pins FROM runs"
            " JOIN companies USING (company_id) ORDER BY name, seq, number"
        ).fetchall()
        nodes = raw.execute(
            "SELECT name, seq, run, pos, spec, status, tries, generation, error, result, payload, feedback, send_backs"
            " FROM nodes"
            " JOIN companies USING (company_id) ORDER BY name, seq, run, pos"
        ).fetchall()
        ends = raw.execute(
            "SELECT name, seq, run, pos, generation, end FROM attempts JOIN companies USING (company_id)"
            " WHERE end IS NOT 'lost' ORDER BY name, seq, run, pos, number"
        ).fetchall()
        edges = raw.execute(
            "SELECT name, seq, upstream, pinned_run FROM edges JOIN companies USING (company_id)"
            " ORDER BY name, seq, upstream"
        ).fetchall()
        companies = raw.execute(
            "SELECT name, runs_max, paused_ms IS NOT NULL, task_seq, due_ms, budget, reserved FROM companies"
            " ORDER BY name"
        ).fetchall()
        schedules = raw.execute(
            "SELECT companies.name, schedules.name, cron, every_ms, template, schedules.paused_ms IS NOT NULL,"
            " disabled, missed, fired_task FROM schedules JOIN companies USING (company_id) ORDER BY 1, 2"
        ).fetchall()
    return {
        "tasks": tasks,
        "schedules": schedules,
        "runs": runs,
        "nodes": nodes,
        "ends": ends,
        "edges": edges,
        "companies": companies,
    }


def story(path: Path) -> dict[str, list[Any]]:
    """What the log tells of each run, each node and each company, without attempts that died with a process."""
    told: dict[str, list[Any]] = defaultdict(list)
    with closing(sqlite3.connect(path)) as raw:
        rows = raw.execute(
            "SELECT name, kind, task, run, node, before, after, data FROM events"
            " JOIN companies USING (company_id) ORDER BY position"
        ).fetchall()
    for company, kind, task, run, node, before, after, data in rows:
        if kind in ("attempt.spent", "company.budget_changed"):
            continue  # what a death is charged is its own; `check_file` compares the log with the accounts
        if kind == "attempt.lost" and after == "pending":
            started = told[f"{company}/{task}/{run}/{node}"].pop()
            assert started[0] == "attempt.started", f"lost after {started}"
        elif node is not None:
            told[f"{company}/{task}/{run}/{node}"].append((kind, before, after))
        elif kind.startswith("run."):
            told[f"{company}/{task}/{run}"].append((kind, before, after))
        elif kind == "budget.warned":
            told[company].append((kind, task))
        elif kind != "attempts.pruned":  # how many there were depends on the deaths
            told[company].append((kind, task, before, after, _timeless(data)))
    return {name: lines for name, lines in told.items() if lines}


def _timeless(data: str | None) -> str | None:
    """The times that a process lives at are its own."""
    if data is None:
        return None
    said = json.loads(data)
    return json.dumps({name: value for name, value in said.items() if name[-3:] != "_ms" or value is None})


@attrs.frozen
class Ending:
    """How a scenario ended."""

    picture: dict[str, Any]
    story: dict[str, list[Any]]
    keys: frozenset[str]
    """Idempotency keys with which handlers worked."""


def _ending(path: Path, world: World) -> Ending:
    check_file(path)
    return Ending(picture(path), story(path), frozenset(world.effects))


@attrs.frozen
class Death:
    """A kill that happened: what the process left behind, inside and outside."""

    kill: Kill
    heir: Path
    world: World

    @contextmanager
    def named(self) -> Iterator[None]:
        """What fails inside says which death it was and where its file is."""
        try:
            yield
        except BaseException as error:
            error.add_note(f"{self.kill}: {self.heir}")
            raise


def deaths(scenario: Scenario, folder: Path, first: Kill | None = None) -> Iterator[Death]:
    """Every death that the scenario can die at a commit, each on a database of its own.

    With ``first``, a life was killed there already, and it is the next one whose every commit is tried. Fails at
    the end unless the kills that happened are just the commits of a life that nobody killed.
    """
    commits = _live_from(scenario, folder / "counted.db", World(), first).commits
    exercised: set[Kill] = set()
    for kill in [Kill(number, after) for number in range(1, commits + 1) for after in (False, True)]:
        world = World()
        life = _live_from(
            scenario, folder / f"{kill.commit}{'a' if kill.after else 'b'}.db", world, first, kill
        )
        if life.heir is None:
            continue
        if life.commits == kill.commit:
            exercised.add(kill)
        death = Death(kill, life.heir, world)
        with death.named():
            check_file(life.heir)
        yield death
    every = {Kill(number, after) for number in range(1, commits + 1) for after in (False, True)}
    assert exercised == every, "the kills that happened are not the commits that were counted"


def _live_from(
    scenario: Scenario, path: Path, world: World, first: Kill | None, kill: Kill | None = None
) -> Life:
    if first is None:
        return live(scenario, path, world, kill)
    heir = live(scenario, path, world, first).heir
    assert heir is not None, f"never {first}"
    return live(scenario, heir, world, kill)


def exhaust(scenario: Scenario, folder: Path, first: Kill | None = None) -> int:
    """Kill before and after every commit, go on, and end as if nothing had been; says how many kills there were."""
    world = World()
    undisturbed = live(scenario, folder / "undisturbed.db", world)
    expected = _ending(undisturbed.path, world)
    count = 0
    for death in deaths(scenario, folder, first):
        with death.named():
            live(scenario, death.heir, death.world)
            ending = _ending(death.heir, death.world)
            assert ending.picture == expected.picture
            assert ending.story == expected.story
            assert ending.keys == expected.keys
            assert not [run for run in ending.picture["runs"] if run[4] > 0], "a run slot was leaked"
        count += 1
    return count
