"""The store of a process that does not own the database: it reads, and leaves messages in the inbox."""

from __future__ import annotations

import sqlite3
from typing import TypeVar

from storage.contract.inbox import PutMessage
from storage.contract.store import Query
from storage.errors import classify, refused, unavailable

from .connection import Connection, read, transaction
from .engine import answer, carry_out

T = TypeVar("T")


class SenderStore:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def commit(self, operation: PutMessage) -> None:
        """Carry out the one operation that needs no ownership, in a transaction of its own.

        Raises what `PutMessage` says; `StoreUnavailable` if others' transactions take too long, or for another
        error that may pass: then nothing was changed. Cancellation: it may have been carried out.
        """
        try:
            await self.connection.run(lambda raw: transaction(raw, lambda conn: carry_out(conn, operation)))
        except sqlite3.Error as exc:
            if classify(exc) == "transient":
                raise unavailable(exc) from exc
            raise refused(exc) from exc

    async def fetch(self, query: Query[T]) -> T:
        """See `storage.contract.store.Store.fetch`."""
        return await read(self.connection, lambda conn: answer(conn, query))
