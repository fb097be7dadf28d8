"""Stores of the tests: operations that go round the contract, and a store that a test watches, delays or breaks."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import attrs

from actors import Runtime
from storage.contract.store import Operation, Query, Store
from storage.sqlite.engine import operation, query
from storage.sqlite.store import SqliteStore
from tests.inside import inside

T = TypeVar("T")
R = TypeVar("R")


@attrs.frozen(eq=False)
class Plain(Operation[T]):
    """An operation that is a function of SQLite's connection."""

    work: Callable[[sqlite3.Connection], T]

    def __call__(self, raw: sqlite3.Connection) -> T:
        return self.work(raw)


@attrs.frozen(eq=False)
class PlainQuery(Query[T]):
    """A query that is a function of SQLite's connection."""

    work: Callable[[sqlite3.Connection], T]


@operation(Plain)
def _carry_out(raw: sqlite3.Connection, asked: Plain[T]) -> T:
    return asked.work(raw)


@query(PlainQuery)
def _answer(raw: sqlite3.Connection, asked: PlainQuery[T]) -> T:
    return asked.work(raw)


class _Watched:
    """An operation that was handed in, and whose answer a test may hold back or replace by an error."""

    def __init__(self, store: WatchedStore, asked: Operation[Any]) -> None:
        self._store, self._asked = store, asked
        self._inner = store.inner.submit(asked)

    async def wait(self) -> Any:
        return await self._store.answered(self._asked, self._inner.wait)


class WatchedStore:
    """A `storage.contract.store.Store` that is another one, and tells of what it is asked.

    ``before`` is called with each operation and query and may raise; ``wait`` is awaited then; ``after`` is called
    with it and its answer. An operation is handed in between ``before`` and ``wait``.
    """

    def __init__(
        self,
        inner: Store,
        *,
        before: Callable[[object], object] = lambda _: None,
        wait: Callable[[object], Awaitable[object]] | None = None,
        after: Callable[[object, object], object] = lambda _asked, _answer: None,
    ) -> None:
        self.inner = inner
        self._before, self._wait, self._after = before, wait, after

    def submit(self, operation: Operation[T]) -> Any:
        self._before(operation)
        return _Watched(self, operation)

    async def commit(self, operation: Operation[T]) -> T:
        self._before(operation)
        return await self.answered(operation, lambda: self.inner.commit(operation))

    async def fetch(self, query: Query[T]) -> T:
        self._before(query)
        return await self.answered(query, lambda: self.inner.fetch(query))

    async def fetch_with(self, query: Query[T], build: Callable[[T], R]) -> R:
        self._before(query)
        return await self.answered(query, lambda: self.inner.fetch_with(query, build))

    async def answered(self, asked: object, do: Callable[[], Awaitable[T]]) -> T:
        if self._wait is not None:
            await self._wait(asked)
        answer = await do()
        self._after(asked, answer)
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def sqlite_of(runtime: Runtime) -> SqliteStore:
    """The runtime's store, for tests that break its connections."""
    store = inside(runtime).services.store
    assert isinstance(store, SqliteStore)
    return store


def stored(raw: sqlite3.Connection, statement: str, *params: object) -> list[Any]:
    """All rows of a statement."""
    return raw.execute(statement, params).fetchall()


async def rows_of(store: Store, statement: str, *params: object) -> list[Any]:
    """Rows that the store's own reader sees."""
    return await store.fetch(PlainQuery(lambda raw: stored(raw, statement, *params)))
