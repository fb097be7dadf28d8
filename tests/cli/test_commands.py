"""Command nodes: known before they run, bounded in what they say, and given what they need in private."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from actors import processes
from actors.commands import (
    OUTPUT_BYTES_MAX,
    Tail,
    clear_inputs,
    command,
    commands,
)

from .command_support import PATIENCE_S, FakeContext, failure, gone, python, shell

# --- what a command says ----------------------------------------------------------------------------------


async def test_a_command_gives_its_status_and_what_it_wrote_to_both_streams_in_order() -> None:
    ctx = shell("echo one; echo two >&2; echo three")
    assert await command(ctx) == {"exit_code": 0, "output": "one\ntwo\nthree\n"}
    assert ctx.said[-1] == "three"


async def test_words_reach_the_program_as_they_are() -> None:
    code = "import sys; print(sys.argv[1:])"
    ctx = python(code, "a b", "$HOME", "*", "", "é", "-x", '"')
    assert (await command(ctx))["output"] == f"{['a b', '$HOME', '*', '', 'é', '-x', chr(34)]}\n"


async def test_a_command_that_fails_says_its_status_and_its_last_lines() -> None:
    said = await failure(shell("seq 1 1000; exit 7"))
    assert said.splitlines() == ["exit status 7", *(str(n) for n in range(981, 1001))]


async def test_a_command_that_fails_without_a_word_says_so() -> None:
    assert await failure(shell("exit 3")) == "exit status 3, no output"


async def test_a_command_ended_by_a_signal_says_which() -> None:
    assert await failure(shell("kill -KILL $$")) == "ended by signal 9 (SIGKILL), no output"


async def test_a_program_that_does_not_exist_is_a_failure_that_names_it() -> None:
    said = await failure(FakeContext({"argv": ["no-such-program", "x"]}))
    assert said.startswith("exit status 127\n")
    assert "no-such-program" in said


async def test_a_folder_that_does_not_exist_is_a_failure_that_names_it(tmp_path: Path) -> None:
    said = await failure(shell("true", cwd=str(tmp_path / "none")))
    assert said == f"the command was not started: there is no folder {tmp_path / 'none'}"


async def test_a_command_that_cannot_be_started_is_a_failure() -> None:
    said = await failure(FakeContext({"argv": ["true", "x" * 3_000_000]}))
    assert said.startswith("the command was not started: ")


async def test_of_a_flood_the_tail_is_kept() -> None:
    ctx = python("print('a' * 5_000_000 + 'end')")
    output = (await command(ctx))["output"]
    note, _, tail = output.partition("\n")
    assert note == f"… {5_000_004 - OUTPUT_BYTES_MAX} bytes left out …"
    assert tail == "a" * (OUTPUT_BYTES_MAX - 4) + "end\n"


async def test_output_that_is_not_text_becomes_text() -> None:
    assert (await command(shell("printf 'a\\377\\000b'")))["output"] == "a\ufffd\x00b"


def test_a_tail_does_not_begin_in_the_middle_of_a_character() -> None:
    tail = Tail(4)
    tail.add("aé漢".encode())
    assert tail.text() == "… 2 bytes left out …\n漢"


# --- what a command is given ------------------------------------------------------------------------------


async def test_a_command_finds_payload_inputs_and_names_in_a_private_file_that_goes_with_it() -> None:
    line = 'cat "$TURNKEEPER_INPUT"; echo; echo "$TURNKEEPER_INPUT"; stat -c %a "$TURNKEEPER_INPUT"'
    ctx = FakeContext(
        {"shell": line, "payload": {"week": 7}},
        inputs={"table": {"exit_code": 0}},
        upstream={"collect": {"main": {"exit_code": 0}}},
        feedback="shorter",
    )
    content, name, mode = (await command(ctx))["output"].splitlines()
    assert json.loads(content) == {
        "company": "acme",
        "task": "report",
        "run": 1,
        "node": "main",
        "attempt": 2,
        "key": "acme/report/1/main/0",
        "payload": {"week": 7},
        "inputs": {"table": {"exit_code": 0}},
        "upstream": {"collect": {"main": {"exit_code": 0}}},
        "feedback": "shorter",
    }
    assert mode == "600"
    assert not Path(name).exists()


async def test_a_command_without_a_payload_of_its_own_finds_that_of_its_task() -> None:
    ctx = FakeContext({"shell": 'cat "$TURNKEEPER_INPUT"'}, task_payload=[1])
    assert json.loads((await command(ctx))["output"])["payload"] == [1]


async def test_the_input_file_goes_also_when_the_command_fails() -> None:
    name = (await failure(shell('echo "$TURNKEEPER_INPUT"; exit 1'))).splitlines()[1]
    assert not Path(name).exists()


async def test_input_files_lie_in_a_private_folder_that_goes_with_the_last_of_them(tmp_path: Path) -> None:
    folder = tmp_path / "x.db.inputs"
    first, second = shell("true"), shell("true")
    async with trio.open_nursery() as nursery:
        for ctx in (first, second):
            ctx.private_folder, ctx.gate = folder, trio.Event()
            nursery.start_soon(command, ctx)
            await ctx.recorded.wait()
        assert folder.stat().st_mode & 0o777 == 0o700
        assert len(list(folder.iterdir())) == 2
        assert first.gate is not None
        assert second.gate is not None
        first.gate.set()
        with trio.fail_after(PATIENCE_S):
            while len(list(folder.iterdir())) == 2:
                await trio.sleep(0.01)
        second.gate.set()
    assert list(tmp_path.iterdir()) == []


async def test_a_command_gets_its_input_also_while_others_take_the_empty_folder_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make: Callable[..., tuple[int, str]] = tempfile.mkstemp
    taken: list[str] = []

    def mkstemp(**options: Any) -> tuple[int, str]:
        if len(taken) < 5:
            options["dir"].rmdir()
            taken.append("away")
        return make(**options)

    monkeypatch.setattr(tempfile, "mkstemp", mkstemp)
    ctx = shell('cat "$TURNKEEPER_INPUT"')
    ctx.private_folder = tmp_path / "inputs"
    assert json.loads((await command(ctx))["output"])["task"] == "report"
    assert len(taken) == 5


@pytest.mark.parametrize("what", ["a link", "a file"])
async def test_input_files_are_not_written_into_what_somebody_else_put_there(
    tmp_path: Path, what: str
) -> None:
    (tmp_path / "theirs").mkdir()
    ctx = shell("true")
    ctx.private_folder = tmp_path / "inputs"
    if what == "a link":
        ctx.private_folder.symlink_to(tmp_path / "theirs")
    else:
        ctx.private_folder.touch()
    said = await failure(ctx)
    assert said == f"the command was not started: {ctx.private_folder} is not a folder of this user"
    clear_inputs(ctx.private_folder)
    assert ctx.private_folder.is_symlink() is (what == "a link")
    assert list((tmp_path / "theirs").iterdir()) == []


def test_of_the_folder_of_the_inputs_only_inputs_are_removed(tmp_path: Path) -> None:
    clear_inputs(tmp_path / "none")
    folder = tmp_path / "inputs"
    folder.mkdir()
    for name in ("input-1.json", "input-2.json", "letter.txt"):
        (folder / name).touch()
    clear_inputs(folder)
    assert [path.name for path in folder.iterdir()] == ["letter.txt"]
    (folder / "letter.txt").unlink()
    clear_inputs(folder)
    assert not folder.exists()


async def test_a_command_finds_its_names_and_its_own_variables_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OUTER", "1")
    monkeypatch.setenv("INNER", "1")
    names = ["KEY", "COMPANY", "TASK", "RUN", "NODE", "ATTEMPT", "PYTHON"]
    line = "; ".join(f'echo "$TURNKEEPER_{name}"' for name in names) + '; echo "$OUTER $INNER"'
    output = (await command(shell(line, env={"INNER": "2"})))["output"]
    expected = ["acme/report/1/main/0", "acme", "report", "1", "main", "2", sys.executable, "1 2"]
    assert output.splitlines() == expected


async def test_a_command_has_no_input_and_runs_where_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    handler = commands(tmp_path)
    assert await handler(shell("cat; pwd")) == {"exit_code": 0, "output": f"{tmp_path}\n"}
    assert (await handler(shell("pwd", cwd="inner")))["output"] == f"{tmp_path}/inner\n"
    assert (await handler(shell("pwd", cwd="/")))["output"] == "/\n"


# --- known before it runs ---------------------------------------------------------------------------------


async def test_a_command_does_not_run_before_it_is_recorded(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    ctx = shell(f"touch {mark}")
    ctx.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(command, ctx)
        await ctx.recorded.wait()
        assert ctx.process == (ctx.pid, await processes.started_of(ctx.pid))
        assert os.getpgid(ctx.pid) == ctx.pid
        assert os.getsid(ctx.pid) == ctx.pid
        assert not mark.exists()
        ctx.gate.set()
    assert mark.exists()


async def test_a_command_that_could_not_be_recorded_does_not_run(tmp_path: Path) -> None:
    class Unlucky(FakeContext):
        async def record_process(self, pid: int, started: str) -> None:
            await FakeContext.record_process(self, pid, started)
            raise RuntimeError("the store is gone")

    mark = tmp_path / "ran"
    ctx = Unlucky({"shell": f"touch {mark}"})
    with pytest.raises(RuntimeError, match="the store is gone"):
        await command(ctx)
    await gone(ctx.pid)
    assert not mark.exists()


HOST_THAT_DIES_BEFORE_THE_RECORD = """
import os, sys, trio
from pathlib import Path
from types import SimpleNamespace
from actors.commands import command

class Context:
    company = SimpleNamespace(name="x")
    task = node = key = "x"
    task_payload = None
    run = attempt = 1
    inputs = upstream = {}
    feedback = None
    payload = {"shell": "touch " + sys.argv[1]}
    private_folder = Path(sys.argv[1] + ".inputs")

    async def record_process(self, pid, started):
        print(pid, flush=True)
        os._exit(9)

trio.run(command, Context())
"""


async def test_a_command_whose_host_dies_before_the_record_never_runs(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    argv = [sys.executable, "-c", HOST_THAT_DIES_BEFORE_THE_RECORD, str(mark)]
    done = await trio.run_process(argv, capture_stdout=True, check=False)
    assert done.returncode == 9
    await gone(int(done.stdout))
    assert not mark.exists()
