"""A context as a command sees it, without a host."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import trio

from actors import processes
from actors.commands import (
    CommandFailed,
    command,
)

PATIENCE_S = 120.0
"""How long a test waits for something that takes milliseconds before it says that it does not come."""


@attrs.define
class FakeContext:
    """The part of a context that commands use. ``recorded`` is set when the pid is stored; ``gate`` holds that up."""

    payload: Any
    inputs: Mapping[str, Any] = attrs.field(factory=dict)
    upstream: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    feedback: str | None = None
    company: Any = attrs.field(factory=lambda: SimpleNamespace(name="acme"))
    task_payload: Any = None
    task: str = "report"
    run: int = 1
    node: str = "main"
    attempt: int = 2
    key: str = "acme/report/1/main/0"
    said: list[str] = attrs.field(factory=list)
    process: tuple[int, str] | None = None
    recorded: trio.Event = attrs.field(factory=trio.Event)
    gate: trio.Event | None = None
    spoke: trio.Event = attrs.field(factory=trio.Event)
    cancel_requested: bool = False
    closing: bool = False
    private_folder: Path = attrs.field(factory=lambda: Path(tempfile.gettempdir()) / f"inputs-{os.getpid()}")

    def progress(self, text: str) -> None:
        self.said.append(text)
        self.spoke.set()

    async def record_process(self, pid: int, started: str) -> None:
        self.process = (pid, started)
        self.recorded.set()
        if self.gate is not None:
            await self.gate.wait()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process[0]


def shell(line: str, **more: object) -> FakeContext:
    return FakeContext({"shell": line, **more})


def python(code: str, *words: str) -> FakeContext:
    return FakeContext({"argv": ["{python}", "-c", code, *words]})


async def failure(ctx: FakeContext) -> str:
    with pytest.raises(CommandFailed) as caught:
        await command(ctx)
    return str(caught.value)


async def gone(pid: int) -> None:
    """Wait until no living process has this pid; a zombie that nobody has collected yet does not live."""
    with trio.fail_after(PATIENCE_S):
        while await processes.started_of(pid) is not None:
            await trio.sleep(0.01)
