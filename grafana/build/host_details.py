"""Closed rows of the board of hosts: more of cores, memory and disks."""

from __future__ import annotations

from typing import Final

from grafana.build.layout import Row, link_to
from grafana.build.palette import (
    BYTES,
    COUNT,
    HERTZ,
    PER_SECOND,
    RATIO,
    SECONDS,
)
from grafana.build.panels import About, Panel, timeseries
from grafana.build.parts import CONTAINERS
from grafana.build.queries import name_series, over_time

_GONE: Final = "The host does not answer"
_NO_DISK: Final = "No disk here tells"
_NO_LINK: Final = "No interface here tells"


def list_details() -> tuple[Row, ...]:
    """Give the closed rows."""
    return (
        _write_cores_and_memory(),
        _write_disks(),
    )


def _write_cores_and_memory() -> Row:
    panels = (
        _draw_cores(),
        _draw_frequency(),
        _draw_tasks(),
        _draw_oom_kills(),
        _draw_swap(),
    )
    return Row("More of CPU and memory", panels, is_collapsed=True)


def _draw_cores() -> Panel:
    return timeseries(
        "Busiest cores",
        About(
            "Share of the time for which each core was busy, the ten busiest.",
            "data loader workers fill a core each.",
            "one core at 100 % and the others idle: the training loop itself is the limit.",
        ),
        over_time(
            "topk(10, rate(host_cpu_core_busy_seconds_total{@host}[$__rate_interval]))",
            "core {{cpu}}",
        ),
        unit=RATIO,
        least=0,
        most=1,
        empty=_GONE,
    )


def _draw_frequency() -> Panel:
    return timeseries(
        "Clock of the cores",
        About(
            "How fast the slowest and the fastest core run, and the mean.",
            "near the fastest that the processor can do, under load.",
            "a clock that sinks under load is heat, or a governor that saves power.",
        ),
        over_time("host_cpu_frequency_hertz{@host}", "{{statistic}}"),
        unit=HERTZ,
        least=0,
        empty="This host does not tell, as most virtual machines",
    )


def _draw_tasks() -> Panel:
    tasks = {
        "run or could": "host_processes_running{@host}",
        "wait for disks": "host_processes_blocked{@host}",
    }
    return timeseries(
        "Tasks",
        About(
            "Tasks that run or could, and tasks that wait for a disk or a file server.",
            "no more that could run than there are cores, and few that wait.",
            "tasks that wait for hours hang on a file system that does not answer.",
        ),
        over_time(name_series("what", tasks), "{{what}}"),
        unit=COUNT,
        least=0,
        empty=_GONE,
    )


def _draw_oom_kills() -> Panel:
    return timeseries(
        "OOM kills",
        About(
            "Processes that the kernel killed for want of memory around each moment: all of them, and "
            "by what ran out where its log can be read.",
            "none.",
            "memcg is the limit of a container, host the machine: journalctl -k --grep='Killed process'.",
            alerts=("HostOOMKill",),
        ),
        over_time("increase(host_oom_kills_total{@host}[$__rate_interval])", "all"),
        over_time(
            "increase(host_kernel_oom_kills_total{@host}[$__rate_interval])", "{{constraint}}"
        ),
        unit=COUNT,
        least=0,
        is_bars=True,
        calcs=("lastNotNull", "max"),
        empty=_GONE,
        width=12,
        link=link_to(CONTAINERS, "Open Containers & OOM", instance="${instance}"),
    )


def _draw_swap() -> Panel:
    parts = {"used": "host_swap_used_bytes{@host}", "there is": "host_swap_total_bytes{@host}"}
    return timeseries(
        "Swap used",
        About(
            "How much of the swap space is in use.",
            "any, as long as nothing is read back from it.",
            "see the traffic in the row Memory.",
        ),
        over_time(name_series("part", parts), "{{part}}"),
        unit=BYTES,
        least=0,
        empty=_GONE,
        width=12,
    )


def _write_disks() -> Row:
    panels = (
        _draw_latency(),
        _draw_queue(),
        _draw_requests(),
    )
    return Row("More of disks", panels, is_collapsed=True)


def _draw_latency() -> Panel:
    return timeseries(
        "Time of a request",
        About(
            "How long a read or a write takes in the mean, waiting in the queue included, the slowest "
            "disks.",
            "below 1 ms on NVMe, some 10 ms on hard disks.",
            "a disk that is slower than its twins may be about to fail: smartctl -a.",
        ),
        *(
            over_time(
                f"topk(8, rate(host_disk_{verb}_seconds_total{{@host}}[$__rate_interval])"
                f" / (rate(host_disk_{verb}s_completed_total{{@host}}[$__rate_interval]) > 0))",
                f"{{{{device}}}} {verb}",
            )
            for verb in ("read", "write")
        ),
        unit=SECONDS,
        least=0,
        empty=_NO_DISK,
    )


def _draw_queue() -> Panel:
    return timeseries(
        "Requests in flight",
        About(
            "How many requests each disk has at a time, in the mean, the ten longest queues.",
            "a few; NVMe takes dozens without harm.",
            "long queues on a hard disk are random reads: pack small files into large ones.",
        ),
        over_time(
            "topk(10, rate(host_disk_io_weighted_seconds_total{@host}[$__rate_interval]))",
            "{{device}}",
        ),
        unit=COUNT,
        least=0,
        empty=_NO_DISK,
    )


def _draw_requests() -> Panel:
    return timeseries(
        "Requests",
        About(
            "Reads and writes that each disk does in a second, the busiest ones.",
            "few and large for packed datasets.",
            "very many small reads are single files: pack them.",
        ),
        *(
            over_time(
                f"topk(8, rate(host_disk_{verb}s_completed_total{{@host}}[$__rate_interval]))",
                f"{{{{device}}}} {verb}",
            )
            for verb in ("read", "write")
        ),
        unit=PER_SECOND,
        least=0,
        empty=_NO_DISK,
    )
