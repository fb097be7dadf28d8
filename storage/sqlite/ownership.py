"""Who owns a database, and what a forked child may not touch.

*Owning.* One process at a time runs a database. The owner holds a lock on `<database>.lock`, which says whose it
is (see `storage.locks`); the kernel drops it when the process dies, however it dies. Where locks are POSIX locks a
second opening in the same process would not notice the first, and closing *any* descriptor of the file would drop
them. Hence a register in the process, asked before the lock file is opened, and the rule that an owner never opens its
lock file again. The file is never deleted: a process that waits on the old inode and one that creates a new one would
both own the database. The database file itself has a lock as well (see `storage.guard`); but it cannot be the one that
is asked, for closing it again would drop SQLite's locks in the process that asks.

*Forking.* SQLite forbids to carry a connection over a fork. The child must not even close it: the last
connection to close deletes the WAL, by name, and when the child comes to it that may be another file, with
commits of which the child's copy knows nothing (a test loses one that way). So each open handle is on
record here, and in a forked child it is made immortal: neither the garbage collector nor the interpreter's
exit closes it, the kernel just drops the descriptors. Nor may the child open such a database anew, since
SQLite's memory in the child still counts locks that only the parent has. The descriptors of our own locks are closed
in the child: its copies would keep them alive after the parent's death.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sqlite3
import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from types import TracebackType

from storage.errors import DatabaseInUse, ForkedProcess, StoreUnavailable
from storage.sqlite.errors import unavailable
from storage.sqlite.location import locate
from storage.sqlite.locks import HAS_OPEN_FILE_LOCKS, Owner, lock_owner, owner_in, unlock_all

_FileKey = tuple[int, int]


class Handle(sqlite3.Connection):
    """An SQLite connection that is on record from `keep` to `close`, so that a forked child leaves it alone."""

    _pid = 0

    def keep(self, path: str) -> None:
        """Put it on record as a connection to the file at `path`."""
        self._pid = os.getpid()
        key = file_key(path)
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
            _register.close_unneeded()


class _Register:
    """What this process owns and has open; one lock covers it and every opening of a lock file here."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        # SQLite lets the last connection delete the WAL. Of two that close at the same moment each sees the
        # other, so neither is the last, and the WAL stays. So they close one after the other.
        self.closing = threading.RLock()
        self.owned: list[Ownership] = []
        self.handles: dict[Handle, _FileKey] = {}
        self.fds: dict[int, _FileKey] = {}  # of our locks; open for as long as a handle of that file is
        self.done: set[int] = set()  # those that are to be closed
        self.inherited: dict[_FileKey, int] = {}  # databases that were open at the fork, and in which process
        self.pid = os.getpid()

    def after_fork_in_child(self) -> None:
        for handle, file in self.handles.items():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))
            self.inherited[file] = self.pid
        for fd in (*self.fds, *(own._fd for own in self.owned)):
            with contextlib.suppress(OSError):
                os.close(fd)
        self.handles.clear()
        self.owned.clear()
        self.fds.clear()
        self.done.clear()
        self.lock = threading.Lock()  # the old ones may be held by threads that do not exist here
        self.closing = threading.RLock()
        self.pid = os.getpid()

    def close_unneeded(self) -> None:
        in_use = set(self.handles.values())
        for fd in [fd for fd in self.done if self.fds[fd] not in in_use]:
            self.done.remove(fd)
            del self.fds[fd]
            os.close(fd)


_register = _Register()
os.register_at_fork(after_in_child=_register.after_fork_in_child)


def refuse_inherited(path: str) -> None:
    """Raise `ForkedProcess` if this process was forked while `path` was open in its parent."""
    key = file_key(path)
    if key is not None and key in _register.inherited:
        raise ForkedProcess(_register.inherited[key])


def keep_lock(fd: int, file: _FileKey) -> None:
    """Put on record a descriptor that holds locks for the database ``file``, until `drop_locks`."""
    with _register.lock:
        _register.fds[fd] = file


def drop_locks(fds: Iterable[int]) -> None:
    """Give up all that is held on them. They are closed as soon as no connection of this process has the database
    open: that would drop SQLite's locks. In a forked child they are closed already.
    """
    with _register.lock:
        for fd in fds:
            if fd in _register.fds:
                unlock_all(fd)
                _register.done.add(fd)
        _register.close_unneeded()


class Ownership:
    """The right to run one database, until `release` or the death of the process. Made by `acquire`."""

    def __init__(self, path: str, owner: Owner, fd: int) -> None:
        self.path = path
        self.owner = owner
        self._fd = fd
        self._lock_file = key_of(os.fstat(fd))

    def release(self) -> None:
        """Give the database up. Twice is harmless, and so is a forked child, which owns nothing."""
        with _register.lock:
            if self in _register.owned:
                _register.owned.remove(self)
                os.close(self._fd)

    def covers(self, path: str) -> bool:
        """Whether `path` (resolved) is this database, also when it goes by another name (a hard link)."""
        if path == self.path or file_key(_lock_path(path)) == self._lock_file:
            return True
        key = file_key(path)
        return key is not None and key == file_key(self.path)

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
    database = locate(path)
    refuse_inherited(database)
    owner = Owner(os.getpid(), started_at or datetime.now(UTC).isoformat(timespec="seconds"))
    with _register.lock:
        _refuse_second(database)
        try:
            fd = _open_lock_file(database)
            try:
                _lock(fd, database, owner)
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
    database = locate(path)
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
            return owner_in(fd)
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


def _lock(fd: int, database: str, owner: Owner) -> None:
    while not lock_owner(fd, owner):
        holder = owner_in(fd)
        if holder is not None:  # else it died between the two questions
            raise DatabaseInUse(database, holder.pid, holder.started_at)
    if HAS_OPEN_FILE_LOCKS:
        _refuse_locks_that_do_not_work(database, owner)


def _refuse_locks_that_do_not_work(database: str, owner: Owner) -> None:
    """Another opening of the file must be refused the lock; some file systems give it to everybody."""
    fd = _open_lock_file(database)
    try:
        if lock_owner(fd, owner):
            raise StoreUnavailable(
                f"locks do not work on the file system of {database}",
                advice="The path is at fault: give one on a local disk",
            )
    finally:
        os.close(fd)


def _lock_path(database: str) -> str:
    return f"{database}.lock"


def file_key(path: str) -> _FileKey | None:
    """Which file is at ``path``; None if there is none, or it cannot be seen."""
    try:
        return key_of(os.stat(path))
    except OSError:
        return None


def key_of(stat: os.stat_result) -> _FileKey:
    """Which file it is, whatever it is called."""
    return stat.st_dev, stat.st_ino
