"""The kernel collector: when the host booted, what time it has, and whether that time is right."""

from __future__ import annotations

import time
from collections.abc import Callable

from trainvitals.collectors.tables import scalar_block
from trainvitals.families import Block, Family
from trainvitals.sources.files import Roots
from trainvitals.sources.kernel import ClockState, KernelReading, KernelSource, read_uptime

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


class KernelCollector:
    """Tells when the host booted, what time it has, and whether that time is right.

    Args:
        roots: Where `/proc` is.
        clock: The time of day, in seconds since 1970.
        uptime: Seconds since boot, suspension included.
        adjtimex: Asks the kernel for its clock's error; None for the C library's call.
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
        self._source = KernelSource(roots=roots, clock=clock, uptime=uptime, adjtimex=adjtimex)

    def read(self, deadline: float) -> KernelReading:  # noqa: ARG002 - nothing here can hang
        """Read the clock.

        Raises:
            SourceError: It could not be read.
        """
        return self._source.read()

    def express(self, reading: KernelReading) -> tuple[Block, ...]:
        """Name what was read."""
        clock = reading.clock
        values = (
            reading.boot_time_seconds,
            reading.time_seconds,
            None if clock is None else clock.offset_seconds,
            None if clock is None else int(clock.synchronized),
        )
        return (scalar_block(self.name, _FAMILIES, values),)

    def complaint(self, reading: KernelReading) -> str | None:  # noqa: ARG002 - whole or an error
        """Give None: a clock that may not be asked for its error is no fault."""
        return None

    def omitted(self, reading: KernelReading) -> int:  # noqa: ARG002 - nothing grows here
        """Give 0: no bound leaves anything out."""
        return 0

    def close(self) -> None:
        """Close the file."""
        self._source.close()
