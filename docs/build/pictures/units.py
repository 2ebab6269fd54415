"""Values as Grafana writes them: three digits that count, and the unit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

_SI: Final = ("f", "p", "n", "µ", "m", "", "k", "M", "G", "T", "P", "E")
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi")
_SHORT: Final = ("", " K", " Mil", " Bil", " Tri", " Quadr")
_COUNTS: Final = ("", "K", "M", "B", "T")

# Up to how many seconds which unit holds, and how many seconds it has.
_SECONDS: Final = (
    *((1e-6, 1e-9, "ns"), (1e-3, 1e-6, "µs"), (1, 1e-3, "ms"), (60, 1, "s"), (3600, 60, "min")),
    *((86_400, 3600, "hour"), (604_800, 86_400, "day"), (31_536_000, 604_800, "week")),
    (math.inf, 31_556_900, "year"),
)
_MINUTE: Final = 60
_COUNTED: Final = frozenset({"min", "hour", "day", "week", "year"})

# How long one is, below how many of it, what one is called, what several are.
_AGO: Final = (
    *((1, 45, "a few seconds", "a few seconds"), (60, 45, "a minute", "{} minutes")),
    *((3600, 22, "an hour", "{} hours"), (86_400, 26, "a day", "{} days")),
    *((2_629_746, 11, "a month", "{} months"), (31_556_952, math.inf, "a year", "{} years")),
)


def write_value(value: float, unit: str, decimals: int | None = None, *, now: float = 0.0) -> str:
    """Write a value in its unit.

    Args:
        value: It.
        unit: Grafana's name of the unit.
        decimals: Digits after the point; None: as many as make three that count.
        now: The end of the time range, which `dateTimeFromNow` reckons from.

    Raises:
        ValueError: The unit is not known here.
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if unit == "dateTimeFromNow":
        return write_age(now - value / 1000)
    for head in ("suffix:", "prefix:"):
        if unit.startswith(head):
            number, word = write_number(value, decimals), unit.removeprefix(head).strip()
            return f"{number} {word}" if head == "suffix:" else f"{word}{number}"
    if unit not in _WRITERS:
        raise ValueError(f"the unit {unit!r} is not known to docs/build/pictures/units.py")
    return _WRITERS[unit](value, decimals)


def write_number(value: float, decimals: int | None) -> str:
    """Write a number with so many digits after the point, or with three that count."""
    if decimals is None:
        is_whole = value == int(value)
        decimals = 0 if is_whole else max(0, 2 - math.floor(math.log10(abs(value))))
    factor = 10**decimals
    rounded = math.floor(abs(value) * factor + 0.5) / factor
    return f"{'-' if value < 0 and rounded else ''}{rounded:.{decimals}f}"


def write_age(seconds: float) -> str:
    """Write how long ago something was, as people say it."""
    for one, below, single, several in _AGO:
        count = math.floor(abs(seconds) / one + 0.5)
        if count < below:
            text = single if count <= 1 else several.format(count)
            return f"{text} ago" if seconds >= 0 else f"in {text}"
    raise AssertionError  # unreachable: the last is infinite


def _write_seconds(value: float, decimals: int | None) -> str:
    if not value:
        return "0 s"
    one, name = next((one, name) for below, one, name in _SECONDS if abs(value) < below)
    plural = "s" if name in _COUNTED and value != one else ""
    return f"{write_number(value / one, decimals)} {name}{plural}"


def _scale(
    base: int, names: Sequence[str], lowest: int = 0
) -> Callable[[float], tuple[float, str]]:
    def scale(value: float) -> tuple[float, str]:
        power = math.floor(math.log(abs(value), base) + 1e-9) if value else 0
        power = min(max(power, -lowest), len(names) - lowest - 1)
        return value / base**power, names[lowest + power]

    return scale


def _scaled(
    base: int, names: Sequence[str], unit: str = "", *, lowest: int = 0, gap: str = " "
) -> Callable[[float, int | None], str]:
    scale = _scale(base, names, lowest)

    def write(value: float, decimals: int | None) -> str:
        scaled, name = scale(value)
        return f"{write_number(scaled, decimals)}{gap}{name}{unit}".rstrip()

    return write


def _si(unit: str) -> Callable[[float, int | None], str]:
    return _scaled(1000, _SI, unit, lowest=_SI.index(""))


def _plain(unit: str) -> Callable[[float, int | None], str]:
    return lambda value, decimals: write_number(value, decimals) + unit


def _count(unit: str) -> Callable[[float, int | None], str]:
    return _scaled(1000, [f"{name} " for name in _COUNTS], unit, gap="")


def _write_locale(value: float, decimals: int | None) -> str:
    text = f"{value:,.{3 if decimals is None else decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _write_scientific(value: float, decimals: int | None) -> str:
    digits, power = f"{value:.{6 if decimals is None else decimals}e}".split("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(power):+d}"


_WRITERS: Mapping[str, Callable[[float, int | None], str]] = {
    "": _plain(""),
    "none": _plain(""),
    "short": _scaled(1000, _SHORT, gap=""),
    "locale": _write_locale,
    "sci": _write_scientific,
    "bool_yes_no": lambda value, _: "Yes" if value else "No",
    "percentunit": lambda value, decimals: write_number(round(100 * value, 9), decimals) + "%",
    "percent": _plain("%"),
    "bytes": _scaled(1024, _BINARY, "B"),
    "binBps": _scaled(1024, _BINARY, "B/s"),
    "decbytes": _si("B"),
    "Bps": _si("B/s"),
    "s": _write_seconds,
    "celsius": _plain(" °C"),
    "watt": _si("W"),
    "watth": _si("Wh"),
    "joule": _si("J"),
    "hertz": _si("Hz"),
    "cps": _count("c/s"),
    "ops": _count("ops/s"),
    "iops": _count("io/s"),
    "pps": _si("p/s"),
    "flops": _si("FLOPS"),
}


def find_scale(most: float, unit: str) -> float:
    """Give what ticks of an axis are whole multiples of: 1, 1024² bytes, an hour and so on."""
    if unit in {"bytes", "binBps"} and most:
        return float(1024 ** max(0, math.floor(math.log(most, 1024))))
    if unit == "s" and most >= _MINUTE:
        return next(float(one) for below, one, _ in _SECONDS if most < below)
    return 0.01 if unit == "percentunit" else 1.0
