"""Receive a streamed answer from a container engine."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from threading import Lock

from trainvitals.sources.containers.framing import AnswerDecoder, FramingError

_RECEIVE_BYTES = 1 << 16


class Stream:
    """A streamed answer from a container engine, on its own connection.

    Only one thread may receive from a stream. Any thread may close the stream; a pending call to
    `receive` then returns immediately.

    Args:
        connection: The connection over which the request was sent.
        decoder: The decoder for the answer.
    """

    __slots__ = ("_closed", "_decoder", "_early", "_lock", "_receiving", "_socket")

    def __init__(self, connection: socket.socket, decoder: AnswerDecoder) -> None:
        self._socket = connection
        self._decoder = decoder
        self._early = b""  # the bytes of the body that arrived with the headers
        self._lock = Lock()
        self._receiving = False
        self._closed = False

    @property
    def status(self) -> int | None:
        """The HTTP status of the answer; None before the answer's headers have been received."""
        return self._decoder.status

    @property
    def is_complete(self) -> bool:
        """Whether the complete answer has been received; see `AnswerDecoder.is_complete`."""
        return self._decoder.is_complete

    @property
    def ends_by_itself(self) -> bool:
        """Whether the answer's headers specify the end of the body; see `AnswerDecoder`."""
        return self._decoder.ends_by_itself

    def fileno(self) -> int:
        """Return the connection's file descriptor, for use with selectors; -1 if it is closed."""
        return self._socket.fileno()

    def await_head(self, patience_seconds: float) -> None:
        """Wait until the answer's headers have been received.

        Raises:
            TimeoutError: The headers did not arrive in time.
            FramingError: The received bytes are not an HTTP answer, or the connection was closed
                before the headers were received.
        """
        until = time.monotonic() + patience_seconds
        while self.status is None:
            data = self._receive_raw(max(0.0, until - time.monotonic()))
            if data is None:
                raise TimeoutError
            if not data:
                raise FramingError("no answer")
            self._early = self._decoder.feed(data)

    def receive(self, patience_seconds: float) -> bytes | None:
        """Receive the next part of the answer's body.

        Args:
            patience_seconds: The maximum time to wait, in seconds; 0 to return immediately.

        Returns:
            The received bytes; empty at the end of the stream, and None if no bytes arrived in
            time.

        Raises:
            FramingError: The received bytes are not an HTTP answer.
        """
        if self._early:
            body, self._early = self._early, b""
            return body
        until = time.monotonic() + patience_seconds
        while not self.is_complete:
            data = self._receive_raw(max(0.0, until - time.monotonic()))
            if not data:
                return data
            if body := self._decoder.feed(data):
                return body
        return b""

    def close(self) -> None:
        """Close the stream's connection; a second call has no effect."""
        with self._lock:
            self._closed = True
            with suppress(OSError):  # the engine has already closed the connection
                self._socket.shutdown(socket.SHUT_RDWR)
            # The descriptor must not be reused for another file while another thread waits on it.
            if not self._receiving:
                self._socket.close()

    def _receive_raw(self, patience_seconds: float) -> bytes | None:
        with self._lock:
            if self._closed:
                return b""
            self._receiving = True
        try:
            self._socket.settimeout(patience_seconds)
            return self._socket.recv(_RECEIVE_BYTES)
        except (TimeoutError, BlockingIOError):
            return None
        except OSError as error:
            # The name is compared, because `ssl` is slow to import and is loaded only for TLS.
            return None if type(error).__name__ == "SSLWantReadError" else b""
        finally:
            self._end_receiving()

    def _end_receiving(self) -> None:
        with self._lock:
            self._receiving = False
            if self._closed:
                self._socket.close()
