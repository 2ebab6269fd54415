"""Open rows of the board of hosts: each resource's use beside the waits for it."""

from __future__ import annotations

from typing import Final

from grafana.build.layout import Row
from grafana.build.limits import limit
from grafana.build.palette import (
    BYTES,
    BYTES_PER_SECOND,
    COUNT,
    CRITICAL,
    OK,
    RATIO,
    SERIES,
    UNKNOWN,
    WARNING,
)
from grafana.build.panels import About, Panel, Steps, colour_series, timeseries
from grafana.build.queries import name_series, over_time

_GONE: Final = "The host does not answer"
_NO_PRESSURE: Final = "This kernel does not tell (PSI)"
_LEVELS: Final = {"some": "some tasks", "full": "all tasks"}


def write_cpu() -> Row:
    """Give the row of the cores."""
    return Row("CPU", (_draw_modes(), _draw_load(), _draw_pressure("cpu", "cores", ())))


def write_memory() -> Row:
    """Give the row of memory and swap."""
    steps = ((None, OK), (limit("host_memory_pressure:stalled_ratio"), CRITICAL))
    waits = _draw_pressure("memory", "memory", steps, alerts=("HostMemoryPressure",))
    return Row("Memory", (_draw_parts(), _draw_used(), waits, _draw_swap()))


def write_disks() -> Row:
    """Give the row of the disks."""
    return Row("Disks", (_draw_throughput(), _draw_busy(), _draw_io_waits()))


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
    )


def _draw_load() -> Panel:
    cores = 'on (job, instance) (host_cpu_cores{@host, kind="logical"} > 0)'
    return timeseries(
        "Load and run queue of each core",
        About(
            "Tasks that ran or wanted to, in the mean of a minute, and tasks that could run at the "
            "moment, for each core.",
            "below 1.",
            "above it tasks wait for cores: use fewer data loader workers, or fewer threads in each.",
        ),
        over_time(
            name_series(
                "what",
                {
                    "load, 1 min": f"(host_load1{{@host}} / {cores})",
                    "run queue": f"(host_processes_running{{@host}} / {cores})",
                },
            ),
            "{{what}}",
        ),
        unit=COUNT,
        least=0,
        empty=_GONE,
    )


def _draw_pressure(
    resource: str, words: str, steps: Steps, *, alerts: tuple[str, ...] = ()
) -> Panel:
    return timeseries(
        f"Waits for {words}",
        About(
            f"Share of the time for which some tasks, or all that had work, waited for {words}.",
            "near 0 %; a few percent for some tasks do no harm.",
            "where all tasks wait the machine stands still: end or move what takes the most.",
            alerts=alerts,
        ),
        over_time(
            name_series(
                "who",
                {
                    who: "rate(host_pressure_stalled_seconds_total{"
                    f'@host, resource="{resource}", level="{level}"}}[$__rate_interval])'
                    for level, who in _LEVELS.items()
                },
            ),
            "{{who}}",
        ),
        unit=RATIO,
        steps=steps,
        least=0,
        most=1,
        empty=_NO_PRESSURE,
        width=8 if resource == "cpu" else 6,
    )


def _draw_parts() -> Panel:
    parts = {
        "programs": "(memory_total_bytes{@host} - memory_free_bytes{@host}"
        " - memory_buffers_bytes{@host} - memory_cached_bytes{@host})",
        "shared": "memory_shared_bytes{@host}",
        "files": "(memory_cached_bytes{@host} - memory_shared_bytes{@host})",
        "buffers": "memory_buffers_bytes{@host}",
        "free": "memory_free_bytes{@host}",
    }
    colours = (SERIES[0], SERIES[3], SERIES[2], SERIES[4], UNKNOWN)
    return timeseries(
        "What memory holds",
        About(
            "Memory of programs and of the kernel, shared memory such as /dev/shm, cached files, "
            "cached blocks, and what nothing uses.",
            "little is free: what programs leave caches files, and is given back when it is needed.",
            "programs that grow without end leak; shared memory that stays after a run was left in "
            "/dev/shm.",
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
        width=6,
    )


def _draw_used() -> Panel:
    return timeseries(
        "Memory used",
        About(
            "Share of memory that programs hold and cannot be had without swapping.",
            "below the line.",
            "find the process that grows (ps aux --sort=-rss), and data loader workers that each hold "
            "a copy of the dataset.",
            alerts=("HostHighMemoryUsage",),
        ),
        over_time("instance:memory_used:ratio{@host}", "used"),
        unit=RATIO,
        steps=((None, OK), (limit("host_high_memory_usage:used_ratio"), WARNING)),
        least=0,
        most=1,
        calcs=("lastNotNull", "max"),
        empty=_GONE,
        width=6,
    )


def _draw_swap() -> Panel:
    return timeseries(
        "Swap traffic",
        About(
            "What is read back from swap, and what is written to it.",
            "near 0; one of both alone is memory that is put away or fetched once.",
            "both above the line: what is in use does not fit, so use fewer workers or a smaller cache.",
            alerts=("HostSwapping",),
        ),
        over_time(
            name_series(
                "direction",
                {
                    "in": "rate(host_swap_in_bytes_total{@host}[$__rate_interval])",
                    "out": "rate(host_swap_out_bytes_total{@host}[$__rate_interval])",
                },
            ),
            "{{direction}}",
        ),
        unit=BYTES_PER_SECOND,
        steps=((None, OK), (limit("host_swapping:bytes_per_second"), WARNING)),
        least=0,
        calcs=("lastNotNull", "max"),
        empty="This kernel has no swap",
        width=6,
    )


def _draw_throughput() -> Panel:
    return timeseries(
        "Throughput",
        About(
            "What is read from and written to each disk, the busiest ones; disks made of others, as "
            "dm-0, are shown beside them.",
            "reads of a data set are even, checkpoints are short bursts of writing.",
            "compare it with what the disk can do: fio, or its data sheet.",
        ),
        over_time(
            "topk(8, rate(host_disk_read_bytes_total{@host}[$__rate_interval]))", "{{device}} read"
        ),
        over_time(
            "topk(8, rate(host_disk_written_bytes_total{@host}[$__rate_interval]))",
            "{{device}} written",
        ),
        unit=BYTES_PER_SECOND,
        least=0,
        empty="No disk here tells",
    )


def _draw_busy() -> Panel:
    return timeseries(
        "Busy",
        About(
            "Share of the time for which each disk had requests in flight, the ten busiest.",
            "any: an SSD that is busy all the time may still take more.",
            "a hard disk near 100 % is full of work: read from a faster one, or pack the dataset.",
        ),
        over_time(
            "topk(10, rate(host_disk_io_seconds_total{@host}[$__rate_interval]))", "{{device}}"
        ),
        unit=RATIO,
        least=0,
        most=1,
        empty="No disk here tells",
    )


def _draw_io_waits() -> Panel:
    pressure = 'rate(host_pressure_stalled_seconds_total{@host, resource="io", level="%s"}[$__rate_interval])'
    waits = {who: pressure % level for level, who in _LEVELS.items()}
    return timeseries(
        "Waits for disks",
        About(
            "Share of the time for which some tasks, or all that had work, waited for disks, and for "
            "which cores were idle because of it.",
            "below the line, while a run trains.",
            "see which disk is busy, then cache or pack the dataset, or read it from a faster one.",
            alerts=("HostIOBottleneck",),
        ),
        over_time(
            name_series("who", {**waits, "idle cores": "host_io_wait_ratio{@host}"}), "{{who}}"
        ),
        unit=RATIO,
        steps=((None, OK), (limit("host_io_bottleneck:stalled_ratio"), WARNING)),
        least=0,
        most=1,
        empty=_GONE,
    )
