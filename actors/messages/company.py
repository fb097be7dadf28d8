"""Messages about the company as a whole."""

from __future__ import annotations

from typing import ClassVar

import attrs

from actors.errors import InvalidMessage

from .base import RUNS_MAX_LIMIT, UNSET, WEIGHT_LIMIT, Message, Unset
from .checks import a_budget, a_name, an_integer, checked, optional
from .graph import Gate, Node, to_nodes
from .replies import BudgetSettings, CompanySettings, GoalStopped, GraphDefined, Unparked


@attrs.frozen
class DefineGraph(Message[GraphDefined]):
    """Give a graph a name. A run copies the newest definition at its first admission; runs admitted before
    keep theirs.
    """

    name: str = attrs.field(validator=checked(a_name("a graph's name")))
    nodes: tuple[Node | Gate, ...] = attrs.field(converter=to_nodes)


@attrs.frozen
class Pause(Message[CompanySettings]):
    """Stop admission and new attempts; live attempts finish, runs keep their slots. Only `Unpause` ends it."""

    control: ClassVar[bool] = True


@attrs.frozen
class Unpause(Message[CompanySettings]):
    """End a `Pause`: whatever is due starts."""

    control: ClassVar[bool] = True


@attrs.frozen
class SetLimits(Message[CompanySettings]):
    """``runs_max``: how many runs of the company may be active at once; 0 holds everything. Lowering it
    stops nothing. ``weight``: how many execution slots in a row the company gets in each round.
    """

    runs_max: int | Unset = attrs.field(
        default=UNSET, kw_only=True, validator=checked(an_integer(0, RUNS_MAX_LIMIT))
    )
    weight: int | Unset = attrs.field(
        default=UNSET, kw_only=True, validator=checked(an_integer(1, WEIGHT_LIMIT))
    )
    control: ClassVar[bool] = True

    def __attrs_post_init__(self) -> None:
        if isinstance(self.runs_max, Unset) and isinstance(self.weight, Unset):
            raise InvalidMessage("SetLimits changes nothing: give runs_max or weight")


@attrs.frozen
class SetBudget(Message[BudgetSettings]):
    """What the company may spend in all, what it has spent so far included, in whole units of the host's choice
    (tokens, cents). ``None``: no limit; 0: nothing starts.

    An attempt starts if what is spent, what others have reserved and its own estimate are within the limit
    (`Node.estimate`). What waits for the budget starts by itself when it is raised; a run that was halted on it needs
    `Retry`. Lowering it stops nothing. The budget of one task is a field of `Submit` and `Edit`.
    """

    limit: int | None = attrs.field(validator=checked(optional(a_budget)))


@attrs.frozen
class StopGoal(Message[GoalStopped]):
    """`Stop` every unsettled task of a goal, in one commit."""

    goal: str = attrs.field(validator=checked(a_name("a goal's name")))
    control: ClassVar[bool] = True


@attrs.frozen
class Unpark(Message[Unparked]):
    """End the rest of a company whose actor crashed too often, and forget its crashes."""

    control: ClassVar[bool] = True
