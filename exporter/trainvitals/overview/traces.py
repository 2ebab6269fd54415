"""The past quarter of an hour of numbers, in steps of `TRACE_STEP_SECONDS`.

A step holds the mean of what was seen in it. Nobody looks for the sake of a trace, so steps may
be empty: one in which somebody looked and nothing was known is a gap, and one in which nobody looked
lies on the line between its neighbours, where these are no more than `BRIDGED_STEPS` apart.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable
from itertools import pairwise

from trainvitals.overview.picture import TRACE_POINTS, TRACE_STEP_SECONDS, Trace

BRIDGED_STEPS = 6
MOST_TRACES = 1024

_NOBODY_LOOKED, _NOTHING_KNOWN = 0, -1


class _Ring:
    """One number: for each step the sum of what was seen, and how often it was."""

    __slots__ = ("counts", "sums", "touched")

    def __init__(self) -> None:
        self.sums = array("d", bytes(8 * TRACE_POINTS))
        self.counts = array("l", bytes(array("l").itemsize * TRACE_POINTS))
        self.touched = 0


class Traces:
    """The past of some numbers, by key.

    What was not added to for as long as a trace is long is forgotten.

    Args:
        most: How many numbers to keep; beyond that the one goes that was added to the longest ago.
    """

    def __init__(self, most: int = MOST_TRACES) -> None:
        self._most = most
        self._rings: dict[Hashable, _Ring] = {}
        self._step: int | None = None
        self._slot = 0

    def advance(self, time: float) -> None:
        """Go on to the step of this time, Unix seconds; a clock that was set back begins anew."""
        step = int(time // TRACE_STEP_SECONDS)
        if step == self._step:
            return
        if self._step is None or step < self._step or step - self._step >= TRACE_POINTS:
            self._rings.clear()
        else:
            self._clear(range(self._step + 1, step + 1))
        self._step, self._slot = step, step % TRACE_POINTS

    def add(self, key: Hashable, value: float | None) -> None:
        """Add what was seen now; None, or what is no finite number, for a gap."""
        ring = self._rings.get(key)
        if ring is None:
            ring = self._begin(key)
        slot, counts = self._slot, ring.counts
        count = counts[slot]
        if value is None or not math.isfinite(value):
            counts[slot] = count or _NOTHING_KNOWN
        elif count > 0:
            ring.sums[slot] += value
            counts[slot] = count + 1
        else:
            ring.sums[slot] = value
            counts[slot] = 1
        ring.touched = self._step or 0

    def add_gaps(self) -> None:
        """Add a gap everywhere: somebody looked, and nothing was known at all."""
        for ring in self._rings.values():
            if ring.counts[self._slot] == _NOBODY_LOOKED:
                ring.counts[self._slot] = _NOTHING_KNOWN

    def tell(self, key: Hashable) -> Trace:
        """Give one number's past, the oldest first, None for gaps; empty where nothing is known."""
        ring = self._rings.get(key)
        if ring is None or max(ring.counts) <= 0:
            return ()
        begin = self._slot + 1
        sums = ring.sums[begin:] + ring.sums[:begin]
        counts = ring.counts[begin:] + ring.counts[:begin]
        points = [
            total / count if count > 0 else None for total, count in zip(sums, counts, strict=True)
        ]
        if _NOBODY_LOOKED in counts:
            _bridge(points, [at for at, count in enumerate(counts) if count != _NOBODY_LOOKED])
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
                ring.counts[slot] = _NOBODY_LOOKED


def _bridge(points: list[float | None], seen: list[int]) -> None:
    """Draw a line through the steps in which nobody looked."""
    for before, after in pairwise(seen):
        first, last = points[before], points[after]
        if 1 < after - before <= BRIDGED_STEPS and first is not None and last is not None:
            slope = (last - first) / (after - before)
            for at in range(before + 1, after):
                points[at] = first + slope * (at - before)
