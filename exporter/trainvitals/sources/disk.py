"""What the disks did since boot, from `/proc/diskstats` and `/sys/block`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from trainvitals.sources.files import KeptFile, Roots, not_understood

_SECTOR_BYTES = 512  # whatever the disk's own sectors are
_MILLISECONDS = 1000
_COLUMNS = 11
_LONGEST_NAME = 64
_MOST = 1 << 64

# No disks, or paths of one that is listed beside them.
_IGNORED = re.compile(r"(loop|ram|zram|fd|sr)\d+$|nvme\d+c\d+n\d+$")
# Made of other disks, whose bytes count already.
_LAYERED = re.compile(r"(dm-|md|drbd|bcache)\d")
# Asked only where there is no /sys/block.
_PARTITION = re.compile(r"((sd|hd|vd|xvd)[a-z]+|(nvme\d+n|mmcblk|nbd|md)\d+p)\d+$")


@dataclass(frozen=True, slots=True)
class Disk:
    """What one disk did since boot.

    Attributes:
        device: The kernel's name, such as `sda` or `nvme0n1`.
        layered: Whether it is made of other disks (device mapper, RAID).
        reads_completed: Requests to read that were done.
        read_bytes: Read.
        read_seconds: Taken by all reads, added up.
        writes_completed: Requests to write that were done.
        written_bytes: Written.
        write_seconds: Taken by all writes, added up.
        io_now: Requests in flight.
        io_seconds: With at least one request in flight.
        io_weighted_seconds: The same times the number of requests.
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
    """The host's disks.

    Attributes:
        disks: Whole disks that were ever used, those made of others last, as far as the bound
            allows.
        dropped: Disks left out of that list.
        read_bytes: Read since boot from all disks, each byte counted once; None where the kernel
            does not count.
        written_bytes: Written, likewise.
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
    """Reads what the host's disks did.

    Args:
        roots: Where `/proc` and `/sys` are.
        limit: The most disks to tell apart.
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
        """Read the disks as they are now.

        Raises:
            SourceError: `/proc/diskstats` cannot be read or understood.
        """
        data = self._diskstats.read()
        if data is None:
            return DiskReading((), 0, None, None)
        try:
            used = self._parse(data.split(b"\n"))
        except ValueError as error:
            raise not_understood(self._diskstats.path) from error
        whole = [disk for disk in used if not disk.layered]
        layered = [disk for disk in used if disk.layered]
        counted = whole or layered
        disks = whole + layered
        return DiskReading(
            disks=tuple(disks[: self._limit]),
            dropped=max(0, len(disks) - self._limit),
            read_bytes=sum([disk.read_bytes for disk in counted]),
            written_bytes=sum([disk.written_bytes for disk in counted]),
        )

    def close(self) -> None:
        """Close the file."""
        self._diskstats.close()

    def _parse(self, lines: list[bytes]) -> list[Disk]:
        kinds: dict[bytes, _Kind] = {}
        used = []
        for line in lines:
            if not line:
                continue
            _, _, name, numbers = line.split(None, 3)
            if name in kinds:
                continue  # the file is read by the page, and a disk that goes moves the others
            kind = kinds[name] = self._kinds.get(name) or _classify(name, self._block)
            if kind is not _Kind.OTHER:
                disk = _parse_disk(name, numbers, layered=kind is _Kind.LAYERED)
                # The kernel itself reads a disk when it comes; one that was never read is an
                # empty slot.
                if disk.reads_completed or disk.writes_completed:
                    used.append(disk)
        self._kinds = kinds
        return used


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


def _classify(name: bytes, block: Path) -> _Kind:
    device = name.decode(errors="replace")
    if len(device) > _LONGEST_NAME:
        raise ValueError(device)
    if _IGNORED.match(device) or not _is_whole(device, block):
        return _Kind.OTHER
    return _Kind.LAYERED if _LAYERED.match(device) else _Kind.WHOLE


def _is_whole(device: str, block: Path) -> bool:
    if not block.is_dir():
        return not _PARTITION.match(device)
    # A slash in a name (`cciss/c0d0`) is an exclamation mark in `/sys`.
    return (block / device.replace("/", "!")).exists()
