"""A company's facts in memory, and what is derived from them as they change.

The actor holds one `CompanyState`. It knows every task whose newest run is unsettled, and those settled
ones that somebody waiting still needs; an upstream it does not know is either done or, if its id is in
``missing``, not there at all.

`CompanyState.apply` and `CompanyState.undo` are the only ways in. Every `Change` has both ends, so a turn
can be taken back. What is derived moves with the facts: a change touches the task and its dependents, never
the backlog. Two counters per task say how many of its upstreams are unfinished and how many are dead
(failed, stopped, archived, blocked …); a worklist carries a change of standing down the edges, however
deep, without recursion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from heapq import heappop, heappush
from typing import ClassVar

from actors.messages.views import Reason, ReasonKind
from storage.records import (
    CompanyRecord,
    NodeRecord,
    NodeStatus,
    RunRecord,
    RunStatus,
    ScheduleRecord,
    TaskRecord,
)

from .budget import cannot_go_on, is_halted_on_budget, least_need, limited, room_in
from .entry import Change, Entry, Flip, Graph, Standing
from .gates import is_open
from .order import NeedQueues, OpenQueue, order_key
from .progress import Progress
from .schedules import Schedules
from .shape import Shape, layout_of, shape_of, spec_of
from .transitions import NODE_MOVES, RUN_MOVES, SCHEDULE_MOVES, check_move

_TASK = -1
"""In the place of a node's position: the time before which the task itself may not start."""

DUE_SLACK = 64
"""The heap of due times is cleared of nodes that no longer wait when it is more than twice as long as after the last
time, and this.
"""
Due = tuple[int, str, int, int]
"""When a node stops backing off, or its task may start, ms; its task, run and position."""


class CompanyState:
    def __init__(self, company: CompanyRecord, handlers: frozenset[str] | None) -> None:
        """``handlers`` are the names that the host has registered; ``None`` where that is not known: all of
        them.
        """
        self.company = company
        self._handlers = handlers
        self.graphs: dict[str, Graph] = {}
        self.entries: dict[str, Entry] = {}
        self.missing: set[str] = set()
        self.dependents: dict[str, set[str]] = {}
        self.by_graph: dict[str, set[str]] = {}
        self.open = OpenQueue()
        self.open_by_need = NeedQueues()
        """The same tasks, while the company has a budget."""
        self.slots: dict[int, str] = {}
        self.queued = 0
        """Tasks whose newest run is queued."""
        self.startable: dict[str, None] = {}
        """Active runs that have a ready node, in the order in which they became so."""
        self.ended: dict[str, None] = {}
        """Active runs that have nothing left to do but to be settled or halted."""
        self.reached: dict[str, None] = {}
        """Running runs with a gate that is reached, which has yet to be said."""
        self.flips: list[Flip] = []
        self.schedules = Schedules()
        self.looked_ms = 0
        """The clock at the last look; what was due by then has been woken."""
        self._due: list[Due] = []
        self._due_max = DUE_SLACK

    # --- reading --------------------------------------------------------------------------------------------

    def standing(self, task: str) -> Standing:
        """What the task is to its dependents; one that is not in memory is done, unless it is known to be
        missing.
        """
        entry = self.entries.get(task)
        if entry is not None:
            return entry.standing
        return Standing.DEAD if task in self.missing else Standing.DONE

    def shape(self, entry: Entry) -> Shape | None:
        """The shape that the next first admission would copy; ``None`` while its graph is not defined."""
        if entry.task.graph is None:
            return shape_of(entry.task.shape)
        graph = self.graphs.get(entry.task.graph)
        return None if graph is None else graph.shape

    def has_handler(self, name: str) -> bool:
        return self._handlers is None or name in self._handlers

    def lacking_handlers(self, wanted: frozenset[str]) -> list[str]:
        """Those of the wanted handlers that this host has not registered, sorted."""
        return [] if self._handlers is None else sorted(wanted - self._handlers)

    @property
    def slots_free(self) -> int:
        return max(0, self.company.runs_max - len(self.slots))

    def free_slot(self) -> int:
        """The smallest slot number that no active run holds."""
        number = 1
        while number in self.slots:
            number += 1
        return number

    def next_due_ms(self) -> int | None:
        """The earliest time at which something here becomes due by itself: work, or a schedule."""
        work = self.next_work_ms()
        if not self.schedules.by_name or self.company.paused_ms is not None:
            return work
        schedule = self.schedules.next_due_ms()
        if work is None or schedule is None:
            return schedule if work is None else work
        return min(work, schedule)

    def next_work_ms(self) -> int | None:
        """The earliest time at which a node stops backing off, or a task may start."""
        if len(self._due) > self._due_max:  # a sorted list is a heap
            self._due = sorted(set(filter(self._is_awaited, self._due)))
            self._due_max = 2 * len(self._due) + DUE_SLACK
        while self._due:
            if self._is_awaited(self._due[0]):
                return self._due[0][0]
            heappop(self._due)
        return None

    def _is_awaited(self, due: Due) -> bool:
        """Whether the node still backs off, or the task still waits, until then. A retry, a stop or another failure
        leaves an entry behind, which may lie far in the future.
        """
        due_ms, task, run, pos = due
        entry = self.entries.get(task)
        if pos == _TASK:
            return entry is not None and entry.early == due_ms
        if entry is None or entry.run is None or entry.run.number != run or entry.progress is None:
            return False
        return entry.progress.resting.get(pos) == due_ms and not entry.run.status.settled

    def wake_due(self, now_ms: int) -> None:
        """Make ready every node whose time has come, and open every task whose has. No record changes: being due
        is derived.
        """
        self.looked_ms = now_ms
        while (due := self.next_work_ms()) is not None and due <= now_ms:
            _, task, _, pos = heappop(self._due)
            entry = self.entries[task]
            if pos == _TASK:
                self.refresh(entry, cause=task)
                continue
            assert entry.progress is not None
            entry.progress.wake(pos)
            self._note_active(entry)
            if limited(self.company, entry.task) and entry.queued:
                self._note_open(entry)

    # --- changing -------------------------------------------------------------------------------------------

    def apply(self, change: Change) -> None:
        """Make the change; a move outside its table raises `IllegalMove` and changes nothing."""
        self._check(change)
        self._replace(change.kind, change.task, change.before, change.after)

    def undo(self, change: Change) -> None:
        """Take the change back. Changes must be undone in reverse order."""
        self._replace(change.kind, change.task, change.after, change.before)

    def _check(self, change: Change) -> None:
        before, after = change.before, change.after
        if isinstance(after, RunRecord):
            same = isinstance(before, RunRecord) and before.number == after.number
            old = before.status if same and isinstance(before, RunRecord) else None
            if old is not after.status:
                check_move("run", RUN_MOVES, lambda: f"{change.task}/{after.number}", old, after.status)
        elif isinstance(after, NodeRecord):
            was = before.status if isinstance(before, NodeRecord) else None
            if was is not after.status:
                check_move("node", NODE_MOVES, partial(_node_name, change.task, after), was, after.status)
        elif change.kind in ("nodes", "carried") and isinstance(after, tuple):
            for node in after:
                check_move("node", NODE_MOVES, partial(_node_name, change.task, node), None, node.status)
        elif isinstance(after, ScheduleRecord):
            stood = before.status if isinstance(before, ScheduleRecord) else None
            if stood is not after.status:
                check_move("schedule", SCHEDULE_MOVES, lambda: change.task, stood, after.status)

    def _replace(self, kind: str, task: str, before: object, after: object) -> None:
        self._REPLACERS[kind](self, task, before, after)

    def _replace_company(self, _task: str, _before: object, after: object) -> None:
        assert isinstance(after, CompanyRecord)
        before, self.company = self.company, after
        if before.budget is None and after.budget is None:
            return
        if (before.budget is None) != (after.budget is None):
            self._sort_by_need()
        if (before.budget, before.spent) != (after.budget, after.spent):
            for task in tuple(self.startable):
                self._note_active(self.entries[task])

    def _sort_by_need(self) -> None:
        """The company has a budget from now on, or none any more."""
        self.open_by_need.clear()
        if self.company.budget is not None:
            for task in self.open.head(len(self.open)):
                self._note_open(self.entries[task])

    def _replace_graph(self, name: str, _before: object, after: object) -> None:
        if isinstance(after, Graph):
            self.graphs[name] = after
        else:
            del self.graphs[name]
        for task in sorted(self.by_graph.get(name, ())):
            self.refresh(self.entries[task], cause=task)

    def _replace_task(self, task: str, before: object, after: object) -> None:
        if isinstance(after, TaskRecord):
            entry = self.entries.get(task)
            if entry is None:
                self._add(Entry(after), newborn=True)
                return
            assert isinstance(before, TaskRecord)
            if before.depends_on != after.depends_on:
                self._unlink(task, before.depends_on)
                entry.task = after
                self._link(entry)
            self._regraph(task, before.graph, after.graph)
            entry.task = after
            self.refresh(entry, cause=task)
        else:
            self._remove(self.entries[task])

    def _replace_run(self, task: str, before: object, after: object) -> None:
        entry = self.entries[task]
        if isinstance(before, RunRecord) and before.slot:
            del self.slots[before.slot]
        entry.run = after if isinstance(after, RunRecord) else None
        if entry.run is None:
            return  # its birth is being undone: the task goes next
        if entry.run.slot:
            assert entry.run.slot not in self.slots, "two runs in one slot"
            self.slots[entry.run.slot] = task
        if entry.progress is not None and not entry.run.status.settled:
            self._note_due(entry)
        self.refresh(entry, cause=task)

    def _note_due(self, entry: Entry) -> None:
        """What backs off is due again: `next_due_ms` forgets it while the run is settled."""
        assert entry.progress is not None
        assert entry.run is not None
        for pos, due in entry.progress.resting.items():
            heappush(self._due, (due, entry.task.id, entry.run.number, pos))

    def _replace_nodes(self, task: str, _before: object, after: object) -> None:
        """All nodes of a run at once: a first admission, or the next run that has none yet."""
        entry = self.entries[task]
        assert after is None or isinstance(after, tuple)
        self.set_nodes(entry, after)
        self.refresh(entry, cause=task)

    def _replace_node(self, task: str, before: object, after: object) -> None:
        entry = self.entries[task]
        assert isinstance(before, NodeRecord)
        assert isinstance(after, NodeRecord)
        assert entry.nodes is not None
        assert entry.progress is not None
        entry.nodes[after.pos] = after
        entry.progress.move(before, after)
        if after.not_before_ms is not None:
            heappush(self._due, (after.not_before_ms, task, after.run, after.pos))
        self._note_active(entry)
        if limited(self.company, entry.task) and entry.queued:
            self._note_open(entry)

    def _replace_quarantine(self, task: str, _before: object, after: object) -> None:
        entry = self.entries[task]
        assert after is None or isinstance(after, str)
        entry.quarantined = after
        self.refresh(entry, cause=task)

    def _replace_cycle(self, task: str, _before: object, after: object) -> None:
        entry = self.entries[task]
        assert after is None or isinstance(after, tuple)
        entry.cycle = after
        self.refresh(entry, cause=task)

    def _replace_schedule(self, name: str, _before: object, after: object) -> None:
        assert after is None or isinstance(after, ScheduleRecord)
        self.schedules.put(name, after)

    _REPLACERS: ClassVar[dict[str, Callable[[CompanyState, str, object, object], None]]] = {
        "company": _replace_company,
        "graph": _replace_graph,
        "task": _replace_task,
        "run": _replace_run,
        "cycle": _replace_cycle,
        "nodes": _replace_nodes,
        "carried": _replace_nodes,
        "quarantine": _replace_quarantine,
        "node": _replace_node,
        "schedule": _replace_schedule,
    }

    def set_nodes(self, entry: Entry, nodes: Iterable[NodeRecord] | None) -> None:
        """Give the entry its nodes, as loaded or as just admitted."""
        if nodes is None:
            entry.nodes = entry.progress = None
            return
        entry.nodes = list(nodes)
        entry.progress = Progress(*layout_of(tuple(node.spec for node in entry.nodes)))
        for node in entry.nodes:
            entry.progress.move(None, node)
            if node.not_before_ms is not None:
                heappush(self._due, (node.not_before_ms, entry.task.id, node.run, node.pos))

    # --- tasks coming and going -----------------------------------------------------------------------------

    def load(self, entries: Iterable[Entry]) -> None:
        """Take in entries read from the database, in any order; no change, so nothing to undo."""
        for entry in entries:
            if entry.task.id not in self.entries:
                if entry.run is not None and entry.run.slot:
                    self.slots[entry.run.slot] = entry.task.id
                self._add(entry)

    def note_missing(self, task: str) -> None:
        """An upstream id that no task has: it was planted. A dependent of it is blocked until a task takes
        the id.
        """
        if task not in self.missing and task not in self.entries:
            self.missing.add(task)
            work: list[Entry] = []
            self._tell_dependents(task, Standing.DONE, Standing.DEAD, work)
            for entry in work:
                self.refresh(entry, cause=task)

    def _add(self, entry: Entry, *, newborn: bool = False) -> None:
        """Take in a task. A newborn one gets its run next; until then it is to others what it was before."""
        task = entry.task.id
        old = self.standing(task)
        entry.was_missing = task in self.missing
        self.missing.discard(task)
        self.entries[task] = entry
        entry.standing = old
        self._link(entry)
        self._regraph(task, None, entry.task.graph)
        if entry.task.schedule is not None:
            self.schedules.note_task(entry.task.schedule, task)
        if not newborn:
            self.refresh(entry, cause=task)

    def forget(self, task: str) -> None:
        """Drop the task if it is in memory, because it is about to be taken in anew."""
        entry = self.entries.get(task)
        if entry is not None:
            self._remove(entry)

    def _remove(self, entry: Entry) -> None:
        """Forget a task; for those that depend on it, it is again what it was before it was known."""
        task = entry.task.id
        self._leave_indexes(task)
        self._count(entry, False)
        self._unlink(task, entry.task.depends_on)
        self._regraph(task, entry.task.graph, None)
        if entry.task.schedule is not None:
            self.schedules.forget_task(entry.task.schedule, task)
        del self.entries[task]
        if entry.was_missing:
            self.missing.add(task)
        new = self.standing(task)
        if new is not entry.standing:
            work: list[Entry] = []
            self._tell_dependents(task, entry.standing, new, work)
            for dependent in work:
                self.refresh(dependent, cause=task)

    def _leave_indexes(self, task: str) -> None:
        self.open.discard(task)
        self.open_by_need.discard(task)
        self.startable.pop(task, None)
        self.ended.pop(task, None)
        self.reached.pop(task, None)

    def evict(self, task: str) -> bool:
        """Forget a settled task that nobody waiting needs, and what only it needed; says whether it was
        forgotten.
        """
        if not self._evictable(task):
            return False
        work = [task]
        while work:
            name = work.pop()
            if self._evictable(name):
                entry = self.entries[name]
                entry.was_missing = False
                self._remove(entry)
                work.extend(upstream for upstream in entry.task.depends_on if upstream in self.entries)
        return True

    def _evictable(self, task: str) -> bool:
        entry = self.entries.get(task)
        if entry is None or entry.run is None or entry.quarantined is not None:
            return False
        if not (entry.run.status.settled or entry.task.archived_ms is not None):
            return False
        return entry.standing is Standing.DONE or not self.dependents.get(task)

    def _link(self, entry: Entry) -> None:
        task = entry.task.id
        entry.unfinished = entry.dead = 0
        for upstream in entry.task.depends_on:
            self.dependents.setdefault(upstream, set()).add(task)
            standing = self.standing(upstream)
            entry.unfinished += standing is not Standing.DONE
            entry.dead += standing is Standing.DEAD

    def _unlink(self, task: str, upstreams: Iterable[str]) -> None:
        for upstream in upstreams:
            users = self.dependents.get(upstream)
            if users is not None:
                users.discard(task)
                if not users:
                    del self.dependents[upstream]

    def _regraph(self, task: str, before: str | None, after: str | None) -> None:
        if before is not None and before != after:
            self.by_graph[before].discard(task)
            if not self.by_graph[before]:
                del self.by_graph[before]
        if after is not None:
            self.by_graph.setdefault(after, set()).add(task)

    # --- what follows from the facts ------------------------------------------------------------------------

    def refresh(self, entry: Entry, *, cause: str) -> None:
        """Derive the entry anew, and carry a change of its standing down to all that it concerns."""
        work = [entry]
        while work:
            current = work.pop()
            old = current.standing
            self._derive(current, cause)
            new = current.standing
            if old is not new:
                self._tell_dependents(current.task.id, old, new, work)

    def _tell_dependents(self, task: str, old: Standing, new: Standing, work: list[Entry]) -> None:
        unfinished = (new is not Standing.DONE) - (old is not Standing.DONE)
        dead = (new is Standing.DEAD) - (old is Standing.DEAD)
        for name in self.dependents.get(task, ()):
            dependent = self.entries[name]
            dependent.unfinished += unfinished
            dependent.dead += dead
            if dependent.waits_for_upstreams:
                work.append(dependent)

    def _derive(self, entry: Entry, cause: str) -> None:
        entry.cause = self._own_cause(entry)
        if entry.early is not None or entry.task.not_before_ms is not None:
            self._derive_early(entry)
        waits = entry.waits_for_upstreams
        blocked = entry.quarantined is None and (
            (waits and entry.dead > 0) or (entry.cause is not None and (entry.queued or entry.run is None))
        )
        if blocked != entry.blocked:
            self.flips.append(Flip(entry.task.id, blocked, cause))
            entry.blocked = blocked
        entry.standing = self._standing(entry)
        self._count(entry, entry.queued)
        self._note_open(entry)
        self._note_active(entry)

    def _derive_early(self, entry: Entry) -> None:
        """Whether its time has yet to come: for a run that was never admitted, unless `StartNow` put it first."""
        due, was = entry.task.not_before_ms, entry.early
        holds = entry.waits_for_upstreams and entry.run is not None and not entry.run.front
        entry.early = due if due is not None and due > self.looked_ms and holds else None
        if entry.early is not None and entry.early != was:
            heappush(self._due, (entry.early, entry.task.id, 0, _TASK))

    def _count(self, entry: Entry, counts: bool) -> None:
        self.queued += counts - entry.counted
        entry.counted = counts

    def _own_cause(self, entry: Entry) -> Reason | None:
        """Why the task could not start even with all its upstreams done."""
        if entry.run is None:
            return Reason(ReasonKind.RUN_MISSING)
        if not entry.queued:
            return None
        if entry.cycle is not None and not entry.admitted:
            return Reason(ReasonKind.DEPENDENCY_CYCLE, tasks=entry.cycle, count=len(entry.cycle) - 1)
        if entry.admitted and entry.nodes is not None:
            specs = [spec_of(node.spec) for node in entry.nodes if node.status is not NodeStatus.SUCCEEDED]
            wanted = frozenset(spec.handler for spec in specs if not spec.gate)
        else:
            shape = self.shape(entry)
            if shape is None:
                return Reason(ReasonKind.GRAPH_MISSING, text=entry.task.graph)
            wanted = shape.handlers
        lacking = self.lacking_handlers(wanted)
        if not lacking:
            return None
        return Reason(ReasonKind.HANDLER_MISSING, text=", ".join(lacking), count=len(lacking))

    @staticmethod
    def _standing(entry: Entry) -> Standing:
        run = entry.run
        if entry.quarantined is not None or run is None:
            return Standing.DEAD
        if run.status is RunStatus.COMPLETED:
            return Standing.DONE
        if run.status.settled or entry.blocked or entry.task.archived_ms is not None:
            return Standing.DEAD
        if is_halted_on_budget(entry):
            return Standing.DEAD
        return Standing.UNFINISHED

    def _note_open(self, entry: Entry) -> None:
        if entry.task.budget is not None or entry.starved:
            entry.starved = self._is_starved(entry)
        if entry.queued and entry.run is not None and is_open(entry):
            key = order_key(entry.task, entry.run)
            self.open.put(entry.task.id, key)
            if self.company.budget is not None:
                self.open_by_need.put(entry.task.id, key, least_need(self, entry))
        else:
            self.open.discard(entry.task.id)
            self.open_by_need.discard(entry.task.id)

    def _is_starved(self, entry: Entry) -> bool:
        room = room_in(entry.task)
        need = 0 if room is None or not entry.queued else least_need(self, entry)
        return room is not None and need > 0 and need > room

    def _note_active(self, entry: Entry) -> None:
        """Keep the indexes of what there is to do in active runs."""
        progress, task = entry.progress, entry.task.id
        running = (
            entry.run is not None
            and entry.run.status is RunStatus.RUNNING
            and progress is not None
            and entry.quarantined is None
        )
        entry.short = False
        if running and entry.may_start:
            self.startable.setdefault(task)
            entry.short = limited(self.company, entry.task) and cannot_go_on(self, entry)
        else:
            self.startable.pop(task, None)
        if running and progress is not None and progress.unsaid:
            self.reached.setdefault(task)
        elif self.reached:
            self.reached.pop(task, None)
        if entry.quarantined is None and entry.at_its_end:
            self.ended.setdefault(task)
        else:
            self.ended.pop(task, None)


def _node_name(task: str, node: NodeRecord) -> str:
    return f"{task}/{node.run}/{node.pos}"
