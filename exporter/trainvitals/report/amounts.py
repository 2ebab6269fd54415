"""Figures in words, and moments on the clock of the report."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone

from trainvitals.causes.lines import clean
from trainvitals.postmortem.quantities import write_bytes, write_duration
from trainvitals.report.figures import Price, Report

UNKNOWN = "unknown"
_HOUR, _JOULES_PER_KWH, _JOULES_PER_WH = 3600.0, 3.6e6, 3600.0
_KILO = 1000.0
_TIB, _TIB_FROM = 2.0**40, 10 * 2.0**40
_LONGEST_NAME = 120
LONGEST_SENTENCE = 400


def make_harmless(text: str, most: int = _LONGEST_NAME) -> str:
    """Take out of a text what would move a cursor, ring, break a line or begin code."""
    plain = " ".join(clean((text.replace("\t", " ").replace("\n", " "),)))
    shown = "".join(letter if letter.isprintable() else "?" for letter in plain.replace("`", "'"))
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def tell_unknown(report: Report, why: str) -> str:
    """Say that something is unknown and why, as far as Prometheus could be asked."""
    refused = ", or Prometheus refused to tell: see What Is Not Known" if report.gaps else ""
    return f"{UNKNOWN}: {why}{refused}"


def read_clock(report: Report, moment: float) -> datetime:
    """Give a moment on the clock that the report's days go by."""
    offset = 0.0
    for since, seconds in report.utc_offset_seconds:
        if moment >= since or since == report.utc_offset_seconds[0][0]:
            offset = seconds
    return datetime.fromtimestamp(moment, timezone(timedelta(seconds=offset)))


def write_moment(report: Report, moment: float) -> str:
    """Write a moment: `06:10` on the day of the report, else `Tue 06:10` or `2026-11-20 06:10`."""
    when, first = read_clock(report, moment), read_clock(report, report.begin)
    if moment < report.begin or moment > report.planned_end:
        return f"{when:%Y-%m-%d %H:%M}"
    if report.kind == "daily" and when.date() == first.date():
        return f"{when:%H:%M}"
    return f"{when:%a %H:%M}"


def write_hours(seconds: float | None) -> str:
    """Write hours: `3.5 h`, `0.25 h`, `1,204 h`."""
    if seconds is None:
        return UNKNOWN
    hours = seconds / _HOUR
    if hours >= _KILO:
        return f"{hours:,.0f} h"
    return f"{hours:.1f} h" if hours >= 1 else f"{hours:.2f} h"


def write_ratio(ratio: float | None) -> str:
    """Write a share: `54 %`; `0.4 %` where it is small."""
    if ratio is None:
        return UNKNOWN
    percent = 100 * ratio
    return f"{percent:.1f} %" if 0 < percent < 1 else f"{percent:.0f} %"


def write_size(size: float) -> str:
    """Write an amount of memory or disk: `71.2 GiB`, `63.9 TiB`."""
    return f"{size / _TIB:.1f} TiB" if size >= _TIB_FROM else write_bytes(size)


def write_share(used: float | None, total: float | None) -> str:
    """Write an amount of memory of all that there is."""
    if used is None or not total:
        return UNKNOWN
    return f"{write_size(used)} of {write_size(total)} ({write_ratio(used / total)})"


def write_energy(joules: float | None) -> str:
    """Write energy: `41.7 kWh`, `1.20 MWh`, `120 Wh`."""
    if joules is None:
        return UNKNOWN
    hours = joules / _JOULES_PER_KWH
    if hours >= _KILO:
        return f"{hours / _KILO:.2f} MWh"
    return f"{hours:.1f} kWh" if hours >= 1 else f"{joules / _JOULES_PER_WH:.0f} Wh"


def write_cost(joules: float, price: Price) -> str:
    """Write what energy cost: `12.50 EUR`."""
    return f"{joules / _JOULES_PER_KWH * price.per_kwh:,.2f} {make_harmless(price.currency)}"


def write_value(value: float) -> str:
    """Write a metric with four digits behind the point where it is small."""
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.5g}"  # noqa: PLR2004 - digits of a reading


def write_lasting(seconds: float) -> str:
    """Write how long something took."""
    return write_duration(seconds)


def join(names: Iterable[str], most: int = 12) -> str:
    """Write names in a row, with how many more there are."""
    every = list(names)
    shown = ", ".join(make_harmless(name) for name in every[:most])
    return f"{shown} and {len(every) - most} more" if len(every) > most else shown


def count(number: int, one: str, many: str | None = None) -> str:
    """Write a number and what there is of it."""
    return f"{number} {one if number == 1 else many or one + 's'}"
