"""What a vendor's reader is to those who run it.

A driver's library can hang, crash, leak, print, and outlive the driver it was made for; where a
reader runs is decided by `driver`.
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
        parallel: How many devices may be read at once. With 1 they are read one after the other,
            and another is begun beside one only when that one seems to hang.
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
        """Report each error as UUID and code, until the driver is gone or `stop_watching`."""
        ...

    def stop_watching(self) -> None:
        """Have `watch` return soon; from any thread."""
        ...

    def close(self) -> None:
        """Let go of the driver."""
        ...
