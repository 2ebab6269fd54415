"""Formats quantities, durations and times; each quantity has the same format in all output.

============== ============================ ========================================================
quantity       format                       rule
============== ============================ ========================================================
bytes          `512 MiB`, `71.2 GiB`        powers of 1024; one decimal below 100; TiB from 10 TiB
bytes a second `1.3 GB/s`                   powers of 1000, as network and disk vendors count
share          `97%`, `0.4%`                one decimal between 0 and 1 %
duration       `12ms`, `3.2s`, `3s`, `45s`, at most two of Prometheus' humanizeDuration units
               `12m 5s`, `2h 4m`, `3d 2h`
temperature    `84 °C`, `84 / 89 °C`        followed by the limit where the limit is shown
power          `512 W`, `512 / 700 W`
energy         `120 Wh`, `41.7 kWh`
count          `30,990`                     exact
rate           `8.05`, `1,302`              three significant digits below 100
value          `0.4213`, `1.2e-05`, `NaN`   four significant digits; for a loss or another metric
time           `2026-11-21 03:12:07 CET`    the machine's time zone, unless another is specified
minute, date   `2026-11-21 03:12`           in the time zone of the report
stamp          `20261121T021207Z`           in file names
============== ============================ ========================================================

An unknown amount is written as `-`, the constant `UNKNOWN`. This module imports nothing outside the
standard library and this package, because the training client and every command import it.
"""

from __future__ import annotations

import math
from datetime import datetime, timezone, tzinfo
from typing import TYPE_CHECKING

from trainvitals import foreign_numbers

if TYPE_CHECKING:
    from typing import TypeGuard

UNKNOWN = "-"

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_RATE_UNITS = ("B/s", "kB/s", "MB/s", "GB/s", "TB/s")
_LARGEST_GIB = 10 * 1024  # memory sizes are compared in GiB: 2015 GiB, not 2.0 TiB
_ONE_DECIMAL_BELOW = 99.95
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_SHORTEST_SECONDS = 0.0005
_LONGEST_MILLISECONDS = 0.9995
_SECONDS_WITH_DECIMAL = 9.95
_JOULES_PER_WH = 3600.0


def format_bytes(size_bytes: float | None) -> str:
    """Return an amount of memory or storage as text: `512 MiB`, `71.2 GiB`."""
    if not _is_finite(size_bytes):
        return UNKNOWN
    scale, unit = _choose_byte_unit(size_bytes)
    return f"{_format_scaled(size_bytes / scale, unit)} {unit}"


def format_bytes_of(used_bytes: float | None, total_bytes: float | None) -> str:
    """Return a used and a total amount, in the unit of the total: `66.0 / 79.6 GiB`.

    If the used amount is unknown, the result is `- / 79.6 GiB`. If the total is unknown, the result
    contains only the used amount.
    """
    if not _is_finite(total_bytes) or total_bytes <= 0:
        return format_bytes(used_bytes)
    scale, unit = _choose_byte_unit(total_bytes)
    total = _format_scaled(total_bytes / scale, unit)
    used = _format_scaled(used_bytes / scale, unit) if _is_finite(used_bytes) else UNKNOWN
    return f"{used} / {total} {unit}"


def format_byte_rate(bytes_per_second: float | None) -> str:
    """Return a number of bytes per second as text: `1.3 GB/s`."""
    if not _is_finite(bytes_per_second):
        return UNKNOWN
    scale, at = 1.0, 0
    while abs(bytes_per_second) >= 999.5 * scale and at < len(_RATE_UNITS) - 1:
        scale *= 1000.0
        at += 1
    unit = _RATE_UNITS[at]
    return f"{_format_scaled(bytes_per_second / scale, unit)} {unit}"


def format_percent(ratio: float | None) -> str:
    """Return a ratio (0 to 1) as a percentage: `97%`, or below 1 %, with one decimal, `0.4%`."""
    if not _is_finite(ratio):
        return UNKNOWN
    percent = 100 * ratio
    return f"{percent:.1f}%" if 0 < abs(percent) < 0.95 else f"{percent:.0f}%"  # noqa: PLR2004


def format_limited(value: float | None, limit: float | None, unit: str) -> str:
    """Return a value and its limit with the unit: `63 / 87 °C`; without a limit, `63 °C`."""
    if not _is_finite(value):
        return UNKNOWN
    return (
        f"{value:,.0f} {unit}" if not _is_finite(limit) else f"{value:,.0f} / {limit:,.0f} {unit}"
    )


def format_temperature(celsius: float | None) -> str:
    """Return a temperature or a temperature difference as text: `84 °C`."""
    return format_limited(celsius, None, "°C")


def format_power(watts: float | None) -> str:
    """Return an electric power as text: `512 W`, `1,204 W`."""
    return format_limited(watts, None, "W")


def format_duration(seconds: float | None) -> str:
    """Return a duration as text: `12ms`, `3.2s`, `45s`, `12m 5s`, `2h 4m`, `3d 2h`.

    The result is `0s` for a duration below half a millisecond. It is also `0s` for a negative
    duration, which occurs after a change of the system clock.
    """
    if not _is_finite(seconds):
        return UNKNOWN
    seconds = max(0.0, seconds)
    if seconds < _SECONDS_WITH_DECIMAL:
        return _format_short(seconds)
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return _join(whole // _MINUTE, "m", whole % _MINUTE, "s")
    if whole < _DAY:
        return _join(whole // _HOUR, "h", whole % _HOUR // _MINUTE, "m")
    return _join(whole // _DAY, "d", whole % _DAY // _HOUR, "h")


def _format_short(seconds: float) -> str:
    if seconds < _SHORTEST_SECONDS:
        return "0s"
    if seconds < _LONGEST_MILLISECONDS:
        return f"{1000 * seconds:.0f}ms"
    return f"{seconds:.1f}".removesuffix(".0") + "s"


def format_age(time: float | None, now: float) -> str:
    """Return the age of a Unix time as text: `3m 5s ago`."""
    return UNKNOWN if not _is_finite(time) else f"{format_duration(now - time)} ago"


def format_hours(seconds: float | None) -> str:
    """Return an accelerator time in hours as text: `0.25 h`, `3.5 h`, `1,204 h`."""
    if not _is_finite(seconds):
        return UNKNOWN
    hours = seconds / _HOUR
    if hours >= 1000:  # noqa: PLR2004
        return f"{hours:,.0f} h"
    return f"{hours:.1f} h" if hours >= 1 else f"{hours:.2f} h"


def format_energy(joules: float | None) -> str:
    """Return an amount of energy as text: `120 Wh`, `41.7 kWh`, `1.20 MWh`."""
    if not _is_finite(joules):
        return UNKNOWN
    hours = joules / _JOULES_PER_WH
    if hours >= 1e6:  # noqa: PLR2004
        return f"{hours / 1e6:.2f} MWh"
    return f"{hours / 1e3:.1f} kWh" if hours >= 1e3 else f"{hours:.0f} Wh"  # noqa: PLR2004


def format_count(count: float | None) -> str:
    """Return a whole number with thousands separators: `30,990`."""
    return UNKNOWN if not _is_finite(count) else f"{count:,.0f}"


def format_rate(per_second: float | None) -> str:
    """Return a rate per second as text, without the unit: `8.05`, `1,302`."""
    if not _is_finite(per_second):
        return UNKNOWN
    is_large = abs(per_second) >= _ONE_DECIMAL_BELOW
    return f"{per_second:,.0f}" if is_large else f"{per_second:.3g}"


def format_value(value: float | None) -> str:
    """Return a metric such as a loss with four significant digits, or `NaN`, `inf`, `-inf`."""
    if value is None:
        return UNKNOWN
    if math.isnan(value):
        return "NaN"
    return f"{value:.4g}"


def format_time(time: float | None, zone: tzinfo | None = None) -> str:
    """Return a Unix time as date, time and time zone: `2026-11-21 03:12:07 CET`.

    Args:
        time: Seconds since 1970.
        zone: The time zone; None for the machine's time zone.
    """
    when = read_time(time, zone)
    return UNKNOWN if when is None else f"{when:%Y-%m-%d %H:%M:%S %Z}"


def format_clock(
    time: float | None, near: float | None, zone: tzinfo | None = None, *, is_exact: bool = False
) -> str:
    """Return a time of day, `03:12:07`, or `11-20 03:12` if the date differs from that of `near`.

    Args:
        time: Seconds since 1970.
        near: A time whose date the reader knows; None to omit the date in any case.
        zone: The time zone; None for the machine's time zone.
        is_exact: Whether to add milliseconds, which show the order of events: `03:12:07.250`.
    """
    when, other = read_time(time, zone), read_time(near, zone)
    if when is None:
        return UNKNOWN
    if other is not None and when.date() != other.date():
        return f"{when:%m-%d %H:%M}"
    return f"{when:%H:%M:%S}{_format_milliseconds(when) if is_exact else ''}"


def format_date(when: datetime) -> str:
    """Return a date as text: `2026-11-21`."""
    return f"{when:%Y-%m-%d}"


def format_minute(when: datetime) -> str:
    """Return a date and a time of day as text: `2026-11-21 03:12`."""
    return f"{when:%Y-%m-%d %H:%M}"


def format_iso(time: float | None, *, timespec: str = "milliseconds") -> str | None:
    """Return a Unix time in ISO 8601: `2026-11-21T02:12:07.250Z`; None if the time is unknown.

    Args:
        time: Seconds since 1970.
        timespec: The precision, as the argument of `datetime.isoformat`.
    """
    when = read_time(time, timezone.utc)
    return None if when is None else when.isoformat(timespec=timespec).replace("+00:00", "Z")


def format_local_iso(time: float, zone: tzinfo | None = None) -> str:
    """Return a Unix time with the time zone's UTC offset: `2026-11-21T03:12:07.250+01:00`.

    Raises:
        OverflowError, OSError, ValueError: The time is outside the range that `datetime` supports.
    """
    return (
        datetime.fromtimestamp(time, timezone.utc)
        .astimezone(zone)
        .isoformat(timespec="milliseconds")
    )


def format_stamp(time: float, zone: tzinfo | None = timezone.utc, *, is_exact: bool = False) -> str:
    """Return a Unix time in the format of file names: `20261121T021207Z`.

    Args:
        time: Seconds since 1970.
        zone: The time zone; None for the machine's time zone, which is written without `Z`.
        is_exact: Whether to add milliseconds: `20261121T021207.250Z`.
    """
    when = datetime.fromtimestamp(time, timezone.utc).astimezone(zone)
    exact = _format_milliseconds(when) if is_exact else ""
    return f"{when:%Y%m%dT%H%M%S}{exact}{'' if zone is None else 'Z'}"


def _format_milliseconds(when: datetime) -> str:
    return f".{when.microsecond // 1000:03d}"


def read_time(time: float | None, zone: tzinfo | None = None) -> datetime | None:
    """Return a Unix time as a `datetime` in a time zone; None if the time is unknown or invalid."""
    known = foreign_numbers.read_time(time)
    return None if known is None else datetime.fromtimestamp(known, timezone.utc).astimezone(zone)


def count_noun(count: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: `1 run`, `3 runs`, `2 processes`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {plural or (f'{noun}es' if noun.endswith('s') else f'{noun}s')}"


def _is_finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def _choose_byte_unit(size_bytes: float) -> tuple[float, str]:
    scale = 1.0
    for unit in _BYTE_UNITS[:-1]:
        most = _LARGEST_GIB if unit == "GiB" else 999.5
        if abs(size_bytes) < most * scale:
            return scale, unit
        scale *= 1024.0
    return scale, _BYTE_UNITS[-1]


def _format_scaled(value: float, unit: str) -> str:
    if unit in {"B", "B/s"} or abs(value) >= _ONE_DECIMAL_BELOW:
        return f"{value:.0f}"
    return f"{value:.1f}"


def _join(large: int, large_unit: str, small: int, small_unit: str) -> str:
    rest = f" {small}{small_unit}" if small else ""
    return f"{large}{large_unit}{rest}"
