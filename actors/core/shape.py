"""The shape of a run: its nodes and the edges between them, without their payloads.

A shape is stored as canonical JSON and read back through a cache, so the thousand tasks that were submitted
with the same nodes share one object in memory. Payloads stay in the database until an attempt needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import attrs

from actors.messages import STALL_S_DEFAULT, Backoff, Node
from storage.codec import decode, encode

SHAPES_CACHED = 4_096


@attrs.frozen
class NodeSpec:
    """A node's definition as its row holds it. ``after`` are positions in the shape."""

    name: str
    handler: str
    after: tuple[int, ...] = ()
    attempts_max: int | None = None
    timeout_s: float | None = None
    stall_s: float | None = STALL_S_DEFAULT
    backoff: Backoff = attrs.field(factory=Backoff)
    text: str = attrs.field(default="", eq=False, repr=False)


@attrs.frozen
class Shape:
    nodes: tuple[NodeSpec, ...]
    users: tuple[tuple[int, ...], ...]
    """By position: the positions of the nodes that use its result."""
    handlers: frozenset[str]
    text: str


DEFAULT_BACKOFF = Backoff()


def shape_text(nodes: Sequence[Node]) -> str:
    """The canonical text of these nodes; equal graphs have equal texts."""
    places = {node.name: place for place, node in enumerate(nodes)}
    return encode([_spec_json(node, places) for node in nodes], what="the graph", bytes_max=1 << 26)


def _spec_json(node: Node, places: dict[str, int]) -> dict[str, object]:
    """Only what differs from the defaults: most rows then are a name and a handler."""
    spec: dict[str, object] = {"name": node.name, "handler": node.handler}
    if node.after:
        spec["after"] = [places[name] for name in node.after]
    if node.attempts_max is not None:
        spec["attempts_max"] = node.attempts_max
    if node.timeout_s is not None:
        spec["timeout_s"] = node.timeout_s
    if node.stall_s != STALL_S_DEFAULT:
        spec["stall_s"] = node.stall_s
    if node.retry != DEFAULT_BACKOFF:
        spec["retry"] = [node.retry.base_s, node.retry.factor, node.retry.max_s]
    return spec


@lru_cache(maxsize=SHAPES_CACHED)
def shape_of(text: str) -> Shape:
    """The shape that ``text`` says; raises ``ValueError`` if nobody of ours wrote it."""
    try:
        specs = tuple(_spec(item) for item in decode(text))
        users: list[list[int]] = [[] for _ in specs]
        for place, spec in enumerate(specs):
            for upstream in spec.after:
                users[upstream].append(place)
    except (TypeError, KeyError, IndexError, AttributeError) as error:
        raise ValueError(f"not a graph of ours: {error!r}") from error
    handlers = frozenset(spec.handler for spec in specs)
    return Shape(specs, tuple(tuple(places) for places in users), handlers, text)


@lru_cache(maxsize=SHAPES_CACHED)
def spec_of(text: str) -> NodeSpec:
    """The node that one row's ``spec`` says; raises ``ValueError`` if nobody of ours wrote it."""
    try:
        return _spec(decode(text))
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a node of ours: {error!r}") from error


def _spec(item: dict[str, object]) -> NodeSpec:
    after = item.get("after", [])
    retry = item.get("retry")
    if (
        not isinstance(after, list)
        or not isinstance(item["name"], str)
        or not isinstance(item["handler"], str)
    ):
        raise TypeError("fields of the wrong type")
    return NodeSpec(
        name=item["name"],
        handler=item["handler"],
        after=tuple(int(place) for place in after),
        attempts_max=item.get("attempts_max"),  # type: ignore[arg-type]
        timeout_s=item.get("timeout_s"),  # type: ignore[arg-type]
        stall_s=item.get("stall_s", STALL_S_DEFAULT),  # type: ignore[arg-type]
        backoff=DEFAULT_BACKOFF if retry is None else Backoff(*retry),  # type: ignore[misc]
        text=encode(item, bytes_max=1 << 20),
    )


def node_payloads(nodes: Sequence[Node]) -> str | None:
    """JSON array of the nodes' payloads by position; ``None`` when no node has one."""
    if all(node.payload_text is None for node in nodes):
        return None
    return f"[{','.join(node.payload_text or 'null' for node in nodes)}]"
