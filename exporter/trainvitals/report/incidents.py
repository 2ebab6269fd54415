"""The alerts that fired, how each incident ended, and the containers that died."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainvitals.report.archive import MINUTE, Archive, count_seconds, list_times, write_rise
from trainvitals.report.training import BAD, Attempt, Deaths, Incident, Outcome, Runs
from trainvitals.sources.prometheus import QueryError, Series

_BY = "alertname, severity, component, instance, run, name, kind, device, mountpoint"
_FIRING = f'max by ({_BY}) (ALERTS{{@host, alertstate="firing", alertname!="Watchdog"}}%s)'
_URGENCY: Mapping[str, int] = {"critical": 0, "warning": 1, "info": 2}
# After a restart, Prometheus has no alerts for a short time. Pauses up to this length are ignored.
_SHORTEST_PAUSE_SECONDS = 2 * MINUTE
# If an alert seems to have fired for longer, the clock was wrong when the alert was recorded.
_LONGEST_SECONDS = 30 * 86400

# The exporter reports a rank for this long after the rank's end.
_SHOWN_SECONDS = 15 * MINUTE
_OVER = "resolved"
_BECAME: Mapping[Outcome, str] = {
    "active": "trains",
    "completed": "finished",
    "failed": "failed again",
    "out of memory": "ran out of memory again",
    "killed": "was killed again",
    "terminated": "was ended on request",
    "interrupted": "was ended on request",
    "vanished": "vanished",
    "unknown": "ended, with an unknown outcome",
}

_Key = tuple[str, str, str, str]  # alert, severity, machine, subject


@dataclass(slots=True)
class _Course:
    """The times at which an alert started and stopped firing, and the alert's run or container."""

    begins: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    is_firing: bool = False
    run: str = ""
    container: str = ""


def find_incidents(archive: Archive, runs: Runs, deaths: Sequence[Deaths]) -> tuple[Incident, ...]:
    """Return the alerts that fired and how each incident ended, the most severe first.

    Args:
        archive: The Prometheus server and the period.
        runs: The runs of the period, from which the verdicts and resolutions are derived.
        deaths: The container deaths of the period, from which the verdicts and resolutions are
            derived.
    """
    summaries, gaps = _find_summaries(archive), len(archive.gaps)
    courses = _read_courses(archive)
    if len(archive.gaps) > gaps:
        return ()  # without the end times, all alerts would seem to be firing
    found = []
    for key, course in courses.items():
        if archive.filters.runs and course.run not in archive.filters.runs:
            continue
        spans = _make_spans(course, archive.period.end)
        if spans:
            alert, severity, instance, subject = key
            verdict = _write_verdict(
                summaries.get(alert, ""), course, instance, runs, deaths, spans
            )
            incident = Incident(
                alert, severity, instance, subject, verdict, spans, course.is_firing, ""
            )
            found.append(replace(incident, resolution=_resolve(incident, course, runs, deaths)))
    return tuple(
        sorted(
            found,
            key=lambda each: (
                _URGENCY.get(each.severity, 3),
                not each.is_firing,
                -each.seconds,
                each.alert,
                each.instance,
            ),
        )
    )


def find_deaths(archive: Archive) -> tuple[Deaths, ...]:
    """Return the container deaths of the period by reason, the most frequent first."""
    by = "instance, name"
    died = archive.ask_changes(
        "deaths of containers",
        f"(max by ({by}, reason) (last_over_time(container_last_death_info{{@host}}[1m]%s))"
        f" * on ({by}) group_left () max by ({by})"
        " (last_over_time(container_last_death_timestamp_seconds{@host}[1m]%s)))",
    )
    rise = write_rise("container_deaths_total{@host}")
    running = {
        (each.labels.get("instance", ""), each.labels.get("name", "")): each.last > 0
        for each in archive.ask_end(
            "which containers run", f'max by ({by}) (container_state{{@host, state="running"}})'
        )
    }
    counted = {
        (each.labels.get("instance"), each.labels.get("name"), each.labels.get("reason")): round(
            count_seconds((each,))
        )
        for each in archive.ask_hours(
            "how often containers died",
            f"sum by ({by}, reason) (sum_over_time({rise}[@hour:@step]))",
        )
    }
    found = []
    for one in died:
        moments = [time for time in list_times(one) if time >= archive.period.begin]
        instance, name, reason = (
            one.labels.get(each, "") for each in ("instance", "name", "reason")
        )
        if moments:
            count = max(len(moments), counted.get((instance, name, reason), 0))
            is_running = running.get((instance, name))
            found.append(Deaths(instance, name, reason, count, max(moments), is_running))
    return tuple(sorted(found, key=lambda each: (-each.count, each.instance, each.name)))


def _find_summaries(archive: Archive) -> dict[str, str]:
    try:
        groups = archive.prometheus.list_rules()
    except QueryError:
        return {}  # The data store does not evaluate rules; the alert's name suffices.
    return {rule.name: rule.summary for group in groups for rule in group.rules}


def _read_courses(archive: Archive) -> dict[_Key, _Course]:
    begin = archive.period.begin
    now, before = _FIRING % "", _FIRING % " offset 1m"
    courses: dict[_Key, _Course] = defaultdict(_Course)
    since = _find_since(archive, begin)
    for one in archive.ask_at("alerts", now, begin):
        held = since.get(frozenset(one.labels.items()), float(begin))
        _choose(courses, one).begins.append(held)
    for one in archive.ask_minutes("alerts", f"{now} unless {before}"):
        _choose(courses, one).begins += [moment for moment, _ in one.points]
    for one in archive.ask_minutes("alerts", f"{before} unless {now}"):
        _choose(courses, one).ends += [moment for moment, _ in one.points]
    for one in archive.ask_end("alerts", now):
        _choose(courses, one).is_firing = True
    return courses


def _choose(courses: dict[_Key, _Course], series: Series) -> _Course:
    labels = series.labels
    device = f"{labels.get('kind', '')} {labels.get('device', '')}".strip()
    subject = labels.get("run") or labels.get("name") or labels.get("mountpoint") or device
    key = (
        labels.get("alertname", ""),
        labels.get("severity", ""),
        labels.get("instance", ""),
        subject,
    )
    course = courses[key]
    course.run, course.container = labels.get("run", ""), labels.get("name", "")
    return course


def _find_since(archive: Archive, begin: int) -> dict[frozenset[tuple[str, str]], float]:
    """Return the start times of the alerts that fire at the period's start, by alert labels."""
    found = archive.ask_at(
        "since when alerts fire", f"min by ({_BY}) (ALERTS_FOR_STATE{{@host}})", begin
    )
    return {
        frozenset(one.labels.items()): one.last
        for one in found
        if begin - _LONGEST_SECONDS < one.last <= begin
    }


def _make_spans(course: _Course, end: float) -> tuple[tuple[float, float], ...]:
    """Return the spans in which an alert fired; spans separated by a short pause are joined."""
    spans: list[tuple[float, float]] = []
    ends = sorted(course.ends)
    for begin in sorted(course.begins):
        until = next((each for each in ends if each > begin), end)
        if spans and begin - spans[-1][1] <= _SHORTEST_PAUSE_SECONDS:
            spans[-1] = spans[-1][0], max(until, spans[-1][1])
        else:
            spans.append((begin, until))
    return tuple(spans)


def _write_verdict(
    summary: str,
    course: _Course,
    instance: str,
    runs: Runs,
    deaths: Sequence[Deaths],
    spans: Sequence[tuple[float, float]],
) -> str:
    """Return an alert's summary, with the reasons why the alert's run or container ended."""
    found = []
    if course.container:
        found = [
            f"{each.reason} {each.count} times" if each.count > 1 else each.reason
            for each in deaths
            if (each.instance, each.name) == (instance, course.container)
        ]
    elif course.run:
        found = _list_endings(_choose_attempts(course, instance, runs, spans))
    return f"{summary}: {', '.join(found)}" if summary and found else summary or ", ".join(found)


def _choose_attempts(
    course: _Course, instance: str, runs: Runs, spans: Sequence[tuple[float, float]]
) -> list[Attempt]:
    """Return the run starts that failed or received SIGTERM, the latest first.

    A start counts if it ended while the alert fired, or up to `_SHOWN_SECONDS` before.
    """
    return [
        each
        for each in _list_attempts(course, instance, runs)
        if each.ended is not None
        and each.outcome in (BAD | {"terminated"})
        and any(begin - _SHOWN_SECONDS <= each.ended <= end for begin, end in spans)
    ]


def _list_attempts(course: _Course, instance: str, runs: Runs) -> list[Attempt]:
    return [each for each in runs.attempts if each.run == course.run and instance in each.instances]


def _list_endings(attempts: Iterable[Attempt]) -> list[str]:
    counts: dict[str, int] = defaultdict(int)
    for each in attempts:
        code = f" (exit code {each.exit_code})" if each.exit_code is not None else ""
        counts[f"{each.outcome}{code}"] += 1
    return [f"{words} {count} times" if count > 1 else words for words, count in counts.items()]


def _resolve(incident: Incident, course: _Course, runs: Runs, deaths: Sequence[Deaths]) -> str:
    """Return a text that describes how an incident ended."""
    if incident.is_firing:
        return "still fires"
    if course.run:
        return _resolve_run(incident, course, runs)
    states = {
        each.is_running
        for each in deaths
        if course.container and (each.instance, each.name) == (incident.instance, course.container)
    }
    if True in states:
        return "the container runs again"
    return "the container does not run" if False in states else _OVER


def _resolve_run(incident: Incident, course: _Course, runs: Runs) -> str:
    attempts = _list_attempts(course, incident.instance, runs)
    died = _choose_attempts(course, incident.instance, runs, incident.spans)
    if not attempts:
        return _OVER
    latest = attempts[0]
    if not died:
        over = latest.ended is not None and latest.ended <= incident.spans[-1][1]
        return (
            f"the run {_BECAME.get(latest.outcome, latest.outcome)}"
            if over
            else "the run did not end"
        )
    if not died[0].is_resumed:
        return "the run was not started again"
    return f"the run was started again and {_BECAME.get(latest.outcome, latest.outcome)}"
