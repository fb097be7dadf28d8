"""A handler that blocks the event loop is named, with the line where it stands."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import actors.runtime.watchdog
from actors import Context, Submit, open_runtime

BOUND_S = 30.0


class Heard:
    """A logger that sets an event when the watchdog speaks."""

    def __init__(self) -> None:
        self.spoke = threading.Event()
        self.fields: dict[str, Any] = {}

    def error(self, event: str, **fields: Any) -> None:
        self.fields = {"event": event, **fields}
        self.spoke.set()


async def test_the_watchdog_names_the_handler_that_blocks_the_loop(
    db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard()
    monkeypatch.setattr(actors.runtime.watchdog, "_log", heard)

    async def blocks(_ctx: Context) -> bool:
        return heard.spoke.wait(BOUND_S)  # blocks the loop until it is noticed

    async with open_runtime(db_path, handlers={"blocks": blocks}) as runtime:
        task = await runtime.company("a").ask(Submit("x", handler="blocks"))
        outcome = await runtime.company("a").when_settled(task.id)
        assert outcome.result == {"blocks": True}
    assert heard.fields["event"] == "loop.blocked"
    assert heard.fields["attempt"] == f"a/{task.id}/1/blocks/1"
    assert heard.fields["silent_s"] >= actors.runtime.watchdog.BLOCKED_S
    assert "threading.py" in heard.fields["at"] or "test_watchdog" in heard.fields["at"]


async def test_the_loops_lag_is_measured(db_path: Path) -> None:
    async def blocks(_ctx: Context) -> None:
        time.sleep(0.6)

    async with open_runtime(db_path, handlers={"blocks": blocks}) as runtime:
        lags: list[float] = []
        task = await runtime.company("a").ask(Submit("x", handler="blocks"))
        await runtime.company("a").when_settled(task.id)
        while not lags or max(lags) < 0.05:
            lags.append(runtime.statistics().loop_lag_s)
            async for _ in runtime.events(company="a"):
                break
    assert max(lags) >= 0.05
