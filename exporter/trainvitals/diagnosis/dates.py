"""Lines of logs and when they were written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

_STAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)(?: |$)"
)
_DOCKER = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}(?:Z|[+-]\d\d:\d\d)(?: |$)")
_MICROSECOND_DIGITS = 6


@dataclass(frozen=True, slots=True)
class DatedLine:
    """A line of a log.

    Attributes:
        time: When it was written, seconds since 1970; None where that is not known.
        text: The line.
    """

    time: float | None
    text: str


def read_stamp(text: str) -> float | None:
    """Read the time that a text begins with, as Docker and journald write it; None for none."""
    found = _STAMP.match(text)
    if found is None:
        return None
    day, clock, fraction, zone = found.groups()
    micro = (fraction or "0").ljust(_MICROSECOND_DIGITS, "0")[:_MICROSECOND_DIGITS]
    zone = "+0000" if zone == "Z" else zone.replace(":", "")
    try:
        return datetime.strptime(
            f"{day}T{clock}.{micro}{zone}", "%Y-%m-%dT%H:%M:%S.%f%z"
        ).timestamp()
    except (ValueError, OverflowError):
        return None


def split_stamps(lines: Sequence[str]) -> tuple[DatedLine, ...]:
    """Part the lines of `docker logs` from the times that `--timestamps` puts before each.

    Where one has none, all are taken as they are: then the times are the program's own.
    """
    if not all(_DOCKER.match(line) for line in lines):
        return tuple(DatedLine(None, line) for line in lines)
    parted = (line.partition(" ") for line in lines)
    return tuple(DatedLine(read_stamp(stamp), text) for stamp, _, text in parted)
