"""Handlers: what a node runs, and what it is given.

A handler is an ``async`` function, or a plain one, which then runs in a worker thread. It gets a `Context`
and returns a JSON value. It may run again after a crash; ``ctx.key`` stays the same over retries, crashes
and a person's `Retry`, so give it to whoever can tell a repeated request from a new one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from storage.codec import clean_text
from storage.logging import get_logger

if TYPE_CHECKING:
    from actors.runtime.handle import Company

Handler = Callable[["Context"], Awaitable[Any]] | Callable[["Context"], Any]


class WayBack(Protocol):
    """What a handler's words become: the runtime's side of a `Context`."""

    def progress(self, text: str) -> None: ...
    def spend(self, units: int) -> None: ...
    def waiting(self, reason: str) -> AbstractAsyncContextManager[None]: ...
    async def record_process(self, pid: int, started: str) -> None: ...
    @property
    def cancelled(self) -> bool: ...
    @property
    def closing(self) -> bool: ...


@attrs.frozen(eq=False)
class Context:
    """What a handler knows of the attempt it is.

    ``inputs`` maps the names of the nodes before it to their results, ``upstream`` the ids of the tasks that its task
    depends on to theirs: node → result, of the runs that were the newest when this one was first admitted.
    ``payload`` is the node's own, or else the run's or the task's; ``task_payload`` is always the latter.
    ``feedback`` is what was said when the result before this was sent back (`SendBack`), the same for every attempt of
    this generation; else ``None``. ``company`` is the same handle that the host uses: a handler may send messages to
    its own company.
    """

    company: Company
    task: str
    run: int
    node: str
    attempt: int
    generation: int
    payload: Any
    task_payload: Any
    inputs: Mapping[str, Any]
    upstream: Mapping[str, Mapping[str, Any]]
    feedback: str | None
    key: str
    """The idempotency key, ``company/task/run/node/generation``."""
    private_folder: Path
    """Beside the database, for files that only this user may read. It may not exist yet. What `actors.commands`
    puts in it is removed with the attempt, or if the process dies at the next start.
    """
    _way_back: WayBack = attrs.field(repr=False, alias="way_back")

    @cached_property
    def log(self) -> Any:
        """A structlog logger bound to company, task, run, node and attempt."""
        bound = {"company": self.company.name, "task": self.task, "run": self.run}
        return get_logger("turnkeeper").bind(**bound, node=self.node, attempt=self.attempt)

    def progress(self, text: str) -> None:
        """Say how far it is. Live only: subscribers see the latest; nothing is stored. Safe in a worker
        thread.
        """
        self._way_back.progress(clean_text(str(text), chars_max=PROGRESS_CHARS_MAX))

    def spend(self, units: int) -> None:
        """Add to what this attempt has spent, in the units of the budgets (`SetBudget`). Whatever way it ends, late or
        left behind too, that is booked; while it runs, about once a second. It is never refused for a budget: what is
        spent is spent. Safe in a worker thread.

        Raises `InvalidSpend` unless it is an integer of at least 0; nothing is added then.
        """
        self._way_back.spend(units)

    def waiting(self, reason: str) -> AbstractAsyncContextManager[None]:
        """``async with ctx.waiting("the answer of …"):`` frees the execution slot for the time of the block.

        Leaving waits until there is a slot again; attempts that come back go before new ones. The run keeps
        its run slot, and `explain` of the run, and of those that it holds up, says what is waited for. The
        stall limit does not run. Async handlers only.
        """
        return self._way_back.waiting(reason)

    @property
    def cancel_requested(self) -> bool:
        """Whether the attempt was asked to end. A plain function cannot be cancelled, so a long one should
        look now and then.
        """
        return self._way_back.cancelled

    @property
    def closing(self) -> bool:
        """Whether the runtime closes *now*: from then on nobody waits for anything longer than the grace."""
        return self._way_back.closing

    async def record_process(self, pid: int, started: str) -> None:
        """Store the process that works for this attempt, durably, so that the next host can end it if this
        one dies.
        """
        await self._way_back.record_process(pid, started)


PROGRESS_CHARS_MAX = 200


def freeze(handlers: Mapping[str, Handler]) -> Mapping[str, Handler]:
    """A copy of the host's mapping that cannot change under us; raises ``TypeError`` for what cannot be
    called.
    """
    for name, handler in handlers.items():
        if not isinstance(name, str) or not callable(handler):
            raise TypeError(f"handlers must map names to functions, not {name!r} to {handler!r}")
    return MappingProxyType(dict(handlers))
