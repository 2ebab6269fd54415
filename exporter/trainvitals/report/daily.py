"""The sections of the daily template; the weekly template also uses some of these sections."""

from __future__ import annotations

from collections.abc import Callable

from trainvitals.foreign_text import name_rest
from trainvitals.report.best import has_word
from trainvitals.report.figures import Report, Totals
from trainvitals.report.training import BAD, Attempt, choose_best, group_attempts, is_better
from trainvitals.report.wording import (
    Point,
    Section,
    clean_name,
    describe_best,
    describe_incident,
    describe_outcome,
    explain_no_client,
    explain_unknown,
    format_known,
    format_moment,
    format_share,
    join_names,
    limit,
)
from trainvitals.units import (
    count_noun,
    format_bytes,
    format_count,
    format_duration,
    format_energy,
    format_hours,
    format_percent,
    format_temperature,
)

_MOST_ISSUES, _MOST_DISKS = 10, 4


def compose_day(report: Report) -> tuple[Section, ...]:
    """Return the sections of the daily template."""
    metrics = Section(
        "Performance Metrics",
        (
            Point("Average Training Time", describe_training_time(report)),
            Point("Best IoU Today", describe_best_of(report, "iou")),
            Point("Best Dice Today", describe_best_of(report, "dice")),
        ),
    )
    before = report.before
    compared = () if before is None else (Section("The Day Before", compare(report, before)),)
    return (
        _list_status(report),
        list_health(report),
        metrics,
        _list_issues(report),
        list_next(report),
        *compared,
    )


def _list_status(report: Report) -> Section:
    every = report.runs.attempts
    asked = [each for each in every if each.outcome in {"terminated", "interrupted"}]
    observed = tuple(
        f"{clean_name(each.run)} on {clean_name(each.instance)}, known from its {each.source}"
        for each in report.runs.observed
    )
    points = (
        _list_runs(report, "Active Experiments", choose_attempts(every, "active"), observed),
        _list_runs(report, "Completed Today", choose_attempts(every, "completed")),
        _list_runs(report, "Failed", choose_attempts(every, *BAD)),
        *((_list_runs(report, "Ended on request", asked),) if asked else ()),
    )
    return Section("Training Status", points)


def choose_attempts(attempts: tuple[Attempt, ...], *outcomes: str) -> list[Attempt]:
    """Return the run starts that had one of the given outcomes."""
    return [each for each in attempts if each.outcome in outcomes]


def _list_runs(
    report: Report, label: str, attempts: list[Attempt], observed: tuple[str, ...] = ()
) -> Point:
    if not report.runs.is_told:
        return Point(label, explain_no_client(report))
    lines = [
        _describe_run(report, run, instances, each)
        for (run, instances), each in group_attempts(attempts).items()
    ]
    number = len(attempts) + len(observed)
    return Point(label, str(number) if number else "none", limit([*lines, *observed]))


def _describe_run(
    report: Report, run: str, instances: tuple[str, ...], attempts: list[Attempt]
) -> str:
    where, last = f"{clean_name(run)} on {join_names(instances)}", attempts[0]
    if last.outcome == "active":
        return f"{where}, since {format_moment(report, last.started)}"
    if last.ended is None:
        when = f"started {format_moment(report, last.started)}"
    else:
        lasting = format_duration(last.ended - last.started)
        when = f"at {format_moment(report, last.ended)} after {lasting}"
    times = f" {len(attempts)} times, last" if len(attempts) > 1 else ""
    if last.outcome == "completed":
        return f"{where}:{times} {when}"
    runs_again = any(each.run == run for each in choose_attempts(report.runs.attempts, "active"))
    after = "; it runs again" if runs_again else ""
    return f"{where}:{times} {describe_outcome(last)} {when}{after}"


def list_health(report: Report) -> Section:
    """Return the section about memory, disks and temperature at the end of the period."""
    return Section(
        "System Health",
        (
            Point("GPU Memory", _describe_device_memory(report)),
            Point("System Memory", _describe_memory(report)),
            _list_disks(report),
            Point("Temperature", _describe_heat(report)),
        ),
    )


def _describe_device_memory(report: Report) -> str:
    found = report.accelerators
    if not found.count:
        return explain_unknown(report, "no accelerator was seen")
    if found.memory_used_bytes is None:
        return explain_unknown(report, "no accelerator reports its memory at the end")
    share, peak = (
        format_share(found.memory_used_bytes, found.memory_total_bytes),
        found.memory_peak_bytes,
    )
    return share if peak is None else f"{share}; peak {format_bytes(peak)}"


def _describe_memory(report: Report) -> str:
    hosts = report.hosts
    if hosts.memory_used_bytes is None:
        return explain_unknown(
            report, "no machine reports its memory at the end (collector memory)"
        )
    share = format_share(hosts.memory_used_bytes, hosts.memory_total_bytes)
    if hosts.memory_peak_ratio is None:
        return share
    fullest = clean_name(hosts.memory_peak_instance)
    return f"{share}; the fullest was {fullest} with {format_percent(hosts.memory_peak_ratio)}"


def _list_disks(report: Report) -> Point:
    lines = tuple(
        f"{clean_name(disk.instance)} {clean_name(disk.mountpoint)}: "
        f"{format_share(disk.size_bytes - disk.avail_bytes, disk.size_bytes)}, "
        f"{format_bytes(disk.avail_bytes)} left"
        for disk in report.hosts.disks[:_MOST_DISKS]
    )
    if lines:
        rest = name_rest(len(report.hosts.disks) - len(lines), " that are less full")
        return Point("Disk Space", lines[0], (*lines[1:], *filter(None, (rest,))))
    why = "no machine reports its disks at the end (collector filesystem)"
    return Point("Disk Space", explain_unknown(report, why))


def _describe_heat(report: Report) -> str:
    found = report.accelerators
    if found.hottest is None:
        return explain_unknown(report, "no accelerator reports its temperature")
    end = "" if found.celsius is None else f"{format_temperature(found.celsius)} at the end; "
    device = f"{clean_name(found.hottest.instance)} {clean_name(found.hottest.device)}"
    hour = format_moment(report, found.hottest.time)
    return f"{end}highest {format_temperature(found.hottest.celsius)} on {device}, in the hour before {hour}"


def describe_training_time(report: Report) -> str:
    """Return a text with the mean duration of the runs that finished."""
    if not report.runs.is_told:
        return explain_no_client(report)
    seconds = report.runs.mean_seconds
    if seconds is None:
        return explain_unknown(report, "no run finished")
    runs = count_noun(report.runs.completed or 0, "run")
    return f"{format_hours(seconds)}, the mean of {runs} that finished"


def describe_best_of(report: Report, word: str) -> str:
    """Return a text with the best value of the metrics whose names contain a word such as `iou`."""
    if not report.runs.is_told:
        return explain_no_client(report)
    of_kind = [each for each in choose_best(report.runs.best) if has_word(each.name, word)]
    if not of_kind:
        return explain_unknown(report, f"no run reported a metric named {word}")
    best = of_kind[0]
    for each in of_kind[1:]:
        best = each if is_better(each, best) else best
    return describe_best(best)


def _list_issues(report: Report) -> Section:
    if not report.incidents:
        words = "no alert is known to have fired" if report.gaps else "no alert fired"
        return Section("Issues", (Point("", words),))
    shown = report.incidents[:_MOST_ISSUES]
    points = tuple(Point("", describe_incident(report, each)) for each in shown)
    rest = name_rest(len(report.incidents) - len(points), ", see Incidents")
    more = (Point("", rest),) if rest else ()
    return Section("Issues", (*points, *more))


def list_next(report: Report) -> Section:
    """Return the section with the report's recommendations."""
    points = tuple(Point("", f"{each.what} ({each.because})") for each in report.advice)
    return Section("Next Actions", points or (Point("", "nothing that these figures ask for"),))


def compare(report: Report, before: Totals) -> tuple[Point, ...]:
    """Return lines with key figures, each compared with the figure of the previous period."""
    now, runs = report.accelerators, report.runs
    return (
        _compare_one("Experiments completed", runs.completed, before.completed, format_count),
        _compare_one("Failed", runs.failed, before.failed, format_count),
        _compare_one("Accelerators busy", now.busy_ratio, before.busy_ratio, format_percent),
        _compare_one(
            "Accelerator time wasted", now.wasted_ratio, before.wasted_ratio, format_percent
        ),
        _compare_one("Energy", now.energy_joules, before.energy_joules, format_energy),
    )


def _compare_one(
    label: str, now: float | None, before: float | None, write: Callable[[float], str]
) -> Point:
    shown, earlier = format_known(write, now), format_known(write, before)
    if now is None or before is None:
        change = f"{earlier} before"
    elif shown == earlier:
        change = "unchanged"
    else:
        change = f"{'up' if now > before else 'down'} from {earlier}"
    return Point(label, f"{shown}, {change}")
