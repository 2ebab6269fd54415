"""The process collector: the resources that the exporter and its child processes use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from trainvitals.metrics.collectors.collector import SourceCollector
from trainvitals.metrics.collectors.tables import scalar_block
from trainvitals.metrics.families import Block, Family
from trainvitals.sources.host.process import ProcessReading, ProcessSource

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


def _no_complaint() -> str | None:
    return None


class ProcessCollector(SourceCollector[ProcessReading]):
    """The process collector: CPU time, memory and file descriptors of the exporter's processes.

    The exporter's child processes are included. A child process that has ended is left out; this
    is not an error.

    Args:
        procfs: The exporter's own `/proc`, which differs from the host's if the exporter runs in a
            container.
        children: A function that returns the IDs of the child processes that read accelerators.
        complain: A function that returns why the web configuration file's content is not in force;
            None if the content is in force.
    """

    name = "process"

    def __init__(
        self,
        *,
        procfs: Path = Path("/proc"),
        children: Callable[[], Sequence[int]] = _no_children,
        complain: Callable[[], str | None] = _no_complaint,
    ) -> None:
        self._complain = complain
        super().__init__(ProcessSource(procfs=procfs, children=children))

    def express(self, reading: ProcessReading) -> tuple[Block, ...]:
        """Return the metric families of a process reading."""
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

    def complaint(self, reading: ProcessReading) -> str | None:  # noqa: ARG002 - not a part of it
        """Return why the web configuration file's content is not in force.

        The result is None if the content is in force.
        """
        return self._complain()
