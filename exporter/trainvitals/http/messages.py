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
"""The headers of every page and refusal, which allow a page to run only the exporter's script."""


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request.

    Attributes:
        method: "GET" or "HEAD"; the server refuses all other methods.
        path: The decoded path without the query; starts with a slash.
        query: The decoded parameters in the order of the request; empty values are included.
        headers: The values of the headers by lower-case name; the values of a repeated header are
            joined with ", ".
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...]
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response, which may be sent in reply to any number of requests.

    Attributes:
        status: The HTTP status code of the response.
        headers: The names and values of headers, except the headers that the server adds
            (`Content-Length`, `Connection`, `Date`).
        body: The encoded body of the response. The response to a HEAD request contains only the
            length of the body.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


Reply = Callable[[Response], None]
"""A function that sends the response to one request, at once or later, from any thread.

Only the first call has an effect.
"""

Answer = Callable[[Request, Reply], None]
"""A function that answers a request.

The function is called in the server's loop, and must not block or raise an exception.
"""


def plain_response(status: int, text: str, *headers: tuple[str, str]) -> Response:
    """Return a response whose body is one line of text."""
    content_type = ("Content-Type", "text/plain; charset=utf-8")
    return Response(status, (content_type, *headers, *GUARDS), f"{text}\n".encode())


FAILED = plain_response(500, "a bug keeps this page from being written; see the log")
"""The response to a request for which rendering raised an exception."""
