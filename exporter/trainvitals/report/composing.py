"""The parts of a report, in their order."""

from __future__ import annotations

from collections.abc import Callable

from trainvitals.report.amounts import (
    UNKNOWN,
    count,
    join,
    make_harmless,
    read_clock,
    tell_unknown,
    write_energy,
    write_hours,
    write_moment,
    write_ratio,
)
from trainvitals.report.blocks import Point, Section
from trainvitals.report.counting import (
    choose_best,
    count_completed,
    count_failed,
    find_wasted_ratio,
    find_wasted_seconds,
)
from trainvitals.report.details import (
    tell_accelerators,
    tell_busy,
    tell_deaths,
    tell_energy,
    tell_gaps,
    tell_incidents,
    tell_metrics,
    tell_runs,
    tell_uses,
)
from trainvitals.report.figures import Report, Totals
from trainvitals.report.parts import (
    describe_best,
    describe_incident,
    limit,
    tell_best,
    tell_health,
    tell_issues,
    tell_next,
    tell_no_client,
    tell_status,
    tell_training_time,
)

_MOST_METRICS = 6


def write_title(report: Report) -> str:
    """Give the title."""
    return {
        "daily": "trainvitals Daily Monitoring Report",
        "weekly": "trainvitals Weekly Performance Report",
    }[report.kind]


def compose_head(report: Report) -> tuple[Point, ...]:
    """Say what the report is about, and how far it can be trusted."""
    begin, end = read_clock(report, report.begin), read_clock(report, report.planned_end)
    if report.kind == "daily" and (begin.hour, begin.minute) == (0, 0):
        date = f"{begin:%Y-%m-%d}, {begin:%A}, {make_harmless(report.zone)}"
    else:
        date = f"{begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M}, {make_harmless(report.zone)}"
    return (
        Point("Date", date),
        Point("Environment", _tell_environment(report)),
        *_tell_limits(report),
    )


def _tell_environment(report: Report) -> str:
    hosts = report.hosts
    named = join(hosts.environments) or f"{UNKNOWN} (no target has a label environment)"
    devices = count(report.accelerators.count, "accelerator")
    return f"{named}; {count(len(hosts.names), 'machine')} ({join(hosts.names)}), {devices}"


def _tell_limits(report: Report) -> tuple[Point, ...]:
    points = []
    if report.instances:
        points.append(Point("Only", f"machines {join(report.instances)}"))
    if report.only_runs:
        points.append(
            Point("Only", f"runs {join(report.only_runs)}; hardware is that of their machines")
        )
    if report.end < report.planned_end:
        points.append(Point("So far", f"until {write_moment(report, report.end)}: it is not over"))
    if report.coverage.holes:
        holes = ", ".join(
            f"{write_moment(report, begin)} to {write_moment(report, end)}"
            for begin, end in report.coverage.holes[:5]
        )
        more = len(report.coverage.holes) - 5
        rest = f" and {more} more" if more > 0 else ""
        covered = write_ratio(report.coverage.seconds / (report.end - report.begin))
        points.append(
            Point("Figures for", f"{covered} of that time: there are none from {holes}{rest}")
        )
    return tuple(points)


def compose_template(report: Report) -> tuple[Section, ...]:
    """Give the parts that the templates have, which are the most important ones."""
    return _compose_day(report) if report.kind == "daily" else _compose_week(report)


def compose(report: Report) -> tuple[Section, ...]:
    """Give all parts of a report."""
    return (
        *compose_template(report),
        tell_accelerators(report),
        tell_uses(report),
        *tell_metrics(report),
        *tell_runs(report),
        *tell_incidents(report),
        *tell_deaths(report),
        *tell_gaps(report),
    )


def _compose_day(report: Report) -> tuple[Section, ...]:
    metrics = Section(
        "Performance Metrics",
        (
            Point("Average Training Time", tell_training_time(report)),
            Point("Best IoU Today", tell_best(report, "iou")),
            Point("Best Dice Today", tell_best(report, "dice")),
        ),
    )
    return (
        tell_status(report),
        tell_health(report),
        metrics,
        tell_issues(report),
        tell_next(report),
        *_tell_day_before(report),
    )


def _tell_day_before(report: Report) -> tuple[Section, ...]:
    before = report.before
    return () if before is None else (Section("The Day Before", _compare(report, before)),)


def _compose_week(report: Report) -> tuple[Section, ...]:
    return (
        _tell_efficiency(report),
        _tell_models(report),
        _tell_utilization(report),
        _tell_resolved(report),
        _tell_improvements(report),
        tell_next(report),
        tell_health(report),
    )


def _tell_efficiency(report: Report) -> Section:
    runs = report.runs
    if not runs.is_told:
        return Section(
            "Training Efficiency", (Point("Experiments completed", tell_no_client(report)),)
        )
    active = sum(each.outcome == "active" for each in runs.attempts)
    return Section(
        "Training Efficiency",
        (
            Point("Experiments completed", str(count_completed(runs))),
            Point("Failed", str(count_failed(runs))),
            Point("Active at the end", str(active + len(runs.observed))),
            Point("Average Training Time", tell_training_time(report)),
            Point("Lost to restarts", _tell_lost(report)),
        ),
    )


def _tell_lost(report: Report) -> str:
    seconds = report.runs.lost_seconds
    if seconds is None:
        return tell_unknown(report, "no run was seen from its start")
    return f"{write_hours(seconds)} of work, {report.runs.lost_steps or 0:,.0f} steps"


def _tell_models(report: Report) -> Section:
    best = choose_best(report.runs.best)
    if not best:
        words = (
            tell_no_client(report)
            if not report.runs.is_told
            else tell_unknown(report, "no run told a metric")
        )
        return Section("Model Performance", (Point("Best metrics achieved", words),))
    lines = [describe_best(each) for each in best]
    return Section(
        "Model Performance",
        (Point("Best metrics achieved", lines[0], limit(lines[1:], _MOST_METRICS)),),
    )


def _tell_utilization(report: Report) -> Section:
    found = report.accelerators
    if not found.count:
        words = tell_unknown(report, "no accelerator was seen")
        return Section("System Utilization", (Point("Resource usage patterns", words),))
    ratio = find_wasted_ratio(found)
    wasted = f"{write_hours(find_wasted_seconds(found))}, {write_ratio(ratio)}"
    return Section(
        "System Utilization",
        (
            Point("Accelerators busy", tell_busy(report)),
            Point("Wasted accelerator-hours", wasted if ratio is not None else UNKNOWN),
            Point("Energy", tell_energy(report)),
            Point("Resource usage patterns", _tell_pattern(report)),
        ),
    )


def _tell_pattern(report: Report) -> str:
    """Say on which day and at which hour accelerators were busiest and least busy."""
    days: dict[str, list[float]] = {}
    for moment, ratio in report.accelerators.busy_by_hour:
        days.setdefault(f"{read_clock(report, moment - 1):%A}", []).append(ratio)
    means = {day: sum(ratios) / len(ratios) for day, ratios in days.items()}
    if not means:
        return tell_unknown(report, "no accelerator tells how busy it is")
    if len(means) == 1:
        return f"only {next(iter(means))} is known, {write_ratio(next(iter(means.values())))} busy"
    most, least = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    return f"busiest on {most} ({write_ratio(means[most])}), least on {least} ({write_ratio(means[least])})"


def _tell_resolved(report: Report) -> Section:
    over = [each for each in report.incidents if not each.is_firing]
    firing = [each for each in report.incidents if each.is_firing]
    if not report.incidents:
        return Section("Issues Resolved", (Point("", "no alert fired"),))
    return Section(
        "Issues Resolved",
        (
            Point(
                "Problems and solutions",
                f"{len(over)} resolved" if over else "none resolved",
                limit(describe_incident(report, each) for each in over),
            ),
            Point(
                "Still open",
                str(len(firing)) if firing else "none",
                limit(describe_incident(report, each) for each in firing),
            ),
        ),
    )


def _tell_improvements(report: Report) -> Section:
    title, before = "Improvements", report.before
    if before is None:
        words = tell_unknown(report, "Prometheus has too little of the week before to compare with")
        return Section(title, (Point("Against the week before", words),))
    return Section(title, _compare(report, before))


def _compare(report: Report, before: Totals) -> tuple[Point, ...]:
    now = report.accelerators
    return (
        _compare_one(
            "Experiments completed", count_completed(report.runs), before.completed, _write_count
        ),
        _compare_one("Failed", count_failed(report.runs), before.failed, _write_count),
        _compare_one("Accelerators busy", now.busy_ratio, before.busy_ratio, write_ratio),
        _compare_one(
            "Accelerator time wasted", find_wasted_ratio(now), before.wasted_ratio, write_ratio
        ),
        _compare_one("Energy", now.energy_joules, before.energy_joules, write_energy),
    )


def _write_count(number: float | None) -> str:
    return UNKNOWN if number is None else f"{number:.0f}"


def _compare_one(
    label: str, now: float | None, before: float | None, write: Callable[[float | None], str]
) -> Point:
    if now is None or before is None:
        change = ""
    elif write(now) == write(before):
        change = ": unchanged"
    else:
        change = ": more" if now > before else ": less"
    return Point(label, f"{write(now)}, {write(before)} before{change}")
