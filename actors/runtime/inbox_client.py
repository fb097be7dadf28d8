"""Sending messages to a host from another process, through the inbox of its database."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import attrs
import trio

from actors.codec import decode_answer, decode_message, encode_message
from actors.errors import CompanyDeleted, TurnkeeperError
from actors.messages import Message
from storage.codec import check_name
from storage.contract.inbox import (
    FindMessage,
    ListAddressed,
    ListAnswered,
    ListWaiting,
    PutMessage,
    StoredMessage,
)

from .opening import open_beside
from .reader import Reader

if TYPE_CHECKING:
    from .opening import SqliteSender

R = TypeVar("R")

BUSY_S: Final = 5.0
"""How long sending waits for others' transactions. The host's take milliseconds."""
LOOK_S: Final = 0.05
"""How often one who waits for an answer looks."""
LETTERS_SHOWN: Final = 100
ID_BYTES: Final = 8


@attrs.frozen
class Letter:
    """A message in the inbox, and its answer if it has one.

    ``message`` is ``None`` where nobody can read it; ``text`` is always as it was written. ``answered_ms``
    is ``None`` while it waits. Then one of ``reply`` and ``error`` is the answer, of the type that ``ask``
    would have returned or raised.
    """

    company: str
    id: str
    message: Message[Any] | None
    text: str = attrs.field(repr=False)
    sent_ms: int
    answered_ms: int | None = None
    reply: object = None
    error: TurnkeeperError | None = None

    @property
    def waiting(self) -> bool:
        """Whether no host has answered it yet."""
        return self.answered_ms is None


class Inbox(Reader):
    """The way into a database that another process runs, or will run: a `Reader` that can also send. Comes
    from `open_inbox`.

    Nothing here takes the ownership, and what is sent stands whether a host runs or not: the next one takes
    it at its start. Each message is carried out once, with its answer in the same commit; messages of one
    company are taken in the order in which they were sent. An answer can be read for a week.
    """

    def __init__(self, store: SqliteSender) -> None:
        super().__init__(store)
        self._store = store

    async def send(self, company: str, message: Message[Any], *, id: str | None = None) -> str:
        """Leave a message for a company; returns its id when it is durable.

        ``id`` is yours to choose, unique in the company for as long as the message is kept; by default a
        random one. The same message under the same id is the one that is there already, so a sender that
        does not know whether it has sent may send again. Raises `MessageConflict` if the id was used for
        another message, `InboxFull`, `InvalidMessage`, `InvalidName`, `InvalidJson`, and `StoreUnavailable`
        if others' transactions take longer than `open_inbox` was told to wait; then nothing was sent.
        Cancellation: it may have been sent.
        """
        name = check_name(company, what="a company's name")
        key = secrets.token_hex(ID_BYTES) if id is None else check_name(id, what="a message id")
        text = encode_message(message)
        sent_ms = time.time_ns() // 1_000_000
        await self._store.commit(PutMessage(name, key, text, sent_ms))
        return key

    async def ask(self, company: str, message: Message[R], *, id: str | None = None) -> R:
        """`send`, and wait for the answer: returns the reply, or raises the error, as `Company.ask` would.

        Waits for as long as no host takes it: bound it with `trio.move_on_after`. Raises `CompanyDeleted`
        also if the company was deleted with all that was said to it. Cancellation: stops waiting; the
        message stands.
        """
        key = await self.send(company, message, id=id)
        while (letter := await self.find(company, key)) is not None and letter.waiting:
            await trio.sleep(LOOK_S)
        if letter is None:
            raise CompanyDeleted(company)
        if letter.error is not None:
            raise letter.error
        return cast("R", letter.reply)

    async def find(self, company: str, id: str) -> Letter | None:
        """The message of this id as it stands; ``None`` if there is none, or no more."""
        row = await self._store.fetch(FindMessage(company, id))
        return None if row is None else letter_of(row)

    async def waiting(self, *, company: str | None = None, limit: int = LETTERS_SHOWN) -> tuple[Letter, ...]:
        """Messages that wait, in the order in which they were sent; at most ``limit``."""
        rows = await self._store.fetch(ListWaiting(company, limit))
        return tuple(letter_of(row) for row in rows)

    async def answered(self, *, company: str | None = None, limit: int = LETTERS_SHOWN) -> tuple[Letter, ...]:
        """Messages that were answered, the last answer first; at most ``limit``."""
        rows = await self._store.fetch(ListAnswered(company, limit))
        return tuple(letter_of(row) for row in rows)

    async def waited_for(self) -> tuple[str, ...]:
        """Names of the companies that messages wait for, whether or not the database has them yet."""
        return await self._store.fetch(ListAddressed())


@asynccontextmanager
async def open_inbox(
    path: str | os.PathLike[str], *, busy_s: float = BUSY_S, create: bool = False
) -> AsyncIterator[Inbox]:
    """Open a database to send messages to its host, from any process, beside whoever runs it.

    ``busy_s``: how many seconds sending waits for others' transactions. ``create``: if there is no such file,
    create an empty database, whose first host then finds what was sent. Raises `NotADatabase` (also if there is
    no such file and ``create`` is false), `SchemaTooNew`, `StoreUnavailable`.
    """
    async with open_beside(path, busy_s=busy_s, create=create) as store:
        yield Inbox(store)


def letter_of(row: StoredMessage) -> Letter:
    """The row as values. Nothing in it is trusted: what cannot be read is said to be so."""
    message: Message[Any] | None = None
    with suppress(TurnkeeperError):
        message = decode_message(row.message)
    letter = Letter(row.company, row.id, message, row.message, row.sent_ms, row.answered_ms)
    if row.answer is None:
        return letter
    try:
        reply = decode_answer(None if message is None else type(message), row.answer)
    except TurnkeeperError as error:
        return attrs.evolve(letter, error=error)
    return attrs.evolve(letter, reply=reply)
