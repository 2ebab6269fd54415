"""The sections with tables: accelerators, waste, metrics, runs, incidents, containers, gaps."""

from __future__ import annotations

from collections.abc import Sequence

from trainvitals.foreign_text import name_rest
from trainvitals.report.figures import CAUSES, Report
from trainvitals.report.training import BAD, Attempt, Expectation, group_attempts
from trainvitals.report.wording import (
    FIGURES,
    UNKNOWN,
    Chart,
    Point,
    Section,
    Table,
    clean_name,
    clean_sentence,
    describe_outcome,
    describe_spans,
    explain_unknown,
    format_cost,
    format_moment,
    join_names,
    name_metric,
)
from trainvitals.units import (
    count_noun,
    format_duration,
    format_energy,
    format_hours,
    format_percent,
    format_power,
    format_value,
)

_MOST_ROWS = 50


def list_details(report: Report) -> tuple[Section, ...]:
    """Return the sections with tables, except sections whose table is empty."""
    found = (
        _list_accelerators(report),
        _list_uses(report),
        _list_metrics(report),
        _list_expected(report),
        _list_runs(report),
        _list_incidents(report),
        _list_deaths(report),
        _list_gaps(report),
    )
    return tuple(section for section in found if section is not None)


def describe_busy(report: Report) -> str:
    """Return a text with the share of accelerator time in which accelerators were busy."""
    found = report.accelerators
    if found.busy_ratio is None:
        return explain_unknown(report, "no accelerator reports how busy it is")
    return f"{format_percent(found.busy_ratio)} of the time, {format_hours(found.busy_seconds)}"


def describe_energy(report: Report) -> str:
    """Return a text with the energy that accelerators used and, if a price is set, its cost."""
    found = report.accelerators
    if found.energy_joules is None:
        return explain_unknown(report, "no accelerator counts its energy or reports its power")
    energy = format_energy(found.energy_joules)
    if found.is_energy_estimated:
        energy += ", in part estimated from power"
    if report.price is None:
        return f"{energy}; give --price for its cost"
    price = f"{report.price.per_kwh:g} {clean_name(report.price.currency)} a kWh"
    return f"{energy}, {format_cost(found.energy_joules, report.price)} at {price}"


def _list_accelerators(report: Report) -> Section:
    found = report.accelerators
    if not found.count:
        why = explain_unknown(report, "no accelerator was seen")
        return Section("Accelerators", (Point("", why),))
    power = explain_unknown(report, "no accelerator reports its power")
    if found.power_watts is not None:
        power = f"{format_power(found.power_watts)}, the mean of all together"
    seen = f"{count_noun(found.count, 'accelerator')}, {format_hours(found.seconds)} in all"
    return Section(
        "Accelerators",
        (
            Point("Seen", seen),
            Point("Busy", describe_busy(report)),
            Point("Power", power),
            Point("Energy", describe_energy(report)),
        ),
        charts=("busy", "energy", "heat"),
    )


def _list_uses(report: Report) -> Section:
    title, found = "Wasted Accelerator-Hours", report.accelerators
    every, ratio = found.known_seconds, found.wasted_ratio
    if ratio is None:
        why = "its uses could not be determined" if found.count else "no accelerator was seen"
        return Section(title, (Point("", explain_unknown(report, why)),))
    uses = sorted(found.uses, key=lambda use: (use.is_waste, -use.seconds))
    rows = tuple(
        (
            CAUSES.get(use.cause, use.cause),
            format_hours(use.seconds),
            format_percent(use.seconds / every),
        )
        for use in uses
    )
    wasted = f"{format_hours(found.wasted_seconds)} of {format_hours(every)}"
    table = Table(("What it went to", "Time", "Share"), rows, frozenset({1, 2}))
    return Section(
        title, (Point("Wasted", f"{wasted} ({format_percent(ratio)})"), table), charts=("uses",)
    )


def _list_metrics(report: Report) -> Section | None:
    best = report.runs.best
    rows: tuple[tuple[str, ...], ...] = tuple(
        (
            name_metric(each.name, each.split),
            clean_name(each.run),
            clean_name(each.instance),
            format_value(each.value),
            "" if each.target is None else f"{each.target:g}",
            "" if each.is_reached is None else ("reached" if each.is_reached else "not reached"),
        )
        for each in best[:_MOST_ROWS]
    )
    columns = 6 if any(each.target is not None for each in best) else 4
    head = ("Metric", "Run", "Host", "Best", "Target", "")[:columns]
    rows = tuple(row[:columns] for row in rows)
    return _tabulate("Best Metrics", head, rows, best, {3, 4}, charts=("metrics",))


def _list_expected(report: Report) -> Section | None:
    expected = report.runs.expected
    rows = tuple(_describe_expectation(each) for each in expected[:_MOST_ROWS])
    head = ("Run", "Host", "Figure", "Measured", "Expected", "Share")
    title = "Expected Pace and Memory"
    return _tabulate(title, head, rows, expected, {3, 4, 5}, charts=("expected",))


def _describe_expectation(one: Expectation) -> tuple[str, ...]:
    name, write = FIGURES[one.figure]
    return (
        clean_name(one.run),
        clean_name(one.instance),
        name,
        write(one.measured) if one.measured is not None else UNKNOWN,
        write(one.expected),
        format_percent(one.measured / one.expected) if one.measured is not None else "",
    )


def _list_runs(report: Report) -> Section | None:
    grouped = list(group_attempts(report.runs.attempts).items())
    rows = tuple(
        _describe_run(report, run, instances, attempts)
        for (run, instances), attempts in grouped[:_MOST_ROWS]
    )
    head = ("Run", "Host", "Starts", "Completed", "Failed", "Took, mean", "At the end")
    lost = None
    if report.runs.lost_seconds:
        steps = f"{report.runs.lost_steps or 0:,.0f} steps"
        lost = Point(
            "Lost to restarts", f"{format_hours(report.runs.lost_seconds)} of work, {steps}"
        )
    return _tabulate("Runs", head, rows, grouped, {2, 3, 4, 5}, first=lost)


def _describe_run(
    report: Report, run: str, instances: tuple[str, ...], attempts: list[Attempt]
) -> tuple[str, ...]:
    last = attempts[0]
    lengths = [
        (report.end if each.ended is None else each.ended) - each.started for each in attempts
    ]
    moment = last.started if last.ended is None else last.ended
    word = {"active": "since ", "vanished": "started "}.get(last.outcome, "")
    return (
        clean_name(run),
        join_names(instances, 4),
        str(len(attempts)),
        str(sum(each.outcome == "completed" for each in attempts)),
        str(sum(each.outcome in BAD for each in attempts)),
        format_duration(sum(lengths) / len(lengths)),
        f"{describe_outcome(last)} {word}{format_moment(report, moment)}",
    )


def _list_incidents(report: Report) -> Section | None:
    rows = tuple(
        (
            each.severity,
            clean_name(each.alert),
            clean_name(f"{each.instance} {each.subject}".strip()),
            clean_sentence(each.verdict),
            describe_spans(report, each),
            each.resolution,
        )
        for each in report.incidents[:_MOST_ROWS]
    )
    head = ("Severity", "Alert", "Where", "Verdict", "When", "Ended")
    return _tabulate("Incidents", head, rows, report.incidents)


def _list_deaths(report: Report) -> Section | None:
    states = {True: "runs", False: "does not run", None: UNKNOWN}
    rows = tuple(
        (
            clean_name(each.name),
            clean_name(each.instance),
            clean_name(each.reason),
            str(each.count),
            format_moment(report, each.last),
            states[each.is_running],
        )
        for each in report.deaths[:_MOST_ROWS]
    )
    head = ("Container", "Host", "Died of", "Times", "Last", "At the end")
    return _tabulate("Containers That Died", head, rows, report.deaths, {3})


def _list_gaps(report: Report) -> Section | None:
    points = tuple(Point(clean_name(gap.what), clean_sentence(gap.why)) for gap in report.gaps)
    return Section("What Is Not Known", points) if points else None


def _tabulate(
    title: str,
    head: tuple[str, ...],
    rows: tuple[tuple[str, ...], ...],
    every: Sequence[object],
    numbers: set[int] | None = None,
    *,
    first: Point | None = None,
    charts: tuple[Chart, ...] = (),
) -> Section | None:
    """Return a section with a table and the number of omitted rows; None if there are no rows."""
    if not rows:
        return None
    rest = name_rest(len(every) - len(rows), ": --format json has all")
    more = (Point("", rest),) if rest else ()
    table = Table(head, rows, frozenset(numbers or ()))
    return Section(title, (*((first,) if first else ()), table, *more), charts)
