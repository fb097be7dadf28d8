"""The contract of a connection, and the two shapes of a transaction.

A transaction is one function that runs whole on its connection, BEGIN and COMMIT included. It is the only
way to write. Statement by statement would be wrong and slow: an awaited statement that is cancelled runs
on, so a cancelled BEGIN leaves a lock that nobody owns; and each hop to the connection's thread costs as
much as dozens of statements.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from typing import Protocol, TypeVar

from storage.errors import QueryRefused, StoreClosed
from storage.sqlite.errors import classify, unavailable

T = TypeVar("T")


class Connection(Protocol):
    """One SQLite connection, reached from Trio."""

    async def run(self, work: Callable[[sqlite3.Connection], T], /) -> T:
        """Run `work` whole on the connection and return what it returns.

        Works run one at a time, in the order in which they were asked for. `work` must not keep the
        connection or a cursor, and has to fetch all it wants (`fetchall`), or it would hold a snapshot
        open.

        Cancellation: a caller that is already cancelled is refused before `work` starts. Once asked for,
        `work` cannot be cancelled: `run` waits for its end and gives its result or error, and the
        cancellation arrives at the caller's next checkpoint. Always a checkpoint.

        Raises whatever `work` raises; `StoreClosed` if the connection is closed, `ForkedProcess` in a
        forked child, `OutcomeUnknown` if the connection had to be given up while `work` would not end.
        """
        ...

    async def aclose(self) -> None:
        """Close after the works already asked for. A second call waits for the first.

        Cancellation: shielded, and bounded to a few seconds.
        """
        ...


def transaction(connection: sqlite3.Connection, body: Callable[[sqlite3.Connection], T]) -> T:
    """Run `body` between BEGIN IMMEDIATE and COMMIT; roll back and re-raise on any exception, COMMIT's too.

    The connection needs `isolation_level=None`. No transaction is open afterwards, whatever happened.
    """
    roll_back(connection)  # one that failed with the disk, earlier, would make every BEGIN fail from then on
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = body(connection)
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise
    return result


class Undecodable(str):
    """Text of a column that is not UTF-8, with what cannot be read escaped. Nobody of ours wrote it."""

    __slots__ = ()


def read_transaction(connection: sqlite3.Connection, body: Callable[[sqlite3.Connection], T]) -> T:
    """Run `body` over one snapshot of the database, and let go of the snapshot whatever happens.

    A text that is not UTF-8 would make `sqlite3` refuse every row that was asked for with it. Then `body`
    runs once more and is given such texts as `Undecodable`.
    """
    roll_back(connection)
    connection.execute("BEGIN")
    try:
        return body(connection)
    except sqlite3.OperationalError as exc:
        if hasattr(exc, "sqlite_errorcode"):
            raise  # SQLite's own; the module's, about what it cannot decode, have no code
        connection.text_factory = _text_or_escaped
        try:
            return body(connection)
        finally:
            connection.text_factory = str
    finally:
        roll_back(connection)


def _text_or_escaped(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return Undecodable(raw.decode("utf-8", "backslashreplace"))


async def reading(connection: Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """Run `work`, which only reads, on a reader's connection.

    Raises `StoreUnavailable` for an SQLite error that may pass, `QueryRefused` for one that does not, else as
    `Connection.run`. Cancellation as there.
    """
    try:
        return await connection.run(work)
    except sqlite3.Error as exc:
        if not hasattr(exc, "sqlite_errorcode"):
            raise StoreClosed from exc  # the module's own: the connection was closed underneath
        if classify(exc) == "transient":
            raise unavailable(exc) from exc
        raise QueryRefused(exc.sqlite_errorname, str(exc)) from exc


def roll_back(connection: sqlite3.Connection) -> None:
    """End a transaction that may be open, without hiding the error that led here.

    Full, I/O and memory errors may already have rolled back by themselves, which a plain ROLLBACK would
    report as an error of its own.
    """
    if connection.in_transaction:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
