"""The row of the accelerators dashboard on power and on clocks, which depend on power."""

from __future__ import annotations

from grafana.build.accelerators_panels import UNTOLD, by_device, by_model
from grafana.build.layout import Row
from grafana.build.limits import limit
from grafana.build.palette import CRITICAL, HERTZ, OK, RATIO, UNKNOWN, WATTS
from grafana.build.panels import About, Panel, dash_series, timeseries
from grafana.build.queries import over_time


def write_power() -> Row:
    """Return the row on power and clocks."""
    panels = (
        _draw_power(),
        _draw_brake(),
        _draw_reasons(),
        _draw_clock("core"),
        _draw_clock("memory"),
    )
    return Row("Power and clocks", panels, is_collapsed=True)


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
        empty=UNTOLD,
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
        empty=UNTOLD,
    )


def _draw_reasons() -> Panel:
    return timeseries(
        "Slowed down, by reason",
        About(
            "Share of the time for which each reason slowed down the device that suffers most from it.",
            "nothing but sw_power_cap, under full load.",
            "Condition of each device shows which it is.",
        ),
        over_time(
            "max by (reason) (rate(accelerator_throttle_seconds_total{@device}[$__rate_interval]))",
            "{{reason}}",
        ),
        unit=RATIO,
        least=0,
        most=1,
        empty=UNTOLD,
    )


def _draw_clock(clock: str) -> Panel:
    return by_device(
        f"Clock of the {'cores' if clock == 'core' else 'memory'}",
        About(
            "How fast it runs; dashed the highest clock of a model.",
            "near the dashed line under load, lower at rest.",
            "a clock that sinks under load has a reason: see what slows the device down.",
        ),
        f'accelerator_clock_hertz{{@device, clock="{clock}"}}',
        by_model("at most", f'accelerator_clock_max_hertz{{@device, clock="{clock}"}}'),
        unit=HERTZ,
        overrides=(dash_series("at most$", UNKNOWN),),
        empty=UNTOLD,
    )
