"""From an operation or a query to the function that carries it out on a connection.

The modules of this package register their functions here by the type that they serve. A test compares the
registry with the contract, so a type without a function is found there and not in production.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from storage.contract.store import CompanyOperation, Operation, Query
from storage.errors import StaleEpoch
from storage.records import Claim

from .statements import SQL

T = TypeVar("T")
OperationT = TypeVar("OperationT", bound=Operation[Any])
QueryT = TypeVar("QueryT", bound=Query[Any])

OPERATIONS: dict[type[Operation[Any]], Callable[[sqlite3.Connection, Any], Any]] = {}
QUERIES: dict[type[Query[Any]], Callable[[sqlite3.Connection, Any], Any]] = {}


def operation(
    kind: type[OperationT], *, fences_itself: bool = False
) -> Callable[[Callable[[sqlite3.Connection, OperationT], T]], Callable[[sqlite3.Connection, OperationT], T]]:
    """Register the function that carries out operations of this kind, inside the writer's transaction.

    One on a company is called only after its claim was found to hold, unless it ``fences_itself``.
    """

    def register(
        function: Callable[[sqlite3.Connection, OperationT], T],
    ) -> Callable[[sqlite3.Connection, OperationT], T]:
        assert kind not in OPERATIONS, f"two functions carry out {kind.__name__}"
        if issubclass(kind, CompanyOperation) and not fences_itself:
            OPERATIONS[kind] = _fenced(function)
        else:
            OPERATIONS[kind] = function
        return function

    return register


def _fenced(function: Callable[[sqlite3.Connection, Any], T]) -> Callable[[sqlite3.Connection, Any], T]:
    def carry_out_fenced(conn: sqlite3.Connection, asked: CompanyOperation[T]) -> T:
        require(conn, asked.claim)
        return function(conn, asked)

    return carry_out_fenced


def require(conn: sqlite3.Connection, claim: Claim) -> None:
    """Raise `StaleEpoch` if the claim has ended."""
    if conn.execute(SQL["claim_holds"], (claim.company_id, claim.epoch)).fetchone() is None:
        raise StaleEpoch(claim.name, claim.epoch)


def query(
    kind: type[QueryT],
) -> Callable[[Callable[[sqlite3.Connection, QueryT], T]], Callable[[sqlite3.Connection, QueryT], T]]:
    """Register the function that answers queries of this kind, over one snapshot."""

    def register(
        function: Callable[[sqlite3.Connection, QueryT], T],
    ) -> Callable[[sqlite3.Connection, QueryT], T]:
        assert kind not in QUERIES, f"two functions answer {kind.__name__}"
        QUERIES[kind] = function
        return function

    return register


def carry_out(conn: sqlite3.Connection, asked: Operation[T]) -> T:
    """Make the change; raises what the operation says, or whatever SQLite says."""
    done: T = OPERATIONS[type(asked)](conn, asked)
    return done


def answer(conn: sqlite3.Connection, asked: Query[T]) -> T:
    """Read; raises what the query says, or whatever SQLite says."""
    found: T = QUERIES[type(asked)](conn, asked)
    return found
