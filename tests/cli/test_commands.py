"""Command nodes: known before they run, bounded in what they say, ended with all that they started."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import trio

from actors import commands as module
from actors import processes
from actors.commands import (
    OUTPUT_BYTES_MAX,
    CommandFailed,
    Tail,
    clear_inputs,
    command,
    commands,
    end_orphan,
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


# --- ended with all it started ----------------------------------------------------------------------------

CHILDREN = """
import os, signal, sys
child = os.fork()
if {deaf}:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if child:
    print(child, flush=True)
signal.pause()
signal.pause()
"""


@pytest.mark.parametrize("deaf", [False, True])
async def test_a_cancelled_command_is_ended_with_its_children(
    deaf: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "TERM_GRACE_S", 0.2 if deaf else PATIENCE_S)
    ctx = python(CHILDREN.format(deaf=deaf))
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(command, ctx)
            await ctx.spoke.wait()
            nursery.cancel_scope.cancel()
    await gone(ctx.pid)
    await gone(int(ctx.said[0]))


async def test_a_cancelled_command_may_still_say_its_last_words_and_end_by_itself() -> None:
    line = "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.02; done"
    ctx = shell(line)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(command, ctx)
        await ctx.spoke.wait()
        nursery.cancel_scope.cancel()
    assert ctx.said[-1] == "bye"


async def test_a_command_is_ended_when_it_is_cancelled_while_it_is_recorded() -> None:
    ctx = shell("true")
    ctx.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(command, ctx)
        await ctx.recorded.wait()
        nursery.cancel_scope.cancel()
    await gone(ctx.pid)


async def test_children_that_keep_the_pipe_open_do_not_keep_the_command() -> None:
    ctx = shell("sleep 1000 & echo $!")
    with trio.fail_after(PATIENCE_S):
        result = await command(ctx)
    await gone(int(result["output"]))


async def test_a_child_that_left_the_group_keeps_neither_the_command_nor_gets_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PIPE_GRACE_S", 0.1)
    code = "import subprocess, sys; print(subprocess.Popen(['sleep', '1000'], start_new_session=True).pid)"
    with trio.fail_after(PATIENCE_S):
        result = await command(python(code))
    child = int(result["output"])
    assert await processes.started_of(child) is not None
    os.kill(child, signal.SIGKILL)


async def test_a_command_that_ended_leaves_no_open_pipe_behind() -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    await command(shell("true"))
    with pytest.raises(CommandFailed):
        await command(shell("exit 1"))
    after = sorted(os.listdir("/proc/self/fd"))
    new = [fd for fd in after if fd not in before and Path(f"/proc/self/fd/{fd}").exists()]
    assert not [fd for fd in new if stat.S_ISFIFO(os.stat(f"/proc/self/fd/{fd}").st_mode)]


# --- orphans ----------------------------------------------------------------------------------------------


async def test_an_orphan_is_ended_with_its_group_even_if_it_does_not_listen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "TERM_GRACE_S", 0.2)
    code = CHILDREN.format(deaf=True)
    orphan = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE)
    assert orphan.stdout is not None
    with orphan, orphan.stdout as stdout:
        child = int(stdout.readline())
        started = await processes.started_of(orphan.pid)
        assert started
        assert await end_orphan(orphan.pid, started)
        assert orphan.wait() == -signal.SIGKILL
    await gone(child)


async def test_a_process_that_started_at_another_time_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as other:
        started = await processes.started_of(other.pid)
        assert not await end_orphan(other.pid, f"{started}0")
        assert not await end_orphan(other.pid, "")
        assert other.poll() is None
        other.kill()


async def test_a_process_that_does_not_lead_a_group_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "1000"]) as other:
        started = await processes.started_of(other.pid)
        assert started
        assert not await end_orphan(other.pid, started)
        assert other.poll() is None
        other.kill()


async def test_an_orphan_that_has_vanished_is_no_error() -> None:
    with subprocess.Popen(["true"], start_new_session=True) as gone_by_then:
        started = await processes.started_of(gone_by_then.pid) or "x"
    assert not await end_orphan(gone_by_then.pid, started)


MARKS = ["TURNKEEPER_TASK=a b", "TURNKEEPER_ATTEMPT=3"]


async def test_what_an_orphan_that_has_ended_left_in_its_group_is_ended_too() -> None:
    line = "sleep 1000 & echo $!"
    env = {**os.environ, **dict(mark.split("=") for mark in MARKS)}
    orphan = subprocess.Popen(
        ["/bin/sh", "-c", f"read word; {line}"],
        env=env,
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert orphan.stdin is not None
    assert orphan.stdout is not None
    with orphan, orphan.stdout as stdout:
        started = await processes.started_of(orphan.pid)
        assert started
        orphan.stdin.close()
        child = int(stdout.readline())
        orphan.wait()
        assert not await end_orphan(orphan.pid, started)
        assert not await end_orphan(orphan.pid, started, ["TURNKEEPER_TASK=a b", "TURNKEEPER_ATTEMPT=4"])
        assert await processes.started_of(child) is not None
        assert await end_orphan(orphan.pid, started, MARKS)
    await gone(child)


async def test_a_process_that_was_given_the_number_of_an_orphan_is_left_alone_whatever_its_marks() -> None:
    env = {**os.environ, **dict(mark.split("=") for mark in MARKS)}
    with subprocess.Popen(["sleep", "1000"], start_new_session=True, env=env) as other:
        started = await processes.started_of(other.pid)
        assert not await end_orphan(other.pid, f"{started}0", MARKS)
        assert other.poll() is None
        other.kill()


async def test_the_start_of_a_process_is_known_without_proc_too() -> None:
    with subprocess.Popen(["sleep", "1000"]) as other:
        started = await processes._started_by_ps(other.pid)
        assert started
        assert started == await processes._started_by_ps(other.pid)
        other.kill()
        other.wait()
        assert await processes._started_by_ps(other.pid) is None
