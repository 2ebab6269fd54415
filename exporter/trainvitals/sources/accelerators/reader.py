"""A vendor's reader as the driver sees it, wherever it runs."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from trainvitals.sources.accelerators.reading import Identity, State

UNEXPECTED_END = "the driver reader ended unexpectedly"


@dataclass(frozen=True, slots=True)
class Opener:
    """Which function opens a vendor's driver, by name, so that only the child imports it.

    Attributes:
        module: Where it is.
        name: What it is called.
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
    """What a child has read.

    Attributes:
        rows: UUID, row, busy time and processes of each device that was read, as in `child`.
        states: The devices that were not, with the reason.
        is_current: The driver shows the devices it showed when it was opened.
        troubles: What went wrong that should not have, in words.
    """

    rows: list[
        tuple[str, list[object], tuple[int, float, float] | None, list[tuple[int, int | None]]]
    ]
    states: list[tuple[str, State]]
    is_current: bool
    troubles: list[str]


class Reader(ABC):
    """Has one vendor's driver open, or is opening it.

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
        """The process it runs in; None when that is the exporter's own."""
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
        """The devices that the driver showed it and would not open."""
        return self._unreadable

    @property
    def absent(self) -> str | None:
        """Why there is no such driver here; None when there is or it is not known yet."""
        return self._absent

    @property
    def gone(self) -> str | None:
        """Why the driver no longer answers it; None when all is well."""
        return self._gone

    @property
    def is_busy(self) -> bool:
        """Whether it still owes an answer to an earlier request."""
        return False

    @abstractmethod
    def wait_until_opened(self, until: float) -> None:
        """Wait until it has opened the driver, failed to, or the moment (monotonic) has come."""

    @abstractmethod
    def ask(self, patience: float, since: Mapping[str, int | None]) -> None:
        """Ask it to read every device; see `Rounds.read`."""

    @abstractmethod
    def take_answer(self, until: float) -> Answer | None:
        """Wait for the answer to the latest request; None when it does not come by then."""

    @abstractmethod
    def take_xids(self) -> list[XidEvent]:
        """Take the errors reported since the last time."""

    def hang_up(self) -> None:  # noqa: B027 - a reader that cannot be interrupted does nothing
        """Have a wait for it that is under way end soon; from any thread or signal handler."""

    @abstractmethod
    def end(self) -> None:
        """Have it end, without waiting for that."""

    @abstractmethod
    def reap(self) -> bool:
        """Tell whether it has ended, and if so have it forgotten."""
