"""Keeping the files of a running database, and noticing when they are gone.

*Keeping.* SQLite's own locks are POSIX locks: when the host copies or reads its database file, closing that
descriptor drops them. Another process that looks then believes itself the last, copies the write-ahead log into the
database and deletes it, while the owner goes on writing into the deleted file. So the owner holds shared locks of its
own, on descriptors of its own, over the bytes that SQLite has to lock for that: in the database those of a shared lock,
in the index (`-shm`) the one that says that somebody is there. They hinder no reader and no writer. They would hinder
our own last connection too, so they are given up just before it closes.

*Once.* The owner's lock in the database file refuses a second owner by whatever name it comes: another hard link, a
bind mount, a file that was moved. As SQLite keeps the log beside *one* name, a file that has several is not opened.

*Noticing.* Whatever happens to a name happens without SQLite: the open files live on, and nobody will ever find them.
So after each commit, before it is answered, the names are compared with the files that were opened.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

import attrs

from storage.errors import DatabaseInUse, StoreLost, StoreUnavailable
from storage.sqlite import locks
from storage.sqlite.errors import unavailable
from storage.sqlite.ownership import Ownership, drop_locks, file_key, keep_lock, key_of

_SHARED: Final = (0x40000002, 510)  # SQLite's SHARED_FIRST and SHARED_SIZE
_INDEX_IN_USE: Final = (128, 1)  # UNIX_SHM_DMS of the `-shm`


@attrs.define(eq=False)
class Guard:
    """Over the files of one database. Made by `guard` before SQLite opens the file for writing."""

    _path: str
    _fd: int
    _fds: list[int] = attrs.Factory(list)
    _files: dict[str, tuple[int, int] | None] = attrs.Factory(dict)
    _lost: StoreLost | None = None

    def keep(self) -> None:
        """Hold the files from now on: SQLite has opened them all."""
        if locks.HAS_OPEN_FILE_LOCKS:
            index_fd = os.open(f"{self._path}-shm", os.O_RDWR | os.O_NOFOLLOW)
            self._hold(index_fd)
            locks.share(self._fd, *_SHARED)
            locks.share(index_fd, *_INDEX_IN_USE)
        self._files = {
            f"{self._path}{suffix}": file_key(f"{self._path}{suffix}") for suffix in ("-wal", "-shm")
        }
        self._files[self._path] = key_of(os.fstat(self._fd))

    def look(self) -> StoreLost | None:
        """What became of the files, if they are no longer where they were; once lost is lost for ever.

        Some microseconds on a local disk.
        """
        if self._lost is None:
            self._lost = next((lost for name in self._files if (lost := self._missing(name))), None)
        return self._lost

    def _missing(self, name: str) -> StoreLost | None:
        try:
            found = key_of(os.stat(name))
        except (FileNotFoundError, NotADirectoryError):
            return StoreLost(name, "was deleted or moved")
        except OSError:
            return None  # it cannot be seen from here at present, which says nothing
        return None if found == self._files[name] else StoreLost(name, "was replaced by another file")

    def let_go(self) -> None:
        """Let the last connection that closes tidy up. Not if the files are lost: by their names it would delete the
        log of others.
        """
        if locks.HAS_OPEN_FILE_LOCKS and self.look() is None:
            with suppress(OSError):  # a forked child has closed it
                locks.unlock(self._fd, *_SHARED)

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Give up all that is held."""
        drop_locks(self._fds)

    def _hold(self, fd: int) -> None:
        keep_lock(fd, key_of(os.fstat(self._fd)))
        self._fds.append(fd)


def guard(ownership: Ownership) -> Guard:
    """Lock the database file, which exists and is ours, for its owner.

    Raises `DatabaseInUse` if it is owned under another name, `StoreUnavailable` if it has another name.
    """
    path = ownership.path
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError as exc:
        raise unavailable(exc) from exc
    made = Guard(path, fd)
    made._hold(fd)
    try:
        while not locks.lock_owner(fd, ownership.owner):
            other = locks.owner_in(fd)
            if other is not None:  # else it died between the two questions
                raise DatabaseInUse(path, other.pid, other.started_at)
        refuse_other_names(path, os.fstat(fd))
    except BaseException as exc:
        made.release()
        if isinstance(exc, OSError):
            raise unavailable(exc) from exc
        raise
    return made


def refuse_other_names(path: str, stat: os.stat_result) -> None:
    """Raise `StoreUnavailable` for a file with several hard links."""
    if stat.st_nlink > 1:
        raise StoreUnavailable(
            f"{path} has {stat.st_nlink} names (hard links)",
            advice="The path is at fault: SQLite keeps the log beside one name only, and would not find it by "
            "another. Remove the other names, or make a copy",
        )
