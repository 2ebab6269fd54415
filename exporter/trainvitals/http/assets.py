"""The style sheet and the script of the live page, read at their first request."""

from __future__ import annotations

import zlib
from functools import cache
from pathlib import Path

from trainvitals.http.messages import GUARDS, Request, Response

_FOLDER = Path(__file__).parents[1] / "views/page"
_TYPES = {"live.css": "text/css; charset=utf-8", "live.js": "text/javascript; charset=utf-8"}


def answer_asset(name: str, request: Request) -> Response:
    """Return a file of the page, or 304 if the client has it.

    Args:
        name: `live.css` or `live.js`.
        request: The request.
    """
    body, tag = _read(name)
    headers = (("ETag", tag), ("Cache-Control", "no-cache"))
    if request.headers.get("if-none-match") == tag:
        return Response(304, headers, b"")
    return Response(200, (("Content-Type", _TYPES[name]), *headers, *GUARDS), body)


@cache
def _read(name: str) -> tuple[bytes, str]:
    body = (_FOLDER / name).read_bytes()
    return body, f'"{zlib.crc32(body):08x}"'
