"""The row of the host dashboard on its workload: runs, data loading and containers."""

from __future__ import annotations

from typing import Final

from grafana.build.layout import Row, link_to
from grafana.build.limits import limit
from grafana.build.palette import (
    BYTES,
    BYTES_PER_SECOND,
    CORES,
    OK,
    RATIO,
    WARNING,
)
from grafana.build.panels import About, Panel, timeseries
from grafana.build.parts import CONTAINERS, RUN
from grafana.build.queries import name_series, over_time

_GONE: Final = "The host does not answer"


def write_loaders() -> Row:
    """Return the collapsed row on runs and containers."""
    panels = (
        _draw_data_wait(),
        _draw_input(),
        _draw_containers(
            "Memory of containers",
            "Memory of each container without inactive file cache, the ten largest.",
            "container_memory_working_set_bytes{@host}",
            BYTES,
        ),
        _draw_containers(
            "CPU of containers",
            "Cores that each container uses, the ten busiest.",
            "rate(container_cpu_usage_seconds_total{@host}[$__rate_interval])",
            CORES,
        ),
    )
    return Row("Runs and containers", panels, is_collapsed=True)


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
        empty="No run here reports its steps: docs/training.md has how one does",
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


def _draw_containers(title: str, shows: str, expr: str, unit: str) -> Panel:
    return timeseries(
        title,
        About(
            shows,
            "what each was made for.",
            "click on a container: its board has its use, its limits and its deaths.",
        ),
        over_time(f"topk(10, {expr})", "{{name}}"),
        unit=unit,
        least=0,
        empty="No container is seen to run: docs/containers.md has which are seen",
        width=12,
        link=link_to(
            CONTAINERS,
            "Open the container",
            instance="${__field.labels.instance}",
            container="${__field.labels.name}",
        ),
    )
