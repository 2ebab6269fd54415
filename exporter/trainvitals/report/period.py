"""Which day or week a report is about, in which time zone.

A day goes from midnight to midnight and a week from Monday to Monday, on the clock of the time
zone; where the clock is put forward or back such a day has 23 or 25 hours. With `until` a period is
the day or the seven days that end at that moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone, tzinfo
from typing import Literal, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from trainvitals.errors import ConfigurationError

Kind = Literal["daily", "weekly"]

_DAYS: dict[Kind, int] = {"daily": 1, "weekly": 7}
_MINUTE = 60
_FIRST_YEAR, _LAST_YEAR = 1971, 9998  # whose days and weeks every clock can show
_Date = TypeVar("_Date", bound=date)


@dataclass(frozen=True, slots=True)
class Period:
    """The time that a report is about.

    Attributes:
        kind: `daily` or `weekly`.
        begin: Its first moment, seconds since 1970.
        planned_end: When it is over.
        end: What is known ends here: `planned_end`, or the moment of asking where that is earlier.
        zone: The time zone in which its days begin.
    """

    kind: Kind
    begin: int
    planned_end: int
    end: int
    zone: tzinfo

    @property
    def is_over(self) -> bool:
        """Whether all of it has passed."""
        return self.end >= self.planned_end

    @property
    def seconds(self) -> int:
        """How much of it has passed."""
        return self.end - self.begin

    def read_clock(self, moment: float) -> datetime:
        """Give a moment on the clock of its time zone."""
        return datetime.fromtimestamp(moment, timezone.utc).astimezone(self.zone)

    def step_back(self) -> Period:
        """Give the period of as many days before it, cut off at the same time of its day or week."""
        begin = _shift(self.begin, self.zone, -_DAYS[self.kind])
        end = min(begin + self.seconds, self.begin) if not self.is_over else self.begin
        return Period(self.kind, begin, self.begin, end, self.zone)


def choose_period(
    kind: Kind,
    *,
    now: float,
    zone: tzinfo,
    day: str | None = None,
    until: str | None = None,
) -> Period:
    """Find the period that somebody means.

    Args:
        kind: `daily` or `weekly`.
        now: The moment of asking, seconds since 1970.
        zone: The time zone.
        day: The day, or a day of the week, as `2026-11-21`, `today` or `yesterday`; today when None.
        until: Its end, as `2026-11-21T14:00` or `now`; None for whole days.

    Raises:
        ConfigurationError: It is no date or time, both are given, or it has not begun.
    """
    if until is not None:
        if day is not None:
            raise ConfigurationError("--date and --until: give one of them")
        end = _read_until(until, now, zone)
        begin = _shift(end, zone, -_DAYS[kind])
    else:
        first = _read_day(day or "today", now, zone)
        if kind == "weekly":
            first -= timedelta(days=first.weekday())
        begin = _find_midnight(first, zone)
        end = _find_midnight(first + timedelta(days=_DAYS[kind]), zone)
    last = min(end, int(now) // _MINUTE * _MINUTE)
    if last - begin < _MINUTE:
        raise ConfigurationError(
            f"{_show(begin, zone)} is no minute ago: give an earlier --date, as yesterday"
        )
    return Period(kind, begin, end, last, zone)


def find_zone(name: str | None) -> tzinfo:
    """Give a time zone by its name; the machine's when None.

    Raises:
        ConfigurationError: Nobody knows it.
    """
    if name is None:
        return _find_local_zone()
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigurationError(
            f"--timezone={name}: no such time zone; write it as Europe/Berlin or UTC"
        ) from error


class _LocalZone(tzinfo):
    """The machine's zone, which knows when its clock is put forward and back."""

    def utcoffset(self, when: datetime | None) -> timedelta | None:
        return None if when is None else when.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, when: datetime | None) -> timedelta | None:
        return None if when is None else timedelta(0)

    def tzname(self, when: datetime | None) -> str | None:
        return None if when is None else when.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, when: datetime) -> datetime:
        local = when.replace(tzinfo=timezone.utc).astimezone()
        return local.replace(tzinfo=self)


def _find_local_zone() -> tzinfo:
    return _LocalZone()


def _read_day(text: str, now: float, zone: tzinfo) -> date:
    today = datetime.fromtimestamp(now, timezone.utc).astimezone(zone).date()
    named = {"today": today, "yesterday": today - timedelta(days=1)}
    if text in named:
        return named[text]
    try:
        return _keep_in_reach(date.fromisoformat(text))
    except ValueError as error:
        raise ConfigurationError(
            f"--date={text}: write a day as 2026-11-21, today or yesterday"
        ) from error


def _read_until(text: str, now: float, zone: tzinfo) -> int:
    if text == "now":
        return int(now) // _MINUTE * _MINUTE
    try:
        when = _keep_in_reach(datetime.fromisoformat(text))
    except ValueError as error:
        raise ConfigurationError(
            f"--until={text}: write a time as 2026-11-21T14:00, or now"
        ) from error
    moment = (when if when.tzinfo is not None else when.replace(tzinfo=zone)).timestamp()
    if moment > now:
        raise ConfigurationError(f"--until={text}: that has not come yet; write now or earlier")
    return int(moment) // _MINUTE * _MINUTE


def _keep_in_reach(when: _Date) -> _Date:
    """Give it back.

    Raises:
        ValueError: Its year is one that no clock counts to.
    """
    if not _FIRST_YEAR <= when.year <= _LAST_YEAR:
        raise ValueError(when.year)
    return when


def _find_midnight(day: date, zone: tzinfo) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp())


def _shift(moment: int, zone: tzinfo, days: int) -> int:
    """Give the same time of day some days earlier or later."""
    clock = datetime.fromtimestamp(moment, timezone.utc).astimezone(zone)
    return int((clock + timedelta(days=days)).timestamp())


def _show(moment: int, zone: tzinfo) -> str:
    when = datetime.fromtimestamp(moment, timezone.utc).astimezone(zone)
    return when.strftime("%Y-%m-%d %H:%M")
