"""The memory collector: the host's total and available memory and swap."""

from __future__ import annotations

from trainvitals.metrics.collectors.collector import SourceCollector
from trainvitals.metrics.collectors.tables import scalar_block
from trainvitals.metrics.families import Block, Family
from trainvitals.sources.files import Roots
from trainvitals.sources.host.memory import MemoryReading, MemorySource

_FAMILIES = (
    Family(
        "memory_usage_bytes",
        "gauge",
        "Memory in use. Source: /proc/meminfo MemTotal less MemAvailable.",
    ),
    Family(
        "memory_total_bytes",
        "gauge",
        "Memory that the host can use. Source: /proc/meminfo MemTotal.",
    ),
    Family(
        "memory_available_bytes",
        "gauge",
        "Memory to be had without swapping. Source: /proc/meminfo MemAvailable.",
    ),
    Family(
        "memory_free_bytes",
        "gauge",
        "Memory that nothing uses, not even a cache. Source: /proc/meminfo MemFree.",
    ),
    Family(
        "memory_buffers_bytes",
        "gauge",
        "Memory that caches blocks of devices. Source: /proc/meminfo Buffers.",
    ),
    Family(
        "memory_cached_bytes",
        "gauge",
        "Memory that caches files, shared memory included. Source: /proc/meminfo Cached.",
    ),
    Family(
        "memory_shared_bytes",
        "gauge",
        "Memory in tmpfs, such as /dev/shm, and shared. Source: /proc/meminfo Shmem.",
    ),
    Family(
        "memory_dirty_bytes",
        "gauge",
        "Memory not yet written to disk. Source: /proc/meminfo Dirty.",
    ),
    Family("host_swap_total_bytes", "gauge", "Swap space. Source: /proc/meminfo SwapTotal."),
    Family(
        "host_swap_used_bytes",
        "gauge",
        "Swap space in use. Source: /proc/meminfo SwapTotal less SwapFree.",
    ),
    Family(
        "host_swap_in_bytes_total",
        "counter",
        "Memory read back from swap since boot. Source: /proc/vmstat pswpin.",
    ),
    Family(
        "host_swap_out_bytes_total",
        "counter",
        "Memory written to swap since boot. Source: /proc/vmstat pswpout.",
    ),
    Family(
        "host_oom_kills_total",
        "counter",
        "Processes killed for want of memory. Source: /proc/vmstat oom_kill.",
    ),
)


class MemoryCollector(SourceCollector[MemoryReading]):
    """The memory collector, which collects the host's total and available memory and swap.

    Args:
        roots: The root directories of the file systems to read.
    """

    name = "memory"

    def __init__(self, *, roots: Roots = Roots()) -> None:  # noqa: B008 - immutable
        super().__init__(MemorySource(roots=roots))

    def express(self, reading: MemoryReading) -> tuple[Block, ...]:
        """Return the metric families of a memory reading."""
        values = (
            reading.used_bytes,
            reading.total_bytes,
            reading.available_bytes,
            reading.free_bytes,
            reading.buffers_bytes,
            reading.cached_bytes,
            reading.shared_bytes,
            reading.dirty_bytes,
            reading.swap_total_bytes,
            reading.swap_used_bytes,
            reading.swap_in_bytes,
            reading.swap_out_bytes,
            reading.oom_kills,
        )
        return (scalar_block(self.name, _FAMILIES, values),)
