"""A minimal HTTP/1.1 client with little overhead of its own, for measurements."""

from __future__ import annotations

import gzip
import socket
import ssl
import time
from typing import BinaryIO, NamedTuple

HOST = "127.0.0.1"
PATIENCE_SECONDS = 30.0


class Answer(NamedTuple):
    """A response to a request.

    Attributes:
        status: The HTTP status.
        body: The body as received, possibly compressed.
        compressed: Whether the body is compressed with gzip.
        seconds: The duration up to the last byte, including the connection if it is new.
    """

    status: int
    body: bytes
    compressed: bool
    seconds: float

    @property
    def text(self) -> str:
        """The page as text."""
        return (gzip.decompress(self.body) if self.compressed else self.body).decode()

    @property
    def samples(self) -> list[str]:
        """The name and labels of every sample on the page."""
        lines = self.text.splitlines()
        return [line.rpartition(" ")[0] for line in lines if line and not line.startswith("#")]


class Client:
    """Requests one path of an exporter, on a new connection each time or on a persistent one.

    Args:
        port: The port of the exporter on this machine.
        path: The path with its query.
        packed: Accept gzip, as Prometheus does.
        keep_alive: Keep the connection open between requests.
        tls: Use TLS without verification of the certificate.
        headers: Additional header lines of the request.
    """

    def __init__(
        self,
        port: int,
        path: str = "/metrics",
        *,
        packed: bool = True,
        keep_alive: bool = False,
        tls: bool = False,
        headers: tuple[str, ...] = (),
    ) -> None:
        self.port = port
        self._keep_alive = keep_alive
        self._stream: BinaryIO | None = None
        self._socket: socket.socket | None = None
        self._tls: ssl.SSLContext | None = None
        if tls:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._tls.check_hostname = False
            self._tls.verify_mode = ssl.CERT_NONE
        head = (
            f"GET {path} HTTP/1.1",
            f"Host: {HOST}:{port}",
            "Accept: text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            f"Accept-Encoding: {'gzip' if packed else 'identity'}",
            f"Connection: {'keep-alive' if keep_alive else 'close'}",
            *headers,
        )
        self.request = ("\r\n".join(head) + "\r\n\r\n").encode()

    def get(self) -> Answer:
        """Send the request and return the response.

        Raises:
            OSError: The connection failed or broke.
        """
        started_at = time.perf_counter()
        if self._stream is None or self._socket is None:
            self._connect()
        assert self._stream is not None
        assert self._socket is not None
        self._socket.sendall(self.request)
        status, headers, keeps = _read_head(self._stream)
        body = _read_body(self._stream, headers)
        seconds = time.perf_counter() - started_at
        if not self._keep_alive or not keeps:
            self.close()
        return Answer(status, body, headers.get(b"content-encoding") == b"gzip", seconds)

    def close(self) -> None:
        """Close the connection, if one is open."""
        if self._stream is not None and self._socket is not None:
            self._stream.close()
            self._socket.close()
            self._stream = self._socket = None

    def _connect(self) -> None:
        connection = socket.create_connection((HOST, self.port), timeout=PATIENCE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = self._tls.wrap_socket(connection) if self._tls else connection
        self._stream = self._socket.makefile("rb")


def _read_head(stream: BinaryIO) -> tuple[int, dict[bytes, bytes], bool]:
    first = stream.readline().split()
    if len(first) < 2:
        raise ConnectionError("the connection closed before an answer came")
    headers = {}
    while line := stream.readline().strip():
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip()
    keeps = first[0] == b"HTTP/1.1" and headers.get(b"connection", b"").lower() != b"close"
    return int(first[1]), headers, keeps


def _read_body(stream: BinaryIO, headers: dict[bytes, bytes]) -> bytes:
    if headers.get(b"transfer-encoding") == b"chunked":
        chunks = []
        while size := int(stream.readline(), 16):
            chunks.append(stream.read(size))
            stream.readline()
        stream.readline()
        return b"".join(chunks)
    if b"content-length" not in headers:
        return stream.read()
    size = int(headers[b"content-length"])
    body = stream.read(size)
    if len(body) < size:
        raise ConnectionError(f"the connection closed after {len(body)} of {size} bytes")
    return body
