"""The CPU collector: CPU time by mode, load, cores and frequencies."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from trainvitals.metrics.collectors.collector import SourceCollector
from trainvitals.metrics.collectors.tables import scalar_block
from trainvitals.metrics.families import Block, Family, label_samples
from trainvitals.sources.files import Roots
from trainvitals.sources.host.cpu import MODES, CpuReading, CpuSource

_SCALARS = (
    Family(
        "cpu_utilization_percent",
        "gauge",
        "CPU time neither idle nor waiting for I/O, over the last second or since the last scrape. Source: /proc/stat.",
    ),
    Family(
        "host_io_wait_ratio",
        "gauge",
        "CPU time idle with I/O outstanding, over the same time. Source: /proc/stat iowait.",
    ),
    Family(
        "host_load1",
        "gauge",
        "Tasks that ran or wanted to, mean of about 1 minute. Source: /proc/loadavg.",
    ),
    Family(
        "host_load5",
        "gauge",
        "Tasks that ran or wanted to, mean of about 5 minutes. Source: /proc/loadavg.",
    ),
    Family(
        "host_load15",
        "gauge",
        "Tasks that ran or wanted to, mean of about 15 minutes. Source: /proc/loadavg.",
    ),
    Family(
        "host_processes_running",
        "gauge",
        "Tasks that run or could. Source: /proc/stat procs_running.",
    ),
    Family(
        "host_processes_blocked",
        "gauge",
        "Tasks that wait for I/O. Source: /proc/stat procs_blocked.",
    ),
)


class CpuCollector(SourceCollector[CpuReading]):
    """The CPU collector: the CPU time in each mode, the load, and the core frequencies.

    Args:
        roots: The root directories of the file systems to read.
        clock: A function that returns the time of a monotonic clock, in seconds.
        max_cores: The maximum number of cores with separate series.
    """

    name = "cpu"

    def __init__(
        self,
        *,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        clock: Callable[[], float] = time.monotonic,
        max_cores: int = 64,
    ) -> None:
        super().__init__(CpuSource(roots=roots, clock=clock, max_cores=max_cores))

    def express(self, reading: CpuReading) -> tuple[Block, ...]:
        """Return the metric families of a CPU reading."""
        scalars = (
            reading.utilization_percent,
            reading.io_wait_ratio,
            reading.load1,
            reading.load5,
            reading.load15,
            reading.processes_running,
            reading.processes_blocked,
        )
        frequencies = reading.frequencies
        values: list[float] = [*reading.mode_seconds, *reading.core_busy_seconds, reading.logical]
        if reading.physical is not None:
            values.append(reading.physical)
        if frequencies is not None:
            values += (frequencies.mean_hertz, frequencies.min_hertz, frequencies.max_hertz)
        shape = (reading.cores, reading.physical is not None, frequencies is not None)
        return (
            scalar_block(self.name, _SCALARS, scalars),
            Block((self.name, "cores", *shape), partial(_describe, *shape), values),
        )

    def omitted(self, reading: CpuReading) -> int:
        """Return the number of cores omitted because of the limit on cores."""
        return reading.dropped


def _describe(
    cores: tuple[str, ...],
    physical: bool,  # noqa: FBT001 - part of the shape
    frequencies: bool,  # noqa: FBT001 - part of the shape
) -> tuple[Family, ...]:
    families = [
        Family(
            "host_cpu_seconds_total",
            "counter",
            "Time of all cores, by mode. Source: /proc/stat.",
            label_samples("mode", MODES),
        ),
        Family(
            "host_cpu_core_busy_seconds_total",
            "counter",
            "Time that a core was busy. Source: /proc/stat.",
            label_samples("cpu", cores),
        ),
        Family(
            "host_cpu_cores",
            "gauge",
            "Cores online, with hyper-threads and without. Source: /proc/stat, /sys cpu topology.",
            label_samples("kind", ("logical", "physical") if physical else ("logical",)),
        ),
    ]
    if frequencies:
        families.append(
            Family(
                "host_cpu_frequency_hertz",
                "gauge",
                "How fast the cores run. Source: /sys cpufreq scaling_cur_freq, or /proc/cpuinfo.",
                label_samples("statistic", ("mean", "min", "max")),
            )
        )
    return tuple(families)
