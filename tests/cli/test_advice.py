"""What `explain` proposes can be pasted: it is a command that there is, about the tasks concerned."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from actors import Reason, ReasonKind
from actors.cli.advice import advice
from actors.cli.options import ReadOptions, RunOptions, SendOptions
from actors.cli.parser import parse

DB = Path("my files/x.db")
PASS_BY_THEMSELVES = {
    ReasonKind.EXECUTING,
    ReasonKind.WAITING,
    ReasonKind.EXECUTION_SLOT,
    ReasonKind.NODE_READY,
    ReasonKind.ENDING,
    ReasonKind.DRAINING,
    ReasonKind.STORE_UNAVAILABLE,
}
NEED_MORE_THAN_A_COMMAND = {
    ReasonKind.UPSTREAM_MISSING,
    ReasonKind.DEPENDENCY_CYCLE,
    ReasonKind.RUN_MISSING,
    ReasonKind.HANDLER_MISSING,
    ReasonKind.GRAPH_MISSING,
    ReasonKind.ABANDONED_LIMIT,
}


@pytest.mark.parametrize("kind", ReasonKind)
def test_every_reason_that_a_command_helps_against_has_one_that_can_be_pasted(kind: ReasonKind) -> None:
    reason = Reason(kind, tasks=("up stream", "b"), count=2, nodes=("n",), numbers={"runs_max": 2})
    found = advice(reason, "acme", "the report", DB)
    assert (found is None) == (kind in PASS_BY_THEMSELVES | NEED_MORE_THAN_A_COMMAND)
    if found is not None:
        what, _, command = found.partition(": python -m actors ")
        assert what[0].isupper()
        options = parse(shlex.split(command))
        assert options.db == DB
        if isinstance(options, SendOptions):
            assert options.given.company == "acme"
            assert options.command.message(options.given) is not None
            if options.command.about == "task":
                assert options.given.task in ("the report", "up stream")
        elif isinstance(options, ReadOptions):
            assert options.task is not None
            assert str(options.task) in ("acme/the report", "acme/up stream")
        else:
            assert isinstance(options, RunOptions)


def test_without_a_host_a_message_is_proposed_for_later_and_a_read_as_ever() -> None:
    manual = advice(Reason(ReasonKind.MANUAL), "acme", "a", Path("x.db"), host=False)
    assert manual == "Start it: python -m actors start acme/a --later --db x.db"
    completed = advice(Reason(ReasonKind.COMPLETED), "acme", "a", Path("x.db"), host=False)
    assert completed == "See its results: python -m actors result acme/a --db x.db"


def test_nothing_is_proposed_about_a_task_that_is_not_named() -> None:
    for kind in ReasonKind:
        found = advice(Reason(kind), "acme", "a", DB)
        assert found is None or "None" not in found
    assert advice(Reason(ReasonKind.TASKS_AHEAD), "acme", "a", DB) is None, "it is the next"


def test_more_run_slots_are_one_more_than_there_are() -> None:
    reason = Reason(ReasonKind.RUN_SLOTS, tasks=("b",), count=1, numbers={"runs_max": 4, "active": 4})
    assert advice(reason, "acme", "a", Path("x.db")) == (
        "Let more run at once: python -m actors limits acme --runs-max 5 --db x.db"
    )
