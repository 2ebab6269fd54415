"""The runs of a period: each of their starts, and how it ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from trainvitals.report.archive import Archive, count_seconds, list_changes, write_rise
from trainvitals.report.best import find_best
from trainvitals.report.promapi import Series
from trainvitals.report.training import Attempt, Observed, Outcome, Runs

_INTERRUPTED, _TERMINATED = 130, 143
_REASONS: Mapping[str, Outcome] = {
    "finished": "completed",
    "exception": "failed",
    "oom": "out of memory",
    "signal": "killed",
    "unknown": "unknown",
}
# A launcher starts its ranks one after another.
_TOGETHER_SECONDS = 60.0
# What an end without a known reason is told of, it is told of again within this time.
_SAME_END_SECONDS = 30.0

_Place = tuple[str, str]  # run and machine; the machine is empty for a run of several


@dataclass(frozen=True, slots=True)
class _End:
    """The end of one rank."""

    time: float
    rank: str
    reason: str


@dataclass(slots=True)
class _Course:
    """What was seen of one run on one machine, or of one run of several machines."""

    instances: set[str] = field(default_factory=set)
    starts: list[float] = field(default_factory=list)
    ends: list[_End] = field(default_factory=list)
    codes: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    is_alive: bool = False
    is_silent: bool = False


def find_runs(archive: Archive, targets: Mapping[str, float]) -> Runs:
    """Ask for all that is told of runs.

    Args:
        archive: Whom to ask.
        targets: What metrics should reach, by name.
    """
    told = archive.ask_hours(
        "whether anybody looks for runs",
        "group(last_over_time(training_client_incompatible_files{@host}[@hour])"
        " or last_over_time(training_run_info{@host}[@hour]))",
    )
    gaps = len(archive.gaps)
    courses = _read_courses(archive)
    if len(archive.gaps) > gaps:
        return Runs()  # without the ends all would seem to have vanished
    attempts = [
        attempt for place, course in courses.items() for attempt in _part(place[0], course, archive)
    ]
    lost = archive.ask_hours(
        "time lost to restarts", _sum_rise("training_lost_seconds_total{@run}")
    )
    steps = archive.ask_hours(
        "steps lost to restarts", _sum_rise("training_lost_steps_total{@run}")
    )
    return Runs(
        is_told=bool(told),
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
        choose(one).starts += [value for _, value in list_changes(one)]
    for one in _ask_ranks(archive, "when runs ended", "training_process_end_timestamp_seconds"):
        choose(one).ends += [
            _End(value, _name_rank(one), one.labels.get("reason", ""))
            for _, value in list_changes(one)
        ]
    for one in _ask_ranks(archive, "the exit codes of runs", "training_process_exit_code"):
        choose(one).codes[_name_rank(one)] += [(time, int(code)) for time, code in one.points]
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
    """Name the runs that have ranks on several machines."""
    there = archive.ask_hours(
        "runs of several machines",
        "count by (run) (count by (run, instance) (last_over_time(training_world_size{@run}[@hour])"
        " > on (job, instance, run) group_left ()"
        " count by (job, instance, run) (last_over_time(training_process_up{@run}[@hour])))) > 1",
    )
    return frozenset(each.labels.get("run", "") for each in there)


def _name_rank(series: Series) -> str:
    return f"{series.labels.get('instance', '')} {series.labels.get('rank', '')}"


def _part(run: str, course: _Course, archive: Archive) -> Iterable[Attempt]:
    """Part the course of a run into its starts, each with how it ended."""
    starts = _gather(course.starts)
    for start, following in zip(starts, [*starts[1:], None], strict=True):
        until = following if following is not None else float("inf")
        ends = [end for end in course.ends if start <= end.time < until]
        is_last = following is None
        if is_last and course.is_alive:
            yield _tell(run, course, start, None, "active", None, is_resumed=False)
            continue
        if ends and max(end.time for end in ends) < archive.period.begin:
            continue  # it is still shown, but belongs to the time before
        ended = max((end.time for end in ends), default=None)
        outcome, code = _judge(ends, course)
        if not ends and is_last and course.is_silent:
            outcome = "unknown"
        yield _tell(run, course, start, ended, outcome, code, is_resumed=not is_last)


def _gather(moments: Iterable[float]) -> list[float]:
    """Take starts of ranks that belong together as one: the first of them."""
    starts: list[float] = []
    latest = float("-inf")
    for moment in sorted(moments):
        if moment - latest > _TOGETHER_SECONDS:
            starts.append(moment)
        latest = moment
    return starts


def _tell(
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


def _judge(ends: Sequence[_End], course: _Course) -> tuple[Outcome, int | None]:
    """Say how a start ended: as the rank did that ended first and not well."""
    if not ends:
        return "vanished", None
    known = [end for end in ends if not _is_retold(end, ends)]
    bad = sorted(
        (end for end in known if end.reason != "finished"), key=lambda end: (end.time, end.rank)
    )
    if not bad:
        return "completed", _find_code(known[0], course)
    first = next((end for end in bad if end.reason in {"oom", "exception"}), bad[0])
    code = _find_code(first, course)
    if code == _INTERRUPTED:
        return "interrupted", code
    if code == _TERMINATED and first.reason == "signal":
        return "terminated", code
    return _REASONS.get(first.reason, "unknown"), code


def _is_retold(end: _End, ends: Iterable[_End]) -> bool:
    """Whether more was told of an end later."""
    return end.reason == "unknown" and any(
        other.reason != "unknown"
        and other.rank == end.rank
        and abs(other.time - end.time) < _SAME_END_SECONDS
        for other in ends
    )


def _find_code(end: _End, course: _Course) -> int | None:
    """Give the exit code of a rank that was first told after its end, else the one that stayed."""
    codes = course.codes[end.rank]
    later = [each for each in codes if each[0] >= end.time]
    earlier = [each for each in codes if each[0] < end.time]
    if later:
        return min(later)[1]
    return max(earlier)[1] if earlier else None


def _find_observed(archive: Archive) -> tuple[Observed, ...]:
    by = "instance, run, source"
    told = archive.ask_hours(
        "runs that logs tell of",
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
        for each in told
        for instance, run in [(each.labels.get("instance", ""), each.labels.get("run", ""))]
    )
