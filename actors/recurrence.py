"""Nominal times: the instants at which a schedule means to fire, from its interval or its cron text and zone.

Instants are integer milliseconds UTC. Every answer is a function of the rule and the instant it is given; nothing
here knows what time it is. A rule's instants rise strictly, whatever clocks are changed.

*An interval* (`Every`) is a grid from an anchor: plain arithmetic, so it follows real time.

*A cron text* (`Cron`) has the five fields of Debian's cron, with its names and its ``L``, ``LW`` and ``#``. On the
days on which clocks change it does what Debian's cron does. A text with fixed minutes and hours ("30 2 * * *") fires
exactly once a date: a time that does not exist is taken at the first instant after the gap, one that exists twice at
the first. So two such times inside one gap are one fire. A text whose minute or hour begins with a star follows real
time: it fires at whatever instants the clock shows a matching time, so it leaves a gap out and goes on through an hour
that comes twice.

*The library*: ``cronsim`` reads the text and walks the calendar. Beside ``croniter``, on the days on which clocks
change in Berlin, New York and on Lord Howe Island, it fires fixed times once where croniter fires those of the
repeated hour twice; it refuses "0 0 31 2 *" when it reads it, which croniter calls valid; it is small, typed, and
follows Debian on purpose. What it does with zones is not used: where the clock moves by half an hour (Lord Howe)
it leaves out matching times of texts with a star, as it steps by hours. It walks dates without a zone here, and the
few lines that turn a date's time into instants are ours. `tests/core/test_recurrence.py` holds this against a
minute-by-minute search.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final, Protocol
from zoneinfo import ZoneInfo

import attrs
from cronsim import CronSim, CronSimError

from actors.errors import InvalidMessage

CRON_CHARS_MAX: Final = 200
"""A text for people to read. The longest useful one lists sixty minutes."""
EVERY_MIN_MS: Final = 1_000
"""More often than once a second is no schedule but a loop, and belongs into a handler."""
EVERY_MAX_MS: Final = 10 * 365 * 86_400_000
"""Ten years: a longer interval is a mistake."""
TIME_MAX_MS: Final = 253_370_764_800_000
"""9999-01-01: past it there are no dates to reckon with."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_POSSIBLE_FROM: Final = datetime(2000, 1, 1)
"""From where a text is tried. The calendar repeats after 28 years but for one century in four, and cronsim
looks 50 years ahead."""
_FOLD_MAX: Final = timedelta(hours=3)
"""No clock is set back by more. Once, before 1970, it was two hours."""
_GAP_MAX_MINUTES: Final = 2 * 1_440
"""Samoa left out a whole day in 2011."""


class Rule(Protocol):
    """When a schedule fires."""

    @property
    def steady(self) -> bool:
        """Whether it follows real time: evenly, day and night. If not, its times belong to dates."""

    def after(self, t_ms: int) -> int | None:
        """The first nominal time after ``t_ms``; ``None`` if there is none any more."""

    def latest(self, low_ms: int, t_ms: int) -> int:
        """The last nominal time from ``low_ms`` to ``t_ms``; ``low_ms`` itself if there is none."""

    def count(self, first_ms: int, last_ms: int, limit: int) -> tuple[int, bool]:
        """How many nominal times there are from ``first_ms`` to ``last_ms``, both of which are some, and whether
        they were counted to the end: a cron text's are walked through, at most ``limit`` of them.
        """


@attrs.frozen
class Every:
    """An interval: ``anchor_ms`` and every ``every_ms`` before and after it."""

    every_ms: int
    anchor_ms: int

    @property
    def steady(self) -> bool:
        return True

    def after(self, t_ms: int) -> int | None:
        after = self.anchor_ms + ((t_ms - self.anchor_ms) // self.every_ms + 1) * self.every_ms
        return after if after < TIME_MAX_MS else None

    def latest(self, low_ms: int, t_ms: int) -> int:
        return max(low_ms, t_ms - (t_ms - self.anchor_ms) % self.every_ms)

    def count(self, first_ms: int, last_ms: int, limit: int) -> tuple[int, bool]:  # noqa: ARG002 - it need not walk
        return (last_ms - first_ms) // self.every_ms + 1, True


@attrs.frozen
class Cron:
    """A cron text in a zone. Made by `cron_of`, which has checked both."""

    text: str
    zone: tzinfo
    fixed: bool
    """Whether neither minutes nor hours begin with a star: its times belong to the clock on the wall."""
    steady: bool
    """Whether any hour of any day will do, so that it is as good as an interval."""

    def after(self, t_ms: int) -> int | None:
        if not -TIME_MAX_MS < t_ms < TIME_MAX_MS:
            return None
        try:
            return next((ms for ms in self._instants(t_ms) if ms > t_ms), None)
        except OverflowError:
            return None

    def latest(self, low_ms: int, t_ms: int) -> int:
        """Looks back over spans that double, then halves: it costs a logarithm, however long ago ``low_ms`` is."""
        span = 60_000
        while t_ms - span > low_ms and not self._any(t_ms - span, t_ms):
            span *= 2
        found = self.after(max(low_ms - 1, t_ms - span))
        if found is None or found > t_ms:
            return low_ms
        high = t_ms
        while (following := self.after(found)) is not None and following <= t_ms:
            middle = (found + high) // 2
            beyond = self.after(middle)
            if beyond is not None and beyond <= t_ms:
                found = beyond
            else:
                found, high = following, middle
        return found

    def count(self, first_ms: int, last_ms: int, limit: int) -> tuple[int, bool]:
        counted, at = 1, first_ms
        while at < last_ms:
            if counted == limit:
                return counted, False
            following = self.after(at)
            if following is None:
                break
            counted, at = counted + 1, following
        return counted, True

    def _any(self, low_ms: int, high_ms: int) -> bool:
        found = self.after(low_ms)
        return found is not None and found <= high_ms

    def _instants(self, t_ms: int) -> Iterator[int]:
        """Instants from about ``t_ms`` on; the first that is later than it is the next."""
        wall = (_EPOCH + t_ms * _MS).astimezone(self.zone).replace(tzinfo=None)
        if self.fixed:
            yield from (self._once(local) for local in _walk(self.text, wall))
            return
        back = self._set_back_by(t_ms)
        if back:  # what the clock has shown already it is about to show again
            shown = (local for local in _walk(self.text, wall - back - timedelta(seconds=1)))
            again: list[int] = []
            for local in shown:
                again.extend(self._all(local))
                if local > wall:
                    break
            again.sort()
            yield from again[bisect_left(again, t_ms + 1) :][:1]
        for local in _walk(self.text, wall):
            yield from self._all(local)

    def _set_back_by(self, t_ms: int) -> timedelta:
        """By how much the clock is set back within the next hours."""
        now = _EPOCH + t_ms * _MS
        before, after = (moment.astimezone(self.zone).utcoffset() for moment in (now, now + _FOLD_MAX))
        return max((before or timedelta()) - (after or timedelta()), timedelta())

    def _once(self, local: datetime) -> int:
        """The one instant of a fixed time: the first of two; if there is none, the first after the gap."""
        for _ in range(_GAP_MAX_MINUTES):
            if self._exists(local, 0):
                break
            local += timedelta(minutes=1)
        return self._ms(local, 0)

    def _all(self, local: datetime) -> list[int]:
        """Every instant at which the clock shows ``local``: none in a gap, two where it is set back."""
        return sorted({self._ms(local, fold) for fold in (0, 1) if self._exists(local, fold)})

    def _ms(self, local: datetime, fold: int) -> int:
        return (local.replace(tzinfo=self.zone, fold=fold) - _EPOCH) // _MS

    def _exists(self, local: datetime, fold: int) -> bool:
        aware = local.replace(tzinfo=self.zone, fold=fold)
        return aware.astimezone(UTC).astimezone(self.zone).replace(tzinfo=None) == local


def _walk(text: str, after: datetime) -> Iterator[datetime]:
    """The matching local times after ``after``, without a zone."""
    return iter(CronSim(text, after))


@lru_cache(maxsize=1_024)
def cron_of(text: str, zone: str) -> Cron:
    """The rule that a cron text and the name of a zone say. Raises `InvalidMessage` for a text that is none or can
    never fire, and for an unknown zone.
    """
    if not isinstance(text, str) or not isinstance(zone, str):
        raise InvalidMessage(f"cron and zone must be strings, not {text!r} and {zone!r}")
    if len(text) > CRON_CHARS_MAX:
        raise InvalidMessage(f"cron has {len(text)} characters, more than the {CRON_CHARS_MAX} allowed")
    fields = text.split()
    if len(fields) != 5:
        raise InvalidMessage(
            f"cron {text!r} must have five fields: minute, hour, day of month, month, day of week"
        )
    try:
        next(_walk(text, _POSSIBLE_FROM))
    except (CronSimError, ValueError, AssertionError, TypeError) as error:
        raise InvalidMessage(f"cron {text!r} is not valid, or no date ever fits it: {error}") from None
    except (StopIteration, OverflowError):
        raise InvalidMessage(f"cron {text!r} can never fire: no date ever fits it") from None
    minute, hour, *days = fields
    return Cron(
        text,
        zone_of(zone),
        fixed=not minute.startswith("*") and not hour.startswith("*"),
        steady=hour.startswith("*") and days == ["*", "*", "*"],
    )


@lru_cache(maxsize=256)
def zone_of(name: str) -> tzinfo:
    """The zone of an IANA name; raises `InvalidMessage`. ``UTC`` needs no database of zones."""
    if name == "UTC":
        return UTC
    if re.fullmatch(r"[A-Za-z0-9_+\-]{1,32}(/[A-Za-z0-9_+\-]{1,32}){0,3}", name) is not None:
        try:
            return ZoneInfo(name)
        except (LookupError, ValueError, OSError):
            pass
    raise InvalidMessage(
        f'zone {name[:100]!r} is unknown: give the IANA name of a time zone, as "Europe/Berlin"'
    )
