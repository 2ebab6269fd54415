"""The parts that day and week share with the templates that they follow."""

from __future__ import annotations

from collections.abc import Iterable

from trainvitals.postmortem.quantities import write_duration
from trainvitals.report.amounts import (
    LONGEST_SENTENCE,
    count,
    join,
    make_harmless,
    tell_unknown,
    write_hours,
    write_moment,
    write_ratio,
    write_share,
    write_size,
    write_value,
)
from trainvitals.report.best import has_word
from trainvitals.report.blocks import Point, Section
from trainvitals.report.counting import (
    average_training_seconds,
    choose_best,
    group_attempts,
    is_better,
)
from trainvitals.report.figures import Report
from trainvitals.report.training import BAD, Attempt, Best
from trainvitals.report.troubles import Incident

_NO_CLIENT = "no exporter looks for runs (collector training)"
_MOST_LINES = 10
_DAYS_IN_SECONDS = 86400


def tell_no_client(report: Report) -> str:
    """Say that nobody looks for runs."""
    return tell_unknown(report, _NO_CLIENT)


def tell_status(report: Report) -> Section:
    """Tell what trains, what finished and what failed."""
    attempts = report.runs.attempts
    active = [each for each in attempts if each.outcome == "active"]
    observed = [
        f"{make_harmless(each.run)} on {make_harmless(each.instance)}, told by its {each.source}"
        for each in report.runs.observed
    ]
    return Section(
        "Training Status",
        (
            _list_runs(report, "Active Experiments", active, tuple(observed)),
            _list_runs(
                report, "Completed Today", [a for a in attempts if a.outcome == "completed"]
            ),
            _list_runs(report, "Failed", [a for a in attempts if a.outcome in BAD]),
            *_list_ended(
                report, [a for a in attempts if a.outcome in {"terminated", "interrupted"}]
            ),
        ),
    )


def _list_runs(
    report: Report, label: str, attempts: list[Attempt], observed: tuple[str, ...] = ()
) -> Point:
    if not report.runs.is_told:
        return Point(label, tell_no_client(report))
    lines = [
        _describe(report, run, instances, each)
        for (run, instances), each in group_attempts(attempts).items()
    ]
    return Point(
        label,
        str(len(attempts) + len(observed)) if lines or observed else "none",
        limit([*lines, *observed]),
    )


def _list_ended(report: Report, attempts: list[Attempt]) -> tuple[Point, ...]:
    return (_list_runs(report, "Ended on request", attempts),) if attempts else ()


def _describe(report: Report, run: str, instances: tuple[str, ...], attempts: list[Attempt]) -> str:
    where = f"{make_harmless(run)} on {join(instances)}"
    last = attempts[0]
    if last.outcome == "active":
        return f"{where}, since {write_moment(report, last.started)}"
    if last.ended is None:
        when = f"started {write_moment(report, last.started)}"
    else:
        when = (
            f"{write_moment(report, last.ended)} after {write_duration(last.ended - last.started)}"
        )
    how = "" if last.outcome == "completed" else f" {describe_outcome(last)}"
    times = f" {len(attempts)} times, the last one" if len(attempts) > 1 else ""
    after = "" if last.outcome == "completed" or not _is_running(report, run) else "; it runs again"
    return f"{where}:{times}{how} {when}{after}"


def _is_running(report: Report, run: str) -> bool:
    return any(each.run == run and each.outcome == "active" for each in report.runs.attempts)


def describe_outcome(attempt: Attempt) -> str:
    """Say how a start ended, with its exit code."""
    code = f" (exit code {attempt.exit_code})" if attempt.exit_code else ""
    return f"{attempt.outcome}{code}"


def limit(lines: Iterable[str], most: int = _MOST_LINES) -> tuple[str, ...]:
    """Keep the first lines, and say how many more there are."""
    every = tuple(lines)
    rest = len(every) - most
    return (*every[:most], f"and {rest} more, see below") if rest > 0 else every


def tell_health(report: Report) -> Section:
    """Tell how the machines are at the end of the period."""
    return Section(
        "System Health",
        (
            Point("GPU Memory", _tell_device_memory(report)),
            Point("System Memory", _tell_memory(report)),
            _tell_disks(report),
            Point("Temperature", _tell_heat(report)),
        ),
    )


def _tell_device_memory(report: Report) -> str:
    found = report.accelerators
    if not found.count:
        return tell_unknown(report, "no accelerator was seen")
    if found.memory_used_bytes is None:
        return tell_unknown(report, "no accelerator tells its memory at the end")
    share = write_share(found.memory_used_bytes, found.memory_total_bytes)
    peak = found.memory_peak_bytes
    return share if peak is None else f"{share}; at most {write_size(peak)}"


def _tell_memory(report: Report) -> str:
    hosts = report.hosts
    if hosts.memory_used_bytes is None:
        return tell_unknown(report, "no machine tells its memory at the end (collector memory)")
    share = write_share(hosts.memory_used_bytes, hosts.memory_total_bytes)
    if hosts.memory_peak_ratio is None:
        return share
    name = make_harmless(hosts.memory_peak_instance)
    return f"{share}; the fullest was {name} with {write_ratio(hosts.memory_peak_ratio)}"


def _tell_disks(report: Report) -> Point:
    disks = report.hosts.disks
    if not disks:
        return Point(
            "Disk Space",
            tell_unknown(report, "no machine tells its disks at the end (collector filesystem)"),
        )
    lines = [
        f"{make_harmless(disk.instance)} {make_harmless(disk.mountpoint)}: "
        f"{write_share(disk.size_bytes - disk.avail_bytes, disk.size_bytes)}, "
        f"{write_size(disk.avail_bytes)} left"
        for disk in disks
    ]
    return Point("Disk Space", lines[0], tuple(lines[1:4]))


def _tell_heat(report: Report) -> str:
    found = report.accelerators
    if found.hottest is None:
        return tell_unknown(report, "no accelerator tells its temperature")
    now = "" if found.celsius is None else f"{found.celsius:.0f} °C the hottest now; "
    device = f"{make_harmless(found.hottest.instance)} {make_harmless(found.hottest.device)}"
    hour = write_moment(report, found.hottest.time)
    return f"{now}highest {found.hottest.celsius:.0f} °C, {device}, in the hour before {hour}"


def tell_training_time(report: Report) -> str:
    """Tell how long runs took that finished."""
    if not report.runs.is_told:
        return tell_no_client(report)
    seconds = average_training_seconds(report.runs)
    if seconds is None:
        return tell_unknown(report, "no run finished")
    number = sum(each.outcome == "completed" for each in report.runs.attempts)
    return f"{write_hours(seconds)}, the mean of {count(number, 'run')} that finished"


def tell_best(report: Report, word: str) -> str:
    """Tell the best value of a kind of metric, as `iou`."""
    of_kind = [each for each in choose_best(report.runs.best) if has_word(each.name, word)]
    if not report.runs.is_told:
        return tell_no_client(report)
    if not of_kind:
        return tell_unknown(report, f"no run told a metric named {word}")
    best = of_kind[0]
    for each in of_kind[1:]:
        if is_better(each, best):
            best = each
    return describe_best(best)


def describe_best(best: Best) -> str:
    """Write a best value with its name, its run and its target."""
    name = make_harmless(best.name) + (f" {make_harmless(best.split)}" if best.split else "")
    told = f"{write_value(best.value)} ({name}), {make_harmless(best.run)} on {make_harmless(best.instance)}"
    if best.target is None:
        return told
    words = "reached" if best.is_reached else "not reached"
    return f"{told}; the target {best.target:g} is {words}"


def tell_issues(report: Report, title: str = "Issues") -> Section:
    """Tell what went wrong, and how it ended."""
    if not report.incidents:
        words = "no alert fired" if not report.gaps else "no alert is known to have fired"
        return Section(title, (Point("", words),))
    points = tuple(
        Point("", describe_incident(report, each)) for each in report.incidents[:_MOST_LINES]
    )
    rest = len(report.incidents) - len(points)
    more = (Point("", f"and {rest} more, see Incidents"),) if rest else ()
    return Section(title, (*points, *more))


def describe_incident(report: Report, incident: Incident) -> str:
    """Tell of an incident in a line: what, where, when and how it ended."""
    verdict = f": {make_harmless(incident.verdict, LONGEST_SENTENCE)}" if incident.verdict else ""
    return (
        f"{incident.severity or 'alert'} {name_incident(incident)}{verdict}; "
        f"{describe_spans(report, incident)}; {incident.resolution}"
    )


def name_incident(incident: Incident) -> str:
    """Name an alert and what it is about."""
    parts = (incident.alert, incident.instance, incident.subject)
    return " ".join(make_harmless(part) for part in parts if part)


def describe_spans(report: Report, incident: Incident) -> str:
    """Say when an alert fired, and for how long."""
    begin, end = incident.spans[-1]
    until = "" if incident.is_firing else f" until {write_moment(report, end)}"
    last = f"{write_moment(report, begin)}{until}"
    lasting = write_duration(incident.seconds)
    if len(incident.spans) == 1:
        return f"{'since' if incident.is_firing else 'from'} {last} ({lasting})"
    return f"{len(incident.spans)} times, {lasting} in all, last {'since' if incident.is_firing else 'from'} {last}"


def tell_next(report: Report) -> Section:
    """Tell what to do next."""
    points = tuple(Point("", f"{each.what} ({each.because})") for each in report.advice)
    return Section("Next Actions", points or (Point("", "nothing that these figures ask for"),))
