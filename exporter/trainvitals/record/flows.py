"""How much the machine reads, writes, receives and sends: what its counters grew by."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from trainvitals.sources.disk import DiskReading
from trainvitals.sources.network import NetworkReading


@dataclass(frozen=True, slots=True)
class Flows:
    """Bytes per second since the look before; None at the first, and where nobody counts.

    Attributes:
        read: From all disks, each byte counted once.
        written: To them.
        received: By all physical interfaces.
        transmitted: By them.
    """

    read: float | None = None
    written: float | None = None
    received: float | None = None
    transmitted: float | None = None


class FlowMeter:
    """Compares counters with those of the look before.

    Args:
        clock: Seconds that never go back.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._time: float | None = None
        self._counts: tuple[int | None, ...] = (None,) * 4

    def measure(self, disk: DiskReading | None, network: NetworkReading | None) -> Flows:
        """Measure what flowed since the call before.

        Args:
            disk: What the disks count; None where it could not be read.
            network: What the interfaces count; the same.
        """
        now = self._clock()
        counts = (
            None if disk is None else disk.read_bytes,
            None if disk is None else disk.written_bytes,
            None if network is None else network.receive_bytes,
            None if network is None else network.transmit_bytes,
        )
        seconds = 0.0 if self._time is None else now - self._time
        rates = [
            _compare(before, after, seconds)
            for before, after in zip(self._counts, counts, strict=True)
        ]
        self._time, self._counts = now, counts
        return Flows(*rates)


def _compare(before: int | None, after: int | None, seconds: float) -> float | None:
    if before is None or after is None or seconds <= 0 or after < before:
        return None
    return (after - before) / seconds
