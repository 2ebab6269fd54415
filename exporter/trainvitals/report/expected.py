"""The measured pace and memory of runs, and the values that the baselines file expects."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from trainvitals.report.archive import HOUR, Archive, find_extreme
from trainvitals.report.training import Expectation, Figure
from trainvitals.sources.prometheus import Points, Series

_BY = "instance, run"
_EPOCHS = "training_epoch{@run} + training_epoch_progress_ratio{@run} or training_epoch{@run}"
# `*` keeps the labels of the run's series. The match is unique, because each held accelerator has
# at most one memory series.
_HELD = (
    "run:accelerator_held:bool{@run}"
    " * on (job, instance, uuid) group_left () accelerator_memory_used_bytes{@host}"
)
_MOST_STEPS_APART = 2

_Place = tuple[str, str]  # machine and run


def find_expectations(archive: Archive) -> tuple[Expectation, ...]:
    """Return the expected and measured figures of runs, sorted by run and machine."""
    paces = _find_expected(archive, "training_expected_epoch_seconds")
    sizes = _find_expected(archive, "training_expected_memory_bytes")
    found = [*_compare_pace(archive, paces), *_compare_memory(archive, sizes)]
    return tuple(sorted(found, key=lambda each: (each.run, each.instance)))


def _find_expected(archive: Archive, metric: str) -> dict[_Place, float]:
    """Return the latest value of the metric for each machine and run.

    Values that are not positive are omitted.
    """
    series = archive.ask_hours(
        "what is expected of runs",
        f"max by ({_BY}) (last_over_time({metric}{{@run}}[@hour]))",
    )
    return {_place(each): each.last for each in series if each.last > 0}


def _compare_pace(archive: Archive, expected: dict[_Place, float]) -> Iterator[Expectation]:
    if not expected:
        return
    series = archive.ask_moments(
        "the epochs of runs",
        f"max by ({_BY}) (({_EPOCHS}) and on ({_BY}) training_expected_epoch_seconds{{@run}})",
    )
    points = {_place(each): each.points for each in series}
    longest = _MOST_STEPS_APART * archive.step_seconds
    for place, seconds in expected.items():
        measured, by_hour = _measure_pace(points.get(place, ()), archive.period.begin, longest)
        yield _compare(place, "pace", HOUR / seconds, measured, by_hour)


def _measure_pace(points: Points, begin: float, longest: float) -> tuple[float | None, Points]:
    """Return a run's epochs per hour until its last progress, and its epochs per hour by hour.

    The first value is None if no progress is known.

    Args:
        points: The current epoch at each step, including the completed fraction of the epoch.
        begin: The start of the first hour, in Unix seconds.
        longest: The longest interval between two points, in seconds; a longer interval is a gap in
            the data, which does not count.
    """
    gains, seconds = defaultdict[float, float](float), defaultdict[float, float](float)
    for (before, first), (after, last) in pairwise(_cut_standstill(points)):
        if not 0 < after - before <= longest or last < first:
            continue  # a gap in the data, or the run restarted
        end = begin + HOUR * math.ceil((after - begin) / HOUR)
        gains[end] += last - first
        seconds[end] += after - before
    total = math.fsum(seconds.values())
    by_hour = tuple((end, gains[end] / seconds[end] * HOUR) for end in sorted(seconds))
    return (math.fsum(gains.values()) / total * HOUR if total else None), by_hour


def _cut_standstill(points: Points) -> Points:
    """Return the points up to the last change; a run's metrics remain after the run has ended."""
    changes = [
        place for place, (before, after) in enumerate(pairwise(points), 1) if before[1] != after[1]
    ]
    return points[: changes[-1] + 1] if changes else ()


def _compare_memory(archive: Archive, expected: dict[_Place, float]) -> Iterator[Expectation]:
    if not expected:
        return
    series = archive.ask_hours(
        "the device memory of runs",
        f"max by ({_BY}) (max_over_time(({_HELD})[@hour:@step]))",
    )
    found = {_place(each): each for each in series}
    for place, size in expected.items():
        one = found.get(place)
        peak = None if one is None else find_extreme(one, is_highest=True)
        by_hour = () if one is None else one.points
        yield _compare(place, "memory", size, None if peak is None else peak[1], by_hour)


def _compare(
    place: _Place, figure: Figure, expected: float, measured: float | None, by_hour: Points
) -> Expectation:
    instance, run = place
    return Expectation(run, instance, figure, expected, measured, by_hour)


def _place(series: Series) -> _Place:
    return series.labels.get("instance", ""), series.labels.get("run", "")
