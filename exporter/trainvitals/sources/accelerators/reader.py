"""The interface of a vendor's reader, which runs on a thread or in a child process."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from trainvitals.sources.accelerators.reading import Identity, State
from trainvitals.sources.accelerators.row import Holder

UNEXPECTED_END = "the driver reader ended unexpectedly"


@dataclass(frozen=True, slots=True)
class Opener:
    """The name of the function that opens a vendor's driver; only readers import the function.

    Attributes:
        module: The name of the function's module.
        name: The name of the function.
    """

    module: str
    name: str


@dataclass(frozen=True, slots=True)
class XidEvent:
    """An Xid error that a device reported.

    Attributes:
        uuid: The device's UUID.
        code: The error's Xid code.
        at: The Unix time of the error.
    """

    uuid: str
    code: int
    at: float


@dataclass(frozen=True, slots=True)
class Answer:
    """A reader's answer to one request.

    Attributes:
        rows: The UUID, row, busy time and processes of each device that was read; see `child`.
        states: The UUID and state of each device that could not be read.
        is_current: Whether the driver still lists the devices that it listed when it was opened.
        troubles: A description of each unexpected error.
    """

    rows: list[tuple[str, list[object], tuple[int, float, float] | None, list[Holder]]]
    states: list[tuple[str, State]]
    is_current: bool
    troubles: list[str]


class Reader(ABC):
    """A reader that opens and reads one vendor's driver.

    Attributes:
        started_at: The `time.monotonic` value when the reader was started.
    """

    def __init__(self) -> None:
        self.started_at = time.monotonic()
        self._identities: list[Identity] = []
        self._unreadable: list[tuple[Identity, State]] = []
        self._absent: str | None = None
        self._gone: str | None = None

    @property
    def pid(self) -> int | None:
        """The PID of the reader's process; None if the reader runs in the exporter's process."""
        return None

    @property
    @abstractmethod
    def opened(self) -> bool:
        """Whether the reader has opened the driver."""

    @property
    def identities(self) -> list[Identity]:
        """The devices that the reader has opened."""
        return self._identities

    @property
    def unreadable(self) -> list[tuple[Identity, State]]:
        """The devices that the driver lists but could not open, with their states."""
        return self._unreadable

    @property
    def absent(self) -> str | None:
        """The reason why the driver is absent; None if the driver is present or still opening."""
        return self._absent

    @property
    def gone(self) -> str | None:
        """The reason why the driver no longer responds; None if the driver has not failed."""
        return self._gone

    @property
    def is_busy(self) -> bool:
        """Whether the reader has not answered the latest request yet."""
        return False

    @abstractmethod
    def wait_until_opened(self, until: float) -> None:
        """Wait until the driver is open, opening fails, or the monotonic deadline passes."""

    @abstractmethod
    def ask(self, patience: float, since: Mapping[str, int | None]) -> None:
        """Request a reading of every device; see `DevicePool.read`."""

    @abstractmethod
    def take_answer(self, until: float) -> Answer | None:
        """Wait for the answer to the latest request; return None if no answer arrives in time."""

    @abstractmethod
    def take_xids(self) -> list[XidEvent]:
        """Return the Xid errors that were reported since the last call."""

    def hang_up(self) -> None:  # noqa: B027 - a reader that cannot be interrupted does nothing
        """Interrupt a wait for the reader, so that the wait returns soon.

        Any thread or signal handler may call this method.
        """

    @abstractmethod
    def end(self) -> None:
        """End the reader, without waiting until the reader has ended."""

    @abstractmethod
    def reap(self) -> bool:
        """Return whether the reader has ended, and release an ended reader's resources."""
