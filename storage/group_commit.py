"""Group commit: the one road to the disk, shared by all companies, whatever the engine.

A commit costs an fsync and a hop to the engine, whatever is in it. So the writer takes every operation that is
waiting into one transaction. An engine answers for each operation by itself: one that is refused is taken back
alone, and its neighbours never know.

An outage is nobody's fault: the whole group is rolled back and the same operations are tried again, in the same
order, with growing pauses, while new ones queue up behind. So an operation may be carried out more than once, and
what it does must depend on the database alone.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar, cast

import trio
from outcome import Error, Outcome, Value

from storage.contract.store import Operation, WriterStatistics
from storage.errors import OutcomeUnknown, StoreClosed, StoreLost, StoreUnavailable, UnitRefused
from storage.forks import ForkGuard
from storage.logging import get_logger

T = TypeVar("T")

BATCH_UNITS_MAX: Final = (
    256  # past 100 the fsync is shared out; more only makes the first of them wait for the last
)
RETRY_FIRST_S: Final = 0.05  # a neighbour's transaction is over by then
RETRY_CAP_S: Final = 5.0  # an operator who made room sees it work at once

_log = get_logger("storage.writer")


class Engine(Protocol):
    """What carries out groups of operations."""

    async def write(self, operations: Sequence[Operation[Any]], /) -> list[Outcome[Any]]:
        """Carry out the operations in their order, in one transaction, and give the outcome of each.

        An outcome that is an error belongs to its operation alone, which has changed nothing.

        Raises when nothing of the group happened: `StoreUnavailable` if it can succeed later, `UnitRefused` if
        the group as a whole was refused and it is not known whose fault that is. Raises `StoreClosed` or
        `OutcomeUnknown` if the connection is gone.
        Raises `StoreLost` if the database was found gone after the transaction: it may or may not have happened, and
        is never to be acknowledged.
        Cancellation: before it starts; once started it is waited for.
        """
        ...

    async def look(self) -> StoreLost | None:
        """Say whether the database is gone, without writing anything."""
        ...


class Submitted(Generic[T]):
    """An operation that was handed in, and its outcome; see `storage.contract.store.Pending`."""

    __slots__ = ("_answered", "_outcome", "operation")

    def __init__(self, operation: Operation[T]) -> None:
        self.operation = operation
        self._outcome: Outcome[T] | None = None
        self._answered = trio.Event()

    @property
    def done(self) -> bool:
        """Whether the answer is there, so that `wait` will not have to."""
        return self._outcome is not None

    @trio.lowlevel.enable_ki_protection  # Ctrl-C inside `Event.wait` would break Trio when the answer comes
    async def wait(self) -> T:
        """See `storage.contract.store.Pending.wait`."""
        await self._answered.wait()
        assert self._outcome is not None
        if isinstance(self._outcome, Error):
            raise self._outcome.error
        return cast("Value[T]", self._outcome).value

    def answer(self, outcome: Outcome[T]) -> None:
        """Give the outcome to everybody who waits."""
        self._outcome = outcome
        self._answered.set()


class Writer:
    """The only writer of a database. `run` is its loop, in a child of the owner's nursery.

    `on_outage(error)` is called once when the store stops taking writes, `on_recovery(outage_s)` once when
    it takes them again, in Trio's seconds, `on_loss(error)` once when the database is gone. They are synchronous,
    and an exception in them is logged and goes no further.

    `look_every_s`: how often the engine is asked whether its database is still there while nothing is written. Once
    it is lost, nothing is acknowledged any more.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        on_outage: Callable[[StoreUnavailable], object] = lambda _: None,
        on_recovery: Callable[[float], object] = lambda _: None,
        on_loss: Callable[[StoreLost], object] = lambda _: None,
        look_every_s: float = math.inf,
    ) -> None:
        self._engine = engine
        self._on_outage = on_outage
        self._on_recovery = on_recovery
        self._on_loss = on_loss
        self._look_every_s = look_every_s
        self._lost: StoreLost | None = None
        self._guard = ForkGuard()
        self._queue: deque[Submitted[Any]] = deque()
        self._batch: Sequence[Submitted[Any]] = ()
        self._wake = trio.Event()
        self._close_asked = trio.Event()
        self._ended = trio.Event()
        self._running = False
        self._grace_s = 0.0
        self._patience_ends_s: float | None = None
        self._cause: StoreUnavailable | None = None
        self._outage_since_s = 0.0
        self._statistics = WriterStatistics()

    @property
    def available(self) -> bool:
        """Whether the last attempt to write reached the disk."""
        return self._cause is None

    @property
    def cause(self) -> StoreUnavailable | None:
        """Why the store takes no writes at present; None if it does."""
        return self._cause

    @property
    def lost(self) -> StoreLost | None:
        """What became of the database, if it is gone: there is no way back."""
        return self._lost

    @property
    def statistics(self) -> WriterStatistics:
        """A snapshot."""
        return self._statistics

    def submit(self, operation: Operation[T]) -> Submitted[T]:
        """See `storage.contract.store.Store.submit`. Its callers bound the queue: an actor hands in one turn at a
        time.
        """
        self._guard.check()
        if self._close_asked.is_set() or self._ended.is_set():
            raise StoreClosed
        if self._lost is not None:
            raise self._lost
        submitted = Submitted(operation)
        self._queue.append(submitted)
        self._wake.set()
        return submitted

    async def commit(self, operation: Operation[T]) -> T:
        """Hand in an operation and wait for its answer."""
        return await self.submit(operation).wait()

    @trio.lowlevel.enable_ki_protection  # Ctrl-C goes to the host, never through the middle of the queue
    async def run(self) -> None:
        """Commit what is handed in until closed.

        Cancellation: a transaction under way ends first and its answers are given; whatever still waits
        then is answered `OutcomeUnknown`. A connection that is closed underneath ends the loop the same
        way, quietly.
        """
        if self._ended.is_set():
            return
        self._running = True
        try:
            await self._serve()
        except (StoreClosed, OutcomeUnknown):
            pass  # the connection is gone: what waits is answered below, and `submit` says so from now on
        finally:
            self._end()

    @trio.lowlevel.enable_ki_protection
    async def aclose(self, grace_s: float) -> None:
        """Take nothing new, commit what waits, and end the loop.

        While the store is not available, waits at most `grace_s` seconds for it; what remains then is
        answered `OutcomeUnknown`, as is everything if `run` was never started. A second call waits for the
        first.

        Cancellation: stops the waiting; the closing goes on.
        """
        self._guard.check()
        if not self._close_asked.is_set():
            self._grace_s = grace_s
            self._close_asked.set()
            self._wake.set()
        for _ in range(2):  # a `run` that was only just started: Trio may take us first once, never twice
            await trio.lowlevel.cancel_shielded_checkpoint()
        if not self._running:
            self._end()
        await self._ended.wait()

    async def _serve(self) -> None:
        while True:
            if self._queue:
                await self._settle(self._take())
            elif self._close_asked.is_set():
                return
            else:
                self._wake = trio.Event()
                with trio.move_on_after(self._look_every_s) as waiting:
                    await self._wake.wait()
                if waiting.cancelled_caught and self._lost is None and (lost := await self._engine.look()):
                    self._lose(lost)

    def _take(self) -> list[Submitted[Any]]:
        batch = [self._queue.popleft() for _ in range(min(len(self._queue), BATCH_UNITS_MAX))]
        self._batch = batch
        return batch

    async def _settle(self, batch: list[Submitted[Any]]) -> None:
        """Bring a batch to its answers, however long the store is away."""
        outcomes: list[Outcome[Any]]
        try:
            if self._lost is not None:
                raise self._lost
            outcomes = await self._commit_whatever_comes([submitted.operation for submitted in batch])
            self._recovered()
        except StoreLost as lost:
            self._lose(lost)
            outcomes = [Error(lost) for _ in batch]
        self._batch = ()
        for submitted, outcome in zip(batch, outcomes, strict=True):
            submitted.answer(outcome)

    async def _commit_whatever_comes(self, operations: list[Operation[Any]]) -> list[Outcome[Any]]:
        for pause_s in _pauses_s():
            try:
                return await self._write(operations)
            except StoreLost:
                raise
            except StoreUnavailable as exc:
                self._unavailable(exc)
            except UnitRefused as exc:
                return await self._single_out(operations, exc)
            await self._pause(pause_s)
        raise AssertionError("the pauses never end")

    async def _single_out(self, operations: list[Operation[Any]], exc: UnitRefused) -> list[Outcome[Any]]:
        """The group was refused as a whole, so it is not known whose fault that is: ask one by one."""
        if len(operations) == 1:
            return [Error(exc)]
        return [
            outcome for operation in operations for outcome in await self._commit_whatever_comes([operation])
        ]

    async def _write(self, operations: list[Operation[Any]]) -> list[Outcome[Any]]:
        started_s = time.perf_counter()
        outcomes = await self._engine.write(operations)
        commit_s = time.perf_counter() - started_s
        past = self._statistics
        self._statistics = WriterStatistics(
            batches=past.batches + 1,
            units=past.units + len(operations),
            last_batch_units=len(operations),
            largest_batch_units=max(past.largest_batch_units, len(operations)),
            last_commit_s=commit_s,
            total_commit_s=past.total_commit_s + commit_s,
        )
        return outcomes

    def _unavailable(self, cause: StoreUnavailable) -> None:
        began = self._cause is None
        self._cause = cause
        if began:
            self._outage_since_s = trio.current_time()
            self._tell(self._on_outage, self._cause)

    def _recovered(self) -> None:
        if self._cause is not None:
            self._cause = None
            self._tell(self._on_recovery, trio.current_time() - self._outage_since_s)

    def _lose(self, lost: StoreLost) -> None:
        if self._lost is None:
            self._cause = self._lost = lost
            self._tell(self._on_loss, lost)

    def _tell(self, hook: Callable[[Any], object], value: object) -> None:
        try:
            hook(value)
        except Exception:
            _log.exception("storage.group_commit.hook_failed")

    async def _pause(self, pause_s: float) -> None:
        """Wait before the next try; raise `OutcomeUnknown` when closing has lost its patience."""
        if not self._close_asked.is_set():
            with trio.move_on_after(pause_s):
                await self._close_asked.wait()  # the moment that closing begins is worth a try at once
            return
        now_s = trio.current_time()
        if self._patience_ends_s is None:
            self._patience_ends_s = now_s + self._grace_s
        if now_s >= self._patience_ends_s:
            raise OutcomeUnknown
        await trio.sleep(min(pause_s, self._patience_ends_s - now_s))

    def _end(self) -> None:
        waiting = [*self._batch, *self._queue]
        self._batch = ()
        self._queue.clear()
        self._ended.set()
        for submitted in waiting:
            submitted.answer(Error(OutcomeUnknown()))


def _pauses_s() -> Iterator[float]:
    pause_s = RETRY_FIRST_S
    while True:
        yield pause_s
        pause_s = min(pause_s * 2, RETRY_CAP_S)
