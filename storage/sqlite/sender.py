"""The store of a process that does not own the database: it reads, and leaves messages in the inbox."""

from __future__ import annotations

import sqlite3
from functools import partial

from storage.contract.inbox import PutMessage
from storage.errors import StoreClosed

from .connection import transaction
from .engine import carry_out
from .errors import classify, refused, unavailable
from .store import SqliteReader


class SqliteSender(SqliteReader):
    """A `SqliteReader` whose connection may also send."""

    async def commit(self, operation: PutMessage) -> None:
        """Carry out the one operation that needs no ownership, in a transaction of its own.

        Raises what `PutMessage` says; `StoreUnavailable` if others' transactions take too long, or for another
        error that may pass: then nothing was changed. Cancellation: it may have been carried out.
        """
        body = partial(carry_out, asked=operation)
        try:
            await self.reader.run(lambda raw: transaction(raw, body))
        except sqlite3.Error as exc:
            if not hasattr(exc, "sqlite_errorcode"):
                raise StoreClosed from exc
            if classify(exc) == "transient":
                raise unavailable(exc) from exc
            raise refused(exc) from exc
