"""A vendor whose devices can be read, and the interface of its reader.

A driver's library can hang, crash, leak, print, and outlive the driver it was made for; where a
reader runs is decided by `driver`.
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
        name: The vendor, in lower case.
        kind: The name of its devices in the label `kind`.
        opener: The function that opens the driver, run in a child.
        is_installed: Returns whether the vendor's library or tool can be found, without running it.
        traces: Files and directories that change when the driver or its devices are added or
            removed; each path begins with `proc/` or `sys/`.
        is_isolated: Its reader always runs in a child process.
    """

    name: str
    kind: Kind
    opener: Opener
    is_installed: Callable[[], bool]
    traces: tuple[str, ...]
    is_isolated: bool = False


class Device(Protocol):
    """One device that a reader holds open.

    Attributes:
        identity: Which one.
    """

    identity: IdentityFields

    def read(self, since: int | None) -> DeviceRow:
        """Read everything.

        Args:
            since: The newest sample that was already counted; 0 if the buffer was empty then; None
                if none was ever counted.

        Raises:
            DeviceError: This device cannot be read.
            DriverGoneError: No device can be read.
        """
        ...


class Session(Protocol):
    """An open driver.

    Attributes:
        parallel: The number of devices that may be read at once. With 1 they are read one after the
            other, and another is started in parallel only if one seems to hang.
    """

    parallel: int

    @property
    def devices(self) -> Sequence[Device]:
        """The devices that could be opened."""
        ...

    @property
    def unreadable(self) -> Sequence[tuple[IdentityFields, str]]:
        """The devices that the driver lists and refuses to open, with their state."""
        ...

    @property
    def troubles(self) -> Sequence[str]:
        """What the driver said at the latest reading that was not understood."""
        ...

    def is_current(self) -> bool:
        """Return whether the driver still shows the same number of devices.

        Raises:
            DriverGoneError: The driver lists no devices any more.
        """
        ...

    def watch(self, report: Callable[[str, int], None]) -> None:
        """Report each error as UUID and code, until the driver is gone or `stop_watching`."""
        ...

    def stop_watching(self) -> None:
        """Make `watch` return soon; from any thread."""
        ...

    def close(self) -> None:
        """Release the driver."""
        ...
