"""The steps of a plan: one table each, made into the `Node` that executes it, or the `Gate` that waits for a person."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs

from actors import Backoff, Gate, Node
from actors.cli.calls import CallUnknown, find_call
from actors.cli.fields import Table, describe

STEP_KEYS: Final = ("run", "argv", "call")
COMMAND_KEYS: Final = ("cwd", "env")
GATE_KEYS: Final = ("name", "after", "gate")
NODE_KEYS: Final = (
    *GATE_KEYS,
    *STEP_KEYS,
    *COMMAND_KEYS,
    "tries_max",
    "send_backs_max",
    "timeout_s",
    "stall_s",
    "retry",
    "estimate",
    "payload",
)
ONLY_NODE: Final = "main"
"""The name of the node of a task that has one step."""

_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""What every shell passes on. Others get lost on the way in some."""
OWN_PREFIX: Final = "TURNKEEPER_"


@attrs.define
class StepReader:
    """Makes nodes of tables, and collects the functions that they call. ``command`` is the handler of
    commands."""

    command: str
    folder: Path
    calls: dict[str, Callable[..., Any]] = attrs.field(factory=dict)

    def node(self, table: Table, task: Table | None = None) -> Node | Gate:
        """A node of a graph. ``task`` is the table whose settings are its defaults."""
        table.allow(NODE_KEYS)
        if not table.has("name"):
            table.fail("a node needs a name")
        if table.has("gate"):
            return self._gate(table)
        keys = ("name", "after", "tries_max", "send_backs_max")
        return self._step(table, task, {key: table.get(key) for key in table.given(keys)})

    @staticmethod
    def _gate(table: Table) -> Gate:
        if table.get("gate") is not True:
            table.fail(
                f"must be true, for a node that waits for a person, not {describe(table.get('gate'))}", "gate"
            )
        for key in table.values:
            if key not in GATE_KEYS:
                table.fail("is for nodes that execute something; a gate waits for a person", key)
        return table.build(Gate, {key: table.get(key) for key in table.given(("name", "after"))}, {})

    def only_node(self, table: Table) -> Node:
        """The one node of a task that is a step itself; its tries are the task's."""
        return self._step(table, None, {"name": ONLY_NODE})

    def _step(self, table: Table, task: Table | None, arguments: dict[str, Any]) -> Node:
        kinds = table.given(STEP_KEYS)
        if len(kinds) != 1:
            said = f"not {' and '.join(kinds)}" if kinds else "and this has none"
            table.fail(f"a step has one of {', '.join(STEP_KEYS)}, {said}", kinds[1] if kinds else None)
        for key, read in (
            ("timeout_s", _plain),
            ("stall_s", _stall),
            ("retry", _backoff),
            ("estimate", _plain),
        ):
            holder = _holder(table, task, key)
            if holder is not None:
                arguments[key] = read(holder, key)
        if kinds == ["call"]:
            arguments |= self._call(table)
        else:
            arguments |= {"handler": self.command, "payload": self._command(table, task, kinds[0])}
        return table.build(Node, arguments, {"handler": kinds[0], "payload": "payload"})

    def _call(self, table: Table) -> dict[str, Any]:
        for key in table.given(COMMAND_KEYS):
            table.fail("is for commands; a function is called in this process", key)
        name = table.text("call") or ""
        if name not in self.calls:
            try:
                self.calls[name] = find_call(name, self.folder)
            except CallUnknown as error:
                table.fail(str(error), "call")
        return {"handler": name} | self._own_payload(table)

    @staticmethod
    def _own_payload(table: Table) -> dict[str, Any]:
        """A node's payload. That of a task, or of a schedule, reaches its nodes by way of the task."""
        is_task = table.place[-2] != "nodes"
        return {} if is_task or not table.has("payload") else {"payload": table.get("payload")}

    def _command(self, table: Table, task: Table | None, kind: str) -> dict[str, Any]:
        payload: dict[str, Any] = {"shell": table.text("run")} if kind == "run" else {"argv": _argv(table)}
        cwd = _holder(table, task, "cwd")
        if cwd is not None:
            payload["cwd"] = cwd.text("cwd")
        env = {**(_env(task) if task is not None else {}), **_env(table)}
        if env:
            payload["env"] = env
        return payload | self._own_payload(table)


def _holder(table: Table, task: Table | None, key: str) -> Table | None:
    """The table that says what ``key`` is for this step: its own before its task's."""
    return next((one for one in (table, task) if one is not None and one.has(key)), None)


def _plain(table: Table, key: str) -> Any:
    return table.get(key)


def _stall(table: Table, key: str) -> Any:
    """TOML has no null: ``false`` is no limit."""
    value = table.get(key)
    return None if value is False else value


def _argv(table: Table) -> list[str]:
    words = table.get("argv")
    if not isinstance(words, list) or not words:
        table.fail(f"must be a list of words, the program first, not {describe(words)}", "argv")
    for number, word in enumerate(words, start=1):
        if not isinstance(word, str) or "\0" in word:
            table.fail(f"word {number} must be text without NUL, not {describe(word)}", "argv")
    if not words[0].strip() or words[0].startswith("-"):
        table.fail(f"must begin with a program, not {describe(words[0])}", "argv")
    return list(words)


def _env(table: Table) -> dict[str, str]:
    inner = table.table("env")
    if inner is None:
        return {}
    for name in inner.values:
        if _ENV_NAME.fullmatch(name) is None:
            inner.fail("a variable's name is made of letters, digits and _, and begins with no digit", name)
        if name.startswith(OWN_PREFIX):
            inner.fail(f"variables that begin with {OWN_PREFIX} are set by Turnkeeper", name)
        value = inner.get(name)
        if not isinstance(value, str) or "\0" in value:
            inner.fail(f"must be text without NUL, not {describe(value)}", name)
    return dict(inner.values)


def _backoff(table: Table, _key: str) -> Backoff:
    inner = table.table("retry")
    if inner is None:
        return Backoff()
    keys = [field.name for field in attrs.fields(Backoff)]
    inner.allow(keys)
    return inner.build(Backoff, dict(inner.values), {})
