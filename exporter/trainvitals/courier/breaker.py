"""A circuit breaker: who fails again and again is left alone for a while.

closed      every call is made
open        after `failure_threshold` failures in a row; no call is made for `timeout_seconds`
half_open   after that: one call is made, and closes it or opens it again

Only one thread may use it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum
from typing import TypeVar

from trainvitals.courier.failures import CircuitOpenError, DeliveryError

Result = TypeVar("Result")


class CircuitState(Enum):
    """Whether calls are made."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CircuitBreaker:
    """Counts the failures of one destination.

    Args:
        failure_threshold: So many in a row open it.
        timeout_seconds: How long it stays open.
        clock: Seconds that never go back.

    Attributes:
        failures: How many there were in a row.
    """

    def __init__(
        self,
        *,
        failure_threshold: int = 5,
        timeout_seconds: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._failure_threshold = failure_threshold
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._opened_at: float | None = None
        self.failures = 0

    @property
    def state(self) -> CircuitState:
        """How it stands now."""
        if self._opened_at is None:
            return CircuitState.CLOSED
        return CircuitState.OPEN if self.wait_seconds > 0 else CircuitState.HALF_OPEN

    @property
    def wait_seconds(self) -> float:
        """How long no call will be made; 0 where one may be made now."""
        if self._opened_at is None:
            return 0.0
        return max(0.0, self._opened_at + self._timeout_seconds - self._clock())

    def call(self, function: Callable[[], Result]) -> Result:
        """Call a function that raises DeliveryError when it fails.

        Raises:
            CircuitOpenError: It was not called.
            DeliveryError: It failed.
        """
        if self.state is CircuitState.OPEN:
            raise CircuitOpenError(f"it failed {self.failures} times in a row and is left alone")
        try:
            result = function()
        except DeliveryError:
            self._fail()
            raise
        self.failures = 0
        self._opened_at = None
        return result

    def _fail(self) -> None:
        self.failures += 1
        if self.failures >= self._failure_threshold:
            self._opened_at = self._clock()
