"""A turn in the making: the moves so far, the events that report them, and the effects to be performed once
they are durable.

A draft changes the state as it goes, so that later messages of the turn see what earlier ones did, and it
can be taken back to any mark: the changes are undone in reverse, and whatever was noted after the mark is
forgotten. Nothing in here reaches the database or the world; the actor commits the moves
and the events, and only then performs the effects.
"""

from __future__ import annotations

from typing import Any

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
from storage.values import changed
from storage.writes import TaskTexts, Write

from .budget import Booked
from .effects import AttemptKey, Effect
from .journal import (
    CompanyChanged,
    CycleFound,
    GraphChanged,
    Move,
    NodeChanged,
    NodesCreated,
    NodesLeft,
    QuarantineLifted,
    RunAdded,
    RunChanged,
    ScheduleChanged,
    TaskAdded,
    TaskChanged,
)
from .state import CompanyState
from .task_state import Flip, Graph, TaskState

BLOCKED_IDS_SHOWN = 100
"""Ids in one ``tasks.blocked`` event; the count beside them is the whole."""
Mark = tuple[tuple[int, ...], tuple[int, ...], int]
"""How much there was of everything."""
STORY_SHOWN = 20
"""Steps told by an `IllegalMove`: the last ones led to it."""


class Draft:
    def __init__(self, state: CompanyState, now_ms: int) -> None:
        self.state = state
        self.now_ms = now_ms
        self.journal: list[Move] = []
        self.events: list[EventRecord] = []
        self.effects: list[Effect] = []
        self.writes: list[Write] = []
        """What is written besides the facts in memory."""
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
        self._lists: tuple[list[Any], ...] = (
            self.journal,
            self.events,
            self.effects,
            self.writes,
            self.attempts,
            state.flips,
        )
        self._dicts: tuple[dict[Any, Any], ...] = (self.contents, self.keys, self.results)

    # --- taking back ----------------------------------------------------------------------------------------

    def mark(self) -> Mark:
        return tuple(map(len, self._lists)), tuple(map(len, self._dicts)), self.moves

    def rollback(self, mark: Mark) -> None:
        """Undo everything since ``mark``."""
        lists, dicts, self.moves = mark
        while len(self.journal) > lists[0]:
            self.journal.pop().undo(self.state)
        for noted, length in zip(self._lists, lists, strict=True):
            del noted[length:]
        for found, length in zip(self._dicts, dicts, strict=True):
            while len(found) > length:
                found.popitem()

    def undo(self) -> None:
        """The turn is refused: the company is what it was before it."""
        for move in reversed(self.journal):
            move.undo(self.state)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not (self.journal or self.events or self.writes)

    # --- moves ----------------------------------------------------------------------------------------------

    def company(self, **fields: Any) -> CompanyRecord:
        after = changed(self.state.company, **fields)
        self._make(CompanyChanged(self.state.company, after))
        return after

    def graph(self, graph: Graph) -> None:
        self._make(GraphChanged(self.state.graphs.get(graph.name), graph))

    def add_task(
        self, task: TaskRecord, run: RunRecord, texts: TaskTexts, nominal_ms: int | None = None
    ) -> TaskState:
        """Put a new task in the queue, with its first run."""
        self._make(TaskAdded(task.id, task, texts, nominal_ms))
        self._make(RunAdded(task.id, None, run))
        return self.state.entries[task.id]

    def note_submitted(self, task: str, key: str | None, content: str | None) -> None:
        self.contents[task] = content
        if key is not None:
            self.keys[key] = task

    def task(self, entry: TaskState, **fields: Any) -> None:
        self._make(TaskChanged(entry.task.id, entry.task, changed(entry.task, **fields)))

    def add_run(
        self, entry: TaskState, run: RunRecord, payload: str | None = None, *, carried: bool = False
    ) -> None:
        """Put a new run in the place of the newest one; it has no nodes yet."""
        if entry.nodes is not None:
            self._make(NodesLeft(entry.task.id, tuple(entry.nodes)))
        self._make(RunAdded(entry.task.id, entry.run, run, payload, carried))

    def run(self, entry: TaskState, **fields: Any) -> None:
        assert entry.run is not None
        self._make(RunChanged(entry.task.id, entry.run, changed(entry.run, **fields)))

    def add_nodes(self, entry: TaskState, nodes: tuple[NodeRecord, ...]) -> None:
        """The nodes of a first admission. The results of its upstreams are fixed with it."""
        assert entry.run is not None
        task = entry.task
        self._make(NodesCreated(task.id, task.seq, entry.run.number, nodes, pins=bool(task.depends_on)))

    def carry_nodes(self, entry: TaskState, nodes: tuple[NodeRecord, ...]) -> None:
        """Give a new run the nodes of the one before it. Those that then succeed have the results that they had."""
        assert entry.run is not None
        self._make(NodesCreated(entry.task.id, entry.task.seq, entry.run.number, nodes, carried=True))

    def node(self, entry: TaskState, pos: int, **fields: Any) -> NodeRecord:
        assert entry.nodes is not None
        after = changed(entry.nodes[pos], **fields)
        self._make(NodeChanged(entry.task.id, entry.nodes[pos], after))
        return after

    def lift_quarantine(self, entry: TaskState) -> None:
        self._make(QuarantineLifted(entry.task.id, entry.task.seq, entry.quarantined))

    def schedule(self, before: ScheduleRecord | None, after: ScheduleRecord | None) -> None:
        """Put a schedule in the place of what there was; one of the two may be nothing. What is taken back is what
        stands in the state, whatever the caller has made of it meanwhile.
        """
        (name,) = {record.name for record in (before, after) if record is not None}
        self._make(ScheduleChanged(name, self.state.schedules.by_name.get(name), after))

    def attempt(self, record: AttemptRecord) -> None:
        self.attempts.append(record)

    def attempt_spent(self, key: AttemptKey, spent: int, *, assumed: bool) -> bool:
        """Correct what an attempt that ends in this turn has spent; says whether there is one."""
        for place, record in enumerate(self.attempts):
            where = (record.seq, record.run, record.pos, record.number)
            if where == key[1:] and record.end is not None:
                self.attempts[place] = changed(record, spent=spent, assumed=assumed)
                return True
        return False

    def cycle(self, entry: TaskState, path: tuple[str, ...] | None) -> None:
        if entry.cycle != path:
            self._make(CycleFound(entry.task.id, entry.cycle, path))

    def _make(self, move: Move) -> None:
        try:
            move.make(self.state)
        except IllegalMove as illegal:
            task = getattr(move, "task", None)
            raise IllegalMove(
                illegal.machine, illegal.key, illegal.before, illegal.after, self._story(task)
            ) from None
        self.journal.append(move)

    def _story(self, task: str | None) -> list[str]:
        """What the turn has done with the task so far."""
        mine = [event for event in self.events if event.task == task][-STORY_SHOWN:]
        return [event.kind if event.node is None else f"{event.kind} {event.node}" for event in mine]

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


def fresh_run(task: TaskRecord, number: int, now_ms: int, *, started: bool = False) -> RunRecord:
    return RunRecord(task.seq, number, RunStatus.QUEUED, now_ms, started=started)
