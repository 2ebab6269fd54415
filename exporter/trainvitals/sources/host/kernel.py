"""The kernel's clock: boot time, current time, and synchronization.

The values are read from `/proc/stat` and `adjtimex(2)`.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

from trainvitals.errors import SourceError
from trainvitals.sources.files import KeptFile, Roots, not_understood

# The first members of `struct timex`: modes, offset, freq, maxerror, esterror and status.
_TIMEX = struct.Struct("@Illlli")
_TIMEX_ROOM_BYTES = 512
_STATE_ERROR = 5  # TIME_ERROR: not synchronized
_STATUS_NANO = 0x2000  # STA_NANO: the offset is in nanoseconds
_STEP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ClockState:
    """The kernel's estimate of the clock error.

    Attributes:
        offset_seconds: The remaining clock adjustment, in seconds; positive if the clock is behind.
        synchronized: Whether a time daemon synchronizes the clock.
    """

    offset_seconds: float
    synchronized: bool


@dataclass(frozen=True, slots=True)
class KernelReading:
    """A reading of the host's clock.

    Attributes:
        boot_time_seconds: The time at which the host booted, in seconds since 1970.
        time_seconds: The host's time, in seconds since 1970.
        clock: The clock's estimated error; None if `adjtimex` is not available or not permitted.
    """

    boot_time_seconds: int
    time_seconds: float
    clock: ClockState | None


def read_uptime() -> float:
    """Return the seconds since the host booted, including time in suspension."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class KernelSource:
    """Reads the host's clock.

    Args:
        roots: The path of `/proc`.
        clock: A function that returns the time of day, in seconds since 1970.
        uptime: A function that returns the seconds since boot, including time in suspension.
        adjtimex: A function that returns the kernel's clock state, or None if this process is not
            permitted to read the state; by default, the C library's `adjtimex`.
    """

    def __init__(
        self,
        *,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        clock: Callable[[], float] = time.time,
        uptime: Callable[[], float] = read_uptime,
        adjtimex: Callable[[], ClockState | None] | None = None,
    ) -> None:
        self._stat = KeptFile(roots.procfs / "stat", single=True)
        self._clock = clock
        self._uptime = uptime
        self._adjtimex = adjtimex
        self._boot_time = 0
        self._booted_by_clock = float("-inf")

    def read(self) -> KernelReading:
        """Read the current state of the host's clock.

        Raises:
            SourceError: `/proc/stat` does not exist, cannot be read, or contains no boot time.
        """
        now = self._clock()
        booted = now - self._uptime()
        # Reading `/proc/stat` is slow on a machine with many cores, and the boot time changes only
        # when the clock is stepped.
        if abs(booted - self._booted_by_clock) > _STEP_SECONDS:
            self._boot_time = self._read_boot_time()
            self._booted_by_clock = booted
        if self._adjtimex is None:
            self._adjtimex = load_adjtimex()
        return KernelReading(self._boot_time, now, self._adjtimex())

    def close(self) -> None:
        """Close `/proc/stat`."""
        self._stat.close()

    def _read_boot_time(self) -> int:
        data = self._stat.require()
        _, found, rest = data.partition(b"\nbtime ")
        if not found:
            raise SourceError(f"{self._stat.path} has no btime; check that it is the kernel's own")
        try:
            return int(rest.partition(b"\n")[0])
        except ValueError as error:
            raise not_understood(self._stat.path) from error


def load_adjtimex() -> Callable[[], ClockState | None]:
    """Load the C library's function `adjtimex`.

    Returns:
        A function that reads the kernel's clock state without changing it. The function returns
        None if the C library does not provide `adjtimex` or the kernel does not permit the call.
    """
    import ctypes  # noqa: PLC0415 - not imported at start, to save time

    try:
        call = ctypes.CDLL(None).adjtimex
    except (OSError, AttributeError):
        return lambda: None
    buffer = ctypes.create_string_buffer(_TIMEX_ROOM_BYTES)

    def ask() -> ClockState | None:
        _TIMEX.pack_into(buffer, 0, 0, 0, 0, 0, 0, 0)  # modes 0: change nothing
        state: int = call(buffer)
        if state < 0:
            return None
        _, offset, _, _, _, status = _TIMEX.unpack_from(buffer)
        return clock_state(state, offset, status)

    return ask


def clock_state(state: int, offset: int, status: int) -> ClockState:
    """Return the clock state that an `adjtimex` result describes.

    Args:
        state: The return value of `adjtimex`, from `TIME_OK` to `TIME_ERROR`.
        offset: The value of `timex.offset`, in nanoseconds if `STA_NANO` is set in `status`,
            otherwise in microseconds.
        status: The value of `timex.status`.
    """
    units_per_second = 1_000_000_000 if status & _STATUS_NANO else 1_000_000
    return ClockState(offset / units_per_second, state != _STATE_ERROR)
