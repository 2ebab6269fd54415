"""Simulated series, and faults that define a machine's series before and during the fault."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Course = Literal["constant", "rate", "slope", "instant", "recent", "duration"]


@dataclass(frozen=True, slots=True)
class Series:
    """One series of a simulated machine.

    Attributes:
        name: The complete metric name. A metric whose name ends in `_total` is a counter; all other
            metrics are gauges.
        labels: The labels of the series.
        course: The meaning of `amount`. `constant`: the value. `rate`: the increase per second.
            `slope`: the increase per second at real speed. The drill multiplies a slope by its
            speed, so that the total change in a divided duration is the same. `instant`: the
            seconds between an event and the beginning of the phase, exported as the event's Unix
            time. `recent`: the seconds between an event and the current time, also exported as the
            event's Unix time. `duration`: a number of seconds. The seconds of `instant`, `recent`
            and `duration` are divided by the drill's speed.
        amount: The number whose meaning `course` defines.
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
    """Return a series whose value is a constant Unix time in each phase.

    This time is `seconds_before` seconds before the phase begins. The drill divides
    `seconds_before` by its speed.
    """
    return Series(name, tuple(labels.items()), "instant", seconds_before)


def recent(name: str, seconds_ago: float, /, **labels: str) -> Series:
    """Return a series whose value is the Unix time `seconds_ago` seconds before the current time.

    The value increases with the current time. The drill divides `seconds_ago` by its speed.
    """
    return Series(name, tuple(labels.items()), "recent", seconds_ago)


def duration(name: str, seconds: float, /, **labels: str) -> Series:
    """Return a series whose value is a duration, which the drill divides by its speed."""
    return Series(name, tuple(labels.items()), "duration", seconds)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a simulated machine.

    Attributes:
        alert: The alert that must fire.
        story: The description of the fault, which the drill reports.
        healthy: The series of the machine before and after the fault.
        faulty: The series of the machine during the fault.
        history_seconds: The number of seconds for which the machine must be healthy before the
            fault, at real speed.
        is_silent: Whether the exporter stops responding during the fault.
        is_failing: Whether a collector of the exporter fails during the fault.
        machines: The number of targets that Prometheus scrapes; each is the simulated machine under
            another name.
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
        story: The description of the fault, which the drill reports.
        name: The metric name of the series that changes.
        healthy: The value of the series before and after the fault.
        faulty: The value of the series during the fault.
        *context: The machine's other series, which do not change.
        **labels: The labels of the series that changes.
    """
    return Fault(
        alert,
        story,
        (constant(name, healthy, **labels), *context),
        (constant(name, faulty, **labels), *context),
    )


def after(history_seconds: float, fault: Fault) -> Fault:
    """Return a fault before which the machine is healthy for `history_seconds` at real speed."""
    return replace(fault, history_seconds=history_seconds)
