"""The page's style sheet and script, as they are sent: read once, when they are first asked for."""

from __future__ import annotations

import zlib
from functools import cache
from pathlib import Path

from trainvitals.web.messages import Request, Response

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
GUARDS = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
)

_FOLDER = Path(__file__).parent
_TYPES = {"live.css": "text/css; charset=utf-8", "live.js": "text/javascript; charset=utf-8"}


def answer_asset(name: str, request: Request) -> Response:
    """Answer with a file of the page; 304 for who has it.

    Args:
        name: `live.css` or `live.js`.
        request: Who asks.
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
