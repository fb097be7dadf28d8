"""A path means the place where it was when it was given, and a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import trio

import actors
from actors import NotADatabase, Retention, Submit, open_inbox, open_reader, open_runtime
from actors.commands import commands
from actors.testing import open_test_runtime


async def test_a_relative_path_stays_where_it_was_when_the_host_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything that comes to the files late: the log, inputs of commands, copies, readers, senders, the end."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    handlers = {"command": commands(Path("."))}
    async with (
        open_runtime("x.db", handlers=handlers) as runtime,
        open_reader("x.db") as reader,
        open_inbox("x.db") as inbox,
    ):
        os.chdir(there)
        company = runtime.company("k")
        with trio.fail_after(60):
            for number in range(2):
                node = actors.Node(
                    "pwd", "command", payload={"shell": "pwd; test -s $TURNKEEPER_INPUT", "payload": 1}
                )
                await company.ask(Submit("x", id=f"x{number}", nodes=[node]))
                outcome = await company.when_settled(f"x{number}")
                assert outcome.status.value == "completed", outcome
                assert str(here) in str(outcome.result)
            await inbox.ask("k", Submit("y", id="y", mode="manual"))
        assert runtime.path == str(here / "x.db")
        assert runtime.statistics().wal_bytes > 0
        assert reader.owner is not None
        assert inbox.owner is not None
        assert (await reader.company("k").status("y")).id == "y"
        await runtime.backup("copy.db")
        await actors.backup(runtime.path, "another.db")
    assert {file.name for file in here.iterdir()} == {"x.db", "x.db.lock"}
    assert {file.name for file in there.iterdir()} == {"copy.db", "another.db"}


@pytest.mark.parametrize("path", [":memory:", Path(":memory:"), "", "file:x.db", "file:x.db?mode=memory"])
async def test_what_is_no_path_of_a_file_is_refused_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str | Path
) -> None:
    monkeypatch.chdir(tmp_path)
    openings: list[Callable[[], AbstractAsyncContextManager[object]]] = [
        lambda: open_runtime(path, handlers={}),
        lambda: open_test_runtime(path, handlers={}),
        lambda: open_reader(path),
        lambda: open_inbox(path),
    ]
    for opening in openings:
        with pytest.raises(NotADatabase) as caught:
            async with opening():
                pass
        if "memory:" in str(path):
            assert "actors.testing" in str(caught.value)
            assert "temporary folder" in str(caught.value)
    for refused in (
        actors.backup(path, "copy.db"),
        actors.prune(path, Retention()),
        actors.delete_company(path, "k"),
    ):
        with pytest.raises(NotADatabase):
            await refused
    assert list(tmp_path.iterdir()) == []


async def test_a_file_of_such_a_name_can_be_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_test_runtime("./file:x.db", handlers={}) as runtime:
        await runtime.company("k").ask(Submit("x", mode="manual"))
    assert (tmp_path / "file:x.db").stat().st_size > 0
