"""The sections of the weekly template."""

from __future__ import annotations

from trainvitals.report.daily import (
    choose_attempts,
    compare,
    describe_training_time,
    list_health,
    list_next,
)
from trainvitals.report.details import describe_busy, describe_energy
from trainvitals.report.figures import Report
from trainvitals.report.training import choose_best
from trainvitals.report.wording import (
    UNKNOWN,
    Point,
    Section,
    describe_best,
    describe_incident,
    explain_no_client,
    explain_unknown,
    limit,
    read_clock,
)
from trainvitals.units import (
    format_count,
    format_hours,
    format_percent,
)

_MOST_METRICS = 6


def compose_week(report: Report) -> tuple[Section, ...]:
    """Return the sections of the weekly template."""
    return (
        Section("Training Efficiency", _list_efficiency(report)),
        Section("Model Performance", (_list_models(report),)),
        Section("System Utilization", _list_utilization(report)),
        Section("Issues Resolved", _list_resolved(report)),
        Section("Improvements", _list_improvements(report)),
        list_next(report),
        list_health(report),
    )


def _list_efficiency(report: Report) -> tuple[Point, ...]:
    runs = report.runs
    if not runs.is_told:
        return (Point("Experiments completed", explain_no_client(report)),)
    lost = explain_unknown(report, "no run was seen from its start")
    if runs.lost_seconds is not None:
        lost = f"{format_hours(runs.lost_seconds)} of work, {runs.lost_steps or 0:,.0f} steps"
    active = len(choose_attempts(runs.attempts, "active")) + len(runs.observed)
    return (
        Point("Experiments completed", format_count(runs.completed)),
        Point("Failed", format_count(runs.failed)),
        Point("Active at the end", format_count(active)),
        Point("Average Training Time", describe_training_time(report)),
        Point("Lost to restarts", lost),
    )


def _list_models(report: Report) -> Point:
    label = "Best metrics achieved"
    lines = [describe_best(each) for each in choose_best(report.runs.best)]
    if lines:
        return Point(label, lines[0], limit(lines[1:], _MOST_METRICS))
    if not report.runs.is_told:
        return Point(label, explain_no_client(report))
    return Point(label, explain_unknown(report, "no run reported a metric"))


def _list_utilization(report: Report) -> tuple[Point, ...]:
    found = report.accelerators
    if not found.count:
        return (
            Point("Resource usage patterns", explain_unknown(report, "no accelerator was seen")),
        )
    wasted = UNKNOWN
    if found.wasted_ratio is not None:
        wasted = f"{format_hours(found.wasted_seconds)}, {format_percent(found.wasted_ratio)}"
    return (
        Point("Accelerators busy", describe_busy(report)),
        Point("Wasted accelerator-hours", wasted),
        Point("Energy", describe_energy(report)),
        Point("Resource usage patterns", _describe_pattern(report)),
    )


def _describe_pattern(report: Report) -> str:
    """Return a text with the weekdays on which accelerators were most busy and least busy."""
    days: dict[str, list[float]] = {}
    for moment, ratio in report.accelerators.busy_by_hour:
        days.setdefault(f"{read_clock(report, moment - 1):%A}", []).append(ratio)
    means = {day: sum(ratios) / len(ratios) for day, ratios in days.items()}
    if not means:
        return explain_unknown(report, "no accelerator reports how busy it is")
    most, least = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    if len(means) == 1:
        return f"only {most} is known, {format_percent(means[most])} busy"
    return (
        f"busiest on {most} ({format_percent(means[most])}), "
        f"least on {least} ({format_percent(means[least])})"
    )


def _list_resolved(report: Report) -> tuple[Point, ...]:
    if not report.incidents:
        return (Point("", "no alert fired"),)
    over = [describe_incident(report, each) for each in report.incidents if not each.is_firing]
    firing = [describe_incident(report, each) for each in report.incidents if each.is_firing]
    resolved = f"{len(over)} resolved" if over else "none resolved"
    return (
        Point("Problems and solutions", resolved, limit(over)),
        Point("Still open", str(len(firing)) if firing else "none", limit(firing)),
    )


def _list_improvements(report: Report) -> tuple[Point, ...]:
    if report.before is not None:
        return compare(report, report.before)
    why = "Prometheus has too little of the week before to compare with"
    return (Point("Against the week before", explain_unknown(report, why)),)
