"""The moves that change a company's facts, each with both ends: what was, and what is.

A turn keeps its moves in a journal. Each can be made, taken back (in reverse order), and written as rows
(`actors.core.to_rows`). One that is outside its table raises `IllegalMove` before anything changes.
"""

from __future__ import annotations

from storage.records import CompanyRecord, NodeRecord, RunRecord, ScheduleRecord, TaskRecord
from storage.values import value
from storage.writes import TaskTexts

from .state import CompanyState
from .task_state import Graph
from .transitions import NODE_MOVES, RUN_MOVES, SCHEDULE_MOVES, check_move


@value
class CompanyChanged:
    before: CompanyRecord
    after: CompanyRecord

    def make(self, state: CompanyState) -> None:
        state.replace_company(self.after)

    def undo(self, state: CompanyState) -> None:
        state.replace_company(self.before)


@value
class GraphChanged:
    before: Graph | None
    after: Graph

    def make(self, state: CompanyState) -> None:
        state.replace_graph(self.after.name, self.after)

    def undo(self, state: CompanyState) -> None:
        state.replace_graph(self.after.name, self.before)


@value
class TaskAdded:
    """A new task; its first run follows. ``nominal_ms``: for which time of its schedule it was made, if it was."""

    task: str
    after: TaskRecord
    texts: TaskTexts
    nominal_ms: int | None = None

    def make(self, state: CompanyState) -> None:
        state.add_task(self.after)

    def undo(self, state: CompanyState) -> None:
        state.remove_task(self.task)


@value
class TaskChanged:
    task: str
    before: TaskRecord
    after: TaskRecord

    def make(self, state: CompanyState) -> None:
        state.replace_task(self.before, self.after)

    def undo(self, state: CompanyState) -> None:
        state.replace_task(self.after, self.before)


@value
class RunAdded:
    """A new run in the place of the newest, which is ``before``. ``payload`` is its own, if it has one; ``carried``: it
    has what the run before it was given.
    """

    task: str
    before: RunRecord | None
    after: RunRecord
    payload: str | None = None
    carried: bool = False

    def make(self, state: CompanyState) -> None:
        _check_run(self.task, None, self.after)
        state.replace_run(self.task, self.before, self.after)

    def undo(self, state: CompanyState) -> None:
        state.replace_run(self.task, self.after, self.before)


@value
class RunChanged:
    task: str
    before: RunRecord
    after: RunRecord

    def make(self, state: CompanyState) -> None:
        if self.before.status is not self.after.status:
            _check_run(self.task, self.before, self.after)
        state.replace_run(self.task, self.before, self.after)

    def undo(self, state: CompanyState) -> None:
        state.replace_run(self.task, self.after, self.before)


def _check_run(task: str, before: RunRecord | None, after: RunRecord) -> None:
    status = None if before is None else before.status
    check_move("run", RUN_MOVES, lambda: f"{task}/{after.number}", status, after.status)


@value
class NodesCreated:
    """All nodes of a run at once. ``pins``: the upstream runs are fixed with them. ``carried``: they take over what the
    nodes of the run before had; those that then succeed have the results that they had.
    """

    task: str
    seq: int
    run: int
    nodes: tuple[NodeRecord, ...]
    pins: bool = False
    carried: bool = False

    def make(self, state: CompanyState) -> None:
        for node in self.nodes:
            _check_node(self.task, None, node)
        state.replace_nodes(self.task, self.nodes)

    def undo(self, state: CompanyState) -> None:
        state.replace_nodes(self.task, None)


@value
class NodesLeft:
    """The nodes of the run before a new one: the newest run has none yet. No row changes."""

    task: str
    nodes: tuple[NodeRecord, ...]

    def make(self, state: CompanyState) -> None:
        state.replace_nodes(self.task, None)

    def undo(self, state: CompanyState) -> None:
        state.replace_nodes(self.task, self.nodes)


@value
class NodeChanged:
    task: str
    before: NodeRecord
    after: NodeRecord

    def make(self, state: CompanyState) -> None:
        if self.before.status is not self.after.status:
            _check_node(self.task, self.before, self.after)
        state.replace_node(self.task, self.before, self.after)

    def undo(self, state: CompanyState) -> None:
        state.replace_node(self.task, self.after, self.before)


def _check_node(task: str, before: NodeRecord | None, after: NodeRecord) -> None:
    status = None if before is None else before.status
    check_move("node", NODE_MOVES, lambda: f"{task}/{after.run}/{after.pos}", status, after.status)


@value
class QuarantineLifted:
    task: str
    seq: int
    why: str | None

    def make(self, state: CompanyState) -> None:
        state.quarantine(self.task, None)

    def undo(self, state: CompanyState) -> None:
        state.quarantine(self.task, self.why)


@value
class CycleFound:
    """The task is in a circle of dependencies, or not any more. No row changes."""

    task: str
    before: tuple[str, ...] | None
    after: tuple[str, ...] | None

    def make(self, state: CompanyState) -> None:
        state.set_cycle(self.task, self.after)

    def undo(self, state: CompanyState) -> None:
        state.set_cycle(self.task, self.before)


@value
class ScheduleChanged:
    """``None``: there is, or was, none of the name."""

    name: str
    before: ScheduleRecord | None
    after: ScheduleRecord | None

    def make(self, state: CompanyState) -> None:
        after = self.after
        status = None if self.before is None else self.before.status
        if after is not None and status is not after.status:
            check_move("schedule", SCHEDULE_MOVES, lambda: self.name, status, after.status)
        state.schedules.put(self.name, after)

    def undo(self, state: CompanyState) -> None:
        state.schedules.put(self.name, self.before)


OfTask = (
    TaskAdded
    | TaskChanged
    | RunAdded
    | RunChanged
    | NodesCreated
    | NodesLeft
    | NodeChanged
    | QuarantineLifted
    | CycleFound
)
Move = OfTask | CompanyChanged | GraphChanged | ScheduleChanged
