"""Parse the engine's byte stream incrementally: HTTP answers, log frames and lines.

Each class accepts the bytes in chunks of any size and never blocks. The number of stored bytes is
limited, regardless of the input.

The log of a container without a terminal consists of frames. A frame is a header of 8 bytes,
followed by text. The header contains the number of the stream, three zero bytes, and the length of
the text as a big-endian number. The streams are standard input (0), standard output (1), standard
error (2) and the engine's own messages (3). The text of a frame is usually one line, but can also
be a fragment of a line or several lines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import h11

# The maximum size of an answer's status line and headers, and of a line that states a chunk's size.
_MOST_HEAD_BYTES = 1 << 16
_LENGTHS = (b"content-length", b"transfer-encoding")

_FRAME_HEADER_BYTES = 8
_CHANNELS = 4
_CUT = b" [...] "


class FramingError(ValueError):
    """The error that is raised if received bytes do not follow the protocol."""


class AnswerDecoder:
    """Decodes the engine's answer to one GET request, using h11.

    Attributes:
        request: The bytes of the request to send.
        status: The HTTP status of the answer; None before the answer's headers have been received.
        is_complete: Whether the complete body of the answer has been received.
        ends_by_itself: Whether the answer's headers specify the end of the body. Otherwise, the
            body ends when the connection is closed, and `is_complete` stays False.
    """

    __slots__ = ("_connection", "ends_by_itself", "is_complete", "request", "status")

    def __init__(self, target: str = "/", *, host: str = "localhost") -> None:
        self._connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST_HEAD_BYTES)
        headers = [("Host", host), ("Connection", "close")]
        question = h11.Request(method="GET", target=target, headers=headers)
        self.request = self._connection.send(question) or b""
        self._connection.send(h11.EndOfMessage())  # sends no bytes if the request has no body
        self.status: int | None = None
        self.is_complete = False
        self.ends_by_itself = False

    def feed(self, data: bytes) -> bytes:
        """Parse received bytes, and return the bytes of the answer's body among them.

        Raises:
            FramingError: The bytes are not an HTTP answer.
        """
        body: list[bytes] = []
        try:
            if data and not self.is_complete:  # for h11, empty data means a closed connection
                self._connection.receive_data(data)
            while not self.is_complete:
                event = self._connection.next_event()
                if isinstance(event, h11.Response):
                    self.status = event.status_code
                    names = {name for name, _ in event.headers}
                    self.ends_by_itself = not names.isdisjoint(_LENGTHS)
                elif isinstance(event, h11.Data):
                    body.append(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    self.is_complete = True
                elif event is h11.NEED_DATA:
                    break
        except h11.RemoteProtocolError as error:
            raise FramingError(str(error)) from error
        return b"".join(body)


class LineSplitter:
    """Splits a stream of text into lines, and omits the middle of very long lines.

    The beginning of a very long line is kept because it identifies the line. The end is kept
    because an error message may follow a progress bar on the same line.

    Args:
        most_bytes: The maximum length of a line that is returned completely, in bytes.
    """

    __slots__ = ("_head", "_most_bytes", "_rest")

    def __init__(self, most_bytes: int = 1 << 13) -> None:
        self._most_bytes = most_bytes
        self._head = b""
        self._rest = b""

    @property
    def unfinished(self) -> bytes:
        """The last line, if its line ending has not been received yet; otherwise empty."""
        return self._finish(self._rest) if self._head or self._rest else b""

    def feed(self, data: bytes) -> list[bytes]:
        """Add received text, and return the completed lines without their line endings."""
        first, *others = data.split(b"\n")
        if not others:
            self._hold(first)
            return []
        lines = [self._finish(self._rest + first)]
        self._head = b""
        self._rest = b""
        self._hold(others.pop())
        lines.extend(map(self._finish, others))
        return lines

    def _hold(self, data: bytes) -> None:
        self._rest += data
        if len(self._rest) > 2 * self._most_bytes:
            self._head = self._head or self._rest[: self._most_bytes // 4]
            self._rest = self._rest[-self._most_bytes :]

    def _finish(self, line: bytes) -> bytes:
        most = self._most_bytes
        if self._head or len(line) > most:
            head = self._head or line[: most // 4]
            line = head + _CUT + line[most // 4 - most :]
        return line.removesuffix(b"\r")


class LogDecoder:
    """Splits the log of a container into lines.

    The log of a container without a terminal consists of frames, and the log of a container with a
    terminal is plain text. The format is determined from the first bytes, because plain text never
    begins with a frame header.
    """

    __slots__ = ("_channels", "_is_framed", "_missing", "_rest", "_splitter")

    def __init__(self) -> None:
        self._channels = tuple(LineSplitter() for _ in range(_CHANNELS))
        self._is_framed: bool | None = None
        self._missing = 0
        self._rest = b""
        self._splitter = self._channels[0]

    @property
    def unfinished(self) -> list[bytes]:
        """The log lines whose line endings are still missing, at most one line per stream."""
        rest = [self._rest] if self._is_framed is None and self._rest else []
        return rest + [line for channel in self._channels if (line := channel.unfinished)]

    def feed(self, data: bytes) -> list[bytes]:
        """Add received bytes, and return the completed log lines.

        Raises:
            FramingError: A frame does not begin with a valid header.
        """
        if self._rest:
            data = self._rest + data
            self._rest = b""
        if self._is_framed is None:
            self._is_framed = _looks_framed(data)
        if self._is_framed is None:
            self._rest = data
            return []
        return self._take_frames(data) if self._is_framed else self._splitter.feed(data)

    def _take_frames(self, data: bytes) -> list[bytes]:
        lines: list[bytes] = []
        at = 0
        while at < len(data):
            if self._missing == 0:
                header = data[at : at + _FRAME_HEADER_BYTES]
                if len(header) < _FRAME_HEADER_BYTES:
                    self._rest = header
                    break
                if header[0] >= _CHANNELS or header[1:4] != b"\0\0\0":
                    raise FramingError("a frame without a header")
                self._splitter = self._channels[header[0]]
                self._missing = int.from_bytes(header[4:], "big")
                at += _FRAME_HEADER_BYTES
            piece = data[at : at + self._missing]
            at += len(piece)
            self._missing -= len(piece)
            lines += self._splitter.feed(piece)
        return lines


def _looks_framed(data: bytes) -> bool | None:
    """Return whether data begins with a frame header; None if the data is too short to decide."""
    start = data[:4]
    if not start:
        return None
    if start[0] >= _CHANNELS or start[1:].strip(b"\0"):
        return False
    return True if len(start) == 4 else None  # noqa: PLR2004 - the stream and three zeros


class LastLines:
    """A buffer for the last lines of a log.

    Args:
        most_lines: The maximum number of lines to keep.
        most_bytes: The maximum total size of the kept lines, in bytes.
    """

    __slots__ = ("_bytes", "_lines", "_most_bytes")

    def __init__(self, *, most_lines: int, most_bytes: int) -> None:
        self._lines: deque[bytes] = deque(maxlen=most_lines)
        self._most_bytes = most_bytes
        self._bytes = 0

    def add(self, lines: Iterable[bytes]) -> None:
        """Add lines to the buffer, and drop the oldest lines if a limit is exceeded."""
        kept = self._lines
        for line in lines:
            if len(kept) == kept.maxlen:
                self._bytes -= len(kept.popleft())
            kept.append(line)
            self._bytes += len(line)
        while self._bytes > self._most_bytes:
            self._bytes -= len(kept.popleft())

    def read(self, more: Iterable[bytes] = ()) -> tuple[str, ...]:
        """Return the lines in the buffer, the oldest first, decoded as UTF-8.

        Invalid bytes are replaced.

        Args:
            more: Incomplete lines to append to the result.
        """
        return tuple(line.decode(errors="replace") for line in (*self._lines, *more))
