"""The handler of command nodes: a program of its own process group, known before it runs and ended with all
it started.

What a command sees:

==========================  ==========================================================================================
``TURNKEEPER_INPUT``        name of a JSON file: ``payload``, ``inputs`` (results by upstream node), ``upstream``
                            (results by upstream task and node), ``feedback`` (why it is done again, or null) and the
                            ids below; private, and gone when the attempt ends, or if the host died when the next one
                            begins
``TURNKEEPER_KEY``          the idempotency key: the same over retries and crashes
``TURNKEEPER_COMPANY`` …    also ``_TASK``, ``_RUN``, ``_NODE``, ``_ATTEMPT``: who it works for
``TURNKEEPER_PYTHON``       the interpreter of the host; in ``argv`` the word ``{python}`` stands for it
==========================  ==========================================================================================

Standard input is empty. Standard output and error are captured together; of more than `OUTPUT_BYTES_MAX`
the tail is kept. Exit status 0 is success, with the result ``{"exit_code": 0, "output": "…"}``; anything
else raises `CommandFailed`.

*Known before it runs.* The host can die at any moment, and a program that nobody knows of would then run
beside its own second attempt. So the new process first waits for a line on a pipe. The host stores its pid
and start time, then writes the line, then the process becomes the program. If the host dies before that,
the pipe ends and so does the process. What was stored lets the next host end it: `end_orphan`.

*Ended with all it started.* The process leads a session of its own: a terminal's Ctrl-C does not reach it,
and its whole group can be signalled. When the attempt is cancelled, and also when the program itself has
ended, what is left of the group gets SIGTERM, then SIGKILL. A program that is to outlive its attempt must
leave the group (``setsid``). One that the kernel does not end (it hangs in a device or a network file
system) keeps its attempt: so the runtime leaves it behind after its grace, counts it for as long as it is
there, and the node goes on.

*Its input.* The file lies in a folder beside the database that is private to the user. What a host that was
killed leaves in it is removed when the database is opened again: `clear_inputs`.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from signal import Signals
from typing import Any, Final, Protocol

import trio

from actors.processes import end_group, end_orphan, has_ended, started_of

__all__ = ["CommandFailed", "clear_inputs", "command", "commands", "end_orphan", "orphan_marks"]

OUTPUT_BYTES_MAX: Final = 64 * 1024
"""The end of the output says how it went. It becomes a row of the database, so it is bounded; more belongs
in a file."""
ERROR_LINES_MAX: Final = 20
ERROR_CHARS_MAX: Final = 2_000
"""Of the output, in an error: what fits on a screen."""
PIPE_GRACE_S: Final = 1.0
"""How long to read on when the group is gone but somebody outside it still holds the pipe."""
PROGRESS_CHARS_MAX: Final = 200
STUCK_LOOK_S: Final = 0.2
"""How often one looks at a command that the kernel does not end."""
INPUT_PREFIX: Final = "input-"
INPUT_TRIES: Final = 100
"""The folder of the inputs is removed with its last file, and another attempt may do so as one makes a file."""

_WAIT_FOR_LINE: Final = 'IFS= read -r go || exit 125; exec "$@" </dev/null'
_CHUNK_BYTES: Final = 64 * 1024


class CommandFailed(Exception):
    """A command did not succeed. The text says its exit status or signal, and the last lines it wrote.

    ``signal`` is the number of the signal that ended it, if one did.
    """

    def __init__(self, text: str, signal: int | None = None) -> None:
        super().__init__(text)
        self.signal = signal


class CommandContext(Protocol):
    """What a command needs of the context of its attempt."""

    @property
    def company(self) -> Any:
        """The handle of the company; its ``name`` is used."""

    @property
    def task(self) -> str: ...
    @property
    def run(self) -> int: ...
    @property
    def node(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def key(self) -> str: ...
    @property
    def payload(self) -> Any: ...
    @property
    def task_payload(self) -> Any: ...
    @property
    def inputs(self) -> Mapping[str, Any]: ...
    @property
    def private_folder(self) -> Path: ...
    @property
    def cancel_requested(self) -> bool: ...
    @property
    def closing(self) -> bool: ...
    @property
    def upstream(self) -> Mapping[str, Mapping[str, Any]]: ...
    @property
    def feedback(self) -> str | None: ...
    def progress(self, text: str) -> None: ...
    async def record_process(self, pid: int, started: str) -> None: ...


def commands(folder: Path | None = None) -> Callable[[Any], Awaitable[dict[str, Any]]]:
    """A handler of command nodes; ``folder`` is where a relative ``cwd`` begins, and the default of it.

    The payload of such a node: ``argv`` (list of words) or ``shell`` (one line), and at will ``cwd``,
    ``env`` (added to the environment) and ``payload`` (what the command itself is given; otherwise that of the task).
    """
    begin = None if folder is None else folder.absolute()

    async def command(ctx: CommandContext) -> dict[str, Any]:
        return await _execute(ctx, begin)

    return command


async def _execute(ctx: CommandContext, folder: Path | None) -> dict[str, Any]:
    payload = ctx.payload
    cwd = os.path.join(folder or "", payload.get("cwd") or "") or None
    async with _input_file(ctx) as input_name:
        environment = {**os.environ, **payload.get("env", {}), **_variables(ctx, input_name)}
        process = await _spawn(_words(payload), cwd, environment)
        tail = Tail(OUTPUT_BYTES_MAX)
        async with _closing_pipes(process):
            await _begin(process, ctx)
            await _watch(process, tail, ctx)
    if process.returncode:
        signal = -process.returncode if process.returncode < 0 else None
        raise CommandFailed(_failure(process.returncode, tail.text()), signal)
    return {"exit_code": 0, "output": tail.text()}


command = commands()
"""The handler of command nodes whose relative paths begin at the host's current folder."""


# --- before it runs -----------------------------------------------------------------------------------------


def _words(payload: Mapping[str, Any]) -> list[str]:
    if "shell" in payload:
        return ["/bin/sh", "-c", payload["shell"]]
    return [sys.executable if word == "{python}" else word for word in payload["argv"]]


def _variables(ctx: CommandContext, input_name: str) -> dict[str, str]:
    return {
        "TURNKEEPER_INPUT": input_name,
        "TURNKEEPER_KEY": ctx.key,
        "TURNKEEPER_COMPANY": ctx.company.name,
        "TURNKEEPER_TASK": ctx.task,
        "TURNKEEPER_RUN": str(ctx.run),
        "TURNKEEPER_NODE": ctx.node,
        "TURNKEEPER_ATTEMPT": str(ctx.attempt),
        "TURNKEEPER_PYTHON": sys.executable,
    }


def orphan_marks(company: str, task: str, run: int, attempt: int) -> list[str]:
    """By which a process is known that a command of this attempt has started and not waited for."""
    found = {"COMPANY": company, "TASK": task, "RUN": run, "ATTEMPT": attempt}
    return [f"TURNKEEPER_{name}={value}" for name, value in found.items()]


@contextlib.asynccontextmanager
async def _input_file(ctx: CommandContext) -> AsyncIterator[str]:
    """A file that only this user can read, for as long as the attempt lasts."""
    content = {
        "company": ctx.company.name,
        "task": ctx.task,
        "run": ctx.run,
        "node": ctx.node,
        "attempt": ctx.attempt,
        "key": ctx.key,
        "payload": ctx.payload.get("payload", ctx.task_payload),
        "inputs": dict(ctx.inputs),
        "upstream": {task: dict(results) for task, results in ctx.upstream.items()},
        "feedback": ctx.feedback,
    }

    def write() -> str:
        descriptor, name = _new_input(ctx.private_folder)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=False)
        return name

    name = await trio.to_thread.run_sync(write)
    try:
        yield name
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)
        with contextlib.suppress(OSError):  # not empty: others execute
            ctx.private_folder.rmdir()


def _new_input(folder: Path) -> tuple[int, str]:
    """A new file that only this user can read, in a folder of the same kind: a descriptor, and its name."""
    for _ in range(INPUT_TRIES):
        try:
            with contextlib.suppress(FileExistsError):
                folder.mkdir(0o700)
            if not _is_ours(folder):
                raise CommandFailed(f"the command was not started: {folder} is not a folder of this user")
            return tempfile.mkstemp(prefix=INPUT_PREFIX, suffix=".json", dir=folder)
        except FileNotFoundError:
            continue
    raise CommandFailed(f"the command was not started: {folder} cannot be made")


def _is_ours(folder: Path) -> bool:
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def clear_inputs(folder: Path) -> None:
    """Remove the inputs that a host which died has left in ``folder``. For the owner of the database, before
    it starts any command. Touches nothing else, and raises nothing.
    """
    with contextlib.suppress(OSError):
        if _is_ours(folder):
            for name in folder.glob(f"{INPUT_PREFIX}*.json"):
                name.unlink(missing_ok=True)
            folder.rmdir()


async def _spawn(words: list[str], cwd: str | None, environment: Mapping[str, str]) -> trio.Process:
    """The waiting process: in its own session, with its input as the pipe that it waits on."""
    if cwd is not None and not os.path.isdir(cwd):
        raise CommandFailed(f"the command was not started: there is no folder {cwd}")
    try:
        return await trio.lowlevel.open_process(
            ["/bin/sh", "-c", _WAIT_FOR_LINE, "sh", *words],
            cwd=cwd,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise CommandFailed(f"the command was not started: {error}") from error


@contextlib.asynccontextmanager
async def _closing_pipes(process: trio.Process) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                await trio.aclose_forcefully(stream)


async def _begin(process: trio.Process, ctx: CommandContext) -> None:
    """Make the waiting process known, and let it become the program. If that fails it is ended."""
    try:
        await ctx.record_process(process.pid, await started_of(process.pid) or "")
        assert process.stdin is not None
        with contextlib.suppress(trio.BrokenResourceError):  # it is dead already: its exit status will tell
            await process.stdin.send_all(b"go\n")
        await process.stdin.aclose()
    except BaseException:
        await _end(process, ctx)
        raise


async def _end(process: trio.Process, ctx: CommandContext) -> None:
    """End the process's group. One that does not end keeps the attempt that was told to end, but never the
    runtime that closes.
    """
    await end_group(process)
    with trio.CancelScope(shield=True):
        while not has_ended(process) and ctx.cancel_requested and not ctx.closing:
            await trio.sleep(STUCK_LOOK_S)


# --- while it runs ------------------------------------------------------------------------------------------


class Tail:
    """The end of a stream of bytes, and how much went before it."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kept = bytearray()
        self._cut = 0

    def add(self, data: bytes | bytearray) -> None:
        self._kept += data
        surplus = len(self._kept) - self._bytes_max
        if surplus > 0:
            del self._kept[:surplus]
            self._cut += surplus

    def text(self) -> str:
        """What was kept, as text; a character that the cut went through is left out."""
        kept = bytes(self._kept)
        if not self._cut:
            return kept.decode("utf-8", "replace")
        while kept and kept[0] & 0xC0 == 0x80:
            kept = kept[1:]
        return f"… {self._cut} bytes left out …\n{kept.decode('utf-8', 'replace')}"


async def _watch(process: trio.Process, tail: Tail, ctx: CommandContext) -> None:
    """Read until the process has ended and its group is gone. Reading goes on while it is being ended."""
    reading = trio.CancelScope(shield=True)
    read_to_end = trio.Event()

    async def read() -> None:
        with reading:
            await _read(process, tail, ctx)
        read_to_end.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        try:
            await process.wait()
        finally:
            await _end(process, ctx)
            with trio.move_on_after(PIPE_GRACE_S, shield=True):
                await read_to_end.wait()
            reading.cancel()


async def _read(process: trio.Process, tail: Tail, ctx: CommandContext) -> None:
    assert process.stdout is not None
    while data := await process.stdout.receive_some(_CHUNK_BYTES):
        tail.add(data)
        lines = data[-PROGRESS_CHARS_MAX:].decode("utf-8", "replace").split("\n")
        ctx.progress(next((line for line in reversed(lines) if line.strip()), ""))


def _failure(returncode: int, output: str) -> str:
    if returncode < 0:
        how = f"ended by signal {-returncode}"
        with contextlib.suppress(ValueError):
            how += f" ({Signals(-returncode).name})"
    else:
        how = f"exit status {returncode}"
    shown = "\n".join(output.rstrip().splitlines()[-ERROR_LINES_MAX:])[-ERROR_CHARS_MAX:]
    return f"{how}\n{shown}" if shown else f"{how}, no output"
