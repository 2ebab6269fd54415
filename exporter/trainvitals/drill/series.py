"""Simulated series: what they are worth while a machine is well, and while it is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Course = Literal["constant", "rate", "instant", "recent", "duration"]


@dataclass(frozen=True, slots=True)
class Series:
    """One series of a simulated machine.

    Attributes:
        name: The metric in full; one that ends in `_total` is a counter, all others are gauges.
        labels: Its labels.
        course: What `amount` means: `constant` the value; `rate` what it gains in a second;
            `instant` how many seconds before the phase began something happened, as a Unix time;
            `recent` the same before now; `duration` seconds that pass faster in a fast drill.
        amount: See `course`.
        start: What a series that gains has before.
    """

    name: str
    labels: tuple[tuple[str, str], ...]
    course: Course
    amount: float
    start: float = 0.0

    @property
    def key(self) -> str:
        """What tells it from every other series."""
        return f"{self.name}{sorted(self.labels)}"


def constant(name: str, value: float, /, **labels: str) -> Series:
    """Give a series that keeps its value."""
    return Series(name, tuple(labels.items()), "constant", value)


def rate(name: str, per_second: float, /, **labels: str) -> Series:
    """Give a counter that grows steadily, and goes on from where it was in the phase before."""
    return Series(name, tuple(labels.items()), "rate", per_second)


def slope(name: str, start: float, per_second: float, /, **labels: str) -> Series:
    """Give a gauge that gains or loses steadily, and goes on from where it was."""
    return Series(name, tuple(labels.items()), "rate", per_second, start)


def instant(name: str, seconds_before: float, /, **labels: str) -> Series:
    """Give the Unix time of what happened when the phase began, or so long before."""
    return Series(name, tuple(labels.items()), "instant", seconds_before)


def recent(name: str, seconds_ago: float, /, **labels: str) -> Series:
    """Give a Unix time that stays so far behind the clock."""
    return Series(name, tuple(labels.items()), "recent", seconds_ago)


def duration(name: str, seconds: float, /, **labels: str) -> Series:
    """Give a number of seconds that shrinks along with those of the rules."""
    return Series(name, tuple(labels.items()), "duration", seconds)
