"""Turns of a company's actor: all that one changes, and the one reading that it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import attrs

from storage.records import (
    AttemptRecord,
    Claim,
    CompanyRecord,
    EventRecord,
    NodeRecord,
    RunRecord,
    TaskRecord,
)
from storage.values import value
from storage.writes import TaskTexts, Write

from .loading import FoundTasks
from .store import CompanyOperation, Query


@value
class InputsOf:
    """Ask for what a starting attempt is given; ``after`` are the positions of the nodes whose results it
    uses. ``upstream``: whether its task depends on others.
    """

    seq: int
    run: int
    pos: int
    after: tuple[int, ...] = ()
    upstream: bool = False


@value
class Inputs:
    """JSON texts: the task's payload (or the run's in its place), the node's own, and the results in the
    order of ``after``; of the upstream tasks: task, node (none if it has none) and result.
    """

    payload: str | None
    node_payload: str | None
    results: tuple[str | None, ...]
    upstream: Sequence[tuple[str, str | None, str | None]] = ()


@value
class GraphRow:
    """A company graph as it is stored."""

    name: str
    version: int
    shape: str
    node_payloads: str | None


@value
class Committed:
    """What the database added: the position of the first event and its number in the company, and the
    inputs asked for.
    """

    first_position: int
    first_seq: int
    inputs: Sequence[Inputs] = ()


@attrs.define(eq=False)
class CommitTurn(CompanyOperation[Committed]):
    """All that one turn changes, made durable together. Raises `StaleEpoch`.

    It is put together field by field, and does not change any more once it is submitted.
    """

    claim: Claim
    due_ms: int | None = None
    company: CompanyRecord | None = None
    graphs: Sequence[GraphRow] = ()
    new_tasks: Sequence[tuple[TaskRecord, TaskTexts]] = ()
    tasks: Sequence[TaskRecord] = ()
    edges: Sequence[tuple[int, tuple[str, ...]]] = ()
    """(task seq, upstreams), in the place of what was there."""
    repinned: Sequence[int] = ()
    """Of them, the tasks that had others before."""
    new_runs: Sequence[RunRecord] = ()
    runs: Sequence[RunRecord] = ()
    new_nodes: Sequence[tuple[NodeRecord, str | None]] = ()
    nodes: Sequence[tuple[NodeRecord, str | None]] = ()
    """With the JSON text of the result, where one was accepted in this turn."""
    carried: Sequence[tuple[NodeRecord, str | None]] = ()
    """New nodes that take over payload and result from the run before theirs."""
    begun: Sequence[AttemptRecord] = ()
    ended: Sequence[AttemptRecord] = ()
    pins: Sequence[int] = ()
    writes: Sequence[Write] = ()
    """What changes less than a row."""
    events: Sequence[EventRecord] = ()
    inputs: Sequence[InputsOf] = ()


class AttemptPlace(NamedTuple):
    """Where an attempt stands: the task's submission sequence, run, node position, attempt number."""

    seq: int
    run: int
    pos: int
    number: int


@value
class FiredTimes:
    """Nominal times of a schedule that have fired. ``complete``: whether these are all from the time asked for on;
    ``last``: the latest that ever fired.
    """

    times: frozenset[int]
    complete: bool
    last: int | None


@value
class Prefetched:
    """The answer of `Prefetch`."""

    found: FoundTasks
    contents: dict[str, str | None]
    """Digest of what was submitted, by task id."""
    keys: dict[str, str]
    """Task id by idempotency key, for keys that are in use."""
    edges: dict[str, tuple[str, ...]]
    """Task id → upstreams, for all tasks of the closure."""
    fired: dict[str, FiredTimes]
    booked: dict[AttemptPlace, tuple[int, bool]]
    """What is booked of an attempt, and whether that is only assumed; without those whose rows are gone."""


@value
class Prefetch(Query[Prefetched]):
    """Rows that the messages of a turn name and memory does not hold, in one reading.

    ``ids``: tasks to load; ``contents``: ids whose digest is asked for, and whose tasks are loaded; ``keys``:
    idempotency keys, whose tasks are loaded; ``closure``: tasks whose upstreams are asked for, all the way up;
    ``fired``: schedules and the nominal time from which on; at most ``fired_max`` times are returned of each;
    ``booked``: attempts that have ended.
    """

    company_id: int
    ids: frozenset[str] = frozenset()
    contents: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    closure: frozenset[str] = frozenset()
    fired: Mapping[str, int] = attrs.field(factory=dict)
    fired_max: int = 0
    booked: Sequence[AttemptPlace] = ()
