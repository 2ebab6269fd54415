"""What to do next, from the figures of a report."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from trainvitals.report.amounts import (
    count,
    join,
    make_harmless,
    write_hours,
    write_ratio,
    write_size,
)
from trainvitals.report.counting import choose_best, find_unresumed, group_attempts
from trainvitals.report.figures import Advice, Report
from trainvitals.report.parts import describe_outcome, name_incident
from trainvitals.report.training import BAD
from trainvitals.report.waste import CAUSES

NOW, SOON, LATER = 0, 1, 2

# Below this a cause of waste is not worth a thought.
_MUCH_WASTE_RATIO = 0.05
_LITTLE_DISK_RATIO = 0.1
_MANY_RESTARTS = 3
_MOST_ADVICE, _MOST_ALERTS = 14, 5
_STEPS_AGAINST_WASTE = {
    "data_wait": "Give data loaders more workers or more prefetching, or put the data on a local disk",
    "stalled": "Find out what stood still: `trainvitals postmortem RUN`, or py-spy dump while it lasts",
    "throttled": "Check cooling and power of the accelerators that slowed down",
    "evaluation": "Evaluate or save less often, or while other ranks train",
    "starting": "Keep compiled graphs and caches between starts, and restart less often",
    "paused": "End runs that idle on purpose, or let others use their accelerators",
    "held": "Ask who holds the memory of idle accelerators, such as an open notebook",
    "idle": "Queue more runs, or give accelerators that nobody uses to somebody else",
    "lost": "Look for Xids and reset or replace the accelerators that do not answer",
}


def advise(report: Report) -> tuple[Advice, ...]:
    """Give the steps that the figures ask for, the most urgent first."""
    found = (
        *_advise_on_incidents(report),
        *_advise_on_runs(report),
        *_advise_on_disks(report),
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
        where = f" on {join(filter(None, places), 4)}" if any(places) else ""
        yield Advice(
            NOW,
            f"Deal with {make_harmless(alert)}{where}: see its runbook",
            "it is critical and still fires",
        )
    rest = list(grouped)[_MOST_ALERTS:]
    if rest:
        yield Advice(NOW, f"Then deal with {join(rest)}", "critical, and still firing")


def _advise_on_runs(report: Report) -> Iterator[Advice]:
    looping = {
        key: attempts
        for key, attempts in group_attempts(
            each for each in report.runs.attempts if each.is_resumed and each.outcome in BAD
        ).items()
        if len(attempts) >= _MANY_RESTARTS
    }
    for attempt in find_unresumed(report):
        if (attempt.run, attempt.instances) in looping:
            continue
        run = make_harmless(attempt.run)
        yield Advice(
            NOW,
            f"Find out why {run} ended with `trainvitals postmortem {shlex.quote(run)}` on {join(attempt.instances)}, "
            "and start it again",
            f"{describe_outcome(attempt)}, and nobody has",
        )
    for (run, instances), attempts in looping.items():
        yield Advice(
            SOON,
            f"Stop {make_harmless(run)} on {join(instances)} from dying again and again",
            f"started again {len(attempts)} times, the last end: {describe_outcome(attempts[0])}",
        )


def _advise_on_disks(report: Report) -> Iterator[Advice]:
    for disk in report.hosts.disks:
        ratio = disk.avail_bytes / disk.size_bytes
        if ratio < _LITTLE_DISK_RATIO:
            yield Advice(
                SOON,
                f"Make room on {make_harmless(disk.mountpoint)} of {make_harmless(disk.instance)}",
                f"{write_size(disk.avail_bytes)} are left, {write_ratio(ratio)}",
            )


def _advise_on_waste(report: Report) -> Iterator[Advice]:
    every = sum(use.seconds for use in report.accelerators.uses)
    for use in sorted(report.accelerators.uses, key=lambda use: -use.seconds):
        step = _STEPS_AGAINST_WASTE.get(use.cause)
        if step is not None and use.seconds > _MUCH_WASTE_RATIO * every:
            share = write_ratio(use.seconds / every)
            words = f"{write_hours(use.seconds)} of accelerators, {share}: {CAUSES[use.cause]}"
            yield Advice(SOON, step, words)


def _advise_on_targets(report: Report) -> Iterator[Advice]:
    for best in choose_best(report.runs.best):
        if best.is_reached is False:
            yield Advice(
                LATER,
                f"Go on with {make_harmless(best.name)}: {make_harmless(best.run)} is the nearest",
                f"{best.value:.4g} where {best.target:g} is wanted",
            )


def _advise_on_coverage(report: Report) -> Iterator[Advice]:
    missing = (report.end - report.begin) - report.coverage.seconds
    if missing > 0.1 * (report.end - report.begin):
        yield Advice(
            LATER,
            "Keep Prometheus running, and its past for at least 15 days",
            f"{count(len(report.coverage.holes), 'hole')} of {write_hours(missing)} in these figures",
        )
