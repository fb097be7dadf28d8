"""Deleting a company: marked in one commit, gone in many.

The mark takes the company's name away. From that commit on nobody finds it any more, its actor can write
nothing, and the name is free; a company that comes to be under it is another one, with an id of its own. What
it had goes afterwards, some rows at a time, and the deletion stands in the database until it is over, so
whoever opens it next goes on. The last unit says in the log of the runtime what is gone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import attrs
import trio

from actors.codec import encode_error
from actors.errors import CompanyActive, CompanyDeleted
from actors.retention import DeletedCompany
from storage import inbox
from storage.database import Database
from storage.errors import StaleEpoch
from storage.records import EventRecord
from storage.retention import remove_last, remove_some
from storage.statements import SQL
from storage.units import write_events

from .pruning import REST_S, Place, Told, tell

ACTIVE_SHOWN = 10
COUNTED = ("tasks", "attempts", "events")


@attrs.frozen
class MarkDeleted:
    """The unit that takes the company's name away. ``attempts`` are those that live in this process.

    Raises `CompanyActive`, and `StaleEpoch` if an actor has come or gone since ``epoch``.
    """

    company_id: int
    name: str
    epoch: int
    attempts: Sequence[str]
    now_ms: int

    def __call__(self, conn: sqlite3.Connection) -> Told:
        key = {"company_id": self.company_id, "limit": ACTIVE_SHOWN}
        active = [row[0] for row in conn.execute(SQL["active_tasks"], key).fetchall()]
        if active or self.attempts:
            raise CompanyActive(self.name, active, self.attempts)
        told = tell(conn, self.company_id, EventRecord("company.deleting", self.now_ms))
        inbox.answer_all(conn, self.name, encode_error(CompanyDeleted(self.name)), self.now_ms)
        marked = conn.execute(
            SQL["mark_deleted"], {"company_id": self.company_id, "epoch": self.epoch}
        ).rowcount
        if marked == 0:
            raise StaleEpoch(self.name, self.epoch)
        deletion = {"company_id": self.company_id, "name": self.name, "asked_ms": self.now_ms}
        conn.execute(SQL["insert_deletion"], deletion)
        return told


class NotMarked(Exception):
    """No deletion of this company is under way."""


@attrs.frozen
class Deleted:
    """The end of a deletion: what went in all its units, and the event with its position."""

    company: DeletedCompany
    event: EventRecord
    position: int


@attrs.frozen
class DeleteSome:
    """The unit that lets some rows of a marked company go; when none is left it returns what the whole came to.

    Raises `NotMarked` for any other company, of which nothing may go.
    """

    company_id: int
    now_ms: int

    def __call__(self, conn: sqlite3.Connection) -> Deleted | None:
        key = {"company_id": self.company_id}
        if conn.execute(SQL["deletion"], key).fetchone() is None:
            raise NotMarked
        if inbox.forget(conn, self.company_id):
            return None
        removed = remove_some(conn, self.company_id)
        if removed:
            counts = {name: removed.get(name, 0) for name in COUNTED}
            conn.execute(SQL["count_deleted"], {**key, **counts})
            return None
        company = DeletedCompany(*conn.execute(SQL["deletion"], key).fetchone())
        event = EventRecord("company.deleted", self.now_ms, data=attrs.asdict(company))
        remove_last(conn, self.company_id)
        return Deleted(company, event, write_events(conn, None, None, [event]))


async def finish_deletion(place: Place, company_id: int) -> DeletedCompany | None:
    """Let everything of a marked company go; nothing if it is not, or not any more.

    Cancellation: stops between two units; whoever comes next goes on.
    """
    while True:
        await trio.sleep(REST_S)  # before the first as well: readers of the log hear of it while they can
        try:
            done = await place.database.writer.commit(DeleteSome(company_id, place.now_ms()))
        except NotMarked:
            return None
        if done is not None:
            place.told(done.position, done.event)
            return done.company


async def marked_companies(database: Database) -> list[int]:
    """Companies whose deletion was not finished."""
    params = {"limit": 1_000_000}
    rows = await database.read(lambda conn: conn.execute(SQL["list_deletions"], params).fetchall())
    return [row[0] for row in rows]
