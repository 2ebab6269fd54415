"""Waiting for what other threads and processes do in their own time.

A bound separates a hang from an answer, so it is wide: on a loaded machine any process may stall
for seconds at any moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_SECONDS = 30.0

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T],
    seconds: float = PATIENCE_SECONDS,
    *,
    pause: float = 0.01,
    describe: Callable[[], object] = lambda: "",
) -> T:
    """Return the first true value of a condition.

    Args:
        condition: Is called again and again.
        seconds: How long to try.
        pause: Seconds between two calls.
        describe: Returns what an error shows.

    Raises:
        AssertionError: The condition was not true in time.
    """
    until = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < until, f"not within {seconds:g} s: {describe()}"
        time.sleep(pause)
    return value
