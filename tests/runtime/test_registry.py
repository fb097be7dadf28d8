"""The one registry of attempts: everything in, everything out, and a complaint if anything is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from actors.core.effects import AttemptKey
from actors.core.transitions import PHASE_MOVES, Phase
from actors.errors import IllegalMove
from actors.runtime.attempts import Attempt, AttemptRef, Registry

REF = AttemptRef("acme", AttemptKey("task", seq=1, run=1, pos=0, number=1))
NEXT_TRY = REF._replace(key=REF.key._replace(number=2))
NEIGHBOUR = REF._replace(key=REF.key._replace(pos=1))

LEGAL = {
    (None, Phase.CLAIMING),
    (Phase.CLAIMING, Phase.PERSISTING),
    (Phase.CLAIMING, Phase.FINALIZING),
    (Phase.PERSISTING, Phase.EXECUTING),
    (Phase.PERSISTING, Phase.FINALIZING),
    (Phase.EXECUTING, Phase.WAITING),
    (Phase.EXECUTING, Phase.CANCELLING),
    (Phase.EXECUTING, Phase.FINALIZING),
    (Phase.WAITING, Phase.EXECUTING),
    (Phase.WAITING, Phase.CANCELLING),
    (Phase.WAITING, Phase.FINALIZING),
    (Phase.CANCELLING, Phase.FINALIZING),
    (Phase.FINALIZING, Phase.FINALIZING),
}


def registered(*refs: AttemptRef) -> tuple[Registry, list[Attempt]]:
    registry = Registry()
    return registry, [registry.begin(ref) for ref in refs]


def ended(registry: Registry, attempt: Attempt) -> None:
    """What happens to an attempt before it is finished: it ends, and its slot is free."""
    attempt.move(Phase.FINALIZING)
    registry.free_slot(attempt)


@pytest.mark.parametrize("before", list(Phase))
@pytest.mark.parametrize("after", list(Phase))
def test_an_attempt_makes_exactly_the_moves_of_the_table(before: Phase, after: Phase) -> None:
    attempt = Attempt(REF, phase=before)
    if (before, after) in LEGAL:
        attempt.move(after)
        assert attempt.phase is after
    else:
        with pytest.raises(IllegalMove) as raised:
            attempt.move(after)
        assert attempt.phase is before
        assert (raised.value.before, raised.value.after) == (before, after)


def test_every_attempt_is_born_claiming() -> None:
    assert [after for before, after in LEGAL if before is None] == list(PHASE_MOVES[None])
    assert Attempt(REF).phase is Phase.CLAIMING


def test_an_illegal_move_tells_the_story_that_led_to_it() -> None:
    attempt = Attempt(REF)
    attempt.move(Phase.PERSISTING)
    attempt.move(Phase.EXECUTING)
    attempt.move(Phase.FINALIZING)
    with pytest.raises(IllegalMove) as raised:
        attempt.move(Phase.EXECUTING)
    assert raised.value.story == ("claiming", "persisting", "executing")
    assert "before that: claiming → persisting → executing" in str(raised.value)


def test_finalizing_absorbs_and_is_told_once() -> None:
    attempt = Attempt(REF)
    attempt.move(Phase.FINALIZING)
    attempt.move(Phase.FINALIZING)
    assert attempt.story == ("claiming",)


def test_what_begins_is_found_by_every_way_and_holds_a_slot() -> None:
    registry, (first, second) = registered(REF, NEIGHBOUR)
    assert registry.get(REF) is first
    assert registry.of_company("acme") == (first, second)
    assert registry.of_company("other") == ()
    assert registry.busy("acme")
    assert registry.holders == (first, second)
    assert registry.slots_in_use == 2
    registry.check()


def _put(registry: Registry, where: str, key: object, value: object) -> None:
    getattr(registry, where)[key] = value


LEFT_BEHIND: dict[str, Callable[[Registry], None]] = {
    "the attempt": lambda r: _put(r, "_attempts", REF, Attempt(REF)),
    "its slot": lambda r: _put(r, "_holding", REF, Attempt(REF)),
    "its company": lambda r: _put(r, "_by_company", "acme", {REF: Attempt(REF)}),
    "its node": lambda r: _put(r, "_by_node", REF.node, REF),
    "an earlier attempt of its node": lambda r: _put(r, "_by_node", REF.node, NEXT_TRY),
    "the attempt, abandoned": lambda r: _put(r, "_abandoned", REF, Attempt(REF)),
}


@pytest.mark.parametrize("what", LEFT_BEHIND)
def test_nothing_begins_over_a_registration_that_is_left(what: str) -> None:
    registry = Registry()
    LEFT_BEHIND[what](registry)
    before = _shape(registry)
    with pytest.raises(AssertionError):
        registry.begin(REF)
    assert _shape(registry) == before


def _shape(registry: Registry) -> dict[str, Any]:
    names = ("_attempts", "_holding", "_by_company", "_by_node", "_abandoned")
    return {name: sorted(map(str, getattr(registry, name))) for name in names}


def test_finishing_removes_every_registration() -> None:
    registry, (attempt, _) = registered(REF, NEIGHBOUR)
    ended(registry, attempt)
    registry.finish(REF)
    assert registry.get(REF) is None
    assert [other.ref for other in registry] == [NEIGHBOUR]
    assert [other.ref for other in registry.of_company("acme")] == [NEIGHBOUR]
    registry.check()
    registry.begin(NEXT_TRY)


def test_the_last_one_of_a_company_takes_the_company_along() -> None:
    registry, (attempt,) = registered(REF)
    ended(registry, attempt)
    registry.finish(REF)
    assert not registry.busy("acme")
    assert _shape(registry) == _shape(Registry())


def test_finishing_twice_or_what_never_began_is_harmless() -> None:
    registry, (attempt,) = registered(REF)
    ended(registry, attempt)
    for _ in range(2):
        registry.finish(REF)
    registry.finish(NEIGHBOUR)
    assert len(registry) == 0


@pytest.mark.leaks
def test_a_slot_that_its_way_out_forgot_is_freed_and_loudly_complained_of() -> None:
    registry, (attempt,) = registered(REF)
    attempt.move(Phase.FINALIZING)
    with capture_logs() as logs:
        registry.finish(REF)
    assert logs == [
        {
            "event": "attempt.leak",
            "log_level": "warning",
            "attempt": "acme/task/1/0/1",
            "registration": "slot",
        }
    ]
    assert registry.slots_in_use == 0
    registry.check()


@pytest.mark.leaks
def test_a_node_that_points_to_another_attempt_is_complained_of_and_left_to_that_one() -> None:
    registry, (attempt,) = registered(REF)
    ended(registry, attempt)
    _put(registry, "_by_node", REF.node, NEXT_TRY)
    with capture_logs() as logs:
        registry.finish(REF)
    assert [(entry["event"], entry["registration"]) for entry in logs] == [("attempt.leak", "node")]
    assert getattr(registry, "_by_node") == {REF.node: NEXT_TRY}  # noqa: B009


def test_one_that_still_runs_when_it_is_finished_is_kept_apart_until_it_returns() -> None:
    registry, (attempt,) = registered(REF)
    attempt.alive = True
    ended(registry, attempt)
    registry.finish(REF)
    assert len(registry) == 0
    assert list(registry.abandoned) == [attempt]
    registry.begin(NEXT_TRY)
    registry.check()
    registry.returned(attempt)
    assert list(registry.abandoned) == []


def test_giving_a_slot_back_twice_frees_one() -> None:
    registry, (attempt, _) = registered(REF, NEIGHBOUR)
    assert registry.free_slot(attempt)
    assert not registry.free_slot(attempt)
    assert registry.slots_in_use == 1


def test_illegal_moves_are_counted_by_node_until_one_ends_well() -> None:
    registry, (attempt, other) = registered(REF, NEIGHBOUR)
    assert [registry.note_illegal(attempt) for _ in range(2)] == [1, 2]
    assert registry.note_illegal(other) == 1
    registry.forget_illegal(attempt)
    assert registry.note_illegal(attempt) == 1
