"""The host's memory and swap, read from `/proc/meminfo` and `/proc/vmstat`."""

from __future__ import annotations

import os
from dataclasses import dataclass

from trainvitals.sources.files import KeptFile, Roots, not_understood

# Labels in `/proc/meminfo`, in the order of MemoryReading's fields after the first.
_PARTS = (
    b"\nMemAvailable:",
    b"\nMemFree:",
    b"\nBuffers:",
    b"\nCached:",
    b"\nShmem:",
    b"\nDirty:",
)
_BYTES_PER_KB = 1024
_LONGEST_VALUE = 40  # spaces, the digits of a 64-bit number, and the unit
# More memory than any machine has; without a limit, lxcfs reports the largest possible number.
_MOST_BYTES = 1 << 60


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """The host's memory and swap; a value is None if the kernel does not report the value.

    If `/proc/meminfo` reports a value that is larger than the corresponding total, as lxcfs does
    for swap, the value is None.

    Attributes:
        total_bytes: Usable RAM (`MemTotal`).
        available_bytes: Memory available to programs without swapping (`MemAvailable`, since Linux
            3.14).
        free_bytes: RAM that is not used at all, not even by a cache (`MemFree`).
        buffers_bytes: Cached device blocks (`Buffers`).
        cached_bytes: Cached file contents and shared memory (`Cached`).
        shared_bytes: Shared memory and tmpfs, including `/dev/shm` (`Shmem`).
        dirty_bytes: Bytes written to files but not yet to their devices (`Dirty`).
        swap_total_bytes: The size of the swap space (`SwapTotal`).
        swap_free_bytes: Swap space that is not in use (`SwapFree`).
        swap_in_bytes: Bytes read back from swap since boot (`pswpin`); None if the kernel does not
            support swap.
        swap_out_bytes: Bytes written to swap since boot (`pswpout`); None if the kernel does not
            support swap.
        oom_kills: The number of processes killed for lack of memory since boot, including those in
            containers (`oom_kill`); None before Linux 4.13.
    """

    total_bytes: int
    available_bytes: int | None
    free_bytes: int | None
    buffers_bytes: int | None
    cached_bytes: int | None
    shared_bytes: int | None
    dirty_bytes: int | None
    swap_total_bytes: int | None
    swap_free_bytes: int | None
    swap_in_bytes: int | None
    swap_out_bytes: int | None
    oom_kills: int | None

    @property
    def used_bytes(self) -> int | None:
        """The memory that is not available without swapping: total minus available memory.

        The value is None if the kernel does not report the available memory.
        """
        return None if self.available_bytes is None else self.total_bytes - self.available_bytes

    @property
    def swap_used_bytes(self) -> int | None:
        """The swap space that is in use; None if the kernel does not report the swap space."""
        if not self.swap_total_bytes:
            return self.swap_total_bytes
        return (
            None if self.swap_free_bytes is None else self.swap_total_bytes - self.swap_free_bytes
        )


class MemorySource:
    """Reads the host's memory usage.

    Args:
        roots: The path of `/proc`.
        page_bytes: The page size in bytes; `/proc/vmstat` counts swapped memory in pages.
    """

    def __init__(
        self,
        *,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        page_bytes: int = os.sysconf("SC_PAGE_SIZE"),
    ) -> None:
        self._meminfo = KeptFile(roots.procfs / "meminfo", single=True)
        self._vmstat = KeptFile(roots.procfs / "vmstat")
        self._page_bytes = page_bytes

    def read(self) -> MemoryReading:
        """Read the host's current memory usage.

        Raises:
            SourceError: `/proc/meminfo` does not exist, cannot be read, or contains no valid
                `MemTotal`.
        """
        meminfo = b"\n" + self._meminfo.require()
        vmstat = b"\n" + (self._vmstat.read() or b"")
        total = _find_size(meminfo, b"\nMemTotal:", _MOST_BYTES)
        if total is None:
            raise not_understood(self._meminfo.path)
        available, free, buffers, cached, shared, dirty = [
            _find_size(meminfo, field, total) for field in _PARTS
        ]
        swap_total = _find_size(meminfo, b"\nSwapTotal:", _MOST_BYTES)
        pages_in = _find_number(vmstat, b"\npswpin ", b"\n")
        pages_out = _find_number(vmstat, b"\npswpout ", b"\n")
        return MemoryReading(
            total_bytes=total,
            available_bytes=available,
            free_bytes=free,
            buffers_bytes=buffers,
            cached_bytes=cached,
            shared_bytes=shared,
            dirty_bytes=dirty,
            swap_total_bytes=swap_total,
            swap_free_bytes=_find_size(meminfo, b"\nSwapFree:", swap_total or 0),
            swap_in_bytes=None if pages_in is None else pages_in * self._page_bytes,
            swap_out_bytes=None if pages_out is None else pages_out * self._page_bytes,
            oom_kills=_find_number(vmstat, b"\noom_kill ", b"\n"),
        )

    def close(self) -> None:
        """Close `/proc/meminfo` and `/proc/vmstat`."""
        self._meminfo.close()
        self._vmstat.close()


def read_memory(roots: Roots) -> MemoryReading:
    """Read the host's current memory usage once; see `MemorySource.read`."""
    source = MemorySource(roots=roots)
    try:
        return source.read()
    finally:
        source.close()


def _find_size(meminfo: bytes, field: bytes, most_bytes: int) -> int | None:
    """Return a field's value in bytes; None if the value is missing or above `most_bytes`."""
    kilobytes = _find_number(meminfo, field, b" kB")
    if kilobytes is None or kilobytes * _BYTES_PER_KB > most_bytes:
        return None
    return kilobytes * _BYTES_PER_KB


def _find_number(data: bytes, label: bytes, end: bytes) -> int | None:
    """Return the number after a label; None if the label or the number is missing."""
    at = data.find(label)
    if at < 0:
        return None
    at += len(label)
    digits, found, _ = data[at : at + _LONGEST_VALUE].partition(end)
    return int(digits) if found and digits.strip().isdigit() else None
