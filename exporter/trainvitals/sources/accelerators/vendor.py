"""What a vendor's reader gives to the child process that runs it.

A reader runs in a process of its own (`child.py`), because a driver's library can hang, crash,
leak, print, and outlive the driver it was made for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from trainvitals.sources.accelerators.row import DeviceRow, IdentityFields


class Device(Protocol):
    """One device that a reader holds open.

    Attributes:
        identity: Which one.
    """

    identity: IdentityFields

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
        parallel: How many devices may be read at once.
    """

    parallel: int

    @property
    def devices(self) -> Sequence[Device]:
        """Those that could be opened."""
        ...

    @property
    def unreadable(self) -> Sequence[tuple[IdentityFields, str]]:
        """Those that the driver shows and will not open, with their state."""
        ...

    def is_current(self) -> bool:
        """Tell whether the driver still shows the same number of devices.

        Raises:
            DriverGoneError: It shows none, because it is gone.
        """
        ...

    def watch(self, report: Callable[[str, int], None]) -> None:
        """Wait for errors for ever and report each as UUID and code; return if there are none."""
        ...
