"""The requests and responses that the HTTP server and the endpoints exchange."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
GUARDS = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
)
"""The headers of every page and every refusal: only the exporter's own script can run in a page."""


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request.

    Attributes:
        method: "GET" or "HEAD"; the server refuses all other methods.
        path: The decoded path without the query; starts with a slash.
        query: The decoded parameters in the order of the request, including parameters with empty
            values.
        headers: Values by lower-case name; repeated headers are joined with ", ".
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...]
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response; the same object may answer any number of requests.

    Attributes:
        status: The HTTP status code.
        headers: The names and values of headers, except those that the server adds
            (`Content-Length`, `Connection`, `Date`).
        body: The encoded body; the response to a HEAD request contains only the body's length.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


Reply = Callable[[Response], None]
"""Sends the response to one request, at once or later, from any thread.

Only the first call has an effect.
"""

Answer = Callable[[Request, Reply], None]
"""Answers a request with a reply. It is called in the server's loop and must not block or raise."""


def plain_response(status: int, text: str, *headers: tuple[str, str]) -> Response:
    """Return a response with one line of text."""
    content_type = ("Content-Type", "text/plain; charset=utf-8")
    return Response(status, (content_type, *headers, *GUARDS), f"{text}\n".encode())


FAILED = plain_response(500, "a bug keeps this page from being written; see the log")
"""The response to a request for which rendering raised an exception."""
