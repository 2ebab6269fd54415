"""The period of a report, which is a day or a week in a time zone.

A day lasts from midnight to midnight in the time zone, and a week lasts from Monday to Monday. A
day on which daylight saving time begins or ends has 23 or 25 hours. If `until` is given, the period
is the day or the seven days that end at the time `until`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone, tzinfo
from typing import Literal, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from trainvitals.errors import ConfigurationError
from trainvitals.units import format_minute

Kind = Literal["daily", "weekly"]

_DAYS: dict[Kind, int] = {"daily": 1, "weekly": 7}
_MINUTE = 60
_FIRST_YEAR, _LAST_YEAR = 1971, 9998  # datetime supports all days and weeks of these years
_Date = TypeVar("_Date", bound=date)


@dataclass(frozen=True, slots=True)
class Period:
    """The period of a report.

    Attributes:
        kind: The kind of the period: `daily` or `weekly`.
        begin: The start of the period, in Unix seconds.
        planned_end: The end of the period, in Unix seconds.
        end: The end of the data, in Unix seconds: `planned_end`, or the time of the query if the
            query is earlier.
        zone: The time zone in which days start and end.
    """

    kind: Kind
    begin: int
    planned_end: int
    end: int
    zone: tzinfo

    @property
    def is_over(self) -> bool:
        """Whether the period was over when Prometheus was queried."""
        return self.end >= self.planned_end

    @property
    def seconds(self) -> int:
        """The duration of the part of the period that has passed, in seconds."""
        return self.end - self.begin

    def read_clock(self, moment: float) -> datetime:
        """Convert Unix seconds to a time in the period's zone."""
        return datetime.fromtimestamp(moment, timezone.utc).astimezone(self.zone)

    def step_back(self) -> Period:
        """Return the previous period; if this period is not over, both have the same duration."""
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
    """Return the period that the command-line options select.

    Args:
        kind: The kind of the period: `daily` or `weekly`.
        now: The time of the query, in Unix seconds.
        zone: The time zone in which days start and end.
        day: The day, or any day of the week, such as `2026-11-21`, `today` or `yesterday`; None
            means today.
        until: The end of the period, such as `2026-11-21T14:00` or `now`; None means that the
            period consists of whole days.

    Raises:
        ConfigurationError: A value is not a date or time, `until` is in the future, both options
            are set, or less than one minute of the period has passed.
    """
    if until is not None:
        if day is not None:
            raise ConfigurationError("--date and --until cannot be combined: give one of them")
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
            f"{_show(begin, zone)} is less than a minute ago: give an earlier --date, as yesterday"
        )
    return Period(kind, begin, end, last, zone)


def find_zone(name: str | None) -> tzinfo:
    """Return the time zone with the given name; if the name is None, the machine's time zone.

    Raises:
        ConfigurationError: The time zone is unknown.
    """
    if name is None:
        return _LocalZone()
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigurationError(
            f"--timezone={name}: no such time zone; write it as Europe/Berlin or UTC"
        ) from error


class _LocalZone(tzinfo):
    """The machine's time zone with daylight saving changes, which `timezone` does not support."""

    def utcoffset(self, when: datetime | None) -> timedelta | None:
        return None if when is None else when.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, when: datetime | None) -> timedelta | None:
        return None if when is None else timedelta(0)

    def tzname(self, when: datetime | None) -> str | None:
        return None if when is None else when.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, when: datetime) -> datetime:
        local = when.replace(tzinfo=timezone.utc).astimezone()
        return local.replace(tzinfo=self)


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
        raise ConfigurationError(
            f"--until={text}: this is in the future; write now or an earlier time"
        )
    return int(moment) // _MINUTE * _MINUTE


def _keep_in_reach(when: _Date) -> _Date:
    """Return the given date if datetime supports all days and weeks of its year.

    Raises:
        ValueError: The date's year is not supported.
    """
    if not _FIRST_YEAR <= when.year <= _LAST_YEAR:
        raise ValueError(when.year)
    return when


def _find_midnight(day: date, zone: tzinfo) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp())


def _shift(moment: int, zone: tzinfo, days: int) -> int:
    """Return the same time of day `days` days later, or earlier if `days` is negative."""
    clock = datetime.fromtimestamp(moment, timezone.utc).astimezone(zone)
    return int((clock + timedelta(days=days)).timestamp())


def _show(moment: int, zone: tzinfo) -> str:
    return format_minute(datetime.fromtimestamp(moment, timezone.utc).astimezone(zone))
