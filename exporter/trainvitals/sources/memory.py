"""Memory and swap, from `/proc/meminfo` and `/proc/vmstat`."""

from __future__ import annotations

import os
from dataclasses import dataclass

from trainvitals.errors import SourceError
from trainvitals.sources.files import KeptFile, Roots, not_understood

# In the order of MemoryReading's first fields.
_MEMINFO_FIELDS = (
    b"\nMemTotal:",
    b"\nMemAvailable:",
    b"\nMemFree:",
    b"\nBuffers:",
    b"\nCached:",
    b"\nShmem:",
    b"\nDirty:",
    b"\nSwapTotal:",
    b"\nSwapFree:",
)
_BYTES_PER_KB = 1024
_MOST = 1 << 64


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """The host's memory and swap.

    Attributes:
        total_bytes: Usable RAM (`MemTotal`).
        available_bytes: What programs can have without swapping (`MemAvailable`).
        free_bytes: RAM that nothing uses, not even a cache (`MemFree`).
        buffers_bytes: Cached blocks of devices (`Buffers`).
        cached_bytes: Cached file contents, shared memory included (`Cached`).
        shared_bytes: Shared memory and tmpfs, `/dev/shm` included (`Shmem`).
        dirty_bytes: Written to files, and not yet to their devices (`Dirty`).
        swap_total_bytes: Swap space (`SwapTotal`).
        swap_free_bytes: Swap space that is not in use (`SwapFree`).
        swap_in_bytes: Read back from swap since boot (`pswpin`); None where the kernel has no
            swap.
        swap_out_bytes: Written to swap since boot (`pswpout`); None where the kernel has no swap.
        oom_kills: Processes killed for want of memory since boot, in containers too (`oom_kill`);
            None before Linux 4.13.
    """

    total_bytes: int
    available_bytes: int
    free_bytes: int
    buffers_bytes: int
    cached_bytes: int
    shared_bytes: int
    dirty_bytes: int
    swap_total_bytes: int
    swap_free_bytes: int
    swap_in_bytes: int | None
    swap_out_bytes: int | None
    oom_kills: int | None

    @property
    def used_bytes(self) -> int:
        """Total less available: what programs hold and cannot be had without swapping."""
        return self.total_bytes - self.available_bytes

    @property
    def swap_used_bytes(self) -> int:
        """Swap space in use."""
        return self.swap_total_bytes - self.swap_free_bytes


class MemorySource:
    """Reads the host's memory.

    Args:
        roots: Where `/proc` is.
        page_bytes: Size of the pages that `/proc/vmstat` counts in.
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
        """Read the memory as it is now.

        Raises:
            SourceError: `/proc/meminfo` is not there or lacks a field, or a number is none.
        """
        meminfo = b"\n" + self._meminfo.require()
        vmstat = b"\n" + (self._vmstat.read() or b"")
        try:
            total, available, free, buffers, cached, shared, dirty, swap_total, swap_free = [
                self._size(meminfo, field) for field in _MEMINFO_FIELDS
            ]
        except ValueError as error:
            raise not_understood(self._meminfo.path) from error
        try:
            pages_in = _number(vmstat, b"\npswpin ", b"\n")
            pages_out = _number(vmstat, b"\npswpout ", b"\n")
            oom_kills = _number(vmstat, b"\noom_kill ", b"\n")
        except ValueError as error:
            raise not_understood(self._vmstat.path) from error
        return MemoryReading(
            total_bytes=total,
            available_bytes=available,
            free_bytes=free,
            buffers_bytes=buffers,
            cached_bytes=cached,
            shared_bytes=shared,
            dirty_bytes=dirty,
            swap_total_bytes=swap_total,
            swap_free_bytes=swap_free,
            swap_in_bytes=None if pages_in is None else pages_in * self._page_bytes,
            swap_out_bytes=None if pages_out is None else pages_out * self._page_bytes,
            oom_kills=oom_kills,
        )

    def close(self) -> None:
        """Close the files."""
        self._meminfo.close()
        self._vmstat.close()

    def _size(self, meminfo: bytes, field: bytes) -> int:
        kilobytes = _number(meminfo, field, b" kB")
        if kilobytes is None:
            name = field.strip(b"\n:").decode()
            raise SourceError(
                f"{self._meminfo.path} has no {name}; Linux 3.14 or newer is needed, and a whole /proc"
            )
        return kilobytes * _BYTES_PER_KB


def _number(data: bytes, label: bytes, end: bytes) -> int | None:
    at = data.find(label)
    if at < 0:
        return None
    at += len(label)
    number = int(data[at : data.index(end, at)])
    if not 0 <= number < _MOST:
        raise ValueError(number)
    return number
