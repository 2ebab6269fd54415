"""The process collector: what the exporter itself costs, its driver readers included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from trainvitals.collectors.tables import scalar_block
from trainvitals.families import Block, Family
from trainvitals.sources.process import ProcessReading, ProcessSource

_FAMILIES = (
    Family(
        "process_cpu_seconds_total",
        "counter",
        "CPU time of the exporter and its driver readers. Source: /proc/PID/stat utime, stime.",
    ),
    Family(
        "process_resident_memory_bytes",
        "gauge",
        "RAM held by the exporter and its driver readers. Source: /proc/PID/stat rss.",
    ),
    Family(
        "process_virtual_memory_bytes",
        "gauge",
        "Address space it has. Source: /proc/PID/stat vsize.",
    ),
    Family(
        "process_start_time_seconds",
        "gauge",
        "When the exporter started. Source: /proc/self/stat starttime, /proc/stat btime.",
    ),
    Family(
        "process_open_fds",
        "gauge",
        "File descriptors it has open. Source: /proc/PID/fd.",
    ),
    Family(
        "process_max_fds",
        "gauge",
        "File descriptors it may open. Source: getrlimit RLIMIT_NOFILE.",
    ),
    Family(
        "process_threads",
        "gauge",
        "Threads it has. Source: /proc/PID/stat num_threads.",
    ),
)


def _no_children() -> Sequence[int]:
    return ()


class ProcessCollector:
    """Tells what the exporter itself costs.

    Args:
        procfs: The exporter's own `/proc`, which is not the host's when it runs in a container.
        children: Gives the ids of the processes that count as part of the exporter.
    """

    name = "process"

    def __init__(
        self,
        *,
        procfs: Path = Path("/proc"),
        children: Callable[[], Sequence[int]] = _no_children,
    ) -> None:
        self._source = ProcessSource(procfs=procfs, children=children)

    def read(self, deadline: float) -> ProcessReading:  # noqa: ARG002 - nothing here can hang
        """Read the exporter's process and its children.

        Raises:
            SourceError: They could not be read.
        """
        return self._source.read()

    def express(self, reading: ProcessReading) -> tuple[Block, ...]:
        """Name what was read."""
        values = (
            reading.cpu_seconds,
            reading.resident_bytes,
            reading.virtual_bytes,
            reading.start_time_seconds,
            reading.open_fds,
            reading.max_fds,
            reading.threads,
        )
        return (scalar_block(self.name, _FAMILIES, values),)

    def complaint(self, reading: ProcessReading) -> str | None:  # noqa: ARG002 - whole or an error
        """Give None: a child that ended is no fault."""
        return None

    def omitted(self, reading: ProcessReading) -> int:  # noqa: ARG002 - nothing grows here
        """Give 0: no bound leaves anything out."""
        return 0

    def close(self) -> None:
        """Close the files."""
        self._source.close()
