"""The dashboard `Vitals / Accelerators`: the health and load of a machine's GPUs and HPUs."""

from __future__ import annotations

from typing import Final

from grafana.build.accelerators_devices import list_devices, write_holders
from grafana.build.accelerators_faults import write_faults, write_memory_faults
from grafana.build.accelerators_links import write_links
from grafana.build.accelerators_load import (
    draw_busy,
    draw_headroom,
    show_conditions,
    write_heat,
    write_use,
)
from grafana.build.accelerators_panels import (
    BUSY,
    BY,
    HEADROOM,
    HEAT,
    LEGEND,
    LOOKED,
    MEMORY,
    ONE_IS_BAD,
    SLOWED_BY_HEAT,
    WARM,
)
from grafana.build.accelerators_power import write_power
from grafana.build.layout import Board, Row, Variable
from grafana.build.palette import CELSIUS, RATIO
from grafana.build.panels import About, Panel, stat
from grafana.build.parts import ACCELERATORS, JOB, ONE_HOST, OOM_KILLS, mark_alerts
from grafana.build.queries import now, tell_of

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
# A lost card, or a card that was never detected, has no index, so alerts without one are included.
_OF_DEVICES: Final = '@host, component="accelerator", kind=~"$kind|", device=~"$device|"'


def build() -> Board:
    """Return the dashboard."""
    return Board(
        uid=ACCELERATORS,
        title="Vitals / Accelerators",
        question="Are the GPUs and HPUs of this machine well, and at work?",
        variables=(JOB, ONE_HOST, KIND, DEVICE),
        annotations=(mark_alerts(_OF_DEVICES), OOM_KILLS),
        rows=(
            _write_now(),
            write_faults(_OF_DEVICES),
            write_memory_faults(),
            write_use(),
            write_heat(),
            write_power(),
            write_links(),
            write_holders(),
        ),
    )


def _write_now() -> Row:
    figures = (
        _count_missing(),
        _count_faulty(),
        _show_headroom(),
        _show_heat(),
        _show_memory(),
        _show_busy(),
    )
    graphs = (show_conditions(), draw_busy(), draw_headroom())
    return Row("Now", (*figures, list_devices(), *graphs))


def _count_missing() -> Panel:
    by = "job, instance, kind"
    expected = 'accelerator_devices_expected{@host, kind=~"$kind"}'
    lost = f"""(
        sum(
          clamp_min({expected} - on ({by}) accelerator_devices{{@host, kind=~"$kind"}}, 0)
          or on ({by}) sum by ({by}) (
            (accelerator_up{{@device}} == bool 0)
              unless on (job, instance, uuid) accelerator_state{{@device, state="unsupported"}})
        ) or {LOOKED}
    )"""
    known = f"max by ({by}) ({expected}) or count by ({by}) (accelerator_up{{@device}})"
    whole = f"(sum({known}) or {LOOKED})"
    return stat(
        "Devices lost",
        About(
            "Devices that were seen and do not answer, or that this machine should have and has not, "
            "of all that there should be.",
            "0.",
            "find the device in the table below; the alert's runbook has the steps.",
            alerts=("AcceleratorMissing",),
        ),
        now(tell_of(lost, whole), "of {{all}}"),
        steps=ONE_IS_BAD,
        text_mode="value_and_name",
        empty="unknown",
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
            ) or {LOOKED}
        """),
        steps=ONE_IS_BAD,
        empty="unknown",
        decimals=0,
    )


def _show_headroom() -> Panel:
    return stat(
        "Headroom",
        About(
            "How far the hottest device is from the temperature at which it slows itself down.",
            f"more than {WARM:g} °C.",
            "look for fans, blocked air and a hot room; the graph below shows whether it is one card "
            "or all.",
        ),
        now("bottomk(1, accelerator:temperature_headroom:celsius{@device})", LEGEND),
        unit=CELSIUS,
        steps=HEADROOM,
        text_mode="value_and_name",
        empty="none",
        decimals=0,
    )


def _show_heat() -> Panel:
    return stat(
        "Slow by heat",
        About(
            "Share of the time for which heat slowed down the device that suffers most from it.",
            "0 %.",
            "check cooling first; a lower power limit helps until then.",
        ),
        now(f"topk(1, {SLOWED_BY_HEAT})", LEGEND),
        unit=RATIO,
        steps=HEAT,
        text_mode="value_and_name",
        empty="not reported",
        decimals=0,
    )


def _show_memory() -> Panel:
    return stat(
        "Fullest card",
        About(
            "Share of memory that is needed on the device with the least left; what an allocator "
            "holds in reserve does not count.",
            "what the run was sized for.",
            "lower the batch size before a longer sequence ends the run for want of memory.",
        ),
        now("topk(1, accelerator:memory_needed:ratio{@device})", LEGEND),
        unit=RATIO,
        steps=MEMORY,
        text_mode="value_and_name",
        empty="none",
        decimals=0,
    )


def _show_busy() -> Panel:
    return stat(
        "Devices busy",
        About(
            "Share of the time in which something ran, mean of all devices.",
            "near 100 % while a run trains; 0 % with no run.",
            "see on the board of the run how long it waits for data.",
        ),
        now(f"avg({BUSY})"),
        unit=RATIO,
        empty="none",
        decimals=0,
    )
