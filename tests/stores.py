"""A store whose operations and queries a test watches, delays or breaks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from actors.runtime.opening import OwnedStore
from storage.contract.store import Operation, Query
from storage.sqlite.database import Database

T = TypeVar("T")


class WatchedStore(OwnedStore):
    """``before`` is called with each operation and query and may raise; ``wait`` is awaited then; ``after`` is called
    with it and its answer.
    """

    def __init__(
        self,
        database: Database,
        *,
        before: Callable[[object], object] = lambda _: None,
        wait: Callable[[object], Awaitable[object]] | None = None,
        after: Callable[[object, object], object] = lambda _asked, _answer: None,
    ) -> None:
        super().__init__(database)
        self._hooks = (before, wait, after)

    async def commit(self, operation: Operation[T]) -> T:
        return await self._watched(operation, super().commit)

    async def fetch(self, query: Query[T]) -> T:
        return await self._watched(query, super().fetch)

    async def _watched(self, asked: object, do: Callable[..., Awaitable[T]]) -> T:
        before, wait, after = self._hooks
        before(asked)
        if wait is not None:
            await wait(asked)
        answer = await do(asked)
        after(asked, answer)
        return answer
