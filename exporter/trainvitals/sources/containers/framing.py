"""What an engine sends, taken apart as it comes: HTTP answers, log frames, lines.

Each class is fed with bytes however they were split, waits for nothing, and holds no more than its
bound, whatever it is fed with.

A log without a terminal comes in frames of 8 bytes and a text: the stream (0 standard input,
1 standard output, 2 standard error, 3 the engine's own), three zeros, and the length of the text,
the highest byte first.
A frame is seldom, but may be, less or more than a line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from http.client import HTTPException, parse_headers
from io import BytesIO

_MOST_HEAD_BYTES = 1 << 16
_MOST_SIZE_LINE_BYTES = 1 << 10
_MOST_SIZE_DIGITS = 15
_HEX = b"0123456789abcdefABCDEF"
_LINE_END = b"\r\n"
_HEAD_END = b"\r\n\r\n"

_FRAME_HEADER_BYTES = 8
_CHANNELS = 4
_CUT = b" [...] "


class FramingError(ValueError):
    """What came is not what the protocol says."""


class AnswerDecoder:
    """Takes one HTTP/1.1 answer apart.

    Attributes:
        status: Its status; None before the head has come.
        is_complete: Whether the whole body has come.
        ends_by_itself: Whether the head says where the body ends; else it ends with the connection,
            and is never complete.
    """

    __slots__ = (
        "_between",
        "_is_chunked",
        "_missing",
        "_rest",
        "ends_by_itself",
        "is_complete",
        "status",
    )

    def __init__(self) -> None:
        self.status: int | None = None
        self.is_complete = False
        self.ends_by_itself = False
        self._rest = b""
        self._is_chunked = False
        self._missing: int | None = None  # of the chunk, or of the body; None: until the end
        self._between = 0  # bytes of the line end that closes the chunk before

    def feed(self, data: bytes) -> bytes:
        """Take what came and give what there is of the body.

        Raises:
            FramingError: It is no HTTP answer.
        """
        if self.is_complete:
            return b""
        if self.status is None:
            data = self._take_head(data)
            if self.status is None:
                return b""
        if self._is_chunked:
            return self._take_chunks(data)
        if self._missing is None:
            return data
        body = data[: self._missing]
        self._missing -= len(body)
        self.is_complete = self._missing == 0
        return body

    def _take_head(self, data: bytes) -> bytes:
        data = self._rest + data
        head, end, body = data.partition(_HEAD_END)
        if len(head) > _MOST_HEAD_BYTES:
            raise FramingError("a head without an end")
        if not end:
            self._rest = data
            return b""
        self._rest = b""
        first, _, lines = head.partition(_LINE_END)
        status = first[9:12]
        if not first.startswith(b"HTTP/1.") or not status.isdigit():
            raise FramingError("no HTTP")
        try:
            headers = parse_headers(BytesIO(lines + _HEAD_END))
        except HTTPException as error:
            raise FramingError("headers without an end") from error
        self._is_chunked = headers.get("Transfer-Encoding", "").lower() == "chunked"
        length = headers.get("Content-Length", "")
        if self._is_chunked:
            self._missing = 0
        elif length.isdecimal() and len(length) <= _MOST_SIZE_DIGITS:
            self._missing = int(length)
            self.is_complete = self._missing == 0
        self.ends_by_itself = self._missing is not None
        self.status = int(status)
        return body

    def _take_chunks(self, data: bytes) -> bytes:
        data = self._rest + data
        self._rest = b""
        pieces = []
        at = 0
        while True:
            if self._missing:
                piece = data[at : at + self._missing]
                pieces.append(piece)
                at += len(piece)
                self._missing -= len(piece)
                if self._missing:
                    break
            start = at + self._between
            end = data.find(_LINE_END, start)
            if end < 0:
                self._rest = data[at:]
                if len(self._rest) > _MOST_SIZE_LINE_BYTES:
                    raise FramingError("a chunk without a size")
                break
            if self._between and data[at:start] != _LINE_END:
                raise FramingError("a chunk longer than its size")
            self._between = len(_LINE_END)
            self._missing = _parse_size(data[start:end])
            at = end + len(_LINE_END)
            if self._missing == 0:
                self.is_complete = True
                break
        return b"".join(pieces)


def _parse_size(line: bytes) -> int:
    digits = line.partition(b";")[0].rstrip()
    if not 0 < len(digits) <= _MOST_SIZE_DIGITS or digits.strip(_HEX):
        raise FramingError("a chunk without a size")
    return int(digits, 16)


class LineSplitter:
    """Cuts a stream of text into lines; of a very long one, the middle is left out.

    Its beginning says what it is, and an error may follow a progress bar in the same line.

    Args:
        most_bytes: The longest line that is given whole.
    """

    __slots__ = ("_head", "_most_bytes", "_rest")

    def __init__(self, most_bytes: int = 1 << 13) -> None:
        self._most_bytes = most_bytes
        self._head = b""
        self._rest = b""

    @property
    def unfinished(self) -> bytes:
        """The line that has not ended; empty for none."""
        return self._finish(self._rest) if self._head or self._rest else b""

    def feed(self, data: bytes) -> list[bytes]:
        """Take text and give the lines that ended in it, without their ends."""
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
    """Takes a log apart into lines, whether it comes in frames or, of a terminal, as it is.

    Which of both it is, shows in the first bytes: no text begins with such a header.
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
        """The lines that have not ended, at most one for each stream."""
        rest = [self._rest] if self._is_framed is None and self._rest else []
        return rest + [line for channel in self._channels if (line := channel.unfinished)]

    def feed(self, data: bytes) -> list[bytes]:
        """Take what came and give the lines that ended in it.

        Raises:
            FramingError: A frame does not begin as a frame does.
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
    """Tell whether the first bytes are a frame's; None where they are too few to tell."""
    start = data[:4]
    if not start:
        return None
    if start[0] >= _CHANNELS or start[1:].strip(b"\0"):
        return False
    return True if len(start) == 4 else None  # noqa: PLR2004 - the stream and three zeros


class LastLines:
    """The last lines of a log.

    Args:
        most_lines: How many are kept.
        most_bytes: How many bytes they may have together.
    """

    __slots__ = ("_bytes", "_lines", "_most_bytes")

    def __init__(self, *, most_lines: int, most_bytes: int) -> None:
        self._lines: deque[bytes] = deque(maxlen=most_lines)
        self._most_bytes = most_bytes
        self._bytes = 0

    def add(self, lines: Iterable[bytes]) -> None:
        """Add lines, and let the oldest go where they are too many."""
        kept = self._lines
        for line in lines:
            if len(kept) == kept.maxlen:
                self._bytes -= len(kept.popleft())
            kept.append(line)
            self._bytes += len(line)
        while self._bytes > self._most_bytes:
            self._bytes -= len(kept.popleft())

    def read(self, more: Iterable[bytes] = ()) -> tuple[str, ...]:
        """Give the lines, the oldest first; what is no UTF-8 is replaced.

        Args:
            more: Lines that come behind them and have not ended yet.
        """
        return tuple(line.decode(errors="replace") for line in (*self._lines, *more))
