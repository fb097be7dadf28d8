"""The handle of a company: what a host, or a handler, says to it and asks of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import trio

from actors.errors import InvalidMessage, MailboxFull, RuntimeClosed, StoreUnavailable, WouldDeadlock
from actors.events import Event
from actors.messages import Message
from actors.messages.views import (
    AttemptView,
    BudgetView,
    Explanation,
    LimitsView,
    Outcome,
    ScheduleView,
    TaskStatus,
)
from storage.codec import check_name

from . import reads
from .current import current_attempt
from .deadlock import refuse_deadlock
from .directory import Cell
from .mailbox import USER_MAX, Envelope, Reply
from .services import Services

R = TypeVar("R")

LOOK_AGAIN_S = 1.0
"""How soon a waiter looks again while the store is away."""


class Reads:
    """What can be read of a company. Nothing here goes through its mailbox, waits for its work, or changes
    anything.

    Raises `TaskUnknown` for an id that the company does not have, `StoreUnavailable` while the database
    cannot be read.
    """

    def __init__(self, source: reads.Source, name: str) -> None:
        self._source = source
        self.name = name

    async def status(self, task: str) -> TaskStatus:
        """The task as it stands."""
        return await reads.status(self._source, self.name, _id(task))

    async def queue(self, *, goal: str | None = None) -> tuple[TaskStatus, ...]:
        """Unsettled tasks: those that hold a run slot, then the line in its order. ``goal`` narrows it."""
        return await reads.queue(self._source, self.name, goal)

    async def tasks(self, *, archived: bool = False) -> tuple[TaskStatus, ...]:
        """Every task, in the order of creation; archived ones only if asked for."""
        return await reads.tasks(self._source, self.name, archived=archived)

    async def schedules(self) -> tuple[ScheduleView, ...]:
        """Every schedule by name, with its last and its next fire."""
        return await reads.schedules(self._source, self.name)

    async def budget(self) -> BudgetView:
        """What the company may spend, what it has spent, and what its live attempts have reserved. Raises
        `StoreUnavailable`.
        """
        return await reads.budget(self._source, self.name)

    async def limits(self) -> LimitsView:
        """What the company may do at once, and whether it is paused. Raises `StoreUnavailable`."""
        return await reads.limits(self._source, self.name)

    async def explain(self, task: str) -> Explanation:
        """Every closed gate of the task, in order, with the ids, numbers and times concerned."""
        return await reads.explanation(self._source, self.name, _id(task))

    async def timeline(self, task: str) -> tuple[Event, ...]:
        """Every event of the task that is kept, oldest first."""
        return await reads.timeline(self._source, self.name, _id(task))

    async def result(self, task: str) -> Mapping[str, Any]:
        """Results of the newest run's succeeded nodes, by node."""
        return await reads.result(self._source, self.name, _id(task))

    async def attempts(self, task: str) -> tuple[AttemptView, ...]:
        """Every attempt at every node of every run of the task that is kept, oldest first."""
        return await reads.attempts(self._source, self.name, _id(task))


def _id(task: str) -> str:
    return check_name(task, what="a task id")


class Company(Reads):
    """A company of a running `Runtime`."""

    def __init__(self, services: Services, name: str) -> None:
        super().__init__(source_of(services), name)
        self._services = services

    def __repr__(self) -> str:
        return f"<company {self.name!r}>"

    async def ask(self, message: Message[R]) -> R:
        """Send a message and return its reply, which is durable.

        Raises a `Refused` error for a mistake of the sender's, `CompanyParked`, `CompanyDeleted`, `ActorCrashed`,
        `RuntimeClosed` (nothing happened), `StoreLost` if the database's files are gone, or `OutcomeUnknown`.
        Waits for room in the mailbox, and while
        the store is away. Cancellation: stops waiting; the message stands if it was put in the mailbox.
        """
        envelope = Envelope(_message(message), Reply())
        await self._put(envelope)
        assert envelope.reply is not None
        return cast("R", await envelope.reply.wait())

    async def tell(self, message: Message[Any]) -> None:
        """Send a message and do not wait for its outcome. A refusal becomes an event. Waits for room;
        errors as `ask`.
        """
        await self._put(Envelope(_message(message)))

    def tell_nowait(self, message: Message[Any]) -> None:
        """`tell` that never waits: raises `MailboxFull` if there is no room."""
        envelope = Envelope(_message(message))
        cell = self._cell()
        if not cell.parked_answer(envelope) and not cell.mailbox.put_nowait(envelope):
            raise MailboxFull(self.name, USER_MAX)

    async def _put(self, envelope: Envelope) -> None:
        cell = self._cell()
        if cell.parked_answer(envelope):
            await trio.lowlevel.checkpoint()
            return
        await cell.mailbox.put(envelope)

    def _cell(self) -> Cell:
        """The cell. Raises if nothing that is said from now on could be stored."""
        if self._services.shutdown.closing:
            raise RuntimeClosed
        self._services.check_store()
        return self._services.directory.cell(self.name)

    async def when_settled(self, task: str) -> Outcome:
        """Wait until the task's newest run is completed, failed or stopped; at once if it is.

        Raises `WouldDeadlock` in a handler that waits for its own task, for one that waits for it in turn,
        or for one that its own run keeps from a run slot; `RuntimeClosed` if the runtime closes first;
        `TaskUnknown`; `StoreLost` if the files are gone. Goes on waiting while the store is away.
        Cancellation: stops waiting.
        """
        task = _id(task)
        with self._waiting_for(task), self._services.notifier.following(self.name) as following:
            while True:
                news = following.event
                if self._services.notifier.closed:
                    raise RuntimeClosed("the runtime closed before the task settled")
                lost = self._services.store.lost
                try:
                    outcome = await self._outcome(task)
                except StoreUnavailable:  # not the end of waiting: it will be back
                    if lost is not None:
                        raise
                    with trio.move_on_after(LOOK_AGAIN_S):
                        await news.wait()
                    continue
                if outcome is not None:
                    return outcome
                if lost is not None:
                    raise lost
                await news.wait()

    async def _outcome(self, task: str) -> Outcome | None:
        """How the newest run settled; nothing if it has not."""
        seen = await reads.view(self._source, self.name, [task])
        state, entry = reads.entry_in(seen, task)
        run = entry.run
        if run is not None and run.status.settled:
            company_id, seq = state.company.company_id, entry.task.seq
            found = await reads.results_of_run(self._services.store, company_id, seq, run.number)
            return Outcome(task, run.number, run.status, found, run.reason)
        me = current_attempt.get(None)
        if me is not None:
            refuse_deadlock(self._services, me, (self.name, task))
        return None

    @contextmanager
    def _waiting_for(self, task: str) -> Iterator[None]:
        """While a handler waits it is known for whom, so that nobody waits for it in turn."""
        me = current_attempt.get(None)
        attempt = None if me is None else self._services.registry.get(me)
        if attempt is None:
            yield
            return
        target = (self.name, task)
        attempt.waits_for += (target,)
        try:
            yield
        finally:
            place = attempt.waits_for.index(target)
            attempt.waits_for = (*attempt.waits_for[:place], *attempt.waits_for[place + 1 :])

    async def when_idle(self) -> None:
        """Wait until nothing of the company is in flight: no attempt, no message, whatever is queued.

        Raises `RuntimeClosed` if the runtime closes first, `StoreLost` if the files are gone. Cancellation: stops
        waiting.
        """
        me = current_attempt.get(None)
        if me is not None and me.company == self.name:
            raise WouldDeadlock(me.key.task, "the handler that waits is itself in flight")
        with self._services.notifier.following(self.name) as following:
            while True:
                news = following.event
                if self._services.notifier.closed:
                    raise RuntimeClosed("the runtime closed before the company was idle")
                if self._services.store.lost is not None:
                    raise self._services.store.lost
                if self._idle():
                    await trio.lowlevel.checkpoint()
                    return
                await news.wait()

    def _idle(self) -> bool:
        cell = self._services.directory.find(self.name)
        return not self._services.registry.busy(self.name) and (cell is None or cell.idle)


def source_of(services: Services) -> reads.Source:
    """Where the companies of a runtime are read from."""
    return reads.Source(
        services.store,
        services.now_ms,
        services.live_in_words,
        services.handler_names,
        services.directory,
        services.guard,
    )


def _message(message: object) -> Message[Any]:
    if not isinstance(message, Message) or type(message) is Message:
        raise InvalidMessage(f"a company can be told a message of actors.messages, not {message!r}")
    return message
