"""The runs in a period: each start of a run, and how the start ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from trainvitals.foreign_numbers import read_count
from trainvitals.report.archive import Archive, count_seconds, list_times, write_rise
from trainvitals.report.best import find_best
from trainvitals.report.training import Attempt, Observed, Outcome, Runs
from trainvitals.sources.prometheus import Series
from trainvitals.sources.runs.endings import Reason
from trainvitals.verdicts.run_states import Request, name_end
from trainvitals.verdicts.thresholds import Thresholds

_OUTCOMES: Mapping[Reason | Request, Outcome] = {
    "finished": "completed",
    "exception": "failed",
    "oom": "out of memory",
    "signal": "killed",
    "interrupted": "interrupted",
    "terminated": "terminated",
    "unknown": "unknown",
}
# Launchers start the processes of ranks one after another. Processes that start within this time of
# the previous process belong to the same start of the run.
_TOGETHER_SECONDS = 60.0
# The kernel reports process start times in clock ticks, and the system clock may be adjusted.
_CLOCK_SECONDS = 1.0
_BY_RANK = "instance, run, rank"
# The durations of a run's phases add up to the run's age. The first phase may begin long after the
# process starts, because imports take time and because one process can train twice.
_PHASES = f"sum by ({_BY_RANK}) (last_over_time(training_phase_seconds_total{{@run}}[1m]%s))"
# The sum of the phases is complete only after an orderly end.
_ENDS = (
    f"max by ({_BY_RANK}) (last_over_time("
    'training_process_end_timestamp_seconds{@run, reason=~"finished|exception"}[1m]%s))'
)
_SCRAPED = f"max by ({_BY_RANK}) (timestamp(training_phase_seconds_total{{@run}}))"
_SPENT = f"sum by ({_BY_RANK}) (training_phase_seconds_total{{@run}})"
# An end whose reason is unknown at first may be reported again with its reason within this time.
_SAME_END_SECONDS = 30.0

_Place = tuple[str, str]  # run and machine; the machine is empty for a run with ranks on several


@dataclass(frozen=True, slots=True)
class _End:
    """The reported end of one rank."""

    time: float
    rank: str
    reason: str


@dataclass(slots=True)
class _Course:
    """Observations of a run, on one machine or on all of the run's machines.

    Attributes:
        instances: The machines with ranks of the run.
        starts: The start times of the run's processes, in Unix seconds.
        own_starts: The start times of the first phase in processes with an orderly end, in Unix
            seconds.
        latest_starts: Upper bounds for the start times of the first phase, in Unix seconds.
        ends: The ends of the run's ranks, with times in Unix seconds.
        codes: The exit codes by machine and rank, each with the Unix time of its report.
        is_alive: Whether a rank of the run was alive at the end of the period.
        is_silent: Whether a machine of the run did not respond at the end of the period.
    """

    instances: set[str] = field(default_factory=set)
    starts: list[float] = field(default_factory=list)
    own_starts: list[float] = field(default_factory=list)
    latest_starts: list[float] = field(default_factory=list)
    ends: list[_End] = field(default_factory=list)
    codes: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    is_alive: bool = False
    is_silent: bool = False


def find_runs(archive: Archive, targets: Mapping[str, float]) -> Runs:
    """Return the runs that Prometheus recorded in a period.

    Args:
        archive: The Prometheus server and the period.
        targets: The target values of metrics, by metric name.
    """
    found = archive.ask_hours(
        "whether an exporter reports runs",
        "group(last_over_time(training_client_incompatible_files{@host}[@hour])"
        " or last_over_time(training_run_info{@host}[@hour]))",
    )
    gaps = len(archive.gaps)
    courses = _read_courses(archive)
    if len(archive.gaps) > gaps:
        return Runs()  # without the end times, all runs would seem to have vanished
    attempts = [
        attempt
        for place, course in courses.items()
        for attempt in _split(place[0], course, archive)
    ]
    lost = archive.ask_hours(
        "time lost to restarts", _sum_rise("training_lost_seconds_total{@run}")
    )
    steps = archive.ask_hours(
        "steps lost to restarts", _sum_rise("training_lost_steps_total{@run}")
    )
    return Runs(
        is_told=bool(found),
        attempts=tuple(sorted(attempts, key=lambda each: (-each.started, each.run))),
        observed=_find_observed(archive),
        best=find_best(archive, targets),
        lost_seconds=count_seconds(lost) if lost else None,
        lost_steps=count_seconds(steps) if steps else None,
    )


def _sum_rise(counter: str) -> str:
    return f"sum(sum_over_time({write_rise(counter)}[@hour:@step]))"


def _read_courses(archive: Archive) -> dict[_Place, _Course]:
    shared = _find_shared(archive)
    courses: dict[_Place, _Course] = defaultdict(_Course)

    def choose(series: Series) -> _Course:
        run, instance = series.labels.get("run", ""), series.labels.get("instance", "")
        course = courses[run, "" if run in shared else instance]
        course.instances.add(instance)
        return course

    for one in _ask_ranks(archive, "when runs started", "training_process_start_time_seconds"):
        choose(one).starts += list_times(one)
    for one in archive.ask_changes("how long runs took", f"({_ENDS} - {_PHASES})"):
        choose(one).own_starts += list_times(one)
    for one in archive.ask_hours(
        "how long runs have been going on",
        f"min_over_time(({_SCRAPED} - {_SPENT})[@hour:@step])",
    ):
        choose(one).latest_starts += list_times(one)
    for one in _ask_ranks(archive, "when runs ended", "training_process_end_timestamp_seconds"):
        choose(one).ends += [
            _End(time, _name_rank(one), one.labels.get("reason", "")) for time in list_times(one)
        ]
    for one in _ask_ranks(archive, "the exit codes of runs", "training_process_exit_code"):
        choose(one).codes[_name_rank(one)] += [
            (time, code) for time, value in one.points if (code := read_count(value)) is not None
        ]
    for one in archive.ask_end(
        "which runs live", "max by (instance, run) (training_process_up{@run}) == 1"
    ):
        choose(one).is_alive = True
    for one in archive.ask_end(
        "which machines answer",
        "group by (instance, run) (last_over_time(training_process_up{@run}[1d]))"
        " unless on (instance) (training_client_incompatible_files or training_run_info)",
    ):
        choose(one).is_silent = True
    return courses


def _ask_ranks(archive: Archive, what: str, metric: str) -> tuple[Series, ...]:
    return archive.ask_changes(what, f"last_over_time({metric}{{@run}}[1m]%s)")


def _find_shared(archive: Archive) -> frozenset[str]:
    """Return the names of the runs that have ranks on several machines."""
    there = archive.ask_hours(
        "runs of several machines",
        "count by (run) (count by (run, instance) (last_over_time(training_world_size{@run}[@hour])"
        " > on (job, instance, run) group_left ()"
        " count by (job, instance, run) (last_over_time(training_process_up{@run}[@hour])))) > 1",
    )
    return frozenset(each.labels.get("run", "") for each in there)


def _name_rank(series: Series) -> str:
    return f"{series.labels.get('instance', '')} {series.labels.get('rank', '')}"


def _split(run: str, course: _Course, archive: Archive) -> Iterable[Attempt]:
    """Yield the starts of a run, each with its end time and outcome."""
    starts = _list_starts(course)
    for start, following in zip_longest(starts, starts[1:]):
        until = following if following is not None else float("inf")
        ends = [end for end in course.ends if start <= end.time < until]
        ended = max((end.time for end in ends), default=None)
        began = _find_own_start(course, start, until if ended is None else ended, archive)
        is_last = following is None
        if is_last and course.is_alive:
            yield _make_attempt(run, course, began, None, "active", None, is_resumed=False)
            continue
        if ends and max(end.time for end in ends) < archive.period.begin:
            continue  # The start ended before the period, but the exporter still reported it.
        outcome, code = _find_outcome(ends, course, archive.thresholds)
        if not ends and is_last and course.is_silent:
            outcome = "unknown"
        yield _make_attempt(run, course, began, ended, outcome, code, is_resumed=not is_last)


def _list_starts(course: _Course) -> list[float]:
    """Return the times at which a run was started, by new processes or again in a process."""
    starts = _gather(course.starts)
    for own in sorted(course.own_starts):
        latest = max((start for start in starts if start <= own), default=own)
        if any(latest <= end.time < own for end in course.ends):
            starts.append(own)
    return sorted(starts)


def _find_own_start(course: _Course, start: float, until: float, archive: Archive) -> float:
    """Return when a start's first phase began; if unknown, when its processes started.

    An upper bound may be too late by one step. An upper bound within the first step is therefore
    ignored.
    """
    own = [each for each in course.own_starts if start - _CLOCK_SECONDS <= each < until]
    own += [each for each in course.latest_starts if start + archive.step_seconds < each < until]
    return max(start, min(own, default=start))


def _gather(moments: Iterable[float]) -> list[float]:
    """Group start times that follow each other within a minute; return each group's first time."""
    starts: list[float] = []
    latest = float("-inf")
    for moment in sorted(moments):
        if moment - latest > _TOGETHER_SECONDS:
            starts.append(moment)
        latest = moment
    return starts


def _make_attempt(
    run: str,
    course: _Course,
    started: float,
    ended: float | None,
    outcome: Outcome,
    code: int | None,
    *,
    is_resumed: bool,
) -> Attempt:
    instances = tuple(sorted(course.instances))
    return Attempt(run, instances, started, ended, outcome, code, is_resumed)


def _find_outcome(
    ends: Sequence[_End], course: _Course, thresholds: Thresholds
) -> tuple[Outcome, int | None]:
    """Return a start's outcome and exit code, taken from a rank that did not finish, if any.

    This is the first rank that ended with an exception or an OOM kill, or else the first rank that
    did not finish.
    """
    if not ends:
        return "vanished", None
    known = [end for end in ends if not _is_superseded(end, ends)]
    bad = sorted(
        (end for end in known if end.reason != "finished"), key=lambda end: (end.time, end.rank)
    )
    if not bad:
        return "completed", _find_code(known[0], course)
    first = next((end for end in bad if end.reason in {"oom", "exception"}), bad[0])
    code = _find_code(first, course)
    return _OUTCOMES[name_end(first.reason, code, thresholds)], code


def _is_superseded(end: _End, ends: Iterable[_End]) -> bool:
    """Return whether an end without a known reason was also reported with the reason."""
    return end.reason == "unknown" and any(
        other.reason != "unknown"
        and other.rank == end.rank
        and abs(other.time - end.time) < _SAME_END_SECONDS
        for other in ends
    )


def _find_code(end: _End, course: _Course) -> int | None:
    """Return the first exit code reported after a rank's end, else the last before the end."""
    codes = course.codes[end.rank]
    later = [each for each in codes if each[0] >= end.time]
    earlier = [each for each in codes if each[0] < end.time]
    if later:
        return min(later)[1]
    return max(earlier)[1] if earlier else None


def _find_observed(archive: Archive) -> tuple[Observed, ...]:
    by = "instance, run, source"
    found = archive.ask_hours(
        "runs known from logs or event files",
        f'group by ({by}) (last_over_time(training_run_info{{@run, source!="client"}}[@hour]))',
    )
    moved = archive.ask_hours(
        "the progress of such runs",
        "max by (instance, run) (max_over_time("
        "training_last_progress_timestamp_seconds{@run}[@hour]))",
    )
    latest = {
        (each.labels.get("instance", ""), each.labels.get("run", "")): each.last for each in moved
    }
    return tuple(
        Observed(run, instance, each.labels.get("source", ""), latest.get((instance, run)))
        for each in found
        for instance, run in [(each.labels.get("instance", ""), each.labels.get("run", ""))]
    )
