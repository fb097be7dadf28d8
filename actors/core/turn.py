"""One turn: from what was said to a company to what is written, answered and done. A pure function.

It decides the inputs one after the other, then asks what may start now. It changes the state as it goes; what it
returns says how to make that durable, and takes all of it back if it cannot be. Nothing is awaited, nothing is read and
no clock is asked, so the actor, the tests and the simulator make their turns with the same call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

from actors.errors import Refused
from actors.messages import Message
from storage.codec import clean_text
from storage.contract.turns import CommitTurn
from storage.records import EventRecord
from storage.values import value
from storage.writes import InboxAnswered

from .admission import OPEN, Live
from .advance import MOVES_MAX, Advanced, ExecutionSlots, advance
from .decide import decide
from .draft import Draft
from .effects import Effect
from .healing import look_again
from .inputs import Dropped, Input, Report, Said, Spending, Sweep
from .journal import RunAdded, RunChanged, TaskChanged
from .prefetch import NOTHING_FOUND, Prefetched
from .reports import decide_report, decide_spending
from .state import CompanyState
from .to_rows import unit_of

Encode = Callable[[Message[Any], object], str]
"""From a message and its answer (a reply, or the `Refused` error) to the text that its row in the inbox gets."""


class BadRow(Exception):
    """A text in the task's rows cannot be read back."""

    def __init__(self, task: str, why: str) -> None:
        super().__init__(f"bad row: {why}")
        self.task = task


@attrs.define
class TurnFailed(Exception):
    """Something raised what is no refusal. All is taken back. ``about`` is the task that was being decided, ``place``
    the position of the input, if it was one of them.
    """

    cause: Exception
    about: str | None = None
    place: int | None = None


@value
class Host:
    """What a turn needs to know of the process that makes it. Without ``encode`` no input may be from the inbox."""

    host_id: int
    live: Live = OPEN
    encode: Encode | None = None


@attrs.define(eq=False)
class Turn:
    """What a turn has come to."""

    draft: Draft
    advanced: Advanced
    answers: Sequence[object] = ()
    """One for each input: the reply to a message, or the `Refused` error; whether a report counted; or nothing."""
    unit: CommitTurn | None = None
    """What is to be committed; nothing if the turn changed nothing."""
    healed: bool = False
    """Whether something was not there that a sweep asked for."""
    moved: bool = False
    """Whether there was a move besides what was said, and not because a schedule's time had just come."""

    @property
    def events(self) -> Sequence[EventRecord]:
        return self.draft.events

    @property
    def effects(self) -> Sequence[Effect]:
        """To be performed once the unit is durable."""
        return self.draft.effects

    @property
    def about(self) -> str | None:
        """The task that was decided last: who is to blame if the unit is refused."""
        return self.draft.about

    def undo(self) -> None:
        """The unit was refused: nothing of the turn happened."""
        self.draft.undo()

    def evict(self, guests: Iterable[str] = ()) -> None:
        """It is durable: let go of settled tasks that nobody waiting needs, and of those that were only looked at."""
        state = self.draft.state
        for task in guests:
            state.evict(task)
        for move in self.draft.journal:
            if isinstance(move, RunChanged | RunAdded | TaskChanged):
                state.evict(move.task)


def turn(
    state: CompanyState,
    inputs: Iterable[Input],
    now_ms: int,
    slots: ExecutionSlots,
    host: Host,
    *,
    prefetched: Prefetched = NOTHING_FOUND,
    moves_max: int = MOVES_MAX,
) -> Turn:
    """Decide the inputs and make every move that may be made now, at most ``moves_max``; with 0 the moves are left to
    the next turn. Raises `TurnFailed`.
    """
    deciding = _Deciding(Draft(state, now_ms), prefetched, host)
    draft = deciding.draft
    start = draft.mark()
    try:
        for content in inputs:
            deciding.take(content)
        deciding.place = None
        advanced, before = Advanced(more=True, wants_slot=False), draft.moves
        if moves_max:
            advanced = advance(
                draft, slots, host.live, host_id=host.host_id, moves_max=moves_max, prefetched=prefetched
            )
        moved = draft.moves > before and not advanced.on_time
        draft.note_flips()
        unit = None if draft.empty else unit_of(draft)
    except Exception as error:
        about = draft.about
        draft.rollback(start)
        raise TurnFailed(error, about, deciding.place) from error
    return Turn(draft, advanced, deciding.answers, unit, deciding.healed, moved)


@attrs.define(eq=False)
class _Deciding:
    """The first half of a turn: the inputs, one after the other."""

    draft: Draft
    prefetched: Prefetched
    host: Host
    answers: list[object] = attrs.field(factory=list)
    place: int | None = None
    healed: bool = False

    def take(self, content: Input) -> None:
        self.place = len(self.answers)
        self.draft.about = None
        self.answers.append(self._decide(content))

    def _is_trusted(self, task: str) -> bool:
        """Whether the task has a run that may go on and is not set aside yet: setting it aside once is enough."""
        entry = self.draft.state.entries.get(task)
        return entry is not None and entry.quarantined is None

    def _decide(self, content: Input) -> object:
        draft = self.draft
        if isinstance(content, Said):
            return self._answer(content)
        if isinstance(content, Report):
            counted = decide_report(draft, content, self.prefetched)
            if content.bad_row is not None and self._is_trusted(content.key.task):
                raise BadRow(content.key.task, content.bad_row)
            return counted
        if isinstance(content, Spending):
            decide_spending(draft, content, self.prefetched)
        elif isinstance(content, Sweep):
            self.healed = look_again(draft, content) or self.healed
        elif isinstance(content, Dropped):
            draft.event("message.refused", reason=content.reason, message=content.message)
        return None

    def _answer(self, said: Said) -> object:
        """One message: its moves and its answer. A sender's mistake takes back only its own moves."""
        draft, message = self.draft, said.message
        mark = draft.mark()
        try:
            answer = decide(draft, message, self.prefetched)
        except Refused as refusal:
            draft.rollback(mark)
            if said.told:
                draft.event(
                    "message.refused", reason=clean_text(str(refusal)), message=type(message).__name__
                )
            answer = refusal
        if said.inbox is not None:
            assert self.host.encode is not None
            draft.writes.append(InboxAnswered(said.inbox, draft.now_ms, self.host.encode(message, answer)))
        return answer
