"""aiosqlite on Trio: the only module that knows of asyncio.

aiosqlite gives each connection a thread and speaks asyncio; trio-asyncio runs an asyncio loop inside Trio.
The loop lives in a child of its own, so its context stays there: a host that uses trio-asyncio itself finds
its own loop current inside our block. One loop serves any number of connections.

*The hop.* aiosqlite's public methods take one statement each, but a transaction has to run whole on the
thread (see `storage.sqlite.connection`). So we subclass its `Connection` and hand a function to its protected runner,
`_execute`; this is the only place that does, and the range of versions is pinned. The result does not
travel back through the asyncio future, but straight from the thread to the waiting Trio task. That halves
the cost of a hop, and it makes the wait independent of the loop: a Ctrl-C that happens to land in a
callback kills the loop, but nobody who waits for a transaction is left waiting for ever.

*Closing.* First the SQLite connection is closed on its thread, after the works already asked for; then the
thread ends and is joined; then the loop goes, since a thread that reports to a closed loop dies noisily. A
child of the bridge does it, so it is finished even if whoever asked for it is cancelled or interrupted. A
statement that runs on is interrupted after a grace. aiosqlite's thread would keep the process alive for as
long as it lives; ours is a daemon, so a work that cannot be interrupted (an endless loop in Python) costs a
warning instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import warnings
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Final, Generic, TypeVar, cast

import aiosqlite
import trio
from outcome import Error, Outcome, capture

from storage.errors import OutcomeUnknown, StoreClosed
from storage.forks import ForkGuard
from storage.logging import get_logger

with warnings.catch_warnings():
    # On Python 3.12 its import warns of its own future; a host that makes errors of warnings can do nothing
    # about it.
    warnings.simplefilter("ignore", DeprecationWarning)
    import trio_asyncio

T = TypeVar("T")

CLOSE_GRACE_S: Final = 2.0  # for the works already asked for, before their statement is interrupted
INTERRUPT_GRACE_S: Final = 1.0  # for an interrupted statement to end; with the grace, well under five seconds
JOIN_S: Final = 1.0  # the thread has done its last work by then and only has to return

_log = get_logger("storage.bridge")


def open_bridge() -> AbstractAsyncContextManager[Bridge]:
    """Keep an asyncio loop and the threads of its connections for as long as the block lasts.

    Leaving closes what is still open, takes at most a few seconds, and leaves no thread behind (but see the
    module about works that never end). Exceptions of the block come out as they are, not in a group.

    Cancellation: reaches the block, never the closing.
    """
    return _BridgeManager()


class _BridgeManager:
    """A class: a generator of `contextlib` lets Ctrl-C strike between the host's block and our nursery."""

    def __init__(self) -> None:
        self._bridge = Bridge()
        self._nursery_manager = trio.open_nursery()

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> Bridge:
        nursery = await self._nursery_manager.__aenter__()
        nursery.start_soon(self._bridge._serve, nursery)
        try:
            with trio.CancelScope(shield=True):
                await self._bridge._ready.wait()
        except BaseException as exc:
            await self.__aexit__(type(exc), exc, exc.__traceback__)
            raise
        return self._bridge

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._bridge._leave.set()
        try:
            return await self._nursery_manager.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            if group.exceptions == (error,):
                return False  # nothing else went wrong: the error of the block goes on by itself, unwrapped
            interrupts, others = group.split(KeyboardInterrupt)
            if interrupts is not None and others is None:
                raise KeyboardInterrupt from group
            raise


class Bridge:
    """Makes connections that live on threads of their own. Comes from `open_bridge`."""

    def __init__(self) -> None:
        self._guard = ForkGuard()
        self._connections: set[ThreadConnection] = set()
        self._ready = trio.Event()
        self._leave = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._loop: Any = None

    @trio.lowlevel.enable_ki_protection
    async def connect(self, opener: Callable[[], sqlite3.Connection]) -> ThreadConnection:
        """Start a thread, call `opener` on it, and return the connection that it opened.

        Raises what `opener` raises (then the thread is gone again), `StoreClosed` if the bridge is closing.

        Cancellation: `opener` runs to its end. Who is cancelled meanwhile gets `trio.Cancelled` after the
        connection is closed again.
        """
        self._guard.check()
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._leave.is_set() or self._nursery is None:
            raise StoreClosed
        connection = ThreadConnection(self._loop, self._nursery, opener)
        self._connections.add(connection)
        try:
            await connection._open()
            await trio.lowlevel.checkpoint_if_cancelled()
        except BaseException:
            await connection.aclose()
            raise
        finally:
            self._connections = {each for each in self._connections if not each.closed}
        return connection

    @trio.lowlevel.enable_ki_protection
    async def _serve(self, nursery: trio.Nursery) -> None:
        """The child that holds the loop. Ends when the block is left; ends the block when the loop dies."""
        try:
            with trio.CancelScope(shield=True):
                async with trio_asyncio.open_loop() as self._loop:
                    self._loop.set_exception_handler(_log_stray_error)
                    self._nursery = nursery
                    self._ready.set()
                    try:
                        await self._leave.wait()  # trio-asyncio cancels this when its loop dies
                    finally:
                        await self._close_all()
        finally:
            self._nursery = None
            self._ready.set()

    async def _close_all(self) -> None:
        self._leave.set()
        with trio.CancelScope(shield=True):
            for connection in self._connections:
                connection._begin_closing()
            for connection in self._connections:
                await connection._closed.wait()


class ThreadConnection:
    """`storage.sqlite.connection.Connection` on a thread of its own. Comes from `Bridge.connect`."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, nursery: trio.Nursery, opener: Callable[[], sqlite3.Connection]
    ) -> None:
        self._loop = loop
        self._nursery = nursery
        self._guard = ForkGuard()
        self._trio = trio.lowlevel.current_trio_token()
        self._runner = _Runner(opener, self._tell_ended)
        self._waiting: set[_Reply[Any]] = set()
        self._closing = False
        self._ended = trio.Event()
        self._closed = trio.Event()

    @property
    def closed(self) -> bool:
        """Whether the closing is over."""
        return self._closed.is_set()

    @trio.lowlevel.enable_ki_protection
    async def run(self, work: Callable[[sqlite3.Connection], T], /) -> T:
        """Run `work` on the thread; see `storage.sqlite.connection.Connection.run`."""
        self._guard.check()
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._closing:
            raise StoreClosed
        reply: _Reply[T] = _Reply()
        queued = self._runner.run(lambda raw: self._tell(reply.deliver, capture(work, raw)))
        _start(queued, self._loop)
        try:
            return await self._answer(reply)
        finally:
            queued.close()

    @trio.lowlevel.enable_ki_protection
    async def aclose(self) -> None:
        """Close the connection and end its thread; see `storage.sqlite.connection.Connection.aclose`."""
        self._guard.check()
        self._begin_closing()
        with trio.CancelScope(shield=True):
            await self._closed.wait()

    @trio.lowlevel.enable_ki_protection
    async def _open(self) -> None:
        reply: _Reply[Any] = _Reply()
        opening = asyncio.ensure_future(self._runner.open(), loop=self._loop)
        opening.add_done_callback(lambda done: reply.deliver(capture(done.result)))
        await self._answer(reply)

    async def _answer(self, reply: _Reply[T]) -> T:
        self._waiting.add(reply)
        try:
            return await reply.wait()
        finally:
            self._waiting.discard(reply)

    def _begin_closing(self) -> None:
        if not self._closing:
            self._closing = True
            self._nursery.start_soon(self._finish)

    @trio.lowlevel.enable_ki_protection
    async def _finish(self) -> None:
        with trio.CancelScope(shield=True):
            self._runner.end()
            if not await self._ends_within(CLOSE_GRACE_S):
                self._runner.interrupt_statement()
                if not await self._ends_within(INTERRUPT_GRACE_S):
                    self._runner.given_up = True
                    _log.warning("storage.sqlite.bridge.thread_left", thread=self._runner.thread.name)
            self._give_up_waiting()
            self._closed.set()

    async def _ends_within(self, grace_s: float) -> bool:
        with trio.move_on_after(grace_s):
            await self._ended.wait()
            self._runner.thread.join(JOIN_S)
        return self._ended.is_set()

    def _tell(self, told: Callable[..., object], *args: object) -> None:
        """Call `told` in the Trio thread, from the connection's."""
        with contextlib.suppress(trio.RunFinishedError):  # given up long ago
            self._trio.run_sync_soon(told, *args)

    def _tell_ended(self) -> None:
        self._tell(self._thread_ended)

    def _thread_ended(self) -> None:
        self._ended.set()
        self._give_up_waiting()  # nobody is left to answer

    def _give_up_waiting(self) -> None:
        for reply in list(self._waiting):
            reply.deliver(Error(self._runner.failure or OutcomeUnknown()))


class _Runner(aiosqlite.Connection):
    """aiosqlite's thread and its protected runner: all that we lean on of a foreign class is here."""

    def __init__(self, opener: Callable[[], sqlite3.Connection], on_end: Callable[[], None]) -> None:
        super().__init__(self._open_here, iter_chunk_size=1)
        self._opener = opener
        self._on_end = on_end
        self._serve_queue = self._thread.run
        self._thread.run = self._live  # type: ignore[method-assign]
        self._thread.name = "turnkeeper-store"
        self._thread.daemon = True
        self.given_up = False
        self.thread = self._thread
        self.opened: sqlite3.Connection | None = None
        self.failure: BaseException | None = (
            None  # the opener's; asyncio may tell of it after the thread's end
        )

    def __del__(self) -> None:
        """Not aiosqlite's, which stops the thread: `end` does that, and in a forked child nothing may."""

    async def open(self) -> None:
        """Start the thread and open the connection on it. Asyncio-flavoured."""
        await self

    async def run(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Queue `work`, which must not raise, for the thread. Asyncio-flavoured."""
        await self._execute(lambda: work(self._conn))  # type: ignore[no-untyped-call]

    def end(self) -> None:
        """Let the thread close the connection and end, after what it was given so far."""
        token = trio_asyncio.current_loop.set(None)  # so that the thread reports its end to no loop
        try:
            self.stop()
        finally:
            trio_asyncio.current_loop.reset(token)

    def interrupt_statement(self) -> None:
        """Make the statement that is running fail, from any thread."""
        if self.opened is not None:
            with contextlib.suppress(sqlite3.ProgrammingError):  # closed this very moment
                self.opened.interrupt()

    def _open_here(self) -> sqlite3.Connection:
        try:
            self.opened = self._opener()
        except BaseException as exc:
            self.failure = exc
            raise
        return self.opened

    def _live(self) -> None:
        try:
            self._serve_queue()
        except RuntimeError:
            if not self.given_up:  # else the loop to which it would report is closed, and nobody listens
                raise
        finally:
            if self.opened is not None:
                self.opened.close()
            self._on_end()


class _Reply(Generic[T]):
    """A Trio task that waits, deaf to cancellation and Ctrl-C, for an outcome."""

    def __init__(self) -> None:
        self._task: trio.lowlevel.Task | None = trio.lowlevel.current_task()

    async def wait(self) -> T:
        return cast("T", await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED))

    def deliver(self, outcome: Outcome[T]) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task, outcome)


def _start(coroutine: Coroutine[Any, Any, object], loop: asyncio.AbstractEventLoop) -> None:
    """Run an asyncio coroutine up to its first wait, here, as if `loop` were the current one."""
    token = trio_asyncio.current_loop.set(loop)
    try:
        coroutine.send(None)
    finally:
        trio_asyncio.current_loop.reset(token)


def _log_stray_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Left alone, trio-asyncio raises such an error in the host's nursery; none of its business."""
    with contextlib.suppress(Exception):  # a host's broken log processor included
        _log.error(
            "storage.sqlite.bridge.stray_error",
            message=context.get("message"),
            exc_info=context.get("exception"),
        )
