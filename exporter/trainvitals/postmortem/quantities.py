"""Times, durations and amounts as a person reads them."""

from __future__ import annotations

import math
from datetime import datetime, timezone, tzinfo

_UNITS = ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s"))
_TENTHS_BELOW, _MILLISECONDS_BELOW = 10.0, 1.0
_LATEST_TIME = 4e9
_WHOLE_FROM = 100.0
_KIB, _MIB, _GIB = 1024.0, 1024.0**2, 1024.0**3


def write_duration(seconds: float | None) -> str:
    """Write a duration: `12ms`, `3.2s`, `45s`, `12m05s`, `2h04m`, `3d02h`; `?` for None."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return "?"
    if seconds < _TENTHS_BELOW:
        return f"{seconds:.1f}s" if seconds >= _MILLISECONDS_BELOW else f"{1000 * seconds:.0f}ms"
    whole = int(seconds)
    for unit, name, part, part_name in _UNITS:
        if whole >= unit:
            return f"{whole // unit}{name}{whole % unit // part:02d}{part_name}"
    return f"{whole}s"


def write_number(value: float | None) -> str:
    """Write a value with four digits; `-` for None, `NaN` and `inf` as they are."""
    if value is None:
        return "-"
    if math.isnan(value):
        return "NaN"
    return f"{value:.4g}"


def write_rate(value: float) -> str:
    """Write how many a second: `8.25`, `1,302`."""
    return f"{value:,.0f}" if _WHOLE_FROM <= value < _LATEST_TIME else f"{value:.3g}"


def write_bytes(value: float) -> str:
    """Write an amount of memory: `512 KiB`, `1.5 MiB`, `71.2 GiB`."""
    if value < _MIB:
        return f"{value / _KIB:.0f} KiB"
    if value < _GIB:
        return f"{value / _MIB:.1f} MiB"
    return f"{value / _GIB:.1f} GiB"


def read_time(seconds: float | None, zone: tzinfo | None = None) -> datetime | None:
    """Give a Unix time in a time zone, that of the machine when None; None where it makes no sense."""
    if seconds is None or not 0 < seconds < _LATEST_TIME:
        return None
    return datetime.fromtimestamp(seconds, timezone.utc).astimezone(zone)


def write_time(seconds: float | None, zone: tzinfo | None = None) -> str:
    """Write a time in full: `2026-11-21 03:12:07 CET`; `an unknown time` where it makes no sense."""
    when = read_time(seconds, zone)
    return "an unknown time" if when is None else f"{when:%Y-%m-%d %H:%M:%S %Z}"


def write_clock(seconds: float | None, near: float | None, zone: tzinfo | None = None) -> str:
    """Write the time of day, or month, day and minute where the day is not that of `near`."""
    when, other = read_time(seconds, zone), read_time(near, zone)
    if when is None:
        return "?"
    if other is not None and when.date() != other.date():
        return f"{when:%m-%d %H:%M}"
    return f"{when:%H:%M:%S}"


def write_iso(seconds: float | None) -> str | None:
    """Write a time for programs, in UTC: `2026-11-21T02:12:07.250Z`; None where there is none."""
    when = read_time(seconds, timezone.utc)
    if when is None:
        return None
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
