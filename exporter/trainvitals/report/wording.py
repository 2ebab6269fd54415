"""The elements of a report that all formats (text, Markdown, HTML) share, and recurring phrases.

This module removes unsafe characters from names that the exporter does not control. Each output
format then applies its own escaping. Backticks mark code in every format, so backticks in names are
replaced by apostrophes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Literal

from trainvitals.foreign_numbers import LATEST_TIME
from trainvitals.foreign_text import clean_text, name_rest
from trainvitals.foreign_text import join_names as join_with_count
from trainvitals.report.figures import Price, Report
from trainvitals.report.training import Attempt, Best, Figure, Incident
from trainvitals.units import (
    format_bytes,
    format_bytes_of,
    format_duration,
    format_minute,
    format_percent,
    format_value,
)

Chart = Literal["uses", "busy", "energy", "heat", "metrics", "expected"]

UNKNOWN = "unknown"
FIGURES: Mapping[Figure, tuple[str, Callable[[float | None], str]]] = {
    "pace": ("Epochs per hour", format_value),
    "memory": ("Memory of the fullest accelerator", format_bytes),
}
"""The name of each expected figure of a run, and a function that formats the figure's values."""
_JOULES_PER_KWH = 3.6e6
_LONGEST_NAME, _LONGEST_SENTENCE = 120, 400
_MOST_LINES = 10


@dataclass(frozen=True, slots=True)
class Point:
    """A labelled line of a report.

    Attributes:
        label: The label of the line; an empty string if the line has no label.
        value: The text of the line after the label.
        more: The lines below the first line.
    """

    label: str
    value: str
    more: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a report.

    Attributes:
        head: The headings of the columns.
        rows: The cells of each row.
        numbers: The indices of the numeric columns; the first column is 0.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report.

    Attributes:
        title: The section's heading.
        pieces: The section's lines and tables.
        charts: The section's charts, which only the HTML format shows.
    """

    title: str
    pieces: tuple[Point | Table, ...]
    charts: tuple[Chart, ...] = ()


def clean_name(text: str) -> str:
    """Return a name from an untrusted source in a form that is safe to show."""
    return clean_text(text, most=_LONGEST_NAME).replace("`", "'")


def clean_sentence(text: str) -> str:
    """Return a sentence from an untrusted source in a form that is safe to show."""
    return clean_text(text, most=_LONGEST_SENTENCE).replace("`", "'")


def join_names(names: Iterable[str], most: int = 12) -> str:
    """Return a text with up to `most` names, separated by commas, and the number of other names."""
    return join_with_count([clean_name(name) for name in names], most=most)


def limit(lines: Iterable[str], most: int = _MOST_LINES) -> tuple[str, ...]:
    """Return the first lines, followed by a line with the number of omitted lines."""
    every = tuple(lines)
    rest = name_rest(len(every) - most, ", see below")
    return (*every[:most], rest) if rest else every


def explain_unknown(report: Report, why: str) -> str:
    """Return the text for an unknown figure, with the possible reasons."""
    refused = ", or Prometheus refused the query: see What Is Not Known" if report.gaps else ""
    return f"{UNKNOWN}: {why}{refused}"


def explain_no_client(report: Report) -> str:
    """Return the text for unknown runs, which states that no exporter reports runs."""
    return explain_unknown(report, "no exporter reports runs (collector training)")


def format_known(write: Callable[[float], str], value: float | None) -> str:
    """Return a value as text, or `unknown` if the value is None."""
    return UNKNOWN if value is None else write(value)


def format_share(used: float | None, total: float | None) -> str:
    """Return a text with the used part of a total, such as `120 / 240 GiB (50%)`."""
    if used is None or not total:
        return UNKNOWN
    return f"{format_bytes_of(used, total)} ({format_percent(used / total)})"


def format_cost(joules: float, price: Price) -> str:
    """Return the cost of an amount of energy as text, such as `12.50 EUR`."""
    return f"{joules / _JOULES_PER_KWH * price.per_kwh:,.2f} {clean_name(price.currency)}"


def read_clock(report: Report, moment: float) -> datetime:
    """Convert Unix seconds to a time in the report's time zone.

    A time before 1970 or after the latest supported year becomes the nearest supported time.
    """
    moment = min(max(0.0, moment), LATEST_TIME)
    offset = 0.0
    for since, seconds in report.utc_offset_seconds:
        if moment >= since or since == report.utc_offset_seconds[0][0]:
            offset = seconds
    return datetime.fromtimestamp(moment, timezone(timedelta(seconds=offset)))


def format_moment(report: Report, moment: float) -> str:
    """Format a time as `06:10` on the report's day, else as `Tue 06:10` or `2026-11-20 06:10`."""
    when, first = read_clock(report, moment), read_clock(report, report.begin)
    if moment < report.begin or moment > report.planned_end:
        return format_minute(when)
    if report.kind == "daily" and when.date() == first.date():
        return f"{when:%H:%M}"
    return f"{when:%a %H:%M}"


def describe_outcome(attempt: Attempt) -> str:
    """Return a text that describes how a start ended, with the exit code if it is not 0."""
    code = f" (exit code {attempt.exit_code})" if attempt.exit_code else ""
    return f"{attempt.outcome}{code}"


def name_metric(name: str, split: str) -> str:
    """Return the name of a metric with its split, such as `loss (validation)`."""
    return f"{clean_name(name)} ({clean_name(split)})" if split else clean_name(name)


def describe_best(best: Best) -> str:
    """Return a text with a best value and its metric, run, machine and target."""
    where = f"{clean_name(best.run)} on {clean_name(best.instance)}"
    value = f"{format_value(best.value)}, {name_metric(best.name, best.split)} of {where}"
    if best.target is None:
        return value
    return (
        f"{value}; the target {best.target:g} is {'reached' if best.is_reached else 'not reached'}"
    )


def describe_incident(report: Report, incident: Incident) -> str:
    """Return a line about an incident: severity, alert, subject, verdict, times and resolution."""
    verdict = f": {clean_sentence(incident.verdict)}" if incident.verdict else ""
    return (
        f"{incident.severity or 'alert'} {name_incident(incident)}{verdict}; "
        f"{describe_spans(report, incident)}; {incident.resolution}"
    )


def name_incident(incident: Incident) -> str:
    """Return a text with the alert name, machine and subject of an incident."""
    parts = (incident.alert, incident.instance, incident.subject)
    return " ".join(clean_name(part) for part in parts if part)


def describe_spans(report: Report, incident: Incident) -> str:
    """Return a text that states when and for how long an incident's alert fired."""
    begin, end = incident.spans[-1]
    until = "" if incident.is_firing else f" until {format_moment(report, end)}"
    last = f"{'since' if incident.is_firing else 'from'} {format_moment(report, begin)}{until}"
    # The archive has at most one point a minute; a span with one point has no duration.
    lasting = format_duration(incident.seconds) if incident.seconds else "under a minute"
    if len(incident.spans) == 1:
        return f"{last} ({lasting})"
    return f"{len(incident.spans)} times, {lasting} in all, last {last}"
