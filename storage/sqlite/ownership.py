"""Who owns a database, and what a forked child may not touch.

*Owning.* One process at a time runs a database. The owner holds a POSIX lock on `<database>.lock`; the
kernel drops it when the process dies, however it dies. A `flock` would not do: a forked child shares it and
keeps it alive. But a POSIX lock belongs to the process, so it misses a second opening inside it, and
closing *any* descriptor of the file drops it. Hence a register in the process, asked before the lock file
is opened, and the rule that an owner never opens its lock file again. A question about the owner
(`owner_of`) uses F_GETLK, which takes no lock, so asking can never make somebody else's opening fail. The
file is never deleted: a process that waits on the old inode and one that creates a new one would both own
the database.

*Forking.* SQLite forbids to carry a connection over a fork. The child must not even close it: the last
connection to close deletes the WAL, by name, and when the child comes to it that may be another file, with
commits of which the child's copy knows nothing (a test loses one that way). So each open handle is on
record here, and in a forked child it is made immortal: neither the garbage collector nor the interpreter's
exit closes it, the kernel just drops the descriptors. Nor may the child open such a database anew, since
SQLite's memory in the child still counts locks that only the parent has.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import sqlite3
import struct
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final

import attrs

from storage.errors import DatabaseInUse, ForkedProcess
from storage.sqlite.errors import unavailable

# `struct flock`: Linux puts type and whence first, the BSDs and macOS last (a spare int does no harm there).
_LINUX: Final = sys.platform.startswith("linux")
_FLOCK: Final = struct.Struct("@hhqqi" if _LINUX else "@qqihhi")
_OWNER_BYTES_MAX: Final = 4096  # ours is under 100; more was not written by us

_FileKey = tuple[int, int]


@attrs.frozen
class Owner:
    """The process that owns a database; `started_at` is ISO 8601 in UTC, or "unknown"."""

    pid: int
    started_at: str


class Handle(sqlite3.Connection):
    """An SQLite connection that is on record from `keep` to `close`, so that a forked child leaves it alone."""

    _pid = 0

    def keep(self, path: str) -> None:
        """Put it on record as a connection to the file at `path`."""
        self._pid = os.getpid()
        key = _file_key(path)
        assert key is not None, "an open database has a file"
        with _register.lock:
            _register.handles[self] = key

    def close(self) -> None:
        """Close it; twice is harmless. In a forked child, whose it is not, nothing happens."""
        if os.getpid() != self._pid:
            return
        with _register.closing:
            super().close()
        with _register.lock:
            _register.handles.pop(self, None)


class _Register:
    """What this process owns and has open; one lock covers it and every opening of a lock file here."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        # SQLite lets the last connection delete the WAL. Of two that close at the same moment each sees the
        # other, so neither is the last, and the WAL stays. So they close one after the other.
        self.closing = threading.RLock()
        self.owned: list[Ownership] = []
        self.handles: dict[Handle, _FileKey] = {}
        self.inherited: dict[_FileKey, int] = {}  # databases that were open at the fork, and in which process
        self.pid = os.getpid()

    def after_fork_in_child(self) -> None:
        for handle, file in self.handles.items():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))
            self.inherited[file] = self.pid
        self.handles.clear()
        self.owned.clear()
        self.lock = threading.Lock()  # the old ones may be held by threads that do not exist here
        self.closing = threading.RLock()
        self.pid = os.getpid()


_register = _Register()
os.register_at_fork(after_in_child=_register.after_fork_in_child)


def refuse_inherited(path: str) -> None:
    """Raise `ForkedProcess` if this process was forked while `path` was open in its parent."""
    key = _file_key(path)
    if key is not None and key in _register.inherited:
        raise ForkedProcess(_register.inherited[key])


class Ownership:
    """The right to run one database, until `release` or the death of the process. Made by `acquire`."""

    def __init__(self, path: str, owner: Owner, fd: int) -> None:
        self.path = path
        self.owner = owner
        self._fd = fd
        self._lock_file = _key_of(os.fstat(fd))

    def release(self) -> None:
        """Give the database up. Twice is harmless, and so is a forked child, which owns nothing."""
        with _register.lock:
            if self in _register.owned:
                _register.owned.remove(self)
                os.close(self._fd)

    def covers(self, path: str) -> bool:
        """Whether `path` (resolved) is this database, also when it goes by another name (a hard link)."""
        if path == self.path or _file_key(_lock_path(path)) == self._lock_file:
            return True
        key = _file_key(path)
        return key is not None and key == _file_key(self.path)

    def __enter__(self) -> Ownership:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def acquire(path: str | os.PathLike[str], *, started_at: str | None = None) -> Ownership:
    """Become the owner of the database at `path`, which need not exist yet; its directory must.

    Raises `DatabaseInUse` naming the owner, `StoreUnavailable` if the lock file cannot be made or locked
    (no such directory, no permission, a file system without locks), `ForkedProcess` in a child of the
    owner.
    """
    database = os.path.realpath(path)
    refuse_inherited(database)
    owner = Owner(os.getpid(), started_at or datetime.now(UTC).isoformat(timespec="seconds"))
    with _register.lock:
        _refuse_second(database)
        try:
            fd = _open_lock_file(database)
            try:
                _lock(fd, database)
                _write_owner(fd, owner)
            except BaseException:
                os.close(fd)
                raise
        except OSError as exc:
            raise unavailable(exc) from exc
        ownership = Ownership(database, owner, fd)
        _register.owned.append(ownership)
    return ownership


def owner_of(path: str | os.PathLike[str]) -> Owner | None:
    """Name the living owner of the database at `path`, or None. Harms nobody, not even an owner who asks.

    Raises `StoreUnavailable` if the lock file cannot be read.
    """
    database = os.path.realpath(path)
    with _register.lock:
        own = _owned_here(database)
        if own is not None:
            return own.owner
        try:
            fd = os.open(_lock_path(database), os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise unavailable(exc) from exc
        try:
            return _holder(fd)
        finally:
            os.close(fd)


def _refuse_second(database: str) -> None:
    own = _owned_here(database)
    if own is not None:
        raise DatabaseInUse(database, own.owner.pid, own.owner.started_at)


def _owned_here(database: str) -> Ownership | None:
    return next((own for own in _register.owned if own.covers(database)), None)


def _open_lock_file(database: str) -> int:
    """Private to its user, and never through a symbolic link that somebody planted."""
    return os.open(_lock_path(database), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def _lock(fd: int, database: str) -> None:
    while True:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            if exc.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            holder = _holder(fd)
            if holder is not None:
                raise DatabaseInUse(database, holder.pid, holder.started_at) from None
            continue  # it died between the two questions
        return


def _holder(fd: int) -> Owner | None:
    """Ask the kernel who holds the lock, then the file since when; alone it may speak of a dead process."""
    pid = _locked_by(fd)
    if pid is None:
        return None
    try:
        written = json.loads(os.pread(fd, _OWNER_BYTES_MAX, 0))
        if written["pid"] == pid:
            return Owner(pid, str(written["started_at"]))
    except (ValueError, KeyError, TypeError):
        pass  # locked a moment ago and not yet written, or not written by us
    return Owner(pid, "unknown")


def _locked_by(fd: int) -> int | None:
    if _LINUX:
        question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, question))
    else:
        question = _FLOCK.pack(0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET, 0)
        _, _, pid, kind, _, _ = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, question))
    return None if kind == fcntl.F_UNLCK else int(pid)


def _write_owner(fd: int, owner: Owner) -> None:
    text = json.dumps(attrs.asdict(owner)).encode()
    os.ftruncate(fd, 0)
    os.pwrite(fd, text, 0)


def _lock_path(database: str) -> str:
    return f"{database}.lock"


def _file_key(path: str) -> _FileKey | None:
    try:
        return _key_of(Path(path).stat())
    except OSError:
        return None


def _key_of(stat: os.stat_result) -> _FileKey:
    return stat.st_dev, stat.st_ino
