"""Numbers that change over time and are known in advance.

All of them are functions of a moment alone, in Unix seconds, so that what a machine shows of six
hours ago and what it shows now fit together, whichever process asks.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable

Course = Callable[[float], float]

DAY_SECONDS = 86_400.0
_CELL_SECONDS = 15.0


def constant(value: float) -> Course:
    """Return a course that keeps its value."""
    return lambda _: value


def ripple(seed: int, now: float, *, seconds: float = 600.0) -> float:
    """Return a number that wanders smoothly between -1 and 1.

    Args:
        seed: Selects one of many such numbers.
        now: The moment.
        seconds: How long its longest wave takes.
    """
    turns = now / seconds
    return (
        0.5 * math.sin(math.tau * (turns + 0.618 * seed))
        + 0.3 * math.sin(math.tau * (turns * 2.71 + 0.382 * seed))
        + 0.2 * math.sin(math.tau * (turns * 8.83 + 0.271 * seed))
    )


def around(value: float, by: float, seed: int, *, seconds: float = 600.0) -> Course:
    """Return a course that wanders around a value, by a share of it at most."""
    return lambda now: value * (1 + by * ripple(seed, now, seconds=seconds))


def daylight(now: float) -> float:
    """Return how far the working day is: 0 in the night, 1 in the afternoon (UTC)."""
    return 0.5 - 0.5 * math.cos(math.tau * (now / DAY_SECONDS - 0.1))


def ramp(now: float, start: float, end: float) -> float:
    """Return how much of a time has passed: 0 before it, 1 after it."""
    return min(1.0, max(0.0, (now - start) / (end - start)))


class Total:
    """What has come together since a moment, of something that comes at a changing rate.

    The rate is asked for in the middle of cells that begin at fixed moments, so that the same
    moment has the same total in every process, whatever was asked before.

    Args:
        rate: How much comes in a second; never less than 0.
        start: The moment from which it is counted.
        before: What there was at that moment.
    """

    def __init__(self, rate: Course, start: float, before: float = 0.0) -> None:
        self._rate = rate
        self._start = start
        self._sums = array("d", [before])

    def at(self, now: float) -> float:
        """Return the total at a moment; before the start it is what it was at the start."""
        cell, rest = divmod(max(0.0, now - self._start), _CELL_SECONDS)
        while len(self._sums) <= cell + 1:
            middle = self._start + (len(self._sums) - 0.5) * _CELL_SECONDS
            self._sums.append(self._sums[-1] + _CELL_SECONDS * self._rate(middle))
        low, high = self._sums[int(cell)], self._sums[int(cell) + 1]
        return low + (high - low) * rest / _CELL_SECONDS
