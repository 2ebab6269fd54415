"""Graphs of the accelerators dashboard on load: condition, use, heat."""

from __future__ import annotations

from dataclasses import replace

from grafana.build.accelerators_panels import (
    BUSY,
    BY,
    CONDITION,
    CONDITIONS,
    HEAT,
    HOT,
    MEMORY,
    SLOWED_BY_HEAT,
    UNTOLD,
    WARM,
    by_device,
    by_model,
    states_by_device,
)
from grafana.build.layout import Row
from grafana.build.limits import limit
from grafana.build.palette import BYTES, CELSIUS, CRITICAL, OK, RATIO, WARNING
from grafana.build.panels import About, Panel, dash_series
from grafana.build.queries import over_time


def show_conditions() -> Panel:
    """Return the timeline of the problems that affected or throttled each device."""
    drawn = states_by_device(
        "Condition of each device",
        About(
            "Whether each device answers, and if not, why; of one that does, what holds its clock back,"
            " of several reasons the worst.",
            "full speed, or the power limit under full load.",
            "lost: reboot; hung: end its processes, then reset it; no driver: load it again. Heat is a"
            " matter of cooling, the power brake one of power supplies and the rack.",
            alerts=("AcceleratorLost",),
        ),
        CONDITION,
        CONDITIONS,
        empty="none",
        width=10,
        height=6,
    )
    return replace(drawn, extra={"maxDataPoints": 120})  # fewer points than in line graphs


def draw_busy() -> Panel:
    """Return the graph of each device's utilisation."""
    return by_device(
        "Busy",
        About(
            "Share of the time in which something ran: the mean of every sample that the driver took, "
            "and its last sample where it keeps no others.",
            "near 100 % while a run trains, the same on all its devices.",
            "one device below the others is a rank that waits or is slow; all low is data or the host.",
        ),
        BUSY,
        unit=RATIO,
        most=1,
        empty="none",
        width=7,
        height=6,
    )


def draw_headroom() -> Panel:
    """Return the graph of each device's temperature headroom in °C."""
    return by_device(
        "Headroom to slowdown",
        About(
            "Degrees until each device slows down; for a card that does not report its limit, "
            "it is assumed to be "
            f"{limit('accelerator_temperature_near_limit:assumed_slowdown_celsius'):g} °C.",
            "above both lines: below the upper one is a warning, below the lower one critical.",
            "check cooling first; stop the run if the temperature goes on rising.",
            alerts=("GPUHighTemperature", "HPUHighTemperature", "AcceleratorTemperatureNearLimit"),
        ),
        "accelerator:temperature_headroom:celsius{@device}",
        unit=CELSIUS,
        steps=((None, OK), (HOT, CRITICAL), (WARM, WARNING)),
        least=None,
        extreme="min",
        empty="none",
        width=7,
        height=6,
    )


def write_use() -> Row:
    """Return the row on use: time and memory."""
    panels = (
        _draw_training(),
        _draw_needed(),
        _draw_memory(),
        _draw_memory_busy(),
        _draw_video(),
    )
    return Row("Use: training, memory, video", panels, is_collapsed=True)


def _draw_training() -> Panel:
    steps = sorted(
        (limit(f"{kind}_low_utilization:utilization_percent") / 100, WARNING)
        for kind in ("gpu", "hpu")
    )
    return by_device(
        "Busy while training, 10 min",
        About(
            "The same over 10 minutes, with validation, checkpoints and other time outside training "
            "counted as busy.",
            "above the line: the upper one is for GPUs, the lower one for HPUs.",
            "see on the board of the run how long it waits for data.",
            alerts=("GPULowUtilization", "HPULowUtilization"),
        ),
        "clamp_max(accelerator:training_utilization_percent:avg10m{@device} / 100, 1)",
        unit=RATIO,
        steps=((None, OK), *steps),
        most=1,
        width=12,
        extreme="min",
        empty="No device was there for 10 minutes",
    )


def _draw_needed() -> Panel:
    return by_device(
        "Memory needed",
        About(
            "Share of memory that is used, without what an allocator holds in reserve and never needed.",
            "below the line.",
            "lower the batch size, or free what is kept between steps.",
            alerts=("HighMemoryUsage",),
        ),
        "accelerator:memory_needed:ratio{@device}",
        unit=RATIO,
        steps=MEMORY,
        most=1,
        width=12,
    )


def _draw_memory() -> Panel:
    return by_device(
        "Memory used",
        About(
            "Memory that programs hold, an allocator's reserve included; dashed the limit that was "
            "set for this machine.",
            "flat after the first steps, and below the limit if there is one.",
            "what rises without end is a leak: look for tensors that are kept from step to step.",
            alerts=("AcceleratorMemoryOverLimit",),
        ),
        "accelerator_memory_used_bytes{@device}",
        over_time("max(accelerator_memory_limit_bytes{@host})", "limit"),
        unit=BYTES,
        overrides=(dash_series("^limit$", WARNING),),
    )


def _draw_memory_busy() -> Panel:
    return by_device(
        "Memory busy, last sample",
        About(
            "Share of the driver's last sample period in which memory was read or written.",
            "high for models that memory bounds, such as the decoding of text.",
            "compare the device with its neighbours under the same load.",
        ),
        "accelerator_memory_utilization_ratio{@device}",
        unit=RATIO,
        most=1,
        empty=UNTOLD,
    )


def _draw_video() -> Panel:
    return by_device(
        "Video engine",
        About(
            "Use of the video encoder or decoder, whichever is used more.",
            "0 %, unless the data loader decodes video on the GPU.",
            "find the process that holds the device.",
        ),
        f"max by ({BY}) (accelerator_encoder_utilization_ratio{{@device}}"
        " > accelerator_decoder_utilization_ratio{@device}"
        " or accelerator_decoder_utilization_ratio{@device})",
        unit=RATIO,
        most=1,
        empty=UNTOLD,
    )


def write_heat() -> Row:
    """Return the row on temperatures and the resulting slowdown."""
    panels = (_draw_heat(), _draw_temperature(), _draw_memory_temperature(), _draw_fans())
    return Row("Heat", panels, is_collapsed=True)


def _draw_heat() -> Panel:
    return by_device(
        "Slowed by heat",
        About(
            "Share of the time for which heat slowed each device down.",
            "0 %; the alert begins at the line.",
            "check cooling; in a distributed run all ranks wait for this device.",
            alerts=("AcceleratorThermalThrottling",),
        ),
        SLOWED_BY_HEAT,
        unit=RATIO,
        steps=HEAT,
        most=1,
        width=12,
        empty=UNTOLD,
    )


def _draw_temperature() -> Panel:
    return by_device(
        "Temperature of the chip",
        About(
            "The temperature of each chip; dashed where a card of its model slows down, and the limit "
            "that was set for this machine.",
            "steady under load, neighbours alike, and below the limit if there is one.",
            "one hot card is its own cooler, all hot cards are the room.",
            alerts=("AcceleratorTemperatureOverLimit",),
        ),
        'accelerator_temperature_celsius{@device, sensor="core"}',
        by_model(
            "slowdown",
            """
            accelerator_temperature_slowdown_celsius{@device}
            or on (job, instance, uuid)
            accelerator_temperature_celsius{@device, sensor="core"}
              + on (job, instance, kind, device, uuid)
              accelerator:temperature_headroom:celsius{@device}
            """,
        ),
        over_time("max(accelerator_temperature_limit_celsius{@host})", "limit"),
        unit=CELSIUS,
        least=None,
        width=12,
        overrides=(dash_series("slowdown$", CRITICAL), dash_series("^limit$", WARNING)),
    )


def _draw_memory_temperature() -> Panel:
    return by_device(
        "Temperature of the memory",
        About(
            "The temperature of each device's memory.",
            "steady under load, neighbours alike.",
            "one hot card is its own cooler, all hot cards are the room.",
        ),
        'accelerator_temperature_celsius{@device, sensor="memory"}',
        unit=CELSIUS,
        least=None,
        width=12,
        empty=UNTOLD,
    )


def _draw_fans() -> Panel:
    return by_device(
        "Fans",
        About(
            "Speed of the fans, of their full speed.",
            "follows the temperature; cards without fans report nothing.",
            "a fan at full speed on a hot card blows no air through it: look for what blocks it.",
        ),
        "clamp_max(accelerator_fan_speed_ratio{@device}, 1)",
        unit=RATIO,
        most=1,
        width=12,
        empty="No card here reports fans",
    )
