"""Deleting a company: marked in one commit, gone in many.

The mark takes the company's name away. From that commit on nobody finds it any more, its actor can write
nothing, and the name is free; a company that comes to be under it is another one, with an id of its own. What
it had goes afterwards, some rows at a time. The deletion stands in the database until it is over, so whoever opens
it next goes on. The last step records in the log of the runtime what is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import trio

from actors.codec import encode_error
from actors.errors import CompanyActive, CompanyDeleted
from storage.contract.retention import DeleteSome, MarkDeleted, StillActive
from storage.errors import StaleEpoch
from storage.records import Claim, CompanyRecord

from .policy import DeletedCompany
from .pruning import REST_S, Place


def mark_of(company: CompanyRecord, attempts: Sequence[str], now_ms: int) -> MarkDeleted:
    """The operation that begins the deletion; ``attempts`` are labels of those that live in this process."""
    return MarkDeleted(company.claim, attempts, encode_error(CompanyDeleted(company.name)), now_ms)


@contextmanager
def refused_if_active(name: str) -> Iterator[None]:
    """Raise `CompanyActive` where the store raises `StillActive`."""
    try:
        yield
    except StillActive as error:
        raise CompanyActive(name, error.tasks, error.attempts) from None


async def finish_deletion(place: Place, claim: Claim) -> DeletedCompany | None:
    """Remove everything of a marked company; ``None`` if it is not marked, or not any more.

    Cancellation: stops between two operations; whoever comes next goes on.
    """
    while True:
        await trio.sleep(REST_S)  # before the first as well: readers of the log hear of it while they can
        try:
            deleted = await place.store.commit(DeleteSome(claim, place.now_ms()))
        except StaleEpoch:
            return None
        if deleted is not None:
            place.told(None, deleted.logged)
            return DeletedCompany(deleted.name, deleted.tasks, deleted.attempts, deleted.events)
