"""A vendor whose devices can be read, and the interface of the vendor's reader.

A driver's library can hang, crash, leak memory, print messages, and stay loaded after the driver
was replaced. Therefore, the module `driver` decides whether a reader runs on a thread or in a child
process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from trainvitals.sources.accelerators.reader import Opener
from trainvitals.sources.accelerators.reading import Kind
from trainvitals.sources.accelerators.row import DeviceRow, IdentityFields


@dataclass(frozen=True, slots=True)
class Vendor:
    """A vendor whose devices can be read.

    Attributes:
        name: The vendor's name, in lower case.
        kind: The value of the label `kind` for the vendor's devices.
        opener: The function with which the reader opens the driver.
        is_installed: A function that returns whether the vendor's library or tool is installed; the
            function does not run the tool.
        traces: The files and directories that change when the driver or its devices are added or
            removed; each path begins with `proc/` or `sys/`.
        is_isolated: Whether the vendor's reader always runs in a child process.
    """

    name: str
    kind: Kind
    opener: Opener
    is_installed: Callable[[], bool]
    traces: tuple[str, ...]
    is_isolated: bool = False


class Device(Protocol):
    """One device that a reader has opened.

    Attributes:
        identity: The fields of the device's identity.
    """

    identity: IdentityFields

    def read(self, since: int | None) -> DeviceRow:
        """Read all of the device's values.

        Args:
            since: The timestamp of the newest sample that was already counted, in microseconds; 0
                if the sample buffer was empty when it was last read; None if no sample was ever
                counted.

        Raises:
            DeviceError: This device cannot be read.
            DriverGoneError: No device can be read.
        """
        ...


class Session(Protocol):
    """A vendor's open driver.

    Attributes:
        parallel: The number of devices that may be read at the same time. If 1, the devices are
            read one after the other. The next device is read in parallel only if a device seems to
            hang.
    """

    parallel: int

    @property
    def devices(self) -> Sequence[Device]:
        """The devices that could be opened."""
        ...

    @property
    def unreadable(self) -> Sequence[tuple[IdentityFields, str]]:
        """The devices that the driver lists but could not open, with their states."""
        ...

    @property
    def troubles(self) -> Sequence[str]:
        """Descriptions of the driver output that the latest reading could not parse."""
        ...

    def is_current(self) -> bool:
        """Return whether the driver still lists the same devices.

        If the result is False, the reader is replaced. The result is also False if the driver's
        library has leaked too much memory.

        Raises:
            DriverGoneError: The driver no longer lists devices.
        """
        ...

    def watch(self, report: Callable[[str, int], None]) -> None:
        """Report each Xid error until `stop_watching` is called or the driver is gone.

        The function `report` is called with the device's UUID and the Xid code.
        """
        ...

    def stop_watching(self) -> None:
        """Make `watch` return within 15 s; any thread may call this method."""
        ...

    def close(self) -> None:
        """Release the driver."""
        ...
