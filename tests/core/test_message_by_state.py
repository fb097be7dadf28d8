"""Section 4 of the design, cell by cell: what each message does to a task in each state, against a literal table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest

from actors.core.decide import REFUSALS
from actors.core.reports import Report
from actors.errors import MoveRefused
from actors.messages import (
    Archive,
    Edit,
    Message,
    Moved,
    Node,
    Rerun,
    Retry,
    Start,
    StartNow,
    Stop,
    Submit,
    Unarchive,
)
from actors.runtime.recovery import Quarantine
from storage.records import AttemptEnd, RunStatus

from .agreement import check_against_oracle, snapshot
from .world import World, writing

# --- the states -----------------------------------------------------------------------------------------------


def not_started(world: World, **fields: Any) -> None:
    """Manual, and the company's only slot is taken: nothing happens by itself."""
    world.ask(Submit("holder", id="holder", handler="work"))
    world.ask(Submit("task", id="t", mode="manual", handler="work", **fields))


def scheduled(world: World) -> None:
    """Not before the year 2100, and the company's only slot is taken."""
    world.ask(Submit("holder", id="holder", handler="work"))
    world.ask(Submit("task", id="t", handler="work", not_before="2100-01-01T00:00:00Z"))


def running(world: World, **fields: Any) -> None:
    world.ask(Submit("task", id="t", **({"handler": "work", "mode": "manual"} | fields)))
    world.ask(Start("t"))


def running_with_a_failed_node(world: World) -> None:
    running(world, handler=None, nodes=[Node("bad", "work"), Node("good", "work")])
    world.give_up("t", "bad")


def running_and_backing_off(world: World) -> None:
    running(world)
    world.fail("t")


def stopping(world: World) -> None:
    running(world)
    world.ask(Stop("t"))


def halted(world: World) -> None:
    """No gate halts a run yet, so the rows are planted."""
    running_and_backing_off(world)
    world.plant("UPDATE runs SET status = 'halted', slot = 0")


def failed(world: World) -> None:
    running(world)
    world.give_up("t")


def stopped(world: World) -> None:
    stopping(world)
    world.end("t", AttemptEnd.STOPPED)


def completed(world: World) -> None:
    running(world)
    world.succeed("t")


def archived(world: World) -> None:
    not_started(world)
    world.ask(Archive("t"))


def quarantined(world: World) -> None:
    not_started(world)
    quarantine(world)


def quarantined_while_running(world: World) -> None:
    running(world)
    quarantine(world)


def quarantine(world: World) -> None:
    (row,) = world.stored("SELECT seq FROM tasks WHERE id = 't'")
    with writing(world.conn):
        Quarantine(world.name, "t", row[0], "bad row", None, world.now_ms)(world.conn)
    world.reload()


STATES: Mapping[str, Callable[[World], None]] = {
    "not started": not_started,
    "scheduled": scheduled,
    "running": running,
    "running, a node failed": running_with_a_failed_node,
    "running, a node backs off": running_and_backing_off,
    "stopping": stopping,
    "halted": halted,
    "failed": failed,
    "stopped": stopped,
    "completed": completed,
    "archived": archived,
    "quarantined": quarantined,
    "quarantined while running": quarantined_while_running,
}

MESSAGES: Mapping[str, Message[Moved]] = {
    "Start": Start("t"),
    "StartNow": StartNow("t"),
    "Stop": Stop("t"),
    "Retry": Retry("t"),
    "Rerun": Rerun("t"),
    "Edit(priority, attempts_max)": Edit("t", priority=9, attempts_max=7),
    "Edit(rest)": Edit("t", priority=9, title="new", payload={"new": 1}),
    "Edit(not_before)": Edit("t", not_before="2101-01-01T00:00:00Z"),
    "Archive": Archive("t"),
    "Unarchive": Unarchive("t"),
}

# --- the table --------------------------------------------------------------------------------------------------


@attrs.frozen
class Done:
    """The reply's state of the run, the kinds of the events, the number of the run."""

    status: str
    kinds: tuple[str, ...]
    run: int = 1
    holders: tuple[str, ...] = ()
    note: str | None = None


@attrs.frozen
class Refuses:
    """The refusal's state, its text after "task t", and the messages it advises."""

    state: str
    text: str
    advice: tuple[str, ...] = ()


Cell = Done | Refuses


def done(status: str, *kinds: str, run: int = 1, holders: tuple[str, ...] = ()) -> Done:
    return Done(status, kinds, run, holders)


def same(status: str) -> Done:
    """Nothing to do: the present state, no event."""
    return Done(status, ())


def no(state: str, text: str, *advice: str) -> Refuses:
    return Refuses(state, text, advice)


STOPPING = no("stopping", "is stopping: wait until it has stopped")
COMPLETED = no("completed", "is completed: use Rerun to do it again", "Rerun")
ARCHIVED = no("archived", "is archived: use Unarchive first", "Unarchive")
QUARANTINED = no(
    "quarantined",
    "is quarantined (bad row): use Retry, Stop or Archive",
    "Retry",
    "Stop",
    "Archive",
)
STOP_FIRST = no("running", "is running: stop it first", "Stop")
ONLY_TWO = "only priority and attempts_max can be changed now"

FROM_THE_NEXT = "the nodes, upstreams and start of this run are fixed: the change counts from the next run on"

TABLE: Mapping[str, Mapping[str, Cell]] = {
    "Start": {
        "not started": done("queued", "task.started"),
        "scheduled": same("queued"),
        "running": same("running"),
        "running, a node failed": same("running"),
        "running, a node backs off": same("running"),
        "stopping": STOPPING,
        "halted": no("halted", "is halted: use Retry", "Retry"),
        "failed": no("failed", "has failed: use Retry", "Retry"),
        "stopped": no("stopped", "was stopped: use Retry", "Retry"),
        "completed": COMPLETED,
        "archived": ARCHIVED,
        "quarantined": QUARANTINED,
        "quarantined while running": QUARANTINED,
    },
    "StartNow": {
        "not started": done("queued", "task.moved_first", holders=("holder",)),
        "scheduled": done("queued", "task.moved_first", holders=("holder",)),
        "running": same("running"),
        "running, a node failed": same("running"),
        "running, a node backs off": same("running"),
        "stopping": STOPPING,
        "halted": done("queued", "run.requeued", "task.moved_first"),
        "failed": done("queued", "run.requeued", "task.moved_first"),
        "stopped": done("queued", "run.requeued", "task.moved_first"),
        "completed": COMPLETED,
        "archived": ARCHIVED,
        "quarantined": QUARANTINED,
        "quarantined while running": QUARANTINED,
    },
    "Stop": {
        "not started": done("stopped", "run.stopped"),
        "scheduled": done("stopped", "run.stopped"),
        "running": done("stopping", "run.stopping"),
        "running, a node failed": done("stopping", "run.stopping"),
        "running, a node backs off": done("stopped", "run.stopping", "run.stopped"),
        "stopping": same("stopping"),
        "halted": done("stopped", "run.stopped"),
        "failed": same("failed"),
        "stopped": same("stopped"),
        "completed": same("completed"),
        "archived": ARCHIVED,
        "quarantined": done("stopped", "run.stopped"),
        "quarantined while running": same("failed"),
    },
    "Retry": {
        "not started": no("queued", "is already queued"),
        "scheduled": no("queued", "is already queued"),
        "running": no("running", "is in flight: nothing of it has failed", "Stop"),
        "running, a node failed": done("running", "node.reset"),
        "running, a node backs off": done("running", "node.due"),
        "stopping": STOPPING,
        "halted": done("queued", "run.requeued"),
        "failed": done("queued", "run.requeued"),
        "stopped": done("queued", "run.requeued"),
        "completed": COMPLETED,
        "archived": ARCHIVED,
        "quarantined": done("queued", "task.released"),
        "quarantined while running": done("queued", "task.released", "run.requeued"),
    },
    "Rerun": {
        "not started": no("queued", "has not run: use Edit to change it", "Edit"),
        "scheduled": no("queued", "has not run: use Edit to change it", "Edit"),
        "running": STOP_FIRST,
        "running, a node failed": STOP_FIRST,
        "running, a node backs off": STOP_FIRST,
        "stopping": STOPPING,
        "halted": done("queued", "run.stopped", "run.created", run=2),
        "failed": done("queued", "run.created", run=2),
        "stopped": done("queued", "run.created", run=2),
        "completed": done("queued", "run.created", run=2),
        "archived": ARCHIVED,
        "quarantined": QUARANTINED,
        "quarantined while running": QUARANTINED,
    },
    "Edit(priority, attempts_max)": {
        "not started": done("queued", "task.edited"),
        "scheduled": done("queued", "task.edited"),
        "running": done("running", "task.edited"),
        "running, a node failed": done("running", "task.edited"),
        "running, a node backs off": done("running", "task.edited"),
        "stopping": done("stopping", "task.edited"),
        "halted": done("halted", "task.edited"),
        "failed": done("failed", "task.edited"),
        "stopped": done("stopped", "task.edited"),
        "completed": COMPLETED,
        "archived": ARCHIVED,
        "quarantined": QUARANTINED,
        "quarantined while running": QUARANTINED,
    },
    "Edit(rest)": {
        "not started": done("queued", "task.edited"),
        "scheduled": done("queued", "task.edited"),
        "running": no("running", f"is running: {ONLY_TWO}", "Stop"),
        "running, a node failed": no("running", f"is running: {ONLY_TWO}", "Stop"),
        "running, a node backs off": no("running", f"is running: {ONLY_TWO}", "Stop"),
        "stopping": no("stopping", f"is stopping: {ONLY_TWO}"),
        "halted": done("halted", "task.edited"),
        "failed": done("failed", "task.edited"),
        "stopped": done("stopped", "task.edited"),
        "completed": COMPLETED,
        "archived": ARCHIVED,
        "quarantined": QUARANTINED,
        "quarantined while running": QUARANTINED,
    },
    "Edit(not_before)": {
        "not started": done("queued", "task.edited", "task.scheduled"),
        "scheduled": done("queued", "task.edited", "task.scheduled"),
        "running": no("running", f"is running: {ONLY_TWO}", "Stop"),
        "running, a node failed": no("running", f"is running: {ONLY_TWO}", "Stop"),
        "running, a node backs off": no("running", f"is running: {ONLY_TWO}", "Stop"),
        "stopping": no("stopping", f"is stopping: {ONLY_TWO}"),
        "halted": Done("halted", ("task.edited", "task.scheduled"), note=FROM_THE_NEXT),
        "failed": Done("failed", ("task.edited", "task.scheduled"), note=FROM_THE_NEXT),
        "stopped": Done("stopped", ("task.edited", "task.scheduled"), note=FROM_THE_NEXT),
        "completed": COMPLETED,
        "archived": ARCHIVED,
        "quarantined": QUARANTINED,
        "quarantined while running": QUARANTINED,
    },
    "Archive": {
        "not started": done("stopped", "run.stopped", "task.archived"),
        "scheduled": done("stopped", "run.stopped", "task.archived"),
        "running": STOP_FIRST,
        "running, a node failed": STOP_FIRST,
        "running, a node backs off": STOP_FIRST,
        "stopping": STOPPING,
        "halted": done("stopped", "run.stopped", "task.archived"),
        "failed": done("failed", "task.archived"),
        "stopped": done("stopped", "task.archived"),
        "completed": done("completed", "task.archived"),
        "archived": same("stopped"),
        "quarantined": done("stopped", "run.stopped", "task.archived"),
        "quarantined while running": done("failed", "task.archived"),
    },
    "Unarchive": {
        "not started": same("queued"),
        "scheduled": same("queued"),
        "running": same("running"),
        "running, a node failed": same("running"),
        "running, a node backs off": same("running"),
        "stopping": same("stopping"),
        "halted": same("halted"),
        "failed": same("failed"),
        "stopped": same("stopped"),
        "completed": same("completed"),
        "archived": done("stopped", "task.unarchived"),
        "quarantined": same("queued"),
        "quarantined while running": same("failed"),
    },
}

CELLS = [(message, state) for message in MESSAGES for state in STATES]


def test_the_table_has_a_cell_for_every_message_in_every_state() -> None:
    assert TABLE.keys() == MESSAGES.keys()
    assert {message for message, row in TABLE.items() if row.keys() != STATES.keys()} == set()


@pytest.mark.parametrize(("message", "state"), CELLS, ids=[f"{m} × {s}" for m, s in CELLS])
def test_a_message_does_to_a_task_what_its_cell_says(message: str, state: str) -> None:
    world = World()
    STATES[state](world)
    world.look([MESSAGES[message]])
    before, events = snapshot(world), len(world.events)

    (answer,) = world.turn(MESSAGES[message], advancing=False)

    cell = TABLE[message][state]
    kinds = tuple(event.kind for event in world.events[events:])
    if isinstance(cell, Refuses):
        assert isinstance(answer, MoveRefused)
        name = type(MESSAGES[message]).__name__
        assert (answer.message, answer.task) == (name, "t")
        assert Refuses(answer.state, answer.text, answer.advice) == cell
        assert str(answer) == f"{name} refused: task t {cell.text}"
    else:
        status, changed = RunStatus(cell.status), bool(cell.kinds)
        assert answer == Moved("t", cell.run, status, changed, cell.holders, cell.note)
        assert kinds == cell.kinds
    if isinstance(cell, Refuses) or not cell.kinds:
        world.look([MESSAGES[message]])  # it may have been evicted again
        assert snapshot(world) == before
        assert kinds == ()
    check_against_oracle(world)


@pytest.mark.parametrize(("message", "state"), CELLS, ids=[f"{m} × {s}" for m, s in CELLS])
def test_after_any_cell_the_company_goes_on_and_its_tables_hold(message: str, state: str) -> None:
    """The task's own fate aside: whoever else is queued gets a slot once the attempts in flight have ended."""
    world = World()
    STATES[state](world)
    world.turn(MESSAGES[message])
    world.ask(Submit("another", id="another", handler="work", priority=100))
    for _ in range(4):
        world.wait(3600)
        for key in list(world.running):
            world.report(Report(key, AttemptEnd.SUCCEEDED, result="1"))
    assert world.run("another").status is RunStatus.COMPLETED
    if "halted" not in state:
        world.check_tables()


def test_the_refusals_of_the_code_cannot_be_changed_at_any_level() -> None:
    with pytest.raises(TypeError):
        REFUSALS[Start] = {}  # type: ignore[index]
    for row in REFUSALS.values():
        with pytest.raises(TypeError):
            row[RunStatus.QUEUED] = ("no", ())  # type: ignore[index]
        for refusal in row.values():
            assert type(refusal) is tuple
            assert type(refusal[1]) is tuple
