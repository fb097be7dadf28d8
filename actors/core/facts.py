"""What a company's memory can be asked, apart from how it is kept: its gates and its budgets look at no more."""

from __future__ import annotations

from actors.messages.views import Reason, ReasonKind
from storage.records import CompanyRecord, NodeStatus

from .order import NeedQueues, OpenQueue
from .shape import Shape, shape_of, spec_of
from .task_state import Graph, Standing, TaskState


class Facts:
    def __init__(self, company: CompanyRecord, handlers: frozenset[str] | None) -> None:
        """``handlers`` are the names that the host has registered; ``None`` where that is not known: all of
        them.
        """
        self.company = company
        self._handlers = handlers
        self.graphs: dict[str, Graph] = {}
        self.entries: dict[str, TaskState] = {}
        self.missing: set[str] = set()
        self.slots: dict[int, str] = {}
        self.open = OpenQueue()
        self.open_by_need = NeedQueues()
        """The same tasks, while the company has a budget."""

    def standing(self, task: str) -> Standing:
        """What the task is to its dependents; one that is not in memory is done, unless it is known to be
        missing.
        """
        entry = self.entries.get(task)
        if entry is not None:
            return entry.standing
        return Standing.DEAD if task in self.missing else Standing.DONE

    def shape(self, entry: TaskState) -> Shape | None:
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

    def own_cause(self, entry: TaskState) -> Reason | None:
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
