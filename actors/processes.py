"""Process groups: who leads one, since when, and how one is ended.

A pid alone says nothing about a process that an earlier host started, since numbers are used again.
Together with the time at which the process started it does. Once its leader was reaped a group keeps its
number only while it has members, so a signal is never sent later than at once after a look.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
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
POLL_S: Final = 0.02


async def end_group(process: trio.Process) -> None:
    """End what is left of the process's group. Shielded, and bounded by the two graces."""
    if process.returncode is not None and not signal_group(process.pid, 0):
        return
    with trio.CancelScope(shield=True):
        for signal, grace_s in ((SIGTERM, TERM_GRACE_S), (SIGKILL, KILL_GRACE_S)):
            signal_group(process.pid, signal)
            with trio.move_on_after(grace_s):
                await process.wait()
                await _group_gone(process.pid)
                return


async def _group_gone(pid: int) -> None:
    while signal_group(pid, 0):
        await trio.sleep(POLL_S)


def signal_group(pid: int, signal: int) -> bool:
    """Whether there is such a group. Its number cannot be given to another process while one member is
    left."""
    try:
        os.killpg(pid, signal)
    except ProcessLookupError:
        return False
    except PermissionError:  # a member that changed its user; macOS also says so of zombies
        return signal != 0
    return True


async def end_orphan(pid: int, started: str) -> bool:
    """End the group of a command that an earlier host started, and say whether there was one.

    Nothing is touched unless the process that now has this pid started when the stored one did, and leads
    its group. A process that vanishes meanwhile is no error. Takes at most a few seconds; may be cancelled.
    """
    if pid <= 1 or not started or await started_of(pid) != started or not _leads_group(pid):
        return False
    for signal, grace_s in ((SIGTERM, TERM_GRACE_S), (SIGKILL, KILL_GRACE_S)):
        signal_group(pid, signal)
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


async def started_of(pid: int) -> str | None:
    """When a process started, in the system's own words; ``None`` if there is no such process, or it is a
    zombie.

    Only good for comparing. With the id of the boot where there is one, as the ticks of /proc begin again
    at each.
    """
    try:
        _, _, rest = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")
    except OSError:
        return None if os.path.exists("/proc/self/stat") else await _started_by_ps(pid)
    fields = rest.split()
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
