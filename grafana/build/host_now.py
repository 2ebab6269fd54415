"""The first screen of the host dashboard: the resources in use, and the resources waited for."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from grafana.build.fields import write_steps
from grafana.build.host_files import draw_used
from grafana.build.layout import Row, link_to
from grafana.build.limits import limit
from grafana.build.palette import (
    CALM,
    COUNT,
    CRITICAL,
    INFORMATION,
    OK,
    RATIO,
    SECONDS,
    WARNING,
    State,
)
from grafana.build.panels import About, Panel, stat, timeseries
from grafana.build.parts import CONTAINERS, list_alerts
from grafana.build.queries import name_series, now, over_time

_UNKNOWN: Final = "unknown"  # a host that does not respond
_SILENT: Final = State(-1, "no answer", CRITICAL)

_FULL: Final = 1 - limit("host_disk_space_low:avail_ratio")
_MEMORY_LIMIT: Final = limit("host_high_memory_usage:used_ratio")
_MEMORY_WAITS: Final = limit("host_memory_pressure:stalled_ratio")
_DISK_WAITS: Final = limit("host_io_bottleneck:stalled_ratio")

# The used share of cores, memory, the busiest disk and the fullest link.
_USED: Final = {
    "cores": "max(cpu_utilization_percent{@host} / 100)",
    "memory": "max(instance:memory_used:ratio{@host})",
    "busiest disk": "max(rate(host_disk_io_seconds_total{@host}[$__rate_interval]))",
    "fullest link": """
        max(rate(host_network_bytes_total{@host}[$__rate_interval])
          / on (job, instance, device) group_left () (host_network_speed_bytes{@host} > 0))
    """,
}
# The share of time in which all tasks were stalled because of a lack of the resource.
_STALLED: Final = {
    "memory": """max(rate(host_pressure_stalled_seconds_total{
        @host, resource="memory", level="full"}[$__rate_interval]))""",
    "disks": """max(rate(host_pressure_stalled_seconds_total{
        @host, resource="io", level="full"}[$__rate_interval]))""",
}
_IDLE: Final = "max(host_io_wait_ratio{@host})"
_WAITED: Final = {
    "some for cores": """max(rate(host_pressure_stalled_seconds_total{
        @host, resource="cpu", level="some"}[$__rate_interval]))""",
    "all for memory": _STALLED["memory"],
    "all for disks": _STALLED["disks"],
    "idle cores": _IDLE,
}


def write_now() -> Row:
    """Return the row on the resources that the machine lacks."""
    return Row(
        "Now",
        (
            _show_uptime(),
            _show_cpu(),
            _show_memory(),
            _show_stalls(),
            _count_oom_kills(),
            _show_fullest_disk(),
            list_alerts(),
            _draw_use(),
            _draw_waits(),
            draw_used(),
        ),
    )


def _show_uptime() -> Panel:
    booted = limit("host_rebooted:window_seconds")
    return stat(
        "Up for",
        About(
            "How long ago the machine booted, or that it does not answer.",
            "more than a few minutes.",
            "with no answer, try to reach the machine, and see there whether the exporter runs; after "
            "an unexpected boot, read the end of the log before: journalctl -b -1 -e.",
            alerts=("HostRebooted", "ExporterDown"),
        ),
        now("""
            max(host_time_seconds{@host} - host_boot_time_seconds{@host})
            or max(up{@host} == 0) - 1
        """),
        unit=SECONDS,
        steps=((None, INFORMATION), (booted, OK)),
        states=(_SILENT,),
        empty=_UNKNOWN,
        decimals=1,
        width=3,
    )


def _show_cpu() -> Panel:
    return stat(
        "CPU",
        About(
            "Share of the time for which cores were busy, mean of all.",
            "any: full is bad only where tasks wait for cores.",
            "see in Waits for each resource whether they wait, and in the row CPU what they do.",
        ),
        now(_USED["cores"]),
        unit=RATIO,
        empty=_UNKNOWN,
        decimals=0,
    )


def _show_memory() -> Panel:
    return stat(
        "Memory",
        About(
            "Share of memory that programs hold; caches count as free.",
            f"below {_MEMORY_LIMIT * 100:g} %.",
            "find the process that grows before the kernel kills one: ps aux --sort=-rss.",
        ),
        now(_USED["memory"]),
        unit=RATIO,
        steps=((None, OK), (_MEMORY_LIMIT, CRITICAL)),
        empty=_UNKNOWN,
        decimals=0,
    )


def _show_stalls() -> Panel:
    memory = f'label_replace({_STALLED["memory"]}, "resource", "memory", "", "")'
    idle = f'label_replace({_IDLE}, "resource", "disks", "", "")'
    shown = stat(
        "Stalled",
        About(
            "Share of the time for which all tasks waited for memory or for disks, the longer of both; "
            "where the kernel does not report it (psi=1 at boot has it reported), the share in which "
            "cores were idle because of disks.",
            f"below {_MEMORY_WAITS * 100:g} % for memory and {_DISK_WAITS * 100:g} % for disks.",
            "for memory, end or shrink the largest process while the machine still lets you in; for "
            "disks, see in the row Disks which one is busy.",
        ),
        now(
            f"{memory} > {_MEMORY_WAITS}"
            f" or on () topk(1, {name_series('resource', _STALLED)}) or on () {idle}",
            "for {{resource}}",
        ),
        unit=RATIO,
        steps=((None, OK), (_DISK_WAITS, WARNING)),
        empty=_UNKNOWN,
        decimals=0,
        text_mode="value_and_name",
    )
    steps = write_steps(((None, CALM), (_MEMORY_WAITS, CRITICAL)))
    of_memory = {
        "matcher": {"id": "byName", "options": "for memory"},
        "properties": [{"id": "thresholds", "value": steps}],
    }
    return replace(shown, overrides=(of_memory,))


def _count_oom_kills() -> Panel:
    return stat(
        "OOM kills, 24 h",
        About(
            "Processes that the kernel killed for want of memory in 24 hours, in containers too.",
            "0.",
            "click: the board of containers shows whose they were and which limit was reached.",
            alerts=("HostOOMKill",),
        ),
        now("sum(increase(host_oom_kills_total{@host}[24h]))"),
        unit=COUNT,
        steps=((None, OK), (0.5, CRITICAL)),
        empty=_UNKNOWN,
        decimals=0,
        width=5,
        link=link_to(CONTAINERS, "Open Containers & OOM", instance="${instance}"),
    )


def _show_fullest_disk() -> Panel:
    return stat(
        "Fullest disk",
        About(
            "The file system with the least left, of those that runs can fill.",
            f"below {_FULL * 100:g} %.",
            "delete old checkpoints, dataset caches or unused container images there; the row File "
            "systems has when it will be full.",
        ),
        now(
            "topk(1, 1 - instance:disk_avail:bytes{@host}"
            " / on (job, instance, mountpoint) (instance:disk_size:bytes{@host} > 0))",
            "{{mountpoint}}",
        ),
        unit=RATIO,
        steps=((None, OK), (_FULL, WARNING)),
        empty=_UNKNOWN,
        decimals=0,
        text_mode="value_and_name",
    )


def _draw_use() -> Panel:
    return timeseries(
        "Use of each resource",
        About(
            "Share of the cores, of the memory, of the busiest disk's time and of the fullest link's "
            "speed that is in use; links that report no speed are left out.",
            "any, but for memory, whose limit the line is.",
            "what is full and waited for is what the machine lacks: open its row.",
            alerts=("HostHighMemoryUsage",),
        ),
        over_time(name_series("resource", _USED), "{{resource}}"),
        unit=RATIO,
        steps=((None, OK), (_MEMORY_LIMIT, CRITICAL)),
        least=0,
        most=1,
        is_open=True,
        empty="The host does not answer: run `trainvitals doctor` there, or see docs/deployment.md",
    )


def _draw_waits() -> Panel:
    return timeseries(
        "Waits for each resource",
        About(
            "Share of the time for which some tasks waited for cores, and all for memory or for disks; "
            "and in which cores were idle because of disks, which every kernel reports.",
            "near 0 % for memory and disks, while a run trains.",
            "above the red line for memory, end what takes the most; above the orange one for disks, "
            "cache or pack the dataset, or read it from a faster disk; for cores, use fewer workers.",
            alerts=("HostMemoryPressure", "HostIOBottleneck"),
        ),
        over_time(name_series("who", _WAITED), "{{who}}"),
        unit=RATIO,
        steps=((None, OK), (_MEMORY_WAITS, CRITICAL), (_DISK_WAITS, WARNING)),
        least=0,
        most=1,
        empty=_UNKNOWN,
    )
