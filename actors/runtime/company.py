"""A company's actor: one loop, one message at a time, one question: what may start now?

A turn takes messages, reads what they need, decides, advances, commits, publishes and acts. Deciding awaits
nothing, so no turn can begin inside another; acting comes after the commit, so nothing is seen or done that
is not durable. A turn that is refused, or whose deciding raises, is undone in memory: nothing happened.

The actor holds its company's state and nothing else. Its mailbox and the attempts belong to the runtime and
survive it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import attrs
import trio
from outcome import Error, Outcome, Value

from actors.core.advance import MOVES_MAX, advance
from actors.core.budget import Spending
from actors.core.decide import decide
from actors.core.draft import CancelAttempt, Draft, Effect, EndAttempt, StartAttempt
from actors.core.gates import Live
from actors.core.loading import check_texts, state_of, take_in
from actors.core.needs import NOTHING_FOUND, Looked, Needs, late_spenders, needs_of
from actors.core.reports import Report, decide_report, decide_spending
from actors.core.state import CompanyState
from actors.core.unit import unit_of
from actors.errors import ActorCrashed, CompanyDeleted, CompanyUnknown, Refused, RuntimeClosed
from actors.messages import Message
from storage.codec import clean_text
from storage.database import Database
from storage.errors import OutcomeUnknown, StaleEpoch, StorageError, StoreLost, UnitRefused
from storage.loading import (
    LoadedCompany,
    LoadedTask,
    claim_company,
    claim_existing,
    find_company,
    load_company,
)
from storage.records import CompanyRecord, EventRecord
from storage.units import Committed, UnitOfWork

from . import recovery
from .attempts import Attempt, AttemptRef, Registry
from .describe import describe
from .execution import Executor
from .intake import write_answer
from .lookup import look_up
from .mailbox import Envelope, Errand, Mailbox, Sweep
from .slots import Slots, TurnSlots

BATCH_MAX = 100
"""Messages of one turn. More would only make the first of them wait for the last."""
LOOK_AGAIN_S = 60.0
"""The loop never sleeps longer, so a wall clock that jumped is noticed."""
IDLE_S = 10.0
"""An actor with nothing to do stays so long: a company in conversation is not loaded anew for each message."""


class Surroundings(Protocol):
    """What an actor needs of the runtime."""

    database: Database
    registry: Registry
    slots: Slots
    executor: Executor
    handlers: frozenset[str]
    host_id: int
    idle_s: float

    def now_ms(self) -> int: ...
    def live(self, company: str) -> Live: ...
    def published(self, company: str, events: tuple[EventRecord, ...], committed: Committed) -> None: ...
    def leave(self, company: str, due_ms: int | None, *, works: bool) -> bool: ...
    def quiet(self, company: str) -> None: ...


@attrs.define
class Crash(Exception):
    """The actor cannot go on in this state of its memory. ``about`` is the task that was being decided, if
    one was.
    """

    cause: BaseException
    about: str | None = None

    def __str__(self) -> str:
        return describe(self.cause)


@attrs.define
class Turn:
    """What one turn has taken and made so far."""

    envelopes: list[Envelope]
    reports: Sequence[Report] = ()
    """Told by the registry at the actor's start, not by the mailbox."""
    answers: list[Outcome[Any]] = attrs.field(factory=list)
    draft: Draft | None = None
    unit: UnitOfWork | None = None
    """What is to be committed; nothing if the turn changed nothing."""
    more: bool = False
    wants_slot: bool = False
    kept_back: bool = False
    healed: bool = False


class CompanyActor:
    def __init__(self, name: str, mailbox: Mailbox, around: Surroundings, *, careful: bool = False) -> None:
        """``careful``: an actor before this one crashed, so it begins one thing at a time."""
        self.name = name
        self.mailbox = mailbox
        self.around = around
        self.state: CompanyState | None = None
        self.between_turns = trio.Event()
        """Set while the state holds nothing that is not committed."""
        self._readers_wait = False
        """Whether somebody waits to read between two turns."""
        self.wants_slot = False
        self.resting = False
        """Whether it waits for something to do."""
        self._pending_reports: list[Report] = []
        self._refusals: list[tuple[str, str]] = []
        """Told messages that the database refused, each with its reason: an event is all that their senders get."""
        self._guests: list[str] = []
        """Tasks that were read only because a message named them."""
        self._singles = 0
        """Messages that are taken one by one: the unit they were in was refused, and one of them is guilty."""
        self._unseen: list[str] = []
        """Tasks that the sweep has not come to yet."""
        self._single_moves = 0
        """Moves that are made one by one after them, for if none of the messages was."""
        if careful:
            self._go_one_by_one(min(len(mailbox), BATCH_MAX))

    # --- life -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Load, recover, and turn until there is nothing to do; returns when the company has left the
        directory.
        """
        await self._load()
        try:
            while True:
                self.mailbox.clear_wake()
                while (errand := self.mailbox.next_errand()) is not None:
                    await self._run_errand(errand)
                more = await self._turn()
                if self._readers_wait:  # without this the next turn would begin before they had their look
                    await trio.lowlevel.cancel_shielded_checkpoint()
                if not more and not self.mailbox.woken and await self._rest():
                    return
        finally:
            self.around.slots.leave(self.name)

    async def _run_errand(self, errand: Errand) -> None:
        """Commit what is not a turn's. Nothing that was read before rests in between: no turn is under way."""
        try:
            unit = errand.prepare(self._state)
            value = None if unit is None else await self.around.database.writer.commit(unit)
        except BaseException as error:
            known = isinstance(error, Exception)
            errand.reply.settle(Error(error if known else OutcomeUnknown()))
            if not known or isinstance(error, StaleEpoch):
                raise
        else:
            errand.reply.settle(Value(value))
            if errand.last and unit is not None:
                raise CompanyDeleted(self.name)

    async def _rest(self) -> bool:
        """Wait for a wake, the next due time, or long enough to leave; says whether the actor left."""
        state = self._state
        due_ms = state.next_due_ms()
        until_due_s = LOOK_AGAIN_S if due_ms is None else max(0.0, (due_ms - self.around.now_ms()) / 1000)
        may_leave = not (self.around.registry.busy(self.name) or self.wants_slot or self._held_up())
        stay_s = min(until_due_s, self.around.idle_s if may_leave else LOOK_AGAIN_S, LOOK_AGAIN_S)
        self.resting = True
        self.around.quiet(self.name)
        try:
            await self.mailbox.wait(stay_s)
        finally:
            self.resting = False
        if not may_leave or self.mailbox.woken or until_due_s <= stay_s:
            return False
        # from here to the removal in `leave` there is no checkpoint: no message can slip in between
        works = state.next_work_ms() is not None
        return self.mailbox.unused and self.around.leave(self.name, state.next_due_ms(), works=works)

    def _held_up(self) -> bool:
        """Whether there is work that only something in this process holds up: an absent company would not hear of
        its end.
        """
        live = self.around.live(self.name)
        held = live.abandoned or live.store_down is not None or live.suspect is not None
        return bool(held) and bool(len(self._state.open) or self._state.startable)

    @property
    def works(self) -> bool:
        """Whether work of the company becomes due by itself; its schedules aside, which never end."""
        return self.state is not None and self.state.next_work_ms() is not None

    @property
    def _state(self) -> CompanyState:
        assert self.state is not None
        return self.state

    async def _load(self) -> None:
        """Fence off whatever an earlier actor has under way, read the facts, and see what became of what
        was running.
        """
        database = self.around.database
        company = await self._claim()
        loaded, state = await database.read(lambda conn: self._read_all(conn, company))
        bad = [task for task in loaded.tasks if task.bad is not None]
        if bad:
            for task in bad:
                await self._quarantine(task)
            company = await self._stored_company()
            loaded, state = await database.read(lambda conn: self._read_all(conn, company))
        state.wake_due(self.around.now_ms())
        self._pending_reports = await recovery.reports(self.name, state, self.around)
        # no checkpoint since the registry was asked: what it told is not told again by the mailbox
        self.mailbox.drop_reports(lambda report: self._registered(report) is not None)
        self.state = state
        self.between_turns.set()

    def _read_all(
        self, conn: sqlite3.Connection, company: CompanyRecord
    ) -> tuple[LoadedCompany, CompanyState]:
        """On the reader's thread, the building of the state too: however long the queue, the event loop goes on."""
        loaded = load_company(conn, company, check_texts)
        return loaded, state_of(loaded, self.around.handlers)

    async def _claim(self) -> CompanyRecord:
        """Become the company's actor. A company comes to be by a message, not by being looked at."""
        writer = self.around.database.writer
        while not self.mailbox.addressed:
            claimed = await writer.commit(partial(claim_existing, name=self.name))
            if claimed is not None:
                return claimed
            if not self.mailbox.addressed:
                raise CompanyUnknown(self.name)
        return await writer.commit(partial(claim_company, name=self.name))

    async def _stored_company(self) -> CompanyRecord:
        """What a quarantine has made of the budget as well."""
        found = await self.around.database.read(lambda conn: find_company(conn, self.name))
        assert found is not None
        return found

    def _registered(self, report: Report) -> Attempt | None:
        return self.around.registry.get(AttemptRef(self.name, report.key))

    async def _quarantine(self, task: LoadedTask) -> None:
        company, now_ms = self.name, self.around.now_ms()
        unit = recovery.Quarantine(
            company, task.record.id, task.record.seq, clean_text(task.bad or ""), task.traceback, now_ms
        )
        committed, events = await self.around.database.writer.commit(unit)
        self.around.published(company, events, committed)

    # --- the turn -------------------------------------------------------------------------------------------

    async def _turn(self) -> bool:
        """One pass; says whether there is more to do at once."""
        alone = self._alone
        turn = self._take()
        looked = await self._look(turn)
        slots = TurnSlots(self.name, self.around.slots, self.around.registry)
        self.between_turns = trio.Event()
        try:
            self._decide(turn, looked, slots)
            committed = await self._commit(turn, slots)
            if committed is None:
                return True
            self._act_or_answer(turn, committed, slots)
        finally:
            self._readers_wait = bool(self.between_turns.statistics().tasks_waiting)
            self.between_turns.set()
            slots.give_back()
        self.wants_slot = turn.wants_slot or turn.kept_back
        if turn.wants_slot:
            self.around.slots.want(self.name, self._state.company.weight)
        if turn.kept_back:
            self.around.slots.keep_back(self.name)
        # no wake comes for what lay in the mailbox already and was not taken
        return turn.more or alone or len(self.mailbox) > 0

    def _take(self) -> Turn:
        """What the turn is about: all there is, or one thing alone while the guilty one is looked for."""
        if not self._alone:
            return Turn(self.mailbox.take(BATCH_MAX), self._pending_reports)
        if self._pending_reports:
            return Turn([], self._pending_reports[:1])
        taken = self.mailbox.take(1) if self._singles else []
        self._singles = self._singles - 1 if taken else 0
        return Turn(taken)

    @property
    def _alone(self) -> bool:
        return self._singles > 0 or self._single_moves > 0

    def _go_one_by_one(self, messages: int) -> None:
        """The guilty one is among so many messages, or among the first moves of one turn."""
        self._singles, self._single_moves = messages, MOVES_MAX

    async def _look(self, turn: Turn) -> Looked:
        """Read what the messages name and memory does not hold, in one reading. If that goes wrong they are taken
        again; one that goes wrong alone as well is the guilty one.
        """
        messages = [e.content for e in turn.envelopes if isinstance(e.content, Message)]
        reports = [e.content for e in turn.envelopes if isinstance(e.content, Report | Spending)]
        spenders = [one.key for one in (*turn.reports, *reports) if one.spent is not None]
        try:
            late = late_spenders(self._state, spenders) if spenders else ()
            needs = needs_of(self._state, messages, self.around.now_ms(), late)
            return await self._read(needs) if needs else NOTHING_FOUND
        except BaseException as error:
            ours = isinstance(error, Exception) and not isinstance(error, StorageError)
            guilty = turn.envelopes[0] if ours and self._alone and messages else None
            self._blame(turn, guilty, error)
            raise

    async def _read(self, needs: Needs) -> Looked:
        company_id = self._state.company.company_id
        found, looked = await self.around.database.read(lambda conn: look_up(conn, company_id, needs))
        bad = [task for task in found.tasks if task.bad is not None]
        for task in bad:
            await self._quarantine(task)
        if bad:
            self._state.company = await self._stored_company()
            found, looked = await self.around.database.read(lambda conn: look_up(conn, company_id, needs))
        take_in(self._state, found.tasks, found.missing)
        self._guests.extend(task.record.id for task in found.tasks)
        return looked

    def _decide(self, turn: Turn, looked: Looked, slots: TurnSlots) -> None:
        """Everything from the messages to the moves. No checkpoint; an exception takes all of it back."""
        draft = turn.draft = Draft(self._state, self.around.now_ms())
        start = draft.mark()
        current: Envelope | None = None
        try:
            for message, reason in self._refusals:
                draft.event("message.refused", reason=reason, message=message)
            for report in turn.reports:
                decide_report(draft, report, looked)
            for current in turn.envelopes:
                turn.answers.append(self._decide_one(draft, current, looked, turn))
            current = None
            if not (self._alone and (turn.envelopes or turn.reports)):
                moves_max = 1 if self._alone else MOVES_MAX
                live = self.around.live(self.name)
                before = draft.moves
                advanced = advance(
                    draft, slots, live, host_id=self.around.host_id, moves_max=moves_max, looked=looked
                )
                turn.more, turn.wants_slot = advanced.more, advanced.wants_slot
                turn.kept_back = advanced.kept_back
                swept = bool(turn.envelopes) and all(isinstance(e.content, Sweep) for e in turn.envelopes)
                turn.healed = turn.healed or (swept and draft.moves > before and not advanced.on_time)
            else:
                turn.more = True
            draft.note_flips()
            turn.unit = None if draft.empty else unit_of(draft)
        except Exception as error:
            about = draft.about
            draft.rollback(start)
            self._blame(turn, current, error)
            raise Crash(error, about) from error

    def _decide_one(self, draft: Draft, envelope: Envelope, looked: Looked, turn: Turn) -> Outcome[Any]:
        """One message: its moves and its answer. A sender's mistake takes back only its own moves."""
        content = envelope.content
        draft.about = None
        if isinstance(content, Report):
            decide_report(draft, content, looked)
            if content.bad_row is not None:
                raise recovery.BadRow(content.key.task, content.bad_row)
            return Value(None)
        if isinstance(content, Spending):
            decide_spending(draft, content, looked)
            return Value(None)
        if isinstance(content, Sweep):
            turn.healed = recovery.look_again(draft, self.name, self.around, self._unseen) or turn.healed
            return Value(None)
        answer: Outcome[Any]
        mark = draft.mark()
        try:
            answer = Value(decide(draft, content, looked))
        except Refused as refusal:
            draft.rollback(mark)
            if envelope.reply is None:
                draft.event(
                    "message.refused", reason=clean_text(str(refusal)), message=type(content).__name__
                )
            answer = Error(refusal)
        if envelope.inbox is not None:
            write_answer(draft, envelope.inbox, content, answer)
        return answer

    def _blame(self, turn: Turn, guilty: Envelope | None, error: BaseException) -> None:
        """The turn came to nothing: the guilty message is answered, the others are taken again by the next actor."""
        if guilty is not None and isinstance(guilty.content, Message):
            guilty.fail(ActorCrashed(self.name, describe(error)))
            self.mailbox.put_back(envelope for envelope in turn.envelopes if envelope is not guilty)
        else:
            self.mailbox.put_back(turn.envelopes)

    async def _commit(self, turn: Turn, slots: TurnSlots) -> Committed | None:
        """Make the turn durable; ``None`` if the database refused it, so that nothing of it happened."""
        if turn.unit is None:
            return Committed(0, 0, ())
        try:
            pending = self.around.database.writer.submit(turn.unit)
            slots.sent()
            return await pending.wait()
        except UnitRefused as refusal:
            self._undo(turn, refusal)
            return None
        except StaleEpoch as error:
            for envelope in turn.envelopes:
                envelope.fail(RuntimeClosed(str(error)))
            raise
        except StoreLost as error:
            for envelope in turn.envelopes:
                envelope.fail(error)
            raise
        except Exception as error:
            if not isinstance(error, StorageError):  # the unit itself raised it, so it changed nothing
                self._undo(turn, error)
                return None
            self._fail_unknown(turn)
            raise
        except BaseException:
            self._fail_unknown(turn)
            raise

    @staticmethod
    def _fail_unknown(turn: Turn) -> None:
        for envelope in turn.envelopes:
            envelope.fail(OutcomeUnknown())

    def _undo(self, turn: Turn, refusal: Exception) -> None:
        """A unit was refused: undo it, and take its messages again one by one, so that only the guilty one
        hears of it.
        """
        draft = turn.draft
        assert draft is not None
        about = draft.about
        for change in reversed(draft.changes):
            draft.state.undo(change)
        if not self._alone:
            self._go_one_by_one(len(turn.envelopes))
            self.mailbox.put_back(turn.envelopes)
            return
        if turn.envelopes and isinstance(turn.envelopes[0].content, Message):
            (envelope,) = turn.envelopes
            envelope.fail(ActorCrashed(self.name, describe(refusal)))
            if envelope.reply is None:
                self._refusals.append((type(envelope.content).__name__, describe(refusal)))
            return
        self.mailbox.put_back(turn.envelopes)
        raise Crash(refusal, about)

    # --- after the commit -----------------------------------------------------------------------------------

    def _act_or_answer(self, turn: Turn, committed: Committed, slots: TurnSlots) -> None:
        """`_act`; if it fails, those who ask are still answered: the change is durable, so it happened. What has
        ended is let go, or the next actor would take its report for a late one.
        """
        try:
            self._act(turn, committed, slots)
        except Exception as error:
            for envelope in turn.envelopes:
                envelope.fail(ActorCrashed(self.name, describe(error), happened=True))
            for effect in turn.draft.effects if turn.draft is not None else ():
                if isinstance(effect, EndAttempt):
                    self.around.executor.finish(AttemptRef(self.name, effect.key))
            raise

    def _act(self, turn: Turn, committed: Committed, slots: TurnSlots) -> None:
        """Durable, so now visible, and only then acted upon. No checkpoint."""
        draft = turn.draft
        assert draft is not None
        self._refusals.clear()
        self._pending_reports = self._pending_reports[len(turn.reports) :]
        if not turn.envelopes and not turn.reports:
            self._single_moves = max(0, self._single_moves - 1) if turn.more else 0
        self.around.published(self.name, tuple(draft.events), committed)
        inputs = iter(committed.inputs)
        for effect in draft.effects:
            self._perform(effect, inputs, slots)
        for envelope, answer in zip(turn.envelopes, turn.answers, strict=True):
            if isinstance(envelope.content, Sweep):
                envelope.content.healed.settle(Value(turn.healed))
            elif envelope.reply is not None:
                envelope.reply.settle(answer)
        self._forget(draft)

    def _forget(self, draft: Draft) -> None:
        """Let go of settled tasks that nobody waiting needs."""
        for task in self._guests:
            self._state.evict(task)
        self._guests.clear()
        for change in draft.changes:
            if change.kind in ("run", "task"):
                self._state.evict(change.task)

    def _perform(self, effect: Effect, inputs: Any, slots: TurnSlots) -> None:
        executor = self.around.executor
        if isinstance(effect, StartAttempt):
            ref = AttemptRef(self.name, effect.key)
            executor.start(slots.reserved(ref), effect, next(inputs))
            slots.started(ref)
        elif isinstance(effect, CancelAttempt):
            executor.cancel(AttemptRef(self.name, effect.key), effect.why)
        elif isinstance(effect, EndAttempt):
            executor.finish(AttemptRef(self.name, effect.key))
        else:
            raise AssertionError(effect)
