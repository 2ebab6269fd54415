"""What a vendor's reader gives to the child process that runs it.

A reader runs in a process of its own (`child.py`), because a driver's library can hang, crash,
leak, print, and outlive the driver it was made for. Its numbers travel as rows: lists in the
order of the fields of `Measurements`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Protocol

from trainvitals.sources.accelerators.reading import Identity, Measurements, State

ROW_FIELDS = tuple(field.name for field in fields(Measurements))
SLOT = {name: slot for slot, name in enumerate(ROW_FIELDS)}
EMPTY_ROW: tuple[object, ...] = tuple(field.default for field in fields(Measurements))

Row = list[object]


class DriverAbsentError(Exception):
    """There is no such driver or library on this machine, which is nothing to report."""


class DriverGoneError(Exception):
    """The driver was there and no longer answers, or refuses this process.

    Attributes:
        reason: One line for the log and the reason label.
    """


class DeviceError(Exception):
    """One device cannot be read.

    Attributes:
        state: Which state it is in.
    """

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.state = state


@dataclass(frozen=True, slots=True)
class BusyTime:
    """How long a device was busy since a sample, by the driver's own clock.

    Attributes:
        newest: The time stamp of the newest sample in microseconds; 0 when the buffer was empty.
        busy_seconds: Busy time between the asked sample and the newest.
        unobserved_seconds: What of that time the buffer no longer held.
    """

    newest: int
    busy_seconds: float
    unobserved_seconds: float


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """What one reading of a device brings.

    Attributes:
        row: The numbers, in the order of `ROW_FIELDS`.
        busy: Busy time from the sample buffer; None where the driver keeps none.
        processes: Pairs of PID and bytes held, largest first; bytes None when not reported.
    """

    row: Row
    busy: BusyTime | None
    processes: Sequence[tuple[int, int | None]]


class Device(Protocol):
    """One device that the reader holds open.

    Attributes:
        identity: Which one.
    """

    identity: Identity

    def read(self, since: int | None) -> DeviceRow:
        """Read everything.

        Args:
            since: The newest sample that was already counted; 0 when the buffer was empty then;
                None when none was ever counted.

        Raises:
            DeviceError: This device cannot be read.
            DriverGoneError: No device can.
        """
        ...


class Session(Protocol):
    """An open driver.

    Attributes:
        devices: Those that could be opened.
        unreadable: Those the driver shows and will not open, with their state.
        parallel: How many devices may be read at once.
    """

    devices: Sequence[Device]
    unreadable: Sequence[tuple[Identity, State]]
    parallel: int

    def is_current(self) -> bool:
        """Tell whether the driver still shows the same number of devices."""
        ...

    def watch(self, report: Callable[[str, int], None]) -> None:
        """Wait for errors for ever and report each as UUID and code; return if there are none."""
        ...
