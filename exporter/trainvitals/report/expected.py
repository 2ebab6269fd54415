"""The pace and the memory of runs beside what the exporter's file of baselines expects."""

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
# `*` keeps the run's labels, and what a run holds has no more than one series of this name.
_HELD = (
    "run:accelerator_held:bool{@run}"
    " * on (job, instance, uuid) group_left () accelerator_memory_used_bytes{@host}"
)
_MOST_STEPS_APART = 2

_Place = tuple[str, str]  # machine and run


def find_expectations(archive: Archive) -> tuple[Expectation, ...]:
    """Return what is expected of runs, with what was measured, by run and figure."""
    paces = _find_expected(archive, "training_expected_epoch_seconds")
    sizes = _find_expected(archive, "training_expected_memory_bytes")
    found = [*_compare_pace(archive, paces), *_compare_memory(archive, sizes)]
    return tuple(sorted(found, key=lambda each: (each.run, each.instance)))


def _find_expected(archive: Archive, metric: str) -> dict[_Place, float]:
    """Return the latest value of each run that is above 0."""
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
    """Return the epochs per hour until the last progress, and those of each hour, at its end.

    Args:
        points: The epoch at each step, with its share.
        begin: Unix seconds from which hours are counted.
        longest: The distance of two points from which on there is a gap between them, seconds.
    """
    gains, seconds = defaultdict[float, float](float), defaultdict[float, float](float)
    for (before, first), (after, last) in pairwise(_cut_standstill(points)):
        if after - before > longest or last < first:
            continue  # nothing is known of that time, or the run started again
        end = begin + HOUR * math.ceil((after - begin) / HOUR)
        gains[end] += last - first
        seconds[end] += after - before
    total = math.fsum(seconds.values())
    by_hour = tuple((end, gains[end] / seconds[end] * HOUR) for end in sorted(seconds))
    return (math.fsum(gains.values()) / total * HOUR if total else None), by_hour


def _cut_standstill(points: Points) -> Points:
    """Leave out what follows the last change: a run is shown for a while after its end."""
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
