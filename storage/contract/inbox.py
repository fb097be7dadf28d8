"""The inbox: messages that other processes leave for the owner of a database, each answered in its own row.

It is the one part of a database that a process may write without owning it: a sender commits `PutMessage`. The owner
finds the messages that wait, carries them out, and answers each in the turn that carries it out, so that both are
durable or neither is. That answer belongs to the turn's operation and is fenced by its claim. `AnswerMessages` is for
messages that no turn answers. It names no claim, because the company may not exist; its fence is that a message is
answered once, whoever comes first.

A message is known by its company and an id that the sender chose. Sent again, it is the message that is there
already. It is kept for `KEPT_MS` after its answer, then the owner removes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from storage.codec import JSON_BYTES_MAX
from storage.values import value

from .store import Operation, Query

MESSAGE_CHARS_MAX: Final = 4 * JSON_BYTES_MAX
"""One message. A task with the largest payload and as much again for its nodes."""
WAITING_MAX: Final = 10_000
"""Messages that may wait in all. So many are only found where no host has run for long."""
WAITING_MAX_OF_COMPANY: Final = 1_000
"""Of one company, so that it cannot keep the others out. As many as its mailbox holds."""
KEPT_MS: Final = 7 * 86_400_000
"""How long an answer can be read, and its id is remembered: a sender that was away over a weekend finds it."""


@value
class StoredMessage:
    """A message as it stands. Nothing in it is to be trusted: any process can have written it.

    ``decodable``: whether all its texts are UTF-8; in those that are not, what cannot be read is escaped.
    """

    number: int
    company: str
    id: str
    sent_ms: int
    answered_ms: int | None
    answer: str | None
    message: str
    decodable: bool = True


# --- the sender ---------------------------------------------------------------------------------------------


@value
class PutMessage(Operation[None]):
    """Leave a message; nothing happens if the same message is there under this id.

    Raises `MessageConflict` if another message has the id, `InboxFull` if `WAITING_MAX` messages wait, or
    `WAITING_MAX_OF_COMPANY` of this company.
    """

    company: str
    id: str
    message: str
    sent_ms: int
    waiting_max: int = WAITING_MAX
    of_company_max: int = WAITING_MAX_OF_COMPANY


@value
class FindMessage(Query[StoredMessage | None]):
    """The message of this id; ``None`` if there is none, or no more."""

    company: str
    id: str


@value
class ListWaiting(Query[Sequence[StoredMessage]]):
    """Messages that wait, in the order of their arrival; of all companies if ``company`` is ``None``."""

    company: str | None
    limit: int


@value
class ListAnswered(Query[Sequence[StoredMessage]]):
    """Messages that were answered, the last answer first; of all companies if ``company`` is ``None``."""

    company: str | None
    limit: int


@value
class ListAddressed(Query[tuple[str, ...]]):
    """Names of the companies that messages wait for, sorted."""


# --- the owner ----------------------------------------------------------------------------------------------


@value
class Waiting:
    """``version`` is for the next `NextMessages` on the same store."""

    version: int
    messages: Sequence[StoredMessage]


@value
class NextMessages(Query[Waiting]):
    """The messages to be taken next: at most ``each`` of a company, in rounds over companies that are not ``busy``.

    At most ``limit`` messages, and no more after ``chars_max`` characters of them. Nothing is looked for if another
    process cannot have changed the database since the version ``known``; then this reads next to nothing.
    """

    busy: Sequence[str]
    each: int
    limit: int
    chars_max: int = 2 * MESSAGE_CHARS_MAX
    known: int | None = None


@value
class MessageAnswer:
    number: int
    answered_ms: int
    answer: str


@value
class AnswerMessages(Operation[None]):
    """Answer messages that no turn has answered. Those that have an answer, or are gone, stay as they are."""

    answers: Sequence[MessageAnswer]


@value
class FindOldestAnswer(Query[int | None]):
    """When the oldest answer was given, integer UTC milliseconds; ``None`` if there is none."""


@value
class PruneAnswered(Operation[int]):
    """Remove the oldest messages that were answered before ``before_ms``, at most ``limit``; answers how many."""

    before_ms: int
    limit: int
