"""One company as its actor treats it, without the actor: rows in a database in memory, facts in a `CompanyState`.

A `World` makes turns as the actor makes them (look, decide, advance, commit, evict), plays the handlers, and can be
told to refuse a unit or to load everything anew. Nothing waits and nothing runs beside it: time is a number.
"""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import attrs

from actors.core.advance import MOVES_MAX, Advanced, advance
from actors.core.budget import Spending
from actors.core.decide import decide
from actors.core.draft import AttemptKey, CancelAttempt, Draft, EndAttempt, StartAttempt
from actors.core.entry import Entry
from actors.core.gates import OPEN, Live
from actors.core.loading import check_company, state_of, take_in
from actors.core.needs import NOTHING_FOUND, Looked, late_spenders, needs_of
from actors.core.reports import Report, decide_report, decide_spending
from actors.core.state import CompanyState
from actors.core.unit import unit_of
from actors.core.work_state import explain, positions, work_state
from actors.errors import Refused
from actors.messages import Message
from actors.runtime.lookup import looked_of, prefetch_of
from actors.states import Reason, ReasonKind, WorkState
from storage.contract.companies import ClaimCompany
from storage.contract.loading import LoadCompany, LoadedCompany
from storage.records import AttemptEnd, EventRecord, NodeRecord, RunRecord
from storage.sqlite.engine import answer, carry_out
from storage.sqlite.opening import schema_script
from storage.values import changed

from .. import invariants

R = TypeVar("R")
START_MS = 1_000_000
ALL_SLOTS = 1_000_000


@attrs.define
class ExecutionSlots:
    """So many execution slots, and who has them."""

    free: int = ALL_SLOTS
    held: set[AttemptKey] = attrs.field(factory=set)

    def reserve(self, key: AttemptKey, *, suspect: bool = False) -> bool:
        if self.free <= len(self.held):
            return False
        self.held.add(key)
        return True


def loaded(conn: sqlite3.Connection, company: str) -> LoadedCompany:
    """What an actor of the company begins with."""
    found = answer(conn, LoadCompany(company))
    assert found is not None
    return check_company(found)


class World:
    def __init__(
        self,
        *,
        runs_max: int = 1,
        handlers: Iterable[str] | None = None,
        executions_max: int = ALL_SLOTS,
        company: str = "acme",
    ) -> None:
        self.conn = a_database()
        weakref.finalize(self, self.conn.close)
        self.name = company
        self.handlers = None if handlers is None else frozenset(handlers)
        self.now_ms = START_MS
        self.slots = ExecutionSlots(executions_max)
        self.live: Live = OPEN
        self.running: dict[AttemptKey, StartAttempt] = {}
        """Attempts that were begun and have not reported."""
        self.cancelled: list[CancelAttempt] = []
        self.guests: list[str] = []
        """Tasks that are in memory only because a message named them."""
        self.events: list[EventRecord] = []
        """Everything that was committed, oldest first."""
        self.watchers: list[Callable[[Draft | None], None]] = []
        """Called after each message, each turn, each undoing and each loading."""
        with writing(self.conn):
            (self.host_id,) = self.conn.execute(
                "INSERT INTO hosts (pid, started_ms) VALUES (1, 0) RETURNING host_id"
            ).fetchone()
            carry_out(self.conn, ClaimCompany(company, create=True))
            self.conn.execute("UPDATE companies SET runs_max = ?", (runs_max,))
        self.state: CompanyState = self.reload()

    # --- what the actor does ------------------------------------------------------------------------------------

    def reload(self) -> CompanyState:
        """Forget everything and load it from the tables, as a new actor would. Attempts live on."""
        with writing(self.conn):
            carry_out(self.conn, ClaimCompany(self.name, create=True))
        self.state = state_of(loaded(self.conn, self.name), self.handlers)
        self.state.wake_due(self.now_ms)
        self._watch(None)
        return self.state

    def look(self, messages: Sequence[Message[Any]], said: Sequence[Report | Spending] = ()) -> Looked:
        """The one reading of a turn."""
        late = late_spenders(self.state, [one.key for one in said if one.spent is not None])
        needs = needs_of(self.state, messages, self.now_ms, late)
        if not needs:
            return Looked()
        asked = prefetch_of(self.state.company.company_id, needs)
        found, looked = looked_of(needs, answer(self.conn, asked))
        assert not [task for task in found.tasks if task.bad is not None]
        take_in(self.state, found.tasks, found.missing)
        self.guests.extend(task.record.id for task in found.tasks)
        return looked

    def turn(
        self,
        *contents: Message[Any] | Report | Spending,
        commit: bool = True,
        advancing: bool = True,
        moves_max: int = MOVES_MAX,
    ) -> list[Any]:
        """One turn: the answer to each message (a reply or its refusal), whether it was committed or undone."""
        said = [content for content in contents if isinstance(content, Report | Spending)]
        looked = self.look([content for content in contents if isinstance(content, Message)], said)
        draft = Draft(self.state, self.now_ms)
        answers = [self._decide_one(draft, content, looked) for content in contents]
        if advancing:
            self.advanced = self.advance(draft, moves_max, looked)
        draft.note_flips()
        if commit:
            self.commit(draft)
            self._forget(draft)
        else:
            unit_of(draft)
            for change in reversed(draft.changes):
                self.state.undo(change)
            self.slots.held = set(self.running)
            self._watch(draft)
            return answers
        self._watch(None)
        return answers

    def _decide_one(self, draft: Draft, content: Message[Any] | Report | Spending, looked: Looked) -> Any:
        mark = draft.mark()
        answer: Any = None
        if isinstance(content, Report):
            self.slots.held.discard(content.key)  # a child that has returned holds no slot
            answer = decide_report(draft, content, looked)
        elif isinstance(content, Spending):
            decide_spending(draft, content, looked)
        else:
            try:
                answer = decide(draft, content, looked)
            except Refused as refusal:
                draft.rollback(mark)
                answer = refusal
        self._watch(draft)
        return answer

    def advance(self, draft: Draft, moves_max: int = MOVES_MAX, looked: Looked = NOTHING_FOUND) -> Advanced:
        alive = frozenset((key.task, key.run, key.pos) for key in self.running)
        live = changed(self.live, alive=alive, suspect=next(iter(self._suspects()), None))
        return advance(draft, self.slots, live, host_id=self.host_id, moves_max=moves_max, looked=looked)

    def commit(self, draft: Draft) -> None:
        """Write the unit, then act."""
        if not draft.empty:
            unit = unit_of(draft)
            with writing(self.conn):
                carry_out(self.conn, unit)
        self.events.extend(draft.events)
        for effect in draft.effects:
            if isinstance(effect, StartAttempt):
                self.running[effect.key] = effect
            elif isinstance(effect, CancelAttempt):
                self.cancelled.append(effect)
            elif isinstance(effect, EndAttempt):
                self.running.pop(effect.key, None)
                self.slots.held.discard(effect.key)

    def _forget(self, draft: Draft) -> None:
        for task in self.guests:
            self.state.evict(task)
        self.guests.clear()
        for change in draft.changes:
            if change.kind in ("run", "task"):
                self.state.evict(change.task)

    def _watch(self, draft: Draft | None) -> None:
        for watcher in self.watchers:
            watcher(draft)

    # --- in a test's words ----------------------------------------------------------------------------------------

    def ask(self, message: Message[R]) -> R:
        """One message in a turn of its own: its reply, or its refusal raised."""
        (answer,) = self.turn(message)
        if isinstance(answer, Refused):
            raise answer
        return answer  # type: ignore[no-any-return]

    def advance_until_quiet(self) -> None:
        """Turns without messages until nothing more may be done."""
        self.turn()
        while self.advanced.more:
            self.turn()

    def wait(self, seconds: float) -> None:
        """Let time pass, then look."""
        self.now_ms += round(seconds * 1000)
        self.advance_until_quiet()

    def attempt(self, task: str, node: str | None = None) -> AttemptKey:
        """The one running attempt of the task, or of its node."""
        (key,) = self.attempts(task, node)
        return key

    def attempts(self, task: str, node: str | None = None) -> list[AttemptKey]:
        return [
            key
            for key, effect in self.running.items()
            if key.task == task and node in (None, effect.spec.name)
        ]

    def end(self, task: str, end: AttemptEnd, node: str | None = None, **fields: Any) -> None:
        """The task's running attempt ends so, and all goes on."""
        self.report(Report(self.attempt(task, node), end, **fields))

    def report(self, *reports: Report) -> None:
        self.turn(*reports)
        while self.advanced.more or (self.advanced.kept_back and not self._suspects()):
            self.turn()

    def _suspects(self) -> list[str]:
        """Attempts that are alive at nodes under which the process died before."""
        return [key.task for key, effect in self.running.items() if effect.suspect]

    def succeed(self, task: str, node: str | None = None, result: str = "1", **fields: Any) -> None:
        self.end(task, AttemptEnd.SUCCEEDED, node, result=result, **fields)

    def spends(self, task: str, spent: int, node: str | None = None) -> None:
        """The task's running attempt says what it has spent so far."""
        self.turn(Spending(self.attempt(task, node), spent, node))

    @property
    def account(self) -> tuple[int, int]:
        """What the company has spent and reserved, after a look at whether its tasks and attempts agree."""
        company = self.state.company
        return company.spent, company.reserved

    def fail(
        self, task: str, node: str | None = None, error: str = "E: no", *, give_up: bool = False
    ) -> None:
        self.end(task, AttemptEnd.FAILED, node, error=error, give_up=give_up)

    def give_up(self, task: str, node: str | None = None) -> None:
        self.fail(task, node, give_up=True)

    def entry(self, task: str) -> Entry:
        """The task in memory; brought in if it was evicted."""
        self.look([_Named(task)])
        return self.state.entries[task]

    def run(self, task: str) -> RunRecord:
        run = self.entry(task).run
        assert run is not None
        return run

    def nodes(self, task: str) -> list[NodeRecord]:
        nodes = self.entry(task).nodes
        assert nodes is not None
        return nodes

    def node(self, task: str, pos: int = 0) -> NodeRecord:
        return self.nodes(task)[pos]

    def where(self, task: str) -> WorkState:
        return work_state(self.state, self.entry(task), self.live)[0]

    def reasons(self, task: str) -> tuple[Reason, ...]:
        return work_state(self.state, self.entry(task), self.live)[1]

    def reason(self, task: str, kind: ReasonKind) -> Reason:
        """The one reason of that kind."""
        (reason,) = [reason for reason in self.reasons(task) if reason.kind is kind]
        return reason

    def gates(self, task: str) -> list[ReasonKind]:
        """What `Explain` names, in its order."""
        return [gate.kind for gate in explain(self.state, self.name, self.entry(task), self.live).gates]

    def position(self, task: str) -> int:
        self.entry(task)
        return positions(self.state).get(task, 0)

    def told(self, kind: str, task: str | None = None) -> list[EventRecord]:
        """Committed events of this kind."""
        return [e for e in self.events if e.kind == kind and task in (None, e.task)]

    # --- the tables -----------------------------------------------------------------------------------------------

    def plant(self, statement: str, *params: object) -> None:
        """Write into the tables behind everybody's back, and load them anew."""
        self.conn.execute("PRAGMA ignore_check_constraints = ON")
        with writing(self.conn):
            self.conn.execute(statement, params)
        self.reload()

    def stored(self, statement: str, *params: object) -> list[tuple[Any, ...]]:
        return self.conn.execute(statement, params).fetchall()

    def check_tables(self) -> None:
        """Every rule that holds of a database holds of this one."""
        complaints = dict(invariants._complaints(self.conn))
        if complaints:
            raise invariants.Broken("the database in memory", complaints)


@attrs.frozen
class _Named(Message[None]):
    """A message that does nothing but name a task."""

    task: str


@contextmanager
def writing(conn: sqlite3.Connection) -> Iterator[None]:
    """One transaction."""
    conn.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        conn.execute("ROLLBACK")
        raise
    conn.execute("COMMIT")


@cache
def _empty() -> bytes:
    conn = sqlite3.connect(":memory:")
    try:
        conn.executescript(schema_script())
        return conn.serialize()
    finally:
        conn.close()


def a_database() -> sqlite3.Connection:
    """A database in memory, as `storage` would make it; a copy, because thousands of them are needed."""
    conn = sqlite3.connect(":memory:", isolation_level=None, cached_statements=512)
    conn.deserialize(_empty())
    conn.execute("PRAGMA foreign_keys = ON")
    return conn
