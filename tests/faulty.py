"""A store made of another one, by the contract alone, in which things go wrong in a fixed order.

It is a third implementation of `storage.contract.store.Store`: the group commit above an engine that knows no
database. What the runtime's own tests find under it, they find on any store whose disk comes and goes.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, TypeVar

import trio
from outcome import Error, Outcome, Value

from storage.contract.store import Operation, Pending, Query, Store, WalState, WriterStatistics
from storage.errors import OutcomeUnknown, StoreClosed, StoreLost, StoreUnavailable
from storage.group_commit import Writer
from storage.nursery import bare_nursery
from storage.sqlite.store import Hooks, open_store

T = TypeVar("T")
R = TypeVar("R")


class Faults:
    """Says when the store is away: at each ``every[kind]``-th operation or query of a kind, once for each."""

    def __init__(self, every: Mapping[type[Any], int]) -> None:
        self._every = every
        self._seen = dict.fromkeys(every, 0)
        self._struck: list[object] = []
        self.count = 0

    def strikes(self, asked: object) -> bool:
        if any(each is asked for each in self._struck):
            return False
        strikes = False
        for kind, every in self._every.items():
            if isinstance(asked, kind):
                self._seen[kind] += 1
                strikes = strikes or self._seen[kind] % every == 0
        if strikes:
            self._struck.append(asked)
            self.count += 1
        return strikes


class _Engine:
    """`storage.group_commit.Engine` over a store."""

    def __init__(self, inner: Store, faults: Faults) -> None:
        self._inner, self._faults = inner, faults

    async def write(self, operations: Sequence[Operation[Any]], /) -> list[Outcome[Any]]:
        struck = [self._faults.strikes(operation) for operation in operations]
        if any(struck):
            await trio.lowlevel.checkpoint()
            raise StoreUnavailable("planted")
        pending = [self._inner.submit(operation) for operation in operations]
        return [await _outcome_of(each) for each in pending]

    async def look(self) -> StoreLost | None:
        return self._inner.lost


async def _outcome_of(pending: Pending[T]) -> Outcome[T]:
    try:
        return Value(await pending.wait())
    except (StoreClosed, OutcomeUnknown):
        raise
    except Exception as error:
        return Error(error)


class FaultyStore:
    """``delays_s``: how long queries of a kind wait before they are asked."""

    def __init__(
        self, inner: Store, faults: Faults, writer: Writer, delays_s: Mapping[type[Any], float]
    ) -> None:
        self._inner, self._writer = inner, writer
        self._faults, self._delays_s = faults, delays_s
        self.path = inner.path
        self.wal_kept_bytes = inner.wal_kept_bytes

    @property
    def cause(self) -> StoreUnavailable | None:
        return self._writer.cause

    @property
    def lost(self) -> StoreLost | None:
        return self._writer.lost

    @property
    def statistics(self) -> WriterStatistics:
        return self._writer.statistics

    @property
    def wal_bytes(self) -> int:
        return self._inner.wal_bytes

    def submit(self, operation: Operation[T]) -> Pending[T]:
        return self._writer.submit(operation)

    async def commit(self, operation: Operation[T]) -> T:
        return await self._writer.commit(operation)

    async def fetch(self, query: Query[T]) -> T:
        await self._before(query)
        return await self._inner.fetch(query)

    async def fetch_with(self, query: Query[T], build: Callable[[T], R]) -> R:
        await self._before(query)
        return await self._inner.fetch_with(query, build)

    async def _before(self, query: Query[Any]) -> None:
        for kind, delay_s in self._delays_s.items():
            if isinstance(query, kind):
                await trio.sleep(delay_s)
        if self._faults.strikes(query):
            await trio.lowlevel.checkpoint()
            raise StoreUnavailable("planted")

    async def shrink(self) -> WalState:
        return await self._inner.shrink()

    async def copy_to(self, target: str | os.PathLike[str]) -> int:
        return await self._inner.copy_to(target)


@asynccontextmanager
async def open_faulty_store(
    path: str | os.PathLike[str],
    *,
    faults: Faults,
    delays_s: Mapping[type[Any], float] = MappingProxyType({}),
    hooks: Hooks | None = None,
    close_grace_s: float = 5.0,
    **options: Any,
) -> AsyncIterator[FaultyStore]:
    """In the place of `open_store`; ``hooks`` hear of the faults."""
    hooks = hooks or Hooks()
    async with open_store(path, **options) as inner, bare_nursery() as nursery:
        writer = Writer(
            _Engine(inner, faults),
            on_outage=lambda error: hooks.on_outage(error),
            on_recovery=lambda outage_s: hooks.on_recovery(outage_s),
        )
        nursery.start_soon(_run_shielded, writer)
        try:
            yield FaultyStore(inner, faults, writer, delays_s)
        finally:
            with trio.CancelScope(shield=True):
                await writer.aclose(close_grace_s)


async def _run_shielded(writer: Writer) -> None:
    with trio.CancelScope(shield=True):
        await writer.run()
