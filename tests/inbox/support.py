"""Another process, as far as the file can tell: it leaves messages in the inbox, and looks at what became of them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import attrs

from actors import Message, Pause, Runtime, TurnkeeperError
from actors.runtime.inbox_client import Letter, letter_of
from actors.wire import encode_message
from storage.contract.inbox import FindMessage, PutMessage
from storage.sqlite.connection import transaction
from storage.sqlite.engine import answer, carry_out
from storage.sqlite.opening import open_sender
from tests.runtime.support import sql

SENT_MS = 1_767_225_600_000


@attrs.define
class Post:
    """Sends to the host of a database, with ids of its own."""

    path: Path
    count: int = 0

    def send(self, message: Message[Any], company: str = "acme", id: str | None = None) -> str:
        """As `Inbox.send` does, here and now."""
        self.count += 1
        key = id or f"m{self.count}"
        put = PutMessage(company, key, encode_message(message), SENT_MS)
        with closing(open_sender(self.path, busy_ms=5_000)) as raw:
            transaction(raw, lambda conn: carry_out(conn, put))
        return key

    def plant(self, text: object, company: object = "acme", id: object = None) -> None:
        """A row that no sender of ours writes."""
        self.count += 1
        key = f"m{self.count}" if id is None else id
        columns = "company, id, sent_ms, message"
        sql(self.path, f"INSERT INTO inbox ({columns}) VALUES (?, ?, 0, ?)", company, key, text)

    def fill(self, count: int, company: str) -> None:
        """As many messages that wait."""
        self.count += count
        numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
        rows = f"{numbers} SELECT ?, 'f' || i, 0, ? FROM n"
        text = encode_message(Pause())
        sql(self.path, f"INSERT INTO inbox (company, id, sent_ms, message) {rows}", count, company, text)

    def letter(self, id: str, company: str = "acme") -> Letter:
        with closing(open_sender(self.path, busy_ms=5_000)) as raw:
            row = answer(raw, FindMessage(company, id))
        assert row is not None
        return letter_of(row)

    def reply(self, id: str, company: str = "acme") -> Any:
        """The reply to a message that was carried out."""
        letter = self.letter(id, company)
        assert not letter.waiting, "it waits"
        assert letter.error is None, letter.error
        return letter.reply

    def error(self, id: str, company: str = "acme") -> TurnkeeperError:
        """What a message was answered instead."""
        letter = self.letter(id, company)
        assert not letter.waiting, "it waits"
        assert letter.error is not None, letter.reply
        return letter.error

    @property
    def waiting(self) -> list[str]:
        """Ids of those that wait, in the order of their arrival."""
        return [
            row[0] for row in sql(self.path, "SELECT id FROM inbox WHERE answered_ms IS NULL ORDER BY number")
        ]


async def taken(runtime: Runtime) -> None:
    """Let the host look, and wait until everything that it found is answered."""
    runtime.intake.wake()
    while not runtime.intake.quiet:
        news = runtime.hub.news
        if not runtime.intake.quiet:
            await news.wait()
