"""The parts that go beyond the templates: accelerators, metrics, runs, incidents, gaps."""

from __future__ import annotations

from trainvitals.postmortem.quantities import write_duration
from trainvitals.report.amounts import (
    LONGEST_SENTENCE,
    UNKNOWN,
    count,
    join,
    make_harmless,
    tell_unknown,
    write_cost,
    write_energy,
    write_hours,
    write_moment,
    write_ratio,
    write_value,
)
from trainvitals.report.blocks import Point, Section, Table
from trainvitals.report.counting import find_wasted_ratio, find_wasted_seconds, group_attempts
from trainvitals.report.figures import Report
from trainvitals.report.parts import describe_outcome, describe_spans
from trainvitals.report.training import BAD, Attempt
from trainvitals.report.waste import CAUSES, is_waste

_MOST_ROWS = 50


def tell_accelerators(report: Report) -> Section:
    """Tell how accelerators were used and what that cost."""
    found = report.accelerators
    if not found.count:
        return Section(
            "Accelerators", (Point("", tell_unknown(report, "no accelerator was seen")),)
        )
    return Section(
        "Accelerators",
        (
            Point(
                "Seen", f"{count(found.count, 'accelerator')}, {write_hours(found.seconds)} in all"
            ),
            Point("Busy", tell_busy(report)),
            Point("Power", _tell_power(report)),
            Point("Energy", tell_energy(report)),
        ),
        charts=("busy", "energy", "heat"),
    )


def tell_busy(report: Report) -> str:
    """Tell for which share of the time something ran on accelerators."""
    found = report.accelerators
    if found.busy_ratio is None:
        return tell_unknown(report, "no accelerator tells how busy it is")
    return f"{write_ratio(found.busy_ratio)} of the time, {write_hours(found.busy_seconds)}"


def _tell_power(report: Report) -> str:
    watts = report.accelerators.power_watts
    if watts is None:
        return tell_unknown(report, "no accelerator tells its power")
    return f"{watts:,.0f} W, the mean of all together"


def tell_energy(report: Report) -> str:
    """Tell what accelerators used, and its price where there is one."""
    found = report.accelerators
    if found.energy_joules is None:
        return tell_unknown(report, "no accelerator counts its energy or tells its power")
    told = write_energy(found.energy_joules)
    if found.is_energy_estimated:
        told += ", in part estimated from power"
    if report.price is None:
        return f"{told}; give --price for its cost"
    price = f"{report.price.per_kwh:g} {make_harmless(report.price.currency)} a kWh"
    return f"{told}, {write_cost(found.energy_joules, report.price)} at {price}"


def tell_uses(report: Report) -> Section:
    """Tell what the time of accelerators went to."""
    title = "Wasted Accelerator-Hours"
    found = report.accelerators
    ratio = find_wasted_ratio(found)
    if ratio is None:
        words = (
            "no accelerator was seen" if not found.count else "their time could not be told apart"
        )
        return Section(title, (Point("", tell_unknown(report, words)),))
    every = sum(use.seconds for use in found.uses)
    rows = tuple(
        (
            CAUSES.get(use.cause, use.cause),
            write_hours(use.seconds),
            write_ratio(use.seconds / every),
        )
        for use in sorted(found.uses, key=lambda use: (is_waste(use.cause), -use.seconds))
    )
    wasted = find_wasted_seconds(found)
    return Section(
        title,
        (
            Point(
                "Wasted", f"{write_hours(wasted)} of {write_hours(every)} ({write_ratio(ratio)})"
            ),
            Table(("What it went to", "Time", "Share"), rows, frozenset({1, 2})),
        ),
        charts=("uses",),
    )


def tell_metrics(report: Report) -> tuple[Section, ...]:
    """Tell the best value of each metric of each run; nothing where there are none."""
    rows: tuple[tuple[str, ...], ...] = tuple(
        (
            make_harmless(f"{best.name} {best.split}".strip()),
            make_harmless(best.run),
            make_harmless(best.instance),
            write_value(best.value),
            "" if best.target is None else f"{best.target:g}",
            "" if best.is_reached is None else ("reached" if best.is_reached else "not reached"),
        )
        for best in report.runs.best[:_MOST_ROWS]
    )
    if not rows:
        return ()
    if not any(best.target is not None for best in report.runs.best):
        rows = tuple(row[:4] for row in rows)
    head = ("Metric", "Run", "Host", "Best", "Target", "")[: len(rows[0])]
    return (
        Section(
            "Best Metrics",
            (Table(head, rows, frozenset({3, 4})), *_tell_rest(len(report.runs.best))),
            charts=("metrics",),
        ),
    )


def tell_runs(report: Report) -> tuple[Section, ...]:
    """Tell of each run; nothing where there were none."""
    grouped = group_attempts(report.runs.attempts)
    if not grouped:
        return ()
    rows = tuple(
        _tell_run(report, run, instances, attempts)
        for (run, instances), attempts in list(grouped.items())[:_MOST_ROWS]
    )
    head = ("Run", "Host", "Starts", "Completed", "Failed", "Took, mean", "At the end")
    lost: tuple[Point, ...] = ()
    if report.runs.lost_seconds:
        steps = report.runs.lost_steps or 0.0
        words = f"{write_hours(report.runs.lost_seconds)}, {steps:,.0f} steps, done in vain"
        lost = (Point("Lost to restarts", words),)
    table = Table(head, rows, frozenset({2, 3, 4, 5}))
    return (Section("Runs", (*lost, table, *_tell_rest(len(grouped)))),)


def _tell_run(
    report: Report, run: str, instances: tuple[str, ...], attempts: list[Attempt]
) -> tuple[str, ...]:
    last = attempts[0]
    lengths = [
        (report.end if each.ended is None else each.ended) - each.started for each in attempts
    ]
    moment = last.started if last.ended is None else last.ended
    word = {"active": "since ", "vanished": "started "}.get(last.outcome, "")
    return (
        make_harmless(run),
        join(instances, 4),
        str(len(attempts)),
        str(sum(each.outcome == "completed" for each in attempts)),
        str(sum(each.outcome in BAD for each in attempts)),
        write_duration(sum(lengths) / len(lengths)),
        f"{describe_outcome(last)} {word}{write_moment(report, moment)}",
    )


def _tell_rest(number: int) -> tuple[Point, ...]:
    rest = number - _MOST_ROWS
    return (Point("", f"and {rest} more: --format json has all"),) if rest > 0 else ()


def tell_incidents(report: Report) -> tuple[Section, ...]:
    """Tell of each alert that fired; nothing where none did."""
    if not report.incidents:
        return ()
    rows = tuple(
        (
            each.severity,
            make_harmless(each.alert),
            make_harmless(f"{each.instance} {each.subject}".strip()),
            make_harmless(each.verdict, LONGEST_SENTENCE),
            describe_spans(report, each),
            each.resolution,
        )
        for each in report.incidents[:_MOST_ROWS]
    )
    head = ("Severity", "Alert", "Where", "Verdict", "When", "Ended")
    return (Section("Incidents", (Table(head, rows), *_tell_rest(len(report.incidents)))),)


def tell_deaths(report: Report) -> tuple[Section, ...]:
    """Tell which containers died of what; nothing where none did."""
    if not report.deaths:
        return ()
    states = {True: "runs", False: "does not run", None: UNKNOWN}
    rows = tuple(
        (
            make_harmless(each.name),
            make_harmless(each.instance),
            make_harmless(each.reason),
            str(each.count),
            write_moment(report, each.last),
            states[each.is_running],
        )
        for each in report.deaths[:_MOST_ROWS]
    )
    head = ("Container", "Host", "Died of", "Times", "Last", "At the end")
    return (Section("Containers That Died", (Table(head, rows, frozenset({3})),)),)


def tell_gaps(report: Report) -> tuple[Section, ...]:
    """Tell what is not known and why; nothing where all is."""
    points = [
        Point(make_harmless(gap.what), make_harmless(gap.why, LONGEST_SENTENCE))
        for gap in report.gaps
    ]
    return (Section("What Is Not Known", tuple(points)),) if points else ()
