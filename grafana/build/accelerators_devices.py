"""Tables of the accelerators dashboard: devices, the processes that hold them, and card models."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from grafana.build.accelerators_panels import (
    BUSY,
    BY,
    CONDITION,
    CONDITIONS,
    HEADROOM,
    MEMORY,
    NEUTRAL,
    NONE,
    STATE,
    find_runs,
)
from grafana.build.layout import RULE, Row, write_address
from grafana.build.palette import (
    BYTES,
    CELSIUS,
    DEVICE_STATES,
    IDLE_REASONS,
    INFORMATION,
    OK,
    PHASES,
    RATIO,
    SINCE,
    STALLED,
    WATTS,
)
from grafana.build.panels import About, Panel
from grafana.build.parts import ACCELERATORS, CONTAINERS, FIRES, RUN, find_worst_alert
from grafana.build.queries import encode
from grafana.build.tables import Column, Key, table

# In a table, only words for problems are coloured: a busy device is expected to run at its power
# limit.
_CALM_CONDITIONS: Final = tuple(
    replace(one, colour=OK) if one.colour == INFORMATION else one for one in CONDITIONS
)
_IDLE_REASON: Final = encode("accelerator_idle_reason{@device", "reason", IDLE_REASONS, BY)
_NO_PROCESS: Final = "No process holds a device, or the driver does not list them"


def list_devices() -> Panel:
    """Return the table of all devices."""
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
            "Each device that was ever seen, those first for which the worst alert fires, with that "
            "alert, and the run that holds the device.",
            "no alert, and at full speed or at the power limit.",
            "click the alert for its runbook, the device to see it alone, the run to see what it does.",
        ),
        keys=(
            Key("kind", "Kind", width=50),
            Key("device", "Device", here, "Show this device alone", width=65),
            Key("run", "Run", run, "Open the run"),
            Key("alertname", "Alert", RULE, "Open the rule and its runbook", width=240),
        ),
        hidden=("uuid",),
        columns=(
            Column(
                "Fires",
                find_worst_alert("@device", rows),
                states=FIRES,
                look="color-text",
                width=80,
            ),
            Column(
                "Condition",
                f"max by ({rows}) ({CONDITION})",
                states=_CALM_CONDITIONS,
                look="color-text",
                width=150,
            ),
            Column(
                "Headroom",
                f"min by ({rows}) (accelerator:temperature_headroom:celsius{{@device}})",
                CELSIUS,
                HEADROOM,
                "color-text",
                decimals=0,
                width=95,
            ),
            Column(
                "Memory",
                f"max by ({rows}) (accelerator:memory_needed:ratio{{@device}})",
                RATIO,
                MEMORY,
                "gauge",
                decimals=0,
                width=105,
            ),
            Column(
                "Busy",
                f"max by ({rows}) ({BUSY})",
                RATIO,
                NEUTRAL,
                "gauge",
                decimals=0,
                width=105,
            ),
            Column(
                "Power",
                f"max by ({rows}) (accelerator_power_watts{{@device}})",
                WATTS,
                decimals=0,
                width=75,
            ),
            Column(
                "The run is",
                f"topk by ({rows}) (1, {find_runs(f'{rows}, run')})",
                states=(*PHASES.values(), STALLED),
                look="color-text",
                width=95,
            ),
        ),
        sort_by=("Fires", "Condition"),
        empty=f"{NONE}: `trainvitals doctor` on this machine says why, if there should be one",
        height=11,
    )


def write_holders() -> Row:
    """Return the row on cards, the processes that hold them, and idle cards that are held."""
    panels = (_list_processes(), _list_idle(), _list_cards())
    return Row("Processes, what is held idle, cards", panels, is_collapsed=True)


def _list_processes() -> Panel:
    rows, program = "kind, device, uuid, pid", "program, user, slurm_job"
    container = write_address(
        CONTAINERS, instance="${instance}", container="${__data.fields.Container}"
    )
    run = write_address(RUN, instance="${instance}", run="${__data.fields.Run}")
    return table(
        "Processes",
        About(
            "Who holds memory of which device: the process, its program, user and Slurm job, its run "
            "and rank, and the container where only one holds the device.",
            "one process for each device of a run.",
            "one without a run or container is a shell or notebook: ask its user before you end it.",
        ),
        keys=(
            Key("kind", "Kind", width=50),
            Key("device", "Device", width=65),
            Key("pid", "PID", width=75),
            Key("program", "Program", width=110),
            Key("user", "User", width=90),
            Key("slurm_job", "Slurm job", width=90),
            Key("run", "Run", run, "Open the run"),
            Key("rank", "Rank", width=60),
            Key("name", "Container", container, "Open its containers"),
        ),
        hidden=("uuid",),
        columns=(
            Column(
                "Memory",
                f"max by ({rows}, {program}) (accelerator_process_memory_used_bytes{{@device}}"
                f" * on (job, instance, uuid, pid) group_left ({program})"
                " accelerator_process_info{@device})",
                BYTES,
            ),
            Column(
                "Busy",
                f"max by ({rows}) (accelerator_process_utilization_ratio{{@device}})",
                RATIO,
                decimals=0,
                width=60,
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
        height=11,
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
        ),
        hidden=("uuid",),
        columns=(
            Column("Memory held", f"max by ({rows}) ({idle})", RATIO, NEUTRAL, "gauge", decimals=0),
            Column(
                "Bytes",
                f"max by ({rows}) (accelerator_memory_used_bytes{{@device}}"
                f" and on (job, instance, uuid) ({idle}))",
                BYTES,
            ),
            Column(
                "Its process",
                f"max by ({rows}) (({_IDLE_REASON}) and on (job, instance, uuid) ({idle}))",
                states=tuple(IDLE_REASONS.values()),
                look="color-text",
            ),
            Column(
                "Processes",
                f"max by ({rows}) (accelerator_processes{{@device}}"
                f" and on (job, instance, uuid) ({idle}))",
            ),
        ),
        sort_by="Memory held",
        empty="No device is held and idle",
        height=11,
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
        height=11,
    )
