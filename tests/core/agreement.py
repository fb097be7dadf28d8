"""Memory against the oracle, memory against itself after an undo, and memory against what a new actor would load."""

from __future__ import annotations

from typing import Any

from actors.core.loading import state_of
from actors.core.state import CompanyState
from actors.core.task_state import Standing
from actors.core.work_state import closed_gates, positions, work_state
from actors.messages.views import WorkState
from storage.records import NodeStatus, TaskRecord
from storage.values import changed

from . import oracle
from .world import World, loaded

NEEDS_NO_REASON = {
    WorkState.RUNNING,
    WorkState.COMPLETED,
    WorkState.FAILED,
    WorkState.STOPPED,
}


def watch(world: World) -> None:
    """From now on compare after every step."""

    world.watchers.append(lambda: check_against_oracle(world))
    check_against_oracle(world)


def check_against_oracle(world: World) -> None:
    """Everything that memory has derived is what the definitions say of the facts."""
    state, now_ms = world.state, world.now_ms
    state.wake_due(now_ms)
    facts = oracle.facts_in(world.conn, state, world.handlers, now_ms)
    _check_presence(state, facts)
    _check_tasks(world, facts)
    assert state.open.head(10_000) == oracle.open_tasks(facts)
    budgeted = (
        {}
        if state.company.budget is None
        else {task: oracle.least_need(facts, facts.tasks[task]) for task in oracle.open_tasks(facts)}
    )
    assert state.open_by_need.needs == budgeted
    assert state.open.first() == next(iter(oracle.open_tasks(facts)), None)
    assert state.queued == sum(entry.queued for entry in state.entries.values())
    assert positions(state) == oracle.positions(facts)
    assert state.slots == oracle.slots(facts)
    assert set(state.startable) == oracle.startable(facts, now_ms)
    assert state.next_due_ms() == oracle.next_due_ms(facts, now_ms)
    mine: dict[str, set[str]] = {}
    for task, entry in state.entries.items():
        if entry.task.schedule is not None:
            mine.setdefault(entry.task.schedule, set()).add(task)
    assert state.schedules.tasks == mine
    ended = {task for task, fact in facts.tasks.items() if oracle.at_its_end(facts, fact, now_ms)}
    assert set(state.ended) == ended
    assert set(state.reached) == oracle.to_be_said(facts)
    admitted = [t for t, e in state.entries.items() if e.queued and not closed_gates(state, e, world.live)]
    assert sorted(admitted) == sorted(oracle.would_be_admitted(facts, world.live))


def _check_presence(state: CompanyState, facts: oracle.Facts) -> None:
    """Memory holds all that is unsettled, and all that keeps an unsettled task waiting."""
    unsettled = {
        task
        for task, fact in facts.tasks.items()
        if fact.task.archived_ms is None and (fact.run is None or not fact.run.status.settled)
    }
    assert unsettled <= state.entries.keys()
    for task in unsettled:
        for upstream in oracle.unfinished_upstreams(facts, facts.tasks[task]):
            assert upstream in (state.entries if upstream in facts.tasks else state.missing), upstream
    users: dict[str, set[str]] = {}
    for task, entry in state.entries.items():
        for upstream in entry.task.depends_on:
            users.setdefault(upstream, set()).add(task)
    assert state.dependents == users


def _check_tasks(world: World, facts: oracle.Facts) -> None:
    state = world.state
    stuck = facts.blocked
    for task, entry in state.entries.items():
        fact = facts.tasks[task]
        assert entry.blocked == (task in stuck), task
        assert state.standing(task) is standing(facts, task), task
        if not (entry.run is not None and entry.run.status.settled):
            assert entry.unfinished == len(oracle.unfinished_upstreams(facts, fact)), task
            assert entry.dead == len(oracle.dead_upstreams(facts, fact)), task
        where, reasons = work_state(state, entry, world.live)
        assert where is oracle.work_state(facts, task, world.live), task
        assert reasons or where in NEEDS_NO_REASON, task
        _check_progress(world, fact)


def standing(facts: oracle.Facts, task: str) -> Standing:
    """What the definitions say that a task is to those that depend on it."""
    if oracle.done(facts, task):
        return Standing.DONE
    return (
        Standing.DEAD if oracle.dead_by_itself(facts, task) or task in facts.blocked else Standing.UNFINISHED
    )


def _check_progress(world: World, fact: oracle.Fact) -> None:
    progress = world.state.entries[fact.task.id].progress
    assert (progress is None) == (fact.nodes is None)
    if progress is None or fact.nodes is None:
        return
    by_status = {status: sum(node.status is status for node in fact.nodes) for status in NodeStatus}
    assert progress.counts == by_status
    assert progress.unmet == oracle.unmet(fact)
    assert progress.running == {n.pos for n in fact.nodes if n.status is NodeStatus.RUNNING}
    if not (fact.run is not None and fact.run.status.settled):
        assert set(progress.ready) == oracle.ready_nodes(fact, world.now_ms)
        assert progress.next_ready() == min(progress.ready, default=None)
        assert progress.resting == oracle.resting_nodes(fact, world.now_ms)
    assert progress.reached == oracle.reached_gates(fact)
    assert progress.unsaid == oracle.unsaid_gates(fact)


# --- two memories -------------------------------------------------------------------------------------------------


def snapshot(world: World) -> dict[str, Any]:
    """Memory as a value. Of lists that only say who came first, the members."""
    state = world.state
    state.wake_due(world.now_ms)
    return {
        "company": state.company,
        "graphs": dict(state.graphs),
        "missing": set(state.missing),
        "dependents": {task: set(users) for task, users in state.dependents.items()},
        "by_graph": {name: set(tasks) for name, tasks in state.by_graph.items()},
        "open": state.open.head(10_000),
        "needs": state.open_by_need.needs,
        "slots": dict(state.slots),
        "startable": set(state.startable),
        "ended": set(state.ended),
        "reached": set(state.reached),
        "due": state.next_due_ms(),
        "schedules": dict(state.schedules.by_name),
        "theirs": {name: set(tasks) for name, tasks in state.schedules.tasks.items()},
        "entries": {task: _entry(state, task) for task in state.entries},
    }


def _entry(state: CompanyState, task: str) -> dict[str, Any]:
    entry = state.entries[task]
    values = {name: getattr(entry, name) for name in entry.__slots__ if name != "progress"}
    values["nodes"] = None if entry.nodes is None else tuple(entry.nodes)
    progress = entry.progress
    if progress is not None:
        values["progress"] = {
            "unmet": list(progress.unmet),
            "counts": dict(progress.counts),
            "idle": set(progress.idle),
            "ready": set(progress.ready),
            "resting": dict(progress.resting),
            "running": set(progress.running),
            "reached": set(progress.reached),
            "unsaid": set(progress.unsaid),
        }
    return values


def check_against_file(world: World) -> None:
    """What a new actor would load is what memory has, as far as anything unsettled is concerned."""
    found = loaded(world.conn, world.name)
    assert found.company == world.state.company
    fresh = state_of(found, world.handlers)
    fresh.wake_due(world.now_ms)
    kept = world.state
    kept.wake_due(world.now_ms)
    assert fresh.open.head(10_000) == kept.open.head(10_000)
    assert fresh.slots == kept.slots
    assert set(fresh.startable) == set(kept.startable)
    assert set(fresh.ended) == set(kept.ended)
    assert set(fresh.reached) == set(kept.reached)
    assert fresh.next_due_ms() == kept.next_due_ms()
    assert fresh.graphs == kept.graphs
    assert fresh.schedules.by_name == kept.schedules.by_name
    assert fresh.missing <= kept.missing
    assert fresh.entries.keys() <= kept.entries.keys()
    for task, entry in kept.entries.items():
        settled = entry.run is not None and entry.run.status.settled
        assert task in fresh.entries or settled or entry.task.archived_ms is not None, task
        if task in fresh.entries:
            _check_alike(_entry(fresh, task), _entry(kept, task), settled=settled)


def _check_alike(fresh: dict[str, Any], kept: dict[str, Any], *, settled: bool) -> None:
    """The order of upstreams is no fact, and of several planted circles any may be named. Nothing that a settled task
    counts is of use until it is queued again.
    """
    skipped = {"task", "was_missing", *(("unfinished", "dead", "progress") if settled else ())}
    if fresh["cycle"] != kept["cycle"]:
        assert fresh["blocked"]
        skipped |= {"cycle", "cause"}
    for name in (fresh.keys() | kept.keys()) - skipped:
        assert fresh.get(name) == kept.get(name), name
    assert _unordered(fresh["task"]) == _unordered(kept["task"])


def _unordered(task: TaskRecord) -> TaskRecord:
    return changed(task, depends_on=tuple(sorted(task.depends_on)))
