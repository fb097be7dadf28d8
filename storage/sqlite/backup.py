"""A copy of a database, whole and checked, beside whoever runs it.

`VACUUM INTO` reads one snapshot and writes it anew, so the copy is as small as its content. It is written under
another name, private to its user, checked, brought to the disk, and only then given its name: under that name
there is never half a copy. The snapshot is held for as long as the copying takes; the WAL grows meanwhile.

What is of the machine and not of the data stays behind: the process ids of commands that run. Whoever opens a
copy takes what ran for lost, and must not end the processes of the original.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from storage.errors import BackupFailed
from storage.sqlite.errors import classify, unavailable
from storage.sqlite.opening import open_copier, open_copy, open_reader
from storage.sqlite.statements import SQL

STEPS: Final = 20_000  # of SQLite's own, a few milliseconds: so often the copying asks whether to go on
COMPLAINTS_MAX: Final = 10


def back_up(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    go_on: Callable[[], object] = lambda: None,
) -> int:
    """Write a copy of the database at ``path`` to ``target``, which must not exist; returns its size in bytes.

    ``go_on`` is asked now and then and may raise to give up. Works in any thread, and beside the owner.

    Raises `BackupFailed` for a target that cannot be written or a database that is damaged, `NotADatabase`,
    `SchemaTooNew`, `StoreUnavailable`, `ForkedProcess`, and what ``go_on`` raises. After any error nothing is
    left at ``target``.
    """
    open_reader(path).close()  # ours, and of a version that we know
    with closing(open_copier(path)) as raw:
        return back_up_open(raw, target, go_on=go_on)


def back_up_open(
    raw: sqlite3.Connection,
    target: str | os.PathLike[str],
    *,
    go_on: Callable[[], object] = lambda: None,
) -> int:
    """`back_up` of what ``raw`` has open, whatever became of its name. No transaction is open, and it may write."""
    final = _free(Path(os.path.abspath(target)))
    part = final.with_name(f".{final.name}.{secrets.token_hex(4)}.part")
    try:
        _create_private(part, final)
        _copy(raw, part, final, go_on)
        _finish(part, final, go_on)
        _sync(part)
        _name(part, final)
    finally:
        for left in (part, Path(f"{part}-journal")):
            with contextlib.suppress(OSError):
                left.unlink()
    _sync(final.parent)
    return final.stat().st_size


def _free(target: Path) -> Path:
    """The target, if nothing is there that it would overwrite, or that SQLite would take for a part of it."""
    for name in (target, *(Path(f"{target}{suffix}") for suffix in ("-wal", "-journal"))):
        if os.path.lexists(name):
            raise BackupFailed(str(target), f"{name} exists, and nothing is overwritten: give another name")
    return target


def _create_private(part: Path, target: Path) -> None:
    try:
        os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise BackupFailed(str(target), f"it cannot be written: {error.strerror}") from error


def _copy(raw: sqlite3.Connection, part: Path, target: Path, go_on: Callable[[], object]) -> None:
    with _in_words(target), _asking(raw, go_on):
        raw.execute("VACUUM INTO ?", (str(part),))


def _finish(part: Path, target: Path, go_on: Callable[[], object]) -> None:
    with closing(open_copy(part)) as raw, _asking(raw, go_on), _in_words(target):
        raw.execute(SQL["forget_processes"])
        found = [row[0] for row in raw.execute(f"PRAGMA integrity_check({COMPLAINTS_MAX})").fetchall()]
        if found != ["ok"]:
            raise BackupFailed(str(target), f"the copy is damaged: {'; '.join(found)}")


@contextlib.contextmanager
def _asking(raw: sqlite3.Connection, go_on: Callable[[], object]) -> Iterator[None]:
    """SQLite asks ``go_on`` while it works; what that raises comes out, and not SQLite's word for it."""
    refusals: list[BaseException] = []

    def ask() -> int:
        try:
            go_on()
        except BaseException as error:
            refusals.append(error)
            return 1
        return 0

    raw.set_progress_handler(ask, STEPS)
    try:
        yield
    except sqlite3.Error:
        if refusals:
            raise refusals[0] from None
        raise
    finally:
        raw.set_progress_handler(None, 0)


@contextlib.contextmanager
def _in_words(target: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if classify(error) == "transient":
            raise unavailable(error) from error
        raise BackupFailed(str(target), f"the database is damaged: {error}") from error


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _name(part: Path, target: Path) -> None:
    """Give the copy its name, unless somebody else took it meanwhile."""
    try:
        os.link(part, target)
    except FileExistsError:
        raise BackupFailed(str(target), "it came to exist meanwhile, and nothing is overwritten") from None
    except OSError:  # a file system without links
        _free(target)
        os.rename(part, target)
