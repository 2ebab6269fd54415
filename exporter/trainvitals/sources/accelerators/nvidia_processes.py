"""The processes that compute on one NVIDIA GPU, read with the newest supported NVML function.

NVML defines three versions of the process list. A driver supports the version that was current when
the driver was released, and the older versions. Some drivers of the 535 release append a number to
each entry of the third version.
"""

from __future__ import annotations

import ctypes

from trainvitals.sources.accelerators.nvml import (
    FUNCTION_NOT_FOUND,
    INSUFFICIENT_SIZE,
    SUCCESS,
    U32,
    VERSION_MISMATCH,
    Library,
    check,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # imports at run time would cost memory in every reader process
    from collections.abc import Sequence

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


class ProcessList:
    """Reads the list of the processes that compute on one GPU.

    Args:
        library: The initialised NVML library.
        handle: NVML's handle for the GPU.
    """

    def __init__(self, library: Library, handle: ctypes.c_void_p) -> None:
        self._library = library
        self._handle = handle
        self._versions = list(_VERSIONS)
        self._make_room(_FIRST_ROOM)

    def read(self) -> tuple[int, list[HeldMemory]] | None:
        """Return the number of processes and at most 256 processes, by descending memory usage.

        The result is None if the driver does not support any list version, or if the call fails
        temporarily.

        Raises:
            DeviceError: The GPU cannot be read.
            DriverGoneError: The driver was unloaded, restarted or replaced.
        """
        while self._versions:
            symbol, sizes = self._versions[0]
            code, count = self._fetch(symbol)
            if code not in (FUNCTION_NOT_FOUND, VERSION_MISMATCH):
                break
            del self._versions[0]
        else:
            return None
        if code != SUCCESS:
            check(code)
            return None
        holders = self._parse(min(count, self._room), sizes)
        return len(holders), sorted(holders, key=lambda holder: -(holder[1] or 0))[:_MOST_HOLDERS]

    def _make_room(self, room: int) -> None:
        self._room = min(room, _MOST_ROOM)
        self._buffer = ctypes.create_string_buffer(_LARGEST_ENTRY_BYTES * self._room)

    def _fetch(self, symbol: str) -> tuple[int, int]:
        """Fill the buffer with the process list.

        The result is the driver's return code and the number of entries.
        """
        code, count = self._call(symbol)
        if code == INSUFFICIENT_SIZE and count > self._room:  # the number of all processes
            self._make_room(count + _MORE_ROOM)
            code, count = self._call(symbol)
        return code, count

    def _call(self, symbol: str) -> tuple[int, int]:
        ctypes.memset(self._buffer, _UNTOUCHED, len(self._buffer))
        count = U32(self._room)
        function = getattr(self._library, symbol)
        return function(self._handle, ctypes.byref(count), self._buffer), count.value

    def _parse(self, count: int, sizes: Sequence[int]) -> list[HeldMemory]:
        data = self._buffer.raw
        size = sizes[0] if len(sizes) == 1 else self._find_size(data, count, sizes)
        return [_parse_entry(data, at) for at in range(0, count * size, size)]

    def _find_size(self, data: bytes, count: int, sizes: Sequence[int]) -> int:
        """Return the size of an entry, determined from the number of bytes that the driver wrote.

        The driver writes either only the entries or the whole buffer.
        """
        written = len(data.rstrip(bytes((_UNTOUCHED,))))
        ends = (size for size in sizes if written in (count * size, self._room * size))
        return next(ends, sizes[0])


def _parse_entry(data: bytes, at: int) -> HeldMemory:
    memory_at = at + _MEMORY_AT
    pid = int.from_bytes(data[at : at + _PID_BYTES], "little")
    used = int.from_bytes(data[memory_at : memory_at + _MEMORY_BYTES], "little")
    return pid, None if used == _NOT_AVAILABLE else used
