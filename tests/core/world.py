"""One company as its actor treats it, without the actor: rows in a database in memory, facts in a `CompanyState`.

A `World` makes turns as the actor makes them (look, `turn`, commit, evict), plays the handlers, and can be
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

from actors.core.admission import OPEN, Live
from actors.core.advance import MOVES_MAX, Advanced, advance
from actors.core.draft import Draft
from actors.core.effects import AttemptKey, CancelAttempt, StartAttempt
from actors.core.inputs import Input, Report, Said, Spending
from actors.core.loading import check_company, state_of, take_in
from actors.core.prefetch import Prefetched, late_spenders, needs_of
from actors.core.state import CompanyState
from actors.core.task_state import TaskState
from actors.core.turn import Host, Turn, turn
from actors.core.work_state import explain, positions, work_state
from actors.errors import Refused
from actors.messages import Message
from actors.messages.views import Reason, ReasonKind, WorkState
from actors.runtime.lookup import prefetch_of, prefetched_of
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
        self.watchers: list[Callable[[], None]] = []
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
        self._watch()
        return self.state

    def look(self, messages: Sequence[Message[Any]], said: Sequence[Report | Spending] = ()) -> Prefetched:
        """The one reading of a turn."""
        late = late_spenders(self.state, [one.key for one in said if one.spent is not None])
        needs = needs_of(self.state, messages, self.now_ms, late)
        if not needs:
            return Prefetched()
        asked = prefetch_of(self.state.company.company_id, needs)
        found, prefetched = prefetched_of(needs, answer(self.conn, asked))
        assert not [task for task in found.tasks if task.bad is not None]
        take_in(self.state, found.tasks, found.missing)
        self.guests.extend(task.record.id for task in found.tasks)
        return prefetched

    def turn(
        self,
        *contents: Message[Any] | Report | Spending,
        commit: bool = True,
        advancing: bool = True,
        moves_max: int = MOVES_MAX,
    ) -> list[Any]:
        """One turn: the answer to each message (a reply or its refusal), whether it was committed or undone."""
        said = [content for content in contents if isinstance(content, Report | Spending)]
        prefetched = self.look([content for content in contents if isinstance(content, Message)], said)
        for one in said:
            if isinstance(one, Report):
                self.slots.held.discard(one.key)  # a child that has returned holds no slot
        made = turn(
            self.state,
            self._inputs(contents),
            self.now_ms,
            self.slots,
            self._host,
            prefetched=prefetched,
            moves_max=moves_max if advancing else 0,
        )
        if advancing:
            self.advanced = made.advanced
        if commit:
            self._commit(made)
        else:
            made.undo()
            self.slots.held = set(self.running)
        self._watch()
        return list(made.answers)

    def _inputs(self, contents: Iterable[Message[Any] | Report | Spending]) -> Iterator[Input]:
        """The inputs of a turn; each is followed by a look at what it has done."""
        for content in contents:
            yield Said(content) if isinstance(content, Message) else content
            self._watch()

    @property
    def _host(self) -> Host:
        alive = frozenset((key.task, key.run, key.pos) for key in self.running)
        return Host(self.host_id, changed(self.live, alive=alive, suspect=next(iter(self._suspects()), None)))

    def advance(self, draft: Draft) -> Advanced:
        """All moves of a draft of the test's own."""
        return advance(draft, self.slots, self._host.live, host_id=self.host_id)

    def _commit(self, made: Turn) -> None:
        """Write the unit, act, and forget what is over."""
        if made.unit is not None:
            with writing(self.conn):
                carry_out(self.conn, made.unit)
        self.events.extend(made.events)
        for effect in made.effects:
            if isinstance(effect, StartAttempt):
                self.running[effect.key] = effect
            elif isinstance(effect, CancelAttempt):
                self.cancelled.append(effect)
            else:
                self.running.pop(effect.key, None)
                self.slots.held.discard(effect.key)
        made.evict(self.guests)
        self.guests.clear()

    def _watch(self) -> None:
        for watcher in self.watchers:
            watcher()

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

    def entry(self, task: str) -> TaskState:
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
