"""The shape of a run: its nodes and the edges between them, without their payloads.

A shape is stored as canonical JSON and read back through a cache, so the thousand tasks that were submitted
with the same nodes share one object in memory. Payloads stay in the database until an attempt needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter

import attrs

from actors.converter import add_row_form, converter
from actors.messages import STALL_S_DEFAULT, UNITS_MAX, Backoff, Gate, Node
from storage.codec import decode, encode

SHAPES_CACHED = 4_096


@attrs.frozen
class NodeSpec:
    """A node's definition as its row holds it. ``after`` are positions in the shape. A gate has no handler."""

    name: str
    handler: str = ""
    after: tuple[int, ...] = ()
    tries_max: int | None = None
    timeout_s: float | None = None
    stall_s: float | None = STALL_S_DEFAULT
    backoff: Backoff = attrs.field(factory=Backoff)
    send_backs_max: int | None = None
    gate: bool = False
    estimate: int = 0
    text: str = attrs.field(default="", eq=False, repr=False)


@attrs.frozen
class Shape:
    nodes: tuple[NodeSpec, ...]
    users: tuple[tuple[int, ...], ...]
    """By position: the positions of the nodes that use its result."""
    handlers: frozenset[str]
    text: str
    first_estimates: tuple[int, ...] = ()
    """What the nodes are expected to spend that are after no other, each number once; gates aside."""


_read_spec = add_row_form(NodeSpec, left_out=("text",))


def shape_text(nodes: Sequence[Node | Gate]) -> str:
    """The canonical text of these nodes. Equal graphs have equal texts."""
    places = {node.name: place for place, node in enumerate(nodes)}
    specs = [converter.unstructure(_spec_of_node(node, places)) for node in nodes]
    return encode(specs, what="the graph", bytes_max=1 << 26)


def _spec_of_node(node: Node | Gate, places: dict[str, int]) -> NodeSpec:
    after = tuple([places[name] for name in node.after])
    if isinstance(node, Gate):
        return NodeSpec(node.name, after=after, gate=True)
    return NodeSpec(
        name=node.name,
        handler=node.handler,
        after=after,
        tries_max=node.tries_max,
        timeout_s=node.timeout_s,
        stall_s=node.stall_s,
        backoff=node.retry,
        send_backs_max=node.send_backs_max,
        estimate=node.estimate,
    )


@lru_cache(maxsize=SHAPES_CACHED)
def shape_of(text: str) -> Shape:
    """The shape of a text; raises ``ValueError`` if `shape_text` did not write it."""
    items = decode(text)
    if not isinstance(items, list):
        raise ValueError("not a list of nodes")
    specs = tuple(_spec(item) for item in items)
    handlers = frozenset(spec.handler for spec in specs if not spec.gate)
    firsts = {spec.estimate for spec in specs if not spec.after and not spec.gate}
    return Shape(specs, users_of(specs), handlers, text, tuple(sorted(firsts)))


def users_of(specs: Sequence[NodeSpec]) -> tuple[tuple[int, ...], ...]:
    """By position: the positions of the nodes that use its result. Raises ``ValueError`` unless the edges form an
    acyclic graph.
    """
    users: list[list[int]] = [[] for _ in specs]
    for place, spec in enumerate(specs):
        for upstream in spec.after:
            if not 0 <= upstream < len(specs):
                raise ValueError(f"node {spec.name!r} is after a node that does not exist")
            users[upstream].append(place)
    try:
        TopologicalSorter({place: spec.after for place, spec in enumerate(specs) if spec.after}).prepare()
    except CycleError:
        raise ValueError("the nodes form a cycle") from None
    return tuple(tuple(places) for places in users)


@lru_cache(maxsize=SHAPES_CACHED)
def spec_of(text: str) -> NodeSpec:
    """The node of one row's ``spec``; raises ``ValueError`` if `shape_text` did not write it."""
    return _spec(decode(text))


@lru_cache(maxsize=SHAPES_CACHED)
def layout_of(
    texts: tuple[str, ...],
) -> tuple[tuple[NodeSpec, ...], tuple[tuple[int, ...], ...], frozenset[int]]:
    """The nodes that the rows of a run say, and who uses whose result (as `spec_of` and `users_of`); which of them
    are gates.
    """
    specs = tuple(spec_of(text) for text in texts)
    return specs, users_of(specs), frozenset(pos for pos, spec in enumerate(specs) if spec.gate)


def _spec(item: object) -> NodeSpec:
    """A limit that is not a positive number must never reach a clock."""
    spec = _read_spec(item)
    if spec.gate == bool(spec.handler):
        raise ValueError(f"node {spec.name!r} must have a handler unless it is a gate")
    if not all(limit is None or 0 < limit < float("inf") for limit in (spec.timeout_s, spec.stall_s)):
        raise ValueError(f"the limits of node {spec.name!r} must be positive numbers of seconds")
    if not 0 <= spec.estimate <= UNITS_MAX:
        raise ValueError(f"the estimate of node {spec.name!r} must be from 0 to {UNITS_MAX}")
    object.__setattr__(spec, "text", encode(item, bytes_max=1 << 20))  # new, so nobody has seen it without
    return spec


def node_payloads(nodes: Sequence[Node | Gate]) -> str | None:
    """JSON array of the nodes' payloads by position; ``None`` when no node has one."""
    if all(node.payload_text is None for node in nodes):
        return None
    return f"[{','.join(node.payload_text or 'null' for node in nodes)}]"
