"""An answer of an engine that comes bit by bit."""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import suppress
from threading import Lock

from trainvitals.sources.containers.framing import AnswerDecoder, FramingError

_RECEIVE_BYTES = 1 << 16


class Stream:
    """The answer on one connection, which serves no other.

    One thread receives; any thread may close, which ends the other's waiting at once.
    """

    __slots__ = ("_closed", "_decoder", "_early", "_lock", "_receiving", "_socket")

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._decoder = AnswerDecoder()
        self._early = b""  # of the body, what came with the head
        self._lock = Lock()
        self._receiving = False
        self._closed = False

    @property
    def status(self) -> int | None:
        """The answer's status; None before its head has come."""
        return self._decoder.status

    @property
    def is_complete(self) -> bool:
        """Whether the answer came to its own end, where it has one."""
        return self._decoder.is_complete

    @property
    def ends_by_itself(self) -> bool:
        """Whether the answer says where its end is; else it ends with the connection."""
        return self._decoder.ends_by_itself

    def fileno(self) -> int:
        """Give the file descriptor to wait on; -1 when closed."""
        return self._socket.fileno()

    def await_head(self, patience_seconds: float) -> None:
        """Wait until the head of the answer has come.

        Raises:
            TimeoutError: It did not come in that time.
            FramingError: What came is no HTTP answer, or nothing came.
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
        """Receive some of the body.

        Args:
            patience_seconds: How long to wait for it; 0 for not at all.

        Returns:
            What came; None where nothing did in that time, empty at the end, whatever ended it.

        Raises:
            FramingError: What came is no HTTP answer.
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
        """End it; twice is fine."""
        with self._lock:
            self._closed = True
            with suppress(OSError):  # the other side was quicker
                self._socket.shutdown(socket.SHUT_RDWR)
            # While another thread waits on it, its descriptor must not go to another file.
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
        except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
            return None
        except OSError:
            return b""
        finally:
            self._end_receiving()

    def _end_receiving(self) -> None:
        with self._lock:
            self._receiving = False
            if self._closed:
                self._socket.close()
