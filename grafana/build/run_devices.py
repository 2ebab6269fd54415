"""The resource timeline of a run: its accelerators during the run."""

from __future__ import annotations

from typing import Final

from grafana.build.fields import Json
from grafana.build.layout import Row
from grafana.build.limits import limit
from grafana.build.palette import (
    BYTES,
    CELSIUS,
    HERTZ,
    OK,
    RATIO,
    UNKNOWN,
    WARNING,
    WATTS,
)
from grafana.build.panels import About, Panel, colour_devices, dash_series, timeseries
from grafana.build.queries import over_time
from grafana.build.run_selection import MOST_LINES, on_devices, pick_devices
from grafana.build.run_why import OPEN_ACCELERATORS

_DEVICE: Final = "{{kind}} {{device}} {{instance}}"
_OF_MANY: Final = f"; of many, {MOST_LINES}"
_NO_DEVICE: Final = "No accelerator that the run holds"


def write_devices() -> Row:
    """Return the row on the run's accelerators."""
    return Row(
        "Resource timeline: the run's accelerators",
        (
            _draw_memory(),
            _draw_clock(),
            _draw_throttling(),
            _draw_power(),
            _draw_temperature(),
        ),
        is_collapsed=True,
    )


def _draw_devices(
    title: str,
    about: About,
    expr: str,
    gauge: str,
    *,
    unit: str,
    extreme: str = "topk",
    width: int = 8,
    limits: tuple[tuple[str, str], ...] = (),
) -> Panel:
    """Return a graph with a line for each accelerator and a dashed line for each limit."""
    dashed: tuple[Json, ...] = tuple(dash_series(f"^{name}$", UNKNOWN) for name, _ in limits)
    return timeseries(
        title,
        about,
        over_time(pick_devices(expr, gauge, extreme), _DEVICE),
        *(over_time(f"min({on_devices(bound)})", name) for name, bound in limits),
        unit=unit,
        empty=_NO_DEVICE,
        least=0,
        width=width,
        overrides=(*colour_devices(), *dashed),
        link=OPEN_ACCELERATORS,
    )


def _draw_memory() -> Panel:
    return _draw_devices(
        "Accelerator memory",
        About(
            f"Memory that programs hold on each accelerator{_OF_MANY} that hold the most.",
            "level after the first steps, and below what the device has.",
            "a slow rise is a leak: look for tensors that are kept from step to step.",
        ),
        "accelerator_memory_used_bytes{@host}",
        "accelerator_memory_used_bytes{@host}",
        unit=BYTES,
        limits=(("device has", "accelerator_memory_total_bytes{@host}"),),
    )


def _draw_clock() -> Panel:
    return _draw_devices(
        "Core clock",
        About(
            f"The clock of the cores{_OF_MANY} that run the slowest.",
            "near the highest while it computes.",
            "a clock that falls under load is heat or power: see what throttles it.",
        ),
        'accelerator_clock_hertz{@host, clock="core"}',
        'accelerator_clock_hertz{@host, clock="core"}',
        extreme="bottomk",
        unit=HERTZ,
        limits=(("highest", 'accelerator_clock_max_hertz{@host, clock="core"}'),),
    )


def _draw_throttling() -> Panel:
    by_heat = _measure_throttling("hw_thermal|sw_thermal")
    by_power = _measure_throttling("hw_power_brake|sw_power_cap|board_limit")
    return timeseries(
        "Throttled",
        About(
            "The share of time for which the most throttled accelerator was held back, by heat and"
            " by power.",
            "0 % by heat; a power cap in force is the rule on large models.",
            "heat wants cooling, and a power brake a look at the power supplies.",
        ),
        over_time(f"max({on_devices(by_heat)})", "by heat"),
        over_time(f"max({on_devices(by_power)})", "by power"),
        unit=RATIO,
        steps=((None, OK), (limit("accelerator_thermal_throttling:ratio"), WARNING)),
        empty=_NO_DEVICE,
        least=0,
        most=1,
    )


def _measure_throttling(reasons: str) -> str:
    """Return a query for the share of time in which accelerators were throttled, by reason.

    The query uses the driver's counter of throttled time or, without a counter, whether the
    accelerator is throttled at the time.
    """
    counted = f'accelerator_throttle_seconds_total{{@host, reason=~"{reasons}"}}'
    return (
        f"rate({counted}[$__rate_interval])"
        f' or accelerator_throttle_active{{@host, reason=~"{reasons}"}}'
        f" unless on (job, instance, uuid) {counted}"
    )


def _draw_power() -> Panel:
    return _draw_devices(
        "Power",
        About(
            f"What each accelerator draws{_OF_MANY} that draw the most.",
            "high and even in steps.",
            "a saw-tooth is waiting between steps; at the limit the clock falls.",
        ),
        "accelerator_power_watts{@host}",
        "accelerator_power_watts{@host}",
        unit=WATTS,
        width=12,
        limits=(("limit", "accelerator_power_limit_watts{@host}"),),
    )


def _draw_temperature() -> Panel:
    return _draw_devices(
        "Temperature",
        About(
            f"The temperature of the chips{_OF_MANY} that are the hottest.",
            "below the point at which the hardware slows down.",
            "one hotter than its neighbours has a problem with its own fan or airflow.",
        ),
        'accelerator_temperature_celsius{@host, sensor="core"}',
        'accelerator_temperature_celsius{@host, sensor="core"}',
        unit=CELSIUS,
        width=12,
        limits=(("slows down", "accelerator_temperature_slowdown_celsius{@host}"),),
    )
