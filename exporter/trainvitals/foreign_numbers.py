"""Range checks for numbers from run files, logs, event files, documents and HTTP responses.

A number from such a source can have any value: NaN, an infinity, 1e308 (which makes a sum
overflow), or an integer of a thousand digits. Every parsed number passes through one of these
functions, so that all values derived from the number can be displayed.

=========== ================== ==================================================================
kind        bounds             a number outside the bounds
=========== ================== ==================================================================
value       ±3.5e38            becomes infinite; NaN stays NaN, and a magnitude below 1e-45
                               becomes 0. For losses and other metrics: no number format used in
                               training represents larger or smaller magnitudes
count       0 to 2**53         becomes unknown, as does NaN. For steps, samples and bytes: above
                               the limit, a float cannot represent every integer
amount      0 to 3.5e38        as for a count. For rates and operations
duration    0 to 1e10          as for a count. In seconds; the limit is about three centuries
time        0 to 4e9           as for a count. In seconds since 1970; the limit is in 2096
=========== ================== ==================================================================

This module imports only the standard library, because the run file reader imports this module.
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
    """Return a measured value; a magnitude outside the bounds becomes infinite or 0."""
    if -MOST_VALUE <= value <= MOST_VALUE:
        return float(value) if abs(value) >= _LEAST_VALUE else 0.0
    return math.nan if value != value else math.inf if value > 0 else -math.inf  # noqa: PLR0124


def read_count(value: float | None) -> int | None:
    """Return a number as a count; None if it is unknown, NaN, negative or too large."""
    return int(value) if is_within(value, MOST_COUNT) else None


def read_amount(value: float | None) -> float | None:
    """Return an amount or a rate; None if the number is unknown, NaN, negative or too large."""
    return bound_value(value) if is_within(value, MOST_AMOUNT) else None


def read_duration(seconds: float | None) -> float | None:
    """Return a duration in seconds; None if the duration is unknown, NaN, negative or too large."""
    return bound_value(seconds) if is_within(seconds, MOST_SECONDS) else None


def read_time(time: float | None) -> float | None:
    """Return a Unix time; None if the time is unknown, 0 or outside the years 1970 to 2096."""
    return bound_value(time) or None if is_within(time, LATEST_TIME) else None


def read_digits(text: str, most: int) -> int | None:
    """Parse an integer of ASCII digits; return None for other text or a number above `most`.

    By contrast, `int` accepts digits of other scripts, and raises ValueError for thousands of
    digits.
    """
    digits = text.lstrip("0") or text[-1:]
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > len(str(most)):
        return None
    number = int(digits)
    return number if number <= most else None


def is_within(value: float | None, most: float) -> TypeGuard[float]:
    """Return whether a number is known and between 0 and `most`."""
    return value is not None and 0 <= value <= most
