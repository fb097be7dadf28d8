"""The host's side of the inbox: what other processes left in the table is told to the companies, in order.

A row becomes a message in its company's mailbox like any other, only that its answer is written by the unit
that carries it out. So a message and its answer are durable together: whatever dies in between, the next
host finds the row waiting and nothing of it done, or done and answered. What no unit answers (a row that is
no message, a company that is parked, an actor that failed) changed nothing, and is answered here.

*Order.* Of each company at most `EACH_MAX` rows are under way, and the next are taken when all of them are
answered. Rows that go by different lanes are never under way together, so that a stop cannot overtake the
submit that was sent before it. Rows are read in rounds over the companies: one that sends thousands delays
another by its share of a page.

*Looking.* Four times a second the reader's connection is asked for its ``data_version``, which is one look
at shared memory and changes with every commit but its own. Only if it has changed (our own writer changes it
too) the index of waiting rows is read. The time stamp and size of the log file would not do: a commit inside
one tick of the file system's clock that overwrites a recycled log changes neither. On a virtual clock nothing
ticks: there `wake` says when to look, and `actors.testing.run_until_idle` does.

*Pruning.* Answered rows are deleted `storage.contract.inbox.KEPT_MS` after their answer, at start-up and every hour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast

import trio
from outcome import Error, Outcome, Value

from actors.codec import decode_message, encode_error, encode_reply
from actors.errors import (
    ActorCrashed,
    CompanyDeleted,
    CompanyParked,
    InvalidMessage,
    Refused,
    TurnkeeperError,
)
from actors.messages import Message
from storage.codec import check_name
from storage.contract.inbox import (
    KEPT_MS,
    AnswerMessages,
    FindOldestAnswer,
    MessageAnswer,
    NextMessages,
    PruneAnswered,
    StoredMessage,
)
from storage.contract.store import Store
from storage.logging import get_logger

from .describe import describe
from .mailbox import Envelope, Reply
from .services import Services

POLL_S: Final = 0.25
"""How often a change is looked for: a person at a terminal does not notice it."""
AGAIN_S: Final = 0.25
"""Before the next try where a mailbox was full or an actor went away; no wake tells of either."""
EACH_MAX: Final = 20
"""Rows of one company under way at once: enough for one commit to be shared, too few to fill its mailbox."""
PAGE: Final = 200
"""Rows taken in one look."""
PRUNE_EVERY_S: Final = 3600.0
PRUNE_MAX: Final = 500
"""Rows removed in one commit; the companies' own commits come in between."""

_log = get_logger("turnkeeper")


class InboxHost:
    def __init__(self, services: Services) -> None:
        self._services = services
        self.store: Store = services.store
        self._wake = trio.Event()
        self._look = True
        """Whether to look whatever the version says: rows may be left from the last look."""
        self._looking = False
        """Whether a look that was called for is under way."""
        self._late = False
        """Whether to rest before the next look: what failed is not tried again at once."""
        self._version: int | None = None
        self._under_way: dict[str, int] = {}
        """Company → how many of its rows are not answered yet."""
        self._owed: list[tuple[_Row, object]] = []
        """Rows that are to be answered here, each with its reply or error."""
        self._told_quiet = False
        self._prune_at_s = trio.current_time()
        self._trouble: str | None = None

    @property
    def quiet(self) -> bool:
        """Whether nothing is under way and nothing is left to look at. What comes after closing is the next
        host's.
        """
        return self._services.shutdown.closing or not (
            self._under_way or self._owed or self._look or self._looking
        )

    @property
    def under_way(self) -> int:
        """Messages that were taken and are not answered yet."""
        return sum(self._under_way.values())

    def wake(self) -> None:
        """Look now."""
        self._look, self._told_quiet = True, False
        self._wake.set()

    @trio.lowlevel.enable_ki_protection
    async def run(self, poll_s: float | None) -> None:
        """Take what comes, for ever; without ``poll_s`` only when woken."""
        while True:
            if self._late:
                self._late = False
                await trio.sleep(AGAIN_S)
            self._wake = trio.Event()
            await self.look()
            if self._late or self._look or self._owed:
                continue
            with trio.CancelScope() if poll_s is None else trio.move_on_after(poll_s):
                await self._wake.wait()

    async def look(self) -> None:
        """One pass. Whatever goes wrong is tried again by the next."""
        self._looking = self._look or bool(self._owed)
        try:
            await self._pass()
            self._trouble = None
        except Exception as error:  # the store is away, or a mistake of ours
            self._late = True
            self._tell_trouble(describe(error), error)
        self._looking = False
        if self.quiet and not self._told_quiet:
            self._told_quiet = True
            self._services.notifier.notify()

    def _tell_trouble(self, cause: str, error: Exception) -> None:
        """Once for each trouble, not four times a second."""
        if cause != self._trouble:
            self._trouble = cause
            _log.warning("inbox.trouble", cause=cause, exc_info=error)

    async def _pass(self) -> None:
        await self._answer_owed()
        if self._services.shutdown.closing or self._services.store.lost is not None:
            self._look = False  # what waits is the next host's
            return
        for company, rows in _by_company(await self._read()).items():
            self._take(company, rows)
        await self._answer_owed()
        if trio.current_time() >= self._prune_at_s:
            await self._prune()

    async def _read(self) -> Sequence[StoredMessage]:
        """The next rows to be taken; none if nothing has changed."""
        known = None if self._look else self._version
        query = NextMessages(tuple(self._under_way), EACH_MAX, PAGE, known=known)
        self._look = False
        try:
            waiting = await self.store.fetch(query)
        except BaseException:
            self._look = True
            raise
        self._version = waiting.version
        return waiting.messages

    # --- taking ---------------------------------------------------------------------------------------------

    def _take(self, company: str, rows: list[StoredMessage]) -> None:
        """Put the company's rows in its mailbox, as far as they go by one lane and there is room."""
        lane: bool | None = None
        for stored in rows:
            row = _Row(stored, self._settled)
            try:
                row.message = _message_of(stored)
            except Exception as error:  # whatever stands in a row is its sender's mistake
                refusal = error if isinstance(error, TurnkeeperError) else InvalidMessage(describe(error))
                _log.warning("inbox.row_refused", company=company, id=stored.id, cause=describe(error))
                self._owe(row, refusal)
                continue
            if lane is not None and row.message.control is not lane:
                return  # it follows when these are answered
            lane = row.message.control
            if not self._put(row):
                return

    def _put(self, row: _Row) -> bool:
        """Hand a row to its company; says whether the next may follow."""
        assert row.message is not None
        envelope = Envelope(row.message, row, row.stored.number)
        self._begin(row)
        try:
            cell = self._services.directory.cell(row.stored.company)
            row.unit_answers = cell.parked is None
            if cell.parked_answer(envelope) or cell.mailbox.put_nowait(envelope):
                return True
        except CompanyParked as error:
            row.settle(Error(error))
            return True
        except TurnkeeperError:
            pass  # nobody takes messages in this moment: closing, or one actor goes before the next comes
        self._end(row)
        self._late = self._look = True
        return False

    def _begin(self, row: _Row) -> None:
        company = row.stored.company
        self._under_way[company] = self._under_way.get(company, 0) + 1
        self._told_quiet = False

    def _end(self, row: _Row) -> None:
        company = row.stored.company
        left = self._under_way.pop(company) - 1
        if left:
            self._under_way[company] = left
        else:
            self._look, self._told_quiet = True, False  # its next rows may follow

    # --- answers --------------------------------------------------------------------------------------------

    def _settled(self, row: _Row, outcome: Outcome[Any]) -> None:
        """The actor, or whoever spoke for it, has settled a row. Synchronous."""
        what = outcome.error if isinstance(outcome, Error) else cast("Value[Any]", outcome).value
        if not row.unit_answers or isinstance(what, ActorCrashed | CompanyDeleted | CompanyParked):
            self._owed.append((row, what))
        else:
            self._end(row)
            if isinstance(what, BaseException) and not isinstance(what, Refused):
                self._late = (
                    True  # nobody knows what became of it; the row does, and is taken again if it waits
                )
        if self._look or self._owed:
            self._wake.set()

    def _owe(self, row: _Row, error: BaseException) -> None:
        self._begin(row)
        self._owed.append((row, error))

    async def _answer_owed(self) -> None:
        """Answer what no unit answers."""
        owed, self._owed = self._owed, []
        if not owed:
            return
        now_ms = self._services.now_ms()
        answers = [
            MessageAnswer(row.stored.number, now_ms, encode_answer(row.message, what)) for row, what in owed
        ]
        try:
            await self.store.commit(AnswerMessages(answers))
        except BaseException:
            self._owed = [*owed, *self._owed]
            raise
        for row, _ in owed:
            self._end(row)

    async def _prune(self) -> None:
        before_ms = self._services.now_ms() - KEPT_MS
        oldest_ms = await self.store.fetch(FindOldestAnswer())
        more = oldest_ms is not None and oldest_ms < before_ms
        while more:
            more = await self.store.commit(PruneAnswered(before_ms, PRUNE_MAX)) == PRUNE_MAX
        self._prune_at_s = trio.current_time() + PRUNE_EVERY_S


class _Row(Reply):
    """A row under way, and where its answer goes: back to the host, which has to know when it is over."""

    __slots__ = ("_told", "message", "stored", "unit_answers")

    def __init__(self, stored: StoredMessage, told: Callable[[_Row, Outcome[Any]], None]) -> None:
        super().__init__()
        self.stored = stored
        self.message: Message[Any] | None = None
        self.unit_answers = True
        """Whether the unit that carries it out writes the answer, not the inbox host."""
        self._told = told

    def settle(self, outcome: Outcome[Any]) -> None:
        if self._outcome is None:
            super().settle(outcome)
            self._told(self, outcome)


def encode_answer(message: Message[Any] | None, answer: object) -> str:
    """The text of a message's answer: its reply, or the error. What is no message can only have an error."""
    if isinstance(answer, BaseException):
        return encode_error(answer)
    assert message is not None
    return encode_reply(type(message), answer)


def _message_of(row: StoredMessage) -> Message[Any]:
    """The message of a row that anybody can have written; raises what is wrong with it."""
    if not row.decodable:
        raise InvalidMessage("not a message: it is not UTF-8")
    check_name(row.company, what="a company's name")
    return decode_message(row.message)


def _by_company(rows: Iterable[StoredMessage]) -> dict[str, list[StoredMessage]]:
    grouped: dict[str, list[StoredMessage]] = {}
    for row in rows:
        grouped.setdefault(row.company, []).append(row)
    return grouped
