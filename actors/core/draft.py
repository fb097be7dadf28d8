"""A turn in the making: the moves so far, the events that report them, and the effects to be performed once
they are durable.

A draft changes the state as it goes, so that later messages of the turn see what earlier ones did, and it
can be taken back to any mark: the changes are undone in reverse, and whatever was noted after the mark is
forgotten. Nothing in here reaches the database or the world; the actor commits `Draft.writes` and
`Draft.events`, and only then performs `Draft.effects`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from actors.errors import IllegalMove
from storage.records import (
    NO_DATA,
    AttemptRecord,
    CompanyRecord,
    EventRecord,
    NodeRecord,
    RunRecord,
    RunStatus,
    ScheduleRecord,
    TaskRecord,
)
from storage.values import changed, value

from .budget import Booked
from .shape import NodeSpec
from .state import CompanyState
from .task_state import Change, Flip, Graph, TaskState

BLOCKED_IDS_SHOWN = 100
"""Ids in one ``tasks.blocked`` event; the count beside them is the whole."""
STORY_SHOWN = 20
"""Steps told by an `IllegalMove`: the last ones led to it."""


class AttemptKey(NamedTuple):
    """Which attempt: unique for ever inside a company."""

    task: str
    seq: int
    run: int
    pos: int
    number: int


@value
class StartAttempt:
    """Run the handler; the commit has read its inputs."""

    key: AttemptKey
    spec: NodeSpec
    generation: int
    suspect: bool = False
    """It may be what kills the process."""
    input_names: tuple[str, ...] = ()
    """Names of the nodes whose results it is given."""
    feedback: str | None = None
    upstream: bool = False
    """Whether its task depends on others."""


@value
class CancelAttempt:
    """Tell a live attempt to end. ``why`` becomes its end unless it ends otherwise first."""

    key: AttemptKey
    why: str


@value
class EndAttempt:
    """The attempt's end is durable: its registration can go."""

    key: AttemptKey


Effect = StartAttempt | CancelAttempt | EndAttempt


@value
class Write:
    """One row to write, by the name of its statement. Params that are not in a record, such as titles and
    payloads, come here.
    """

    statement: str
    params: Mapping[str, Any]


@value
class Mark:
    changes: int
    events: int
    effects: int
    writes: int
    attempts: int
    flips: int
    submitted: int
    keys: int
    results: int
    moves: int


class Draft:
    def __init__(self, state: CompanyState, now_ms: int) -> None:
        self.state = state
        self.now_ms = now_ms
        self.changes: list[Change] = []
        self.events: list[EventRecord] = []
        self.effects: list[Effect] = []
        self.extra: list[Write] = []
        self.attempts: list[AttemptRecord] = []
        """Attempts begun (no end yet) and ended in this turn."""
        self.results: dict[tuple[int, int, int], str] = {}
        """(task seq, run, node position) → JSON text of an accepted result."""
        self.contents: dict[str, str | None] = {}
        """Tasks submitted in this turn, for those that come after them in the same turn: id → digest, in order."""
        self.keys: dict[str, str] = {}
        """Their idempotency keys: key → id, in order."""
        self.booked: dict[tuple[str, int, int, int, int], Booked] = {}
        """Attempts that have ended in this turn: what is booked of them, for what they say after it."""
        self.moves = 0
        self.about: str | None = None
        """The task that is being decided: who is to blame if deciding raises."""
        state.flips.clear()

    # --- taking back ----------------------------------------------------------------------------------------

    def mark(self) -> Mark:
        return Mark(
            len(self.changes),
            len(self.events),
            len(self.effects),
            len(self.extra),
            len(self.attempts),
            len(self.state.flips),
            len(self.contents),
            len(self.keys),
            len(self.results),
            self.moves,
        )

    def rollback(self, mark: Mark) -> None:
        """Undo everything since ``mark``."""
        while len(self.changes) > mark.changes:
            self.state.undo(self.changes.pop())
        del self.events[mark.events :]
        del self.effects[mark.effects :]
        del self.extra[mark.writes :]
        del self.attempts[mark.attempts :]
        del self.state.flips[mark.flips :]
        _cut(self.contents, mark.submitted)
        _cut(self.keys, mark.keys)
        _cut(self.results, mark.results)
        self.moves = mark.moves

    @property
    def empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not (self.changes or self.events or self.extra)

    # --- moves ----------------------------------------------------------------------------------------------

    def company(self, **fields: Any) -> CompanyRecord:
        after = changed(self.state.company, **fields)
        self._put(Change("company", "", self.state.company, after))
        return after

    def graph(self, graph: Graph) -> None:
        self._put(Change("graph", graph.name, self.state.graphs.get(graph.name), graph))

    def add_task(self, task: TaskRecord, run: RunRecord) -> TaskState:
        """Put a new task in the queue, with its first run."""
        self._put(Change("task", task.id, None, task))
        self._put(Change("run", task.id, None, run))
        return self.state.entries[task.id]

    def note_submitted(self, task: str, key: str | None, content: str | None) -> None:
        self.contents[task] = content
        if key is not None:
            self.keys[key] = task

    def task(self, entry: TaskState, **fields: Any) -> None:
        self._put(Change("task", entry.task.id, entry.task, changed(entry.task, **fields)))

    def add_run(self, entry: TaskState, run: RunRecord) -> None:
        """Put a new run in the place of the newest one; it has no nodes yet."""
        if entry.nodes is not None:
            self._put(Change("nodes", entry.task.id, tuple(entry.nodes), None))
        self._put(Change("run", entry.task.id, entry.run, run))

    def run(self, entry: TaskState, **fields: Any) -> None:
        assert entry.run is not None
        self._put(Change("run", entry.task.id, entry.run, changed(entry.run, **fields)))

    def add_nodes(self, entry: TaskState, nodes: tuple[NodeRecord, ...]) -> None:
        self._put(Change("nodes", entry.task.id, None, nodes))

    def carry_nodes(self, entry: TaskState, nodes: tuple[NodeRecord, ...]) -> None:
        """Give a new run the nodes of the one before it. Those that then succeed have the results that they had."""
        self._put(Change("carried", entry.task.id, None, nodes))

    def node(self, entry: TaskState, pos: int, **fields: Any) -> NodeRecord:
        assert entry.nodes is not None
        after = changed(entry.nodes[pos], **fields)
        self._put(Change("node", entry.task.id, entry.nodes[pos], after))
        return after

    def quarantine(self, entry: TaskState, why: str | None) -> None:
        self._put(Change("quarantine", entry.task.id, entry.quarantined, why))

    def schedule(self, before: ScheduleRecord | None, after: ScheduleRecord | None) -> None:
        """Put a schedule in the place of what there was; one of the two may be nothing. What is taken back is what
        stands in the state, whatever the caller has made of it meanwhile.
        """
        (name,) = {record.name for record in (before, after) if record is not None}
        self._put(Change("schedule", name, self.state.schedules.by_name.get(name), after))

    def attempt(self, record: AttemptRecord) -> None:
        self.attempts.append(record)

    def attempt_spent(self, key: AttemptKey, spent: int) -> bool:
        """Correct what an attempt that ends in this turn has spent; says whether there is one."""
        for place, record in enumerate(self.attempts):
            where = (record.seq, record.run, record.pos, record.number)
            if where == key[1:] and record.end is not None:
                self.attempts[place] = changed(record, spent=spent, assumed=False)
                return True
        return False

    def cycle(self, entry: TaskState, path: tuple[str, ...] | None) -> None:
        if entry.cycle != path:
            self._put(Change("cycle", entry.task.id, entry.cycle, path))

    def _put(self, change: Change) -> None:
        try:
            self.state.apply(change)
        except IllegalMove as illegal:
            story = self._story(change.task)
            raise IllegalMove(illegal.machine, illegal.key, illegal.before, illegal.after, story) from None
        self.changes.append(change)

    def _story(self, task: str) -> list[str]:
        """What the turn has done with the task so far."""
        mine = [event for event in self.events if event.task == task][-STORY_SHOWN:]
        return [event.kind if event.node is None else f"{event.kind} {event.node}" for event in mine]

    def write(self, statement: str, **params: Any) -> None:
        self.extra.append(Write(statement, params))

    # --- events ---------------------------------------------------------------------------------------------

    def event(
        self,
        kind: str,
        entry: TaskState | None = None,
        *,
        before: str | None = None,
        after: str | None = None,
        reason: str | None = None,
        node: str | None = None,
        attempt: int | None = None,
        **data: Any,
    ) -> None:
        run = None if entry is None or entry.run is None else entry.run.number
        self.events.append(
            EventRecord(
                kind=kind,
                at_ms=self.now_ms,
                task=None if entry is None else entry.task.id,
                task_seq=None if entry is None else entry.task.seq,
                run=run,
                node=node,
                attempt=attempt,
                before=before,
                after=after,
                reason=reason,
                data=data or NO_DATA,
            )
        )

    def note_flips(self) -> None:
        """Report what became blocked or stopped being so: one event per cause, for the difference the turn
        made.
        """
        last: dict[str, Flip] = {}
        first: dict[str, bool] = {}
        for flip in self.state.flips:
            first.setdefault(flip.task, not flip.blocked)
            last[flip.task] = flip
        groups: dict[tuple[bool, str], list[str]] = {}
        for task, flip in last.items():
            entry = self.state.entries.get(task)
            if entry is not None and first[task] != flip.blocked and (flip.blocked or entry.queued):
                groups.setdefault((flip.blocked, flip.cause), []).append(task)
        for (blocked, cause), ids in groups.items():
            kind = "tasks.blocked" if blocked else "tasks.unblocked"
            ids.sort(key=lambda task: self.state.entries[task].task.seq)
            self.event(kind, cause=cause, count=len(ids), ids=ids[:BLOCKED_IDS_SHOWN])
        self.state.flips.clear()


def _cut(noted: dict[Any, Any], length: int) -> None:
    """Forget what was noted last."""
    while len(noted) > length:
        noted.popitem()


def fresh_run(task: TaskRecord, number: int, now_ms: int, *, started: bool = False) -> RunRecord:
    return RunRecord(task.seq, number, RunStatus.QUEUED, now_ms, started=started)
