"""What a schedule does when its time has come: pure functions of its record, its rule and the wall clock.

*On time.* A fire is for its nominal time, and the next nominal time is the first one after now.

*Missed.* If several nominal times have passed, the newest is fired if it is on time (less than a minute ago), or if
the misfire rule says ``latest``; the others are counted as skipped, and never made up for. Counting a cron text's
times is walking through them, so it stops at `COUNT_MAX`, and the count is then said to be a least one.

*The wall clock goes back.* No nominal time fires twice: up to `ScheduleRecord.fired_to_ms` a time may have fired, so
there the caller has to look up which did (`Fired`). Times that belong to dates wait for the first one that has not.
What follows real time does not wait until the clock has made up for what it lost: it goes on at the clock's own
times, and takes for each the first nominal time that has not fired. So its nominal times run ahead of the wall clock
(``due_ms`` before ``next_ms``) until that has caught up, or until enough times were missed. A clock that went back by
less than half a step, or less than `BACK_MS`, is waited for.
"""

from __future__ import annotations

from actors.recurrence import Rule
from storage.records import Misfire, Overlap, ScheduleRecord
from storage.values import changed, value

COUNT_MAX = 500
"""Nominal times of one cron text that are walked through to be counted: some milliseconds of one turn."""
FIRED_MAX = 2_000
"""Nominal times that are looked up after the wall clock went back: more than a day of minutes."""
ON_TIME_MS = 60_000
"""A fire that is later than this was missed. Nobody looks at the clock less often."""
NEVER = "no date fits it any more"


@value
class Fired:
    """Nominal times that have fired already, from some time on. ``complete``: all of them up to ``last_ms``, the
    latest that ever fired.
    """

    times: frozenset[int] = frozenset()
    complete: bool = True
    last_ms: int | None = None


@value
class Outcome:
    """What becomes of a schedule whose time has come.

    ``nominal_ms``: what to fire for, if anything. ``start_ms``: the wall clock's time of that fire, from which its
    jitter counts. ``skipped``: nominal times left out; ``exact`` unless there are more of them. ``last_ms``: the latest
    that was due. ``counted``: what looking cost.
    """

    after: ScheduleRecord
    nominal_ms: int | None = None
    start_ms: int = 0
    skipped: int = 0
    exact: bool = True
    last_ms: int | None = None
    overlaps: bool = False
    counted: int = 1


def needs_fired(record: ScheduleRecord) -> bool:
    """Whether the next nominal time may have fired already, so that it must be looked up."""
    first = min((t for t in (record.next_ms, record.missed_ms) if t is not None), default=None)
    return first is not None and record.fired_to_ms is not None and first <= record.fired_to_ms


def missed_until(record: ScheduleRecord, rule: Rule, now_ms: int) -> tuple[int, int | None, bool]:
    """Fires that are due and have not been made: how many, the last, and whether they were counted to the end. Those
    under an earlier rule are among them.
    """
    count, last, exact = record.missed, record.missed_ms, True
    if record.due_ms is not None and record.due_ms <= now_ms:
        last = rule.latest(record.due_ms, now_ms)
        counted, exact = rule.count(record.due_ms, last, COUNT_MAX)
        count += counted
    return count, last, exact


def come_due(
    record: ScheduleRecord, rule: Rule, now_ms: int, fired: Fired, *, overlapping: bool = False
) -> Outcome:
    """Decide a schedule that has something to do. ``overlapping``: a task of it is not settled yet."""
    count, last, exact = missed_until(record, rule, now_ms)
    nominal, again = _nominal(record, rule, now_ms, last, fired)
    count = max(0, count - again)
    overlaps = overlapping and record.overlap is Overlap.SKIP
    on_time = last is not None and last != record.missed_ms and now_ms - last < ON_TIME_MS
    if overlaps or (record.misfire is Misfire.SKIP and not on_time):
        nominal = None
    skipped = max(0, count - (nominal is not None))
    return Outcome(
        _moved_on(record, rule, now_ms, nominal, fired),
        nominal,
        last or 0,
        skipped,
        exact,
        last,
        overlaps and skipped > 0,
        counted=count,
    )


def _nominal(
    record: ScheduleRecord, rule: Rule, now_ms: int, last: int | None, fired: Fired
) -> tuple[int | None, int]:
    """The nominal time to fire for, and how many of those that are due have fired already."""
    if last is None or record.next_ms is None:
        return None, 0
    if rule.steady and last != record.missed_ms:
        return first_free(record, rule, last if last >= record.next_ms else record.next_ms, fired), 0
    again = sum(1 for t in fired.times if record.next_ms <= t <= now_ms)
    free: int | None = last
    while free is not None and free in fired.times:
        before = rule.latest(record.next_ms, free - 1)
        free = before if record.next_ms <= before < free else None
    if free is None and record.missed_ms not in fired.times:
        free = record.missed_ms
    return free, again


def first_free(record: ScheduleRecord, rule: Rule, from_ms: int, fired: Fired) -> int | None:
    """The first nominal time from ``from_ms`` on that has not fired."""
    found = rule.after(from_ms - 1)
    while found is not None and found in fired.times:
        found = rule.after(found)
    if not fired.complete and found is not None and max(fired.times) < found <= (record.fired_to_ms or found):
        return rule.after(record.fired_to_ms or found)  # more have fired than were looked up
    return found


def _moved_on(
    record: ScheduleRecord, rule: Rule, now_ms: int, nominal: int | None, fired: Fired
) -> ScheduleRecord:
    """The schedule after this, waiting for its next time."""
    slot = rule.after(now_ms)
    low = now_ms + 1
    if nominal is not None:
        low = max(low, nominal + 1)
    elif record.next_ms is not None:
        low = max(low, record.next_ms)
    following = slot if slot is None else first_free(record, rule, low, fired)
    moved = changed(record, moved_ms=now_ms, missed=0, missed_ms=None)
    if slot is None or following is None:
        return disabled(moved, NEVER)
    due = min(slot, following) if rule.steady else following
    return changed(moved, next_ms=following, due_ms=due)


def went_back(record: ScheduleRecord, rule: Rule, now_ms: int, fired: Fired) -> ScheduleRecord:
    """The schedule after the wall clock went back to before its last move: never later than it was, and no sooner than
    it may.
    """
    moved = changed(record, moved_ms=now_ms)
    if record.next_ms is None or record.due_ms is None or record.due_ms <= now_ms:
        return moved
    if not rule.steady:
        free = first_free(record, rule, now_ms, fired)
        if free is None or free >= record.next_ms:
            return moved
        return changed(moved, next_ms=free, due_ms=free)
    step = (rule.after(record.due_ms) or record.due_ms) - record.due_ms
    if 2 * (record.moved_ms - now_ms) <= step:
        return moved
    # a time that passed since the last look counts, where steps are so small that it would be a silence
    due = rule.after(now_ms - 1 - (step if step <= ON_TIME_MS else 0))
    following = None if due is None else first_free(record, rule, due, fired)
    if due is None or due >= record.due_ms or following is None:
        return moved
    return changed(moved, next_ms=min(following, record.next_ms), due_ms=due)


def begun(record: ScheduleRecord, rule: Rule, now_ms: int, fired: Fired) -> ScheduleRecord:
    """A schedule whose rule is new: it waits for the first time after now, whatever its old rule had in mind."""
    slot = rule.after(now_ms)
    following = None if slot is None else first_free(record, rule, slot, fired)
    moved = changed(record, moved_ms=now_ms, disabled=None)
    if slot is None or following is None:
        return disabled(moved, NEVER)
    return changed(moved, next_ms=following, due_ms=slot if rule.steady else following)


def disabled(record: ScheduleRecord, why: str) -> ScheduleRecord:
    return changed(record, disabled=why, next_ms=None, due_ms=None, missed=0, missed_ms=None)
