"""The event stream: whole lives as whole events, dense numbers, and readers that see each line once, in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from actors import (
    ActorCrashed,
    Archive,
    Backoff,
    Company,
    Edit,
    Event,
    InvalidName,
    Node,
    Rerun,
    Retry,
    Runtime,
    Start,
    Stop,
    Submit,
    SubmitMany,
    open_reader,
)
from actors.core.retry import backoff_s, due_ms
from actors.runtime.log import PAGE
from actors.testing import EPOCH_MS
from tests.runtime.support import (
    Gated,
    GatedConnection,
    Scripted,
    Wrapper,
    a_host,
    a_task,
    idle,
    quiet,
    settled,
    sql,
    stored_events,
)

# --- whole events -----------------------------------------------------------------------------------------------------


class Lines:
    """The events that a test expects of company k, numbered as they come."""

    def __init__(self, task: str, position: int = 2) -> None:
        self._task = task
        self._position = position
        self._seq = 0
        self.events: list[Event] = []

    def add(self, kind: str, at_s: float = 0, run: int | None = 1, **fields: Any) -> Lines:
        self._seq += 1
        at_ms = EPOCH_MS + round(at_s * 1000)
        fields.setdefault("data", {})
        fields.setdefault("task", self._task)
        event = Event(self._position, "k", self._seq, at_ms, kind, run=run, **fields)
        self._position += 1
        self.events.append(event)
        return self


SUBMITTED = {"title": "a", "priority": 2, "mode": "auto", "goal": None, "depends_on": []}


async def test_the_whole_life_of_a_task_that_fails_once_and_succeeds(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Scripted([ValueError("no luck"), "done"])
    async with a_host(db_path, {"work": work}) as runtime:
        await runtime.company("k").ask(a_task("work", id="a"))
        await runtime.company("k").when_settled("a")
    due = due_ms(EPOCH_MS, backoff_s(Backoff(), 1, "k/a/1/work/1"))
    later_s = (due - EPOCH_MS) / 1000
    first: dict[str, Any] = {"node": "work", "attempt": 1}
    second: dict[str, Any] = {"node": "work", "attempt": 2}
    lines = Lines("a")
    lines.add("task.submitted", after="queued", data=SUBMITTED)
    lines.add("run.admitted", before="queued", after="running", data={"slot": 1})
    lines.add("attempt.started", before="pending", after="running", data={"generation": 0}, **first)
    failed = {"tries": 1, "not_before_ms": due}
    lines.add(
        "attempt.failed",
        before="running",
        after="pending",
        reason="ValueError: no luck",
        data=failed,
        **first,
    )
    lines.add("attempt.started", later_s, before="pending", after="running", data={"generation": 0}, **second)
    lines.add("attempt.succeeded", later_s, before="running", after="succeeded", **second)
    lines.add("run.completed", later_s, before="running", after="completed")
    assert stored_events(db_path, "k") == lines.events


async def test_the_whole_life_of_a_task_that_is_held_started_stopped_retried_and_put_away(
    db_path: Path, autojump_clock: MockClock
) -> None:
    work = Gated()
    async with a_host(db_path, {"work": work}, timeless=True) as runtime:
        company = runtime.company("k")
        nodes = [Node("one", "work"), Node("two", "ok", after=["one"])]
        await company.ask(a_task(nodes=nodes, id="a", mode="manual", goal="g", priority=5))
        await quiet(company)
        await company.ask(Edit("a", priority=1, title="a better name"))
        await company.ask(Start("a"))
        await work.has_started()
        await company.ask(Stop("a"))
        await company.when_settled("a")
        await company.ask(Retry("a"))
        await work.has_started(2)
        work.open.set()
        await company.when_settled("a")
        await company.ask(Rerun("a"))
        await company.when_settled("a")
        await company.ask(Archive("a"))
    one: dict[str, Any] = {"node": "one"}
    two: dict[str, Any] = {"node": "two"}
    begin: dict[str, Any] = {"before": "pending", "after": "running", "data": {"generation": 0}}
    end: dict[str, Any] = {"before": "running", "after": "succeeded"}
    submitted = {"title": "a", "priority": 5, "mode": "manual", "goal": "g", "depends_on": []}
    lines = Lines("a")
    lines.add("task.submitted", after="queued", data=submitted)
    lines.add("task.edited", data={"fields": ["priority", "title"]})
    lines.add("task.started")
    lines.add("run.admitted", before="queued", after="running", data={"slot": 1})
    lines.add("attempt.started", attempt=1, **one, **begin)
    lines.add("run.stopping", before="running", after="stopping", reason="stop")
    lines.add("attempt.stopped", attempt=1, before="running", after="skipped", **one)
    lines.add("run.stopped", before="stopping", after="stopped", reason="stop", data={"skipped": 1})
    lines.add("run.requeued", before="stopped", after="queued", reason="retry", data={"nodes": 2})
    lines.add("run.admitted", before="queued", after="running", data={"slot": 1})
    lines.add("attempt.started", attempt=2, **one, **begin)
    lines.add("attempt.succeeded", attempt=2, **one, **end)
    lines.add("attempt.started", attempt=1, **two, **begin)
    lines.add("attempt.succeeded", attempt=1, **two, **end)
    lines.add("run.completed", before="running", after="completed")
    lines.add("run.created", run=2, before="completed", after="queued", reason="rerun", data={"carried": 0})
    lines.add("run.admitted", run=2, before="queued", after="running", data={"slot": 1})
    for node in (one, two):
        lines.add("attempt.started", run=2, attempt=1, **node, **begin)
        lines.add("attempt.succeeded", run=2, attempt=1, **node, **end)
    lines.add("run.completed", run=2, before="running", after="completed")
    lines.add("task.archived", run=2)
    assert stored_events(db_path, "k") == lines.events


async def test_what_becomes_blocked_has_one_event_per_cause_and_commit_with_the_first_hundred_ids(
    db_path: Path, autojump_clock: MockClock
) -> None:
    gate = Gated()

    async def work(ctx: Any) -> None:
        await gate(ctx)
        raise ValueError("no luck")

    async with a_host(db_path, {"work": work}) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("work", id="a", tries_max=1))
        await gate.has_started()
        await company.ask(SubmitMany([a_task("ok", id=f"u{n:03}", depends_on=["a"]) for n in range(150)]))
        gate.open.set()
        await company.when_settled("a")
        (blocked,) = [event for event in stored_events(db_path) if event.kind == "tasks.blocked"]
        assert blocked.task is None
        assert (blocked.data["cause"], blocked.data["count"], len(blocked.data["ids"])) == ("a", 150, 100)
        assert set(blocked.data["ids"]) <= {f"u{n:03}" for n in range(150)}
        await company.ask(Stop("a"))


async def test_a_message_that_changes_nothing_has_no_event(db_path: Path, autojump_clock: MockClock) -> None:
    async with a_host(db_path, timeless=True) as runtime:
        company = runtime.company("k")
        await company.ask(a_task("ok", id="a"))
        await company.when_settled("a")
        before = len(stored_events(db_path))
        for _ in range(3):
            assert not (await company.ask(Stop("a"))).changed
        assert len(stored_events(db_path)) == before


# --- numbers ----------------------------------------------------------------------------------------------------------


async def busy_companies(runtime: Runtime, companies: int, tasks: int) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(companies):
            for _ in range(tasks):
                nursery.start_soon(runtime.company(f"k{number}").ask, a_task("ok"))
    await idle(runtime)


async def test_numbers_of_a_company_are_dense_and_positions_rise_in_the_order_of_commits(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path, timeless=True) as runtime:
        await busy_companies(runtime, 5, 8)
    events = stored_events(db_path)
    assert [event.position for event in events] == list(range(1, len(events) + 1))
    for number in range(5):
        mine = [event.seq for event in events if event.company == f"k{number}"]
        assert mine == list(range(1, len(mine) + 1))
        assert len(mine) == 8 * 5
    assert [event.kind for event in events if event.company is None] == ["process.started", "process.stopped"]


async def test_numbers_go_on_in_the_next_process(db_path: Path, autojump_clock: MockClock) -> None:
    for _ in range(3):
        async with a_host(db_path, timeless=True) as runtime:
            await busy_companies(runtime, 2, 2)
    events = stored_events(db_path)
    assert [event.position for event in events] == list(range(1, len(events) + 1))
    assert [event.seq for event in events if event.company == "k1"] == list(range(1, 31))


# --- readers ----------------------------------------------------------------------------------------------------------


async def read(runtime: Runtime, seen: list[Event], *, until: int | None = None, **where: Any) -> None:
    """Read on, at most until so many were seen."""
    async for event in runtime.events(**where):
        seen.append(event)
        if until is not None and len(seen) >= until:
            return


async def test_a_live_reader_has_no_seam_between_what_was_and_what_comes(
    db_path: Path, autojump_clock: MockClock
) -> None:
    seen: list[Event] = []
    async with trio.open_nursery() as nursery, a_host(db_path) as runtime:
        await busy_companies(runtime, 3, 3)
        nursery.start_soon(read, runtime, seen)
        await busy_companies(runtime, 3, 3)
        await trio.testing.wait_all_tasks_blocked()
        assert seen == stored_events(db_path)
    assert seen == stored_events(db_path)


async def test_a_reader_that_stops_at_any_event_goes_on_from_there_without_gap_or_repeat(
    db_path: Path, autojump_clock: MockClock
) -> None:
    """C66, the half of one process."""
    async with a_host(db_path, timeless=True) as runtime:
        await busy_companies(runtime, 3, 4)
        total = len(stored_events(db_path))
        for step in (1, 3, 10):
            seen: list[Event] = []
            while len(seen) < total:
                part: list[Event] = []
                after = seen[-1].position if seen else 0
                await read(runtime, part, until=min(step, total - len(seen)), after=after)
                seen += part
            assert seen == stored_events(db_path)


async def test_a_reader_of_one_company_sees_its_lines_alone_from_any_position(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path, timeless=True) as runtime:
        await busy_companies(runtime, 3, 4)
        everything = stored_events(db_path)
        mine = [event for event in everything if event.company == "k1"]
        for after in range(0, len(everything), 7):
            rest = [event for event in mine if event.position > after]
            seen: list[Event] = []
            if rest:
                await read(runtime, seen, until=len(rest), company="k1", after=after)
            assert seen == rest


async def test_a_reader_of_a_company_that_does_not_exist_yet_sees_its_first_line(
    db_path: Path, autojump_clock: MockClock
) -> None:
    seen: list[Event] = []
    async with trio.open_nursery() as nursery, a_host(db_path) as runtime:
        nursery.start_soon(lambda: read(runtime, seen, company="k"))
        await trio.sleep(10)
        await runtime.company("other").ask(Submit("x"))
        await runtime.company("k").ask(Submit("x"))
        await idle(runtime)
    assert seen == stored_events(db_path, "k")
    assert seen[0].seq == 1


async def test_a_slow_reader_costs_nobody_anything_and_sees_everything(
    db_path: Path, autojump_clock: MockClock
) -> None:
    seen: list[Event] = []

    async def slow(runtime: Runtime) -> None:
        async for event in runtime.events():
            seen.append(event)
            await trio.sleep(60)

    async with a_host(db_path) as runtime, trio.open_nursery() as nursery:
        nursery.start_soon(slow, runtime)
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        await busy_companies(runtime, 2, 5)
        assert trio.current_time() == began
        await trio.sleep(60 * 60)
        assert seen == stored_events(db_path)
        nursery.cancel_scope.cancel()


async def test_a_reader_reads_in_pages_and_holds_nothing_between_them(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path, timeless=True) as runtime:
        await runtime.company("k").ask(SubmitMany([Submit("x") for _ in range(PAGE)]))
        await idle(runtime)
        total = len(stored_events(db_path))
        assert total > 3 * PAGE
        seen: list[Event] = []
        await read(runtime, seen, until=total)
        assert [event.position for event in seen] == list(range(1, total + 1))


async def test_nothing_is_seen_before_its_commit(db_path: Path, autojump_clock: MockClock) -> None:
    seen: list[Event] = []
    gate = Wrapper(GatedConnection)
    async with a_host(db_path, wrap=gate) as runtime, trio.open_nursery() as nursery:
        await runtime.company("k").ask(Submit("first"))
        nursery.start_soon(read, runtime, seen)
        await idle(runtime)
        before = len(seen)
        gate.made.shut()
        await runtime.company("k").tell(Submit("second"))
        await gate.made.is_asked()
        await trio.sleep(10)
        assert len(seen) == before
        gate.made.let_go()
        await idle(runtime)
        assert len(seen) == before + 3
        nursery.cancel_scope.cancel()


async def test_what_was_refused_is_never_seen(db_path: Path, autojump_clock: MockClock) -> None:
    """C66: roll a transaction back, and nothing is seen and no number is missing."""
    async with a_host(db_path) as runtime:
        company = runtime.company("k")
        await company.ask(Submit("good"))
        await idle(runtime)
        sql(
            db_path,
            "CREATE TRIGGER no_poison BEFORE INSERT ON tasks WHEN NEW.title = 'poison'"
            " BEGIN SELECT RAISE(ABORT, 'no'); END",
        )
        with pytest.raises(ActorCrashed):
            await company.ask(Submit("poison"))
        await company.ask(Submit("good"))
        await idle(runtime)
    events = stored_events(db_path)
    assert [event.seq for event in events if event.company == "k"] == [1, 2, 3, 4, 5, 6]
    assert "poison" not in {event.data.get("title") for event in events}


@pytest.mark.parametrize("after", [-1, 1.5, "3", True])
async def test_a_position_that_is_none_is_refused(
    db_path: Path, autojump_clock: MockClock, after: Any
) -> None:
    async with a_host(db_path) as runtime:
        with pytest.raises(ValueError, match="after must be a position of at least 0"):
            await read(runtime, [], until=1, after=after)
        with pytest.raises(InvalidName):
            await read(runtime, [], until=1, company="a/b")


async def test_many_readers_at_once_see_the_same(db_path: Path, autojump_clock: MockClock) -> None:
    seen: list[list[Event]] = [[] for _ in range(20)]
    async with trio.open_nursery() as nursery, a_host(db_path) as runtime:
        for mine in seen:
            nursery.start_soon(read, runtime, mine)
        await busy_companies(runtime, 2, 2)
    assert all(mine == stored_events(db_path) for mine in seen)


async def test_a_reader_of_the_file_alone_sees_what_the_host_s_own_readers_see(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async with a_host(db_path, timeless=True) as runtime:
        await busy_companies(runtime, 2, 3)
    autojump_clock.autojump_threshold = 10  # the reader's thread must not be jumped over
    async with open_reader(db_path) as reader:
        seen = [event async for event in reader.events()]
        mine = [event async for event in reader.events(company="k1", after=5)]
    assert seen == stored_events(db_path)
    assert mine == [event for event in seen if event.company == "k1" and event.position > 5]


async def test_a_task_s_timeline_is_its_events_and_no_other_s(
    db_path: Path, autojump_clock: MockClock
) -> None:
    async def timeline(company: Company, task: str) -> tuple[Event, ...]:
        assert await settled(company, task) == "completed"
        return await company.timeline(task)

    async with a_host(db_path, timeless=True) as runtime:
        company = runtime.company("k")
        for task in ("a", "b"):
            await company.ask(a_task("ok", id=task))
        lines = await timeline(company, "a")
        assert list(lines) == [event for event in stored_events(db_path, "k") if event.task == "a"]
        assert len(await timeline(company, "b")) == 5
