"""Rows of the board of hosts about what runs there: what data loaders need, and containers."""

from __future__ import annotations

from typing import Final

from grafana.build.layout import Row, link_to
from grafana.build.limits import limit
from grafana.build.palette import (
    BYTES,
    BYTES_PER_SECOND,
    CORES,
    COUNT,
    OK,
    RATIO,
    WARNING,
)
from grafana.build.panels import (
    About,
    Panel,
    timeseries,
)
from grafana.build.parts import CONTAINERS, RUN
from grafana.build.queries import name_series, over_time

_GONE: Final = "The host does not answer"


def write_loaders() -> Row:
    """Give the row of what data loaders live on."""
    panels = (_draw_data_wait(), _draw_input(), _draw_cache(), _draw_shared(), _draw_trainers())
    return Row("What data loaders need", panels)


def _draw_data_wait() -> Panel:
    return timeseries(
        "Waits for data, by run",
        About(
            "Share of its steps' time for which each run here waits for data, mean of 10 minutes.",
            "a few percent.",
            "above the line the accelerators wait for this machine: see whether cores, disks or the "
            "network are at their limit, and add workers only if cores are left.",
        ),
        over_time("topk(10, run:training_data_wait:ratio10m{@host})", "{{run}}"),
        unit=RATIO,
        steps=((None, OK), (limit("data_loader_bottleneck:wait_ratio"), WARNING)),
        least=0,
        most=1,
        empty="No run here tells how long its steps take",
        width=12,
        link=link_to(
            RUN,
            "Open the run",
            instance="${__field.labels.instance}",
            run="${__field.labels.run}",
        ),
    )


def _draw_input() -> Panel:
    sources = {
        "disks": 'clamp_min(deriv(disk_io_bytes{@host, direction="read"}[$__rate_interval]), 0)',
        "network": 'clamp_min(deriv(network_io_bytes{@host, direction="receive"}[$__rate_interval]), 0)',
    }
    return timeseries(
        "What comes in",
        About(
            "What is read from all disks and received over all interfaces: a dataset comes by one or "
            "the other.",
            "even, and near 0 once the dataset is in memory.",
            "where it falls while runs wait for data, the disk or the server of the dataset is slow.",
        ),
        over_time(name_series("source", sources), "{{source}}"),
        unit=BYTES_PER_SECOND,
        least=0,
        empty=_GONE,
        width=12,
    )


def _draw_cache() -> Panel:
    parts = {
        "files": "(memory_cached_bytes{@host} - memory_shared_bytes{@host})",
        "not yet written": "memory_dirty_bytes{@host}",
    }
    return timeseries(
        "Files in memory",
        About(
            "How much of files is in memory, and what of them has yet to be written to disk.",
            "a dataset that fits is read from disk once, in the first epoch.",
            "where it is smaller than the dataset, each epoch reads from disk again: pack the data.",
        ),
        over_time(name_series("part", parts), "{{part}}"),
        unit=BYTES,
        least=0,
        empty=_GONE,
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
        empty="No /dev/shm on this host",
    )


def _draw_trainers() -> Panel:
    return timeseries(
        "CPU of containers that hold devices",
        About(
            "Cores that each container uses which holds an accelerator, the ten busiest.",
            "about one core for each data loader worker that is at work.",
            "below its limit and waiting for data, it may use more workers.",
        ),
        over_time(
            """
            topk(10, rate(container_cpu_usage_seconds_total{@host}[$__rate_interval])
              and on (job, instance, name) container_accelerator_info{@host})
            """,
            "{{name}}",
        ),
        unit=CORES,
        least=0,
        empty="No container holds an accelerator",
        link=link_to(
            CONTAINERS,
            "Open the container",
            instance="${__field.labels.instance}",
            container="${__field.labels.name}",
        ),
    )


def write_containers() -> Row:
    """Give the closed row of containers."""
    panels = (
        _draw_containers(
            "Memory",
            "Memory of each container without inactive file cache, the ten largest.",
            "container_memory_working_set_bytes{@host}",
            BYTES,
        ),
        _draw_containers(
            "CPU",
            "Cores that each container uses, the ten busiest.",
            "rate(container_cpu_usage_seconds_total{@host}[$__rate_interval])",
            CORES,
        ),
        _draw_containers(
            "Restarts",
            "How often each container was started again around each moment.",
            "increase(container_restarts_total{@host}[$__rate_interval]) > 0",
            COUNT,
        ),
    )
    return Row("Containers on this host", panels, is_collapsed=True)


def _draw_containers(title: str, shows: str, expr: str, unit: str) -> Panel:
    is_count = unit == COUNT
    return timeseries(
        title,
        About(
            shows,
            "none." if is_count else "what each was made for.",
            "click on a container: its board says what it has, may have and died of.",
        ),
        over_time(f"topk(10, {expr})", "{{name}}"),
        unit=unit,
        least=0,
        is_bars=is_count,
        calcs=("lastNotNull", "max"),
        empty="No container was started again" if is_count else "No container on this host",
        link=link_to(
            CONTAINERS,
            "Open the container",
            instance="${__field.labels.instance}",
            container="${__field.labels.name}",
        ),
    )
