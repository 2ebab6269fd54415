"""The order of a report's sections: the head, the template's sections, then the details."""

from __future__ import annotations

from trainvitals.foreign_text import name_rest
from trainvitals.report.daily import compose_day
from trainvitals.report.details import list_details
from trainvitals.report.figures import Report
from trainvitals.report.weekly import compose_week
from trainvitals.report.wording import (
    UNKNOWN,
    Point,
    Section,
    clean_name,
    format_moment,
    join_names,
    read_clock,
)
from trainvitals.units import count_noun, format_date, format_minute, format_percent

_MOST_HOLES = 5


def write_title(report: Report) -> str:
    """Return the title of a daily or weekly report."""
    return {
        "daily": "trainvitals Daily Monitoring Report",
        "weekly": "trainvitals Weekly Performance Report",
    }[report.kind]


def compose_head(report: Report) -> tuple[Point, ...]:
    """Return the head: lines about the period, the machines, and the limits of the data."""
    begin, end = read_clock(report, report.begin), read_clock(report, report.planned_end)
    zone = clean_name(report.zone)
    if report.kind == "daily" and (begin.hour, begin.minute) == (0, 0):
        date = f"{format_date(begin)}, {begin:%A}, {zone}"
    else:
        date = f"{format_minute(begin)} to {format_minute(end)}, {zone}"
    hosts = report.hosts
    named = join_names(hosts.environments) or f"{UNKNOWN} (no target has a label environment)"
    machines = f"{count_noun(len(hosts.names), 'machine')} ({join_names(hosts.names)})"
    devices = count_noun(report.accelerators.count, "accelerator")
    return (
        Point("Date", date),
        Point("Environment", f"{named}; {machines}, {devices}"),
        *_list_limits(report),
    )


def _list_limits(report: Report) -> tuple[Point, ...]:
    points = []
    if report.instances:
        points.append(Point("Only", f"machines {join_names(report.instances)}"))
    if report.only_runs:
        runs = join_names(report.only_runs)
        points.append(Point("Only", f"runs {runs}; hardware is that of their machines"))
    if report.end < report.planned_end:
        points.append(
            Point("So far", f"until {format_moment(report, report.end)}; the period is not over")
        )
    if report.coverage.holes:
        holes = ", ".join(
            f"{format_moment(report, begin)} to {format_moment(report, end)}"
            for begin, end in report.coverage.holes[:_MOST_HOLES]
        )
        rest = name_rest(len(report.coverage.holes) - _MOST_HOLES)
        covered = format_percent(report.coverage.seconds / (report.end - report.begin))
        points.append(Point("Data", f"{covered} of the time; none from {holes} {rest}".rstrip()))
    return tuple(points)


def compose_template(report: Report) -> tuple[Section, ...]:
    """Return the sections of the daily or weekly template."""
    return compose_day(report) if report.kind == "daily" else compose_week(report)


def compose(report: Report) -> tuple[Section, ...]:
    """Return all sections of a report, in the order in which they appear."""
    return (*compose_template(report), *list_details(report))
