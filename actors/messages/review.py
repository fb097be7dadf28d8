"""Messages of a person who reviews: what they say to a gate, to a step, and to a result."""

from __future__ import annotations

import attrs

from .base import Message
from .checks import a_name, a_task_id, checked, some_feedback, some_lines
from .replies import Moved


@attrs.frozen
class Next(Message[Moved]):
    """Let the next node of a halted task of ``mode="step"`` start: the first in the graph that is ready. Its further
    tries need no `Next` of their own.
    """

    task: str = attrs.field(validator=checked(a_task_id))


@attrs.frozen
class Approve(Message[Moved]):
    """Answer a gate that is reached: it succeeds with ``{"approved": true, "note": note}``. A halted run goes on at
    its old place in the line.
    """

    task: str = attrs.field(validator=checked(a_task_id))
    gate: str = attrs.field(validator=checked(a_name("a gate's name")))
    note: str | None = attrs.field(default=None, validator=checked(some_lines))


@attrs.frozen
class SendBack(Message[Moved]):
    """Have the result of ``node`` done again, with ``feedback`` for every attempt at it (`Context.feedback`).

    In a run that is not completed it is reset in its place, with every node that used the result; attempts of those
    that live are superseded: what they return is late. Of a completed one a new run is made, which keeps the other
    results. The generation of what is reset rises. Refused without a result to judge, for blank feedback
    (`InvalidMessage`), and after ``send_backs_max`` times.
    """

    task: str = attrs.field(validator=checked(a_task_id))
    node: str = attrs.field(validator=checked(a_name("a node's name")))
    feedback: str = attrs.field(validator=checked(some_feedback))
