"""Sizes, durations and counts as the sentences of a finding have them."""

from __future__ import annotations

import math

_KIB, _MIB, _GIB = 1024.0, 1024.0**2, 1024.0**3
_TENTHS_BELOW_SECONDS = 10.0
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_SPANS = ((2 * _MINUTE, 1.0, 0, "s"), (2 * _HOUR, _MINUTE, 0, "min"), (2 * _DAY, _HOUR, 1, "h"))
_LONGEST_SECONDS = 1e9
_STEP_BELOW_GIB = 64
_HALVES_BELOW_GIB = 4
_ROOM = 1.5


def write_size(size_bytes: float) -> str:
    """Write an amount of memory: `512 KiB`, `64.0 MiB`, `71.2 GiB`."""
    if size_bytes < _MIB:
        return f"{size_bytes / _KIB:.0f} KiB"
    if size_bytes < _GIB:
        return f"{size_bytes / _MIB:.1f} MiB"
    return f"{size_bytes / _GIB:.1f} GiB"


def write_span(seconds: float) -> str:
    """Write a duration: `0.05 s`, `4.1 s`, `45 s`, `12 min`, `2.5 h`, `3.0 days`."""
    if not 0 <= seconds < _LONGEST_SECONDS:
        return "an unknown time"
    if seconds < _TENTHS_BELOW_SECONDS:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    for below, unit_seconds, digits, unit in _SPANS:
        if seconds < below:
            return f"{seconds / unit_seconds:.{digits}f} {unit}"
    return f"{seconds / _DAY:.1f} days"


def write_count(count: int, noun: str) -> str:
    """Write how many: `1 process`, `3 processes`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}es" if noun.endswith("s") else f"{count} {noun}s"


def write_share(part: float, whole: float) -> str:
    """Write a part in percent: `97 %`."""
    return f"{100 * part / whole:.0f} %"


def write_option(size_bytes: float) -> str:
    """Write a size as Docker's options have it: `96m`, `24g`, `1536m`."""
    mebibytes = math.ceil(size_bytes / _MIB)
    return f"{mebibytes}m" if mebibytes % 1024 else f"{mebibytes // 1024}g"


def suggest_limit(needed_bytes: float) -> int:
    """Give a limit half as high again, rounded up to a number that a person would choose.

    Args:
        needed_bytes: What was not enough.
    """
    wanted = needed_bytes * _ROOM
    if wanted < _GIB:
        step = _STEP_BELOW_GIB * _MIB
    elif wanted < _HALVES_BELOW_GIB * _GIB:
        step = _GIB / 2
    else:
        step = _GIB
    return int(math.ceil(wanted / step) * step)
