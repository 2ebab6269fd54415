"""Rows of the board of accelerators that tell how hard devices work: use, heat, power."""

from __future__ import annotations

from grafana.build.accelerators_panels import (
    BUSY,
    HEAT,
    HOT,
    MEMORY,
    SLOWED_BY_HEAT,
    THROTTLE,
    WARM,
    by_device,
    by_model,
    states_by_device,
)
from grafana.build.layout import Row
from grafana.build.limits import limit
from grafana.build.palette import (
    BYTES,
    CELSIUS,
    CRITICAL,
    FULL_SPEED,
    OK,
    RATIO,
    THROTTLES,
    UNKNOWN,
    WARNING,
    WATTS,
)
from grafana.build.panels import About, Panel, dash_series
from grafana.build.queries import over_time


def write_use() -> Row:
    """Give the row of use: time and memory."""
    return Row("Use", (_draw_busy(), _draw_training(), _draw_memory(), _draw_needed()))


def _draw_busy() -> Panel:
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
        width=12,
    )


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
        width=12,
        overrides=(dash_series("^limit$", WARNING),),
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


def write_heat() -> Row:
    """Give the row of temperatures and what slows devices down."""
    return Row("Heat", (_show_throttles(), _draw_heat(), _draw_temperature(), _draw_headroom()))


def _show_throttles() -> Panel:
    return states_by_device(
        "Slowed down by",
        About(
            "What holds the clock of each device back; of several reasons the worst.",
            "full speed, or the power limit under full load.",
            "heat is a matter of cooling, the power brake one of power supplies and the rack.",
        ),
        THROTTLE,
        (FULL_SPEED, *THROTTLES.values()),
        width=24,
        empty="No device tells",
    )


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
        empty="No device tells",
    )


def _draw_temperature() -> Panel:
    return by_device(
        "Temperature of the chip",
        About(
            "The temperature of each chip; dashed where a card of its model slows down.",
            "steady under load, neighbours alike.",
            "one hot card is its own cooler, all hot cards are the room.",
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
        unit=CELSIUS,
        least=None,
        overrides=(dash_series("slowdown$", CRITICAL),),
    )


def _draw_headroom() -> Panel:
    return by_device(
        "Headroom to the slowdown",
        About(
            "How many degrees are left until each device slows itself down; a card that does not say "
            "where that is counts as one that does at "
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
    )


def write_power() -> Row:
    """Give the row of power."""
    return Row("Power", (_draw_power(), _draw_brake()))


def _draw_power() -> Panel:
    return by_device(
        "Power",
        About(
            "What each device draws; dashed the lowest limit in force among the cards of a model.",
            "close to the limit while a run trains.",
            "a device far below its neighbours waits, or something holds its clock back.",
        ),
        "accelerator_power_watts{@device}",
        by_model("limit", "accelerator_power_limit_watts{@device}"),
        unit=WATTS,
        width=12,
        overrides=(dash_series("limit$", UNKNOWN),),
        empty="No device tells",
    )


def _draw_brake() -> Panel:
    return by_device(
        "Held back by the power brake",
        About(
            "Share of the time for which a signal from outside the card slowed it down.",
            "0 %, always.",
            "look at the power supplies in the machine's management controller, then at the rack.",
            alerts=("AcceleratorPowerBrake",),
        ),
        """
        max without (reason) (
          rate(accelerator_throttle_seconds_total{@device, reason="hw_power_brake"}[$__rate_interval])
          or accelerator_throttle_active{@device, reason="hw_power_brake"}
        )
        """,
        unit=RATIO,
        steps=((None, OK), (limit("accelerator_power_brake:ratio"), CRITICAL)),
        most=1,
        width=12,
        empty="No device tells",
    )
