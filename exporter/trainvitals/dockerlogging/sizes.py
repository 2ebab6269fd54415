"""Sizes as Docker writes them: `100m` are a hundred million bytes."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d+(?:\.\d*)?) ?([kmgtp])?i?b?", re.IGNORECASE | re.ASCII)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_THOUSAND = 1000


def read_size(text: str) -> int | None:
    """Give the bytes that a size of Docker's log options means; None where it is not one."""
    found = _SIZE.fullmatch(text)
    if not found:
        return None
    size = int(float(found[1]) * _THOUSAND ** _POWERS[(found[2] or "").lower()])
    return size if size > 0 else None


def write_size(size_bytes: int) -> str:
    """Write bytes for a person, as `1.2 GB`."""
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < _THOUSAND:
            return f"{size:.3g} {unit}"
        size /= _THOUSAND
    return f"{size:.3g} TB"
