"""The one reading of a turn: rows that its messages name and memory does not hold."""

from __future__ import annotations

from functools import partial

from actors.core.budget import Booked
from actors.core.effects import AttemptKey
from actors.core.loading import check_found
from actors.core.prefetch import Needs, Prefetched
from actors.core.schedules.firing import FIRED_MAX, Fired
from storage.contract.loading import FoundTasks
from storage.contract.store import ReadStore
from storage.contract.turns import AttemptPlace, Prefetch
from storage.contract.turns import Prefetched as Read


async def look_up(store: ReadStore, company_id: int, needs: Needs) -> tuple[FoundTasks, Prefetched]:
    """The tasks that are asked for, and what else the messages need to know."""
    return await store.fetch_with(prefetch_of(company_id, needs), partial(prefetched_of, needs))


def prefetch_of(company_id: int, needs: Needs) -> Prefetch:
    """What to ask the store for."""
    return Prefetch(
        company_id,
        ids=needs.ids,
        contents=needs.content,
        keys=needs.keys,
        closure=needs.closure,
        fired=needs.fired,
        fired_max=FIRED_MAX,
        booked=tuple(place_of(key) for key in needs.booked),
    )


def prefetched_of(needs: Needs, read: Read) -> tuple[FoundTasks, Prefetched]:
    """The answer in the words of the core, its tasks checked."""
    places = {key: place_of(key) for key in needs.booked}
    booked = {key: Booked(*read.booked[place]) for key, place in places.items() if place in read.booked}
    fired = {name: Fired(one.times, one.complete, one.last) for name, one in read.fired.items()}
    prefetched = Prefetched(
        read.found.known, read.contents, read.keys, read.edges, fired, needs.templates, booked
    )
    return check_found(read.found), prefetched


def place_of(key: AttemptKey) -> AttemptPlace:
    """Where the attempt stands in the store."""
    return AttemptPlace(key.seq, key.run, key.pos, key.number)
