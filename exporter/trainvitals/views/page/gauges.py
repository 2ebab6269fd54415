"""Draws values on the live page, with the values' history and limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from trainvitals.units import (
    format_bytes_of,
    format_limited,
    format_percent,
    format_power,
    format_temperature,
    format_value,
)
from trainvitals.views.machine.headline import DEVICE_MEMORY, HOST_MEMORY, HOT, find_tone
from trainvitals.views.machine.picture import (
    TEMPERATURE_SCALE_CELSIUS,
    TRACE_POINTS,
    Accelerator,
    Picture,
    Run,
    Tone,
    Trace,
)
from trainvitals.views.page.subjects import label_device
from trainvitals.views.sparkline import sparkline_svg

_HEADROOM = 1.05
_LOSS_MARGIN = 0.08


class Gauge(NamedTuple):
    """A value on the live page, with the value's history.

    Attributes:
        term: The name of the quantity that is shown.
        value: The current value, as text.
        svg: The history of the value, as HTML.
        css: The CSS class that shows the severity of the value and its history; an empty string if
            no severity applies.
    """

    term: str
    value: str
    svg: str
    css: str = ""


def list_device_gauges(picture: Picture, device: Accelerator) -> Iterator[Gauge]:
    """Yield gauges for the utilization, memory, temperature and power of an accelerator."""
    label, name = label_device(device), device.name
    used, total = device.memory_used_bytes, device.memory_total_bytes
    share = device.memory_limit_bytes / total if device.memory_limit_bytes and total else None
    yield Gauge(
        "utilization",
        format_percent(device.utilization_ratio),
        _draw_ratios(device.utilization_trace, f"{label} utilization"),
    )
    yield Gauge(
        "memory",
        format_bytes_of(used, total),
        _draw_ratios(device.memory_trace, f"{label} memory", share),
        find_tone(picture, "accelerator", name, *DEVICE_MEMORY),
    )
    yield _gauge_temperature(device, label, find_tone(picture, "accelerator", name, *HOT))
    yield _gauge_power(device, label)


def list_host_gauges(picture: Picture) -> Iterator[Gauge]:
    """Yield gauges for the CPU and memory usage of the machine."""
    host = picture.host
    ratio = None if host.cpu_percent is None else host.cpu_percent / 100
    cores = f" of {host.cores} cores" if host.cores else ""
    cpu = tuple(None if point is None else point / 100 for point in host.cpu_trace)
    yield Gauge("CPU", f"{format_percent(ratio)}{cores}", _draw_ratios(cpu, "CPU"), "wide")
    total, available = host.memory_total_bytes, host.memory_available_bytes
    used = None if total is None or available is None else total - available
    drawn = _draw_ratios(host.memory_trace, "memory")
    tone = find_tone(picture, "host", "", *HOST_MEMORY)
    yield Gauge("memory", format_bytes_of(used, total), drawn, f"wide {tone}")


def draw_loss(run: Run) -> tuple[str, str, str]:
    """Return a run's loss history as HTML, and the highest and the lowest loss as text."""
    known = [point for point in run.loss_trace if point is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    margin = _LOSS_MARGIN * (high - low) or abs(high) * _LOSS_MARGIN or 1.0
    svg = _draw(run.loss_trace, f"{run.name} loss", format_value, low - margin, high + margin)
    return (svg, format_value(high), format_value(low)) if known else (svg, "", "")


def _gauge_temperature(device: Accelerator, label: str, tone: Tone) -> Gauge:
    limit = device.temperature_limit_celsius
    low, hottest = TEMPERATURE_SCALE_CELSIUS
    trace, high = device.temperature_trace, (limit or hottest) * _HEADROOM
    svg = _draw(trace, f"{label} temperature", format_temperature, low, high, limit)
    value = format_temperature(device.temperature_celsius)
    return Gauge(
        "temperature", value, svg, "unknown" if device.temperature_celsius is None else tone
    )


def _gauge_power(device: Accelerator, label: str) -> Gauge:
    limit, trace = device.power_limit_watts, device.power_trace
    high = _HEADROOM * max([limit or 0.0, 1.0, *(point for point in trace if point is not None)])
    svg = _draw(trace, f"{label} power", format_power, 0.0, high, limit)
    return Gauge("power", format_limited(device.power_watts, limit, "W"), svg)


@lru_cache(maxsize=256)  # most values do not change within a second
def _draw(
    trace: Trace,
    subject: str,
    write: Callable[[float | None], str],
    low: float,
    high: float,
    limit: float | None = None,
) -> str:
    """Return a sparkline, labelled with the subject and the range for screen readers."""
    known = [point for point in trace if point is not None]
    label = f"{subject}: no history yet"
    if known:
        label = f"{subject}, last 15 minutes: {write(min(known))} to {write(max(known))}"
        label += "" if limit is None else f", limit {write(limit)}"
    return sparkline_svg(trace, label, low=low, high=high, limit=limit, columns=TRACE_POINTS)


def _draw_ratios(trace: Trace, subject: str, limit: float | None = None) -> str:
    return _draw(trace, subject, format_percent, 0.0, 1.0, limit)
