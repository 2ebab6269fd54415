"""Recommendations derived from the figures of a report."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from trainvitals.report.figures import CAUSES, Advice, Report
from trainvitals.report.training import BAD, choose_best, group_attempts
from trainvitals.report.wording import clean_name, describe_outcome, join_names, name_incident
from trainvitals.sources.host.filesystem import Space
from trainvitals.units import format_bytes, format_hours, format_percent, format_value
from trainvitals.verdicts.host import judge_space
from trainvitals.verdicts.thresholds import Thresholds

NOW, SOON, LATER = 0, 1, 2

# The minimum share of wasted accelerator time, and of time without data, that leads to a
# recommendation. No alert covers wasted time or missing data.
_MUCH_WASTE_RATIO, _MUCH_MISSING_RATIO = 0.05, 0.1
_MOST_ADVICE, _MOST_ALERTS = 14, 5
_STEPS_AGAINST_WASTE = {
    "data_wait": "Give data loaders more workers or more prefetching, or put the data on a local disk",
    "stalled": "Find out what made no progress: `trainvitals postmortem RUN`, or `py-spy dump` meanwhile",
    "throttled": "Check cooling and power of the accelerators that slowed down",
    "evaluation": "Evaluate or save less often, or while other ranks train",
    "starting": "Keep compiled graphs and caches between starts, and restart less often",
    "paused": "End runs that idle on purpose, or let others use their accelerators",
    "held": "Find out who holds the memory of idle accelerators, such as an open notebook",
    "idle": "Queue more runs, or give unused accelerators to other users",
    "lost": "Look for Xids and reset or replace the accelerators that do not answer",
}


def advise(report: Report, thresholds: Thresholds) -> tuple[Advice, ...]:
    """Return at most `_MOST_ADVICE` recommendations, the most urgent first.

    Args:
        report: The report with the figures.
        thresholds: The alert thresholds.
    """
    found = (
        *_advise_on_incidents(report),
        *_advise_on_runs(report, thresholds["training_restart_loop:restarts"]),
        *_advise_on_disks(report, thresholds),
        *_advise_on_waste(report),
        *_advise_on_targets(report),
        *_advise_on_coverage(report),
    )
    return tuple(sorted(found, key=lambda each: each.urgency))[:_MOST_ADVICE]


def _advise_on_incidents(report: Report) -> Iterator[Advice]:
    firing = [each for each in report.incidents if each.is_firing and each.severity == "critical"]
    grouped: dict[str, list[str]] = {}
    for each in firing:
        grouped.setdefault(each.alert, []).append(name_incident(each).partition(" ")[2])
    for alert, places in list(grouped.items())[:_MOST_ALERTS]:
        where = f" on {join_names(filter(None, places), 4)}" if any(places) else ""
        yield Advice(
            NOW,
            f"Deal with {clean_name(alert)}{where}: see `/runbooks/{clean_name(alert)}` of the exporter",
            "critical, and still firing",
        )
    rest = list(grouped)[_MOST_ALERTS:]
    if rest:
        yield Advice(NOW, f"Then deal with {join_names(rest)}", "critical, and still firing")


def _advise_on_runs(report: Report, many_restarts: float) -> Iterator[Advice]:
    looping = {
        key: attempts
        for key, attempts in group_attempts(
            each for each in report.runs.attempts if each.is_resumed and each.outcome in BAD
        ).items()
        if len(attempts) >= many_restarts
    }
    for attempt in report.runs.unresumed:
        if (attempt.run, attempt.instances) in looping:
            continue
        run = clean_name(attempt.run)
        yield Advice(
            NOW,
            f"Find out why {run} ended with `trainvitals postmortem {shlex.quote(run)}` on {join_names(attempt.instances)}, "
            "and start it again",
            f"{describe_outcome(attempt)}, not restarted",
        )
    for (run, instances), attempts in looping.items():
        yield Advice(
            SOON,
            f"Find out why {clean_name(run)} on {join_names(instances)} keeps failing",
            f"restarted {len(attempts)} times, the last time after: {describe_outcome(attempts[0])}",
        )


def _advise_on_disks(report: Report, thresholds: Thresholds) -> Iterator[Advice]:
    for disk in report.hosts.disks:
        space = Space(int(disk.size_bytes), int(disk.avail_bytes), None, None, readonly=False)
        if any(judge_space(disk.mountpoint, space, thresholds)):
            ratio = disk.avail_bytes / disk.size_bytes
            yield Advice(
                SOON,
                f"Make room on {clean_name(disk.mountpoint)} of {clean_name(disk.instance)}",
                f"{format_bytes(disk.avail_bytes)} are left, {format_percent(ratio)}",
            )


def _advise_on_waste(report: Report) -> Iterator[Advice]:
    every = report.accelerators.known_seconds
    for use in sorted(report.accelerators.uses, key=lambda use: -use.seconds):
        step = _STEPS_AGAINST_WASTE.get(use.cause)
        if step is not None and use.seconds > _MUCH_WASTE_RATIO * every:
            share = format_percent(use.seconds / every)
            words = f"{CAUSES[use.cause]}, {format_hours(use.seconds)}, {share} of accelerator time"
            yield Advice(SOON, step, words)


def _advise_on_targets(report: Report) -> Iterator[Advice]:
    for best in choose_best(report.runs.best):
        if best.is_reached is False:
            yield Advice(
                LATER,
                f"Improve {clean_name(best.name)}: {clean_name(best.run)} is nearest to its target",
                f"{format_value(best.value)}, target {best.target:g}",
            )


def _advise_on_coverage(report: Report) -> Iterator[Advice]:
    missing = (report.end - report.begin) - report.coverage.seconds
    if missing > _MUCH_MISSING_RATIO * (report.end - report.begin):
        yield Advice(
            LATER,
            "Keep Prometheus running, with a retention of at least 15 days",
            f"no data for {format_hours(missing)} of this period",
        )
