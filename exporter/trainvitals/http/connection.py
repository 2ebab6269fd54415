"""The connection of one client: its phase, and the bytes still to be sent."""

from __future__ import annotations

import socket
from enum import Enum
from selectors import EVENT_READ, EVENT_WRITE
from typing import NamedTuple, Protocol

from trainvitals.http.host_names import is_loopback_name
from trainvitals.http.http1 import Head, RequestReader
from trainvitals.http.listen import Address

_RECEIVE_BYTES = 1 << 14
_LOOPBACK = "127.0.0.0/8"


class Transport(Protocol):
    """The bytes of a connection, in plain text or through TLS; no method blocks.

    Attributes:
        blocked_on: `EVENT_READ` or `EVENT_WRITE`: the event to wait for after a method returned None.
    """

    blocked_on: int

    def receive(self, size: int) -> bytes | None:
        """Return received bytes; empty at the end of the stream, None if there are none yet.

        Raises:
            OSError: The connection is broken, or the TLS handshake failed.
        """
        ...

    def send(self, parts: list[memoryview]) -> int | None:
        """Send some of the bytes and return their number; None if none can be sent now.

        Raises:
            OSError: The connection is broken.
        """
        ...

    def finish(self) -> None:
        """Shut down the sending half; the client's bytes can still be received.

        Raises:
            OSError: The connection is broken.
        """
        ...

    def close(self) -> None:
        """Close it; further calls have no effect."""
        ...


class PlainTransport:
    """A TCP connection without TLS."""

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


class Client(NamedTuple):
    """The client of a connection.

    Attributes:
        host: Its address.
        port: Its port, which tells its connections apart.
        network: What one client has of the address, as `find_network` returns it.
    """

    host: str = ""
    port: int = 0
    network: str = ""

    def __str__(self) -> str:
        """Return address and port as in an URL."""
        return str(Address(self.host, self.port))


def find_network(host: str) -> str:
    """Return what one client has of an address: all of an IPv4 address, 64 bits of an IPv6 one.

    Every process of this machine has all loopback addresses.
    """
    if is_loopback_name(host):
        return _LOOPBACK
    if ":" not in host or "." in host:  # an IPv4 address may be mapped into an IPv6 one
        return host
    return socket.inet_pton(socket.AF_INET6, host.partition("%")[0])[:8].hex(":", 2)


class Phase(Enum):
    """The phase of a connection."""

    READING = "waiting for a request, or for the rest of one"
    ANSWERING = "waiting for the response to its request"
    WRITING = "being sent a response"
    LINGERING = "was sent its last response and may still be sending"
    CLOSED = "closed"


class Connection:
    """The connection of a client.

    Args:
        transport: Its bytes.
        descriptor: The file descriptor to wait on.
        client: The client.
        is_loopback: Whether it came in by a listener on a loopback address.
        reader: Splits the received bytes into requests.

    Attributes:
        phase: Its phase.
        head: The request in flight; None before the first, or if it could not be parsed.
        ticket: The number of the request in flight; responses to earlier ones are dropped.
        is_admitted: Whether the password of the request in flight was right, or none is needed.
        closing: Whether it closes after the response in flight.
        ended: Whether the client has shut down its sending half.
        lingering: Whether the client's remaining bytes are read before closing. The kernel resets a
            connection that is closed with unread bytes, and the response may be lost.
        drained_bytes: The number of bytes read while lingering.
        watched: The events that it is registered for; 0 for none.
    """

    __slots__ = (
        "client",
        "closing",
        "descriptor",
        "drained_bytes",
        "ended",
        "head",
        "is_admitted",
        "is_loopback",
        "lingering",
        "phase",
        "reader",
        "ticket",
        "transport",
        "unsent",
        "watched",
    )

    def __init__(
        self,
        transport: Transport,
        *,
        descriptor: int,
        client: Client,
        is_loopback: bool,
        reader: RequestReader,
    ) -> None:
        self.transport = transport
        self.descriptor = descriptor
        self.client = client
        self.is_loopback = is_loopback
        self.reader = reader
        self.phase = Phase.READING
        self.head: Head | None = None
        self.ticket = 0
        self.is_admitted = True
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
        """Return received bytes; empty at the end of the stream, None if there are none yet."""
        return self.transport.receive(_RECEIVE_BYTES)

    def begin(self, head: Head) -> None:
        """Start to answer a request."""
        self.phase = Phase.ANSWERING
        self.head = head
        self.ticket += 1
        self.closing = self.closing or not head.keep_alive

    def send(self, *parts: bytes) -> None:
        """Queue a response, without copying its body; `flush` sends it."""
        self.phase = Phase.WRITING
        self.unsent = [memoryview(part) for part in parts if part]

    def flush(self) -> bool:
        """Send what can be sent now, and return whether any byte was sent.

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
