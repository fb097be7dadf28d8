"""A company's actor: one loop, one message at a time, one question: what may start now?

A turn takes messages, reads what they need, makes the pure `actors.core.turn.turn`, commits, publishes and acts.
That awaits nothing, so no turn can begin inside another; acting comes after the commit, so nothing is seen or done that
is not durable. A turn that is refused, or whose deciding raises, is undone in memory: nothing happened.

The actor holds its company's state and nothing else. Its mailbox and the attempts belong to the runtime and
survive it.
"""

from __future__ import annotations

from collections.abc import Iterator

import trio
from outcome import Error, Value

from actors.core.advance import Advanced
from actors.core.effects import AttemptKey, CancelAttempt, Effect, EndAttempt, StartAttempt
from actors.core.inputs import Dropped, Report, Spending
from actors.core.loading import check_company, state_of, take_in
from actors.core.prefetch import NOTHING_FOUND, Needs, Prefetched, late_spenders, needs_of
from actors.core.state import CompanyState
from actors.core.turn import Host, Turn, TurnFailed, turn
from actors.errors import ActorCrashed, CompanyDeleted, CompanyUnknown, Refused, RuntimeClosed
from actors.messages import Message
from storage.codec import clean_text
from storage.contract.companies import ClaimCompany, FindCompany
from storage.contract.loading import LoadCompany, LoadedCompany, LoadedTask
from storage.contract.recovery import Quarantine
from storage.contract.turns import Committed, Inputs
from storage.errors import OutcomeUnknown, StaleEpoch, StorageError, StoreLost, UnitRefused
from storage.records import Claim, CompanyRecord

from . import recovery
from .attempts import Attempt, AttemptRef
from .describe import describe
from .directory import Cell, Memory
from .executor import Executor
from .inbox_host import encode_answer
from .lookup import look_up
from .mailbox import Envelope, Errand, Sweep
from .one_by_one import OneByOne
from .services import Services
from .slots import TurnSlots
from .taken import Taken

BATCH_MAX = 100
"""Messages of one turn. More would only make the first of them wait for the last."""
LOOK_AGAIN_S = 60.0
"""The loop never sleeps longer, so a wall clock that jumped is noticed."""


class CompanyActor:
    def __init__(self, cell: Cell, services: Services, executor: Executor) -> None:
        self.name = cell.name
        self.mailbox = cell.mailbox
        self._cell = cell
        self._memory: Memory | None = None
        self._services = services
        self._executor = executor
        self._readers_wait = False
        """Whether somebody waits to read between two turns."""
        self.wants_slot = False
        self._pending_reports: list[Report] = []
        self._dropped: list[Dropped] = []
        """Told messages that the database refused: an event is all that their senders get."""
        self._guests: list[str] = []
        """Tasks that were read only because a message named them."""
        self.search = OneByOne()
        if cell.careful:  # an actor before this one crashed, so this one begins one thing at a time
            self.search.begin(min(len(self.mailbox), BATCH_MAX))

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
            self._services.slots.leave(self.name)

    async def _run_errand(self, errand: Errand) -> None:
        """Commit what is not a turn's. Nothing that was read before rests in between: no turn is under way."""
        try:
            unit = errand.prepare(self._state)
            value = None if unit is None else await self._services.store.commit(unit)
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
        until_due_s = LOOK_AGAIN_S if due_ms is None else max(0.0, (due_ms - self._services.now_ms()) / 1000)
        may_leave = not (self._services.registry.busy(self.name) or self.wants_slot or self._held_up())
        stay_s = min(until_due_s, self._services.options.idle_s if may_leave else LOOK_AGAIN_S, LOOK_AGAIN_S)
        assert self._memory is not None
        self._memory.resting = True
        self._services.notifier.notify(self.name)
        try:
            await self.mailbox.wait(stay_s)
        finally:
            self._memory.resting = False
        if not may_leave or self.mailbox.woken or until_due_s <= stay_s:
            return False
        # from here to the removal in `leave` there is no checkpoint: no message can slip in between
        works = state.next_work_ms() is not None
        return self.mailbox.unused and self._services.directory.leave(
            self._cell, state.next_due_ms(), works=works
        )

    def _held_up(self) -> bool:
        """Whether there is work that only something in this process holds up: an absent company would not hear of
        its end.
        """
        live = self._services.live(self.name)
        held = live.abandoned or live.store_down is not None or live.suspect is not None
        return bool(held) and bool(len(self._state.open) or self._state.startable)

    @property
    def _state(self) -> CompanyState:
        assert self._memory is not None
        return self._memory.state

    async def _load(self) -> None:
        """Fence off whatever an earlier actor has under way, read the facts, and see what became of what
        was running.
        """
        company = await self._claim()
        loaded, state = await self._read_all(company)
        bad = [task for task in loaded.tasks if task.bad is not None]
        if bad:
            for task in bad:
                await self._quarantine(company.claim, task)
            loaded, state = await self._read_all(company)
        state.wake_due(self._services.now_ms())
        self._pending_reports = await recovery.reports(self.name, state, self._services, self._executor)
        # no checkpoint since the registry was asked: what it told is not told again by the mailbox
        self.mailbox.drop_reports(lambda report: self._registered(report) is not None)
        self._memory = self._cell.memory = Memory(state)
        self._memory.between_turns.set()

    async def _read_all(self, claimed: CompanyRecord) -> tuple[LoadedCompany, CompanyState]:
        """On the reader's thread, the building of the state too: however long the queue, the event loop goes on."""
        handlers = self._services.handler_names

        def build(found: LoadedCompany | None) -> tuple[LoadedCompany, CompanyState]:
            if found is None or found.company.claim != claimed.claim:
                raise StaleEpoch(claimed.name, claimed.epoch)
            loaded = check_company(found)
            return loaded, state_of(loaded, handlers)

        return await self._services.store.fetch_with(LoadCompany(self.name), build)

    async def _claim(self) -> CompanyRecord:
        """Become the company's actor. A company comes to be by a message, not by being looked at.

        Whoever else writes for the company waits for the claim from here on, so nobody uses one that it ends.
        """
        self._cell.withdraw_claim()
        while True:
            create = self.mailbox.addressed
            claimed = await self._services.store.commit(ClaimCompany(self.name, create))
            if claimed is not None:
                self._cell.set_claim(claimed.claim)
                return claimed
            if not self.mailbox.addressed:
                raise CompanyUnknown(self.name)

    async def _stored_company(self) -> CompanyRecord:
        """What a quarantine has made of the budget as well."""
        claim = self._state.company.claim
        found = await self._services.store.fetch(FindCompany(self.name))
        if found is None or found.claim != claim:
            raise StaleEpoch(self.name, claim.epoch)
        return found

    def _registered(self, report: Report) -> Attempt | None:
        return self._services.registry.get(AttemptRef(self.name, report.key))

    async def _quarantine(self, claim: Claim, task: LoadedTask) -> None:
        why = clean_text(task.bad or "")
        asked = Quarantine(
            claim, task.record.id, task.record.seq, why, task.traceback, self._services.now_ms()
        )
        committed, events = await self._services.store.commit(asked)
        self._services.publisher.published(self.name, events, committed)

    # --- the turn -------------------------------------------------------------------------------------------

    async def _turn(self) -> bool:
        """One pass; says whether there is more to do at once."""
        alone = bool(self.search)
        taken = self._take()
        prefetched = await self._prefetch(taken)
        slots = TurnSlots(self.name, self._services.slots, self._services.registry)
        assert self._memory is not None
        self._memory.between_turns = trio.Event()
        try:
            made = self._decide(taken, prefetched, slots)
            committed = await self._commit(taken, made, slots)
            if committed is None:
                return True
            self._act_or_answer(taken, made, committed, slots)
        finally:
            self._readers_wait = bool(self._memory.between_turns.statistics().tasks_waiting)
            self._memory.between_turns.set()
            slots.give_back()
        self._ask_for_slots(made.advanced)
        # no wake comes for what lay in the mailbox already and was not taken
        return made.advanced.more or alone or len(self.mailbox) > 0

    def _ask_for_slots(self, advanced: Advanced) -> None:
        self.wants_slot = advanced.wants_slot or advanced.kept_back
        if advanced.wants_slot:
            self._services.slots.want(self.name, self._state.company.weight)
        if advanced.kept_back:
            self._services.slots.keep_back(self.name)

    def _take(self) -> Taken:
        """What the turn is about: all there is, or one thing alone while the guilty one is looked for."""
        if not self.search:
            return Taken(self.mailbox.take(BATCH_MAX), self._pending_reports, self._dropped)
        if self._pending_reports:
            return Taken([], self._pending_reports[:1], self._dropped)
        envelopes = self.mailbox.take(1) if self.search.messages else []
        self.search.took(len(envelopes))
        return Taken(envelopes, dropped=self._dropped)

    async def _prefetch(self, taken: Taken) -> Prefetched:
        """Read what the messages name and memory does not hold, in one reading. If that goes wrong they are taken
        again; one that goes wrong alone as well is the guilty one.
        """
        messages = [e.content for e in taken.envelopes if isinstance(e.content, Message)]
        reports = [e.content for e in taken.envelopes if isinstance(e.content, Report | Spending)]
        spenders = [one.key for one in (*taken.reports, *reports) if one.spent is not None]
        try:
            late = late_spenders(self._state, spenders) if spenders else ()
            needs = needs_of(self._state, messages, self._services.now_ms(), late)
            return await self._read(needs) if needs else NOTHING_FOUND
        except BaseException as error:
            ours = isinstance(error, Exception) and not isinstance(error, StorageError)
            guilty = taken.envelopes[0] if ours and self.search and messages else None
            self._blame(taken, guilty, error)
            raise

    async def _read(self, needs: Needs) -> Prefetched:
        company = self._state.company
        found, prefetched = await look_up(self._services.store, company.company_id, needs)
        bad = [task for task in found.tasks if task.bad is not None]
        for task in bad:
            await self._quarantine(company.claim, task)
        if bad:
            self._state.company = await self._stored_company()
            found, prefetched = await look_up(self._services.store, company.company_id, needs)
        take_in(self._state, found.tasks, found.missing)
        self._guests.extend(task.record.id for task in found.tasks)
        return prefetched

    def _decide(self, taken: Taken, prefetched: Prefetched, slots: TurnSlots) -> Turn:
        """The pure part. No checkpoint; what it raises has taken all of it back."""
        services = self._services
        try:
            return turn(
                self._state,
                taken.inputs(self._alive),
                services.now_ms(),
                slots,
                Host(services.host_id, services.live(self.name), encode_answer),
                prefetched=prefetched,
                moves_max=self.search.moves_max(said=taken.said),
            )
        except TurnFailed as failed:
            self._blame(taken, taken.envelope_at(failed.place), failed.cause)
            raise

    def _alive(self) -> Iterator[AttemptKey]:
        return (attempt.ref.key for attempt in self._services.registry.of_company(self.name))

    def _blame(self, taken: Taken, guilty: Envelope | None, error: BaseException) -> None:
        """The turn came to nothing: the guilty message is answered, the others are taken again by the next actor."""
        if guilty is not None and isinstance(guilty.content, Message):
            guilty.fail(ActorCrashed(self.name, describe(error)))
            self.mailbox.put_back(envelope for envelope in taken.envelopes if envelope is not guilty)
        else:
            self.mailbox.put_back(taken.envelopes)

    async def _commit(self, taken: Taken, made: Turn, slots: TurnSlots) -> Committed | None:
        """Make the turn durable; ``None`` if the database refused it, so that nothing of it happened."""
        if made.unit is None:
            return Committed(0, 0, ())
        try:
            pending = self._services.store.submit(made.unit)
            slots.sent()
            return await pending.wait()
        except UnitRefused as refusal:
            self._undo(taken, made, refusal)
            return None
        except StaleEpoch as error:
            taken.fail(RuntimeClosed(str(error)))
            raise
        except StoreLost as error:
            taken.fail(error)
            raise
        except Exception as error:
            if not isinstance(error, StorageError):  # the unit itself raised it, so it changed nothing
                self._undo(taken, made, error)
                return None
            taken.fail(OutcomeUnknown())
            raise
        except BaseException:
            taken.fail(OutcomeUnknown())
            raise

    def _undo(self, taken: Taken, made: Turn, refusal: Exception) -> None:
        """A unit was refused: undo it, and take its messages again one by one, so that only the guilty one
        hears of it.
        """
        made.undo()
        if not self.search:
            self.search.begin(len(taken.envelopes))
            self.mailbox.put_back(taken.envelopes)
            return
        if taken.envelopes and isinstance(taken.envelopes[0].content, Message):
            (envelope,) = taken.envelopes
            envelope.fail(ActorCrashed(self.name, describe(refusal)))
            if envelope.reply is None:
                self._dropped.append(Dropped(type(envelope.content).__name__, describe(refusal)))
            return
        self.mailbox.put_back(taken.envelopes)
        raise TurnFailed(refusal, made.about)

    # --- after the commit -----------------------------------------------------------------------------------

    def _act_or_answer(self, taken: Taken, made: Turn, committed: Committed, slots: TurnSlots) -> None:
        """`_act`; if it fails, those who ask are still answered: the change is durable, so it happened. What has
        ended is let go, or the next actor would take its report for a late one.
        """
        try:
            self._act(taken, made, committed, slots)
        except Exception as error:
            taken.fail(ActorCrashed(self.name, describe(error), happened=True))
            for effect in made.effects:
                if isinstance(effect, EndAttempt):
                    self._executor.finish(AttemptRef(self.name, effect.key))
            raise

    def _act(self, taken: Taken, made: Turn, committed: Committed, slots: TurnSlots) -> None:
        """Durable, so now visible, and only then acted upon. No checkpoint."""
        self._dropped.clear()
        self._pending_reports = self._pending_reports[len(taken.reports) :]
        if not taken.said:
            self.search.moved(more=made.advanced.more)
        self._services.publisher.published(self.name, tuple(made.events), committed)
        given = iter(committed.inputs)
        for effect in made.effects:
            self._perform(effect, given, slots)
        self._answer(taken, made)
        made.evict(self._guests)
        self._guests.clear()

    def _perform(self, effect: Effect, given: Iterator[Inputs], slots: TurnSlots) -> None:
        executor, ref = self._executor, AttemptRef(self.name, effect.key)
        if isinstance(effect, StartAttempt):
            executor.start(slots.reserved(ref), effect, next(given))
            slots.started(ref)
        elif isinstance(effect, CancelAttempt):
            executor.cancel(ref, effect.why)
        else:
            executor.finish(ref)

    def _answer(self, taken: Taken, made: Turn) -> None:
        answers = made.answers[len(made.answers) - len(taken.envelopes) :]
        for envelope, answer in zip(taken.envelopes, answers, strict=True):
            if isinstance(envelope.content, Sweep):
                healed = made.healed or (taken.swept and made.moved)
                envelope.content.healed.settle(Value(healed))
            elif isinstance(answer, Refused):
                envelope.fail(answer)
            else:
                envelope.answer(answer)
