"""Functions of time that determine simulated values in advance.

Every function depends only on the time in Unix seconds, so that a machine's past values and its
current values are consistent in all processes.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable

Course = Callable[[float], float]

DAY_SECONDS = 86_400.0
_CELL_SECONDS = 15.0


def constant(value: float) -> Course:
    """Return a course with a constant value."""
    return lambda _: value


def ripple(seed: int, now: float, *, seconds: float = 600.0) -> float:
    """Return a number that varies smoothly between -1 and 1 over time.

    Args:
        seed: The seed, which selects one of many such functions.
        now: The time in Unix seconds.
        seconds: The longest period in seconds.
    """
    turns = now / seconds
    return (
        0.5 * math.sin(math.tau * (turns + 0.618 * seed))
        + 0.3 * math.sin(math.tau * (turns * 2.71 + 0.382 * seed))
        + 0.2 * math.sin(math.tau * (turns * 8.83 + 0.271 * seed))
    )


def around(value: float, by: float, seed: int, *, seconds: float = 600.0) -> Course:
    """Return a course that varies around a value, by at most the share `by` of the value."""
    return lambda now: value * (1 + by * ripple(seed, now, seconds=seconds))


def daylight(now: float) -> float:
    """Return the intensity of daily activity: 0 at night, 1 in the afternoon (UTC)."""
    return 0.5 - 0.5 * math.cos(math.tau * (now / DAY_SECONDS - 0.1))


def ramp(now: float, start: float, end: float) -> float:
    """Return the elapsed share of an interval: 0 before the interval, 1 after it."""
    return min(1.0, max(0.0, (now - start) / (end - start)))


class Total:
    """The integral of a changing rate since a start time.

    The rate is evaluated in the middle of cells that begin at fixed times, so that the total at a
    given time is the same in every process, regardless of previous calls.

    Args:
        rate: The increase per second as a function of time; never negative.
        start: The time from which the total is accumulated, in Unix seconds.
        before: The total at the start time.
    """

    def __init__(self, rate: Course, start: float, before: float = 0.0) -> None:
        self._rate = rate
        self._start = start
        self._sums = array("d", [before])

    def at(self, now: float) -> float:
        """Return the total at a time; before the start time, it is the total at the start time."""
        cell, rest = divmod(max(0.0, now - self._start), _CELL_SECONDS)
        while len(self._sums) <= cell + 1:
            middle = self._start + (len(self._sums) - 0.5) * _CELL_SECONDS
            self._sums.append(self._sums[-1] + _CELL_SECONDS * self._rate(middle))
        low, high = self._sums[int(cell)], self._sums[int(cell) + 1]
        return low + (high - low) * rest / _CELL_SECONDS
