"""The board `Vitals / Host`: what does the machine below the runs lack?"""

from __future__ import annotations

from typing import Final

from grafana.build.host_clock import write_clock
from grafana.build.host_details import list_details
from grafana.build.host_exporter import write_exporter
from grafana.build.host_files import find_time_left, list_file_systems, write_file_systems
from grafana.build.host_loaders import write_containers, write_loaders
from grafana.build.host_network import write_network, write_network_details
from grafana.build.host_use import write_cpu, write_disks, write_memory
from grafana.build.layout import Board, Row, link_to
from grafana.build.limits import limit
from grafana.build.palette import COUNT, CRITICAL, INFORMATION, OK, RATIO, SECONDS, WARNING, State
from grafana.build.panels import About, Column, Key, Panel, Steps, stat, table
from grafana.build.parts import (
    CONTAINERS,
    HOST,
    JOB,
    ONE_HOST,
    OOM_KILLS,
    list_alerts,
    mark_alerts,
)
from grafana.build.queries import name_series, now

# What has a board of its own is shaded there. A training alert without a run is about the machine.
_OF_THE_MACHINE: Final = '@host, component!~"accelerator|container", run=""'

_NEUTRAL: Final[Steps] = ((None, INFORMATION),)
_GONE: Final = "The host does not answer"
_NO_PRESSURE: Final = "This kernel does not tell"
_SILENT: Final = State(-1, "no answer", CRITICAL)

_HORIZON: Final = limit("host_disk_will_fill:horizon_window_seconds")
_FULL: Final = 1 - limit("host_disk_space_low:avail_ratio")
_MEMORY_LIMIT: Final = limit("host_high_memory_usage:used_ratio")
_WAITS_LIMIT: Final = limit("host_io_bottleneck:stalled_ratio")

# The share of their time for which cores, memory, the busiest disk and the fullest link are used …
_USED: Final = {
    "CPU": "max(cpu_utilization_percent{@host} / 100)",
    "Memory": "max(instance:memory_used:ratio{@host})",
    "Disks": "max(rate(host_disk_io_seconds_total{@host}[$__rate_interval]))",
    "Network": """
        max(rate(host_network_bytes_total{@host}[$__rate_interval])
          / on (job, instance, device) group_left () (host_network_speed_bytes{@host} > 0))
    """,
}
# … and for which something waits for them; packets are not waited for, they are thrown away.
_WAITED: Final = {
    "CPU": """max(rate(host_pressure_stalled_seconds_total{
        @host, resource="cpu", level="some"}[$__rate_interval]))""",
    "Memory": """max(rate(host_pressure_stalled_seconds_total{
        @host, resource="memory", level="full"}[$__rate_interval]))""",
    "Disks": """max(rate(host_pressure_stalled_seconds_total{
        @host, resource="io", level="full"}[$__rate_interval]))""",
    "Network": """
        max(rate(host_network_dropped_total{@host}[$__rate_interval])
          / (rate(host_network_packets_total{@host}[$__rate_interval]) > 0))
    """,
}
_ERRORS: Final = {
    "Memory": "sum(increase(host_oom_kills_total{@host}[24h]))",
    "Disks": "sum(changes(host_filesystem_readonly{@host}[24h]))",
    "Network": "sum(increase(host_network_errors_total{@host}[24h]))",
}


def build() -> Board:
    """Give the board."""
    return Board(
        uid=HOST,
        title="Vitals / Host",
        question="What does the machine below the runs lack: cores, memory, disks, network, time?",
        variables=(JOB, ONE_HOST),
        annotations=(mark_alerts(_OF_THE_MACHINE), OOM_KILLS),
        rows=(
            _write_now(),
            write_cpu(),
            write_memory(),
            write_disks(),
            write_network(),
            write_loaders(),
            write_file_systems(),
            *list_details(),
            write_network_details(),
            write_containers(),
            write_clock(),
            write_exporter(),
        ),
    )


def _write_now() -> Row:
    stats = (
        _show_uptime(),
        _show_cpu(),
        _show_memory(),
        _show_memory_waits(),
        _count_oom_kills(),
        _show_disk_waits(),
        _show_fullest_disk(),
        _show_time_left(),
    )
    alerts = list_alerts(width=15, height=8)
    return Row("Now", (*stats, alerts, _list_use(), list_file_systems()))


def _show_uptime() -> Panel:
    booted = limit("host_rebooted:window_seconds")
    return stat(
        "Up for",
        About(
            "How long ago the machine booted, or that it does not answer.",
            "more than a few minutes.",
            "with no answer, try to reach the machine, and see there whether the exporter runs; after "
            "a boot that nobody meant, read the end of the log before: journalctl -b -1 -e.",
            alerts=("HostRebooted", "ExporterDown"),
        ),
        now("""
            max(host_time_seconds{@host} - host_boot_time_seconds{@host})
            or max(up{@host} == 0) - 1
        """),
        unit=SECONDS,
        steps=((None, INFORMATION), (booted, OK)),
        states=(_SILENT,),
        empty="Nothing is known of it",
        decimals=1,
    )


def _show_cpu() -> Panel:
    return stat(
        "CPU",
        About(
            "Share of the time for which cores were busy, mean of all.",
            "any: full is bad only where tasks wait for cores.",
            "see in the row CPU whether they wait.",
        ),
        now("max(cpu_utilization_percent{@host} / 100)"),
        unit=RATIO,
        steps=_NEUTRAL,
        empty=_GONE,
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
        now("max(instance:memory_used:ratio{@host})"),
        unit=RATIO,
        steps=((None, OK), (_MEMORY_LIMIT, WARNING)),
        empty=_GONE,
        decimals=0,
    )


def _show_memory_waits() -> Panel:
    return stat(
        "Waits for memory",
        About(
            "Share of the time for which all tasks stood still for want of memory.",
            "0 %.",
            "end or shrink the largest process while the machine still lets you in.",
        ),
        now(_WAITED["Memory"]),
        unit=RATIO,
        steps=((None, OK), (limit("host_memory_pressure:stalled_ratio"), CRITICAL)),
        empty=_NO_PRESSURE,
        decimals=0,
    )


def _count_oom_kills() -> Panel:
    return stat(
        "OOM kills, 24 h",
        About(
            "Processes that the kernel killed for want of memory in 24 hours, in containers too.",
            "0.",
            "click: the board of containers says whose they were and which limit was reached.",
            alerts=("HostOOMKill",),
        ),
        now("sum(increase(host_oom_kills_total{@host}[24h]))"),
        unit=COUNT,
        steps=((None, OK), (0.5, CRITICAL)),
        empty=_GONE,
        decimals=0,
        link=link_to(CONTAINERS, "Open Containers & OOM", instance="${instance}"),
    )


def _show_disk_waits() -> Panel:
    return stat(
        "Waits for disks",
        About(
            "Share of the time for which all tasks that were not idle waited for disks.",
            f"below {_WAITS_LIMIT * 100:g} %.",
            "see in the row Disks which one is busy.",
        ),
        now(_WAITED["Disks"]),
        unit=RATIO,
        steps=((None, OK), (_WAITS_LIMIT, WARNING)),
        empty=_NO_PRESSURE,
        decimals=0,
    )


def _show_fullest_disk() -> Panel:
    return stat(
        "Fullest disk",
        About(
            "The file system with the least left, of those that runs can fill.",
            f"below {_FULL * 100:g} %.",
            "delete old checkpoints, dataset caches or unused container images there.",
        ),
        now(
            "topk(1, 1 - instance:disk_avail:bytes{@host}"
            " / on (job, instance, mountpoint) (instance:disk_size:bytes{@host} > 0))",
            "{{mountpoint}}",
        ),
        unit=RATIO,
        steps=((None, OK), (_FULL, WARNING)),
        empty="No disk that runs can fill",
        decimals=0,
        text_mode="value_and_name",
    )


def _show_time_left() -> Panel:
    return stat(
        "First disk full in",
        About(
            "When the first disk is full at the pace of the last 2 hours; the alert waits until less "
            f"than {limit('host_disk_will_fill:avail_ratio') * 100:g} % is left.",
            "days, or that none fills.",
            "find what grows (du -x --max-depth=2), and keep fewer checkpoints.",
        ),
        now(f"bottomk(1, {find_time_left()})", "{{mountpoint}}"),
        unit=SECONDS,
        steps=((None, WARNING), (_HORIZON, OK)),
        empty="No disk fills",
        decimals=1,
        text_mode="value_and_name",
    )


def _list_use() -> Panel:
    return table(
        "Use, waits and errors",
        About(
            "For each resource: how much of it is used, how much is waited for it (for the network: "
            "packets dropped), and errors in 24 hours (processes killed, file systems turned "
            "read-only or back, packets damaged).",
            "no waits and no errors, however much is used.",
            "the resource with the longest waits is what the machine lacks: open its row.",
        ),
        keys=(Key("resource", "Resource"),),
        columns=(
            Column("Used", name_series("resource", _USED), RATIO, _NEUTRAL, "gauge", decimals=0),
            Column("Waits", name_series("resource", _WAITED), RATIO, _NEUTRAL, "gauge", decimals=0),
            Column(
                "Errors, 24 h",
                name_series("resource", _ERRORS),
                COUNT,
                ((None, OK), (0.5, WARNING)),
                "color-text",
                decimals=0,
            ),
        ),
        empty=_GONE,
        width=9,
        height=8,
    )
