"""Numbers from outside, bounded: those of run files, logs, event files, documents and answers.

Whoever writes such a number may write any: NaN, an infinity, 1e308, which overflows the first sum, or
a whole number of a thousand digits. Every number passes one of these functions where it becomes a
number, so that all that is computed from it later stays a number that can be shown.

=========== ================== ==================================================================
kind        bounds             what lies beyond
=========== ================== ==================================================================
value       3.5e38             is infinite; NaN is NaN, and less than 1e-45 is 0. A loss or another
                               metric: no format of numbers that trains holds more, or less
count       0 to 2**53         is unknown, and so is NaN. Steps, samples, bytes: beyond, a float no
                               longer counts by ones
amount      0 to 3.5e38        likewise. Rates and operations
duration    0 to 1e10          likewise. Seconds: three centuries
time        0 to 4e9           likewise. Seconds since 1970, to the year 2096
=========== ================== ==================================================================

The standard library only, because the run file's reader imports it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TypeGuard

MOST_VALUE = MOST_AMOUNT = 3.5e38
_LEAST_VALUE = 1e-45
MOST_COUNT = 2.0**53
MOST_SECONDS = 1e10
LATEST_TIME = 4e9


def bound_value(value: float) -> float:
    """Return a measured value; infinite or 0 if no format holds it, NaN for NaN."""
    if -MOST_VALUE <= value <= MOST_VALUE:
        return float(value) if abs(value) >= _LEAST_VALUE else 0.0
    return math.nan if value != value else math.inf if value > 0 else -math.inf  # noqa: PLR0124


def read_count(value: float | None) -> int | None:
    """Return a count; None if it is NaN, negative or too large."""
    return int(value) if is_within(value, MOST_COUNT) else None


def read_amount(value: float | None) -> float | None:
    """Return an amount or a rate; None if it is NaN, negative or too large."""
    return bound_value(value) if is_within(value, MOST_AMOUNT) else None


def read_duration(seconds: float | None) -> float | None:
    """Return a duration in seconds; None if it is NaN, negative or too large."""
    return bound_value(seconds) if is_within(seconds, MOST_SECONDS) else None


def read_time(time: float | None) -> float | None:
    """Return a Unix time; None if it is outside the years 1970 to 2096."""
    return bound_value(time) or None if is_within(time, LATEST_TIME) else None


def read_digits(text: str, most: int) -> int | None:
    """Return the number in a text of ASCII digits; None for any other text, or beyond a bound.

    `int` reads digits of other scripts, too, and refuses thousands of them with a ValueError.
    """
    digits = text.lstrip("0") or text[-1:]
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > len(str(most)):
        return None
    number = int(digits)
    return number if number <= most else None


def is_within(value: float | None, most: float) -> TypeGuard[float]:
    """Return whether a number is known, and from 0 to a bound."""
    return value is not None and 0 <= value <= most
