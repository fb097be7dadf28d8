"""What can be done to a database without running it: a copy, pruning, deleting a company.

A copy is made beside whoever runs the database. The others need to own it, so they are refused while a host
runs; they start no actor and no task, and leave what is unsettled as it is.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Container
from contextlib import asynccontextmanager

import attrs

from actors.errors import CompanyUnknown
from storage.codec import check_name
from storage.contract.companies import FindCompany
from storage.contract.retention import ListDeletions, Logged
from storage.contract.store import Operation, Store
from storage.records import Claim

from .opening import copy_beside, open_owned
from .retention.deletion import finish_deletion, mark_of, refused_if_active
from .retention.policy import DeletedCompany, PruneReport, Retention
from .retention.pruning import Pruner, T


@attrs.define
class _Unattended:
    """The `Place` of a database that nobody runs: no actor is there, and none can come."""

    store: Store

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def alive(self, _company: str) -> Container[int]:
        return ()

    def told(self, _company: str | None, _logged: Logged) -> None:
        """It is in the log."""

    async def between_turns(
        self, claim: Claim, prepare: Callable[[Claim, Container[str]], Operation[T] | None]
    ) -> T | None:
        operation = prepare(claim, ())
        if operation is None:
            return None
        return await self.store.commit(operation)


@asynccontextmanager
async def _owned(path: str | os.PathLike[str]) -> AsyncIterator[_Unattended]:
    """The database, which must exist; deletions that were begun are finished first."""
    async with open_owned(path) as store:
        place = _Unattended(store)
        for claim in await store.fetch(ListDeletions()):
            await finish_deletion(place, claim)
        yield place


async def prune(path: str | os.PathLike[str], retention: Retention) -> PruneReport:
    """Let go of what is old in a database that nobody runs. A host prunes by itself: `open_runtime(retention=…)`.

    Raises `DatabaseInUse` naming the process that runs it, `NotADatabase`, `SchemaTooNew`, `StoreUnavailable`.
    Cancellation: stops between two units.
    """
    async with _owned(path) as place:
        return await Pruner(place).prune(retention)


async def delete_company(path: str | os.PathLike[str], name: str) -> DeletedCompany:
    """Delete a company of a database that nobody runs; see `Runtime.delete_company`.

    Raises `CompanyUnknown`; `CompanyActive` for one that has active runs, also if the process that ran them has
    died: open the runtime and stop them; the rest as `prune`. Cancellation: what has begun goes on with the next
    opening.
    """
    check_name(name, what="a company's name")
    async with _owned(path) as place:
        company = await place.store.fetch(FindCompany(name))
        if company is None:
            raise CompanyUnknown(name)
        with refused_if_active(name):
            marked = await place.store.commit(mark_of(company, (), place.now_ms()))
        deleted = await finish_deletion(place, marked.claim)
        assert deleted is not None, "nobody else is there"
        return deleted


async def backup(path: str | os.PathLike[str], target: str | os.PathLike[str]) -> int:
    """Write a copy of the database at ``path`` to ``target``, beside whoever runs it; see `Runtime.backup`.

    Raises `NotADatabase` and `SchemaTooNew` besides.
    """
    return await copy_beside(path, target)
