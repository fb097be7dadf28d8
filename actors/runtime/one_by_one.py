"""The search for the guilty one: a unit was refused, and one of its messages or moves is to blame.

What was done together is done again one thing at a time, so that only the guilty one hears of it: first the messages,
each in a turn without moves of its own, then, if it was none of them, the moves of one turn.
"""

from __future__ import annotations

import attrs

from actors.core.advance import MOVES_MAX


@attrs.define
class OneByOne:
    messages: int = 0
    """Messages that are still to be taken alone."""
    moves: int = 0
    """Moves that are still to be made alone after them."""

    def __bool__(self) -> bool:
        """Whether a search is going on."""
        return self.messages > 0 or self.moves > 0

    def begin(self, messages: int) -> None:
        """The guilty one is among so many messages, or among the first moves of one turn."""
        self.messages, self.moves = messages, MOVES_MAX

    def took(self, messages: int) -> None:
        """So many were taken, one or none; if none is left to take, it was none of them."""
        self.messages = self.messages - 1 if messages else 0

    def moved(self, *, more: bool) -> None:
        """A move was made alone and is durable; without ``more`` there is no other one to make."""
        self.moves = max(0, self.moves - 1) if more else 0

    def moves_max(self, *, said: bool) -> int:
        """What a turn may move; ``said``: something was said in it."""
        if not self:
            return MOVES_MAX
        return 0 if said else 1
