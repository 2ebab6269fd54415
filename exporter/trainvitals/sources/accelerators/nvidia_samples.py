"""The exact busy time of one NVIDIA GPU, derived from the driver's utilization samples.

The driver records the utilization in each short period (1/6 s to 1 s) with the timestamp of the
period's end, and keeps about the last hundred samples. The sum of all samples after the last
counted sample is the device's busy time, regardless of when and how often the buffer is read.
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
if TYPE_CHECKING:  # imports at run time would cost memory in every reader process
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
    """Reads the utilization samples of one GPU.

    Args:
        library: The initialized NVML library.
        handle: NVML's handle for the GPU.

    Raises:
        DeviceError: The GPU cannot be read.
        DriverGoneError: The driver was unloaded, restarted or replaced.
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
        """Return the GPU's busy time since a given sample.

        The result is None if the driver keeps no samples, or if the call fails temporarily.

        Args:
            since: The timestamp of the given sample in microseconds; see `Device.read`.

        Raises:
            DeviceError: The GPU cannot be read.
            DriverGoneError: The driver was unloaded, restarted or replaced.
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
        """Fill the buffer with the samples after a timestamp.

        Returns:
            The driver's return code, and the number of samples.
        """
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
        """Return the timestamp and percentage of each sample that is newer than `since`.

        Samples dated more than a day in the future are omitted, because such a sample would hide
        all later samples.
        """
        latest = int((time.time() + _DAY_SECONDS) * 1e6)
        numbers = self._samples[: 2 * count]
        pairs = zip(numbers[::2], numbers[1::2], strict=True)
        return [(stamp, value & 0xFFFFFFFF) for stamp, value in pairs if since < stamp < latest]

    def _find_newest(self, since: int) -> int:
        """Return the timestamp from which to count next, if no sample is newer than `since`.

        If the clock was set back by more than 1 s, the result is the newest sample's timestamp.
        Otherwise, the result is `since`.
        """
        code, count = self._fetch(0)
        samples = self._list_samples(count, 0) if code == SUCCESS else []
        newest = max((stamp for stamp, _ in samples), default=0)
        return newest if 0 < newest < since - _CLOCK_WENT_BACK_US else since


def integrate_samples(
    stamps: Sequence[int], percents: Sequence[int], *, since: int | None, is_full: bool
) -> BusyTime:
    """Return the busy time since a given sample, summed over the later samples.

    Args:
        stamps: The ends of the sample periods in microseconds, ascending, all later than `since`.
        percents: The utilization in each period, 0 to 100.
        since: The timestamp of the newest sample that was already counted; 0 if the buffer was
            empty when it was last read; None if no sample was ever counted. If None, the count
            starts at the newest sample.
        is_full: Whether the buffer is full, so that older samples may have been lost. The gap
            before the first sample of a full buffer counts at the mean utilization of the remaining
            samples. All other gaps are time without activity, and count as idle.
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
