"""One group of operations in one transaction: the engine behind `storage.group_commit`.

First all are carried out as if none could be refused, which is so nearly always and the fastest. If one is, it all
begins anew, each behind a SAVEPOINT of its own, so the guilty one is rolled back alone.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from outcome import Error, Outcome, Value

from storage.contract.store import Operation
from storage.contract.turns import CommitTurn
from storage.errors import StoreClosed, StoreLost

from .connection import Connection, transaction
from .engine import carry_out
from .errors import classify, refused, unavailable
from .unit_of_work import write_together


class SqliteEngine:
    """`storage.group_commit.Engine` over the connection that writes."""

    def __init__(self, connection: Connection, look: Callable[[], StoreLost | None] = lambda: None) -> None:
        """``look`` says, on the connection's thread, whether the files of the database are gone."""
        self._connection = connection
        self._look = look

    async def write(self, operations: Sequence[Operation[Any]], /) -> list[Outcome[Any]]:
        """See `storage.group_commit.Engine.write`."""
        try:
            return await self._connection.run(partial(self._commit_here, operations=operations))
        except sqlite3.Error as exc:
            if not hasattr(exc, "sqlite_errorcode"):
                raise StoreClosed from exc  # not SQLite's own: the connection was closed underneath
            if classify(exc) == "transient":
                raise unavailable(exc) from exc
            raise refused(exc) from exc  # COMMIT was refused (a deferred constraint), or BEGIN

    def _commit_here(
        self, raw: sqlite3.Connection, operations: Sequence[Operation[Any]]
    ) -> list[Outcome[Any]]:
        """What became of the files is known before anybody is answered."""
        try:
            return commit_together(raw, operations)
        finally:
            lost = self._look()
            if lost is not None:
                raise lost

    async def look(self) -> StoreLost | None:
        """See `storage.group_commit.Engine.look`."""
        return await self._connection.run(lambda _: self._look())


class _TransactionGone(Exception):
    """An operation's failure took the whole transaction along; the others have to be carried out again."""


def commit_together(raw: sqlite3.Connection, operations: Sequence[Operation[Any]]) -> list[Outcome[Any]]:
    """Carry out the operations in one transaction and give each its outcome. Runs whole on the connection.

    Raises only what concerns all of them: a transient error from anywhere, and what BEGIN or COMMIT itself
    raises.
    """
    if len(operations) > 1:
        with contextlib.suppress(_TransactionGone):
            return transaction(raw, lambda raw: _run_all(raw, operations))
    failed: dict[int, Error] = {}
    while len(failed) < len(operations):
        try:
            return transaction(raw, lambda raw: _run_each(raw, operations, failed))
        except _TransactionGone:
            continue
    return [failed[index] for index in range(len(operations))]


def _run_all(raw: sqlite3.Connection, operations: Sequence[Operation[Any]]) -> list[Outcome[Any]]:
    """Carry out one operation after the other, the turns of different companies in one go."""
    outcomes: list[Outcome[Any]] = []
    try:
        for together in _runs_of_turns(operations):
            if isinstance(together, list):
                outcomes.extend(map(Value, write_together(raw, together)))
            else:
                outcomes.append(Value(carry_out(raw, together)))
    except Exception as exc:
        if classify(exc) == "transient":
            raise
        raise _TransactionGone from exc
    if not raw.in_transaction:
        raise _TransactionGone
    return outcomes


def _runs_of_turns(
    operations: Sequence[Operation[Any]],
) -> Iterator[list[CommitTurn] | Operation[Any]]:
    """The operations in their order, those in a list that may be written together: turns of companies that are all
    different.
    """
    together: list[CommitTurn] = []
    companies: set[int] = set()
    for operation in operations:
        turn = operation if isinstance(operation, CommitTurn) else None
        if together and (turn is None or turn.claim.company_id in companies):
            yield together
            together, companies = [], set()
        if turn is None:
            yield operation
        else:
            together.append(turn)
            companies.add(turn.claim.company_id)
    if together:
        yield together


def _run_each(
    raw: sqlite3.Connection, operations: Sequence[Operation[Any]], failed: dict[int, Error]
) -> list[Outcome[Any]]:
    """Carry out all but those known to have failed.

    One that is alone needs no savepoint: the transaction is its border. Besides
    that, `RAISE(ROLLBACK)` and `ON CONFLICT ROLLBACK` end the transaction from inside an operation.
    """
    alone = len(operations) - len(failed) == 1
    outcomes: list[Outcome[Any]] = []
    for index, operation in enumerate(operations):
        outcome = failed.get(index) or (
            _run_bare(raw, operation) if alone else _run_in_savepoint(raw, operation)
        )
        outcomes.append(outcome)
        if isinstance(outcome, Error) and index not in failed and (alone or not raw.in_transaction):
            failed[index] = outcome
            raise _TransactionGone
    return outcomes


def _run_in_savepoint(raw: sqlite3.Connection, operation: Operation[Any]) -> Outcome[Any]:
    raw.execute("SAVEPOINT operation")
    outcome = _run_bare(raw, operation)
    if raw.in_transaction:
        if isinstance(outcome, Error):
            raw.execute("ROLLBACK TO operation")
        raw.execute("RELEASE operation")
    return outcome


def _run_bare(raw: sqlite3.Connection, operation: Operation[Any]) -> Outcome[Any]:
    try:
        return Value(carry_out(raw, operation))
    except Exception as exc:
        if classify(exc) == "transient":
            raise
        return Error(_own_error(exc))


def _own_error(exc: Exception) -> Exception:
    """What the submitter gets to see: SQLite's refusals in our words, anything else as it is."""
    if isinstance(exc, sqlite3.Error) and hasattr(exc, "sqlite_errorcode"):
        return refused(exc)
    return exc
