"""One client's connection: what it is at, and what still has to be sent."""

from __future__ import annotations

import socket
from enum import Enum
from selectors import EVENT_READ, EVENT_WRITE
from typing import Protocol

from trainvitals.http1 import Head, RequestReader

_RECEIVE_BYTES = 1 << 14


class Transport(Protocol):
    """The bytes of a connection, in the clear or through TLS; no call ever waits.

    Attributes:
        blocked_on: `EVENT_READ` or `EVENT_WRITE`: what to wait for after a call gave None.
    """

    blocked_on: int

    def receive(self, size: int) -> bytes | None:
        """Receive; empty at the client's end, None where there is nothing yet.

        Raises:
            OSError: The connection is broken or, with TLS, was never one.
        """
        ...

    def send(self, parts: list[memoryview]) -> int | None:
        """Send the start of some bytes; None where nothing can be sent now.

        Raises:
            OSError: The connection is broken.
        """
        ...

    def finish(self) -> None:
        """Tell the client that nothing more will come; what it sends can still be received.

        Raises:
            OSError: The connection is broken.
        """
        ...

    def close(self) -> None:
        """Close; twice is fine."""
        ...


class PlainTransport:
    """A TCP connection in the clear."""

    __slots__ = ("_socket", "blocked_on")

    def __init__(self, client: socket.socket) -> None:
        self._socket = client
        self.blocked_on = EVENT_READ

    def receive(self, size: int) -> bytes | None:
        """Receive from the socket."""
        try:
            return self._socket.recv(size)
        except BlockingIOError:
            self.blocked_on = EVENT_READ
            return None

    def send(self, parts: list[memoryview]) -> int | None:
        """Send to the socket, all parts in one system call."""
        try:
            return self._socket.sendmsg(parts)
        except BlockingIOError:
            self.blocked_on = EVENT_WRITE
            return None

    def finish(self) -> None:
        """Shut down the sending half."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class Phase(Enum):
    """What a connection is at."""

    READING = "waits for a request, or for the rest of one"
    ANSWERING = "waits for the answer to its request"
    WRITING = "is being sent an answer"
    LINGERING = "was sent its last answer and may still be sending itself"
    CLOSED = "closed"


class Connection:
    """A client.

    Args:
        transport: Its bytes.
        descriptor: The file descriptor to wait on.
        peer: Its address, for the log.
        reader: Cuts what it sends into requests.

    Attributes:
        phase: What it is at.
        head: The request in flight; None before the first, or when it was not understood.
        ticket: The number of the request in flight; an answer to an earlier one is stale.
        closing: It closes after the answer in flight.
        ended: The client has said that it sends no more.
        lingering: When it closes, it first reads what the client still sends, since closing on
            unread bytes would make the system take the answer back.
        drained_bytes: How much was read while lingering.
        watched: The events it is registered for; 0 where it is not.
    """

    __slots__ = (
        "closing",
        "descriptor",
        "drained_bytes",
        "ended",
        "head",
        "lingering",
        "peer",
        "phase",
        "reader",
        "ticket",
        "transport",
        "unsent",
        "watched",
    )

    def __init__(
        self, transport: Transport, *, descriptor: int, peer: str, reader: RequestReader
    ) -> None:
        self.transport = transport
        self.descriptor = descriptor
        self.peer = peer
        self.reader = reader
        self.phase = Phase.READING
        self.head: Head | None = None
        self.ticket = 0
        self.closing = False
        self.ended = False
        self.lingering = False
        self.drained_bytes = 0
        self.watched = 0
        self.unsent: list[memoryview] = []

    @property
    def busy(self) -> bool:
        """Whether a request is in flight."""
        return self.phase is Phase.ANSWERING or self.phase is Phase.WRITING

    def receive(self) -> bytes | None:
        """Receive a little; empty at the client's end, None where there is nothing yet."""
        return self.transport.receive(_RECEIVE_BYTES)

    def begin(self, head: Head) -> None:
        """Take up a request."""
        self.phase = Phase.ANSWERING
        self.head = head
        self.ticket += 1
        self.closing = self.closing or not head.keep_alive

    def send(self, *parts: bytes) -> None:
        """Queue an answer; `flush` sends it. Its body is shared, never copied."""
        self.phase = Phase.WRITING
        self.unsent = [memoryview(part) for part in parts if part]

    def flush(self) -> bool:
        """Send what can be sent now, and tell whether that was anything.

        Raises:
            OSError: The connection is broken.
        """
        progress = False
        while self.unsent:
            sent = self.transport.send(self.unsent)
            if sent is None:
                break
            progress = True
            self._drop_sent(sent)
        return progress

    def _drop_sent(self, count: int) -> None:
        while self.unsent and count >= len(self.unsent[0]):
            count -= len(self.unsent.pop(0))
        if count:
            self.unsent[0] = self.unsent[0][count:]
