"""HTTP/1.1 independent of sockets: a parser for requests and a writer for responses.

Requests with a body are refused.

h11 parses request heads. A scraper sends an identical head with every scrape; therefore the most
recent heads are cached together with the parsed requests.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

import h11

from trainvitals.http.messages import Request, Response, plain_response

_KEPT_HEADS = 32
_KEPT_HEAD_BYTES = 2048
_NO_BODY = (204, 304)
_SECRET_HEADERS = ("authorization", "cookie")
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")  # fmt: skip
_PHRASES = {
    200: "OK",
    204: "No Content",
    301: "Moved Permanently",
    302: "Found",
    303: "See Other",
    304: "Not Modified",
    307: "Temporary Redirect",
    308: "Permanent Redirect",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    408: "Request Timeout",
    413: "Content Too Large",
    414: "URI Too Long",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}


class Head(NamedTuple):
    """The parsed head of a request.

    Attributes:
        request: The parsed request.
        keep_alive: Whether the client may send another request over the connection.
    """

    request: Request
    keep_alive: bool


class RefusalError(Exception):
    """A request was refused, and the connection must be closed after the response.

    Attributes:
        response: The response to the refused request.
    """

    def __init__(self, status: int, reason: str, *headers: tuple[str, str]) -> None:
        super().__init__(f"{status}: {reason}")
        self.response = plain_response(status, reason, *headers)


class KeptHeads:
    """A cache of recently parsed request heads; heads with credentials are not cached."""

    def __init__(self) -> None:
        self._heads: OrderedDict[bytes, Head] = OrderedDict()

    def find(self, data: bytes) -> Head | None:
        """Return the cached head for received bytes; None if the head is not in the cache."""
        head = self._heads.get(data)
        if head is not None:
            self._heads.move_to_end(data)
        return head

    def keep(self, data: bytes, head: Head) -> None:
        """Add a request head to the cache; `data` is the bytes from which the head was parsed."""
        if len(data) > _KEPT_HEAD_BYTES or any(
            name in head.request.headers for name in _SECRET_HEADERS
        ):
            return
        self._heads[data] = head
        if len(self._heads) > _KEPT_HEADS:
            self._heads.popitem(last=False)


class RequestReader:
    """A parser that splits the bytes from a client into requests.

    Args:
        kept: The cache of request heads, which all readers share.
        head_bytes: The maximum size of a request head, in bytes.
        target_bytes: The maximum size of a request target (path and query), in bytes.
    """

    __slots__ = ("_head_bytes", "_kept", "_parser", "_target_bytes", "_unread")

    def __init__(self, kept: KeptHeads, *, head_bytes: int, target_bytes: int) -> None:
        self._kept = kept
        self._head_bytes = head_bytes
        self._target_bytes = target_bytes
        self._parser: h11.Connection | None = None
        self._unread = b""

    @property
    def unread_bytes(self) -> int:
        """The number of bytes that have been received but not yet parsed."""
        return len(self._unread)

    @property
    def amid_head(self) -> bool:
        """Whether a request head has been partly received."""
        return self._parser is not None

    def feed(self, data: bytes) -> None:
        """Add received bytes to the bytes that remain to be parsed."""
        self._unread = self._unread + data if self._unread else data

    def next_head(self) -> Head | None:
        """Return the head of the next request; None until the whole head has been received.

        Raises:
            RefusalError: The request is refused. The bytes after this request cannot be parsed.
        """
        data, self._unread = self._unread, b""
        if not data:
            return None
        fresh = self._parser is None
        if fresh and (head := self._kept.find(data)):
            return head
        head = self._parse(data)
        if head and fresh and not self._unread:
            self._kept.keep(data, head)
        return head

    def _parse(self, data: bytes) -> Head | None:
        if self._parser is None:
            self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=self._head_bytes)
        self._parser.receive_data(data)
        try:
            event = self._parser.next_event()
            if not isinstance(event, h11.Request):
                return None
            head = self._accept(event)
            end = self._parser.next_event()
        except h11.RemoteProtocolError as error:
            raise self._refuse(error) from error
        if not isinstance(end, h11.EndOfMessage) or "transfer-encoding" in head.request.headers:
            raise RefusalError(413, "requests with a body are not accepted")
        self._unread = self._parser.trailing_data[0]
        self._parser = None
        return head

    def _accept(self, event: h11.Request) -> Head:
        if event.http_version[:1] != b"1":
            raise RefusalError(505, "only HTTP/1.0 and HTTP/1.1 are supported")
        if event.method not in (b"GET", b"HEAD"):
            raise RefusalError(405, "only GET and HEAD are supported", ("Allow", "GET, HEAD"))
        if len(event.target) > self._target_bytes:
            raise self._too_long()
        if sum(len(name) + len(value) + 4 for name, value in event.headers) > self._head_bytes:
            raise self._too_big()
        return _read_head(event)

    def _refuse(self, error: h11.RemoteProtocolError) -> RefusalError:
        if error.error_status_hint != 431 or self._parser is None:  # noqa: PLR2004
            return RefusalError(error.error_status_hint, f"{error}"[:200])
        start = self._parser.trailing_data[0]
        return self._too_big() if b"\n" in start[: self._target_bytes] else self._too_long()

    def _too_long(self) -> RefusalError:
        return RefusalError(414, f"the request target is longer than {self._target_bytes} bytes")

    def _too_big(self) -> RefusalError:
        return RefusalError(431, f"the request head is longer than {self._head_bytes} bytes")


def _read_head(event: h11.Request) -> Head:
    headers: dict[str, str] = {}
    for raw_name, raw_value in event.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    authority, path, query = _read_target(event.target.decode("ascii"))
    if authority is not None:
        headers["host"] = authority
    options = headers.get("connection", "").lower().split(",")
    keep_alive = event.http_version != b"1.0" and "close" not in map(str.strip, options)
    return Head(Request(event.method.decode("ascii"), path, query, headers), keep_alive)


def _read_target(target: str) -> tuple[str | None, str, tuple[tuple[str, str], ...]]:
    """Return the authority, the path and the query of a request target.

    The authority is None unless the target is an absolute URL.
    """
    authority = None
    if target[:7].lower() == "http://" or target[:8].lower() == "https://":
        # A client that uses the exporter as a proxy sends an absolute URL, which overrides `Host`.
        authority, slash, rest = target.split("://", 1)[1].partition("/")
        if not authority:
            raise RefusalError(400, "the request target has no host")
        target = slash + rest
    if not target.startswith("/"):
        raise RefusalError(400, "the request target does not start with a slash")
    path, _, query = target.partition("#")[0].partition("?")
    fields = parse_qsl(query, keep_blank_values=True) if query else ()
    return authority, unquote(path), tuple(fields)


class ResponseWriter:
    """A writer for response heads, which formats the date at most once a second."""

    def __init__(self) -> None:
        self._second = -1
        self._date = ""

    def write_head(
        self, response: Response, *, more: tuple[tuple[str, str], ...] = (), close: bool
    ) -> bytes:
        """Return the status line and the headers of a response as bytes.

        Args:
            response: The response to write.
            more: Headers that are added to the response's own headers.
            close: Whether the head announces that the connection closes after the response.

        Raises:
            ValueError: A header contains a line break or a character outside Latin-1.
        """
        phrase = _PHRASES.get(response.status, "")
        lines = [f"HTTP/1.1 {response.status} {phrase}"]
        lines += [f"{name}: {value}" for name, value in (*response.headers, *more)]
        if response.status not in _NO_BODY:
            lines.append(f"Content-Length: {len(response.body)}")
        lines.append(f"Date: {self._today()}")
        if close:
            lines.append("Connection: close")
        head = "\r\n".join(lines)
        if head.count("\n") + head.count("\r") != 2 * (len(lines) - 1) or "\0" in head:
            raise ValueError("a header of the response has a line break")
        return f"{head}\r\n\r\n".encode("latin-1")

    def _today(self) -> str:
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._date = format_date(second)
        return self._date


def sends_body(request: Request | None, response: Response) -> bool:
    """Return whether the body of a response is sent after the head.

    The request is None if the request could not be parsed.
    """
    return response.status not in _NO_BODY and (request is None or request.method != "HEAD")


def format_date(seconds: float) -> str:
    """Return a time in Unix seconds as an HTTP date, regardless of the locale."""
    moment = time.gmtime(seconds)
    day = f"{_WEEKDAYS[moment.tm_wday]}, {moment.tm_mday:02d} {_MONTHS[moment.tm_mon - 1]}"
    return f"{day} {moment.tm_year} {time.strftime('%H:%M:%S', moment)} GMT"
