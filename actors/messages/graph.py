"""The nodes of a run, as messages carry them."""

from __future__ import annotations

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from typing import Any, ClassVar, cast

import attrs

from actors.errors import InvalidMessage

from .base import NODES_MAX, STALL_S_DEFAULT, UNITS_MAX
from .checks import (
    a_name,
    a_number_of_send_backs,
    a_number_of_tries,
    an_integer,
    checked,
    optional,
    payload_text,
    seconds_above_zero,
    seconds_from_zero,
    to_after,
)


@attrs.frozen
class Backoff:
    """Waits between tries: ``base_s`` × ``factor`` ** (tries − 1), at most ``max_s``, plus up to 10 % jitter."""

    base_s: float = attrs.field(default=1.0, validator=checked(seconds_from_zero))
    factor: float = attrs.field(default=2.0)
    max_s: float = attrs.field(default=3600.0, validator=checked(seconds_from_zero))

    @factor.validator
    def _check_factor(self, _attribute: object, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= 1_000:
            raise InvalidMessage(f"factor must be from 1 to 1000, not {value!r}")


def a_backoff(value: object, field: str) -> Backoff:
    if not isinstance(value, Backoff):
        raise InvalidMessage(f"{field} must be a Backoff, not {value!r}")
    return value


def _own_name(node: Any) -> str:
    return cast("str", node.name)


@attrs.frozen
class Node:
    """One step of a run, executed by the handler registered under ``handler`` (default: the node's own name).

    ``after`` names the nodes whose results it uses. ``tries_max`` counts tries, the first included;
    ``None`` takes the task's. ``timeout_s`` bounds one attempt, ``stall_s`` the time in which it says nothing
    (`Context.progress`; waiting does not count). ``None`` is no bound: with both none, a handler that hangs
    keeps its execution slot. ``send_backs_max`` is how often its result may be sent back (`SendBack`); ``None``
    takes the task's. ``estimate``: what one attempt is expected to spend (`Context.spend`), in the units of the
    budgets; so much is reserved while it lives.
    """

    name: str = attrs.field(validator=checked(a_name("a node's name")))
    handler: str = attrs.field(
        default=attrs.Factory(_own_name, takes_self=True), validator=checked(a_name("a handler's name"))
    )
    after: tuple[str, ...] = attrs.field(default=(), kw_only=True, converter=to_after)
    payload: Any = attrs.field(default=None, kw_only=True)
    tries_max: int | None = attrs.field(default=None, kw_only=True, validator=checked(a_number_of_tries))
    timeout_s: float | None = attrs.field(default=None, kw_only=True, validator=checked(seconds_above_zero))
    stall_s: float | None = attrs.field(
        default=STALL_S_DEFAULT, kw_only=True, validator=checked(optional(seconds_above_zero))
    )
    retry: Backoff = attrs.field(factory=Backoff, kw_only=True, validator=checked(a_backoff))
    send_backs_max: int | None = attrs.field(
        default=None, kw_only=True, validator=checked(a_number_of_send_backs)
    )
    estimate: int = attrs.field(default=0, kw_only=True, validator=checked(an_integer(0, UNITS_MAX)))
    payload_text: str | None = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "payload_text", payload_text(self.payload, f"payload of node {self.name!r}"))


@attrs.frozen
class Gate:
    """A node that waits for a person. It is *reached* when the nodes that it is ``after`` have all succeeded.

    When nothing else of the run can go on, the run halts and its run slot is free. `Approve` answers the gate, also
    while other branches still run: it succeeds with ``{"approved": true, "note": …}``. `SendBack` has the result
    that it judges done again.
    """

    name: str = attrs.field(validator=checked(a_name("a gate's name")))
    after: tuple[str, ...] = attrs.field(default=(), kw_only=True, converter=to_after)
    payload_text: ClassVar[None] = None
    """What a handler would be given; a gate has none."""


def to_nodes(value: Iterable[Node | Gate] | str) -> tuple[Node | Gate, ...]:
    """The nodes, if they form a graph: distinct names, known ``after``, no cycle."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidMessage(f"nodes must be a list of Node and Gate, not {value!r}")
    nodes = tuple(value)
    if len(nodes) > NODES_MAX:
        raise InvalidMessage(f"{len(nodes)} nodes are more than the {NODES_MAX} of one run")
    names: set[str] = set()
    for node in nodes:
        if not isinstance(node, Node | Gate):
            raise InvalidMessage(f"nodes must be Node or Gate, not {node!r}")
        if node.name in names:
            raise InvalidMessage(f"two nodes are named {node.name!r}")
        names.add(node.name)
    for node in nodes:
        for upstream in node.after:
            if upstream not in names:
                raise InvalidMessage(
                    f"node {node.name!r} is after {upstream!r}, which is not a node of this graph"
                )
    _refuse_cycle(nodes)
    return nodes


def _refuse_cycle(nodes: tuple[Node | Gate, ...]) -> None:
    try:
        TopologicalSorter({node.name: node.after for node in nodes if node.after}).prepare()
    except CycleError as error:
        cycle = sorted(set(error.args[1]))
        raise InvalidMessage(f"nodes form a cycle among: {', '.join(cycle[:10])}") from None


def to_nodes_or_none(value: Iterable[Node | Gate] | None) -> tuple[Node | Gate, ...] | None:
    return None if value is None else to_nodes(value)
