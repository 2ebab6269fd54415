"""Collapsed rows of the host dashboard on cores and memory."""

from __future__ import annotations

from typing import Final

from grafana.build.layout import Row, link_to
from grafana.build.limits import limit
from grafana.build.palette import (
    BYTES,
    BYTES_PER_SECOND,
    COUNT,
    HERTZ,
    OK,
    RATIO,
    SERIES,
    UNKNOWN,
    WARNING,
)
from grafana.build.panels import About, Panel, colour_series, put_right, timeseries
from grafana.build.parts import CONTAINERS
from grafana.build.queries import find_rise, name_series, over_time

_GONE: Final = "The host does not answer"


def write_cpu() -> Row:
    """Return the row on cores."""
    panels = (_draw_modes(), _draw_tasks(), _draw_cores(), _draw_frequency())
    return Row("CPU", panels, is_collapsed=True)


def write_memory() -> Row:
    """Return the row on memory, swap and shared memory."""
    panels = (_draw_parts(), _draw_swap(), _draw_shared(), _draw_oom_kills())
    return Row("Memory", panels, is_collapsed=True)


def _draw_modes() -> Panel:
    return timeseries(
        "Busy, by mode",
        About(
            "What the cores do, as a share of the time of all of them.",
            "mostly user, while data are decoded; system is the kernel's own work.",
            "iowait is waiting for disks, steal is another machine on the same hardware.",
        ),
        over_time(
            """
            sum by (job, instance, mode) (
              rate(host_cpu_seconds_total{@host, mode!="idle"}[$__rate_interval]))
            / on (job, instance) group_left ()
            (sum by (job, instance) (rate(host_cpu_seconds_total{@host}[$__rate_interval])) > 0)
            """,
            "{{mode}}",
        ),
        unit=RATIO,
        least=0,
        most=1,
        is_stacked=True,
        empty=_GONE,
        width=12,
    )


def _draw_tasks() -> Panel:
    cores = 'on (job, instance) (host_cpu_cores{@host, kind="logical"} > 0)'
    tasks = {
        "load, 1 min": "host_load1{@host}",
        "run or could": "host_processes_running{@host}",
        "wait for disks": "host_processes_blocked{@host}",
    }
    of_each = {what: f"({expr} / {cores})" for what, expr in tasks.items()}
    return timeseries(
        "Load and tasks of each core",
        About(
            "Tasks for each core: those that run, could or wait for disks in the mean of a minute, those "
            "that run or could at the moment, and those that wait for a disk or a file server.",
            "below 1, and few that wait for disks.",
            "above it tasks wait for cores: use fewer data loader workers, or fewer threads in each; "
            "tasks that wait for disks for hours hang on a file system that does not answer.",
        ),
        over_time(name_series("what", of_each), "{{what}}"),
        unit=COUNT,
        least=0,
        empty=_GONE,
        width=12,
    )


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
        width=12,
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
        empty="This host does not report it, like most virtual machines",
        width=12,
    )


def _draw_parts() -> Panel:
    parts = {
        "programs": "clamp_min(memory_total_bytes{@host} - memory_free_bytes{@host}"
        " - memory_buffers_bytes{@host} - memory_cached_bytes{@host}, 0)",
        "shared": "memory_shared_bytes{@host}",
        "files": "clamp_min(memory_cached_bytes{@host} - memory_shared_bytes{@host}"
        " - memory_dirty_bytes{@host}, 0)",
        "not yet written": "memory_dirty_bytes{@host}",
        "buffers": "memory_buffers_bytes{@host}",
        "free": "memory_free_bytes{@host}",
    }
    colours = (SERIES[0], SERIES[3], SERIES[2], SERIES[1], SERIES[4], UNKNOWN)
    return timeseries(
        "What memory holds",
        About(
            "Memory of programs and of the kernel, shared memory such as /dev/shm, cached files, what of "
            "them has yet to be written to disk, cached blocks, and what nothing uses.",
            "little is free: what programs leave caches files, and is given back when it is needed.",
            "programs that grow without end leak; shared memory that stays after a run was left in "
            "/dev/shm; files smaller than the dataset are read again in each epoch: pack the data.",
        ),
        over_time(name_series("part", parts), "{{part}}"),
        unit=BYTES,
        least=0,
        is_stacked=True,
        calcs=("lastNotNull", "max"),
        overrides=tuple(
            colour_series(f"^{part}$", colour) for part, colour in zip(parts, colours, strict=True)
        ),
        empty=_GONE,
        width=12,
    )


def _draw_swap() -> Panel:
    traffic = {
        "read back": "rate(host_swap_in_bytes_total{@host}[$__rate_interval])",
        "written": "rate(host_swap_out_bytes_total{@host}[$__rate_interval])",
    }
    there_is = "and on (job, instance) host_swap_total_bytes{@host} > 0"
    return timeseries(
        "Swap",
        About(
            "What is read back from swap and written to it; on the right how much of it is in use.",
            "near 0, however much is in use; one of both alone is memory put away or fetched once.",
            "both above the line: what is in use does not fit, so use fewer workers or a smaller cache.",
            alerts=("HostSwapping",),
        ),
        over_time(f"({name_series('direction', traffic)}) {there_is}", "{{direction}}"),
        over_time(f"host_swap_used_bytes{{@host}} {there_is}", "in use"),
        unit=BYTES_PER_SECOND,
        steps=((None, OK), (limit("host_swapping:bytes_per_second"), WARNING)),
        least=0,
        calcs=("lastNotNull", "max"),
        overrides=(put_right("in use", BYTES),),
        empty="No swap here, or no answer; none is needed, `mkswap` and `swapon` add some",
        width=12,
    )


def _draw_shared() -> Panel:
    return timeseries(
        "Shared memory used",
        About(
            "Share of /dev/shm that is used: data loader workers hand batches over in it.",
            "below the line.",
            "delete what dead runs left there, use fewer workers, or enlarge it; workers die with a "
            "bus error when it is full.",
            alerts=("HostSharedMemoryLow",),
        ),
        over_time(
            """
            1 - host_filesystem_avail_bytes{@host, mountpoint="/dev/shm"}
              / (host_filesystem_size_bytes{@host, mountpoint="/dev/shm"} > 0)
            """,
            "shared memory",
        ),
        unit=RATIO,
        steps=((None, OK), (1 - limit("host_shared_memory_low:avail_ratio"), WARNING)),
        least=0,
        most=1,
        empty="No /dev/shm here, or no answer: mount a tmpfs there for data loader workers",
        width=12,
    )


def _draw_oom_kills() -> Panel:
    watched = "trainvitals_build_info{@host}"
    by_kernel = find_rise("host_kernel_oom_kills_total{@host}", since=watched)
    return timeseries(
        "OOM kills",
        About(
            "Processes that the kernel killed for want of memory, in each step of the graph: all of "
            "them, and by what ran out where its log can be read.",
            "none.",
            "memcg is the limit of a container, host the machine: journalctl -k --grep='Killed process'.",
            alerts=("HostOOMKill",),
        ),
        over_time(find_rise("host_oom_kills_total{@host}"), "all"),
        over_time(by_kernel, "{{constraint}}"),
        unit=COUNT,
        least=0,
        is_bars=True,
        empty=_GONE,
        width=12,
        link=link_to(CONTAINERS, "Open Containers & OOM", instance="${instance}"),
    )
