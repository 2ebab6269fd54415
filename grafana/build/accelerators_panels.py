"""Panels shared by rows of the accelerators dashboard, with a series or band for each device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from grafana.build.fields import Json, Steps
from grafana.build.limits import limit
from grafana.build.palette import (
    COUNT,
    CRITICAL,
    DEVICE_STATES,
    FULL_SPEED,
    INFORMATION,
    OK,
    PHASES,
    STALLED,
    THROTTLES,
    WARNING,
    State,
)
from grafana.build.panels import About, Panel, colour_devices, state_timeline, timeseries
from grafana.build.queries import Query, encode, over_time

BY: Final = "job, instance, kind, device, uuid"
LEGEND: Final = "{{kind}} {{device}}"
NONE: Final = "No accelerator here, or no answer"
UNTOLD: Final = "No accelerator reports it"

_RANK: Final = "job, instance, run, rank"

NEUTRAL: Final[Steps] = ((None, INFORMATION),)
HOT: Final = max(
    limit("gpu_high_temperature:headroom_celsius"), limit("hpu_high_temperature:headroom_celsius")
)
WARM: Final = limit("accelerator_temperature_near_limit:headroom_celsius")
HEADROOM: Final[Steps] = ((None, CRITICAL), (HOT, WARNING), (WARM, OK))
MEMORY: Final[Steps] = ((None, OK), (limit("high_memory_usage:ratio"), WARNING))
HEAT: Final[Steps] = ((None, OK), (limit("accelerator_thermal_throttling:ratio"), WARNING))
# 0 for a machine whose exporter looks for accelerators, even if it finds none.
LOOKED: Final = '0 * max(trainvitals_collector_success{@host, collector="accelerator"} == 1)'
ONE_IS_BAD: Final[Steps] = ((None, OK), (1, CRITICAL))

STATE: Final = encode("accelerator_state{@device", "state", DEVICE_STATES, BY)

# Problems and throttle reasons of a device on one scale; a higher number is more severe.
_FAULTS: Final[Mapping[str, State]] = MappingProxyType(
    {
        "lost": replace(DEVICE_STATES["lost"], number=11),
        "hung": replace(DEVICE_STATES["hung"], number=10),
        "no_driver": replace(DEVICE_STATES["no_driver"], number=8),
        "resetting": replace(DEVICE_STATES["resetting"], number=7),
        "unsupported": replace(DEVICE_STATES["unsupported"], number=0),
    }
)
_BRAKES: Final[Mapping[str, State]] = MappingProxyType(
    {
        "hw_power_brake": replace(THROTTLES["hw_power_brake"], number=9),
        "hw_thermal": replace(THROTTLES["hw_thermal"], number=6),
        "sw_thermal": replace(THROTTLES["sw_thermal"], number=5),
        "hw_slowdown": replace(THROTTLES["hw_slowdown"], number=4),
        "sw_power_cap": replace(THROTTLES["sw_power_cap"], number=3),
    }
)
_FULL: Final = replace(FULL_SPEED, number=2)
_ANSWERS: Final = DEVICE_STATES["ok"]  # without information on throttling
CONDITIONS: Final = (*_FAULTS.values(), *_BRAKES.values(), _FULL, _ANSWERS)
CONDITION: Final = f"""
    {encode("accelerator_state{@device", "state", _FAULTS, BY)}
    or {encode("accelerator_throttle_active{@device", "reason", _BRAKES, BY)}
    or {_FULL.number} + (max by ({BY}) (accelerator_throttle_active{{@device}}) == 0)
    or {_ANSWERS.number} * max by ({BY}) (accelerator_state{{@device, state="ok"}} == 1)
"""
# The share of time in which the device was busy; the last sample if the driver keeps no counter.
BUSY: Final = """
    clamp_max(
      rate(accelerator_busy_seconds_total{@device}[$__rate_interval])
      or accelerator_utilization_ratio{@device}, 1)
"""
SLOWED_BY_HEAT: Final = """
    max without (reason) (
      rate(accelerator_throttle_seconds_total{@device, reason=~"hw_thermal|sw_thermal"}[$__rate_interval])
      or accelerator_throttle_active{@device, reason=~"hw_thermal|sw_thermal"}
    )
"""


def by_device(
    title: str,
    about: About,
    expr: str,
    *limits: Query,
    unit: str = COUNT,
    steps: Steps = (),
    least: float | None = 0,
    most: float | None = None,
    empty: str = NONE,
    width: int = 8,
    height: int = 8,
    overrides: Sequence[Json] = (),
    is_bars: bool = False,
    extreme: str = "max",
) -> Panel:
    """Return a graph with a line or bars in a separate colour for each device, and with limits.

    Args:
        title: The title.
        about: The text under the title.
        expr: The query for the devices, whose series keep the device labels.
        limits: Queries for the limits with which the devices are compared.
        unit: Grafana's name of the unit.
        steps: The values at which dashed lines are drawn.
        least: The minimum of the axis.
        most: The maximum of the axis.
        empty: The text that explains why the panel has no data.
        width: The width in columns.
        height: The height in units of 30 pixels.
        overrides: Overrides of fields, such as those for limits.
        is_bars: Whether to show bars.
        extreme: The legend's third value, after the last value and the mean: `max` or `min`.
    """
    return timeseries(
        title,
        about,
        over_time(expr, LEGEND),
        *limits,
        unit=unit,
        steps=steps,
        least=least,
        most=most,
        empty=empty,
        width=width,
        height=height,
        overrides=(*colour_devices(), *overrides),
        is_bars=is_bars,
        calcs=("sum",) if is_bars else ("lastNotNull", "mean", extreme),
    )


def states_by_device(
    title: str,
    about: About,
    expr: str,
    states: Sequence[State],
    *,
    empty: str = NONE,
    width: int = 12,
    height: int = 7,
) -> Panel:
    """Return a timeline with a band for each device, which shows the device's states."""
    query = over_time(expr, LEGEND)
    return state_timeline(
        title, about, query, states=states, empty=empty, width=width, height=height
    )


def by_model(what: str, expr: str) -> Query:
    """Return a query for a value per card model, such as a limit; lines are named after both."""
    info = "on (job, instance, uuid) group_left (model) accelerator_info{@device}"
    return over_time(f"min by (model) (({expr}) * {info})", f"{{{{model}}}} {what}")


def find_runs(labels: str) -> str:
    """Return a query for the run phase of each process that holds a device.

    The rank of a process is identified by the PID on the host.

    Args:
        labels: The labels to keep, from the process on a device and from its rank.
    """
    phases = encode("training_phase{@host", "phase", PHASES, _RANK)
    stalled = f"{STALLED.number} * max by ({_RANK}) (training_stalled{{@host}} == 1)"
    return f"""
        max by ({labels}) (
          0 * accelerator_process_memory_used_bytes{{@device}}
          + on (job, instance, pid) group_left (run, rank)
          topk by (job, instance, pid) (1, label_replace(
            ({stalled} or {phases})
              * on ({_RANK}) group_left (host_pid) training_rank_info{{@host}},
            "pid", "$1", "host_pid", "(.+)"))
        )
    """
