"""Names that cannot harm a terminal, and quantities that fit into a column."""

from __future__ import annotations

import math
import unicodedata

from rich.cells import cell_len

from trainvitals.causes.lines import clean
from trainvitals.overview.picture import Tone

STYLES: dict[Tone, str] = {
    "good": "green",
    "busy": "cyan",
    "warning": "yellow",
    "bad": "bold red",
    "unknown": "dim",
}
UNKNOWN = "-"
_LONGEST_NAME = 400
_KIB = 1024.0
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_TENTHS_BELOW = 99.95
_THOUSANDS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k"))
_SPANS = ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s"))
_MINUTES_FROM_SECONDS = 600.0


def make_harmless(text: str) -> str:
    """Take out of a name what would move the cursor, turn the line round or deceive about its width.

    Escape sequences go; what cannot be printed, marks of direction among it, becomes `?`; of
    combining marks a letter keeps one.
    """
    plain = " ".join(clean((text[:_LONGEST_NAME].replace("\r", "?").replace("\t", " "),)))
    letters: list[str] = []
    has_mark = True
    for letter in unicodedata.normalize("NFC", plain):
        if letter.isprintable() and cell_len(letter) > 0:
            letters.append(letter)
            has_mark = False
        elif not letter.isprintable():
            letters.append("?")
            has_mark = True
        elif not has_mark and unicodedata.combining(letter):
            letters.append(letter)
            has_mark = True
    return "".join(letters)


def write_size(size_bytes: float | None) -> str:
    """Write an amount of memory: `512MiB`, `71.0GiB`; `-` for None."""
    if size_bytes is None or not math.isfinite(size_bytes):
        return UNKNOWN
    size, unit = _scale(size_bytes)
    return f"{size_bytes / size:{_precision(size_bytes / size, unit)}}{unit}"


def write_use(used_bytes: float | None, total_bytes: float | None) -> str:
    """Write how much of what there is: `71.0/79.6GiB`; of nothing known `-`."""
    if total_bytes is None or used_bytes is None or not math.isfinite(used_bytes):
        return write_size(used_bytes)
    size, unit = _scale(total_bytes)
    used, total = used_bytes / size, total_bytes / size
    return f"{used:{_precision(total, unit)}}/{total:{_precision(total, unit)}}{unit}"


def write_percent(ratio: float | None) -> str:
    """Write a ratio: `97%`; `-` for None."""
    return UNKNOWN if ratio is None or not math.isfinite(ratio) else f"{100 * ratio:.0f}%"


def write_limited(value: float | None, limit: float | None, unit: str) -> str:
    """Write a value and its limit: `63/87°C`; `-` for None."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{value:.0f}{unit}" if limit is None else f"{value:.0f}/{limit:.0f}{unit}"


def write_count(count: float | None) -> str:
    """Write a number in at most six places: `9041`, `12.3k`, `1.20M`; `-` for None."""
    if count is None or not math.isfinite(count):
        return UNKNOWN
    for size, unit in _THOUSANDS:
        if abs(count) >= size:
            power = 1e3 if unit == "k" else size
            return f"{count / power:.{1 if abs(count) < 100 * power else 0}f}{unit}"
    return f"{count:.0f}"


def write_rate(per_second: float | None) -> str:
    """Write how many a second: `8.25`, `1302`, `52.1k`; `-` for None."""
    if per_second is None or abs(per_second) >= 100:  # noqa: PLR2004 - three places tell enough
        return write_count(per_second)
    return f"{per_second:.3g}"


def write_value(value: float | None) -> str:
    """Write a loss or metric with four digits; `-` for None."""
    if value is None:
        return UNKNOWN
    return "NaN" if math.isnan(value) else f"{value:.4g}"


def write_duration(seconds: float | None) -> str:
    """Write a duration: `45s`, `3m05s`, `12m`, `2h04m`, `3d02h`; `-` for None."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    whole = max(0, int(seconds))
    for unit, name, part, part_name in _SPANS:
        if whole >= unit:
            if name == "m" and whole >= _MINUTES_FROM_SECONDS:
                return f"{whole // unit}m"
            return f"{whole // unit}{name}{whole % unit // part:02d}{part_name}"
    return f"{whole}s"


def write_ago(time: float | None, now: float) -> str:
    """Write how long ago something was: `3m05s ago`; `-` for None."""
    return UNKNOWN if time is None else f"{write_duration(now - time)} ago"


def count_things(count: int, noun: str) -> str:
    """Write how many: `1 run`, `3 runs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _scale(size_bytes: float) -> tuple[float, str]:
    size = 1.0
    for unit in _UNITS[:-1]:
        most = 10_000 if unit == "GiB" else 1000  # a machine's memory has a few hundred of them
        if abs(size_bytes) < most * size:
            return size, unit
        size *= _KIB
    return size, _UNITS[-1]


def _precision(value: float, unit: str) -> str:
    if unit in {"B", "KiB", "MiB"} or value >= _TENTHS_BELOW:
        return ".0f"
    return ".1f"
