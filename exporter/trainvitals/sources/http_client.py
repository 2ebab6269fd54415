"""Make HTTP requests with a deadline and a size limit, without following redirects by default.

Following a redirect could send a password or token to a server that was not configured, and could
turn a POST into a GET.
"""

from __future__ import annotations

import base64
import time
import urllib.request
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from pathlib import Path

from trainvitals.errors import ConfigurationError
from trainvitals.foreign_files import read_named

_PIECE_BYTES = 1 << 16
_MOST_PAGE_BYTES = 1 << 25
_MOST_SECRET_BYTES = 1 << 16


class TooLargeError(Exception):
    """The error for a response that is larger than the size limit."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The handler that makes urllib raise HTTPError for a redirect."""

    def redirect_request(self, *_: object) -> None:
        """Return None, which makes urllib reject the redirect."""


def build_opener(
    *, uses_proxy: bool, follows_redirects: bool = False
) -> urllib.request.OpenerDirector:
    """Return a `urllib` opener for HTTP requests.

    Args:
        uses_proxy: Whether the opener uses the proxy that the environment specifies. A proxy cannot
            reach this machine's loopback addresses.
        follows_redirects: Whether the opener follows redirects. True is safe only if the request
            contains no secret and the downloaded file is verified.
    """
    proxies = [] if uses_proxy else [urllib.request.ProxyHandler({})]
    redirects = [] if follows_redirects else [_NoRedirect]
    return urllib.request.build_opener(*redirects, *proxies)


def read_bounded(response: HTTPResponse, *, deadline: float, most_bytes: int) -> bytes:
    """Return the body of an HTTP response.

    A deadline is needed because a socket timeout applies to each read. A server that sends one byte
    per second would never exceed the socket timeout.

    Args:
        response: The HTTP response whose body is read.
        deadline: The time by which the body must be complete, on the `time.monotonic` clock.
        most_bytes: The maximum size of the response body, in bytes.

    Raises:
        TimeoutError: The deadline passed before the body was complete.
        TooLargeError: The body of the response is larger than `most_bytes`.
        OSError: The connection to the server failed.
        HTTPException: The response is malformed.
    """
    pieces: list[bytes] = []
    left = most_bytes
    while piece := response.read1(_PIECE_BYTES):
        pieces.append(piece)
        left -= len(piece)
        if left < 0:
            raise TooLargeError
        if time.monotonic() > deadline:
            raise TimeoutError
    return b"".join(pieces)


def fetch_page(
    port: int, path: str, *, host: str = "127.0.0.1", timeout_seconds: float = 2.0
) -> bytes | None:
    """Fetch a web page from a server on this machine.

    Returns:
        The content of the page; None if the request fails or times out, if the page is larger than
        32 MiB, or if the response status is not 200.
    """
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    deadline = time.monotonic() + timeout_seconds
    opener = build_opener(uses_proxy=False)
    with (
        suppress(OSError, HTTPException, TooLargeError),
        opener.open(f"http://{address}{path}", timeout=timeout_seconds) as response,
    ):
        if response.status == 200:  # noqa: PLR2004 - OK
            return read_bounded(response, deadline=deadline, most_bytes=_MOST_PAGE_BYTES)
    return None


def encode_basic(login: str) -> str:
    """Return the value of the `Authorization` header for `USER:PASSWORD`."""
    return f"Basic {base64.b64encode(login.encode()).decode()}"


def read_secret_file(path: Path, origin: str) -> str:
    """Return the text of a file that contains a secret.

    Args:
        path: The path of the file.
        origin: The flag or environment variable that specifies the file, for the error message.

    Raises:
        ConfigurationError: The file cannot be read; the message does not contain the file's text.
    """
    try:
        return read_named(path, _MOST_SECRET_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigurationError(f"{origin}={path}: cannot be read: {why}") from error
