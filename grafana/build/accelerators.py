"""The board `Vitals / Accelerators`: are the GPUs and HPUs of a machine well, and at work?"""

from __future__ import annotations

from typing import Final

from grafana.build.accelerators_details import list_details
from grafana.build.accelerators_devices import list_devices
from grafana.build.accelerators_faults import write_faults
from grafana.build.accelerators_load import write_heat, write_power, write_use
from grafana.build.accelerators_panels import (
    BUSY,
    BY,
    HEADROOM,
    HEAT,
    MEMORY,
    NEUTRAL,
    NONE,
    ONE_IS_BAD,
    SLOWED_BY_HEAT,
    WARM,
)
from grafana.build.layout import Board, Row, Variable
from grafana.build.palette import (
    CELSIUS,
    RATIO,
    WATT_HOURS,
    WATTS,
)
from grafana.build.panels import About, Panel, stat
from grafana.build.parts import (
    ACCELERATORS,
    JOB,
    ONE_HOST,
    OOM_KILLS,
    list_alerts,
    mark_alerts,
)
from grafana.build.queries import now

KIND: Final = Variable(
    "kind",
    "Kind",
    "label_values(accelerator_up{@host}, kind)",
    "GPUs, HPUs or both",
    is_multiple=True,
)
DEVICE: Final = Variable(
    "device",
    "Device",
    'label_values(accelerator_up{@host, kind=~"$kind"}, device)',
    "Devices, by the driver's index",
    is_multiple=True,
)
# A card that is lost or was never seen has no index any more, whichever is chosen.
_OF_DEVICES: Final = '@host, component="accelerator", kind=~"$kind|", device=~"$device|"'


def build() -> Board:
    """Give the board."""
    return Board(
        uid=ACCELERATORS,
        title="Vitals / Accelerators",
        question="Are the GPUs and HPUs of this machine well, and at work?",
        variables=(JOB, ONE_HOST, KIND, DEVICE),
        annotations=(mark_alerts(_OF_DEVICES), OOM_KILLS),
        rows=(
            _write_now(),
            write_use(),
            write_heat(),
            write_power(),
            write_faults(),
            *list_details(),
        ),
    )


def _write_now() -> Row:
    stats = (
        _count_missing(),
        _count_faulty(),
        _show_headroom(),
        _show_heat(),
        _show_memory(),
        _show_busy(),
        _show_power(),
        _show_energy(),
    )
    return Row("Now", (*stats, list_alerts(height=6), list_devices()))


def _count_missing() -> Panel:
    return stat(
        "Lost or missing",
        About(
            "Devices that were seen and do not answer, or that this machine should have and has not.",
            "0.",
            "find the device in the table below; its state says what to do, the runbook how.",
            alerts=("AcceleratorMissing",),
        ),
        now("""
            sum(
              clamp_min(
                accelerator_devices_expected{@host, kind=~"$kind"}
                  - on (job, instance, kind) accelerator_devices{@host, kind=~"$kind"}, 0)
              or on (job, instance, kind) sum by (job, instance, kind) (
                (accelerator_up{@device} == bool 0)
                  unless on (job, instance, uuid) accelerator_state{@device, state="unsupported"})
            )
        """),
        steps=ONE_IS_BAD,
        empty=NONE,
        decimals=0,
    )


def _count_faulty() -> Panel:
    return stat(
        "Faulty, 24 h",
        About(
            "Devices that reported a critical Xid or an uncorrectable memory error in 24 hours, "
            "cannot repair their memory, or for which the driver asks for a recovery action.",
            "0.",
            "see the rows Faults and Memory errors: they name the device and what it needs.",
        ),
        now(f"""
            count(
              max by ({BY}) (time() - accelerator_xid_last_timestamp_seconds{{@device, class="critical"}}
                < 24 * 60 * 60)
              or max by ({BY}) (increase(accelerator_ecc_uncorrected_errors_total{{@device}}[24h]) > 0)
              or max by ({BY}) (accelerator_row_remap_failed{{@device}} == 1)
              or max by ({BY}) (accelerator_recovery_action{{@device}} > 0)
            ) or 0 * count(accelerator_up{{@device}})
        """),
        steps=ONE_IS_BAD,
        empty=NONE,
        decimals=0,
    )


def _show_headroom() -> Panel:
    return stat(
        "Headroom",
        About(
            "How far the hottest device is from the temperature at which it slows itself down.",
            f"more than {WARM:g} °C.",
            "look for fans, blocked air and a hot room; the row Heat tells one card from all.",
        ),
        now("min(accelerator:temperature_headroom:celsius{@device})"),
        unit=CELSIUS,
        steps=HEADROOM,
        empty=NONE,
        decimals=0,
    )


def _show_heat() -> Panel:
    return stat(
        "Slowed by heat",
        About(
            "Share of the time for which heat slowed down the device that suffers most from it.",
            "0 %.",
            "check cooling first; a lower power limit helps until then.",
        ),
        now(f"max({SLOWED_BY_HEAT})"),
        unit=RATIO,
        steps=HEAT,
        empty="No device tells",
        decimals=0,
    )


def _show_memory() -> Panel:
    return stat(
        "Fullest memory",
        About(
            "Share of memory that is needed on the device with the least left; what an allocator "
            "holds in reserve does not count.",
            "what the run was sized for.",
            "lower the batch size before a longer sequence ends the run for want of memory.",
        ),
        now("max(accelerator:memory_needed:ratio{@device})"),
        unit=RATIO,
        steps=MEMORY,
        empty=NONE,
        decimals=0,
    )


def _show_busy() -> Panel:
    return stat(
        "Busy",
        About(
            "Share of the time in which something ran, mean of all devices.",
            "near 100 % while a run trains; 0 % with no run.",
            "see on the board of the run how long it waits for data.",
        ),
        now(f"avg({BUSY})"),
        unit=RATIO,
        steps=NEUTRAL,
        empty=NONE,
        decimals=0,
    )


def _show_power() -> Panel:
    return stat(
        "Power",
        About(
            "What all devices draw together, without the rest of the machine.",
            "below what circuit and cooling are made for.",
            "lower the power limit of the devices.",
        ),
        now("sum(accelerator_power_watts{@device})"),
        unit=WATTS,
        steps=NEUTRAL,
        empty="No device tells",
    )


def _show_energy() -> Panel:
    return stat(
        "Energy, 24 h",
        About(
            "What all devices used in 24 hours.",
            "as much as the runs of the day are worth.",
            "look below for devices that are held and idle.",
        ),
        now("sum(increase(accelerator_energy_joules_total{@device}[24h])) / (60 * 60)"),
        unit=WATT_HOURS,
        steps=NEUTRAL,
        empty="No device tells",
        decimals=1,
    )
