"""A function that waits for a condition that other threads or processes make true.

The time limits only have to detect a hang, so they are generous: on a loaded machine any process
may stall for seconds at any moment.
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
        condition: A function that is called repeatedly.
        seconds: The time limit.
        pause: The seconds between two calls.
        describe: A function that returns a description for the error message.

    Raises:
        AssertionError: The condition was not true in time.
    """
    until = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < until, f"not within {seconds:g} s: {describe()}"
        time.sleep(pause)
    return value
