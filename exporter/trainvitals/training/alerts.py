"""Alerts in the training process; an alert is raised once, and cleared later.

    condition               raised                          cleared
    memory, I/O wait,       immediately                     slightly below the threshold, so that a
    GPU temperature                                         fluctuating value raises one alert only
    GPU underutilized       after `alert_seconds` of        after a quarter of `alert_seconds` of
                            continuously low utilization    sufficient utilization
                            while the run trains

A reading whose value is missing or NaN neither raises nor clears an alert.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

_GPU_KEY = re.compile(r"gpu_(\d+)_(util|temp_c)")
_CLEAR_SHARE = 0.25
_MEMORY_MARGIN_PERCENT = 1.0
_IO_MARGIN_PERCENT = 5.0
_TEMPERATURE_MARGIN_CELSIUS = 3.0


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The thresholds beyond which values raise alerts; a threshold of None disables its alert.

    Attributes:
        gpu_utilization_percent: The utilization, in percent, below which a GPU is underutilized.
        memory_percent: The percentage of used memory above which memory use is alarming.
        io_wait_percent: The percentage of time spent waiting for data above which the wait is
            alarming.
        temperature_celsius: The temperature above which a GPU is too hot, in degrees Celsius.
        alert_seconds: The time for which a GPU must be underutilized before the alert is raised.
    """

    gpu_utilization_percent: float | None = 50.0
    memory_percent: float | None = 90.0
    io_wait_percent: float | None = 30.0
    temperature_celsius: float | None = 80.0
    alert_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of checking one condition against one reading.

    Attributes:
        name: The name of the condition, one of `runfile.ALERTS`.
        subject: The device that distinguishes conditions with the same name, such as a GPU.
        text: The alert message, which contains the value.
        is_alarming: Whether the value is beyond the threshold.
        is_clear: Whether the value is so far within the threshold that the alert may be cleared.
        raise_seconds: The time for which the value must be alarming before the alert is raised.
        clear_seconds: The time for which the value must be clear before the alert is cleared.
    """

    name: str
    subject: str
    text: str
    is_alarming: bool
    is_clear: bool
    raise_seconds: float = 0.0
    clear_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Changes:
    """The alerts that a reading has raised and cleared.

    Attributes:
        raised: The conditions that the reading has raised.
        cleared: The conditions that the reading has cleared.
    """

    raised: tuple[Finding, ...] = ()
    cleared: tuple[Finding, ...] = ()

    def __add__(self, other: Changes) -> Changes:
        return Changes(self.raised + other.raised, self.cleared + other.cleared)


class Alerts:
    """The state of the alerts: the conditions that are currently raised.

    Args:
        clock: A function that returns the time of a monotonic clock, in seconds. The clock may be
            stopped while no values are compared.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._raised: set[tuple[str, str]] = set()
        self._turned_at: dict[tuple[str, str], float] = {}

    @property
    def active(self) -> frozenset[str]:
        """The names of the conditions that are currently raised."""
        return frozenset(name for name, _ in self._raised)

    def judge(self, findings: Iterable[Finding]) -> Changes:
        """Return the alerts that are raised or cleared by the findings of one reading."""
        now = self._clock()
        raised, cleared = [], []
        for finding in findings:
            key = (finding.name, finding.subject)
            is_raised = key in self._raised
            is_turning = finding.is_clear if is_raised else finding.is_alarming
            if not is_turning:
                self._turned_at.pop(key, None)
                continue
            lasts = now - self._turned_at.setdefault(key, now)
            if lasts < (finding.clear_seconds if is_raised else finding.raise_seconds):
                continue
            del self._turned_at[key]
            if is_raised:
                self._raised.remove(key)
                cleared.append(finding)
            else:
                self._raised.add(key)
                raised.append(finding)
        return Changes(tuple(raised), tuple(cleared))


def find_alarming(
    metrics: Mapping[str, float], thresholds: Thresholds, *, is_training: bool = True
) -> Iterator[Finding]:
    """Compare a reading with the thresholds and return the findings.

    Args:
        metrics: The values, by the names used in `resources` and `gpus`; any value may be missing.
        thresholds: The thresholds with which the values are compared.
        is_training: Whether the run is training. If the run is not training, GPU utilization is not
            compared, because idle GPUs are expected.
    """
    gpus = {int(match[1]) for key in metrics if (match := _GPU_KEY.fullmatch(key))}
    for gpu in sorted(gpus):
        name = "GPU" if gpus == {0} else f"GPU {gpu}"
        if is_training:
            yield from _find_underutilized(metrics.get(f"gpu_{gpu}_util"), name, thresholds)
    yield from _find_above(
        "memory_pressure",
        "High memory usage: {value:.1f}% (threshold: {threshold:g}%)",
        metrics.get("memory_percent"),
        thresholds.memory_percent,
        _MEMORY_MARGIN_PERCENT,
    )
    yield from _find_above(
        "io_bottleneck",
        "I/O bottleneck: {value:.1f}% wait time (threshold: {threshold:g}%)",
        metrics.get("io_wait_pct"),
        thresholds.io_wait_percent,
        _IO_MARGIN_PERCENT,
    )
    for gpu in sorted(gpus):
        name = "GPU" if gpus == {0} else f"GPU {gpu}"
        yield from _find_above(
            "gpu_temperature",
            name + " temperature high: {value:g}°C",
            metrics.get(f"gpu_{gpu}_temp_c"),
            thresholds.temperature_celsius,
            _TEMPERATURE_MARGIN_CELSIUS,
            subject=name,
        )


def _find_underutilized(
    value: float | None, name: str, thresholds: Thresholds
) -> Iterator[Finding]:
    threshold = thresholds.gpu_utilization_percent
    if value is None or threshold is None:
        return
    yield Finding(
        name="gpu_underutilized",
        subject=name,
        text=f"{name} underutilized: {value:.1f}% (threshold: {threshold:g}%)",
        is_alarming=value < threshold,
        is_clear=value >= threshold,
        raise_seconds=thresholds.alert_seconds,
        clear_seconds=_CLEAR_SHARE * thresholds.alert_seconds,
    )


def _find_above(
    name: str,
    text: str,
    value: float | None,
    threshold: float | None,
    margin: float,
    *,
    subject: str = "",
) -> Iterator[Finding]:
    if value is None or threshold is None:
        return
    yield Finding(
        name=name,
        subject=subject,
        text=text.format(value=value, threshold=threshold),
        is_alarming=value > threshold,
        is_clear=value < threshold - margin,
    )
