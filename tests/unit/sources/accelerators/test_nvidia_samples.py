"""The sample buffer is read correctly even if the driver returns absurd values."""

from __future__ import annotations

import ctypes
import time

from trainvitals.sources.accelerators.nvidia_samples import SampleBuffer
from trainvitals.sources.accelerators.nvml import Library

SECOND = 1_000_000
NOW = int(time.time()) * SECOND


class Buffer:
    """A library whose sample buffer the test fills.

    Args:
        capacity: The buffer capacity that the library reports.
    """

    def __init__(self, capacity: int = 100) -> None:
        self._capacity = capacity
        self.samples: list[tuple[int, int]] = []
        self.rooms: list[int] = []

    def nvmlDeviceGetSamples(  # noqa: N802 - the driver's name
        self, *arguments: object
    ) -> int:
        """Return the samples that are newer than the given timestamp."""
        _, _, since, _, count, samples = arguments
        if samples is None:
            count._obj.value = self._capacity
            return 0
        self.rooms.append(count._obj.value)
        newer = [sample for sample in self.samples if sample[0] > since.value]
        for place, (stamp, percent) in enumerate(newer):
            samples[2 * place], samples[2 * place + 1] = stamp, percent
        count._obj.value = len(newer)
        return 0 if newer else 6


def open_buffer(library: Buffer) -> SampleBuffer:
    """Return the sample buffer of a GPU."""
    return SampleBuffer(Library(library), ctypes.c_void_p(1))


def test_a_sample_of_the_future_hides_none_that_follow():
    """A sample with a timestamp in the future is ignored, since it would hide later samples."""
    library = Buffer()
    buffer = open_buffer(library)
    library.samples = [(NOW, 100), (2**63, 100)]
    since, busy, lost = buffer.read(None)
    assert (since, busy, lost) == (NOW, 0.0, 0.0)
    for number in range(1, 4):
        library.samples.append((NOW + number * SECOND // 6, 50))
    since, busy, lost = buffer.read(since)
    assert since == NOW + SECOND // 2
    assert 0.24 < busy < 0.26
    assert lost == 0
    assert buffer.read(since) == (since, 0.0, 0.0)
    library.samples = [(2**63, 100)]
    assert buffer.read(since) == (since, 0.0, 0.0)


def test_a_capacity_that_no_buffer_has_is_not_believed():
    """The buffer is limited to 4096 samples, so an absurd capacity cannot fill the memory."""
    library = Buffer(capacity=2**32 - 1)
    library.samples = [(NOW, 10)]
    assert open_buffer(library).read(None) == (NOW, 0.0, 0.0)
    assert library.rooms == [4096]
