"""The kernel collector: the boot time, the current time, and the state of the clock."""

from __future__ import annotations

import time
from collections.abc import Callable

from trainvitals.metrics.collectors.collector import SourceCollector
from trainvitals.metrics.collectors.tables import scalar_block
from trainvitals.metrics.families import Block, Family
from trainvitals.sources.files import Roots
from trainvitals.sources.host.kernel import ClockState, KernelReading, KernelSource, read_uptime

_FAMILIES = (
    Family(
        "host_boot_time_seconds",
        "gauge",
        "When the host booted, in seconds since 1970. Source: /proc/stat btime.",
    ),
    Family(
        "host_time_seconds",
        "gauge",
        "The host's time of day, in seconds since 1970. Source: clock_gettime.",
    ),
    Family(
        "host_clock_offset_seconds",
        "gauge",
        "How far the clock is behind. Source: adjtimex offset.",
    ),
    Family(
        "host_clock_synchronized",
        "gauge",
        "Whether the clock is kept right. Source: adjtimex.",
    ),
)


class KernelCollector(SourceCollector[KernelReading]):
    """The kernel collector, which collects the host's boot time, current time and clock state.

    If the exporter is not permitted to call adjtimex, the clock state has no series. This is not
    an error.

    Args:
        roots: The root directories of the file systems to read.
        clock: A function that returns the current time in Unix seconds.
        uptime: A function that returns the seconds since boot, including suspended time.
        adjtimex: A function that returns the kernel's clock state; None selects the function of
            the C library.
    """

    name = "kernel"

    def __init__(
        self,
        *,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        clock: Callable[[], float] = time.time,
        uptime: Callable[[], float] = read_uptime,
        adjtimex: Callable[[], ClockState | None] | None = None,
    ) -> None:
        super().__init__(KernelSource(roots=roots, clock=clock, uptime=uptime, adjtimex=adjtimex))

    def express(self, reading: KernelReading) -> tuple[Block, ...]:
        """Return the metric families of a kernel reading."""
        clock = reading.clock
        values = (
            reading.boot_time_seconds,
            reading.time_seconds,
            None if clock is None else clock.offset_seconds,
            None if clock is None else int(clock.synchronized),
        )
        return (scalar_block(self.name, _FAMILIES, values),)
