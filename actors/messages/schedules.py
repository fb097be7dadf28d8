"""Messages about schedules."""

from __future__ import annotations

from datetime import timedelta

import attrs

from actors.errors import InvalidMessage
from actors.recurrence import EVERY_MIN_MS, cron_of
from storage.records import Misfire, Overlap

from .base import JITTER_S_LIMIT, Message
from .checks import a_name, checked, seconds_above_zero, seconds_from_zero, some_text, to_misfire, to_overlap
from .replies import ScheduleSettings, Submitted
from .tasks import Submit


def to_every(value: float | timedelta | None) -> float | None:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if value is None:
        return None
    seconds = seconds_above_zero(value, "every")
    if round(seconds * 1000) < EVERY_MIN_MS:
        raise InvalidMessage(f"every must be at least {EVERY_MIN_MS // 1000} s, not {seconds} s")
    return seconds


def to_jitter_s(value: float) -> float:
    seconds = seconds_from_zero(value, "jitter_s")
    if seconds > JITTER_S_LIMIT:
        raise InvalidMessage(f"jitter_s must be at most a day ({JITTER_S_LIMIT:.0f} s), not {seconds}")
    return seconds


def a_template(value: object, _field: str) -> Submit:
    if not isinstance(value, Submit):
        raise InvalidMessage(f"a schedule's task must be a Submit, not {value!r}")
    for name in ("id", "key", "not_before"):
        if getattr(value, name) is not None:
            raise InvalidMessage(
                f"a schedule's task must not have {name}: each fire makes a task of its own, at its own time"
            )
    return value


@attrs.frozen
class SetSchedule(Message[ScheduleSettings]):
    """Make a schedule, or change the one of this name. Every fire submits ``task`` anew.

    ``cron``: five fields, read on the clock of ``zone`` (an IANA name; UTC if it is left out). ``every``: seconds (or
    a timedelta) from now and from then on. ``overlap``: what to do at a fire while a task of the schedule is not
    settled: ``"skip"`` it or ``"queue"`` it. ``misfire``: after an absence, fire once for the ``"latest"`` time that
    was missed, or ``"skip"`` them all; a fire that is less than a minute late was not missed. ``jitter_s``: each fire's
    task starts up to so many seconds later, the same for the same fire.

    The same again changes nothing. A new ``cron``, ``every`` or ``zone`` counts from its next time on and fires
    nothing by itself; a paused schedule stays paused; a disabled one is enabled. Raises `InvalidMessage` for a
    cron text that no date fits.
    """

    name: str = attrs.field(validator=checked(a_name("a schedule's name")))
    cron: str | None = attrs.field(default=None, kw_only=True, validator=checked(some_text))
    every: float | None = attrs.field(default=None, kw_only=True, converter=to_every)
    zone: str | None = attrs.field(default=None, kw_only=True, validator=checked(some_text))
    task: Submit = attrs.field(kw_only=True, validator=checked(a_template))
    overlap: Overlap = attrs.field(default=Overlap.SKIP, kw_only=True, converter=to_overlap)
    misfire: Misfire = attrs.field(default=Misfire.LATEST, kw_only=True, converter=to_misfire)
    jitter_s: float = attrs.field(default=0.0, kw_only=True, converter=to_jitter_s)

    def __attrs_post_init__(self) -> None:
        if (self.cron is None) == (self.every is None):
            raise InvalidMessage("give one of cron and every")
        if self.cron is None:
            if self.zone is not None:
                raise InvalidMessage("zone belongs to cron: an interval is the same in every zone")
            return
        cron_of(self.cron, "UTC" if self.zone is None else self.zone)

    @property
    def every_ms(self) -> int | None:
        """``every`` as integer milliseconds."""
        return None if self.every is None else round(self.every * 1000)

    @property
    def jitter_ms(self) -> int:
        """``jitter_s`` as integer milliseconds."""
        return round(self.jitter_s * 1000)


@attrs.frozen
class PauseSchedule(Message[ScheduleSettings]):
    """Hold a schedule until `ResumeSchedule`. It stays paused over restarts and changes; `RunNow` still works."""

    name: str = attrs.field(validator=checked(a_name("a schedule's name")))


@attrs.frozen
class ResumeSchedule(Message[ScheduleSettings]):
    """End a `PauseSchedule`. What fell due meanwhile follows the schedule's misfire rule, at once."""

    name: str = attrs.field(validator=checked(a_name("a schedule's name")))


@attrs.frozen
class RemoveSchedule(Message[ScheduleSettings]):
    """Take a schedule away. Tasks that it made stay."""

    name: str = attrs.field(validator=checked(a_name("a schedule's name")))


@attrs.frozen
class RunNow(Message[Submitted]):
    """Submit the schedule's task now, besides its times: the next fire stays where it was. The task counts for
    overlap, but this message does not ask whether another one is under way.
    """

    name: str = attrs.field(validator=checked(a_name("a schedule's name")))
