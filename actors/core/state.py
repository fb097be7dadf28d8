"""A company's facts in memory, and what is derived from them as they change.

The actor holds one `CompanyState`. It knows every task whose newest run is unsettled, and those settled
ones that somebody waiting still needs; an upstream it does not know is either done or, if its id is in
``missing``, not there at all.

The moves of `actors.core.journal` are the only way in. Each has both ends, so a turn can be taken back. What is
derived moves with the facts: a change touches the task and its dependents, never
the backlog. Two counters per task say how many of its upstreams are unfinished and how many are dead
(failed, stopped, archived, blocked …); a worklist carries a change of standing down the edges, however
deep, without recursion.
"""

from __future__ import annotations

from collections.abc import Iterable

from storage.records import (
    CompanyRecord,
    NodeRecord,
    RunRecord,
    RunStatus,
    TaskRecord,
)

from .admission import is_open
from .budget import cannot_go_on, is_starved, least_need, limited
from .due import TASK, DueTimes
from .facts import Facts
from .order import order_key
from .progress import Progress
from .schedules.state import Schedules
from .shape import layout_of
from .task_state import Flip, Graph, Standing, TaskState, standing_of


class CompanyState(Facts):
    def __init__(self, company: CompanyRecord, handlers: frozenset[str] | None) -> None:
        super().__init__(company, handlers)
        self.by_graph: dict[str, set[str]] = {}
        self.dependents: dict[str, set[str]] = {}
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
        self.unseen: list[str] = []
        """Tasks that the sweep has yet to derive anew."""
        self.looked_ms = 0
        """The clock at the last look; what was due by then has been woken."""
        self._due = DueTimes()

    # --- times ----------------------------------------------------------------------------------------------

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
        first = self._due.first()
        return None if first is None else first[0]

    def wake_due(self, now_ms: int) -> None:
        """Make ready every node whose time has come, and open every task whose has. No record changes: being due
        is derived.
        """
        self.looked_ms = now_ms
        while (first := self._due.first()) is not None and first[0] <= now_ms:
            self._due.discard(first[1])
            task, pos = first[1]
            entry = self.entries[task]
            if pos == TASK:
                self.refresh(entry, cause=task)
                continue
            assert entry.progress is not None
            entry.progress.wake(pos)
            self._note_active(entry)
            if limited(self.company, entry.task) and entry.queued:
                self._note_open(entry)

    # --- changing -------------------------------------------------------------------------------------------

    def replace_company(self, after: CompanyRecord) -> None:
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

    def replace_graph(self, name: str, after: Graph | None) -> None:
        if after is None:
            del self.graphs[name]
        else:
            self.graphs[name] = after
        for task in sorted(self.by_graph.get(name, ())):
            self.refresh(self.entries[task], cause=task)

    def add_task(self, task: TaskRecord) -> None:
        """A new task, whose run comes next."""
        self._add(TaskState(task), newborn=True)

    def remove_task(self, task: str) -> None:
        self._remove(self.entries[task])

    def replace_task(self, before: TaskRecord, after: TaskRecord) -> None:
        task = after.id
        entry = self.entries[task]
        if before.depends_on != after.depends_on:
            self._unlink(task, before.depends_on)
            entry.task = after
            self._link(entry)
        self._regraph(task, before.graph, after.graph)
        entry.task = after
        self.refresh(entry, cause=task)

    def replace_run(self, task: str, before: RunRecord | None, after: RunRecord | None) -> None:
        """The task's newest run; ``None`` for one that is not there (yet, or any more)."""
        entry = self.entries[task]
        if before is not None and before.slot:
            del self.slots[before.slot]
        entry.run = after
        if after is None:
            return  # its birth is being undone: the task goes next
        if after.slot:
            assert after.slot not in self.slots, "two runs in one slot"
            self.slots[after.slot] = task
        self._due.note_nodes(entry)
        self.refresh(entry, cause=task)

    def replace_nodes(self, task: str, nodes: tuple[NodeRecord, ...] | None) -> None:
        """All nodes of the newest run at once; ``None`` if it has none (yet, or any more)."""
        entry = self.entries[task]
        self.set_nodes(entry, nodes)
        self.refresh(entry, cause=task)

    def replace_node(self, task: str, before: NodeRecord, after: NodeRecord) -> None:
        entry = self.entries[task]
        assert entry.nodes is not None
        assert entry.progress is not None
        entry.nodes[after.pos] = after
        entry.progress.move(before, after)
        if before.not_before_ms is not None or after.not_before_ms is not None:
            self._due.note_node(entry, after.pos)
        self._note_active(entry)
        if limited(self.company, entry.task) and entry.queued:
            self._note_open(entry)

    def quarantine(self, task: str, why: str | None) -> None:
        """``None``: it is quarantined no more."""
        entry = self.entries[task]
        entry.quarantined = why
        self.refresh(entry, cause=task)

    def set_cycle(self, task: str, path: tuple[str, ...] | None) -> None:
        """The circle of dependencies that the task is in, if it is in one."""
        entry = self.entries[task]
        entry.cycle = path
        self.refresh(entry, cause=task)

    def set_nodes(self, entry: TaskState, nodes: Iterable[NodeRecord] | None) -> None:
        """Give the entry its nodes, as loaded or as just admitted."""
        self._due.forget_nodes(entry)
        if nodes is None:
            entry.nodes = entry.progress = None
            return
        entry.nodes = list(nodes)
        entry.progress = Progress(*layout_of(tuple(node.spec for node in entry.nodes)))
        for node in entry.nodes:
            entry.progress.move(None, node)
        self._due.note_nodes(entry)

    # --- tasks coming and going -----------------------------------------------------------------------------

    def load(self, entries: Iterable[TaskState]) -> None:
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
            work: list[TaskState] = []
            self._tell_dependents(task, Standing.DONE, Standing.DEAD, work)
            for entry in work:
                self.refresh(entry, cause=task)

    def _add(self, entry: TaskState, *, newborn: bool = False) -> None:
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

    def _remove(self, entry: TaskState) -> None:
        """Forget a task; for those that depend on it, it is again what it was before it was known."""
        task = entry.task.id
        self._leave_indexes(task)
        self._due.forget_nodes(entry)
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
            work: list[TaskState] = []
            self._tell_dependents(task, entry.standing, new, work)
            for dependent in work:
                self.refresh(dependent, cause=task)

    def _leave_indexes(self, task: str) -> None:
        self.open.discard(task)
        self.open_by_need.discard(task)
        self.startable.pop(task, None)
        self.ended.pop(task, None)
        self.reached.pop(task, None)
        self._due.discard((task, TASK))

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

    def _link(self, entry: TaskState) -> None:
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

    def refresh(self, entry: TaskState, *, cause: str) -> None:
        """Derive the entry anew, and carry a change of its standing down to all that it concerns."""
        work = [entry]
        while work:
            current = work.pop()
            old = current.standing
            self._derive(current, cause)
            new = current.standing
            if old is not new:
                self._tell_dependents(current.task.id, old, new, work)

    def _tell_dependents(self, task: str, old: Standing, new: Standing, work: list[TaskState]) -> None:
        unfinished = (new is not Standing.DONE) - (old is not Standing.DONE)
        dead = (new is Standing.DEAD) - (old is Standing.DEAD)
        for name in self.dependents.get(task, ()):
            dependent = self.entries[name]
            dependent.unfinished += unfinished
            dependent.dead += dead
            if dependent.waits_for_upstreams:
                work.append(dependent)

    def _derive(self, entry: TaskState, cause: str) -> None:
        entry.cause = self.own_cause(entry)
        if entry.early is not None or entry.task.not_before_ms is not None:
            self._derive_early(entry)
        waits = entry.waits_for_upstreams
        blocked = entry.quarantined is None and (
            (waits and entry.dead > 0) or (entry.cause is not None and (entry.queued or entry.run is None))
        )
        if blocked != entry.blocked:
            self.flips.append(Flip(entry.task.id, blocked, cause))
            entry.blocked = blocked
        entry.standing = standing_of(entry)
        self._count(entry, entry.queued)
        self._note_open(entry)
        self._note_active(entry)

    def _derive_early(self, entry: TaskState) -> None:
        """Whether its time has yet to come: for a run that was never admitted, unless `StartNow` put it first."""
        due = entry.task.not_before_ms
        holds = entry.waits_for_upstreams and entry.run is not None and not entry.run.front
        entry.early = due if due is not None and due > self.looked_ms and holds else None
        self._due.note((entry.task.id, TASK), entry.early)

    def _count(self, entry: TaskState, counts: bool) -> None:
        self.queued += counts - entry.counted
        entry.counted = counts

    def _note_open(self, entry: TaskState) -> None:
        if entry.task.budget is not None or entry.starved:
            entry.starved = is_starved(self, entry)
        if entry.queued and entry.run is not None and is_open(entry):
            key = order_key(entry.task, entry.run)
            self.open.put(entry.task.id, key)
            if self.company.budget is not None:
                self.open_by_need.put(entry.task.id, key, least_need(self, entry))
        else:
            self.open.discard(entry.task.id)
            self.open_by_need.discard(entry.task.id)

    def _note_active(self, entry: TaskState) -> None:
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
