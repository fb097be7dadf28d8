"""SQLite's errors in the words of `storage.errors`, and whose fault each is.

One question decides what happens after an SQLite error: does it say something about the *place* (another
process holds the lock, the disk is full, a mount went away) or about the *content* (a constraint, a
trigger, a bad statement)? Trouble with the place passes: nothing that was asked for is wrong, so the writer
waits and tries again. Trouble with the content never does: trying again gives the same answer, so the
caller is told. `classify` is the only place that answers the question, and it goes by SQLite's code, never
by the text, which changes between versions.
"""

from __future__ import annotations

import errno
import sqlite3
from typing import Final, Literal

from storage.errors import StoreUnavailable, UnitRefused

_TRANSIENT_CODES: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,  # another connection holds the lock
        sqlite3.SQLITE_LOCKED,  # the same, inside one process
        sqlite3.SQLITE_NOMEM,  # memory comes back when others let go of it
        sqlite3.SQLITE_INTERRUPT,  # closing cut a statement short; nothing is wrong with the statement
        sqlite3.SQLITE_IOERR,  # the disk or its mount; a retry after repair succeeds
        sqlite3.SQLITE_FULL,  # somebody makes room
        sqlite3.SQLITE_CANTOPEN,  # the WAL or its index: out of descriptors, or a mount that is away
        sqlite3.SQLITE_PROTOCOL,  # too many processes raced for the WAL's locks
        # A file system that was remounted read-only, or a file whose mode was changed: no unit of anybody
        # can succeed until an operator undoes it, and then every one can. Called permanent it would be
        # answered to each company as if its own change were wrong. (Our writer is never `query_only`, the
        # innocent cause of this code.)
        sqlite3.SQLITE_READONLY,
    }
)


def classify(exc: BaseException) -> Literal["transient", "permanent"]:
    """Say whether trying the very same thing again later can help.

    An error without an SQLite code (misuse of the interface, or not SQLite's at all) is permanent. So is a
    corrupt page: waiting does not mend it, and everybody who does not touch that page can go on.
    """
    code = getattr(exc, "sqlite_errorcode", None)
    if isinstance(exc, sqlite3.Error) and isinstance(code, int) and (code & 0xFF) in _TRANSIENT_CODES:
        return "transient"
    return "permanent"


_NO_FOLDER: Final = frozenset({errno.ENOENT, errno.ENOTDIR})
_NO_PLACE: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOLCK}
)


def unavailable(exc: sqlite3.Error | OSError) -> StoreUnavailable:
    """Put a transient error, or a path that cannot be used, into words for a caller; raise it `from exc`."""
    if isinstance(exc, OSError) and exc.errno in _NO_FOLDER | _NO_PLACE:
        cause = f"{exc.strerror}: {exc.filename}" if exc.filename else str(exc)
        what = (
            "make its folder, or give another path"
            if exc.errno in _NO_FOLDER
            else "give one on a local disk, in a folder in which this user may write"
        )
        return StoreUnavailable(cause, advice=f"The path is at fault: {what}")
    return StoreUnavailable(str(exc), getattr(exc, "sqlite_errorname", None))


def refused(exc: sqlite3.Error) -> UnitRefused:
    """Put a permanent SQLite error into words for a caller, with the original as its cause."""
    error = UnitRefused(exc.sqlite_errorname, str(exc))
    error.__cause__ = exc
    return error
