"""Panels on resource use by containers: memory relative to limits, cores, disks and networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from grafana.build.layout import Row
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
    UNKNOWN,
    WARNING,
)
from grafana.build.panels import About, Panel, colour_series, dash_series, timeseries
from grafana.build.queries import over_time

_NAME: Final = "on (job, instance, name)"
_USED: Final = "container_memory_working_set_bytes{@container}"
_LIMIT: Final = "container_spec_memory_limit_bytes{@container}"
_NOTHING: Final = "No container is seen to run: docs/containers.md has which are seen"
SHARE: Final = f"{_USED} / ({_LIMIT} > 0)"


def draw_limits() -> Panel:
    """Return the graph of containers near their memory limits, and of the machine's memory."""
    return timeseries(
        "Memory by its limit",
        About(
            "Memory without what the kernel can drop first, as a share of the container's limit: the"
            " ten that came nearest to it in the time range; dashed, the memory of the machine, which"
            " is the limit of all.",
            f"below {100 * limit('container_memory_near_limit:ratio'):.0f} %.",
            "raise the limit, or start with fewer data loader workers; where the machine is full, give"
            " every container a limit.",
            alerts=("ContainerMemoryNearLimit",),
        ),
        over_time(_keep_nearest(SHARE, 10), "{{name}}"),
        over_time("max(instance:memory_used:ratio{@host})", "this machine"),
        unit=RATIO,
        steps=((None, OK), (limit("container_memory_near_limit:ratio"), WARNING)),
        least=0,
        most=1,
        height=8,
        overrides=(dash_series("^this machine$", UNKNOWN),),
        empty="unknown",
    )


def write_memory() -> Row:
    """Return the collapsed row on memory."""
    panels = (_draw_nearest(), _draw_without_limit(), _draw_waits())
    return Row("Memory", panels, is_collapsed=True)


def write_use() -> Row:
    """Return the collapsed row on cores, disks and networks."""
    return Row(
        "CPU, disks and network",
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
                "CPU time that a container was denied by its CPU limit.",
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
                empty=_NOTHING,
            ),
            _draw_both(
                "Disks",
                {
                    "read": "container_fs_reads_bytes_total",
                    "written": "container_fs_writes_bytes_total",
                },
                "What containers read from disks and write to them.",
                "reading of a dataset, level, and checkpoints, in peaks.",
                "cache or pack files that are read repeatedly; steady writing is logs"
                " or swapped files.",
            ),
            _draw_both(
                "Network",
                {
                    "received": "container_network_receive_bytes_total",
                    "sent": "container_network_transmit_bytes_total",
                },
                "What comes in and goes out over containers' own networks.",
                "what ranks and datasets need.",
                "compare it with the speed of the machine's link.",
                empty="No container is seen to have its own network: the machine's is on its own board",
            ),
        ),
        is_collapsed=True,
    )


def _draw_nearest() -> Panel:
    return timeseries(
        "The nearest to its limit",
        About(
            "What the container holds that came nearest to its limit, or the only one chosen;"
            " what cannot be dropped leads to a kill.",
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
        width=8,
        overrides=(
            colour_series("working set$", SERIES[0]),
            colour_series("cannot be dropped$", SERIES[1]),
            dash_series("limit$", CRITICAL),
        ),
        empty="No container is seen that has a memory limit",
    )


def _draw_waits() -> Panel:
    return timeseries(
        "Waiting for memory",
        About(
            "Share of the time in which all tasks of a container waited for memory: the"
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
        width=8,
        empty="No container is seen to run, or the kernel counts no pressure",
    )


def _draw_without_limit() -> Panel:
    return timeseries(
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
        width=8,
        empty="No container is seen that has no memory limit",
    )


def _top(rate: str) -> str:
    return f"topk(10, {rate % '[$__rate_interval]'})"


def _keep_nearest(expr: str, count: int) -> str:
    """Return a query limited to the containers that came nearest to their limits."""
    most = f"max_over_time({_USED}[$__range] @ end())"
    allowed = f"max_over_time({_LIMIT}[$__range] @ end())"
    return f"{expr} and {_NAME} topk({count}, {most} / ({allowed} > 0))"


def _draw(
    title: str,
    counter: str,
    unit: str,
    shows: str,
    normal: str,
    act: str,
) -> Panel:
    """Return a graph of the ten containers with the highest rate of a counter."""
    return timeseries(
        title,
        About(f"{shows[:-1]}: the ten with the most.", normal, act),
        over_time(_top(f"rate({counter}{{@container}}%s)"), "{{name}}"),
        unit=unit,
        least=0,
        empty=_NOTHING,
    )


def _draw_both(
    title: str,
    counters: Mapping[str, str],
    shows: str,
    normal: str,
    act: str,
    *,
    empty: str = _NOTHING,
) -> Panel:
    """Return a graph of the eight containers with the highest rate of each of two counters."""
    return timeseries(
        title,
        About(f"{shows[:-1]}: the eight with the most of each.", normal, act),
        *(
            over_time(
                f"topk(8, rate({counter}{{@container}}[$__rate_interval]))", f"{{{{name}}}} {verb}"
            )
            for verb, counter in counters.items()
        ),
        unit=BYTES_PER_SECOND,
        least=0,
        width=12,
        empty=empty,
    )
