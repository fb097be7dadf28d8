"""What the tests of the runtime share: a host on a virtual clock, handlers that obey the test, and looking at
the file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, TypeVar

import attrs
import trio
import trio.testing

from actors import Company, Context, Event, Node, Runtime, Submit
from actors.handlers import Handler, freeze
from actors.host import run_runtime
from actors.runtime.log import event_of
from actors.runtime.options import Options
from actors.testing import VirtualClock, run_until_idle
from storage.contract.events import LogPlace, ReadLog
from storage.sqlite.connection import Connection
from storage.sqlite.engine import answer
from tests.inside import inside

T = TypeVar("T")

CHECKED_MAX = 50
"""A check costs a look at every attempt; with hundreds of them it is made only at the end."""


# --- the host -------------------------------------------------------------------------------------------------


@asynccontextmanager
async def a_host(
    path: Path,
    handlers: Mapping[str, Handler] | None = None,
    *,
    clock: VirtualClock | None = None,
    wrap: Callable[[Connection], Connection] = lambda connection: connection,
    timeless: bool = False,
    **options: Any,
) -> AsyncIterator[Runtime]:
    """`actors.testing.open_test_runtime`, and the registry of attempts is checked after every commit.

    Nobody pulls the plug here, so commits are not waited for down to the disk. ``timeless``: no virtual time may
    pass, for nothing in the test waits for a time; if some does, a wake was lost and a timer stood in for it.
    """
    began_s = trio.current_time()
    known = freeze({"ok": ok, "fails": fails, **(handlers or {})})
    made = Options(known, clock_ms=clock or VirtualClock(), **options)
    async with run_runtime(path, made, durability="normal", how="inline", wrap=wrap) as runtime:
        publisher = inside(runtime).services.publisher
        publish = publisher.published

        def published(*args: Any) -> None:
            if len(inside(runtime).services.registry) < CHECKED_MAX:
                inside(runtime).services.registry.check()
            publish(*args)

        setattr(publisher, "published", published)  # noqa: B010 - a method of one instance
        yield runtime
        inside(runtime).services.registry.check()
    assert not timeless or trio.current_time() == began_s, "a timer had to stand in for a wake"
    assert len(inside(runtime).services.registry) == 0 or inside(runtime).services.store.cause is not None


async def settled(company: Company, task: str) -> str:
    """Wait for the end of the task's newest run and say which it is."""
    return (await company.when_settled(task)).status.value


async def idle(runtime: Runtime) -> None:
    """Until nothing can go on by itself; a day of virtual time is taken for never.

    What the test has just let go gets to run first: nobody waits for what was left behind.
    """
    await trio.testing.wait_all_tasks_blocked()
    with trio.fail_after(86_400):
        await run_until_idle(runtime)


async def quiet(company: Company) -> None:
    """Until nothing of the company is in flight."""
    with trio.fail_after(86_400):
        await company.when_idle()


# --- handlers ---------------------------------------------------------------------------------------------------


async def ok(ctx: Context) -> object:
    """Succeeds at once with its payload."""
    return ctx.payload


async def fails(_ctx: Context) -> None:
    raise ValueError("no luck")


@attrs.define(eq=False)
class Gated:
    """A handler that says when it starts and returns when it is let go. ``most`` is how many ran at once."""

    result: object = "done"
    open: trio.Event = attrs.field(factory=trio.Event)
    contexts: list[Context] = attrs.field(factory=list)
    running: int = 0
    most: int = 0
    cancelled: int = 0
    _news: trio.Event = attrs.field(factory=trio.Event)

    async def __call__(self, ctx: Context) -> object:
        self.contexts.append(ctx)
        self.running += 1
        self.most = max(self.most, self.running)
        self._news.set()
        self._news = trio.Event()
        try:
            await self.open.wait()
        except trio.Cancelled:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        return self.result

    @property
    def started(self) -> list[str]:
        """Ids of the tasks it was started for, in that order."""
        return [ctx.task for ctx in self.contexts]

    async def has_started(self, count: int = 1) -> None:
        """Wait until it was started so often."""
        with trio.fail_after(86_400):
            while len(self.contexts) < count:
                await self._news.wait()


@attrs.define(eq=False)
class Stubborn(Gated):
    """A handler that does not hear its cancellation: it ends only when it is let go."""

    async def __call__(self, ctx: Context) -> object:
        with trio.CancelScope(shield=True):
            return await super().__call__(ctx)
        raise AssertionError("a scope that nobody cancels")


@attrs.define(eq=False)
class Scripted:
    """A handler that does one thing after the other: raises what is an error, returns what is not."""

    script: Sequence[object]
    contexts: list[Context] = attrs.field(factory=list)

    async def __call__(self, ctx: Context) -> object:
        step = self.script[min(len(self.contexts), len(self.script) - 1)]
        self.contexts.append(ctx)
        if isinstance(step, BaseException):
            raise step
        return step

    @property
    def calls(self) -> int:
        return len(self.contexts)


def a_task(handler: str | None = "ok", **fields: Any) -> Submit:
    """A task of one node, called after its id."""
    title = str(fields.get("id") or "a task")
    if "nodes" not in fields and "graph" not in fields:
        fields["handler"] = handler
    return Submit(title, **fields)


def a_node(name: str = "n", handler: str = "ok", **fields: Any) -> Node:
    return Node(name, handler, **fields)


# --- the file ---------------------------------------------------------------------------------------------------


def sql(path: Path, statement: str, *params: object) -> list[Any]:
    """Go round the code: run a statement on the file, on a connection of our own, and commit it."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=5)) as raw:
        return raw.execute(statement, params).fetchall()


def stored_events(path: Path, company: str | None = None) -> list[Event]:
    """The whole log, as it stands in the file; of one company if it is named."""
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        events = [event_of(line) for line in answer(raw, ReadLog(None, LogPlace(), 10_000_000)).lines]
    return events if company is None else [event for event in events if event.company == company]


def kinds(events: Iterable[Event]) -> list[str]:
    return [event.kind for event in events]


def of_kind(events: Sequence[Event], *wanted: str) -> list[Event]:
    return [event for event in events if event.kind in wanted]


def spec_text(name: str = "n", handler: str = "ok") -> str:
    """A node's definition as it is stored."""
    from actors.core.shape import shape_of, shape_text

    return shape_of(shape_text((Node(name, handler),))).nodes[0].text


# --- connections that obey the test --------------------------------------------------------------------------------


class GatedConnection:
    """A writer's connection whose hops wait while it is shut. ``asked`` counts hops, ``done`` those that ended."""

    def __init__(self, inner: Connection) -> None:
        self._inner = inner
        self._open = trio.Event()
        self._open.set()
        self._asked_news = trio.Event()
        self.asked = 0
        self.done = 0

    def shut(self) -> None:
        self._open = trio.Event()

    def let_go(self) -> None:
        self._open.set()

    async def is_asked(self) -> None:
        """Wait until a hop waits at the gate."""
        with trio.fail_after(86_400):
            while self.asked == self.done:
                await self._asked_news.wait()

    async def run(self, work: Callable[[sqlite3.Connection], T], /) -> T:
        self.asked += 1
        self._asked_news.set()
        self._asked_news = trio.Event()
        with trio.CancelScope(shield=True):
            await self._open.wait()
        try:
            return await self._inner.run(work)
        finally:
            self.done += 1

    async def aclose(self) -> None:
        await self._inner.aclose()


class Wrapper:
    """Puts a connection of a kind round the writer's and keeps it, for ``wrap=``."""

    def __init__(self, kind: Callable[[Connection], Any]) -> None:
        self._kind = kind
        self.made: Any = None

    def __call__(self, connection: Connection) -> Connection:
        self.made = self._kind(connection)
        made: Connection = self.made
        return made
