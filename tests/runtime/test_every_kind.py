"""Every kind of event is really emitted, by the thing that it is named for, and said to structlog at its level."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
import structlog
import trio
import trio.testing
from trio.testing import MockClock

import actors.core.decide
from actors import (
    ActorCrashed,
    Approve,
    Archive,
    Backoff,
    CompanyParked,
    Context,
    DefineGraph,
    Edit,
    Event,
    Gate,
    GiveUp,
    Node,
    Pause,
    PauseSchedule,
    RemoveSchedule,
    Rerun,
    ResumeSchedule,
    Retention,
    Retry,
    RetryAfter,
    SendBack,
    SetBudget,
    SetLimits,
    SetSchedule,
    Start,
    StartNow,
    Stop,
    Submit,
    Unarchive,
    Unpark,
    Unpause,
)
from actors.core.transitions import Phase
from actors.errors import IllegalMove
from actors.events import KINDS
from actors.handlers import Handler
from actors.runtime.executor import Executor
from actors.testing import VirtualClock
from tests.runtime.support import (
    Gated,
    Scripted,
    Stubborn,
    Wrapper,
    a_host,
    a_task,
    idle,
    of_kind,
    stored_events,
)
from tests.storage.connections import Flaky, sqlite_error
from tests.stores import sqlite_of

Scene = Callable[[Path, pytest.MonkeyPatch], Awaitable[None]]


# --- scenes -----------------------------------------------------------------------------------------------------------


async def ordinary(path: Path, _patch: pytest.MonkeyPatch) -> None:
    """Everything that a company does on a good day, and what a handler may ask for."""
    work = Scripted([RetryAfter(1), ValueError("no luck"), "done"])
    async with a_host(path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(Pause())
        await company.ask(DefineGraph("g", [Node("n", "work")]))
        await company.ask(SetLimits(runs_max=2))
        await company.ask(a_task(graph="g", id="a"))
        await company.ask(a_task("ok", id="m", mode="manual", depends_on=["a"]))
        await company.ask(Edit("m", priority=7))
        await company.ask(Start("m"))
        await company.ask(StartNow("m"))
        await company.ask(Unpause())
        await idle(runtime)
        await company.ask(Rerun("m"))
        await company.when_settled("m")
        await company.ask(Archive("m"))
        await company.ask(Unarchive("m"))
        await company.tell(Start("nobody"))
        await idle(runtime)


async def stopped(path: Path, _patch: pytest.MonkeyPatch) -> None:
    """A stop that one handler hears and another does not, which returns late."""
    hears, deaf = Gated(), Stubborn()
    async with a_host(path, {"hears": hears, "deaf": deaf}, stop_grace_s=1) as runtime:
        company = runtime.company("k")
        await company.ask(a_task(nodes=[Node("a", "hears"), Node("b", "deaf")], id="a"))
        await deaf.has_started()
        await hears.has_started()
        await company.ask(Stop("a"))
        await company.when_settled("a")
        deaf.open.set()
        await idle(runtime)
        await company.ask(Retry("a"))
        await company.ask(Stop("a"))
        hears.open.set()
        await idle(runtime)


async def judged(path: Path, _patch: pytest.MonkeyPatch) -> None:
    """A gate that is reached and answered, a result that is sent back while somebody works with it."""
    check = Gated()
    async with a_host(path, {"check": check}) as runtime:
        company = runtime.company("k")
        nodes = [
            Node("draft", "ok"),
            Node("check", "check", after=["draft"]),
            Gate("gate", after=["check"]),
            Node("publish", "ok", after=["gate"]),
        ]
        await company.ask(a_task(nodes=nodes, id="a"))
        await check.has_started()
        await company.ask(SendBack("a", "draft", "shorter"))
        await check.has_started(2)
        check.open.set()
        await idle(runtime)
        await company.ask(Approve("a", "gate", "well done"))
        await company.when_settled("a")


async def budgeted(path: Path, _patch: pytest.MonkeyPatch) -> None:
    """A company that spends most of what it may."""

    async def work(ctx: Context) -> None:
        ctx.spend(9)

    async with a_host(path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(SetBudget(10))
        await company.ask(a_task("work", id="a"))
        await company.when_settled("a")


async def failed(path: Path, _patch: pytest.MonkeyPatch) -> None:
    """Failures of every kind, what they block, and a person who helps."""
    gate = Gated()

    async def forever(_ctx: Context) -> None:
        await trio.sleep_forever()

    async def gives_up(_ctx: Context) -> None:
        await gate.open.wait()
        raise GiveUp("no")

    async def illegal(ctx: Context) -> None:
        raise IllegalMove("attempt", ctx.key, Phase.CANCELLING, Phase.WAITING)

    handlers: dict[str, Handler] = {
        "forever": forever,
        "gives_up": gives_up,
        "illegal": illegal,
        "gate": gate,
    }
    async with a_host(path, handlers) as runtime:
        company = runtime.company("k")
        await company.ask(SetLimits(runs_max=9))
        await company.ask(a_task(nodes=[Node("n", "forever", timeout_s=5, tries_max=1)], id="late"))
        await company.ask(a_task(nodes=[Node("n", "forever", stall_s=5, tries_max=1)], id="quiet"))
        await company.ask(a_task("illegal", id="illegal"))
        await company.ask(a_task("gives_up", id="a"))
        await company.ask(a_task("ok", id="b", depends_on=["a"]))
        nodes = [Node("fails", "fails", tries_max=1), Node("gate", "gate")]
        await company.ask(a_task(nodes=nodes, id="half"))
        await company.ask(a_task(nodes=[Node("n", "fails", retry=Backoff(base_s=900))], id="rests"))
        await gate.has_started()
        await trio.sleep(1)
        await company.ask(Retry("half"))
        await company.ask(Retry("rests"))
        gate.open.set()
        await idle(runtime)
        await company.ask(Retry("a"))
        await idle(runtime)


async def crashed(path: Path, patch: pytest.MonkeyPatch) -> None:
    """An actor that crashes until it is parked, and a task that is set aside and released."""
    decide = actors.core.decide.decide

    def bad_decide(draft: Any, message: Any, prefetched: Any) -> object:
        reply = decide(draft, message, prefetched)
        if getattr(message, "title", None) == "bad":
            raise ZeroDivisionError("a mistake of ours")
        return reply

    patch.setattr("actors.core.turn.decide", bad_decide)
    async with a_host(path) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a", mode="manual"))
        for _ in range(2):
            with suppress(ActorCrashed):
                await company.ask(Edit("a", title="bad"))
        await company.ask(Retry("a"))
        for _ in range(6):
            with suppress(ActorCrashed, CompanyParked):
                await company.ask(Submit("bad"))
        await trio.testing.wait_all_tasks_blocked()
        await company.ask(Unpark())


async def interrupted(path: Path, _patch: pytest.MonkeyPatch) -> None:
    work = Gated()
    async with a_host(path, {"work": work}, drain_s=0) as runtime:
        await runtime.company("k").ask(a_task("work", id="a"))
        await work.has_started()


async def process_died(path: Path, _patch: pytest.MonkeyPatch) -> None:
    """What a killed process leaves behind: an attempt of a host that is no more."""
    work, wrapper = Gated(), Wrapper(Flaky)
    async with a_host(path, {"work": work}, drain_s=0, wrap=wrapper) as runtime:
        await runtime.company("k").ask(a_task("work", id="a"))
        await work.has_started()
        wrapper.made.down = sqlite_error(sqlite3.SQLITE_IOERR)
        await runtime.aclose()
    work.open.set()
    async with a_host(path, {"work": work}) as runtime:
        await runtime.company("k").when_settled("a")


async def outage(path: Path, _patch: pytest.MonkeyPatch) -> None:
    wrapper = Wrapper(Flaky)
    async with a_host(path, wrap=wrapper) as runtime:
        wrapper.made.down = sqlite_error(sqlite3.SQLITE_FULL)
        await runtime.company("k").tell(Submit("x"))
        await trio.sleep(60)
        wrapper.made.down = None
        await trio.sleep(60)


async def swept(path: Path, patch: pytest.MonkeyPatch) -> None:
    """An attempt that nobody runs is found."""
    start = Executor.start
    lost: list[Any] = []

    def lose_one(executor: Executor, attempt: Any, *rest: Any) -> None:
        if lost:
            start(executor, attempt, *rest)
            return
        lost.append(attempt)
        registry = getattr(executor, "_registry")  # noqa: B009
        registry.free_slot(attempt)
        registry.finish(attempt.ref)

    patch.setattr(Executor, "start", lose_one)
    async with a_host(path) as runtime:
        await runtime.company("k").ask(a_task("ok", id="a"))
        await runtime.company("k").when_settled("a")


async def let_go(path: Path, _patch: pytest.MonkeyPatch) -> None:
    """What is old goes, a company is deleted, and somebody reads for too long."""
    async with a_host(path) as runtime:
        sqlite_of(runtime).wal_kept_bytes, sqlite_of(runtime).wal_cut_above_bytes = 1000, 0
        for name in ("k", "other"):
            await runtime.company(name).ask(a_task("ok", id="a"))
            await runtime.company(name).when_settled("a")
        await trio.sleep(1)
        await runtime.prune(Retention(attempts_s=0))
        await runtime.prune(Retention(tasks_s=0))
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM tasks").fetchall()
            await runtime.company("k").ask(a_task("ok", id="b"))
            await trio.sleep(120)
        await trio.sleep(120)
        await runtime.delete_company("other")


async def cut(path: Path, _patch: pytest.MonkeyPatch) -> None:
    """The log of the last process is let go by the next."""
    async with a_host(path):
        pass
    async with a_host(path) as runtime:
        await trio.sleep(1)
        await runtime.prune(Retention(events_s=0))


async def deleting(path: Path, patch: pytest.MonkeyPatch) -> None:
    """The last line of a company that is deleted, before it goes as well."""
    patch.setattr("actors.runtime.retention.housekeeping.finish_deletion", AsyncMock(return_value="later"))
    async with a_host(path) as runtime:
        await runtime.company("k").ask(a_task("ok", id="a", mode="manual"))
        await runtime.delete_company("k")


async def timed(path: Path, _patch: pytest.MonkeyPatch) -> None:
    """A schedule from its beginning to its end, and a task that starts later."""
    clock = VirtualClock()
    async with a_host(path, clock=clock) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="later", not_before="2026-01-01T00:10:00Z"))
        await company.ask(SetSchedule("s", every=60, task=Submit("t", handler="ok")))
        await trio.sleep(61)
        clock.jump(3600)
        await trio.sleep(61)
        clock.jump(-7200)
        await trio.sleep(61)
        await company.ask(PauseSchedule("s"))
        await company.ask(ResumeSchedule("s"))
        await company.ask(RemoveSchedule("s"))
        await company.ask(SetSchedule("bad", every=60, task=Submit("t", handler="ok")))
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("UPDATE schedules SET zone = 'Mars/Base', cron = '* * * * *', every_ms = NULL")
    async with a_host(path, clock=clock):
        await trio.sleep(61)


SCENES: dict[str, tuple[Scene, tuple[str, ...]]] = {
    "ordinary": (
        ordinary,
        (
            "process.started",
            "process.stopped",
            "company.paused",
            "company.unpaused",
            "company.limits_changed",
            "company.graph_defined",
            "message.refused",
            "task.submitted",
            "task.edited",
            "task.started",
            "task.moved_first",
            "task.archived",
            "task.unarchived",
            "run.created",
            "run.admitted",
            "run.completed",
            "attempt.started",
            "attempt.succeeded",
            "attempt.failed",
            "attempt.postponed",
        ),
    ),
    "stopped": (
        stopped,
        (
            "run.stopping",
            "run.stopped",
            "run.requeued",
            "attempt.stopped",
            "attempt.abandoned",
            "attempt.late",
        ),
    ),
    "judged": (
        judged,
        (
            "run.halted",
            "run.resumed",
            "gate.reached",
            "gate.approved",
            "node.sent_back",
            "attempt.superseded",
        ),
    ),
    "budgeted": (budgeted, ("company.budget_changed", "budget.warned", "attempt.spent")),
    "failed": (
        failed,
        (
            "run.failed",
            "node.reset",
            "node.due",
            "attempt.timed_out",
            "attempt.stalled",
            "attempt.quiet",
            "attempt.illegal",
            "tasks.blocked",
            "tasks.unblocked",
        ),
    ),
    "crashed": (
        crashed,
        (
            "actor.crashed",
            "company.parked",
            "company.unparked",
            "task.quarantined",
            "task.released",
        ),
    ),
    "interrupted": (interrupted, ("attempt.interrupted",)),
    "process died": (process_died, ("attempt.lost",)),
    "outage": (outage, ("store.unavailable", "store.recovered")),
    "swept": (swept, ("sweep.finished",)),
    "let go": (
        let_go,
        ("attempts.pruned", "tasks.pruned", "company.deleted", "wal.grown", "wal.shrunk"),
    ),
    "cut": (cut, ("log.pruned",)),
    "deleting": (deleting, ("company.deleting",)),
    "timed": (
        timed,
        (
            "task.scheduled",
            "schedule.set",
            "schedule.fired",
            "schedule.skipped",
            "schedule.clock_back",
            "schedule.paused",
            "schedule.resumed",
            "schedule.removed",
            "schedule.disabled",
        ),
    ),
}


def test_there_is_a_scene_for_every_kind() -> None:
    shown = [kind for _, shows in SCENES.values() for kind in shows]
    assert sorted(shown) == sorted(KINDS)


@pytest.mark.parametrize("scene", SCENES)
async def test_the_scene_emits_its_kinds_with_exactly_their_fields_and_says_them_at_their_level(
    db_path: Path,
    autojump_clock: MockClock,
    scene: str,
    monkeypatch: pytest.MonkeyPatch,
    logs: list[dict[str, Any]],
) -> None:
    play, shows = SCENES[scene]
    await play(db_path, monkeypatch)
    events = stored_events(db_path)
    for kind in shows:
        emitted = of_kind(events, kind)
        assert emitted, kind
        for event in emitted:
            assert set(event.data) == set(KINDS[kind].fields), event
            assert as_said(event) in logs


def as_said(event: Event) -> dict[str, Any]:
    """What structlog is given for the event."""
    named = {
        "company": event.company,
        "task": event.task,
        "run": event.run,
        "node": event.node,
        "attempt": event.attempt,
        "before": event.before,
        "after": event.after,
        "reason": event.reason,
    }
    said = {name: value for name, value in named.items() if value is not None}
    if event.kind.startswith("store."):  # at once, before it can be stored
        return {"event": event.kind, "log_level": KINDS[event.kind].level, **event.data}
    return {
        "event": event.kind,
        "log_level": KINDS[event.kind].level,
        "position": event.position,
        "seq": event.seq,
        "at_ms": event.at_ms,
        **said,
        **event.data,
    }


def test_the_levels_are_three_and_crashes_are_the_highest() -> None:
    assert {kind.level for kind in KINDS.values()} == {"info", "warning", "error"}
    errors = {name for name, kind in KINDS.items() if kind.level == "error"}
    assert errors == {
        "store.unavailable",
        "company.parked",
        "actor.crashed",
        "task.quarantined",
        "schedule.disabled",
        "attempt.lost",
        "attempt.illegal",
    }


def test_every_kind_is_a_noun_and_a_verb_and_says_something() -> None:
    for name, kind in KINDS.items():
        noun, verb = name.split(".")
        assert noun.isidentifier()
        assert verb.isidentifier()
        assert kind.says
    with pytest.raises(TypeError):
        KINDS["x.y"] = KINDS["run.created"]  # type: ignore[index]


async def test_a_logger_of_the_host_s_that_raises_harms_nothing(
    db_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def bad_processor(*_args: object) -> Any:
        raise ZeroDivisionError("the host's own mistake")

    processors = structlog.get_config()["processors"]
    processors.insert(0, bad_processor)
    try:
        with caplog.at_level(logging.ERROR):
            async with a_host(db_path) as runtime:
                company = runtime.company("k")
                await company.ask(a_task("ok", id="a"))
                assert (await company.when_settled("a")).status.value == "completed"
    finally:
        processors.remove(bad_processor)
    assert of_kind(stored_events(db_path), "actor.crashed") == []
    assert "structlog failed on an event" in caplog.text
