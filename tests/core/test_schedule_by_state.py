"""What each message does to a schedule in each state, cell by cell, against a literal table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest

from actors.errors import Refused, ScheduleRefused, UnknownSchedule
from actors.messages import (
    Message,
    Pause,
    PauseSchedule,
    RemoveSchedule,
    ResumeSchedule,
    RunNow,
    ScheduleSettings,
    SetSchedule,
    Submit,
    Submitted,
    Unpause,
)

from .agreement import check_against_file, check_against_oracle, snapshot
from .world import World

HOUR_MS = 3_600_000
"""The first nominal time of the schedule: the world begins a quarter past midnight."""
TASK = Submit("hourly", handler="work")


def absent(world: World) -> None:
    """There is no such schedule."""


def active(world: World) -> None:
    world.ask(SetSchedule("s", cron="0 * * * *", task=TASK))


def due(world: World) -> None:
    """Its time came a second ago, and nobody has looked yet."""
    active(world)
    world.now_ms = HOUR_MS + 1_000


def paused(world: World) -> None:
    active(world)
    world.ask(PauseSchedule("s"))


def paused_and_missed(world: World) -> None:
    """Two times went by."""
    paused(world)
    world.now_ms = 2 * HOUR_MS + 600_000


def held_by_the_company(world: World) -> None:
    """Two times went by while the company was paused."""
    active(world)
    world.ask(Pause())
    world.now_ms = 2 * HOUR_MS + 600_000


def disabled(world: World) -> None:
    active(world)
    world.plant("UPDATE schedules SET cron = '0 0 31 2 *'")
    world.turn()


def disabled_while_paused(world: World) -> None:
    paused(world)
    world.plant("UPDATE schedules SET cron = '0 0 31 2 *'")
    world.turn()


STATES: Mapping[str, Callable[[World], None]] = {
    "absent": absent,
    "active": active,
    "due": due,
    "paused": paused,
    "paused, missed two": paused_and_missed,
    "company paused, missed two": held_by_the_company,
    "disabled": disabled,
    "disabled, paused": disabled_while_paused,
}

MESSAGES: Mapping[str, Message[Any]] = {
    "SetSchedule(the same)": SetSchedule("s", cron="0 * * * *", task=TASK),
    "SetSchedule(another cron)": SetSchedule("s", cron="30 * * * *", task=TASK),
    "SetSchedule(another zone)": SetSchedule("s", cron="0 * * * *", zone="Asia/Kolkata", task=TASK),
    "SetSchedule(an interval)": SetSchedule("s", every=600, task=TASK),
    "SetSchedule(another task)": SetSchedule("s", cron="0 * * * *", task=Submit("other", handler="work")),
    "PauseSchedule": PauseSchedule("s"),
    "ResumeSchedule": ResumeSchedule("s"),
    "RemoveSchedule": RemoveSchedule("s"),
    "RunNow": RunNow("s"),
}


@attrs.frozen
class Done:
    """The next nominal time in minutes, what the reply says, the events of the message, and those that follow at the
    next look.
    """

    next_min: int | None
    kinds: tuple[str, ...]
    then: tuple[str, ...] = ()
    paused: bool = False
    disabled: bool = False


@attrs.frozen
class Ran:
    """A task was made; the schedule is where it was."""

    then: tuple[str, ...] = ()


@attrs.frozen
class Refuses:
    error: type[Refused]
    text: str


Cell = Done | Ran | Refuses

SET, PAUSED, RESUMED = "schedule.set", "schedule.paused", "schedule.resumed"
REMOVED, DISABLED = "schedule.removed", "schedule.disabled"
FIRED = ("task.submitted", "schedule.fired")
CAUGHT_UP = (*FIRED, "schedule.skipped")
UNKNOWN = Refuses(UnknownSchedule, "company 'acme' has no schedule 's': send SetSchedule first")
BAD = Refuses(ScheduleRefused, "it is disabled (cron '0 0 31 2 *' is not valid, or no date ever fits it")

TABLE: Mapping[str, Mapping[str, Cell]] = {
    "SetSchedule(the same)": {
        "absent": Done(60, (SET,)),
        "active": Done(60, ()),
        "due": Done(60, (), FIRED),
        "paused": Done(60, (), paused=True),
        "paused, missed two": Done(60, (), paused=True),
        "company paused, missed two": Done(60, ()),
        "disabled": Done(60, (SET,)),
        "disabled, paused": Done(60, (SET,), paused=True),
    },
    "SetSchedule(another cron)": {
        "absent": Done(30, (SET,)),
        "active": Done(30, (SET,)),
        "due": Done(90, (*FIRED, SET)),
        "paused": Done(30, (SET,), paused=True),
        "paused, missed two": Done(150, (SET,), paused=True),
        "company paused, missed two": Done(150, (SET,)),
        "disabled": Done(30, (SET,)),
        "disabled, paused": Done(30, (SET,), paused=True),
    },
    "SetSchedule(another zone)": {
        "absent": Done(30, (SET,)),
        "active": Done(30, (SET,)),
        "due": Done(90, (*FIRED, SET)),
        "paused": Done(30, (SET,), paused=True),
        "paused, missed two": Done(150, (SET,), paused=True),
        "company paused, missed two": Done(150, (SET,)),
        "disabled": Done(30, (SET,)),
        "disabled, paused": Done(30, (SET,), paused=True),
    },
    "SetSchedule(an interval)": {
        "absent": Done(26, (SET,)),
        "active": Done(26, (SET,)),
        "due": Done(70, (*FIRED, SET)),
        "paused": Done(26, (SET,), paused=True),
        "paused, missed two": Done(140, (SET,), paused=True),
        "company paused, missed two": Done(140, (SET,)),
        "disabled": Done(26, (SET,)),
        "disabled, paused": Done(26, (SET,), paused=True),
    },
    "SetSchedule(another task)": {
        "absent": Done(60, (SET,)),
        "active": Done(60, (SET,)),
        "due": Done(60, (SET,), FIRED),
        "paused": Done(60, (SET,), paused=True),
        "paused, missed two": Done(60, (SET,), paused=True),
        "company paused, missed two": Done(60, (SET,)),
        "disabled": Done(60, (SET,)),
        "disabled, paused": Done(60, (SET,), paused=True),
    },
    "PauseSchedule": {
        "absent": UNKNOWN,
        "active": Done(60, (PAUSED,), paused=True),
        "due": Done(60, (PAUSED,), paused=True),
        "paused": Done(60, (), paused=True),
        "paused, missed two": Done(60, (), paused=True),
        "company paused, missed two": Done(60, (PAUSED,), paused=True),
        "disabled": Done(None, (PAUSED,), paused=True, disabled=True),
        "disabled, paused": Done(None, (), paused=True, disabled=True),
    },
    "ResumeSchedule": {
        "absent": UNKNOWN,
        "active": Done(60, ()),
        "due": Done(60, (), FIRED),
        "paused": Done(60, (RESUMED,)),
        "paused, missed two": Done(60, (RESUMED,), CAUGHT_UP),
        "company paused, missed two": Done(60, ()),
        "disabled": Done(None, (), disabled=True),
        "disabled, paused": Done(None, (RESUMED,), disabled=True),
    },
    "RemoveSchedule": {
        "absent": UNKNOWN,
        "active": Done(None, (REMOVED,)),
        "due": Done(None, (REMOVED,)),
        "paused": Done(None, (REMOVED,), paused=True),
        "paused, missed two": Done(None, (REMOVED,), paused=True),
        "company paused, missed two": Done(None, (REMOVED,)),
        "disabled": Done(None, (REMOVED,), disabled=True),
        "disabled, paused": Done(None, (REMOVED,), paused=True, disabled=True),
    },
    "RunNow": {
        "absent": UNKNOWN,
        "active": Ran(),
        "due": Ran(("schedule.skipped",)),  # it counts for overlap
        "paused": Ran(),
        "paused, missed two": Ran(),
        "company paused, missed two": Ran(),
        "disabled": BAD,
        "disabled, paused": BAD,
    },
}

CELLS = [(message, state) for message in MESSAGES for state in STATES]


def test_the_table_has_a_cell_for_every_message_in_every_state() -> None:
    assert TABLE.keys() == MESSAGES.keys()
    assert {message for message, row in TABLE.items() if row.keys() != STATES.keys()} == set()


def minutes(next_ms: int | None) -> int | None:
    return None if next_ms is None else next_ms // 60_000


@pytest.mark.parametrize(("message", "state"), CELLS, ids=[f"{m} × {s}" for m, s in CELLS])
def test_a_message_does_to_a_schedule_what_its_cell_says(message: str, state: str) -> None:
    world = World(runs_max=0)
    STATES[state](world)
    before, events = snapshot(world), len(world.events)
    old = world.state.schedules.by_name.get("s")

    (answer,) = world.turn(MESSAGES[message], advancing=False)

    cell = TABLE[message][state]
    kinds = tuple(event.kind for event in world.events[events:])
    if isinstance(cell, Refuses):
        assert type(answer) is cell.error
        assert cell.text in str(answer)
    elif isinstance(cell, Ran):
        assert answer == Submitted("@1", 1, 1)
        assert kinds == FIRED
        assert world.state.schedules.by_name["s"] == old, "it moved the schedule"
        assert world.told("schedule.fired")[-1].data == {"name": "s", "nominal_ms": None, "manual": True}
    else:
        assert isinstance(answer, ScheduleSettings)
        assert (minutes(answer.next_ms), answer.paused) == (cell.next_min, cell.paused)
        assert (answer.disabled is not None, answer.changed) == (cell.disabled, bool(cell.kinds))
        assert kinds == cell.kinds
    if isinstance(cell, Refuses) or (isinstance(cell, Done) and not cell.kinds):
        assert snapshot(world) == before
        assert kinds == ()
    check_against_oracle(world)
    check_against_file(world)

    events = len(world.events)
    world.advance_until_quiet()
    then = () if isinstance(cell, Refuses) else cell.then
    assert tuple(event.kind for event in world.events[events:]) == then
    check_against_oracle(world)
    check_against_file(world)
    if "disabled" not in state:
        world.check_tables()


@pytest.mark.parametrize("message", [name for name in MESSAGES if name.startswith("SetSchedule(a")])
def test_what_was_missed_under_the_old_rule_follows_the_misfire_rule_when_the_pause_ends(
    message: str,
) -> None:
    for hold, go_on in ((PauseSchedule("s"), ResumeSchedule("s")), (Pause(), Unpause())):
        world = World(runs_max=0)
        active(world)
        world.ask(hold)
        world.now_ms = 2 * HOUR_MS + 600_000
        world.ask(MESSAGES[message])
        assert world.told("schedule.fired") == []
        world.ask(go_on)
        (fired,), (skipped,) = world.told("schedule.fired"), world.told("schedule.skipped")
        assert fired.data == {"name": "s", "nominal_ms": 2 * HOUR_MS, "manual": False}
        assert (skipped.data["count"], skipped.data["last_ms"]) == (1, 2 * HOUR_MS)
        record = world.state.schedules.by_name["s"]
        assert record.next_ms is not None
        assert record.next_ms > world.now_ms
        assert (record.missed, record.missed_ms) == (0, None)
        check_against_file(world)
        world.check_tables()


@pytest.mark.parametrize("state", STATES)
def test_after_removal_the_same_name_begins_anew_and_no_nominal_time_fires_twice(state: str) -> None:
    world = World(runs_max=0)
    STATES[state](world)
    world.turn(RemoveSchedule("s"))
    world.ask(Unpause())
    world.ask(SetSchedule("s", cron="0 * * * *", task=TASK))
    record = world.state.schedules.by_name["s"]
    assert record.next_ms is not None
    assert record.next_ms > world.now_ms
    assert record.paused_ms is None
    world.wait(3600)
    world.wait(3600)
    nominals = [event.data["nominal_ms"] for event in world.told("schedule.fired")]
    assert nominals
    assert sorted(set(nominals)) == nominals
    world.check_tables()
