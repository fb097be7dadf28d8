"""Group commit: the one road to the disk, shared by all companies.

A commit costs an fsync and a hop to the connection's thread, whatever is in it. So the writer takes every
unit that is waiting into one transaction. If the database refuses one, all are run again, each behind a
SAVEPOINT of its own, so the guilty one is rolled back alone and its neighbours never know.

Trouble with the place (see `storage.errors`) is nobody's fault: the whole transaction is rolled back and
the same units are tried again, in the same order, with growing pauses, while new ones queue up behind. So
**a unit may be run more than once, and has to be a function of the connection alone**: what an earlier run
of it did to the database is gone, what it did to anything else is not.
"""

from __future__ import annotations

import contextlib
import math
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar, cast

import attrs
import structlog
import trio
from outcome import Error, Outcome, Value

from storage.errors import (
    OutcomeUnknown,
    StoreClosed,
    StoreLost,
    StoreUnavailable,
    classify,
    refused,
    unavailable,
)
from storage.ownership import ForkGuard
from storage.store import Connection, transaction
from storage.units import UnitOfWork, write_together

T = TypeVar("T")
Unit = Callable[[sqlite3.Connection], T]

BATCH_UNITS_MAX: Final = (
    256  # past 100 the fsync is shared out; more only makes the first of them wait for the last
)
RETRY_FIRST_S: Final = 0.05  # a neighbour's transaction is over by then
RETRY_CAP_S: Final = 5.0  # an operator who made room sees it work at once

_log = structlog.get_logger("storage.writer")


@attrs.frozen
class WriterStatistics:
    """A snapshot of what the writer has done. Seconds are real time, from asking for the hop to its end."""

    batches: int = 0
    units: int = 0
    last_batch_units: int = 0
    largest_batch_units: int = 0
    last_commit_s: float = 0.0
    total_commit_s: float = 0.0


class Pending(Generic[T]):
    """A unit that was handed in, and what becomes of it."""

    __slots__ = ("_answered", "_outcome", "_unit")

    def __init__(self, unit: Unit[T]) -> None:
        self._unit = unit
        self._outcome: Outcome[T] | None = None
        self._answered = trio.Event()

    @property
    def done(self) -> bool:
        """Whether the answer is there, so that `wait` will not have to."""
        return self._outcome is not None

    @trio.lowlevel.enable_ki_protection  # Ctrl-C inside `Event.wait` would break Trio when the answer comes
    async def wait(self) -> T:
        """Return what the unit returned, after it was committed. May be called by several, and again.

        Raises `UnitRefused` if the database refused it, `OutcomeUnknown` if the writer was closed
        meanwhile, `StoreLost` if its files are gone, and any other exception that the unit itself raised
        (`StaleEpoch` among them); none of these changed anything, save that `OutcomeUnknown` and `StoreLost`
        cannot say.

        Cancellation: stops the waiting; the unit stands.
        """
        await self._answered.wait()
        assert self._outcome is not None
        if isinstance(self._outcome, Error):
            raise self._outcome.error
        return cast("Value[T]", self._outcome).value

    def _answer(self, outcome: Outcome[T]) -> None:
        self._outcome = outcome
        self._answered.set()


class Writer:
    """The only writer of a database. `run` is its loop, in a child of the owner's nursery.

    `on_outage(error)` is called once when the store stops taking writes, `on_recovery(outage_s)` once when
    it takes them again, in Trio's seconds; `on_loss(error)` once when its files are gone. They are synchronous, and an
    exception in them is logged and goes no further.

    `look`, called on the connection's thread after each transaction and every `look_every_s` seconds without one, says
    whether the files are gone. If so nothing is acknowledged any more: everything is answered with what it returned.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        look: Callable[[], StoreLost | None] = lambda: None,
        look_every_s: float = math.inf,
        on_outage: Callable[[StoreUnavailable], object] = lambda _: None,
        on_recovery: Callable[[float], object] = lambda _: None,
        on_loss: Callable[[StoreLost], object] = lambda _: None,
    ) -> None:
        self._connection = connection
        self._look = look
        self._look_every_s = look_every_s
        self._on_loss = on_loss
        self._on_outage = on_outage
        self._on_recovery = on_recovery
        self._guard = ForkGuard()
        self._queue: deque[Pending[Any]] = deque()
        self._batch: Sequence[Pending[Any]] = ()
        self._wake = trio.Event()
        self._close_asked = trio.Event()
        self._ended = trio.Event()
        self._running = False
        self._grace_s = 0.0
        self._patience_ends_s: float | None = None
        self._cause: StoreUnavailable | None = None
        self._lost: StoreLost | None = None
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
        """What became of the files, if they are gone: there is no way back."""
        return self._lost

    @property
    def statistics(self) -> WriterStatistics:
        """A snapshot."""
        return self._statistics

    def submit(self, unit: Unit[T]) -> Pending[T]:
        """Hand in a unit; it is committed after all that were handed in before. Never waits.

        `unit` runs on the connection inside the writer's transaction, maybe more than once (see the
        module), and must not begin or end a transaction. Its callers bound the queue: an actor hands in one
        turn at a time.

        Raises `StoreClosed` once closing has begun, `StoreLost` once the files are gone, `ForkedProcess` in a forked
        child.
        """
        self._guard.check()
        if self._close_asked.is_set() or self._ended.is_set():
            raise StoreClosed
        if self._lost is not None:
            raise self._lost
        pending = Pending(unit)
        self._queue.append(pending)
        self._wake.set()
        return pending

    async def commit(self, unit: Unit[T]) -> T:
        """Hand in a unit and wait for its answer; errors and cancellation as `submit` and `Pending.wait`."""
        return await self.submit(unit).wait()

    async def between_commits(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``work`` on the connection outside any transaction; it waits for the commit under way, and the next
        one waits for it. For what SQLite allows only there. Errors and cancellation as `Connection.run`.
        """
        self._guard.check()
        return await self._connection.run(work)

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
                if waiting.cancelled_caught and self._lost is None:
                    await self._look_now()

    async def _look_now(self) -> None:
        lost = await self._connection.run(lambda _: self._look())
        if lost is not None:
            self._lose(lost)

    def _take(self) -> list[Pending[Any]]:
        batch = [self._queue.popleft() for _ in range(min(len(self._queue), BATCH_UNITS_MAX))]
        self._batch = batch
        return batch

    async def _settle(self, batch: list[Pending[Any]]) -> None:
        """Bring a batch to its answers, however long the store is away."""
        outcomes: list[Outcome[Any]]
        try:
            if self._lost is not None:
                raise self._lost
            outcomes = await self._commit_whatever_comes([pending._unit for pending in batch])
            self._recovered()
        except StoreLost as lost:
            self._lose(lost)
            outcomes = [Error(lost) for _ in batch]
        self._batch = ()
        for pending, outcome in zip(batch, outcomes, strict=True):
            pending._answer(outcome)

    async def _commit_whatever_comes(self, units: list[Unit[Any]]) -> list[Outcome[Any]]:
        for pause_s in _pauses_s():
            try:
                return await self._hop(units)
            except sqlite3.Error as exc:
                if not hasattr(exc, "sqlite_errorcode"):
                    raise StoreClosed from exc  # not SQLite's own: the connection was closed underneath
                if classify(exc) == "permanent":
                    return await self._single_out(units, exc)
                self._unavailable(exc)
            await self._pause(pause_s)
        raise AssertionError("the pauses never end")

    async def _single_out(self, units: list[Unit[Any]], exc: sqlite3.Error) -> list[Outcome[Any]]:
        """COMMIT was refused (a deferred constraint) and does not say whose fault it is: ask one by one."""
        if len(units) == 1:
            return [Error(_own_error(exc))]
        return [outcome for unit in units for outcome in await self._commit_whatever_comes([unit])]

    async def _hop(self, units: list[Unit[Any]]) -> list[Outcome[Any]]:
        started_s = time.perf_counter()
        outcomes = await self._connection.run(lambda raw: self._commit_here(raw, units))
        commit_s = time.perf_counter() - started_s
        past = self._statistics
        self._statistics = WriterStatistics(
            batches=past.batches + 1,
            units=past.units + len(units),
            last_batch_units=len(units),
            largest_batch_units=max(past.largest_batch_units, len(units)),
            last_commit_s=commit_s,
            total_commit_s=past.total_commit_s + commit_s,
        )
        return outcomes

    def _commit_here(self, raw: sqlite3.Connection, units: Sequence[Unit[Any]]) -> list[Outcome[Any]]:
        """On the connection's thread: what became of the files is known before anybody is answered."""
        try:
            return _commit_together(raw, units)
        finally:
            lost = self._look()
            if lost is not None:
                raise lost

    def _lose(self, lost: StoreLost) -> None:
        if self._lost is None:
            self._cause = self._lost = lost
            self._tell(self._on_loss, lost)

    def _unavailable(self, exc: sqlite3.Error) -> None:
        began = self._cause is None
        self._cause = unavailable(exc)
        if began:
            self._outage_since_s = trio.current_time()
            self._tell(self._on_outage, self._cause)

    def _recovered(self) -> None:
        if self._cause is not None:
            self._cause = None
            self._tell(self._on_recovery, trio.current_time() - self._outage_since_s)

    def _tell(self, hook: Callable[[Any], object], value: object) -> None:
        try:
            hook(value)
        except Exception:
            _log.exception("storage.writer.hook_failed")

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
        for pending in waiting:
            pending._answer(Error(OutcomeUnknown()))


def _pauses_s() -> Iterator[float]:
    pause_s = RETRY_FIRST_S
    while True:
        yield pause_s
        pause_s = min(pause_s * 2, RETRY_CAP_S)


class _TransactionGone(Exception):
    """A unit's failure took the whole transaction along; the others have to be run again."""


def _commit_together(raw: sqlite3.Connection, units: Sequence[Unit[Any]]) -> list[Outcome[Any]]:
    """Run the units in one transaction and give each its outcome. Runs whole on the connection.

    First as if none could fail, which is so nearly always and the fastest. If one does, it all begins anew with a
    savepoint for each.

    Raises only what concerns all of them: a transient error from anywhere, and what BEGIN or COMMIT itself
    raises.
    """
    if len(units) > 1:
        with contextlib.suppress(_TransactionGone):
            return transaction(raw, lambda raw: _run_all(raw, units))
    failed: dict[int, Error] = {}
    while len(failed) < len(units):
        try:
            return transaction(raw, lambda raw: _run_each(raw, units, failed))
        except _TransactionGone:
            continue
    return [failed[index] for index in range(len(units))]


def _run_all(raw: sqlite3.Connection, units: Sequence[Unit[Any]]) -> list[Outcome[Any]]:
    """Run the units one after the other, the turns of different companies in one go."""
    outcomes: list[Outcome[Any]] = []
    try:
        for together in _runs_of_turns(units):
            if isinstance(together, list):
                outcomes.extend(map(Value, write_together(raw, together)))
            else:
                outcomes.append(Value(together(raw)))
    except Exception as exc:
        if classify(exc) == "transient":
            raise
        raise _TransactionGone from exc
    if not raw.in_transaction:
        raise _TransactionGone
    return outcomes


def _runs_of_turns(units: Sequence[Unit[Any]]) -> Iterator[list[UnitOfWork] | Unit[Any]]:
    """The units in their order, those in a list that may be written together: turns of companies that are all
    different.
    """
    together: list[UnitOfWork] = []
    companies: set[int] = set()
    for unit in units:
        turn = unit if isinstance(unit, UnitOfWork) else None
        if together and (turn is None or turn.company_id in companies):
            yield together
            together, companies = [], set()
        if turn is None:
            yield unit
        else:
            together.append(turn)
            companies.add(turn.company_id)
    if together:
        yield together


def _run_each(
    raw: sqlite3.Connection, units: Sequence[Unit[Any]], failed: dict[int, Error]
) -> list[Outcome[Any]]:
    """Run all but those known to have failed.

    A unit that is alone needs no savepoint: the transaction is its border. Besides
    that, `RAISE(ROLLBACK)` and `ON CONFLICT ROLLBACK` end the transaction from inside a unit.
    """
    alone = len(units) - len(failed) == 1
    outcomes: list[Outcome[Any]] = []
    for index, unit in enumerate(units):
        outcome = failed.get(index) or (_run_bare(raw, unit) if alone else _run_in_savepoint(raw, unit))
        outcomes.append(outcome)
        if isinstance(outcome, Error) and index not in failed and (alone or not raw.in_transaction):
            failed[index] = outcome
            raise _TransactionGone
    return outcomes


def _run_in_savepoint(raw: sqlite3.Connection, unit: Unit[Any]) -> Outcome[Any]:
    raw.execute("SAVEPOINT unit")
    outcome = _run_bare(raw, unit)
    if raw.in_transaction:
        if isinstance(outcome, Error):
            raw.execute("ROLLBACK TO unit")
        raw.execute("RELEASE unit")
    return outcome


def _run_bare(raw: sqlite3.Connection, unit: Unit[Any]) -> Outcome[Any]:
    try:
        return Value(unit(raw))
    except Exception as exc:
        if classify(exc) == "transient":
            raise
        return Error(_own_error(exc))


def _own_error(exc: Exception) -> Exception:
    """What the submitter gets to see: SQLite's refusals in our words, anything else as it is."""
    if isinstance(exc, sqlite3.Error) and hasattr(exc, "sqlite_errorcode"):
        return refused(exc)
    return exc
