"""The processes on one NVIDIA GPU, and the utilization of the GPU by each process.

NVML defines three versions of the process list. A driver supports the version that was current when
the driver was released, and the older versions. The list is read in the newest supported version.
Some drivers of the 535 release append a number to each entry of the third version.

The utilization is read from the driver's sample buffer. In each sample period of up to a second,
the driver records a sample for each process that used the GPU. A process without a sample did not
use the GPU.
"""

from __future__ import annotations

import ctypes
import struct
import time

from trainvitals.sources.accelerators.nvml import (
    FUNCTION_NOT_FOUND,
    INSUFFICIENT_SIZE,
    LASTING,
    NOT_FOUND,
    SUCCESS,
    U32,
    U64,
    VERSION_MISMATCH,
    Library,
    check,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # imports at run time would cost memory in every reader process
    from collections.abc import Callable, Mapping, Sequence

    # A process's PID and its device memory in bytes; None if the driver does not report the memory.
    HeldMemory = tuple[int, int | None]

# The functions, the newest first, and the possible sizes of an entry in bytes.
_VERSIONS = (
    ("nvmlDeviceGetComputeRunningProcesses_v3", (24, 32)),
    ("nvmlDeviceGetComputeRunningProcesses_v2", (24,)),
    ("nvmlDeviceGetComputeRunningProcesses", (16,)),
)
_LARGEST_ENTRY_BYTES = 32
_PID_BYTES = 4
_MEMORY_AT = 8
_MEMORY_BYTES = 8
_NOT_AVAILABLE = 0xFFFFFFFFFFFFFFFF
_FIRST_ROOM = 64
_MOST_ROOM = 4096
_MORE_ROOM = 16
_MOST_HOLDERS = 256
_UNTOUCHED = 0xA5
# The PID, the timestamp, and the use of the SMs, the memory, the encoder and the decoder.
_SAMPLE = struct.Struct("=I4xQIIII")
# Some drivers write a sample only after two sample periods.
_WINDOW_US = 2_000_000
_FULL_PERCENT = 100


class _EntryBuffer:
    """A buffer that NVML fills with entries; the buffer grows with the number of processes."""

    def __init__(self, entry_bytes: int) -> None:
        self._entry_bytes = entry_bytes
        self._make_room(_FIRST_ROOM)

    def fill(self, call: Callable[..., tuple[int, int]], *symbols: str) -> tuple[int, int]:
        """Fill the buffer; if the buffer is too small, enlarge the buffer and fill it again.

        Args:
            call: A function that calls NVML, and returns the return code and the number of entries.
            symbols: The arguments of `call`.

        Returns:
            The driver's return code and the number of entries in the buffer.
        """
        code, count = call(*symbols)
        if code == INSUFFICIENT_SIZE and count > self.room:  # the number of all entries
            self._make_room(count + _MORE_ROOM)
            code, count = call(*symbols)
        return code, min(count, self.room)

    def _make_room(self, room: int) -> None:
        self.room = min(room, _MOST_ROOM)
        self.data = ctypes.create_string_buffer(self._entry_bytes * self.room)


class ProcessList:
    """Reads the list of the processes that compute on one GPU.

    Args:
        library: The initialized NVML library.
        handle: NVML's handle for the GPU.
    """

    def __init__(self, library: Library, handle: ctypes.c_void_p) -> None:
        self._library = library
        self._handle = handle
        self._versions = list(_VERSIONS)
        self._buffer = _EntryBuffer(_LARGEST_ENTRY_BYTES)

    def read(self) -> tuple[int, list[HeldMemory]] | None:
        """Return the number of processes, and the 256 processes with the most memory.

        The processes are sorted by descending memory usage. The result is None if the driver
        supports no version of the list, or if the call fails temporarily.

        Raises:
            DeviceError: The GPU cannot be read.
            DriverGoneError: The driver was unloaded, restarted or replaced.
        """
        while self._versions:
            symbol, sizes = self._versions[0]
            code, count = self._buffer.fill(self._call, symbol)
            if code not in (FUNCTION_NOT_FOUND, VERSION_MISMATCH):
                break
            del self._versions[0]
        else:
            return None
        if code != SUCCESS:
            check(code)
            return None
        holders = self._parse(count, sizes)
        return len(holders), sorted(holders, key=lambda holder: -(holder[1] or 0))[:_MOST_HOLDERS]

    def _call(self, symbol: str) -> tuple[int, int]:
        data = self._buffer.data
        ctypes.memset(data, _UNTOUCHED, len(data))
        count = U32(self._buffer.room)
        function = getattr(self._library, symbol)
        return function(self._handle, ctypes.byref(count), data), count.value

    def _parse(self, count: int, sizes: Sequence[int]) -> list[HeldMemory]:
        data = self._buffer.data.raw
        size = sizes[0] if len(sizes) == 1 else self._find_size(data, count, sizes)
        return [_parse_entry(data, at) for at in range(0, count * size, size)]

    def _find_size(self, data: bytes, count: int, sizes: Sequence[int]) -> int:
        """Return the size of an entry, derived from the number of bytes that the driver wrote.

        The driver writes either only the entries or the whole buffer.
        """
        written = len(data.rstrip(bytes((_UNTOUCHED,))))
        ends = (size for size in sizes if written in (count * size, self._buffer.room * size))
        return next(ends, sizes[0])


def _parse_entry(data: bytes, at: int) -> HeldMemory:
    memory_at = at + _MEMORY_AT
    pid = int.from_bytes(data[at : at + _PID_BYTES], "little")
    used = int.from_bytes(data[memory_at : memory_at + _MEMORY_BYTES], "little")
    return pid, None if used == _NOT_AVAILABLE else used


class ProcessUsage:
    """Reads the utilization of one GPU by each process.

    Args:
        library: The initialized NVML library.
        handle: NVML's handle for the GPU.
    """

    def __init__(self, library: Library, handle: ctypes.c_void_p) -> None:
        self._library = library
        self._handle = handle
        self._is_supported = True
        self._buffer = _EntryBuffer(_SAMPLE.size)

    def read(self) -> Mapping[int, float | None] | None:
        """Return the utilization of the GPU by each process, 0 to 1, by PID.

        A process that did not use the GPU is missing. A utilization above 1 is invalid and becomes
        None. The result is None if the driver does not support or permit the call, or if the call
        fails temporarily.

        Raises:
            DeviceError: The GPU cannot be read.
            DriverGoneError: The driver was unloaded, restarted or replaced.
        """
        if not self._is_supported:
            return None
        code, count = self._buffer.fill(self._call)
        if code == NOT_FOUND:  # no process used the GPU
            return {}
        if code != SUCCESS:
            check(code)
            self._is_supported = code not in LASTING
            return None
        return self._parse(count)

    def _call(self) -> tuple[int, int]:
        count = U32(self._buffer.room)
        since = U64(int(time.time() * 1e6) - _WINDOW_US)
        function = self._library.nvmlDeviceGetProcessUtilization
        return function(self._handle, self._buffer.data, ctypes.byref(count), since), count.value

    def _parse(self, count: int) -> Mapping[int, float | None]:
        """Return the utilization in the newest sample of each process, by PID."""
        data = self._buffer.data.raw[: count * _SAMPLE.size]
        samples = sorted(_SAMPLE.iter_unpack(data), key=lambda sample: sample[1])
        newest = {pid: percent for pid, _, percent, *_ in samples}
        return {
            pid: percent / 100 if percent <= _FULL_PERCENT else None
            for pid, percent in newest.items()
        }
