"""What a person says to a run: go on, and do it again.

A gate is answered by `Approve`, a step is let through by `Next`. `SendBack` judges a result. The node whose result is
judged is reset, and every node that used it, at whatever distance, in one commit: results that were accepted are
discarded, so the generation of those nodes rises, and they get a fresh allowance; attempts that live with what was sent
back are superseded. A node that has not been tried yet has used nothing and stays as it is.

A completed run is final. What is sent back there becomes a new run, and so does `Rerun` from a node: the nodes that do
not use the judged result are carried over, succeeded, with their results.
"""

from __future__ import annotations

from typing import Any

from actors.errors import MoveRefused
from actors.messages import SEND_BACKS_MAX_DEFAULT, Approve, Next, Rerun, SendBack
from storage.codec import encode
from storage.records import Halt, NodeRecord, NodeStatus, RunStatus
from storage.values import changed

from .advance import attempt_key
from .budget import cannot_go_on
from .draft import Draft, fresh_run
from .effects import CancelAttempt
from .halting import NAMES_SHOWN, names_of, resume_run
from .shape import NodeSpec
from .task_state import TaskState, halt_of, is_halted_on_budget

FRESH: dict[str, Any] = {"tries": 0, "unclean": 0, "not_before_ms": None, "error": None}
"""The allowance of a node whose work so far does not count any more."""


def refused(message: object, entry: TaskState, text: str, *advice: str) -> MoveRefused:
    assert entry.run is not None
    return MoveRefused(type(message).__name__, entry.task.id, entry.run.status.value, text, advice)


def _place(message: object, entry: TaskState, name: str) -> int:
    """Position of the node of that name; raises `MoveRefused`."""
    names = [] if entry.progress is None else [spec.name for spec in entry.progress.specs]
    if name not in names:
        known = f"its nodes are {', '.join(names[:10])}" if names else "it has no nodes yet"
        raise refused(message, entry, f"has no node {name!r}: {known}{' …' if len(names) > 10 else ''}")
    return names.index(name)


# --- gates and steps ----------------------------------------------------------------------------------------


def approve(draft: Draft, entry: TaskState, message: Approve) -> None:
    """The gate succeeds, if it is reached. A halted run goes on, unless what is spent keeps it from that."""
    assert entry.run is not None
    if entry.progress is None:
        raise refused(message, entry, "has not started: nothing of it waits for you yet")
    pos = next((p for p in entry.progress.reached if _spec(entry, p).name == message.gate), None)
    if pos is None:
        raise _not_reached(message, entry)
    node = draft.node(entry, pos, status=NodeStatus.SUCCEEDED, reached_ms=None)
    answer = {"approved": True, "note": message.note}
    draft.results[(node.seq, node.run, pos)] = encode(answer, what="the answer")
    draft.event(
        "gate.approved",
        entry,
        node=message.gate,
        before=NodeStatus.PENDING,
        after=NodeStatus.SUCCEEDED,
        note=message.note,
    )
    stays = is_halted_on_budget(entry) and cannot_go_on(draft.state, entry)
    if entry.run.status is RunStatus.HALTED and not stays:
        resume_run(draft, entry, "approve", message.gate)


def _not_reached(message: Approve, entry: TaskState) -> MoveRefused:
    assert entry.run is not None
    assert entry.progress is not None
    specs = entry.progress.specs
    pos = next((p for p, spec in enumerate(specs) if spec.gate and spec.name == message.gate), None)
    if pos is None:
        what = f"has no gate {message.gate!r}"
    elif _node(entry, pos).status is NodeStatus.SUCCEEDED:
        what = f"gate {message.gate!r} is approved already"
    else:
        what = f"gate {message.gate!r} is not reached yet"
    others = names_of(entry, sorted(entry.progress.reached))
    text = f"is {entry.run.status.value}, and {what}: "
    if others:
        return refused(message, entry, f"{text}{', '.join(others[:10])} waits for you", "Approve")
    if halt_of(entry.run) is Halt.STEP:
        return refused(message, entry, f"{text}use Next", "Next")
    if is_halted_on_budget(entry):
        return refused(message, entry, f"{text}use Retry", "Retry")
    return refused(message, entry, f"{text}nothing waits for you")


def let_through(draft: Draft, entry: TaskState, message: Next) -> None:
    """The first node that is ready may start."""
    pos = min(entry.progress.ready, default=None) if entry.progress is not None else None
    if pos is None:
        raise refused(
            message, entry, "is halted, and no step of it is ready: use Stop and Retry", "Stop", "Retry"
        )
    resume_run(draft, entry, "next", _spec(entry, pos).name, step=pos)


# --- doing it again -----------------------------------------------------------------------------------------


def send_back(draft: Draft, entry: TaskState, message: SendBack) -> None:
    """The judged node is done again, in the place of its run or, if that is completed, in a new one."""
    assert entry.run is not None
    pos = _judged(message, entry)
    if entry.run.status is RunStatus.COMPLETED:
        _begin_from(draft, entry, pos, "send back", feedback=message.feedback)
        return
    queued = entry.queued
    if queued:
        draft.run(entry)  # looks anew at what it needs, now and, should it be undone, after that
    again = [*_reset_users(draft, entry, pos, message.feedback), pos]
    node = _node(entry, pos)
    _reset(draft, entry, node, message.feedback, send_backs=node.send_backs + 1)
    if queued or entry.run.step in again:
        draft.run(entry, step=None if entry.run.step in again else entry.run.step)
    _say_sent_back(draft, entry, pos, again)
    if entry.run.status in (RunStatus.HALTED, RunStatus.FAILED, RunStatus.STOPPED):
        _go_on(draft, entry, len(again))


def _node(entry: TaskState, pos: int) -> NodeRecord:
    assert entry.nodes is not None
    return entry.nodes[pos]


def _spec(entry: TaskState, pos: int) -> NodeSpec:
    assert entry.progress is not None
    return entry.progress.specs[pos]


def _judged(message: SendBack, entry: TaskState) -> int:
    """Position of the node that has a result to be judged; raises `MoveRefused`."""
    assert entry.run is not None
    if entry.nodes is None:
        raise refused(message, entry, "has no result yet: let it run first")
    pos = _place(message, entry, message.node)
    node, spec = _node(entry, pos), _spec(entry, pos)
    if node.status is NodeStatus.RUNNING:
        raise refused(message, entry, f"has node {spec.name!r} in flight: let it settle, or use Stop", "Stop")
    if node.status is NodeStatus.FAILED:
        text = f"has no result of node {spec.name!r} to judge, it failed: use Retry"
        raise refused(message, entry, text, "Retry")
    if node.status is NodeStatus.SKIPPED:
        text = f"has no result of node {spec.name!r} to judge, it was skipped: use Retry"
        raise refused(message, entry, text, "Retry")
    if node.status is NodeStatus.PENDING and spec.gate:
        text = f"has no result of gate {spec.name!r} to judge: send back the node that the gate is about"
        raise refused(message, entry, text, "SendBack", "Approve")
    if node.status is NodeStatus.PENDING and node.attempts and entry.run.status is not RunStatus.HALTED:
        text = f"has node {spec.name!r} already queued for another attempt: let it settle"
        raise refused(message, entry, text)
    if node.status is NodeStatus.PENDING:
        raise refused(message, entry, f"has no result of node {spec.name!r} yet: let it run first")
    _check_limit(message, entry, node, spec)
    return pos


def _check_limit(message: SendBack, entry: TaskState, node: NodeRecord, spec: NodeSpec) -> None:
    limits = (spec.send_backs_max, entry.task.send_backs_max, SEND_BACKS_MAX_DEFAULT)
    limit = next(limit for limit in limits if limit is not None)
    if node.send_backs >= limit:
        times = "once" if node.send_backs == 1 else f"{node.send_backs} times"
        text = f"had node {spec.name!r} sent back {times} of {limit} (send_backs_max): use Rerun, from_node if you like"
        raise refused(message, entry, text, "Rerun")


def _users_of(entry: TaskState, pos: int) -> list[int]:
    """Positions of all nodes that use the result, at whatever distance, in the order of the graph."""
    assert entry.progress is not None
    found: set[int] = set()
    work = [pos]
    while work:
        for user in entry.progress.users[work.pop()]:
            if user not in found:
                found.add(user)
                work.append(user)
    return sorted(found)


def _reset_users(draft: Draft, entry: TaskState, pos: int, feedback: str) -> list[int]:
    """Reset what has used the result, and say which; what has not been tried stays as it is."""
    again = []
    for user in _users_of(entry, pos):
        node = _node(entry, user)
        if node.status is NodeStatus.RUNNING:
            draft.effects.append(CancelAttempt(attempt_key(entry, node), "superseded"))
            generation = node.generation if node.superseded else node.generation + 1
            draft.node(entry, user, superseded=True, generation=generation, feedback=feedback, **FRESH)
            again.append(user)
        elif node.status is NodeStatus.SUCCEEDED or node.attempts:
            _reset(draft, entry, node, feedback)
            again.append(user)
        elif node.reached_ms is not None:
            draft.node(entry, user, reached_ms=None)
    return again


def _reset(draft: Draft, entry: TaskState, node: NodeRecord, feedback: str, **fields: Any) -> None:
    """Discard what the node has done. A gate has nothing that could be done otherwise, so no feedback either."""
    said = None if _spec(entry, node.pos).gate else feedback
    generation = node.generation + 1
    draft.node(
        entry,
        node.pos,
        status=NodeStatus.PENDING,
        generation=generation,
        feedback=said,
        reached_ms=None,
        **FRESH,
        **fields,
    )


def _say_sent_back(draft: Draft, entry: TaskState, pos: int, again: list[int]) -> None:
    node = _node(entry, pos)
    names = names_of(entry, sorted(again)[:NAMES_SHOWN])
    draft.event(
        "node.sent_back",
        entry,
        node=_spec(entry, pos).name,
        before=NodeStatus.SUCCEEDED,
        after=NodeStatus.PENDING,
        feedback=node.feedback,
        generation=node.generation,
        send_backs=node.send_backs,
        count=len(again),
        nodes=names,
    )


def _go_on(draft: Draft, entry: TaskState, reset: int) -> None:
    """A run that stood still is queued at its old place. What was skipped waits again, with the tries that it had; what
    gave up stays so, unless it would keep everything else from going on.
    """
    assert entry.run is not None
    before = entry.run.status
    for node in tuple(entry.nodes or ()):
        if node.status is NodeStatus.SKIPPED:
            draft.node(entry, node.pos, status=NodeStatus.PENDING)
        elif node.status is NodeStatus.FAILED and entry.task.fail_fast:
            draft.node(entry, node.pos, status=NodeStatus.PENDING, tries=0, unclean=0)
            reset += 1
    draft.run(entry, status=RunStatus.QUEUED, settled_ms=None, halted_ms=None, reason=None, started=True)
    draft.event("run.requeued", entry, before=before, after=RunStatus.QUEUED, reason="send back", nodes=reset)


def place_of_rerun(message: Rerun, entry: TaskState, name: str) -> int:
    """Position of the node from which it is done again; raises `MoveRefused`."""
    if entry.nodes is None:
        raise refused(
            message, entry, "has no results that could be kept: use Rerun without from_node", "Rerun"
        )
    return _place(message, entry, name)


def rerun_from(draft: Draft, entry: TaskState, message: Rerun, pos: int) -> None:
    """A new run that keeps the results of all nodes that do not use this one's."""
    _begin_from(draft, entry, pos, "rerun", payload=message.payload_text)


def _begin_from(
    draft: Draft,
    entry: TaskState,
    pos: int,
    reason: str,
    *,
    feedback: str | None = None,
    payload: str | None = None,
) -> None:
    """A new run in the place of the newest, whose nodes, payload and pinned upstreams it has."""
    assert entry.run is not None
    assert entry.nodes is not None
    old, before = tuple(entry.nodes), entry.run.status
    again = {pos, *_users_of(entry, pos)}
    kept = [node.pos for node in old if node.status is NodeStatus.SUCCEEDED and node.pos not in again]
    run = fresh_run(entry.task, entry.run.number + 1, draft.now_ms, started=True)
    draft.add_run(entry, changed(run, admitted_ms=draft.now_ms), payload, carried=True)
    draft.event("run.created", entry, before=before, after=RunStatus.QUEUED, reason=reason, carried=len(kept))
    draft.carry_nodes(entry, tuple(_born(node, run.number, anew=feedback is None) for node in old))
    for place in kept:
        draft.node(entry, place, status=NodeStatus.SUCCEEDED, generation=old[place].generation)
    if feedback is not None:
        for place in sorted(again):
            if not _spec(entry, place).gate:
                draft.node(entry, place, feedback=feedback)
        draft.node(entry, pos, send_backs=old[pos].send_backs + 1)
        _say_sent_back(draft, entry, pos, sorted(again))
    draft.run(entry)  # looks anew at what it needs: what is kept needs no handler


def _born(node: NodeRecord, run: int, *, anew: bool) -> NodeRecord:
    """The node as it begins in the next run: what it had done is of an older generation. Its count of send-backs goes
    on, unless somebody wants the task done anew.
    """
    done = node.status is NodeStatus.SUCCEEDED or node.attempts > 0
    return NodeRecord(
        node.seq,
        run,
        node.pos,
        node.spec,
        generation=node.generation + done,
        send_backs=0 if anew else node.send_backs,
    )
