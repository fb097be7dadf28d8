"""The task of a schedule as text: every fire carries out the same `Submit`, so the schedule's row holds it as JSON.

Only what differs from the defaults is written, so equal templates have equal texts, and the text is checked by
building the message anew: a row accepts exactly what a program could send. Payloads stand in it as the texts that they
became when the message was built, whatever has been done to the values since.
"""

from __future__ import annotations

from typing import Any

import attrs

from actors.messages import Backoff, Gate, Node, Submit
from storage.codec import decode, encode

TEMPLATE_BYTES_MAX = 1 << 22
"""A payload of the largest size, and a graph besides. Schedules stay in memory, so the bound is not that of a run."""

_TASK_FIELDS = (
    "title",
    "handler",
    "graph",
    "priority",
    "mode",
    "depends_on",
    "goal",
    "attempts_max",
    "fail_fast",
    "send_backs_max",
    "budget",
)
_NODE_FIELDS = (
    "name",
    "handler",
    "after",
    "attempts_max",
    "timeout_s",
    "stall_s",
    "send_backs_max",
    "estimate",
)
_GATE_FIELDS = ("name", "after")


def template_text(task: Submit) -> str:
    """The JSON of a template; raises `InvalidJson` for one that is too large."""
    said = _said(task, _TASK_FIELDS) | _payload(task)
    if task.nodes is not None:
        said["nodes"] = [_node(node) for node in task.nodes]
    return encode(said, what="the schedule's task", bytes_max=TEMPLATE_BYTES_MAX)


def _node(node: Node | Gate) -> dict[str, Any]:
    if isinstance(node, Gate):
        return {"gate": True} | _said(node, _GATE_FIELDS)
    said = _said(node, _NODE_FIELDS) | _payload(node) | {"handler": node.handler}
    retry = _said(node.retry, ("base_s", "factor", "max_s"))
    return said | ({"retry": retry} if retry else {})


def _payload(value: Submit | Node) -> dict[str, str]:
    return {} if value.payload_text is None else {"payload": value.payload_text}


def _said(value: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """The named fields that differ from their defaults."""
    defaults = {field.name: field.default for field in attrs.fields(type(value))}
    return {name: getattr(value, name) for name in names if getattr(value, name) != defaults[name]}


def template_of(text: str) -> Submit:
    """The `Submit` that a template says; raises ``ValueError`` if nobody of ours wrote it."""
    said = decode(text)
    try:
        nodes = said.pop("nodes", None)
        if unknown := said.keys() - {*_TASK_FIELDS, "payload"}:
            raise ValueError(f"a schedule's task has no {', '.join(sorted(unknown))}")
        made = None if nodes is None else [_node_of(node) for node in nodes]
        return Submit(**_with_payload(said), nodes=made)
    except (TypeError, AttributeError) as error:
        raise ValueError(f"not a task of ours: {error}") from error


def _node_of(said: dict[str, Any]) -> Node | Gate:
    if said.pop("gate", False):
        return Gate(**said)
    return Node(**(_with_payload(said) | {"retry": Backoff(**said.get("retry", {}))}))


def _with_payload(said: dict[str, Any]) -> dict[str, Any]:
    return said | {"payload": decode(said["payload"])} if "payload" in said else said
