"""Schedules in a turn: the messages about them, and the moves of those whose time has come.

A fire is one commit: the task, its run, its nominal time and the schedule's next one go together or not at all. What
cannot be carried out (a handler that this host has not) is skipped with its reason, and the schedule goes on.
"""

from __future__ import annotations

from typing import Any

from actors.codec import template_of, template_text
from actors.errors import InvalidJson, Refused, ScheduleRefused, UnknownSchedule
from actors.messages import (
    PauseSchedule,
    RemoveSchedule,
    ResumeSchedule,
    RunNow,
    ScheduleSettings,
    SetSchedule,
    Submitted,
)
from storage.records import ScheduleRecord, ScheduleStatus
from storage.values import changed, value

from ..draft import Draft
from ..prefetch import Prefetched, template_needs
from ..submit import Fire, carry_out, check_template
from .firing import (
    ON_TIME_MS,
    Fired,
    Outcome,
    begun,
    come_due,
    disabled,
    missed_until,
    needs_fired,
    went_back,
)
from .state import about, due_of, jitter_ms, rule_of

SCHEDULES_MAX = 10_000
"""Schedules of one company. They stay in its actor's memory."""
COUNTED_PER_MOVE = 10
"""So many nominal times walked through to count them are worth one move of a turn."""
_ORDINARY = Fired()


# --- messages -----------------------------------------------------------------------------------------------


def decide_set_schedule(draft: Draft, message: SetSchedule, prefetched: Prefetched) -> ScheduleSettings:
    schedules = draft.state.schedules
    old = schedules.by_name.get(message.name)
    draft.about = about(message.name)
    check_template(draft, message.task, prefetched)
    try:
        said = _said(message)
    except InvalidJson as error:
        raise ScheduleRefused("SetSchedule", message.name, str(error)) from None
    if old is None:
        return _add(draft, message, said, prefetched)
    if old.bad is None and old.disabled is None and all(getattr(old, key) == said[key] for key in said):
        return _settings(old, changed=False)
    rule_is_new = any(getattr(old, key) != said[key] for key in ("cron", "every_ms", "zone"))
    if not rule_is_new and old.bad is None and old.disabled is None:
        return _put(draft, old, changed(old, **said))
    fired = prefetched.fired.get(message.name, _ORDINARY)
    if old.bad is None:
        old = _settle_old_rule(draft, old, prefetched)
        new = changed(old, **said, anchor_ms=draft.now_ms)
    else:
        new = ScheduleRecord(old.seq, old.name, **said, anchor_ms=draft.now_ms, fired_to_ms=fired.last_ms)
        new = changed(new, paused_ms=old.paused_ms)
    return _put(draft, old, begun(new, rule_of(new), draft.now_ms, fired))


def _said(message: SetSchedule) -> dict[str, Any]:
    """What the message says of the row's fields."""
    return {
        "template": template_text(message.task),
        "cron": message.cron,
        "every_ms": message.every_ms,
        "zone": message.zone or "UTC",
        "overlap": message.overlap,
        "misfire": message.misfire,
        "jitter_ms": message.jitter_ms,
    }


def _add(
    draft: Draft, message: SetSchedule, said: dict[str, Any], prefetched: Prefetched
) -> ScheduleSettings:
    schedules = draft.state.schedules
    if len(schedules) >= SCHEDULES_MAX:
        text = f"the company has {SCHEDULES_MAX} schedules, which is the most that one can have"
        raise ScheduleRefused("SetSchedule", message.name, text)
    seq = max((record.seq for record in schedules.by_name.values()), default=0) + 1
    fired = prefetched.fired.get(message.name, _ORDINARY)
    new = ScheduleRecord(seq, message.name, **said, anchor_ms=draft.now_ms, fired_to_ms=fired.last_ms)
    return _put(draft, None, begun(new, rule_of(new), draft.now_ms, fired))


def _settle_old_rule(draft: Draft, old: ScheduleRecord, prefetched: Prefetched) -> ScheduleRecord:
    """What fell due under the old rule is not the new one's: it fires now, or while the schedule is held it is kept
    for the misfire rule.
    """
    if old.due_ms is None or old.due_ms > draft.now_ms:
        return old
    if _held(draft, old) or not _ready(old, prefetched):
        count, last, _ = missed_until(old, rule_of(old), draft.now_ms)
        return changed(old, missed=count, missed_ms=last)
    _fire(draft, old, prefetched)
    return draft.state.schedules.by_name[old.name]


def _held(draft: Draft, record: ScheduleRecord) -> bool:
    return record.status is not ScheduleStatus.ACTIVE or draft.state.company.paused_ms is not None


def _put(draft: Draft, before: ScheduleRecord | None, after: ScheduleRecord) -> ScheduleSettings:
    if after.disabled is not None:
        raise ScheduleRefused("SetSchedule", after.name, after.disabled)
    draft.schedule(before, after)
    draft.event(
        "schedule.set",
        before=None if before is None else before.status,
        after=after.status,
        name=after.name,
        cron=after.cron,
        every_ms=after.every_ms,
        zone=after.zone,
        overlap=after.overlap.value,
        misfire=after.misfire.value,
        jitter_ms=after.jitter_ms,
        next_ms=after.next_ms,
    )
    return _settings(after)


def _settings(record: ScheduleRecord, *, changed: bool = True) -> ScheduleSettings:
    return ScheduleSettings(
        record.name, record.next_ms, record.paused_ms is not None, record.disabled, changed
    )


def _known(draft: Draft, name: str) -> ScheduleRecord:
    record = draft.state.schedules.by_name.get(name)
    if record is None:
        raise UnknownSchedule(draft.state.company.name, name)
    draft.about = about(name)
    return record


def decide_pause_schedule(draft: Draft, message: PauseSchedule, _prefetched: Prefetched) -> ScheduleSettings:
    record = _known(draft, message.name)
    if record.paused_ms is not None:
        return _settings(record, changed=False)
    return _hold(draft, record, "schedule.paused", draft.now_ms)


def decide_resume_schedule(
    draft: Draft, message: ResumeSchedule, _prefetched: Prefetched
) -> ScheduleSettings:
    """It is due at once if something was missed; `fire_due` then applies the misfire rule, in the same commit."""
    record = _known(draft, message.name)
    if record.paused_ms is None:
        return _settings(record, changed=False)
    return _hold(draft, record, "schedule.resumed", None)


def _hold(draft: Draft, record: ScheduleRecord, kind: str, paused_ms: int | None) -> ScheduleSettings:
    after = changed(record, paused_ms=paused_ms)
    draft.schedule(record, after)
    draft.event(kind, before=record.status, after=after.status, name=record.name, next_ms=record.next_ms)
    return _settings(after)


def decide_remove_schedule(
    draft: Draft, message: RemoveSchedule, _prefetched: Prefetched
) -> ScheduleSettings:
    record = _known(draft, message.name)
    draft.schedule(record, None)
    draft.event("schedule.removed", before=record.status, name=record.name)
    return changed(_settings(record), next_ms=None)


def decide_run_now(draft: Draft, message: RunNow, prefetched: Prefetched) -> Submitted:
    """A task as at a fire, without a nominal time; the schedule itself does not move."""
    record = _known(draft, message.name)
    if record.bad is not None:
        raise ScheduleRefused("RunNow", record.name, f"it is disabled ({record.bad}): use SetSchedule")
    made = carry_out(draft, template_of(record.template), prefetched, Fire(record.name))
    draft.about = about(record.name)
    draft.event(
        "schedule.fired", draft.state.entries[made.id], name=record.name, nominal_ms=None, manual=True
    )
    return made


# --- those whose time has come ------------------------------------------------------------------------------


@value
class Due:
    """``more``: the bound was reached, or something has to be looked up first. ``on_time``: there was one whose time
    came less than a minute ago.
    """

    more: bool = False
    on_time: bool = False


NONE_DUE = Due()


def fire_due(draft: Draft, prefetched: Prefetched, limit: int) -> Due:
    """Move every schedule that has something to do, until the draft has made ``limit`` moves."""
    schedules = draft.state.schedules
    on_time = False
    for name in list(schedules.unfit):
        if draft.moves >= limit:
            return Due(True, on_time)
        record = schedules.by_name[name]
        _disable(draft, record, record.bad or "")
    for record in schedules.ahead_of(draft.now_ms):
        if draft.moves >= limit or record.name not in prefetched.fired:
            return Due(True, on_time)
        _go_back(draft, record, prefetched)
    while draft.state.company.paused_ms is None:
        first = schedules.first()
        due = None if first is None else due_of(first)
        if first is None or due is None or due > draft.now_ms:
            break
        if draft.moves >= limit or not _ready(first, prefetched):
            return Due(True, on_time)
        on_time = on_time or draft.now_ms - due < ON_TIME_MS
        _fire(draft, first, prefetched)
    return Due(False, on_time)


def _ready(record: ScheduleRecord, prefetched: Prefetched) -> bool:
    """Whether everything that its fire depends on has been read."""
    if needs_fired(record) and record.name not in prefetched.fired:
        return False
    return record.name in prefetched.templates or not template_needs(record)


def _disable(draft: Draft, record: ScheduleRecord, why: str) -> None:
    draft.about = about(record.name)
    after = disabled(record, why)
    draft.schedule(record, after)
    draft.event("schedule.disabled", before=record.status, after=after.status, reason=why, name=record.name)
    draft.moves += 1


def _go_back(draft: Draft, record: ScheduleRecord, prefetched: Prefetched) -> None:
    draft.about = about(record.name)
    after = went_back(record, rule_of(record), draft.now_ms, prefetched.fired[record.name])
    draft.schedule(record, after)
    back_ms = record.moved_ms - draft.now_ms
    draft.event(
        "schedule.clock_back", name=record.name, back_ms=back_ms, next_ms=after.next_ms, due_ms=after.due_ms
    )
    draft.moves += 1


def _fire(draft: Draft, record: ScheduleRecord, prefetched: Prefetched) -> None:
    """One schedule that is due: the fire if there is one, what was skipped, and its next time."""
    name = record.name
    draft.about = about(name)
    holders = unsettled_tasks(draft, name)
    fired = prefetched.fired.get(name, _ORDINARY)
    outcome = come_due(record, rule_of(record), draft.now_ms, fired, overlapping=bool(holders))
    outcome, refusal, made = _carry_out(draft, record, outcome, prefetched)
    after = outcome.after
    if made is not None and outcome.nominal_ms is not None:
        to_ms = max(outcome.nominal_ms, record.fired_to_ms or outcome.nominal_ms)
        after = changed(after, fired_ms=outcome.nominal_ms, fired_task=made.id, fired_to_ms=to_ms)
    draft.schedule(record, after)
    if outcome.skipped:
        _say_skipped(draft, name, outcome, refusal, holders)
    if after.disabled is not None:
        draft.event(
            "schedule.disabled",
            before=record.status,
            after=after.status,
            reason=after.disabled,
            name=name,
        )
    draft.about = about(name)
    draft.moves += 1 + outcome.counted // COUNTED_PER_MOVE


def _carry_out(
    draft: Draft, record: ScheduleRecord, outcome: Outcome, prefetched: Prefetched
) -> tuple[Outcome, Refused | None, Submitted | None]:
    """Insert the task; a refusal makes the fire a skipped one."""
    nominal = outcome.nominal_ms
    if nominal is None:
        return outcome, None, None
    jitter = jitter_ms(draft.state.company.name, record, nominal)
    start_ms = outcome.start_ms + jitter if record.jitter_ms else None
    mark = draft.mark()
    try:
        made = carry_out(
            draft, template_of(record.template), prefetched, Fire(record.name, nominal, start_ms)
        )
    except Refused as refusal:
        draft.rollback(mark)
        return changed(outcome, skipped=outcome.skipped + 1), refusal, None
    draft.event(
        "schedule.fired", draft.state.entries[made.id], name=record.name, nominal_ms=nominal, manual=False
    )
    return outcome, None, made


def _say_skipped(
    draft: Draft, name: str, outcome: Outcome, refusal: Refused | None, holders: list[str]
) -> None:
    if refusal is not None:
        reason = str(refusal)
    elif outcome.overlaps:
        reason = f"overlap: {', '.join(holders[:10])} is not settled"
    elif _was_paused(draft, name):
        reason = "paused: its time passed during the pause"
    else:
        reason = "missed: no host could fire it in time"
    draft.event(
        "schedule.skipped",
        reason=reason,
        name=name,
        count=outcome.skipped,
        exact=outcome.exact,
        last_ms=outcome.last_ms,
    )


def _was_paused(draft: Draft, name: str) -> bool:
    """Whether this very turn ends a pause of the schedule or of the company."""
    return any(
        event.kind == "company.unpaused" or (event.kind == "schedule.resumed" and event.data["name"] == name)
        for event in draft.events
    )


def unsettled_tasks(draft: Draft, name: str) -> list[str]:
    """Tasks of the schedule that are not over, oldest first. One that is archived or quarantined holds nobody up."""
    entries = [draft.state.entries[task] for task in draft.state.schedules.tasks.get(name, ())]
    alive = [
        entry
        for entry in entries
        if entry.run is not None
        and not entry.run.status.settled
        and entry.task.archived_ms is None
        and entry.quarantined is None
    ]
    return [entry.task.id for entry in sorted(alive, key=lambda entry: entry.task.seq)]
