"""Keeping the write-ahead log small.

A commit that finds the WAL longer than `storage.sqlite.opening.WAL_PAGES` copies it into the database and begins at
its start again, so under load it stays at a few megabytes. It cannot while somebody reads an old snapshot: then
the WAL grows, and a file that has grown keeps its size. Our own readings hold no snapshot between two pages;
another process may, for as long as it likes. So now and then somebody has to look: `shrink_wal` copies what can
be copied and, when nobody is in the way, cuts the file to nothing.
"""

from __future__ import annotations

import os
import sqlite3
from typing import Final

from storage.contract.store import WalState
from storage.errors import QueryRefused

from .connection import Connection
from .errors import classify

SHRINK_ABOVE_BYTES: Final = 16 * 1024 * 1024  # four times what the ordinary course of things leaves


def wal_bytes(path: str) -> int:
    """The size of the WAL of the database at ``path``; 0 if there is none."""
    try:
        return os.stat(f"{path}-wal").st_size
    except OSError:
        return 0


async def shrink_wal(path: str, writing: Connection, above_bytes: int = SHRINK_ABOVE_BYTES) -> WalState:
    """Cut the WAL to nothing if it is longer than ``above_bytes``; costs nothing if not.

    ``writing`` is the connection that writes, which is held up for the time of the copying. Raises `QueryRefused`,
    and nothing that passes: the next look tries again. Cancellation as `Connection.run`.
    """
    if wal_bytes(path) <= above_bytes:
        return WalState(wal_bytes(path))
    try:
        pinned = await writing.run(_cut)
    except sqlite3.Error as error:
        if classify(error) != "transient":
            raise QueryRefused(error.sqlite_errorname, str(error)) from error
        pinned = True
    return WalState(wal_bytes(path), pinned)


def _cut(raw: sqlite3.Connection) -> bool:
    """Copy all that can be copied without waiting for anybody; if that is all, cut. Says whether it was not."""
    _, frames, copied = raw.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    if copied < frames:
        return True
    busy, _, _ = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return bool(busy)
