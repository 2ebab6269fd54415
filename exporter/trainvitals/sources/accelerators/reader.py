"""The exporter's end of a vendor's reader; the messages are those of `child`."""

from __future__ import annotations

import marshal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainvitals.sources.accelerators.child import LARGEST_MESSAGE_BYTES
from trainvitals.sources.accelerators.reading import Identity, State


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
    """

    rows: list[
        tuple[str, list[object], tuple[int, float, float] | None, list[tuple[int, int | None]]]
    ]
    states: list[tuple[str, State]]
    is_current: bool


@dataclass(slots=True)
class _Inbox:
    """What the child said and nobody took yet."""

    opened: bool = False
    identities: list[Identity] = field(default_factory=list)
    unreadable: list[tuple[Identity, State]] = field(default_factory=list)
    absent: str | None = None
    gone: str | None = None
    answer: tuple[int, Answer] | None = None
    xids: list[XidEvent] = field(default_factory=list)


class Reader:
    """The exporter's end of a reader that has one vendor's driver open.

    Args:
        connection: This end of the socket pair.

    Attributes:
        started_at: When it was started, by `time.monotonic`.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.started_at = time.monotonic()
        self._inbox = _Inbox()
        self._number = 0
        self._awaited = 0
        self._ended = False
        self._connection = connection

    @property
    def pid(self) -> int | None:
        """The process it runs in; None when that is the exporter's own."""
        return None

    @property
    def opened(self) -> bool:
        """Whether it has opened the driver."""
        return self._inbox.opened

    @property
    def identities(self) -> list[Identity]:
        """The devices it can read."""
        return self._inbox.identities

    @property
    def unreadable(self) -> list[tuple[Identity, State]]:
        """The devices that the driver showed it and would not open."""
        return self._inbox.unreadable

    @property
    def absent(self) -> str | None:
        """Why there is no such driver here; None when there is or it is not known yet."""
        return self._inbox.absent

    @property
    def gone(self) -> str | None:
        """Why the driver no longer answers, or that the child died; None when all is well."""
        if self._inbox.gone is None and self._ended and self._inbox.absent is None:
            return "the driver reader ended unexpectedly"
        return self._inbox.gone

    @property
    def is_busy(self) -> bool:
        """Whether it still owes an answer to an earlier request."""
        return self._awaited > 0

    def wait_until_opened(self, until: float) -> None:
        """Wait until it has opened the driver, failed to, or the moment (monotonic) has come."""
        while not (self.opened or self._ended or self.absent or self._inbox.gone):
            if not self._listen_once(until):
                return

    def ask(self, patience: float, since: Mapping[str, int | None]) -> None:
        """Send a request to read every device; see `child`."""
        self._number += 1
        self._awaited = self._number
        try:
            self._connection.sendall(marshal.dumps(("read", self._number, patience, dict(since))))
        except OSError:
            self._ended = True

    def take_answer(self, until: float) -> Answer | None:
        """Wait for the answer to the latest request; None when it does not come by then."""
        while not self._ended and self._inbox.gone is None:
            answer = self._inbox.answer
            if answer is not None and answer[0] == self._number:
                self._inbox.answer = None
                return answer[1]
            if not self._listen_once(until):
                return None
        return None

    def take_xids(self) -> list[XidEvent]:
        """Take the errors reported since the last time, also those of a child that died."""
        while not self._ended and self._listen_once(0.0):
            pass
        xids, self._inbox.xids = self._inbox.xids, []
        return xids

    def end(self) -> None:
        """Have it end, without waiting for that."""
        self._ended = True
        self._connection.close()

    def reap(self) -> bool:
        """Tell whether it has ended, and if so have it forgotten."""
        raise NotImplementedError

    def _listen_once(self, until: float) -> bool:
        """Take up one message; False when none comes until the moment (monotonic)."""
        wait = until - time.monotonic()
        self._connection.settimeout(max(wait, 0.0))  # 0 does not block
        try:
            packet = self._connection.recv(LARGEST_MESSAGE_BYTES)
        except (TimeoutError, BlockingIOError):
            return False
        except OSError:
            packet = b""
        finally:
            if self._connection.fileno() >= 0:
                self._connection.settimeout(None)
        if not packet:
            self._ended = True
            return False
        self._take_up(marshal.loads(packet))  # noqa: S302 - from our own child
        return True

    def _take_up(self, message: tuple[object, ...]) -> None:
        inbox = self._inbox
        match message:
            case ("opened", list(identities), list(unreadable)):
                inbox.opened = True
                inbox.identities = [Identity(*identity) for identity in identities]
                inbox.unreadable = [(Identity(*identity), state) for identity, state in unreadable]
            case ("absent", str(reason)):
                inbox.absent = reason
            case ("gone", str(reason)):
                inbox.gone = reason
            case ("read", int(number), list(rows), list(states), bool(is_current)):
                if number == self._awaited:
                    self._awaited = 0
                inbox.answer = (number, Answer(rows, states, is_current))
            case ("xid", str(uuid), int(code), float(at)):
                inbox.xids.append(XidEvent(uuid, code, at))
