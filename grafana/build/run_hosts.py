"""The resource timeline of a run: its machines during the run."""

from __future__ import annotations

from grafana.build.layout import Row
from grafana.build.limits import limit
from grafana.build.palette import CORES, OK, RATIO, WARNING
from grafana.build.panels import About, Panel, timeseries
from grafana.build.queries import over_time
from grafana.build.run_selection import on_hosts
from grafana.build.run_why import OPEN_HOST


def write_hosts() -> Row:
    """Return the row on the run's machines."""
    return Row(
        "Resource timeline: the run's machines",
        (
            _draw_load(),
            _draw_host_memory(),
            _draw_waiting(),
            _draw_pressure(),
            _draw_shared_memory(),
        ),
        is_collapsed=True,
    )


def _draw_load() -> Panel:
    busy = 'rate(host_cpu_seconds_total{@host, mode!~"idle|iowait"}[$__rate_interval])'
    return timeseries(
        "CPU by what it does",
        About(
            "Cores in use on all machines of the run, by kind of time.",
            "mostly user time of the loader's workers.",
            "much system time is copying or locks, steal is a hypervisor that assigns the cores to"
            " others.",
        ),
        over_time(f"sum by (mode) ({on_hosts(busy)})", "{{mode}}"),
        unit=CORES,
        empty="The machines report no CPU time",
        least=0,
        is_stacked=True,
        calcs=("lastNotNull", "mean"),
    )


def _draw_host_memory() -> Panel:
    return timeseries(
        "Host memory",
        About(
            "The share of memory in use on each machine of the run.",
            "below the line.",
            "fewer workers and less prefetching need less: the kernel kills when it is full.",
        ),
        over_time(on_hosts("instance:memory_used:ratio{@host}"), "{{instance}}"),
        unit=RATIO,
        steps=((None, OK), (limit("host_high_memory_usage:used_ratio"), WARNING)),
        empty="The machines report no memory",
        least=0,
        most=1,
        link=OPEN_HOST,
    )


def _draw_waiting() -> Panel:
    every = "sum by (job, instance) (rate(host_cpu_seconds_total{@host}[$__rate_interval]))"
    idle = (
        "sum by (job, instance)"
        ' (rate(host_cpu_seconds_total{@host, mode="iowait"}[$__rate_interval]))'
    )
    return timeseries(
        "CPU idle for I/O",
        About(
            "The share of all cores' time that was idle with requests to disks outstanding.",
            "below the line.",
            "a faster disk, a local copy of the data or more workers in parallel help.",
        ),
        over_time(on_hosts(f"{idle} / ({every} > 0)"), "{{instance}}"),
        unit=RATIO,
        steps=((None, OK), (limit("host_io_bottleneck:wait_ratio"), WARNING)),
        empty="The machines report no CPU time",
        least=0,
        most=1,
        link=OPEN_HOST,
    )


def _draw_pressure() -> Panel:
    stalled = 'rate(host_pressure_stalled_seconds_total{@host, level="some"}[$__rate_interval])'
    return timeseries(
        "Pressure",
        About(
            "The share of time in which some task waited for a resource, on the machine of the run"
            " where it was the most.",
            "near 0 %, for memory above all.",
            "cpu wants fewer workers or more cores, io a faster disk, memory less of everything.",
        ),
        over_time(f"max by (resource) ({on_hosts(stalled)})", "{{resource}}"),
        unit=RATIO,
        empty="The kernels report no pressure",
        least=0,
        most=1,
        width=12,
    )


def _draw_shared_memory() -> Panel:
    used = (
        '1 - host_filesystem_avail_bytes{@host, mountpoint="/dev/shm"}'
        ' / (host_filesystem_size_bytes{@host, mountpoint="/dev/shm"} > 0)'
    )
    return timeseries(
        "Shared memory",
        About(
            "How full /dev/shm is, through which the loader's workers hand over batches.",
            "below the line.",
            "a bus error of a worker is its end: mount it larger, or use fewer workers.",
        ),
        over_time(on_hosts(used), "{{instance}}"),
        unit=RATIO,
        steps=((None, OK), (1 - limit("host_shared_memory_low:avail_ratio"), WARNING)),
        empty="The machines have no /dev/shm",
        least=0,
        most=1,
        width=12,
        link=OPEN_HOST,
    )
