"""The Store: what the runtime may ask of its database, whatever the engine.

An `Operation` is one durable change and a `Query` is one reading. Both are frozen values; an engine maps the type
of each to a function that runs whole in one transaction. Nothing above the Store sees a connection, a
statement, a column or an engine's error.

Every implementation promises, and the contract suite shows:

- *Durable first.* `Store.commit` returns after the change is durable, never before.
- *All or nothing.* An operation that raises has changed nothing, and its neighbours in the same group commit
  do not notice.
- *Order.* Operations take effect in the order in which they were submitted.
- *Fencing.* An operation that belongs to a company names its claim (company id and epoch) and raises `StaleEpoch`
  when a newer claim exists.
- *One snapshot.* A query sees one moment of the database, and every change that was answered before it began.
- *Repeatable.* In an outage an operation is tried again. It is a value, so a later try does the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import attrs

from storage.errors import StoreLost, StoreUnavailable
from storage.records import Claim

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")


class Operation(Generic[T]):
    """One durable change; `T` is what it answers. Each subclass says what it may raise."""

    __slots__ = ()


class CompanyOperation(Operation[T]):
    """A change of one company, made under a claim.

    Raises `StaleEpoch` if the claim has ended, which every engine checks before it carries out anything.
    """

    __slots__ = ()

    @property
    def claim(self) -> Claim:
        """The claim under which it is made: a field of every subclass."""
        raise NotImplementedError


class Query(Generic[T]):
    """One reading over one snapshot; `T` is what it answers."""

    __slots__ = ()


class Pending(Protocol[T_co]):
    """An operation that was submitted, and its answer once there is one."""

    async def wait(self) -> T_co:
        """Return the answer once the change is durable. Several callers may wait, and again.

        Raises `OutcomeUnknown` if the store was closed meanwhile, `UnitRefused` if the database refused the
        operation, and what the operation says (`StaleEpoch` among them); none of these changed anything, save
        that `OutcomeUnknown` cannot say.
        Cancellation: stops waiting; the operation stands.
        """
        ...


@attrs.frozen
class WriterStatistics:
    """A snapshot of what the group commit has done. Seconds are real time, from asking the engine to its answer."""

    batches: int = 0
    units: int = 0
    last_batch_units: int = 0
    largest_batch_units: int = 0
    last_commit_s: float = 0.0
    total_commit_s: float = 0.0


@attrs.frozen
class WalState:
    """The write-ahead log. ``pinned``: a reader has an old snapshot, or had it at that moment, so it cannot be cut."""

    bytes: int
    pinned: bool = False


class ReadStore(Protocol):
    """A database that can be read. See the module for what every implementation promises."""

    @property
    def path(self) -> str:
        """The path of the database, as it was given."""
        ...

    async def fetch(self, query: Query[T]) -> T:
        """Answer a query.

        Raises `StoreUnavailable` for an error that may pass, `QueryRefused` for one that does not, `StoreClosed`,
        and what the query says. Cancellation: before it starts; once started it is waited for.
        """
        ...

    async def fetch_with(self, query: Query[T], build: Callable[[T], R]) -> R:
        """`fetch`, and what ``build`` makes of the answer. ``build`` is pure and runs where the reading ran, so
        that building something large does not hold up the event loop.
        """
        ...


class Store(ReadStore, Protocol):
    """A database that is open for writing, by this process alone."""

    @property
    def lost(self) -> StoreLost | None:
        """What became of the database, if it is gone for ever: nothing is acknowledged any more."""
        ...

    @property
    def cause(self) -> StoreUnavailable | None:
        """Why the store takes no changes at present; ``None`` while it does."""
        ...

    @property
    def statistics(self) -> WriterStatistics:
        """A snapshot."""
        ...

    def submit(self, operation: Operation[T]) -> Pending[T]:
        """Hand in an operation behind those that were handed in before. Never waits.

        Raises `StoreClosed` once closing has begun, `StoreLost` once the database is gone, `ForkedProcess` in a
        forked child.
        """
        ...

    async def commit(self, operation: Operation[T]) -> T:
        """Submit and wait for the answer; errors and cancellation as `submit` and `Pending.wait`."""
        ...

    @property
    def wal_kept_bytes(self) -> int:
        """The size that the write-ahead log has in ordinary use."""
        ...

    @property
    def wal_bytes(self) -> int:
        """The size that it has now."""
        ...

    async def shrink(self) -> WalState:
        """Cut the write-ahead log if it has grown far beyond that. Cheap if it has not. Raises as `fetch`, save that
        for an error that may pass the log stays as it is.
        """
        ...

    async def copy_to(self, target: str | os.PathLike[str]) -> int:
        """Write a checked copy of one moment of the database to ``target``, which must not exist; its size in bytes.

        Raises `BackupFailed`, `StoreUnavailable`. Cancellation: stops the copying.
        """
        ...
