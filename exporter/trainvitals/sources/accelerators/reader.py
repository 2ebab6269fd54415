"""A vendor's reader as the driver uses it, on a thread or in a process."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from trainvitals.sources.accelerators.reading import Identity, State

UNEXPECTED_END = "the driver reader ended unexpectedly"


@dataclass(frozen=True, slots=True)
class Opener:
    """The function that opens a vendor's driver, by name, so that only the child imports it.

    Attributes:
        module: The name of its module.
        name: The name of the function.
    """

    module: str
    name: str


@dataclass(frozen=True, slots=True)
class XidEvent:
    """An error that a device reported.

    Attributes:
        uuid: Which device.
        code: The driver's number for the error.
        at: Unix time.
    """

    uuid: str
    code: int
    at: float


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a reader to one request.

    Attributes:
        rows: UUID, row, busy time and processes of each device that was read, as in `child`.
        states: The devices that could not be read, with the reason.
        is_current: Whether the driver lists the devices that it listed when it was opened.
        troubles: Unexpected errors, as text.
    """

    rows: list[
        tuple[str, list[object], tuple[int, float, float] | None, list[tuple[int, int | None]]]
    ]
    states: list[tuple[str, State]]
    is_current: bool
    troubles: list[str]


class Reader(ABC):
    """A reader that has one vendor's driver open, or is opening it.

    Attributes:
        started_at: When it was started, by `time.monotonic`.
    """

    def __init__(self) -> None:
        self.started_at = time.monotonic()
        self._identities: list[Identity] = []
        self._unreadable: list[tuple[Identity, State]] = []
        self._absent: str | None = None
        self._gone: str | None = None

    @property
    def pid(self) -> int | None:
        """The PID of the reader's process; None if it runs in the exporter's process."""
        return None

    @property
    @abstractmethod
    def opened(self) -> bool:
        """Whether it has opened the driver."""

    @property
    def identities(self) -> list[Identity]:
        """The devices it can read."""
        return self._identities

    @property
    def unreadable(self) -> list[tuple[Identity, State]]:
        """The devices that the driver lists and would not open."""
        return self._unreadable

    @property
    def absent(self) -> str | None:
        """The reason why the driver is absent; None if it is present or not known yet."""
        return self._absent

    @property
    def gone(self) -> str | None:
        """The reason why the driver no longer answers; None without a fault."""
        return self._gone

    @property
    def is_busy(self) -> bool:
        """Whether it still owes an answer to an earlier request."""
        return False

    @abstractmethod
    def wait_until_opened(self, until: float) -> None:
        """Wait until the driver is open, opening failed, or the deadline (monotonic) has passed."""

    @abstractmethod
    def ask(self, patience: float, since: Mapping[str, int | None]) -> None:
        """Request a reading of every device; see `DevicePool.read`."""

    @abstractmethod
    def take_answer(self, until: float) -> Answer | None:
        """Wait for the answer to the latest request; None if it does not arrive in time."""

    @abstractmethod
    def take_xids(self) -> list[XidEvent]:
        """Return the errors reported since the last call."""

    def hang_up(self) -> None:  # noqa: B027 - a reader that cannot be interrupted does nothing
        """Make a wait for it return soon; from any thread or signal handler."""

    @abstractmethod
    def end(self) -> None:
        """Make it end, without waiting for the end."""

    @abstractmethod
    def reap(self) -> bool:
        """Return whether it has ended, and release its resources if so."""
