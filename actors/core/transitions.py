"""The legal moves. One table per machine; a move outside its table raises and changes nothing.

A *run* is queued until it is admitted to a run slot, holds the slot while it is active (running, stopping),
and is settled when it completed, failed or stopped. Completed is final: doing it again is a new run.
*Halted* is short of a person, with the slot free. A *node* waits, runs one attempt at a time (a gate none: a person
answers it), and ends succeeded, failed (it gave up) or skipped; every way back to pending is a retry, an
interruption, a reset or a fresh allowance. A *schedule* is active until it is paused, or disabled because it cannot
fire; only a message brings it back. An attempt's *phase* lives in memory only; finalizing absorbs, so whoever ends an
attempt second does no harm.

The tables cannot be changed, at any level. The diagrams in the documentation are generated from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import TypeVar

from actors.errors import IllegalMove
from storage.records import NodeStatus, RunStatus, ScheduleStatus

S = TypeVar("S", bound=StrEnum)


class Phase(StrEnum):
    """Where an attempt is, from the reservation of its slot to the commit of its end."""

    CLAIMING = "claiming"
    PERSISTING = "persisting"
    EXECUTING = "executing"
    WAITING = "waiting"
    CANCELLING = "cancelling"
    FINALIZING = "finalizing"


Table = Mapping[S | None, Mapping[S, str]]
"""before → after → the verb on the arrow. ``None`` is the birth of the thing."""


def _freeze(rows: dict[S | None, dict[S, str]]) -> Table[S]:
    return MappingProxyType({before: MappingProxyType(after) for before, after in rows.items()})


R, N, P, T = RunStatus, NodeStatus, Phase, ScheduleStatus

RUN_MOVES: Table[RunStatus] = _freeze(
    {
        None: {R.QUEUED: "submit, rerun, send back"},
        R.QUEUED: {R.RUNNING: "admit", R.STOPPED: "stop"},
        R.RUNNING: {
            R.COMPLETED: "all nodes succeeded",
            R.FAILED: "a node gave up",
            R.STOPPING: "stop",
            R.HALTED: "short of a gate",
        },
        R.STOPPING: {R.STOPPED: "nothing alive"},
        R.HALTED: {R.QUEUED: "approve, next, send back, retry", R.STOPPED: "stop"},
        R.FAILED: {R.QUEUED: "retry, send back"},
        R.STOPPED: {R.QUEUED: "retry, send back"},
        R.COMPLETED: {},
    }
)

NODE_MOVES: Table[NodeStatus] = _freeze(
    {
        None: {N.PENDING: "first admission"},
        N.PENDING: {N.RUNNING: "start", N.SKIPPED: "stop", N.SUCCEEDED: "approve, carry over"},
        N.RUNNING: {
            N.SUCCEEDED: "succeed",
            N.FAILED: "give up",
            N.SKIPPED: "stop",
            N.PENDING: "try again, interrupt, supersede",
        },
        N.SUCCEEDED: {N.PENDING: "reset"},
        N.FAILED: {N.PENDING: "fresh allowance"},
        N.SKIPPED: {N.PENDING: "fresh allowance"},
    }
)

SCHEDULE_MOVES: Table[ScheduleStatus] = _freeze(
    {
        None: {T.ACTIVE: "set"},
        T.ACTIVE: {T.PAUSED: "pause", T.DISABLED: "cannot fire"},
        T.PAUSED: {T.ACTIVE: "resume", T.DISABLED: "cannot fire"},
        T.DISABLED: {T.ACTIVE: "set", T.PAUSED: "set while paused"},
    }
)

PHASE_MOVES: Table[Phase] = _freeze(
    {
        None: {P.CLAIMING: "reserve"},
        P.CLAIMING: {P.PERSISTING: "send", P.FINALIZING: "undo"},
        P.PERSISTING: {P.EXECUTING: "committed", P.FINALIZING: "refused"},
        P.EXECUTING: {P.WAITING: "wait", P.CANCELLING: "cancel", P.FINALIZING: "end"},
        P.WAITING: {P.EXECUTING: "go on", P.CANCELLING: "cancel", P.FINALIZING: "end"},
        P.CANCELLING: {P.FINALIZING: "end"},
        P.FINALIZING: {P.FINALIZING: "again"},
    }
)


def check_move(
    machine: str,
    table: Table[S],
    name: Callable[[], object],
    before: S | None,
    after: S,
    story: Sequence[str] = (),
) -> None:
    """Raise `IllegalMove` unless the table has the move. ``name`` says whose move it is; only then is it asked."""
    if after not in table.get(before, {}):
        raise IllegalMove(machine, name(), before, after, story)
