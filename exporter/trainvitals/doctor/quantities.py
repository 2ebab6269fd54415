"""Numbers as a person reads them."""

from __future__ import annotations

_STEP = 1024
_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")


def write_bytes(size: float) -> str:
    """Write a size, as 79.6 GiB."""
    if size < _STEP:
        return f"{size:.0f} B"
    for unit in _UNITS:
        size /= _STEP
        if size < _STEP or unit == _UNITS[-1]:
            break
    return f"{size:.1f} {unit}"
