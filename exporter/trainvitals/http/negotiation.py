"""The format and the compression that a client accepts (RFC 9110, section 12)."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

_GZIP_LEVEL = 1
_GZIP_WINDOW_BITS = 30  # 14 bits are sufficient and fast; 16 selects gzip


def prefers_openmetrics(accept: str) -> bool:
    """Return whether an Accept header prefers OpenMetrics 1.0 to the Prometheus text format."""
    openmetrics = text = 0.0
    for media_type, parameters, quality in _parse(accept):
        if media_type == "application/openmetrics-text":
            if parameters.get("version", "1.0.0") in ("1.0.0", "0.0.1"):
                openmetrics = max(openmetrics, quality)
        elif media_type in ("text/plain", "text/*", "*/*"):
            text = max(text, quality)
    return openmetrics > 0 and openmetrics >= text


def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether an Accept-Encoding header allows gzip."""
    qualities = {coding: quality for coding, _, quality in _parse(accept_encoding)}
    return qualities.get("gzip", qualities.get("*", 0.0)) > 0


def compress(plain: bytes) -> bytes:
    """Return bytes compressed with gzip at the fastest level."""
    press = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_WINDOW_BITS)
    return press.compress(plain) + press.flush()


def _parse(header: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for part in header.split(","):
        name, *rest = (piece.strip() for piece in part.split(";"))
        parameters = {}
        for piece in rest:
            key, _, value = piece.partition("=")
            parameters[key.strip().lower()] = value.strip().strip('"')
        if name:
            yield name.lower(), parameters, _parse_quality(parameters.get("q", "1"))


def _parse_quality(text: str) -> float:
    try:
        quality = float(text)
    except ValueError:
        return 0.0
    return quality if 0 <= quality <= 1 else 0.0
