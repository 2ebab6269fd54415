"""What containers use: memory by their limit, accelerators, CPU, disks and networks."""

from __future__ import annotations

from typing import Final

from grafana.build.fleet_runs import list_held_devices, tell_busy
from grafana.build.layout import Row, write_address
from grafana.build.limits import limit
from grafana.build.palette import (
    BYTES,
    BYTES_PER_SECOND,
    CORES,
    COUNT,
    CRITICAL,
    OK,
    RATIO,
    SERIES,
    WARNING,
    WATTS,
)
from grafana.build.panels import (
    About,
    Column,
    Key,
    Panel,
    colour_devices,
    colour_series,
    dash_series,
    table,
    timeseries,
)
from grafana.build.parts import ACCELERATORS, RUN
from grafana.build.queries import over_time

_NAME: Final = "on (job, instance, name)"
_USED: Final = "container_memory_working_set_bytes{@container}"
_LIMIT: Final = "container_spec_memory_limit_bytes{@container}"
_DEVICES: Final = "container_accelerator_info{@container}"


def write_memory() -> Row:
    """Make the row on memory."""
    return Row(
        "Memory",
        (
            timeseries(
                "Working set by limit",
                About(
                    "Memory without what the kernel can drop first, as a share of the container's"
                    " limit: the ten that came nearest to it in the time range.",
                    f"below {100 * limit('container_memory_near_limit:ratio'):.0f} %.",
                    "raise the limit, or start with fewer data loader workers.",
                    alerts=("ContainerMemoryNearLimit",),
                ),
                over_time(_keep_nearest(f"{_USED} / ({_LIMIT} > 0)", 10), "{{name}}"),
                unit=RATIO,
                steps=((None, OK), (limit("container_memory_near_limit:ratio"), WARNING)),
                least=0,
                most=1,
                width=12,
                empty="No container has a memory limit",
            ),
            timeseries(
                "The nearest to its limit",
                About(
                    "What the container holds that came nearest to its limit, or the only one chosen;"
                    " what cannot be dropped is what stands before a kill.",
                    "what cannot be dropped is well below the limit.",
                    "a steady climb is a leak or a dataset that is read whole; a jump is a larger batch.",
                ),
                over_time(_keep_nearest(_USED, 1), "{{name}} working set"),
                over_time(
                    _keep_nearest("container_memory_unreclaimable_bytes{@container}", 1),
                    "{{name}} cannot be dropped",
                ),
                over_time(_keep_nearest(f"{_LIMIT} > 0", 1), "{{name}} limit"),
                unit=BYTES,
                least=0,
                width=12,
                overrides=(
                    colour_series("working set$", SERIES[0]),
                    colour_series("cannot be dropped$", SERIES[1]),
                    dash_series("limit$", CRITICAL),
                ),
                empty="No container has a memory limit",
            ),
            timeseries(
                "Waiting for memory",
                About(
                    "Share of the time in which all tasks of a container stood still for memory: the"
                    " ten that waited most.",
                    "0.",
                    "it thrashes at its limit and crawls: raise the limit.",
                ),
                over_time(
                    _top("rate(container_pressure_memory_stalled_seconds_total{@container}%s)"),
                    "{{name}}",
                ),
                unit=RATIO,
                least=0,
                most=1,
                width=12,
                empty="No container runs, or the kernel counts no pressure",
            ),
            timeseries(
                "Without a limit, by the host's memory",
                About(
                    "Working sets of containers without a limit, as a share of the machine's memory:"
                    " the ten largest.",
                    "empty: every container has a limit.",
                    "`docker update --memory`: what has no limit can have everything else killed.",
                ),
                over_time(
                    f"topk(10, ({_USED} unless {_NAME} {_LIMIT} > 0)"
                    " / on (job, instance) group_left () (memory_total_bytes{@host} > 0))",
                    "{{name}}",
                ),
                unit=RATIO,
                least=0,
                most=1,
                width=12,
                empty="Every container has a memory limit",
            ),
        ),
    )


def write_accelerators() -> Row:
    """Make the row on accelerators, closed."""
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
            _list_runs(),
        ),
        is_collapsed=True,
    )


def write_cpu() -> Row:
    """Make the row on CPU, closed."""
    return Row(
        "CPU",
        (
            _draw(
                "CPU in use",
                "container_cpu_usage_seconds_total",
                CORES,
                "Cores that a container keeps busy.",
                "data loading and little else.",
                "a run with few busy cores and idle accelerators waits for something else.",
            ),
            _draw(
                "Held back by its limit",
                "container_cpu_cfs_throttled_seconds_total",
                CORES,
                "Cores that a container wanted and its CPU limit kept from it.",
                "0.",
                "raise its `--cpus`, or start fewer workers.",
            ),
            timeseries(
                "Processes and threads",
                About(
                    "How many a container has: the ten with the most.",
                    "level after the start.",
                    "a climb is a leak of workers; at its limit nothing more can be started.",
                ),
                over_time("topk(10, container_threads{@container})", "{{name}}"),
                unit=COUNT,
                least=0,
                empty="No container runs",
            ),
        ),
        is_collapsed=True,
    )


def write_traffic() -> Row:
    """Make the row on disks and networks, closed."""
    shared = "No container has a network of its own"
    disk = ("reading its dataset, level.", "it may read the same files again: cache or pack them.")
    write = ("checkpoints, in peaks.", "steady writing is logs or swapped files: see which.")
    net = (
        "what its ranks and its dataset need.",
        "compare it with the speed of the machine's link.",
    )
    return Row(
        "Disk and network",
        (
            _draw(
                "Read",
                "container_fs_reads_bytes_total",
                BYTES_PER_SECOND,
                "What a container reads from disks.",
                *disk,
                width=12,
            ),
            _draw(
                "Written",
                "container_fs_writes_bytes_total",
                BYTES_PER_SECOND,
                "What a container writes to disks.",
                *write,
                width=12,
            ),
            _draw(
                "Received",
                "container_network_receive_bytes_total",
                BYTES_PER_SECOND,
                "What comes in over a container's own network.",
                *net,
                width=12,
                empty=shared,
            ),
            _draw(
                "Sent",
                "container_network_transmit_bytes_total",
                BYTES_PER_SECOND,
                "What goes out over a container's own network.",
                *net,
                width=12,
                empty=shared,
            ),
        ),
        is_collapsed=True,
    )


def _top(rate: str) -> str:
    return f"topk(10, {rate % '[$__rate_interval]'})"


def _keep_nearest(expr: str, count: int) -> str:
    """Keep the containers that came nearest to their limits, the same ones all the time."""
    most = f"max_over_time({_USED}[$__range] @ end())"
    allowed = f"max_over_time({_LIMIT}[$__range] @ end())"
    return f"{expr} and {_NAME} topk({count}, {most} / ({allowed} > 0))"


def _join(expr: str) -> str:
    """Give containers the readings of the devices that their processes hold."""
    readings = f"max by (job, instance, uuid) ({expr})"
    return f"{_DEVICES} * on (job, instance, uuid) group_left () {readings}"


def _draw(
    title: str,
    counter: str,
    unit: str,
    shows: str,
    normal: str,
    act: str,
    *,
    width: int = 8,
    empty: str = "No container runs",
) -> Panel:
    """Make a graph of the ten containers of which a counter rises fastest."""
    return timeseries(
        title,
        About(f"{shows[:-1]}: the ten with the most.", normal, act),
        over_time(_top(f"rate({counter}{{@container}}%s)"), "{{name}}"),
        unit=unit,
        least=0,
        width=width,
        empty=empty,
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
        empty="No container holds an accelerator",
    )


def _list_devices() -> Panel:
    by = "name, compose_service, kind, device"
    device = {
        "instance": "${instance}",
        "kind": "${__data.fields.Kind}",
        "device": "${__data.fields.Device}",
    }
    used, power = "accelerator_memory_used_bytes{@host}", "accelerator_power_watts{@host}"
    return table(
        "Devices of containers",
        About(
            "Accelerators that processes of a container hold; use, memory and power are those of the"
            " whole device.",
            "a device has one container.",
            "click the device; what is held and not used can be given back.",
        ),
        keys=(
            Key("name", "Container"),
            Key("compose_service", "Service"),
            Key("kind", "Kind"),
            Key("device", "Device", write_address(ACCELERATORS, **device), "Open the device"),
        ),
        columns=(
            Column(
                "Busy", f"max by ({by}) ({_join(tell_busy())})", RATIO, look="gauge", decimals=0
            ),
            Column("Memory", f"max by ({by}) ({_join(used)})", BYTES),
            Column("Power", f"max by ({by}) ({_join(power)})", WATTS),
        ),
        empty="No container holds an accelerator",
        width=16,
    )


def _list_runs() -> Panel:
    # A device that several containers share counts for one of them: PromQL joins with one only.
    container = f"topk by (job, instance, uuid) (1, {_DEVICES})"
    run = {"instance": "${instance}", "run": "${__data.fields.Run}"}
    return table(
        "Runs in containers",
        About(
            "Training runs by the container that holds their accelerators.",
            "one run for each container.",
            "click the run.",
        ),
        keys=(
            Key("name", "Container"),
            Key("run", "Run", write_address(RUN, **run), "Open the run"),
        ),
        columns=(
            Column(
                "Devices",
                "count by (name, run) (group by (job, instance, run, uuid)"
                f" ({list_held_devices()})"
                f" * on (job, instance, uuid) group_left (name) {container})",
            ),
        ),
        empty="No run holds an accelerator in a container",
        width=8,
    )
