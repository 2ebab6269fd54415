"""Keeps the last 15 minutes of the values that the page draws, in steps of `TRACE_STEP_SECONDS`.

Each step contains the mean of the step's values. A step whose readings had no value is a gap. No
reading is made only for a trace, so a step may contain no reading. Such a step is interpolated if
the steps with readings before and after it are at most `BRIDGED_STEPS` apart.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable
from itertools import pairwise

from trainvitals.views.machine.picture import TRACE_POINTS, TRACE_STEP_SECONDS, Trace

BRIDGED_STEPS = 6
MOST_TRACES = 1024

_NOT_READ, _NO_VALUE = 0, -1


class _Ring:
    """The sum and the number of a value's readings in each step."""

    __slots__ = ("counts", "sums", "touched")

    def __init__(self) -> None:
        self.sums = array("d", bytes(8 * TRACE_POINTS))
        self.counts = array("l", bytes(array("l").itemsize * TRACE_POINTS))
        self.touched = 0


class Traces:
    """The traces of numbers, by key.

    A trace is removed after no value or gap has been added to it for 15 minutes.

    Args:
        most: The maximum number of keys; at the limit, a new key replaces the least recently
            updated key.
    """

    def __init__(self, most: int = MOST_TRACES) -> None:
        self._most = most
        self._rings: dict[Hashable, _Ring] = {}
        self._step: int | None = None
        self._slot = 0

    def advance(self, time: float) -> None:
        """Advance to the step of a Unix time.

        All traces are cleared if the system clock was set back, or if 15 minutes have passed since
        the previous step.
        """
        step = int(time // TRACE_STEP_SECONDS)
        if step == self._step:
            return
        if self._step is None or step < self._step or step - self._step >= TRACE_POINTS:
            self._rings.clear()
        else:
            self._clear(range(self._step + 1, step + 1))
        self._step, self._slot = step, step % TRACE_POINTS

    def add(self, key: Hashable, value: float | None) -> None:
        """Add a value to the current step of a trace; None, NaN and infinities add a gap."""
        ring = self._rings.get(key)
        if ring is None:
            ring = self._begin(key)
        slot, counts = self._slot, ring.counts
        count = counts[slot]
        if value is None or not math.isfinite(value):
            counts[slot] = count or _NO_VALUE
        elif count > 0:
            ring.sums[slot] += value
            counts[slot] = count + 1
        else:
            ring.sums[slot] = value
            counts[slot] = 1
        ring.touched = self._step or 0

    def add_gaps(self) -> None:
        """Add a gap to every trace, after a failed reading."""
        for ring in self._rings.values():
            if ring.counts[self._slot] == _NOT_READ:
                ring.counts[self._slot] = _NO_VALUE

    def read(self, key: Hashable) -> Trace:
        """Return a trace with the oldest point first and None for gaps.

        The trace is empty if it contains no value.
        """
        ring = self._rings.get(key)
        if ring is None or max(ring.counts) <= 0:
            return ()
        begin = self._slot + 1
        sums = ring.sums[begin:] + ring.sums[:begin]
        counts = ring.counts[begin:] + ring.counts[:begin]
        points = [
            total / count if count > 0 else None for total, count in zip(sums, counts, strict=True)
        ]
        if _NOT_READ in counts:
            _bridge(points, [at for at, count in enumerate(counts) if count != _NOT_READ])
        return tuple(points)

    def _begin(self, key: Hashable) -> _Ring:
        if len(self._rings) >= self._most:
            del self._rings[min(self._rings, key=lambda each: self._rings[each].touched)]
        ring = self._rings[key] = _Ring()
        return ring

    def _clear(self, steps: range) -> None:
        oldest = steps.stop - TRACE_POINTS
        for key in [key for key, ring in self._rings.items() if ring.touched < oldest]:
            del self._rings[key]
        slots = [step % TRACE_POINTS for step in steps]
        for ring in self._rings.values():
            for slot in slots:
                ring.counts[slot] = _NOT_READ


def _bridge(points: list[float | None], seen: list[int]) -> None:
    """Interpolate the points of steps without a reading, if the gap is short enough."""
    for before, after in pairwise(seen):
        first, last = points[before], points[after]
        if 1 < after - before <= BRIDGED_STEPS and first is not None and last is not None:
            slope = (last - first) / (after - before)
            for at in range(before + 1, after):
                points[at] = first + slope * (at - before)
