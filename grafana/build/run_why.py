"""The panels with the reasons for a run's verdict, and the graph of its time by phase."""

from __future__ import annotations

from typing import Final

from grafana.build.fields import Json
from grafana.build.layout import Row, link_to
from grafana.build.limits import limit
from grafana.build.palette import (
    BYTES_PER_SECOND,
    OK,
    RATIO,
    SAMPLES_PER_SECOND,
    SERIES,
    WARNING,
)
from grafana.build.panels import (
    About,
    Panel,
    colour_devices,
    colour_series,
    dash_series,
    timeseries,
)
from grafana.build.parts import ACCELERATORS, HOST
from grafana.build.queries import over_time
from grafana.build.run_selection import MOST_LINES, PACE, on_hosts, pick_devices

OPEN_HOST: Final = link_to(HOST, "Open this host", instance="${__field.labels.instance}")
OPEN_ACCELERATORS: Final = link_to(
    ACCELERATORS, "Open this host's accelerators", instance="${__field.labels.instance}"
)

_PHASE_COLOURS: Final = (
    *(("data_wait", SERIES[1]), ("h2d", SERIES[4]), ("forward", SERIES[0])),
    *(("backward", SERIES[2]), ("optimizer", SERIES[3]), ("other", SERIES[7])),
    *(("validation", SERIES[6]), ("checkpoint", SERIES[5])),
)


def write_why() -> Row:
    """Return the row with the values from which the verdict is derived, for the run's machines."""
    return Row(
        "Why: the run's own machines and accelerators",
        (
            _draw_pace(),
            _draw_waiting(),
            _draw_busy(),
            _draw_cpu(),
            _draw_disks(),
            _draw_network(),
        ),
        is_collapsed=True,
    )


def _draw_pace() -> Panel:
    usual = "quantile_over_time(0.5, run:training_samples:rate10m{@run}[$__range] @ end())"
    return timeseries(
        "Throughput",
        About(
            "Samples trained on per second by all ranks, and the share of this time range's median"
            " below which the alert begins.",
            "even, but for validation and checkpoints.",
            "see which of the graphs beside it changed at the same moment.",
            ("TrainingThroughputDrop",),
        ),
        over_time(PACE, "all ranks"),
        over_time(f"{limit('training_throughput_drop:ratio'):g} * sum({usual})", "alert below"),
        unit=SAMPLES_PER_SECOND,
        empty="No batch size reported",
        least=0,
        overrides=(dash_series("alert below", WARNING),),
    )


def draw_phases() -> Panel:
    """Return the graph of the time that all ranks spend in each phase."""
    seconds = "rate(training_phase_seconds_total{@rank}[$__rate_interval])"
    return timeseries(
        "Time by phase",
        About(
            "What all ranks spend their time on, by the host's clock.",
            "mostly forward and backward.",
            "a band that grew is where the time went: data_wait is the loader, h2d the copy to the"
            " device, other what is not marked.",
        ),
        over_time(
            f"sum by (phase) ({seconds})"
            " / on () group_left () (count(training_process_up{@rank} == 1) > 0)",
            "{{phase}}",
        ),
        unit=RATIO,
        empty="none reported",
        least=0,
        most=1,
        is_stacked=True,
        calcs=("lastNotNull", "mean"),
        overrides=colour_phases(),
    )


def colour_phases() -> tuple[Json, ...]:
    """Return the overrides that set the colours of phases."""
    return tuple(colour_series(f"^{phase}$", colour) for phase, colour in _PHASE_COLOURS)


def _draw_waiting() -> Panel:
    waited = 'rate(training_phase_seconds_total{@rank, phase="data_wait"}[$__rate_interval])'
    stepped = "rate(training_step_duration_seconds_sum{@rank}[$__rate_interval])"
    return timeseries(
        "Wait for data",
        About(
            "The share of the steps' time in which ranks wait for the data loader.",
            "below the line.",
            "more workers, more prefetching or data on a local disk help: see whether CPU or disk"
            " is the limit.",
            ("DataLoaderBottleneck",),
        ),
        over_time(f"sum({waited}) / (sum({stepped}) > 0)", "all ranks"),
        over_time("max(run:training_data_wait:ratio10m{@run})", "worst rank, mean of 10 min"),
        unit=RATIO,
        steps=((None, OK), (limit("data_loader_bottleneck:wait_ratio"), WARNING)),
        empty="The wait for data is not marked",
        least=0,
        most=1,
    )


def _draw_busy() -> Panel:
    gpu, hpu = (
        limit(f"{kind}_low_utilization:utilization_percent") / 100 for kind in ("gpu", "hpu")
    )
    busy = "accelerator:busy:ratio5m{@host}"
    return timeseries(
        "Accelerator busy",
        About(
            f"The share of 5 minutes in which each accelerator of the run computed; of many, the"
            f" {MOST_LINES} least busy.",
            f"above {gpu * 100:g} % on GPUs and {hpu * 100:g} % on HPUs, all alike.",
            "low with much wait for data is input-bound; lower than its neighbours waits for them.",
        ),
        over_time(
            pick_devices(busy, busy, "bottomk"),
            "{{kind}} {{device}} {{instance}}",
        ),
        unit=RATIO,
        steps=((None, OK), *sorted(((hpu, WARNING), (gpu, WARNING)))),
        empty="No accelerator that the run holds",
        least=0,
        most=1,
        calcs=("lastNotNull", "mean"),
        overrides=colour_devices(),
        link=OPEN_ACCELERATORS,
    )


def _draw_cpu() -> Panel:
    idle = 'rate(host_cpu_seconds_total{@host, mode=~"idle|iowait"}[$__rate_interval])'
    every = "rate(host_cpu_seconds_total{@host}[$__rate_interval])"
    busy = f"1 - sum by (job, instance) ({idle}) / (sum by (job, instance) ({every}) > 0)"
    return timeseries(
        "Host CPU",
        About(
            "The share of all cores' time in which they computed, on each machine of the run.",
            "some room left.",
            "full cores and a wait for data mean that the loader's workers lack CPU.",
        ),
        over_time(on_hosts(busy), "{{instance}}"),
        unit=RATIO,
        empty="The machines report no CPU time",
        least=0,
        most=1,
        calcs=("lastNotNull", "mean"),
        link=OPEN_HOST,
    )


def _draw_disks() -> Panel:
    return timeseries(
        "Disk read and written",
        About(
            "What the machines of the run read from and write to their disks.",
            "reads follow the epochs, writes the checkpoints.",
            "a flat top and a wait for data mean that the disk is the limit; a write that lasts for"
            " minutes is a checkpoint on a slow one.",
        ),
        over_time(
            on_hosts("clamp_min(deriv(disk_io_bytes{@host}[$__rate_interval]), 0)"),
            "{{instance}} {{direction}}",
        ),
        unit=BYTES_PER_SECOND,
        empty="The machines have no disks of their own",
        least=0,
        link=OPEN_HOST,
    )


def _draw_network() -> Panel:
    return timeseries(
        "Network",
        About(
            "What each machine of the run receives and sends.",
            "even from step to step, where data or gradients come over the network.",
            "a flat top means that the link is the limit, a gap that the other side is.",
        ),
        over_time(
            on_hosts("clamp_min(deriv(network_io_bytes{@host}[$__rate_interval]), 0)"),
            "{{instance}} {{direction}}",
        ),
        unit=BYTES_PER_SECOND,
        empty="The machines report no network traffic",
        least=0,
        calcs=("lastNotNull", "mean"),
        link=OPEN_HOST,
    )
