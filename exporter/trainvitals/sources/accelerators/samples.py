"""Exact busy time out of a driver's sample buffer.

The driver notes the utilization of each short period (1/6 s to 1 s) with the time stamp of the
period's end, and keeps about the last hundred. Summed up since the last sample that was counted,
they are the device's busy time, independent of when and how often it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from trainvitals.sources.accelerators.row import BusyTime

_USUAL_PERIOD_US = 166_667
_GAP_IN_PERIODS = 2.5


def integrate_samples(
    stamps: Sequence[int], percents: Sequence[int], *, since: int | None, is_full: bool
) -> BusyTime:
    """Sum up busy time since a sample.

    Args:
        stamps: Ends of the periods in microseconds, ascending, all newer than `since`.
        percents: Utilization in each period, 0 to 100.
        since: The newest sample that was counted before; 0 if there was none in the buffer then;
            None if nothing was ever counted, which makes this the start.
        is_full: Whether the buffer is full, so that older samples may have been lost. A gap in a
            full buffer counts with the mean of the remaining samples; a gap in one that is not full
            is time without activity, and counts as idle.
    """
    if not stamps:
        return since or 0, 0.0, 0.0
    if since is None:
        return stamps[-1], 0.0, 0.0
    period = _period_us(stamps)
    busy_us = 0.0
    lost_us = 0
    before = since or stamps[0] - period
    for stamp, percent in zip(stamps, percents, strict=True):
        step = stamp - before
        if step > _GAP_IN_PERIODS * period:
            if is_full and before == since:
                lost_us = step - period
            step = period
        busy_us += step * percent
        before = stamp
    if lost_us:
        busy_us += lost_us * sum(percents) / len(percents)
    return stamps[-1], busy_us / 100e6, lost_us / 1e6


def _period_us(stamps: Sequence[int]) -> int:
    steps = sorted(after - before for before, after in pairwise(stamps))
    return steps[len(steps) // 2] if steps else _USUAL_PERIOD_US
