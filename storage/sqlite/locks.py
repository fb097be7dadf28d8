"""Locks on a range of a file, and who holds them.

Where the system has open file description locks (Linux, macOS) they are used: the kernel drops one when the last
descriptor of that opening is closed, so neither other openings of the file in this process nor their closing touch
it. A forked child shares it, and therefore closes its copies at once (see `storage.ownership`). Elsewhere they are
POSIX locks, which belong to the process and are lost when *any* descriptor of the file is closed in it.

An owner's lock says whose it is: it begins at ``OWNERS`` plus the process id and is as long as the time since 1970 in
seconds. Ids are smaller than such a time, so any two overlap; and as the kernel keeps the note, it never speaks of a
process that is dead.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
from datetime import UTC, datetime
from typing import Final

import attrs

OWNERS: Final = 1 << 40  # far behind the pages of a database, and behind what SQLite locks

# `struct flock`: Linux puts type and whence first, the BSDs and macOS last (a spare int does no harm there).
_LINUX: Final = sys.platform.startswith("linux")
_FLOCK: Final = struct.Struct("@hhqqi" if _LINUX else "@qqihhi")

HAS_OPEN_FILE_LOCKS: Final = hasattr(fcntl, "F_OFD_SETLK")
_SET: Final[int] = getattr(fcntl, "F_OFD_SETLK", fcntl.F_SETLK)
_ASK: Final[int] = getattr(fcntl, "F_OFD_GETLK", fcntl.F_GETLK)


@attrs.frozen
class Owner:
    """The process that owns a database; ``started_at`` is ISO 8601 in UTC, to the second."""

    pid: int
    started_at: str


def lock_owner(fd: int, owner: Owner) -> bool:
    """Lock the file for ``owner``; False if another has it. Raises `OSError` where there are no locks."""
    started_s = int(datetime.fromisoformat(owner.started_at).timestamp())
    return _set(fd, fcntl.F_WRLCK, OWNERS + owner.pid, started_s)


def owner_in(fd: int) -> Owner | None:
    """Ask the kernel who has locked the file. Takes no lock, so it can never make an opening fail."""
    kind, start, length = _unpack(fcntl.fcntl(fd, _ASK, _pack(fcntl.F_WRLCK, OWNERS, 0)))
    if kind == fcntl.F_UNLCK:
        return None
    return Owner(start - OWNERS, datetime.fromtimestamp(length, UTC).isoformat(timespec="seconds"))


def share(fd: int, start: int, length: int) -> bool:
    """Keep others from locking the range for themselves; False if another has."""
    return _set(fd, fcntl.F_RDLCK, start, length)


def unlock(fd: int, start: int, length: int) -> None:
    """Give up what is held of the range."""
    _set(fd, fcntl.F_UNLCK, start, length)


def unlock_all(fd: int) -> None:
    """Give up all that was locked by way of ``fd``; SQLite's locks are not touched."""
    _set(fd, fcntl.F_UNLCK, 0 if HAS_OPEN_FILE_LOCKS else OWNERS, 0)


def _set(fd: int, kind: int, start: int, length: int) -> bool:
    try:
        fcntl.fcntl(fd, _SET, _pack(kind, start, length))
    except OSError as exc:
        if exc.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        return False
    return True


def _pack(kind: int, start: int, length: int) -> bytes:
    if _LINUX:
        return _FLOCK.pack(kind, os.SEEK_SET, start, length, 0)
    return _FLOCK.pack(start, length, 0, kind, os.SEEK_SET, 0)


def _unpack(answer: bytes) -> tuple[int, int, int]:
    if _LINUX:
        kind, _, start, length, _ = _FLOCK.unpack(answer)
    else:
        start, length, _, kind, _, _ = _FLOCK.unpack(answer)
    return kind, start, length
