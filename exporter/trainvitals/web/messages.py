"""What passes between the HTTP server and the pages behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """One request as a client sent it.

    Attributes:
        method: "GET" or "HEAD"; the server refuses every other.
        path: The decoded path without the query; starts with a slash.
        query: The decoded parameters in the order sent; a blank value is kept.
        headers: Values by lower-case name; repeated headers are joined with ", ".
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...]
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Response:
    """One whole answer; the same object may be given to any number of requests.

    Attributes:
        status: The HTTP status code.
        headers: Names and values, without those that the server adds itself (`Content-Length`,
            `Connection`, `Date`).
        body: The bytes as they are sent; a HEAD request is told their length alone.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


# Takes the answer to one request, at once or later, from any thread; only the first one counts.
Reply = Callable[[Response], None]

# Answers a request through its reply, exactly once; it is called in the server's loop and must
# neither block nor raise.
Answer = Callable[[Request, Reply], None]
