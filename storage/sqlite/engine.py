"""From an operation or a query to the function that carries it out on a connection.

The modules of this package register their functions here by the type that they serve. A test compares the
registry with the contract, so a type without a function is found there and not in production.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from storage.contract.store import Operation, Query

T = TypeVar("T")
OperationT = TypeVar("OperationT", bound=Operation[Any])
QueryT = TypeVar("QueryT", bound=Query[Any])

OPERATIONS: dict[type[Operation[Any]], Callable[[sqlite3.Connection, Any], Any]] = {}
QUERIES: dict[type[Query[Any]], Callable[[sqlite3.Connection, Any], Any]] = {}


def operation(
    kind: type[OperationT],
) -> Callable[[Callable[[sqlite3.Connection, OperationT], T]], Callable[[sqlite3.Connection, OperationT], T]]:
    """Register the function that carries out operations of this kind, inside the writer's transaction."""

    def register(
        function: Callable[[sqlite3.Connection, OperationT], T],
    ) -> Callable[[sqlite3.Connection, OperationT], T]:
        assert kind not in OPERATIONS, f"two functions carry out {kind.__name__}"
        OPERATIONS[kind] = function
        return function

    return register


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
    answer: T = OPERATIONS[type(asked)](conn, asked)
    return answer


def answer(conn: sqlite3.Connection, asked: Query[T]) -> T:
    """Read; raises what the query says, or whatever SQLite says."""
    found: T = QUERIES[type(asked)](conn, asked)
    return found
