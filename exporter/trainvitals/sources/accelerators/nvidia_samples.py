"""The exact busy time of one NVIDIA GPU, out of the driver's buffer of utilization samples.

The driver notes the utilization of each short period (1/6 s to 1 s) with the time stamp of the
period's end, and keeps about the last hundred. Summed up since the last sample that was counted,
they are the device's busy time, independent of when and how often it is read.
"""

from __future__ import annotations

import ctypes
import time
from itertools import pairwise

from trainvitals.sources.accelerators.nvml import (
    LASTING,
    NOT_FOUND,
    SUCCESS,
    U32,
    U64,
    Library,
    check,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # each megabyte is paid for by every reader process
    from collections.abc import Sequence

    from trainvitals.sources.accelerators.row import BusyTime

_GPU_UTILIZATION = 1
_USUAL_CAPACITY = 128
_LARGEST_CAPACITY = 4096
_CLOCK_WENT_BACK_US = 1_000_000
_DAY_SECONDS = 86_400
_USUAL_PERIOD_US = 166_667
_GAP_IN_PERIODS = 2.5


class SampleBuffer:
    """Reads the samples.

    Args:
        library: The initialised library.
        handle: The library's handle of the GPU.

    Raises:
        DeviceError: The GPU cannot be read.
        DriverGoneError: The driver is gone.
    """

    def __init__(self, library: Library, handle: ctypes.c_void_p) -> None:
        self._library = library
        self._handle = handle
        count = U32()
        code = self._call(0, count, None)
        check(code)
        self._is_supported = code not in LASTING
        capacity = count.value if code == SUCCESS else _USUAL_CAPACITY
        self._samples = (U64 * (2 * min(max(capacity, 1), _LARGEST_CAPACITY)))()

    def read(self, since: int | None) -> BusyTime | None:
        """Return the busy time since a sample; None if the driver keeps no samples, or not now.

        Args:
            since: See `Device.read`.

        Raises:
            DeviceError: The GPU cannot be read.
            DriverGoneError: The driver is gone.
        """
        if not self._is_supported:
            return None
        code, count = self._fetch(since or 0)
        if code == NOT_FOUND:  # an idle GPU has no samples
            return self._find_newest(since) if since else 0, 0.0, 0.0
        if code != SUCCESS:
            check(code)
            self._is_supported = code not in LASTING
            return None
        pairs = sorted(self._list_samples(count, since or 0))
        stamps = [stamp for stamp, _ in pairs]
        percents = [min(percent, 100) for _, percent in pairs]
        is_full = count >= len(self._samples) // 2
        return integrate_samples(stamps, percents, since=since, is_full=is_full)

    def _fetch(self, since: int) -> tuple[int, int]:
        """Fill the buffer with newer samples; return the driver's code and their count."""
        count = U32(len(self._samples) // 2)
        code = self._call(since, count, self._samples)
        return code, count.value

    def _call(
        self, since: int, count: ctypes.c_uint, samples: ctypes.Array[ctypes.c_ulonglong] | None
    ) -> int:
        kind = ctypes.c_int()
        outs = ctypes.byref(kind), ctypes.byref(count), samples
        return self._library.nvmlDeviceGetSamples(
            self._handle, ctypes.c_int(_GPU_UTILIZATION), U64(since), *outs
        )

    def _list_samples(self, count: int, since: int) -> list[tuple[int, int]]:
        """Return time stamp and percent of the newer samples, without those of the future.

        A sample of the future would hide all later ones.
        """
        latest = int((time.time() + _DAY_SECONDS) * 1e6)
        numbers = self._samples[: 2 * count]
        pairs = zip(numbers[::2], numbers[1::2], strict=True)
        return [(stamp, value & 0xFFFFFFFF) for stamp, value in pairs if since < stamp < latest]

    def _find_newest(self, since: int) -> int:
        """Find where to continue when no sample is newer: earlier, if the clock was set back."""
        code, count = self._fetch(0)
        samples = self._list_samples(count, 0) if code == SUCCESS else []
        newest = max((stamp for stamp, _ in samples), default=0)
        return newest if 0 < newest < since - _CLOCK_WENT_BACK_US else since


def integrate_samples(
    stamps: Sequence[int], percents: Sequence[int], *, since: int | None, is_full: bool
) -> BusyTime:
    """Sum up busy time since a sample.

    Args:
        stamps: Ends of the periods in microseconds, ascending, all newer than `since`.
        percents: Utilization in each period, 0 to 100.
        since: The newest sample that was counted before; 0 if there was none in the buffer then;
            None if nothing was ever counted, which makes this the start.
        is_full: Whether the buffer is full, so that older samples may have been lost. A gap in a
            full buffer counts with the mean of the remaining samples; a gap in one that is not full
            is time without activity, and counts as idle.
    """
    if not stamps:
        return since or 0, 0.0, 0.0
    if since is None:
        return stamps[-1], 0.0, 0.0
    period = _period_us(stamps)
    busy_us = 0.0
    lost_us = 0
    before = since or stamps[0] - period
    for stamp, percent in zip(stamps, percents, strict=True):
        step = stamp - before
        if step > _GAP_IN_PERIODS * period:
            if is_full and before == since:
                lost_us = step - period
            step = period
        busy_us += step * percent
        before = stamp
    if lost_us:
        busy_us += lost_us * sum(percents) / len(percents)
    return stamps[-1], busy_us / 100e6, lost_us / 1e6


def _period_us(stamps: Sequence[int]) -> int:
    steps = sorted(after - before for before, after in pairwise(stamps))
    return steps[len(steps) // 2] if steps else _USUAL_PERIOD_US
