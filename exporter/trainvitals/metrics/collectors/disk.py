"""The disk collector: the transfers of each disk since boot."""

from __future__ import annotations

from operator import attrgetter

from trainvitals.metrics.collectors.collector import SourceCollector
from trainvitals.metrics.collectors.tables import counter, gauge, list_fields, table_block
from trainvitals.metrics.families import Block, Family, label_samples
from trainvitals.sources.files import Roots
from trainvitals.sources.host.disk import DiskReading, DiskSource

_METRICS = (
    counter(
        "host_disk_read_bytes_total",
        "read_bytes",
        "Read from a disk since boot. Source: /proc/diskstats sectors read.",
    ),
    counter(
        "host_disk_written_bytes_total",
        "written_bytes",
        "Written to a disk since boot. Source: /proc/diskstats sectors written.",
    ),
    counter(
        "host_disk_reads_completed_total",
        "reads_completed",
        "Reads done. Source: /proc/diskstats reads completed.",
    ),
    counter(
        "host_disk_writes_completed_total",
        "writes_completed",
        "Writes done. Source: /proc/diskstats writes completed.",
    ),
    counter(
        "host_disk_read_seconds_total",
        "read_seconds",
        "Time that reads took. Source: /proc/diskstats time reading.",
    ),
    counter(
        "host_disk_write_seconds_total",
        "write_seconds",
        "Time that writes took. Source: /proc/diskstats time writing.",
    ),
    counter(
        "host_disk_io_seconds_total",
        "io_seconds",
        "Time with requests in flight. Source: /proc/diskstats time doing I/O.",
    ),
    counter(
        "host_disk_io_weighted_seconds_total",
        "io_weighted_seconds",
        "The same times the number of requests. Source: /proc/diskstats weighted time doing I/O.",
    ),
    gauge(
        "host_disk_io_now",
        "io_now",
        "Requests that a disk has in flight. Source: /proc/diskstats I/Os in progress.",
    ),
)
_pick = attrgetter(*list_fields(_METRICS))


class DiskCollector(SourceCollector[DiskReading]):
    """The disk collector, which collects the transfers of each disk since boot.

    Args:
        roots: The root directories of the file systems to read.
        limit: The maximum number of disks with separate series.
    """

    name = "disk"

    def __init__(
        self,
        *,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        limit: int = 32,
    ) -> None:
        super().__init__(DiskSource(roots=roots, limit=limit))

    def express(self, reading: DiskReading) -> tuple[Block, ...]:
        """Return the metric families of a disk reading; empty if the kernel counts no transfers."""
        if reading.read_bytes is None or reading.written_bytes is None:
            return ()
        total = Block(
            (self.name, "total"), _describe_total, [reading.read_bytes, reading.written_bytes]
        )
        if not reading.disks:
            return (total,)
        subjects = tuple([(("device", disk.device),) for disk in reading.disks])
        rows = [_pick(disk) for disk in reading.disks]
        return total, table_block((self.name, "disks"), _METRICS, subjects, rows)

    def omitted(self, reading: DiskReading) -> int:
        """Return the number of disks omitted because of a limit or a parse error."""
        return reading.dropped


def _describe_total() -> tuple[Family, ...]:
    return (
        Family(
            "disk_io_bytes",
            "gauge",
            "Read from and written to all disks. Source: /proc/diskstats.",
            label_samples("direction", ("read", "write")),
        ),
    )
