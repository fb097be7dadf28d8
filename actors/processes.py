"""Process groups: who leads one, since when, and how one is ended.

A pid alone says nothing about a process that an earlier host started, since numbers are used again.
Together with the time at which the process started it does. Once its leader was reaped a group keeps its
number only while it has members, so a signal is never sent later than at once after a look.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Final

import trio

TERM_GRACE_S: Final = 3.0
"""From SIGTERM to SIGKILL. Well below the runtime's own grace, so that the group is gone before the attempt
is given up."""
KILL_GRACE_S: Final = 2.0
"""How long to wait for the kernel after SIGKILL; a process in uninterruptible sleep may need longer than
anybody waits."""
POLL_S: Final = 0.01
POLL_MAX_S: Final = 0.2
"""A group is looked for less and less often: a look reads the state of every process."""


async def end_group(process: trio.Process) -> bool:
    """End what is left of the process's group, and say whether that is nothing. Shielded, and bounded by the
    two graces.
    """
    if has_ended(process):
        return True
    with trio.CancelScope(shield=True):
        for signal, grace_s in ((SIGTERM, TERM_GRACE_S), (SIGKILL, KILL_GRACE_S)):
            _signal_group(process.pid, signal)
            with trio.move_on_after(grace_s):
                await process.wait()
                await _group_gone(process.pid)
                return True
    return has_ended(process)


def has_ended(process: trio.Process) -> bool:
    """Whether the process and its whole group are gone."""
    return process.returncode is not None and not group_lives(process.pid)


async def _group_gone(pid: int) -> None:
    pause_s = POLL_S
    while group_lives(pid):
        await trio.sleep(pause_s)
        pause_s = min(2 * pause_s, POLL_MAX_S)


def group_lives(pid: int) -> bool:
    """Whether a member of the group is alive. One that has died and was not collected yet is not.

    Children that lost their parent are collected by process 1, and some containers have one that takes its time.
    """
    if not _signal_group(pid, 0):
        return False
    return not os.path.exists("/proc/self/stat") or any(True for _ in _members(pid))


def _members(pid: int) -> Iterator[str]:
    """The living members of a group, where there is a /proc."""
    for name in os.listdir("/proc"):
        fields = _stat(name) if name.isdigit() else None
        if fields is not None and fields[0] != b"Z" and int(fields[2]) == pid:
            yield name


def _signal_group(pid: int, signal: int) -> bool:
    """Whether there is such a group. Its number cannot be given to another process while one member is left."""
    try:
        os.killpg(pid, signal)
    except ProcessLookupError:
        return False
    except PermissionError:  # a member that changed its user; macOS also says so of zombies
        return signal != 0
    return True


def _stat(pid: int | str) -> list[bytes] | None:
    """What /proc says of a process, from its state on; ``None`` if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None


async def end_orphan(pid: int, started: str, marks: Collection[str] = ()) -> bool:
    """End the group of a command that an earlier host started, and say whether there was one.

    Nothing is touched unless the process that now has this pid started when the stored one did, and leads
    its group; or, if there is no such process any more, a member of its group has all of ``marks`` in its
    environment (``NAME=value``, where there is a /proc). A process that vanishes meanwhile is no error.
    Takes at most a few seconds; may be cancelled.
    """
    if pid <= 1 or not started:
        return False
    found = await started_of(pid)
    if not (_leads_group(pid) if found == started else found is None and _left_marked(pid, marks)):
        return False
    for signal, grace_s in ((SIGTERM, TERM_GRACE_S), (SIGKILL, KILL_GRACE_S)):
        _signal_group(pid, signal)
        with trio.move_on_after(grace_s):
            while await started_of(pid) == started:
                await trio.sleep(POLL_S)
            await _group_gone(pid)
            break
    return True


def _leads_group(pid: int) -> bool:
    try:
        return os.getpgid(pid) == pid != os.getpgrp()
    except ProcessLookupError:
        return False


def _left_marked(pid: int, marks: Collection[str]) -> bool:
    """Whether a group that lost its leader is the one meant: its number may have been given to another since."""
    if not marks or pid == os.getpgrp() or not os.path.exists("/proc/self/stat"):
        return False
    wanted = {mark.encode("utf-8", "surrogateescape") for mark in marks}
    return any(wanted <= _environment(member) for member in _members(pid))


def _environment(pid: str) -> set[bytes]:
    try:
        return set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return set()


async def started_of(pid: int) -> str | None:
    """When a process started, in the system's own words; ``None`` if there is no such process, or it is a
    zombie.

    Only good for comparing. With the id of the boot where there is one, as the ticks of /proc begin again
    at each.
    """
    fields = _stat(pid)
    if fields is None:
        return None if os.path.exists("/proc/self/stat") else await _started_by_ps(pid)
    if fields[0] == b"Z":
        return None
    boot = ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}:{fields[19].decode('ascii')}"


async def _started_by_ps(pid: int) -> str | None:
    try:
        done = await trio.run_process(
            ["ps", "-o", "lstart=", "-p", str(pid)],
            capture_stdout=True,
            stderr=subprocess.DEVNULL,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except OSError:
        return None
    return done.stdout.decode("ascii", "replace").strip() or None
