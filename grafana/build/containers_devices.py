"""The row of the containers dashboard on the accelerators that containers hold."""

from __future__ import annotations

from typing import Final

from grafana.build.fleet_runs import list_held_devices, tell_busy
from grafana.build.layout import Row, write_address
from grafana.build.palette import BYTES, RATIO, WATTS
from grafana.build.panels import About, Panel, colour_devices, timeseries
from grafana.build.parts import ACCELERATORS, RUN
from grafana.build.queries import over_time
from grafana.build.tables import Column, Key, table

_DEVICES: Final = "container_accelerator_info{@container}"
_NONE: Final = "No container is seen to hold an accelerator: `docker run --gpus` gives it some"


def write_accelerators() -> Row:
    """Return the collapsed row on accelerators."""
    busy = f"max by (name, kind, device) ({_join(tell_busy())})"
    memory = f"max by (name, kind, device) ({_join('accelerator:memory_used:ratio{@host}')})"
    return Row(
        "Accelerators by container",
        (
            _draw_devices(
                "Busy",
                busy,
                "How busy the accelerators are that processes of a container hold.",
                "as busy as its run can be.",
                "one that is held and idle can be given back.",
            ),
            _draw_devices(
                "Device memory",
                memory,
                "Share of the device's memory in use, by all who share the device.",
                "level after the first steps.",
                "a device that two containers share runs out for both.",
            ),
            _list_devices(),
        ),
        is_collapsed=True,
    )


def _draw_devices(title: str, expr: str, shows: str, normal: str, act: str) -> Panel:
    return timeseries(
        title,
        About(shows, normal, act),
        over_time(f"topk(16, {expr})", "{{name}} {{kind}} {{device}}"),
        unit=RATIO,
        least=0,
        most=1,
        width=12,
        overrides=colour_devices(),
        empty=_NONE,
    )


def _list_devices() -> Panel:
    by = "name, compose_service, kind, device"
    device = {
        "instance": "${instance}",
        "kind": "${__data.fields.Kind}",
        "device": "${__data.fields.Device}",
    }
    run = {"instance": "${instance}", "run": "${__data.fields.Run}"}
    used, power = "accelerator_memory_used_bytes{@host}", "accelerator_power_watts{@host}"
    # A device that several containers share is counted for one of them, because a PromQL join
    # allows only one match.
    container = f"topk by (job, instance, uuid) (1, {_DEVICES})"
    ranks = (
        f"count by ({by}, run) ({list_held_devices()}"
        f" * on (job, instance, uuid) group_left ({by}) {container})"
    )
    return table(
        "Devices of containers",
        About(
            "Accelerators that processes of a container hold, with the run that has the most ranks on "
            "each; use, memory and power are those of the whole device.",
            "a device has one container, and each container one run.",
            "click the device or the run; what is held and not used can be given back.",
        ),
        keys=(
            Key("name", "Container"),
            Key("compose_service", "Service"),
            Key("kind", "Kind", width=60),
            Key("device", "Device", write_address(ACCELERATORS, **device), "Open the device"),
            Key("run", "Run", write_address(RUN, **run), "Open the run"),
        ),
        columns=(
            Column("Ranks", f"topk by ({by}) (1, {ranks})", width=70),
            Column(
                "Busy", f"max by ({by}) ({_join(tell_busy())})", RATIO, look="gauge", decimals=0
            ),
            Column("Memory", f"max by ({by}) ({_join(used)})", BYTES),
            Column("Power", f"max by ({by}) ({_join(power)})", WATTS),
        ),
        empty=_NONE,
        height=11,
    )


def _join(expr: str) -> str:
    """Return a query that joins containers with the readings of the devices that they hold."""
    readings = f"max by (job, instance, uuid) ({expr})"
    return f"{_DEVICES} * on (job, instance, uuid) group_left () {readings}"
