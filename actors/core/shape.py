"""The shape of a run: its nodes and the edges between them, without their payloads.

A shape is stored as canonical JSON and read back through a cache, so the thousand tasks that were submitted
with the same nodes share one object in memory. Payloads stay in the database until an attempt needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter

import attrs

from actors.messages import STALL_S_DEFAULT, UNITS_MAX, Backoff, Gate, Node
from storage.codec import decode, encode

SHAPES_CACHED = 4_096


@attrs.frozen
class NodeSpec:
    """A node's definition as its row holds it. ``after`` are positions in the shape. A gate has no handler."""

    name: str
    handler: str
    after: tuple[int, ...] = ()
    attempts_max: int | None = None
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


DEFAULT_BACKOFF = Backoff()


def shape_text(nodes: Sequence[Node | Gate]) -> str:
    """The canonical text of these nodes; equal graphs have equal texts."""
    places = {node.name: place for place, node in enumerate(nodes)}
    return encode([_spec_json(node, places) for node in nodes], what="the graph", bytes_max=1 << 26)


def _spec_json(node: Node | Gate, places: dict[str, int]) -> dict[str, object]:
    """Only what differs from the defaults: most rows then are a name and a handler."""
    spec: dict[str, object] = {"name": node.name}
    if node.after:
        spec["after"] = [places[name] for name in node.after]
    if isinstance(node, Gate):
        return spec | {"gate": True}
    spec["handler"] = node.handler
    if node.attempts_max is not None:
        spec["attempts_max"] = node.attempts_max
    if node.timeout_s is not None:
        spec["timeout_s"] = node.timeout_s
    if node.stall_s != STALL_S_DEFAULT:
        spec["stall_s"] = node.stall_s
    if node.retry != DEFAULT_BACKOFF:
        spec["retry"] = [node.retry.base_s, node.retry.factor, node.retry.max_s]
    if node.send_backs_max is not None:
        spec["send_backs_max"] = node.send_backs_max
    if node.estimate:
        spec["estimate"] = node.estimate
    return spec


@lru_cache(maxsize=SHAPES_CACHED)
def shape_of(text: str) -> Shape:
    """The shape that ``text`` says; raises ``ValueError`` if nobody of ours wrote it."""
    try:
        items = decode(text)
        if not isinstance(items, list):
            raise TypeError("not a list")
        specs = tuple(_spec(item) for item in items)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a graph of ours: {error!r}") from error
    handlers = frozenset(spec.handler for spec in specs if not spec.gate)
    firsts = {spec.estimate for spec in specs if not spec.after and not spec.gate}
    return Shape(specs, users_of(specs), handlers, text, tuple(sorted(firsts)))


def users_of(specs: Sequence[NodeSpec]) -> tuple[tuple[int, ...], ...]:
    """By position: the positions of the nodes that use its result. Raises ``ValueError`` unless the edges form
    a graph without a circle.
    """
    users: list[list[int]] = [[] for _ in specs]
    for place, spec in enumerate(specs):
        for upstream in spec.after:
            if not 0 <= upstream < len(specs):
                raise ValueError(f"node {spec.name!r} is after a node that is not there")
            users[upstream].append(place)
    try:
        TopologicalSorter({place: spec.after for place, spec in enumerate(specs)}).prepare()
    except CycleError:
        raise ValueError("its nodes form a circle") from None
    return tuple(tuple(places) for places in users)


@lru_cache(maxsize=SHAPES_CACHED)
def spec_of(text: str) -> NodeSpec:
    """The node that one row's ``spec`` says; raises ``ValueError`` if nobody of ours wrote it."""
    try:
        return _spec(decode(text))
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a node of ours: {error!r}") from error


@lru_cache(maxsize=SHAPES_CACHED)
def layout_of(
    texts: tuple[str, ...],
) -> tuple[tuple[NodeSpec, ...], tuple[tuple[int, ...], ...], frozenset[int]]:
    """The nodes that the rows of a run say, and who uses whose result (as `spec_of` and `users_of`); which of them
    are gates.
    """
    specs = tuple(spec_of(text) for text in texts)
    return specs, users_of(specs), frozenset(pos for pos, spec in enumerate(specs) if spec.gate)


def _spec(item: dict[str, object]) -> NodeSpec:
    after, retry = item.get("after", []), item.get("retry")
    if not isinstance(after, list) or not all(_is_whole(place) for place in after):
        raise TypeError("after is not a list of positions")
    gate = item.get("gate", False)
    handler = "" if gate is True else item["handler"]
    if not isinstance(gate, bool) or not isinstance(item["name"], str) or not isinstance(handler, str):
        raise TypeError("a name that is no text, or a gate that is none")
    for name in ("attempts_max", "send_backs_max"):
        if item.get(name) is not None and not _is_whole(item[name]):
            raise TypeError(f"{name} is no whole number")
    estimate = item.get("estimate", 0)
    if not isinstance(estimate, int) or isinstance(estimate, bool) or not 0 <= estimate <= UNITS_MAX:
        raise TypeError("an estimate that is none")
    return NodeSpec(
        name=item["name"],
        handler=handler,
        after=tuple(after),
        attempts_max=item.get("attempts_max"),  # type: ignore[arg-type]
        timeout_s=_seconds(item.get("timeout_s")),
        stall_s=_seconds(item.get("stall_s", STALL_S_DEFAULT)),
        backoff=DEFAULT_BACKOFF if retry is None else Backoff(*retry),  # type: ignore[misc]
        send_backs_max=item.get("send_backs_max"),  # type: ignore[arg-type]
        gate=gate,
        estimate=estimate,
        text=encode(item, bytes_max=1 << 20),
    )


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _seconds(value: object) -> float | None:
    """A limit of time; one that is none must never reach a clock."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError(f"{value!r} is no time in seconds")
    return value


def node_payloads(nodes: Sequence[Node | Gate]) -> str | None:
    """JSON array of the nodes' payloads by position; ``None`` when no node has one."""
    if all(node.payload_text is None for node in nodes):
        return None
    return f"[{','.join(node.payload_text or 'null' for node in nodes)}]"
