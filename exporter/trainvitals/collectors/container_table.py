"""Which reading of a container is served under which name, one line each.

Names and meanings are cAdvisor's where it has the same. A reading that is None has no series. The
order is that of importance: a container has at most `MOST_SERIES` series, and what stands last gives
way first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainvitals.families import MetricType
from trainvitals.sources.containers.reading import ContainerReading, Usage

MOST_SERIES = 25


@dataclass(frozen=True, slots=True)
class Metric:
    """A family that has one series for each container.

    Attributes:
        name: The family's name.
        type: Its type.
        help: Its HELP.
        value: Takes the value out of what is known of a container; None for no series.
    """

    name: str
    type: MetricType
    help: str
    value: Callable[[ContainerReading], float | None]


def _used(
    name: str, type_: MetricType, help_: str, value: Callable[[Usage], float | None]
) -> Metric:
    return Metric(
        name,
        type_,
        help_,
        lambda container: None if container.usage is None else value(container.usage),
    )


METRICS = (
    Metric(
        "container_start_time_seconds",
        "gauge",
        "When it was last started, in seconds since 1970. Source: event start, State.StartedAt.",
        lambda container: container.started,
    ),
    Metric(
        "container_restarts_total",
        "counter",
        "How often it was started again. Source: event start, RestartCount.",
        lambda container: container.restarts,
    ),
    Metric(
        "container_last_exit_code",
        "gauge",
        "How it last ended, 128 and more for a signal. Source: event die, State.ExitCode.",
        lambda container: None if container.last_death is None else container.last_death.exit_code,
    ),
    Metric(
        "container_last_death_timestamp_seconds",
        "gauge",
        "When it last ended, in seconds since 1970. Source: event die, State.FinishedAt.",
        lambda container: None if container.last_death is None else container.last_death.time,
    ),
    _used(
        "container_memory_working_set_bytes",
        "gauge",
        "Memory charged to it without inactive file cache. Source: memory.current, memory.stat.",
        lambda usage: usage.memory_working_set_bytes,
    ),
    _used(
        "container_memory_unreclaimable_bytes",
        "gauge",
        "Memory that the kernel cannot drop before it kills. Source: memory.stat.",
        lambda usage: usage.memory_unreclaimable_bytes,
    ),
    _used(
        "container_memory_max_usage_bytes",
        "gauge",
        "The most memory that was ever charged to it. Source: memory.peak.",
        lambda usage: usage.memory_peak_bytes,
    ),
    _used(
        "container_spec_memory_limit_bytes",
        "gauge",
        "How much memory it may have, 0 for no limit. Source: memory.max.",
        lambda usage: usage.memory_limit_bytes,
    ),
    _used(
        "container_pressure_memory_stalled_seconds_total",
        "counter",
        "How long all of its tasks waited for memory. Source: memory.pressure full.",
        lambda usage: usage.memory_stalled_seconds,
    ),
    _used(
        "container_cpu_usage_seconds_total",
        "counter",
        "CPU time that it used. Source: cpu.stat usage_usec.",
        lambda usage: usage.cpu_seconds,
    ),
    _used(
        "container_cpu_cfs_throttled_seconds_total",
        "counter",
        "How long its CPU limit held it back. Source: cpu.stat throttled_usec.",
        lambda usage: usage.cpu_throttled_seconds,
    ),
    _used(
        "container_threads",
        "gauge",
        "Processes and threads in it. Source: pids.current.",
        lambda usage: usage.processes,
    ),
    _used(
        "container_network_receive_bytes_total",
        "counter",
        "What came in over a network of its own. Source: /proc/PID/net/dev.",
        lambda usage: usage.received_bytes,
    ),
    _used(
        "container_network_transmit_bytes_total",
        "counter",
        "What went out over a network of its own. Source: /proc/PID/net/dev.",
        lambda usage: usage.transmitted_bytes,
    ),
    _used(
        "container_fs_reads_bytes_total",
        "counter",
        "What it read from block devices. Source: io.stat rbytes.",
        lambda usage: usage.read_bytes,
    ),
    _used(
        "container_fs_writes_bytes_total",
        "counter",
        "What it wrote to block devices. Source: io.stat wbytes.",
        lambda usage: usage.written_bytes,
    ),
)
