"""Derives the recent increase of counters from readings at irregular intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence

_UNKNOWN = math.nan


class Counters:
    """The recent history of counters that are read together.

    As in Prometheus, a counter that decreased is assumed to have been reset to 0.

    Args:
        spacing_seconds: The minimum time between the readings that are kept; the latest reading is
            always kept.
        most: The maximum number of readings to keep.
    """

    __slots__ = ("_bases", "_most", "_raw", "_rows", "_spacing_seconds", "_times")

    def __init__(self, *, spacing_seconds: float = 1.0, most: int = 16) -> None:
        self._spacing_seconds = spacing_seconds
        self._most = most
        self._times: list[float] = []
        self._rows: list[list[float]] = []
        self._raw: list[float] = []
        self._bases: list[float] = []

    def take(self, time: float, values: Sequence[float | None]) -> None:
        """Add a reading of all counters at a Unix time; an unknown value is None.

        A reading that is not newer than the last reading is ignored. A reading that is earlier by
        more than `spacing_seconds` clears the history.
        """
        times = self._times
        if times and time <= times[-1]:
            if times[-1] - time <= self._spacing_seconds:
                return
            times.clear()
            self._rows.clear()
            self._raw = []
        row = self._correct([_UNKNOWN if value is None else value for value in values])
        if len(times) > 1 and times[-1] - times[-2] < self._spacing_seconds:
            times[-1], self._rows[-1] = time, row
            return
        times.append(time)
        self._rows.append(row)
        if len(times) > self._most:
            del times[0], self._rows[0]

    def rise(self, column: int, seconds: float) -> tuple[float, float] | None:
        """Return a counter's increase, and the seconds in which the increase occurred.

        Args:
            column: The index of the counter.
            seconds: The length of the interval that ends at the latest reading; if the interval
                contains no other reading, the interval begins at the previous reading.

        Returns:
            The increase and the seconds; None before the second reading, or if the counter is
            unknown at the start or end of the interval.
        """
        times, last = self._times, len(self._times) - 1
        if last < 1:
            return None
        first = last - 1
        while first > 0 and times[last] - times[first - 1] <= seconds:
            first -= 1
        rise = self._rows[last][column] - self._rows[first][column]
        return None if math.isnan(rise) else (rise, times[last] - times[first])

    def rate(self, column: int, seconds: float = 10.0) -> float | None:
        """Return a counter's increase per second; the arguments are those of `rise`."""
        risen = self.rise(column, seconds)
        return None if risen is None else risen[0] / risen[1]

    def _correct(self, raw: list[float]) -> list[float]:
        """Return the values of the counters, corrected for resets."""
        if not self._raw:
            self._raw, self._bases = raw, [0.0] * len(raw)
            return raw
        bases = self._bases
        for at, (before, now) in enumerate(zip(self._raw, raw, strict=True)):
            if now < before:
                bases[at] += before
        # An unknown value must not hide a later reset.
        self._raw = [
            before if math.isnan(now) else now for before, now in zip(self._raw, raw, strict=True)
        ]
        return [value + base for value, base in zip(raw, bases, strict=True)]
