"""The disk collector: what the disks did since boot."""

from __future__ import annotations

from functools import partial
from operator import attrgetter

from trainvitals.collectors.tables import Column, list_families, list_values
from trainvitals.families import Block, Family, label_samples
from trainvitals.sources.disk import Disk, DiskReading, DiskSource
from trainvitals.sources.files import Roots

_COLUMNS: tuple[Column[Disk], ...] = (
    Column(
        "host_disk_read_bytes_total",
        "counter",
        "Read from a disk since boot. Source: /proc/diskstats sectors read.",
        attrgetter("read_bytes"),
    ),
    Column(
        "host_disk_written_bytes_total",
        "counter",
        "Written to a disk since boot. Source: /proc/diskstats sectors written.",
        attrgetter("written_bytes"),
    ),
    Column(
        "host_disk_reads_completed_total",
        "counter",
        "Reads done. Source: /proc/diskstats reads completed.",
        attrgetter("reads_completed"),
    ),
    Column(
        "host_disk_writes_completed_total",
        "counter",
        "Writes done. Source: /proc/diskstats writes completed.",
        attrgetter("writes_completed"),
    ),
    Column(
        "host_disk_read_seconds_total",
        "counter",
        "Time that reads took. Source: /proc/diskstats time reading.",
        attrgetter("read_seconds"),
    ),
    Column(
        "host_disk_write_seconds_total",
        "counter",
        "Time that writes took. Source: /proc/diskstats time writing.",
        attrgetter("write_seconds"),
    ),
    Column(
        "host_disk_io_seconds_total",
        "counter",
        "Time with requests in flight. Source: /proc/diskstats time doing I/O.",
        attrgetter("io_seconds"),
    ),
    Column(
        "host_disk_io_weighted_seconds_total",
        "counter",
        "The same times the number of requests. Source: /proc/diskstats weighted time doing I/O.",
        attrgetter("io_weighted_seconds"),
    ),
    Column(
        "host_disk_io_now",
        "gauge",
        "Requests that a disk has in flight. Source: /proc/diskstats I/Os in progress.",
        attrgetter("io_now"),
    ),
)


class DiskCollector:
    """Tells what the disks did since boot.

    Args:
        roots: Where `/proc` and `/sys` are.
        limit: The most disks to tell apart.
    """

    name = "disk"

    def __init__(
        self,
        *,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        limit: int = 32,
    ) -> None:
        self._source = DiskSource(roots=roots, limit=limit)

    def read(self, deadline: float) -> DiskReading:  # noqa: ARG002 - nothing here can hang
        """Read the disks.

        Raises:
            SourceError: They could not be read.
        """
        return self._source.read()

    def express(self, reading: DiskReading) -> tuple[Block, ...]:
        """Name what was read; nothing where the kernel does not count."""
        if reading.read_bytes is None or reading.written_bytes is None:
            return ()
        devices = tuple([disk.device for disk in reading.disks])
        values: list[float] = [reading.read_bytes, reading.written_bytes]
        values += list_values(_COLUMNS, reading.disks)
        return (Block((self.name, devices), partial(_describe, devices), values),)

    def complaint(self, reading: DiskReading) -> str | None:  # noqa: ARG002 - whole or an error
        """Give None: a reading is whole."""
        return None

    def omitted(self, reading: DiskReading) -> int:
        """Count the disks that the bound left out."""
        return reading.dropped

    def close(self) -> None:
        """Close the file."""
        self._source.close()


def _describe(devices: tuple[str, ...]) -> tuple[Family, ...]:
    total = Family(
        "disk_io_bytes",
        "gauge",
        "Read from and written to all disks. Source: /proc/diskstats.",
        label_samples("direction", ("read", "write")),
    )
    return total, *(list_families(_COLUMNS, "device", devices) if devices else ())
