"""A company's mailbox: two bounded lanes, taken by one actor, surviving its restarts.

The *system* lane carries reports of attempts, wakes and control messages and is taken first, so a stop
overtakes submits that were sent but not taken. Reports are always accepted: their number is bounded by the
attempts that exist. The *user* lane is bounded; ``tell`` and ``ask`` wait for room.

Beside the lanes lie *errands*: units that no message asks for, to be committed between two turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import attrs
import trio
from outcome import Error, Outcome, Value

from actors.core.inputs import Report, Spending
from actors.core.state import CompanyState
from actors.messages import Message
from storage.contract.store import Operation

USER_MAX = 1_000
"""Messages that may wait. Past a thousand a sender gains nothing by not waiting, and memory stays bounded."""
SYSTEM_MAX = 1_000
"""Control messages that may wait; they have a bound of their own, so that submits cannot keep a stop out."""


class Reply:
    """Where the answer to an ``ask`` will be."""

    __slots__ = ("_event", "_outcome")

    def __init__(self) -> None:
        self._event = trio.Event()
        self._outcome: Outcome[Any] | None = None

    def settle(self, outcome: Outcome[Any]) -> None:
        """Answer; the first answer stands."""
        if self._outcome is None:
            self._outcome = outcome
            self._event.set()

    async def wait(self) -> Any:
        await self._event.wait()
        assert self._outcome is not None
        return self._outcome.unwrap()


@attrs.frozen
class Sweep:
    """The supervisor asks the actor to look again, in case a wake was lost. ``healed`` is set to whether that
    changed anything.
    """

    healed: Reply = attrs.field(factory=Reply)


@attrs.frozen(eq=False)
class Envelope:
    """A message under way. Without ``reply`` it was told, not asked. ``inbox`` is the number of its row if it
    came from another process.
    """

    content: Message[Any] | Report | Spending | Sweep
    reply: Reply | None = None
    inbox: int | None = None

    def answer(self, value: object) -> None:
        if self.reply is not None:
            self.reply.settle(Value(value))

    def fail(self, error: BaseException) -> None:
        if self.reply is not None:
            self.reply.settle(Error(error))
        if isinstance(self.content, Sweep):
            self.content.healed.settle(Value(False))


@attrs.frozen(eq=False)
class Errand:
    """A unit for the actor to commit between two turns, when nothing rests on rows that were read before.

    ``prepare`` is given what the actor knows and returns the unit, or nothing if there is none to commit; it
    must not wait, and what it raises is the reply. ``last``: after this unit the company is no more.
    """

    prepare: Callable[[CompanyState], Operation[Any] | None]
    last: bool = False
    reply: Reply = attrs.field(factory=Reply)


class Mailbox:
    def __init__(self) -> None:
        self._user: deque[Envelope] = deque()
        self._system: deque[Envelope] = deque()
        self._errands: deque[Errand] = deque()
        self._room = trio.lowlevel.ParkingLot()
        self._wake = trio.Event()
        self.senders_waiting = 0
        self.closed: BaseException | None = None
        """Once set, every sender gets this error."""

    def __len__(self) -> int:
        return len(self._user) + len(self._system)

    @property
    def depths(self) -> tuple[int, int]:
        """(user lane, system lane)."""
        return len(self._user), len(self._system)

    @property
    def unused(self) -> bool:
        """Whether nothing is in it and nobody is about to put something in."""
        return not self._user and not self._system and not self._errands and not self.senders_waiting

    @property
    def addressed(self) -> bool:
        """Whether somebody outside says something to the company, so that it has to exist."""
        return bool(self._user) or any(isinstance(envelope.content, Message) for envelope in self._system)

    # --- senders --------------------------------------------------------------------------------------------

    def put_nowait(self, envelope: Envelope) -> bool:
        """Put a message in its lane; says whether there was room."""
        if self.closed is not None:
            raise self.closed
        lane, limit = self._lane(envelope)
        if len(lane) >= limit and not isinstance(envelope.content, Report | Spending | Sweep):
            return False
        lane.append(envelope)
        self.wake()
        return True

    async def put(self, envelope: Envelope) -> None:
        """Put a message in its lane, waiting for room. Cancellation: the message was not put."""
        self.senders_waiting += 1
        try:
            while not self.put_nowait(envelope):
                await self._room.park()
        finally:
            self.senders_waiting -= 1

    def put_errand(self, errand: Errand) -> None:
        """Leave an errand for the actor. Raises what `closed` holds."""
        if self.closed is not None:
            raise self.closed
        self._errands.append(errand)
        self.wake()

    def _lane(self, envelope: Envelope) -> tuple[deque[Envelope], int]:
        content = envelope.content
        if isinstance(content, Report | Spending | Sweep) or content.control:
            return self._system, SYSTEM_MAX
        return self._user, USER_MAX

    def wake(self) -> None:
        """Make the actor look. Waking twice is waking once."""
        self._wake.set()

    # --- the actor ------------------------------------------------------------------------------------------

    def take(self, count: int) -> list[Envelope]:
        """Up to ``count`` messages, system lane first."""
        taken: list[Envelope] = []
        for lane in (self._system, self._user):
            while lane and len(taken) < count:
                taken.append(lane.popleft())
        if taken:
            self._room.unpark_all()
        return taken

    def next_errand(self) -> Errand | None:
        return self._errands.popleft() if self._errands else None

    def put_back(self, envelopes: Iterable[Envelope]) -> None:
        """Put taken messages back at the head of their lanes, in their order."""
        for envelope in reversed(list(envelopes)):
            self._lane(envelope)[0].appendleft(envelope)
        self.wake()

    def drop_reports(self, told: Callable[[Report], bool]) -> None:
        """Drop the reports that a new actor has from the registry already; late ones stay."""
        kept = [e for e in self._system if not (isinstance(e.content, Report) and told(e.content))]
        self._system = deque(kept)

    def fail_all(self, error: BaseException, *, asked_only: bool = False) -> None:
        """Answer everything that waits with ``error``. ``asked_only`` keeps what nobody waits for."""
        for lane in (self._user, self._system):
            kept = [e for e in lane if asked_only and e.reply is None and not isinstance(e.content, Sweep)]
            for envelope in lane:
                if envelope not in kept:
                    envelope.fail(error)
            lane.clear()
            lane.extend(kept)
        while self._errands:
            self._errands.popleft().reply.settle(Error(error))
        self._room.unpark_all()

    def close(self, error: BaseException) -> None:
        """No sender gets through any more; those waiting for room are told so."""
        self.closed = error
        self.fail_all(error)

    def clear_wake(self) -> None:
        """Before looking, so that a wake that comes while looking is not lost."""
        self._wake = trio.Event()

    async def wait(self, timeout_s: float) -> None:
        """Until somebody wakes, at most ``timeout_s``."""
        with trio.move_on_after(timeout_s):
            await self._wake.wait()

    @property
    def woken(self) -> bool:
        return self._wake.is_set()
