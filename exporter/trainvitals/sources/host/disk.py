"""Disk transfers since boot, read from `/proc/diskstats` and `/sys/block`."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from trainvitals.sources.files import KeptFile, Roots, not_understood

_SECTOR_BYTES = 512  # the unit in `diskstats`, regardless of the disk's sector size
_MILLISECONDS = 1000
_COLUMNS = 11
_LONGEST_NAME = 64
_MOST = 1 << 64

# Devices that are not disks, and single paths of a multipath disk that is listed separately.
_IGNORED = re.compile(r"(loop|ram|zram|fd|sr)\d+$|nvme\d+c\d+n\d+$")
# Disks that consist of other disks, whose bytes are already counted: device mapper, RAID, ZFS
# volumes, multipath. For other names, `/sys/block/NAME/slaves` lists the component disks.
_LAYERED = re.compile(r"(dm-|md|drbd|bcache|zd|ploop)\d|md_|emcpower")
# Used only without `/sys/block`: `sda1` is a partition of `sda`, and `md_d1p1` is one of `md_d1`.
_PARTITION = re.compile(rb"(?P<disk>.*[0-9])p[0-9]+|(?P<named>.*[^0-9])[0-9]+")


@dataclass(frozen=True, slots=True)
class Disk:
    """One disk's transfers since boot.

    Attributes:
        device: The kernel's name for the disk, such as `sda` or `nvme0n1`.
        layered: Whether the disk consists of other disks (device mapper, RAID, ZFS volumes).
        reads_completed: The number of completed read requests.
        read_bytes: The number of bytes read from the disk.
        read_seconds: The total duration of all reads, in seconds.
        writes_completed: The number of completed write requests.
        written_bytes: The number of bytes written to the disk.
        write_seconds: The total duration of all writes, in seconds.
        io_now: The number of requests that are currently in flight.
        io_seconds: The time with at least one request in flight.
        io_weighted_seconds: The time with at least one request in flight, weighted by the number of
            requests in flight.
    """

    device: str
    layered: bool
    reads_completed: int
    read_bytes: int
    read_seconds: float
    writes_completed: int
    written_bytes: int
    write_seconds: float
    io_now: int
    io_seconds: float
    io_weighted_seconds: float


@dataclass(frozen=True, slots=True)
class DiskReading:
    """The transfers of the host's disks.

    Attributes:
        disks: The disks that have been used since boot, without partitions, at most `limit`. Disks
            that consist of other disks are last.
        dropped: The number of disks omitted from `disks`, plus the number of lines that could not
            be parsed.
        read_bytes: The number of bytes read from all disks since boot; None if the kernel does not
            count disk transfers. Disks that consist of other disks are not counted again.
        written_bytes: The number of bytes written to all disks since boot; None if the kernel does
            not count disk transfers. Disks that consist of other disks are not counted again.
    """

    disks: tuple[Disk, ...]
    dropped: int
    read_bytes: int | None
    written_bytes: int | None


class _Kind(Enum):
    WHOLE = 1
    LAYERED = 2
    OTHER = 3


class DiskSource:
    """Reads the host's disk transfers.

    Args:
        roots: The paths of `/proc` and `/sys`.
        limit: The maximum number of disks to report individually.
    """

    def __init__(
        self,
        *,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        limit: int = 32,
    ) -> None:
        self._diskstats = KeptFile(roots.procfs / "diskstats")
        self._block = roots.sysfs / "block"
        self._limit = limit
        self._kinds: dict[bytes, _Kind] = {}

    def read(self) -> DiskReading:
        """Read the disks' current counters.

        Raises:
            SourceError: `/proc/diskstats` cannot be read, or none of its lines can be parsed.
        """
        data = self._diskstats.read()
        if data is None:
            return DiskReading((), 0, None, None)
        used, broken = self._parse(data.split(b"\n"))
        if broken and not self._kinds:
            raise not_understood(self._diskstats.path)
        whole = [disk for disk in used if not disk.layered]
        layered = [disk for disk in used if disk.layered]
        counted = whole or layered
        disks = whole + layered
        return DiskReading(
            disks=tuple(disks[: self._limit]),
            dropped=max(0, len(disks) - self._limit) + broken,
            read_bytes=sum([disk.read_bytes for disk in counted]),
            written_bytes=sum([disk.written_bytes for disk in counted]),
        )

    def close(self) -> None:
        """Close `/proc/diskstats`."""
        self._diskstats.close()

    def _parse(self, lines: list[bytes]) -> tuple[list[Disk], int]:
        """Return the disks that have been used, and the number of lines that cannot be parsed."""
        kinds: dict[bytes, _Kind] = {}
        used = []
        broken = 0
        for line in lines:
            if not line:
                continue
            try:
                disk = self._parse_line(line, kinds)
            except ValueError:
                broken += 1
                continue
            # The kernel reads a disk when it is attached, so a disk without any reads or writes is
            # an empty slot.
            if disk is not None and (disk.reads_completed or disk.writes_completed):
                used.append(disk)
        self._kinds = kinds
        return used, broken

    def _parse_line(self, line: bytes, kinds: dict[bytes, _Kind]) -> Disk | None:
        """Return a line's disk; None for a partition, an ignored device or a repeated line."""
        _, _, name, numbers = line.split(None, 3)
        if name in kinds:
            return None  # lines can repeat if disks are removed while the file is read
        kind = self._kinds.get(name) or _classify(name, self._block, kinds)
        disk = None
        if kind is not _Kind.OTHER:
            disk = _parse_disk(name, numbers, layered=kind is _Kind.LAYERED)
        kinds[name] = kind
        return disk


def _parse_disk(name: bytes, numbers: bytes, *, layered: bool) -> Disk:
    columns = list(map(int, numbers.split(None, _COLUMNS)[:_COLUMNS]))
    reads, _, sectors_read, read_ms, writes, _, sectors_written, write_ms, now, io_ms, weighted = (
        columns
    )
    if min(columns) < 0 or max(columns) > _MOST:
        raise ValueError(numbers)
    return Disk(
        name.decode(errors="replace"),
        layered,
        reads,
        sectors_read * _SECTOR_BYTES,
        read_ms / _MILLISECONDS,
        writes,
        sectors_written * _SECTOR_BYTES,
        write_ms / _MILLISECONDS,
        now,
        io_ms / _MILLISECONDS,
        weighted / _MILLISECONDS,
    )


def _classify(name: bytes, block: Path, before: Collection[bytes]) -> _Kind:
    """Return a device's kind, given the names in earlier lines of `/proc/diskstats`."""
    device = name.decode(errors="replace")
    if len(device) > _LONGEST_NAME:
        raise ValueError(device)
    # In `/sys`, a slash in a name (`cciss/c0d0`) is replaced by an exclamation mark.
    folder = block / device.replace("/", "!")
    is_whole = folder.exists() if block.is_dir() else not _is_partition(name, before)
    if _IGNORED.match(device) or not is_whole:
        return _Kind.OTHER
    is_layered = _LAYERED.match(device) or any((folder / "slaves").glob("*"))
    return _Kind.LAYERED if is_layered else _Kind.WHOLE


def _is_partition(name: bytes, before: Collection[bytes]) -> bool:
    found = _PARTITION.fullmatch(name)
    return found is not None and (found["disk"] or found["named"]) in before
