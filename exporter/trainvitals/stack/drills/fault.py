"""Simulated series, and faults: the series of a machine while it is healthy, and while it is not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Course = Literal["constant", "rate", "slope", "instant", "recent", "duration"]


@dataclass(frozen=True, slots=True)
class Series:
    """One series of a simulated machine.

    Attributes:
        name: The metric in full; one that ends in `_total` is a counter, all others are gauges.
        labels: Its labels.
        course: The meaning of `amount`: `constant` the value; `rate` its increase per second;
            `slope` the same at real speed, so that a fast drill changes as much in a divided
            duration; `instant` the seconds between an event and the beginning of the phase, exported as a
            Unix time; `recent` the same before now; `duration` seconds that pass faster in a fast
            drill.
        amount: See `course`.
        start: The initial value of a series that increases.
    """

    name: str
    labels: tuple[tuple[str, str], ...]
    course: Course
    amount: float
    start: float = 0.0

    @property
    def key(self) -> str:
        """The unique key of the series."""
        return f"{self.name}{sorted(self.labels)}"


def constant(name: str, value: float, /, **labels: str) -> Series:
    """Return a series with a constant value."""
    return Series(name, tuple(labels.items()), "constant", value)


def rate(name: str, per_second: float, /, **labels: str) -> Series:
    """Return a counter with a constant rate that continues from its value in the previous phase."""
    return Series(name, tuple(labels.items()), "rate", per_second)


def slope(name: str, start: float, per_second: float, /, **labels: str) -> Series:
    """Return a gauge with a constant slope that continues from its value in the previous phase."""
    return Series(name, tuple(labels.items()), "slope", per_second, start)


def instant(name: str, seconds_before: float, /, **labels: str) -> Series:
    """Return a timestamp at the beginning of the phase, or this many seconds before it."""
    return Series(name, tuple(labels.items()), "instant", seconds_before)


def recent(name: str, seconds_ago: float, /, **labels: str) -> Series:
    """Return a timestamp that stays this many seconds behind the clock."""
    return Series(name, tuple(labels.items()), "recent", seconds_ago)


def duration(name: str, seconds: float, /, **labels: str) -> Series:
    """Return a number of seconds that is divided by the speed, like those in the rules."""
    return Series(name, tuple(labels.items()), "duration", seconds)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a simulated machine.

    Attributes:
        alert: The alert that must fire.
        story: A description of the fault for the terminal.
        healthy: The machine's series before and after.
        faulty: Its series while the fault lasts.
        history_seconds: How long the machine must have been healthy before the fault, at real
            speed.
        is_silent: Whether the exporter does not respond during the fault.
        is_failing: Whether a collector of the exporter fails during the fault.
        machines: How many machines Prometheus scrapes; each is the simulated one by another name.
    """

    alert: str
    story: str
    healthy: tuple[Series, ...]
    faulty: tuple[Series, ...]
    history_seconds: float = 0.0
    is_silent: bool = False
    is_failing: bool = False
    machines: int = 1


def turn(
    alert: str,
    story: str,
    name: str,
    healthy: float,
    faulty: float,
    /,
    *context: Series,
    **labels: str,
) -> Fault:
    """Return a fault that changes the value of one series.

    Args:
        alert: The alert that must fire.
        story: A description of the fault for the terminal.
        name: The metric.
        healthy: Its value before and after.
        faulty: Its value while the fault lasts.
        *context: The other series of the machine, which stay the same.
        **labels: The labels of the series.
    """
    return Fault(
        alert,
        story,
        (constant(name, healthy, **labels), *context),
        (constant(name, faulty, **labels), *context),
    )


def after(history_seconds: float, fault: Fault) -> Fault:
    """Return a fault that needs this many seconds of healthy history, at real speed."""
    return replace(fault, history_seconds=history_seconds)
