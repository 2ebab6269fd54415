"""The state of a client's connection, such as its phase and its unsent bytes."""

from __future__ import annotations

import socket
from enum import Enum
from selectors import EVENT_READ, EVENT_WRITE
from typing import NamedTuple, Protocol

from trainvitals.http.host_names import MAPPED, is_loopback_name
from trainvitals.http.http1 import Head, RequestReader
from trainvitals.http.listen import Address

_RECEIVE_BYTES = 1 << 14
_LOOPBACK = "127.0.0.0/8"


class Transport(Protocol):
    """A non-blocking transport for a connection's bytes, in plain text or with TLS.

    Attributes:
        blocked_on: The event to wait for after `receive` or `send` has returned None: `EVENT_READ`
            or `EVENT_WRITE`.
    """

    blocked_on: int

    def receive(self, size: int) -> bytes | None:
        """Return the bytes that the client has sent.

        The result is empty at the end of the stream, and None if no bytes are available.

        Raises:
            OSError: The connection is broken, or the TLS handshake failed.
        """
        ...

    def send(self, parts: list[memoryview]) -> int | None:
        """Send bytes and return the number of sent bytes; None if sending would block.

        Raises:
            OSError: The connection is broken.
        """
        ...

    def finish(self) -> None:
        """Shut down the sending side, after which bytes can still be received.

        Raises:
            OSError: The connection is broken.
        """
        ...

    def close(self) -> None:
        """Close the connection; further calls have no effect."""
        ...


class PlainTransport:
    """A TCP connection without TLS."""

    __slots__ = ("_socket", "blocked_on")

    def __init__(self, client: socket.socket) -> None:
        self._socket = client
        self.blocked_on = EVENT_READ

    def receive(self, size: int) -> bytes | None:
        """Receive bytes from the socket."""
        try:
            return self._socket.recv(size)
        except BlockingIOError:
            self.blocked_on = EVENT_READ
            return None

    def send(self, parts: list[memoryview]) -> int | None:
        """Send all parts to the socket with one system call."""
        try:
            return self._socket.sendmsg(parts)
        except BlockingIOError:
            self.blocked_on = EVENT_WRITE
            return None

    def finish(self) -> None:
        """Shut down the sending side of the socket."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class Client(NamedTuple):
    """The client of a connection.

    Attributes:
        host: The IP address of the client.
        port: The port of the client, which distinguishes connections from the same address.
        network: The part of the address that identifies a client, as `find_network` returns it.
    """

    host: str = ""
    port: int = 0
    network: str = ""

    def __str__(self) -> str:
        """Return the client's address and port in the format of URLs."""
        return str(Address(self.host, self.port))


def find_network(host: str) -> str:
    """Return the part of an IP address that identifies a client.

    The part is the whole address for an IPv4 address and for an IPv4 address inside an IPv6
    address. For other IPv6 addresses, the part is the first 64 bits. All loopback addresses count
    as one address, because every process on this machine can use any loopback address.
    """
    if is_loopback_name(host):
        return _LOOPBACK
    if ":" not in host:
        return host
    address = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    if address.startswith(MAPPED):
        return socket.inet_ntop(socket.AF_INET, address.removeprefix(MAPPED))
    return address[:8].hex(":", 2)


class Phase(Enum):
    """The phase of a connection."""

    READING = "waiting for a request, or for the rest of one"
    ANSWERING = "waiting for the response to its request"
    WRITING = "being sent a response"
    LINGERING = "was sent its last response and may still be sending"
    CLOSED = "closed"


class Connection:
    """A client's connection.

    Args:
        transport: The transport of the connection's bytes.
        descriptor: The file descriptor that is watched for events.
        client: The client at the other end of the connection.
        is_loopback: Whether the connection was made to a loopback address.
        reader: The parser that splits the received bytes into requests.

    Attributes:
        phase: The phase of the connection.
        head: The head of the request in flight; None before the first request, or if the request
            could not be parsed.
        ticket: The number of the request in flight; responses to earlier requests are dropped.
        is_admitted: Whether the password check of the request in flight has ended, or no password
            is needed.
        closing: Whether the connection will be closed after the response in flight.
        ended: Whether the client has shut down its sending side.
        lingering: Whether the client's remaining bytes are read before the connection is closed. If
            bytes are unread at that time, the kernel resets the connection, and the response may be
            lost.
        drained_bytes: The number of bytes that have been read while lingering.
        watched: The events for which the connection is registered in the loop; 0 if the connection
            is not registered.
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
        """Whether a response is being created or sent."""
        return self.phase is Phase.ANSWERING or self.phase is Phase.WRITING

    def receive(self) -> bytes | None:
        """Return the bytes that the client has sent.

        The result is empty at the end of the stream, and None if no bytes are available.
        """
        return self.transport.receive(_RECEIVE_BYTES)

    def begin(self, head: Head) -> None:
        """Record that the connection has a new request in flight."""
        self.phase = Phase.ANSWERING
        self.head = head
        self.ticket += 1
        self.closing = self.closing or not head.keep_alive

    def send(self, *parts: bytes) -> None:
        """Queue a response without copying the body; `flush` sends the response."""
        self.phase = Phase.WRITING
        self.unsent = [memoryview(part) for part in parts if part]

    def flush(self) -> bool:
        """Send queued bytes without blocking, and return whether any byte was sent.

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
