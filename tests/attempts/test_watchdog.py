"""A handler that blocks the event loop is named, with the line where it stands."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import actors.runtime.watchdog
from actors import Context, Node, Submit, open_runtime
from actors.runtime.watchdog import Watchdog

BOUND_S = 120.0


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


async def test_the_watchdog_names_each_of_those_that_block_the_loop_before_it_turns_again(
    db_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard()
    named: dict[str, str] = {}
    monkeypatch.setattr(actors.runtime.watchdog, "_log", heard)

    async def blocks(ctx: Context) -> None:
        heard.spoke.clear()
        assert heard.spoke.wait(BOUND_S)
        named[ctx.node] = heard.fields["attempt"]

    async with open_runtime(db_path, handlers={"blocks": blocks}) as runtime:
        nodes = [Node(name, "blocks", tries_max=1) for name in ("a", "b")]
        task = await runtime.company("k").ask(Submit("x", nodes=nodes, id="x"))
        assert (await runtime.company("k").when_settled(task.id)).status.value == "completed"
    assert named == {name: f"k/x/1/{name}/1" for name in ("a", "b")}


async def test_one_that_comes_after_a_blocker_and_takes_no_time_is_not_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first sample that sees it only begins to count."""
    heard, frames = Heard(), iter(["blocks"] * 12 + ["quick"] + ["blocks"] * 3)
    said: list[str] = []
    monkeypatch.setattr(actors.runtime.watchdog, "_log", heard)
    watchdog = Watchdog(beat_s=0.01, blocked_s=0.05)

    def where(_frame: object) -> dict[str, Any]:
        name = next(frames, None)
        if name is None:
            watchdog._stop.set()
        said.append(heard.fields.get("attempt", ""))
        return {"attempt": name or "blocks"}

    monkeypatch.setattr(actors.runtime.watchdog, "where", where)
    watcher = threading.Thread(target=watchdog._watch)
    watcher.start()  # nobody beats
    watcher.join(BOUND_S)
    assert not watcher.is_alive()
    assert set(said) == {"", "blocks"}
    assert heard.fields["attempt"] == "blocks"


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
