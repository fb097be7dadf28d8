"""A company's schedules in memory: what they say, which of them is due, and which tasks are theirs.

Their rows are few and stay in memory whole. One heap knows the next due time of all of them, so a wake costs a look
at its head, however many there are. While the company is paused none of them is due: what falls due meanwhile is
missed, as with a schedule that is itself paused.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from actors.codec import template_of
from actors.recurrence import TIME_MAX_MS, Every, Rule, cron_of
from storage.records import ScheduleRecord, ScheduleStatus
from storage.values import changed

from ..heap import Heap

BACK_MS = 30_000
"""A wall clock that went back by less is waited for: half of the least step of a cron text."""


def rule_of(record: ScheduleRecord) -> Rule:
    """When it fires; raises `InvalidMessage` for a cron text or a zone that this machine cannot follow."""
    if record.every_ms is not None:
        return Every(record.every_ms, record.anchor_ms)
    return cron_of(record.cron or "", record.zone)


def about(schedule: str) -> str:
    """How a turn names the schedule that it is about. No task has such an id."""
    return f"schedule/{schedule}"


def schedule_of(about: str) -> str | None:
    """The schedule that a turn was about, if it was one."""
    _, slash, name = about.partition("/")
    return name if slash else None


def due_of(record: ScheduleRecord) -> int | None:
    """When the schedule has something to do, by the wall clock; ``None`` while it is paused or disabled."""
    if record.status is not ScheduleStatus.ACTIVE:
        return None
    return record.missed_ms if record.missed_ms is not None else record.due_ms


def jitter_ms(company: str, record: ScheduleRecord, nominal_ms: int) -> int:
    """How long after its time a fire starts: from 0 to the schedule's jitter, the same for the same fire for ever."""
    identity = f"{company}/{record.name}/{nominal_ms}"
    return record.jitter_ms * zlib.crc32(identity.encode("utf-8")) // (2**32 - 1)


def checked(record: ScheduleRecord) -> ScheduleRecord:
    """The record as it was read, with what is wrong with it if anything is."""
    if record.bad is not None:
        return record
    try:
        rule_of(record)
        template_of(record.template)
        _check_times(record)
    except ValueError as error:
        return changed(record, bad=str(error))
    return record


def _check_times(record: ScheduleRecord) -> None:
    for name in ("anchor_ms", "next_ms", "due_ms", "moved_ms", "fired_to_ms", "missed_ms"):
        value = getattr(record, name)
        if value is not None and not -TIME_MAX_MS < value < TIME_MAX_MS:
            raise ValueError(f"{name} is {value}, which is no time that can be reckoned with")
    if (record.next_ms is None) != (record.disabled is not None) or (record.due_ms is None) != (
        record.next_ms is None
    ):
        raise ValueError("its next time is missing, or is there although it is disabled")


class Schedules:
    def __init__(self) -> None:
        self.by_name: dict[str, ScheduleRecord] = {}
        self.tasks: dict[str, set[str]] = {}
        """Schedule → ids of its tasks that are in memory; the unsettled ones always are."""
        self.unfit: dict[str, None] = {}
        """Those whose rows cannot be trusted and that are not disabled for it yet."""
        self._due: Heap[str, tuple[int, str]] = Heap()
        self._moved_to_ms = 0
        """No schedule has moved later than this."""

    def __len__(self) -> int:
        return len(self.by_name)

    def load(self, records: Iterable[ScheduleRecord]) -> None:
        """Take in what was read; no change, so nothing to undo."""
        for record in records:
            self.put(record.name, checked(record))

    def put(self, name: str, record: ScheduleRecord | None) -> None:
        """Replace the schedule by this one, or take it away."""
        self.unfit.pop(name, None)
        if record is None:
            self.by_name.pop(name, None)
            self._due.discard(name)
            return
        self.by_name[name] = record
        due = None if record.bad is not None else due_of(record)
        if due is None:
            self._due.discard(name)
        else:
            self._due.put(name, (due, name))
        if record.bad is None:
            self._moved_to_ms = max(self._moved_to_ms, record.moved_ms)
        elif record.disabled is None:
            self.unfit[name] = None

    def next_due_ms(self) -> int | None:
        """When the first of them has something to do."""
        first = self.first()
        return None if first is None else due_of(first)

    def first(self) -> ScheduleRecord | None:
        """The one that is due first."""
        first = self._due.first()
        return None if first is None else self.by_name[first[1]]

    def ahead_of(self, now_ms: int) -> list[ScheduleRecord]:
        """Active schedules that have moved at a time which the wall clock, having gone back, has yet to show."""
        if self._moved_to_ms - now_ms <= BACK_MS:
            return []
        active = [
            record
            for record in self.by_name.values()
            if record.bad is None and record.status is ScheduleStatus.ACTIVE
        ]
        ahead = [record for record in active if record.moved_ms - now_ms > BACK_MS]
        if not ahead:
            self._moved_to_ms = max((record.moved_ms for record in active), default=0)
        return ahead

    # --- their tasks ----------------------------------------------------------------------------------------

    def note_task(self, schedule: str, task: str) -> None:
        self.tasks.setdefault(schedule, set()).add(task)

    def forget_task(self, schedule: str, task: str) -> None:
        mine = self.tasks.get(schedule)
        if mine is not None:
            mine.discard(task)
            if not mine:
                del self.tasks[schedule]
