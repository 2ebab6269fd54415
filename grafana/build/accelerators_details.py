"""Rows of the board of accelerators that are closed until somebody wants to know more."""

from __future__ import annotations

from typing import Final

from grafana.build.accelerators_devices import write_processes
from grafana.build.accelerators_faults import write_memory_faults
from grafana.build.accelerators_links import write_links
from grafana.build.accelerators_panels import (
    BY,
    NONE,
    STATE,
    by_device,
    by_model,
    states_by_device,
)
from grafana.build.layout import Row
from grafana.build.palette import (
    CELSIUS,
    COUNT,
    DEVICE_STATES,
    HERTZ,
    INFORMATION,
    OK,
    RATIO,
    SINCE,
    UNKNOWN,
    State,
)
from grafana.build.panels import About, Column, Key, Panel, dash_series, table, timeseries
from grafana.build.queries import over_time

_NO_PROCESS: Final = "No process holds a device, or the driver does not list them"
# From 0, the fastest: full, reduced, at rest.
_PERFORMANCE: Final = tuple(
    State(number, f"P{number}", OK if number < 2 else INFORMATION if number < 8 else UNKNOWN)  # noqa: PLR2004
    for number in range(16)
)


def list_details() -> tuple[Row, ...]:
    """Give the closed rows."""
    return (
        write_processes(),
        write_memory_faults(),
        write_links(),
        _write_clocks(),
        _write_readings(),
        _write_cards(),
    )


def _write_clocks() -> Row:
    panels = (_draw_reasons(), _draw_power_share(), _draw_clock("core"), _draw_clock("memory"))
    return Row("Clocks and throttling by reason", panels, is_collapsed=True)


def _draw_reasons() -> Panel:
    return timeseries(
        "Slowed down, by reason",
        About(
            "Share of the time for which each reason slowed down the device that suffers most from it.",
            "nothing but sw_power_cap, under full load.",
            "the timeline in the row Heat says which device it is.",
        ),
        over_time(
            "max by (reason) (rate(accelerator_throttle_seconds_total{@device}[$__rate_interval]))",
            "{{reason}}",
        ),
        unit=RATIO,
        least=0,
        most=1,
        empty="No device tells",
        width=12,
    )


def _draw_power_share() -> Panel:
    return by_device(
        "Power of the limit",
        About(
            "What each device draws, as a share of its limit in force.",
            "near 100 % while a run trains.",
            "where it stays at 100 %, a higher limit gives speed, if cooling allows it.",
        ),
        "clamp_max(accelerator_power_watts{@device}"
        " / on (job, instance, kind, device, uuid) (accelerator_power_limit_watts{@device} > 0), 1)",
        unit=RATIO,
        most=1,
        width=12,
        empty="No device tells",
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
        width=12,
        overrides=(dash_series("at most$", UNKNOWN),),
        empty="No device tells",
    )


def _write_readings() -> Row:
    return Row(
        "Other readings",
        (
            _draw_reading(
                "Busy, last sample",
                "Share of the driver's last sample period in which something ran.",
                "as in the panel Busy, with more noise.",
                "accelerator_utilization_ratio{@device}",
            ),
            _draw_reading(
                "Memory busy, last sample",
                "Share of the same period in which memory was read or written.",
                "high for models that memory bounds, such as the decoding of text.",
                "accelerator_memory_utilization_ratio{@device}",
            ),
            _draw_reading(
                "Busy time that is estimated",
                "Share of the time whose samples the driver had dropped before they were read.",
                "0 %; more where Prometheus scrapes more rarely than every 10 seconds.",
                "rate(accelerator_busy_unobserved_seconds_total{@device}[$__rate_interval])",
            ),
            _draw_memory_temperature(),
            _draw_reading(
                "Fans",
                "Speed of the fans, of their full speed.",
                "follows the temperature; cards without fans tell nothing.",
                "clamp_max(accelerator_fan_speed_ratio{@device}, 1)",
            ),
            _draw_reading(
                "Video engine",
                "Use of the video encoder or decoder, whichever is used more.",
                "0 %, unless the data loader decodes video on the GPU.",
                f"max by ({BY}) (accelerator_encoder_utilization_ratio{{@device}}"
                " > accelerator_decoder_utilization_ratio{@device}"
                " or accelerator_decoder_utilization_ratio{@device})",
            ),
            _show_performance(),
        ),
        is_collapsed=True,
    )


def _draw_reading(title: str, shows: str, normal: str, expr: str) -> Panel:
    about = About(shows, normal, "compare the device with its neighbours under the same load.")
    return by_device(title, about, expr, unit=RATIO, most=1, empty="No device tells")


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
        empty="No device tells",
    )


def _show_performance() -> Panel:
    return states_by_device(
        "Performance state",
        About(
            "From P0, the fastest, to P15.",
            "P0 under load, P8 or more at rest.",
            "a card that stays slow under load is held back: see what slows it down.",
        ),
        "accelerator_performance_state{@device}",
        _PERFORMANCE,
        empty="No device tells",
        width=24,
    )


def _write_cards() -> Row:
    return Row(
        "Cards, and what the kernel says", (_list_cards(), _list_kernel()), is_collapsed=True
    )


def _list_cards() -> Panel:
    rows = "kind, device, uuid"
    details = "model, bus_id, driver, firmware"
    return table(
        "Cards",
        About(
            "What each card is, and when it last answered.",
            "one driver and one firmware for all cards of a model.",
            "a card that does not answer is found in the machine by its bus address.",
        ),
        keys=(
            Key("kind", "Kind", width=60),
            Key("device", "Device", width=70),
            Key("model", "Model"),
            Key("uuid", "UUID", width=330),
            Key("bus_id", "Bus"),
            Key("driver", "Driver"),
            Key("firmware", "Firmware"),
        ),
        columns=(
            Column(
                "State",
                f"max by ({rows}, {details}) (({STATE})"
                f" * on (job, instance, uuid) group_left ({details}) accelerator_info{{@device}})",
                states=tuple(DEVICE_STATES.values()),
                look="color-text",
            ),
            Column(
                "Last answer",
                f"1000 * max by ({rows}) (accelerator_last_seen_timestamp_seconds{{@device}})",
                SINCE,
            ),
        ),
        sort_by="State",
        empty=NONE,
    )


def _list_kernel() -> Panel:
    return table(
        "Xids in the kernel's log",
        About(
            "The kernel's own word on errors of NVIDIA GPUs, also of those that no longer answer, by "
            "their bus address.",
            "empty.",
            "match the address with the table of cards; the runbook of AcceleratorXidCritical says "
            "what to do.",
        ),
        keys=(Key("bus_id", "Bus"), Key("xid", "Xid")),
        columns=(
            Column(
                "Last",
                "1000 * max by (bus_id, xid) (host_xid_last_timestamp_seconds{@host})",
                SINCE,
            ),
            Column(
                "Since the exporter started, in 24 h",
                "max by (bus_id, xid) (increase(host_xid_errors_total{@host}[24h]))",
                COUNT,
                decimals=0,
            ),
        ),
        sort_by="Last",
        empty="No Xid in the kernel's log, or no right to read it",
    )
