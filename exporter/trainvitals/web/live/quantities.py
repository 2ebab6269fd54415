"""Amounts, shares and times as the live page writes them: short, and of a width that hardly changes.

None is always written as a dash.
"""

from __future__ import annotations

import math
import time

from trainvitals.web.live.markup import THIN

UNKNOWN = '<span class="none">\N{EN DASH}</span>'

_KIB = 1024.0
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_RATE_UNITS = ("B/s", "kB/s", "MB/s", "GB/s", "TB/s")
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_TENTHS_BELOW, _WHOLE_FROM, _THOUSAND = 10.0, 100.0, 1000.0
_LEAST_PLAIN = 1e-3
_MOST_OF_A_UNIT = 2000.0  # 0.3 of 1.0 TiB would be too coarse


def percent(ratio: float | None) -> str:
    """Write a ratio as a percentage: `97 %`."""
    return UNKNOWN if ratio is None else f"{100 * ratio:.0f}{THIN}%"


def amount(value: float | None, unit: str) -> str:
    """Write a value without decimals, and its unit: `66 °C`."""
    return UNKNOWN if value is None else f"{value:,.0f}{THIN}{unit}"


def bytes_of(used: float | None, total: float | None) -> str:
    """Write what is used of what there is, in the unit of the larger: `66.0 / 80.0 GiB`."""
    if not total:
        return size(used)
    scale, unit = _choose(total, _KIB, _BYTE_UNITS, most=_MOST_OF_A_UNIT)
    part = UNKNOWN if used is None else _digits(used / scale)
    return f"{part}<small> / {_digits(total / scale)}{THIN}{unit}</small>"


def size(value: float | None) -> str:
    """Write an amount of memory or storage: `512 MiB`."""
    if value is None:
        return UNKNOWN
    scale, unit = _choose(value, _KIB, _BYTE_UNITS)
    return f"{_digits(value / scale)}{THIN}{unit}"


def flow(value: float | None) -> str:
    """Write bytes a second: `1.3 GB/s`."""
    if value is None:
        return UNKNOWN
    scale, unit = _choose(value, _THOUSAND, _RATE_UNITS)
    return f"{_digits(value / scale)}{THIN}{unit}"


def rate(value: float | None) -> str:
    """Write how many a second: `8.05`, `1,302`; empty for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= _WHOLE_FROM else f"{value:.3g}"


def number(value: float | None) -> str:
    """Write a loss or metric with four digits; NaN and infinities as they are."""
    if value is None:
        return UNKNOWN
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "\N{INFINITY}" if value > 0 else "\N{MINUS SIGN}\N{INFINITY}"
    if value and abs(value) < _LEAST_PLAIN:
        return f"{value:.2e}"
    return f"{value:#.4g}".rstrip(".")


def whole(value: float) -> str:
    """Write a count: `30,990`."""
    return f"{value:,.0f}"


def duration(seconds: float | None) -> str:
    """Write how long: `12 ms`, `3.2 s`, `45 s`, `12 min`, `2 h 04 min`, `3 d 2 h`."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    seconds = max(0.0, seconds)
    if seconds < _MINUTE:
        return _short(seconds)
    if seconds < _HOUR:
        return f"{seconds // _MINUTE:.0f}{THIN}min"
    if seconds < _DAY:
        return f"{seconds // _HOUR:.0f}{THIN}h {seconds % _HOUR // _MINUTE:02.0f}{THIN}min"
    return f"{seconds // _DAY:,.0f}{THIN}d {seconds % _DAY // _HOUR:.0f}{THIN}h"


def ago(then: float | None, now: float) -> str:
    """Write how long ago something was: `3 min ago`."""
    return UNKNOWN if then is None else f"{duration(now - then)} ago"


def moment(seconds: float) -> str:
    """Write a time of day by the machine's clock, as HTML that a program can read too."""
    here, there = time.localtime(seconds), time.gmtime(seconds)
    iso = time.strftime("%Y-%m-%dT%H:%M:%SZ", there)
    return f'<time datetime="{iso}">{time.strftime("%H:%M:%S %Z", here)}</time>'


def _short(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.0f}{THIN}ms"
    return f"{seconds:.1f}{THIN}s" if seconds < _TENTHS_BELOW else f"{seconds:.0f}{THIN}s"


def _choose(
    value: float, base: float, units: tuple[str, ...], *, most: float = _THOUSAND
) -> tuple[float, str]:
    scale, at = 1.0, 0
    while abs(value) >= most * scale and at < len(units) - 1:
        scale *= base
        at += 1
    return scale, units[at]


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= _WHOLE_FROM else f"{value:.1f}"
