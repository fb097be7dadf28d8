"""From the states of tasks to: does anything go on, how did it end, what can a person do."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors import RunStatus
from actors.cli.outcome import all_completed, at_rest, goes_on, next_steps, summary_lines, tally, unfinished
from actors.messages.views import Reason, ReasonKind, TaskStatus, WorkState

NOW_MS = 1_700_000_000_000


def a_status(state: WorkState, *reasons: Reason, task: str = "a", company: str = "acme") -> TaskStatus:
    return TaskStatus(
        company=company,
        id=task,
        seq=1,
        title="A",
        priority=2,
        goal=None,
        run=1,
        run_status=RunStatus.QUEUED,
        state=state,
        reasons=reasons,
        position=0,
        created_ms=NOW_MS,
        settled_ms=None,
        depends_on=(),
    )


COMPLETED = a_status(WorkState.COMPLETED, Reason(ReasonKind.COMPLETED))
FAILED = a_status(WorkState.FAILED, Reason(ReasonKind.FAILED, text="boom"), task="broken")
HELD = a_status(WorkState.HELD, Reason(ReasonKind.MANUAL), task="by hand")
BLOCKED = a_status(
    WorkState.BLOCKED, Reason(ReasonKind.UPSTREAM_FAILED, tasks=("broken",), count=1), task="after"
)

GOES_ON = [
    (WorkState.RUNNING, Reason(ReasonKind.EXECUTING, nodes=("n",), count=1), True),
    (WorkState.RUNNING, Reason(ReasonKind.BACKING_OFF, nodes=("n",), count=1), True),
    (WorkState.RUNNING, Reason(ReasonKind.NODE_READY, nodes=("n",), count=1), True),
    (WorkState.RUNNING, Reason(ReasonKind.EXECUTION_SLOT, tasks=("acme/b/1/n/1",), count=1), True),
    (WorkState.RUNNING, Reason(ReasonKind.EXECUTION_SLOT), False),
    (WorkState.RUNNING, Reason(ReasonKind.COMPANY_PAUSED), False),
    (WorkState.RUNNING, Reason(ReasonKind.HANDLER_MISSING), False),
    (WorkState.STOPPING, Reason(ReasonKind.ENDING), True),
    (WorkState.QUEUED, Reason(ReasonKind.TASKS_AHEAD), True),
    (WorkState.QUEUED, Reason(ReasonKind.TASKS_AHEAD, tasks=("b",), count=1), False),
    (WorkState.QUEUED, Reason(ReasonKind.RUN_SLOTS, numbers={"runs_max": 0}), False),
    (WorkState.PAUSED, Reason(ReasonKind.COMPANY_PAUSED), False),
    (WorkState.PAUSED, Reason(ReasonKind.COMPANY_PARKED), True),
    (WorkState.PAUSED, Reason(ReasonKind.STORE_UNAVAILABLE), True),
    (WorkState.WAITING, Reason(ReasonKind.UPSTREAM_UNFINISHED, tasks=("b",), count=1), False),
    (WorkState.BLOCKED, Reason(ReasonKind.UPSTREAM_FAILED, tasks=("b",), count=1), False),
    (WorkState.SCHEDULED, Reason(ReasonKind.NOT_BEFORE, at_ms=NOW_MS + 5), True),
    (WorkState.HELD, Reason(ReasonKind.MANUAL), False),
    (WorkState.HALTED, Reason(ReasonKind.HALTED), False),
    (WorkState.FAILED, Reason(ReasonKind.FAILED), False),
    (WorkState.QUARANTINED, Reason(ReasonKind.QUARANTINED), False),
]


@pytest.mark.parametrize(("state", "reason", "expected"), GOES_ON)
def test_a_task_goes_on_only_if_nobody_is_needed_for_it(
    state: WorkState, reason: Reason, expected: bool
) -> None:
    assert goes_on(a_status(state, reason)) is expected


def test_a_running_task_goes_on_while_one_of_its_nodes_does() -> None:
    reasons = (Reason(ReasonKind.COMPANY_PAUSED), Reason(ReasonKind.EXECUTING, nodes=("n",), count=1))
    assert goes_on(a_status(WorkState.RUNNING, *reasons))


@pytest.mark.parametrize("kind", [ReasonKind.MANUAL, ReasonKind.COMPANY_PAUSED])
def test_a_task_whose_time_comes_goes_on_unless_a_person_is_needed_then(kind: ReasonKind) -> None:
    assert not goes_on(a_status(WorkState.SCHEDULED, Reason(ReasonKind.NOT_BEFORE, at_ms=5), Reason(kind)))


def test_all_are_at_rest_when_none_goes_on() -> None:
    assert at_rest([COMPLETED, FAILED, HELD, BLOCKED])
    assert not at_rest([COMPLETED, a_status(WorkState.QUEUED, Reason(ReasonKind.TASKS_AHEAD))])
    assert at_rest([])


def test_only_completed_is_completed() -> None:
    assert all_completed([COMPLETED])
    assert not all_completed([COMPLETED, HELD])
    assert all_completed([])


def test_a_summary_counts_and_names_causes_before_what_they_hold_up() -> None:
    statuses = [BLOCKED, HELD, COMPLETED, FAILED]
    assert summary_lines({"acme": tally(statuses)}, statuses, NOW_MS) == [
        "acme  1 of 4 completed, 1 manual, 1 blocked, 1 failed",
        "",
        "acme/broken failed: boom",
        "acme/by hand waits for a person to start it",
        "acme/after depends on broken, which failed",
    ]


def test_a_summary_of_many_tasks_fits_on_a_screen() -> None:
    statuses = [a_status(WorkState.FAILED, Reason(ReasonKind.FAILED), task=f"t{n}") for n in range(1_000)]
    lines = summary_lines({"acme": tally(statuses)}, statuses, NOW_MS)
    assert len(lines) == 23
    assert lines[-1] == "… and 980 more"


def test_next_steps_can_be_pasted() -> None:
    statuses = unfinished([BLOCKED, HELD, FAILED])
    assert next_steps(statuses, Path("my plan.toml"), Path("x.db")) == [
        "python -m actors run 'my plan.toml' --retry acme/broken --db x.db",
        "python -m actors run 'my plan.toml' --start 'acme/by hand' --db x.db",
        "python -m actors explain acme/after --db x.db",
    ]
    assert next_steps([COMPLETED], Path("p"), Path("d")) == []
