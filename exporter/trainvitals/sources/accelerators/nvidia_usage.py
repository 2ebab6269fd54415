"""Reads how much each process uses an NVIDIA GPU, from the driver's sample buffer.

In each sample period of up to a second, the driver records a sample for each process that used the
GPU. A process without a sample did not use the GPU.
"""

from __future__ import annotations

import ctypes
import struct
import time

from trainvitals.sources.accelerators.nvml import (
    INSUFFICIENT_SIZE,
    LASTING,
    NOT_FOUND,
    SUCCESS,
    U32,
    U64,
    Library,
    check,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # imports at run time would cost memory in every reader process
    from collections.abc import Mapping

# The PID, the timestamp, and the utilization of the SMs, the memory, the encoder and the decoder.
_SAMPLE = struct.Struct("=I4xQIIII")
_FIRST_ROOM = 64
_MOST_ROOM = 4096
_MORE_ROOM = 16
# Some drivers write a sample only after two sample periods.
_WINDOW_US = 2_000_000
_FULL_PERCENT = 100


class ProcessUsage:
    """Reads how much each process uses one GPU.

    Args:
        library: The initialised NVML library.
        handle: NVML's handle for the GPU.
    """

    def __init__(self, library: Library, handle: ctypes.c_void_p) -> None:
        self._library = library
        self._handle = handle
        self._is_supported = True
        self._make_room(_FIRST_ROOM)

    def read(self) -> Mapping[int, float | None] | None:
        """Return the GPU utilization of each process that used the GPU, from 0 to 1, by PID.

        If the driver reports a utilization above 1, the value is None. The result is None if the
        driver does not support or permit the call, or if the call fails temporarily.

        Raises:
            DeviceError: The GPU cannot be read.
            DriverGoneError: The driver was unloaded, restarted or replaced.
        """
        if not self._is_supported:
            return None
        code, count = self._call()
        if code == INSUFFICIENT_SIZE and count > self._room:
            self._make_room(count + _MORE_ROOM)
            code, count = self._call()
        if code == NOT_FOUND:  # no process used the GPU
            return {}
        if code != SUCCESS:
            check(code)
            self._is_supported = code not in LASTING
            return None
        return self._parse(min(count, self._room))

    def _make_room(self, room: int) -> None:
        self._room = min(room, _MOST_ROOM)
        self._buffer = ctypes.create_string_buffer(_SAMPLE.size * self._room)

    def _call(self) -> tuple[int, int]:
        count = U32(self._room)
        since = U64(int(time.time() * 1e6) - _WINDOW_US)
        function = self._library.nvmlDeviceGetProcessUtilization
        return function(self._handle, self._buffer, ctypes.byref(count), since), count.value

    def _parse(self, count: int) -> Mapping[int, float | None]:
        """Return the utilization in the newest sample of each process."""
        data = self._buffer.raw[: count * _SAMPLE.size]
        samples = sorted(_SAMPLE.iter_unpack(data), key=lambda sample: sample[1])
        newest = {pid: percent for pid, _, percent, *_ in samples}
        return {
            pid: percent / 100 if percent <= _FULL_PERCENT else None
            for pid, percent in newest.items()
        }
