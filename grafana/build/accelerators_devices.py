"""Tables of the board of accelerators: its devices, and who holds them."""

from __future__ import annotations

from typing import Final

from grafana.build.accelerators_panels import (
    BUSY,
    HEADROOM,
    MEMORY,
    NEUTRAL,
    NONE,
    STATE,
    THROTTLE,
    by_device,
    find_runs,
)
from grafana.build.layout import Row, write_address
from grafana.build.palette import (
    BYTES,
    CELSIUS,
    DEVICE_STATES,
    FULL_SPEED,
    PHASES,
    RATIO,
    STALLED,
    THROTTLES,
    WATTS,
)
from grafana.build.panels import About, Column, Key, Panel, table
from grafana.build.parts import ACCELERATORS, CONTAINERS, RUN

_NO_PROCESS: Final = "No process holds a device, or the driver does not list them"


def list_devices() -> Panel:
    """Give the table of all devices."""
    rows = "kind, device, uuid"
    here = write_address(
        ACCELERATORS,
        instance="${instance}",
        kind="${__data.fields.Kind}",
        device="${__data.fields.Device}",
    )
    run = write_address(RUN, instance="${instance}", run="${__data.fields.Run}")
    return table(
        "Devices",
        About(
            "Each device that was ever seen, the worst state first, with the run that holds it.",
            "all ok, cool and at full speed or at their power limit.",
            "click on a device to see it alone, on a run to see what it does.",
        ),
        keys=(
            Key("kind", "Kind", width=60),
            Key("device", "Device", here, "Show this device alone", width=70),
            Key("model", "Model", width=200),
            Key("uuid", "UUID"),
            Key("run", "Run", run, "Open the run"),
        ),
        columns=(
            Column(
                "State",
                f"max by ({rows}, model) (({STATE})"
                " * on (job, instance, uuid) group_left (model) accelerator_info{@device})",
                states=tuple(DEVICE_STATES.values()),
                look="color-background",
                width=100,
            ),
            Column("Busy", f"max by ({rows}) ({BUSY})", RATIO, NEUTRAL, "gauge", decimals=0),
            Column(
                "Memory",
                f"max by ({rows}) (accelerator:memory_needed:ratio{{@device}})",
                RATIO,
                MEMORY,
                "gauge",
                decimals=0,
            ),
            Column(
                "Headroom",
                f"min by ({rows}) (accelerator:temperature_headroom:celsius{{@device}})",
                CELSIUS,
                HEADROOM,
                "color-text",
                decimals=0,
                width=100,
            ),
            Column(
                "Power",
                f"max by ({rows}) (accelerator_power_watts{{@device}})",
                WATTS,
                decimals=0,
                width=80,
            ),
            Column(
                "Speed",
                f"max by ({rows}) ({THROTTLE})",
                states=(FULL_SPEED, *THROTTLES.values()),
                look="color-text",
                width=140,
            ),
            Column(
                "The run is",
                f"topk by ({rows}) (1, {find_runs(f'{rows}, run')})",
                states=(*PHASES.values(), STALLED),
                look="color-text",
                width=100,
            ),
        ),
        sort_by="State",
        empty=NONE,
        height=11,
    )


def write_processes() -> Row:
    """Give the row of processes and of what is held for nothing."""
    panels = (_list_processes(), _list_idle(), _draw_processes())
    return Row("Processes, and what is held idle", panels, is_collapsed=True)


def _list_processes() -> Panel:
    rows = "kind, device, uuid, pid"
    container = write_address(
        CONTAINERS, instance="${instance}", container="${__data.fields.Container}"
    )
    run = write_address(RUN, instance="${instance}", run="${__data.fields.Run}")
    return table(
        "Processes",
        About(
            "Who holds memory of which device: the process, its run and rank, and the container where "
            "only one holds the device.",
            "one process for each device of a run.",
            "one without a run or container is somebody's shell or notebook: ask before you end it.",
        ),
        keys=(
            Key("kind", "Kind", width=60),
            Key("device", "Device", width=70),
            Key("pid", "PID", width=90),
            Key("run", "Run", run, "Open the run"),
            Key("rank", "Rank", width=60),
            Key("name", "Container", container, "Open its containers"),
            Key("uuid", "UUID"),
        ),
        columns=(
            Column(
                "Memory",
                f"max by ({rows}) (accelerator_process_memory_used_bytes{{@device}})",
                BYTES,
            ),
            Column(
                "Of the device",
                f"max by ({rows}) (accelerator_process_memory_used_bytes{{@device}}"
                " / on (job, instance, uuid) group_left ()"
                " (accelerator_memory_total_bytes{@device} > 0))",
                RATIO,
                NEUTRAL,
                "gauge",
                decimals=0,
            ),
            Column(
                "The run is",
                find_runs(f"{rows}, run, rank"),
                states=(*PHASES.values(), STALLED),
                look="color-text",
            ),
            Column(
                "Host memory of the container",
                "max by (kind, device, uuid, name) (("
                "container_accelerator_info{@device} and on (job, instance, uuid)"
                " count by (job, instance, uuid) (container_accelerator_info{@device}) == 1)"
                " * on (job, instance, name) group_left ()"
                " container_memory_working_set_bytes{@host})",
                BYTES,
            ),
        ),
        sort_by="Memory",
        empty=_NO_PROCESS,
        height=9,
    )


def _list_idle() -> Panel:
    idle = """
        accelerator:memory_used:ratio{@device}
          > scalar(threshold:accelerator_held_idle:memory_ratio{})
        and on (job, instance, uuid) accelerator:utilization_percent:avg10m{@device}
          < scalar(threshold:accelerator_held_idle:utilization_percent{})
        unless on (job, instance, uuid) accelerator_processes{@device} == 0
    """
    rows = "kind, device, uuid"
    return table(
        "Held and idle",
        About(
            "Devices of which memory is held while nothing has run on them for 10 minutes.",
            "empty; the alert waits for an hour.",
            "find the process above and ask its owner before you end it.",
            alerts=("AcceleratorHeldIdle",),
        ),
        keys=(
            Key("kind", "Kind", width=60),
            Key("device", "Device", width=70),
            Key("uuid", "UUID"),
        ),
        columns=(
            Column("Memory held", f"max by ({rows}) ({idle})", RATIO, NEUTRAL, "gauge", decimals=0),
            Column(
                "Bytes",
                f"max by ({rows}) (accelerator_memory_used_bytes{{@device}}"
                f" and on (job, instance, uuid) ({idle}))",
                BYTES,
            ),
            Column(
                "Processes",
                f"max by ({rows}) (accelerator_processes{{@device}}"
                f" and on (job, instance, uuid) ({idle}))",
            ),
        ),
        sort_by="Memory held",
        empty="No device is held and idle",
        width=12,
    )


def _draw_processes() -> Panel:
    return by_device(
        "Processes on each device",
        About(
            "How many processes compute on each device.",
            "one while a run trains, none else.",
            "two runs on one device take time and memory from each other: move one.",
        ),
        "accelerator_processes{@device}",
        width=12,
        empty="The driver does not list processes",
    )
