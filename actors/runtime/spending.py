"""Telling companies what their live attempts spend: at once the first time, then at most once a second."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import trio

from actors.core.inputs import Spending
from actors.errors import InvalidSpend
from actors.messages import UNITS_MAX

from .attempts import Attempt

SPEND_TOLD_S = 1.0
"""A live attempt tells its company at most so often what it has spent: a crash then knows all but a second of it."""


class SpendingTeller:
    """``post(company, spending)`` puts the news in the company's mailbox."""

    def __init__(self, nursery: trio.Nursery, post: Callable[[str, Spending], None]) -> None:
        self._nursery = nursery
        self._post = post
        self._token = trio.lowlevel.current_trio_token()
        self._lock = threading.Lock()

    def spend(self, attempt: Attempt, units: int) -> None:
        """An addition, in whatever thread; the company hears of many at once. Raises `InvalidSpend`."""
        if isinstance(units, bool) or not isinstance(units, int) or units < 0:
            raise InvalidSpend(f"spend needs an integer number of units of at least 0, not {units!r}")
        with self._lock:
            if attempt.spent + units > UNITS_MAX:
                raise InvalidSpend(f"one attempt can spend {UNITS_MAX} units at most, not {units} more")
            attempt.spent += units
            tell = units > 0 and not attempt.spending_told
            attempt.spending_told = attempt.spending_told or tell
        if tell:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._tell_soon, attempt)

    def _tell_soon(self, attempt: Attempt) -> None:
        if not self._nursery.cancel_scope.cancel_called:
            self._nursery.start_soon(self._tell, attempt, name=f"spending of {attempt.label}")

    @trio.lowlevel.enable_ki_protection
    async def _tell(self, attempt: Attempt) -> None:
        """Tell the company, a second after the last time. The end of the attempt tells all, so it is not waited for."""
        was_over = attempt.ended
        with trio.move_on_at(attempt.spent_s + SPEND_TOLD_S):
            if was_over:
                await trio.sleep_forever()
            await attempt.wait_end()
        attempt.spent_s = trio.current_time()
        with self._lock:
            attempt.spending_told = False
            spent = attempt.spent
        if spent > attempt.spent_told:
            attempt.spent_told = spent
            node = None if attempt.spec is None else attempt.spec.name
            self._post(attempt.ref.company, Spending(attempt.ref.key, spent, node))
