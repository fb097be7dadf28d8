"""Section 4 of the design, cell by cell: what each message does to a task in each state, against a literal table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest

from actors.core.inputs import Report
from actors.core.refusals import AGAIN_REFUSALS, HALT_REFUSALS, REFUSALS
from actors.errors import MoveRefused
from actors.messages import (
    Approve,
    Archive,
    BudgetSettings,
    Edit,
    Gate,
    Message,
    Moved,
    Next,
    Node,
    Rerun,
    Retry,
    SendBack,
    SetBudget,
    Start,
    StartNow,
    Stop,
    Submit,
    Unarchive,
)
from storage.contract.recovery import Quarantine
from storage.records import AttemptEnd, RunStatus
from storage.sqlite.engine import carry_out

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
    running(world, handler=None, nodes=[Node("bad", "work"), Node("work")])
    world.give_up("t", "bad")


def running_and_backing_off(world: World) -> None:
    running(world)
    world.fail("t")


def stopping(world: World) -> None:
    running(world)
    world.ask(Stop("t"))


JUDGED = (Node("work"), Gate("gate", after=["work"]), Node("publish", "work", after=["gate"]))


def running_with_a_result(world: World) -> None:
    running(world, handler=None, nodes=[Node("work"), Node("user", "work", after=["work"])])
    world.succeed("t", "work")


def running_with_a_reached_gate(world: World) -> None:
    running(world, handler=None, nodes=[*JUDGED, Node("side", "work")])
    world.succeed("t", "work")


def queued_again(world: World) -> None:
    """One gate is approved, another is not, and somebody else has taken the company's slot meanwhile."""
    running(world, handler=None, nodes=[Gate("other"), *JUDGED])
    world.ask(Submit("holder", id="holder", handler="work"))
    world.succeed("t", "work")
    world.ask(Approve("t", "other"))


def halted_at_a_gate(world: World) -> None:
    running(world, handler=None, nodes=JUDGED)
    world.succeed("t", "work")


def halted_before_a_step(world: World) -> None:
    nodes = [Node("work"), Node("user", "work", after=["work"])]
    world.ask(Submit("task", id="t", mode="step", nodes=nodes))
    world.ask(Next("t"))
    world.succeed("t", "work")


def halted(world: World) -> None:
    """Short of something that no word of a person gives it. Nothing halts a run so yet, so the rows are planted."""
    running_and_backing_off(world)
    world.plant("UPDATE runs SET status = 'halted', slot = 0, halted_ms = 1")


def halted_on_budget(world: World) -> None:
    """A node succeeded and spent more than the whole limit."""
    nodes = [Node("work"), Node("user", "work", after=["work"], estimate=1)]
    world.ask(SetBudget(100))
    running(world, handler=None, nodes=nodes)
    world.succeed("t", "work", spent=100)


def failed(world: World) -> None:
    running(world)
    world.give_up("t")


def stopped(world: World) -> None:
    stopping(world)
    world.end("t", AttemptEnd.STOPPED)


def completed(world: World) -> None:
    running(world)
    world.succeed("t")


def failed_with_a_result(world: World) -> None:
    running_with_a_result(world)
    world.give_up("t", "user")


def stopped_with_a_result(world: World) -> None:
    halted_at_a_gate(world)
    world.ask(Stop("t"))


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
        carry_out(
            world.conn, Quarantine(world.state.company.claim, "t", row[0], "bad row", None, world.now_ms)
        )
    world.reload()


STATES: Mapping[str, Callable[[World], None]] = {
    "not started": not_started,
    "scheduled": scheduled,
    "running": running,
    "running, a node failed": running_with_a_failed_node,
    "running, a node backs off": running_and_backing_off,
    "running, a result is there": running_with_a_result,
    "running, a gate is reached": running_with_a_reached_gate,
    "stopping": stopping,
    "queued again": queued_again,
    "halted at a gate": halted_at_a_gate,
    "halted before a step": halted_before_a_step,
    "halted on budget": halted_on_budget,
    "halted": halted,
    "failed": failed,
    "failed, a result is there": failed_with_a_result,
    "stopped": stopped,
    "stopped, a result is there": stopped_with_a_result,
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
    "Next": Next("t"),
    "Approve": Approve("t", "gate"),
    "SendBack": SendBack("t", "work", "shorter"),
    "Rerun": Rerun("t"),
    "Rerun(from)": Rerun("t", from_node="work", payload=1),
    "Edit(priority, tries_max)": Edit("t", priority=9, tries_max=7),
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
AT_A_GATE = no("halted", "is halted at a gate: use Approve or SendBack", "Approve", "SendBack")
BEFORE_A_STEP = no("halted", "is halted before a step: use Next", "Next")
ON_BUDGET = no("halted", "is halted on budget: use Retry", "Retry")
STILL_SHORT = no(
    "halted",
    "is halted on budget, and the company's is still short: 100 spent and 1 estimated, of 100: "
    "use SetBudget to raise it first",
    "SetBudget",
)
NO_STEP = no("running", "is running: no step of it waits for you")
NO_GATE = no("running", "is running, and has no gate 'gate': nothing waits for you")
FAILED = no("failed", "has failed, so nothing of it waits for you: use Retry", "Retry")
STOPPED = no("stopped", "was stopped, so nothing of it waits for you: use Retry", "Retry")
SETTLED = no(
    "completed",
    "is completed, so nothing of it waits for you: use Rerun or SendBack",
    "Rerun",
    "SendBack",
)
IN_FLIGHT = no("running", "has node 'work' in flight: let it settle, or use Stop", "Stop")
ONLY = "only priority, tries_max, send_backs_max and budget can be changed now"
RUNNING = no("running", f"is running: {ONLY}", "Stop")

FROM_THE_NEXT = "the nodes, upstreams and start of this run are fixed: the change counts from the next run on"

TABLE: Mapping[str, Mapping[str, Cell]] = {
    "Start": {
        "not started": done("queued", "task.started"),
        "scheduled": same("queued"),
        "running": same("running"),
        "running, a node failed": same("running"),
        "running, a node backs off": same("running"),
        "running, a result is there": same("running"),
        "running, a gate is reached": same("running"),
        "stopping": STOPPING,
        "queued again": same("queued"),
        "halted at a gate": AT_A_GATE,
        "halted before a step": BEFORE_A_STEP,
        "halted on budget": ON_BUDGET,
        "halted": no("halted", "is halted: use Retry", "Retry"),
        "failed": no("failed", "has failed: use Retry", "Retry"),
        "failed, a result is there": no("failed", "has failed: use Retry", "Retry"),
        "stopped": no("stopped", "was stopped: use Retry", "Retry"),
        "stopped, a result is there": no("stopped", "was stopped: use Retry", "Retry"),
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
        "running, a result is there": same("running"),
        "running, a gate is reached": same("running"),
        "stopping": STOPPING,
        "queued again": done("queued", "task.moved_first", holders=("holder",)),
        "halted at a gate": AT_A_GATE,
        "halted before a step": BEFORE_A_STEP,
        "halted on budget": STILL_SHORT,
        "halted": done("queued", "run.requeued", "task.moved_first"),
        "failed": done("queued", "run.requeued", "task.moved_first"),
        "failed, a result is there": done("queued", "run.requeued", "task.moved_first"),
        "stopped": done("queued", "run.requeued", "task.moved_first"),
        "stopped, a result is there": done("queued", "run.requeued", "task.moved_first"),
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
        "running, a result is there": done("stopping", "run.stopping"),
        "running, a gate is reached": done("stopping", "run.stopping"),
        "stopping": same("stopping"),
        "queued again": done("stopped", "run.stopped"),
        "halted at a gate": done("stopped", "run.stopped"),
        "halted before a step": done("stopped", "run.stopped"),
        "halted on budget": done("stopped", "run.stopped"),
        "halted": done("stopped", "run.stopped"),
        "failed": same("failed"),
        "failed, a result is there": same("failed"),
        "stopped": same("stopped"),
        "stopped, a result is there": same("stopped"),
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
        "running, a result is there": no("running", "is in flight: nothing of it has failed", "Stop"),
        "running, a gate is reached": no("running", "is in flight: nothing of it has failed", "Stop"),
        "stopping": STOPPING,
        "queued again": no("queued", "is already queued"),
        "halted at a gate": AT_A_GATE,
        "halted before a step": BEFORE_A_STEP,
        "halted on budget": STILL_SHORT,
        "halted": done("queued", "run.requeued"),
        "failed": done("queued", "run.requeued"),
        "failed, a result is there": done("queued", "run.requeued"),
        "stopped": done("queued", "run.requeued"),
        "stopped, a result is there": done("queued", "run.requeued"),
        "completed": no(
            "completed", "is completed: use Rerun or SendBack to do it again", "Rerun", "SendBack"
        ),
        "archived": ARCHIVED,
        "quarantined": done("queued", "task.released"),
        "quarantined while running": done("queued", "task.released", "run.requeued"),
    },
    "Next": {
        "not started": no("queued", "has not started: no step of it waits for you yet"),
        "scheduled": no("queued", "has not started: no step of it waits for you yet"),
        "running": NO_STEP,
        "running, a node failed": NO_STEP,
        "running, a node backs off": NO_STEP,
        "running, a result is there": NO_STEP,
        "running, a gate is reached": NO_STEP,
        "stopping": STOPPING,
        "queued again": no("queued", "is queued to go on: no step of it waits for you"),
        "halted at a gate": AT_A_GATE,
        "halted before a step": done("queued", "run.resumed"),
        "halted on budget": ON_BUDGET,
        "halted": no("halted", "is halted: use Retry", "Retry"),
        "failed": FAILED,
        "failed, a result is there": FAILED,
        "stopped": STOPPED,
        "stopped, a result is there": STOPPED,
        "completed": SETTLED,
        "archived": ARCHIVED,
        "quarantined": QUARANTINED,
        "quarantined while running": QUARANTINED,
    },
    "Approve": {
        "not started": no("queued", "has not started: nothing of it waits for you yet"),
        "scheduled": no("queued", "has not started: nothing of it waits for you yet"),
        "running": NO_GATE,
        "running, a node failed": NO_GATE,
        "running, a node backs off": NO_GATE,
        "running, a result is there": NO_GATE,
        "running, a gate is reached": done("running", "gate.approved"),
        "stopping": STOPPING,
        "queued again": done("queued", "gate.approved"),
        "halted at a gate": done("queued", "gate.approved", "run.resumed"),
        "halted before a step": no("halted", "is halted, and has no gate 'gate': use Next", "Next"),
        "halted on budget": no("halted", "is halted, and has no gate 'gate': use Retry", "Retry"),
        "halted": no("halted", "is halted: use Retry", "Retry"),
        "failed": FAILED,
        "failed, a result is there": FAILED,
        "stopped": STOPPED,
        "stopped, a result is there": STOPPED,
        "completed": SETTLED,
        "archived": ARCHIVED,
        "quarantined": QUARANTINED,
        "quarantined while running": QUARANTINED,
    },
    "SendBack": {
        "not started": no("queued", "has no result yet: let it run first"),
        "scheduled": no("queued", "has no result yet: let it run first"),
        "running": IN_FLIGHT,
        "running, a node failed": IN_FLIGHT,
        "running, a node backs off": no(
            "running", "has node 'work' already queued for another attempt: let it settle"
        ),
        "running, a result is there": done("running", "node.sent_back"),
        "running, a gate is reached": done("running", "node.sent_back"),
        "stopping": STOPPING,
        "queued again": done("queued", "node.sent_back"),
        "halted at a gate": done("queued", "node.sent_back", "run.requeued"),
        "halted before a step": done("queued", "node.sent_back", "run.requeued"),
        "halted on budget": done("queued", "node.sent_back", "run.requeued"),
        "halted": no("halted", "has no result of node 'work' yet: let it run first"),
        "failed": no("failed", "has no result of node 'work' to judge, it failed: use Retry", "Retry"),
        "failed, a result is there": done("queued", "node.sent_back", "run.requeued"),
        "stopped": no("stopped", "has no result of node 'work' to judge, it was skipped: use Retry", "Retry"),
        "stopped, a result is there": done("queued", "node.sent_back", "run.requeued"),
        "completed": done("queued", "run.created", "node.sent_back", run=2),
        "archived": ARCHIVED,
        "quarantined": QUARANTINED,
        "quarantined while running": QUARANTINED,
    },
    "Rerun": {
        "not started": no("queued", "has not run: use Edit to change it", "Edit"),
        "scheduled": no("queued", "has not run: use Edit to change it", "Edit"),
        "running": STOP_FIRST,
        "running, a node failed": STOP_FIRST,
        "running, a node backs off": STOP_FIRST,
        "running, a result is there": STOP_FIRST,
        "running, a gate is reached": STOP_FIRST,
        "stopping": STOPPING,
        "queued again": no("queued", "is queued to go on: stop it first", "Stop"),
        "halted at a gate": done("queued", "run.stopped", "run.created", run=2),
        "halted before a step": done("queued", "run.stopped", "run.created", run=2),
        "halted on budget": done("queued", "run.stopped", "run.created", run=2),
        "halted": done("queued", "run.stopped", "run.created", run=2),
        "failed": done("queued", "run.created", run=2),
        "failed, a result is there": done("queued", "run.created", run=2),
        "stopped": done("queued", "run.created", run=2),
        "stopped, a result is there": done("queued", "run.created", run=2),
        "completed": done("queued", "run.created", run=2),
        "archived": ARCHIVED,
        "quarantined": QUARANTINED,
        "quarantined while running": QUARANTINED,
    },
    "Rerun(from)": {
        "not started": no("queued", "has not run: use Edit to change it", "Edit"),
        "scheduled": no("queued", "has not run: use Edit to change it", "Edit"),
        "running": STOP_FIRST,
        "running, a node failed": STOP_FIRST,
        "running, a node backs off": STOP_FIRST,
        "running, a result is there": STOP_FIRST,
        "running, a gate is reached": STOP_FIRST,
        "stopping": STOPPING,
        "queued again": no("queued", "is queued to go on: stop it first", "Stop"),
        "halted at a gate": done("queued", "run.stopped", "run.created", run=2),
        "halted before a step": done("queued", "run.stopped", "run.created", run=2),
        "halted on budget": done("queued", "run.stopped", "run.created", run=2),
        "halted": done("queued", "run.stopped", "run.created", run=2),
        "failed": done("queued", "run.created", run=2),
        "failed, a result is there": done("queued", "run.created", run=2),
        "stopped": done("queued", "run.created", run=2),
        "stopped, a result is there": done("queued", "run.created", run=2),
        "completed": done("queued", "run.created", run=2),
        "archived": ARCHIVED,
        "quarantined": QUARANTINED,
        "quarantined while running": QUARANTINED,
    },
    "Edit(priority, tries_max)": {
        "not started": done("queued", "task.edited"),
        "scheduled": done("queued", "task.edited"),
        "running": done("running", "task.edited"),
        "running, a node failed": done("running", "task.edited"),
        "running, a node backs off": done("running", "task.edited"),
        "running, a result is there": done("running", "task.edited"),
        "running, a gate is reached": done("running", "task.edited"),
        "stopping": done("stopping", "task.edited"),
        "queued again": done("queued", "task.edited"),
        "halted at a gate": done("halted", "task.edited"),
        "halted before a step": done("halted", "task.edited"),
        "halted on budget": done("halted", "task.edited"),
        "halted": done("halted", "task.edited"),
        "failed": done("failed", "task.edited"),
        "failed, a result is there": done("failed", "task.edited"),
        "stopped": done("stopped", "task.edited"),
        "stopped, a result is there": done("stopped", "task.edited"),
        "completed": COMPLETED,
        "archived": ARCHIVED,
        "quarantined": QUARANTINED,
        "quarantined while running": QUARANTINED,
    },
    "Edit(rest)": {
        "not started": done("queued", "task.edited"),
        "scheduled": done("queued", "task.edited"),
        "running": RUNNING,
        "running, a node failed": RUNNING,
        "running, a node backs off": RUNNING,
        "running, a result is there": RUNNING,
        "running, a gate is reached": RUNNING,
        "stopping": no("stopping", f"is stopping: {ONLY}"),
        "queued again": done("queued", "task.edited"),
        "halted at a gate": done("halted", "task.edited"),
        "halted before a step": done("halted", "task.edited"),
        "halted on budget": done("halted", "task.edited"),
        "halted": done("halted", "task.edited"),
        "failed": done("failed", "task.edited"),
        "failed, a result is there": done("failed", "task.edited"),
        "stopped": done("stopped", "task.edited"),
        "stopped, a result is there": done("stopped", "task.edited"),
        "completed": COMPLETED,
        "archived": ARCHIVED,
        "quarantined": QUARANTINED,
        "quarantined while running": QUARANTINED,
    },
    "Edit(not_before)": {
        "not started": done("queued", "task.edited", "task.scheduled"),
        "scheduled": done("queued", "task.edited", "task.scheduled"),
        "running": RUNNING,
        "running, a node failed": RUNNING,
        "running, a node backs off": RUNNING,
        "running, a result is there": RUNNING,
        "running, a gate is reached": RUNNING,
        "stopping": no("stopping", f"is stopping: {ONLY}"),
        "queued again": Done("queued", ("task.edited", "task.scheduled"), note=FROM_THE_NEXT),
        "halted at a gate": Done("halted", ("task.edited", "task.scheduled"), note=FROM_THE_NEXT),
        "halted before a step": Done("halted", ("task.edited", "task.scheduled"), note=FROM_THE_NEXT),
        "halted on budget": Done("halted", ("task.edited", "task.scheduled"), note=FROM_THE_NEXT),
        "halted": Done("halted", ("task.edited", "task.scheduled"), note=FROM_THE_NEXT),
        "failed": Done("failed", ("task.edited", "task.scheduled"), note=FROM_THE_NEXT),
        "failed, a result is there": Done("failed", ("task.edited", "task.scheduled"), note=FROM_THE_NEXT),
        "stopped": Done("stopped", ("task.edited", "task.scheduled"), note=FROM_THE_NEXT),
        "stopped, a result is there": Done("stopped", ("task.edited", "task.scheduled"), note=FROM_THE_NEXT),
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
        "running, a result is there": STOP_FIRST,
        "running, a gate is reached": STOP_FIRST,
        "stopping": STOPPING,
        "queued again": done("stopped", "run.stopped", "task.archived"),
        "halted at a gate": done("stopped", "run.stopped", "task.archived"),
        "halted before a step": done("stopped", "run.stopped", "task.archived"),
        "halted on budget": done("stopped", "run.stopped", "task.archived"),
        "halted": done("stopped", "run.stopped", "task.archived"),
        "failed": done("failed", "task.archived"),
        "failed, a result is there": done("failed", "task.archived"),
        "stopped": done("stopped", "task.archived"),
        "stopped, a result is there": done("stopped", "task.archived"),
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
        "running, a result is there": same("running"),
        "running, a gate is reached": same("running"),
        "stopping": same("stopping"),
        "queued again": same("queued"),
        "halted at a gate": same("halted"),
        "halted before a step": same("halted"),
        "halted on budget": same("halted"),
        "halted": same("halted"),
        "failed": same("failed"),
        "failed, a result is there": same("failed"),
        "stopped": same("stopped"),
        "stopped, a result is there": same("stopped"),
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
    world.ask(SetBudget(None))
    world.ask(Submit("another", id="another", handler="work", priority=100))
    for _ in range(4):
        world.wait(3600)
        for key in list(world.running):
            world.report(Report(key, AttemptEnd.SUCCEEDED, result="1"))
    assert world.run("another").status is RunStatus.COMPLETED
    if state != "halted":
        world.check_tables()


@pytest.mark.parametrize("state", STATES)
def test_a_budget_is_set_whatever_a_task_does_and_moves_no_run_by_itself(state: str) -> None:
    """Of the company's state: lowered to nothing it stops nothing, and taken away it lets nobody on who was halted."""
    world = World()
    STATES[state](world)
    before, events = world.run("t"), len(world.events)
    spent = world.state.company.spent
    answers = world.turn(SetBudget(0), SetBudget(None), SetBudget(None), advancing=False)
    assert answers == [
        BudgetSettings(0, spent, 0),
        BudgetSettings(None, spent, 0),
        BudgetSettings(None, spent, 0, changed=False),
    ]
    assert [event.kind for event in world.events[events:]] == ["company.budget_changed"] * 2
    assert world.run("t") == before
    check_against_oracle(world)


def test_the_refusals_of_the_code_cannot_be_changed_at_any_level() -> None:
    with pytest.raises(TypeError):
        REFUSALS[Start] = {}  # type: ignore[index]
    with pytest.raises(TypeError):
        HALT_REFUSALS[Start] = {}  # type: ignore[index]
    with pytest.raises(TypeError):
        AGAIN_REFUSALS[Start] = ("no", ())  # type: ignore[index]
    rows: list[Any] = [*REFUSALS.values(), *HALT_REFUSALS.values(), AGAIN_REFUSALS]
    for row in rows:
        with pytest.raises(TypeError):
            row[RunStatus.QUEUED] = ("no", ())
        for refusal in row.values():
            assert type(refusal) is tuple
            assert type(refusal[1]) is tuple
