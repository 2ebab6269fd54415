"""Retries with exponential backoff, and a circuit breaker, for calls that may fail temporarily.

    @retry_with_backoff(max_retries=5)
    def download_model(name): ...

    breaker = CircuitBreaker(failure_threshold=3, timeout=30)
    breaker.call(download_model, "bert-base-uncased")

The package tenacity repeats the calls, and the package circuitbreaker counts the failures. A
circuit breaker has the following states:

closed      Every call is made.
open        After `failure_threshold` consecutive failures, no call is made for `timeout` seconds.
half_open   After this time, one call is made; success closes the circuit, failure reopens it.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from trainvitals.errors import TrainvitalsError

if TYPE_CHECKING:
    from tenacity import RetryCallState

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_JITTER_RATIO = 0.1
_SHORTEST_SECONDS = 1e-9  # circuitbreaker replaces 0 by its default


def retry_with_backoff(
    max_retries: int = 3,
    base_delay: float = 1,
    max_delay: float = 60,
    exponential_base: float = 2,
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Return a decorator that retries a function or coroutine function when it raises an exception.

    Each failure that is followed by a retry is printed to standard output, with the delay before
    the retry.

    Args:
        max_retries: The maximum number of calls, including the first; if 0, the function is not
            called and the result is None.
        base_delay: The base of the delays, in seconds. The delay before the second call is
            `base_delay * exponential_base`, plus a random part of up to a tenth of the delay.
        max_delay: The maximum delay without the random part, in seconds.
        exponential_base: The factor by which each delay is longer than the previous one.
    """
    if max_retries < 1:
        return _replace_by_nothing
    from tenacity import (  # noqa: PLC0415 - only when needed
        retry,
        stop_after_attempt,
        wait_exponential,
        wait_random,
    )

    backoff = wait_exponential(
        multiplier=base_delay * exponential_base, max=max_delay, exp_base=exponential_base
    )
    jitter = wait_random(0, _JITTER_RATIO)
    return retry(
        stop=stop_after_attempt(max_retries),
        wait=lambda state: backoff(state) * (1 + jitter(state)),
        before_sleep=_print_failure,
        reraise=True,
    )


def _replace_by_nothing(func: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    @wraps(func)
    def skip(*_: Parameters.args, **__: Parameters.kwargs) -> None:
        pass

    @wraps(func)
    async def skip_coroutine(*_: Parameters.args, **__: Parameters.kwargs) -> None:
        pass

    replacement = skip_coroutine if inspect.iscoroutinefunction(func) else skip
    return cast("Callable[Parameters, Result]", replacement)


def _print_failure(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    pause = state.next_action.sleep if state.next_action else 0.0
    # A closed standard output must not end the retries.
    with suppress(OSError, ValueError, AttributeError):
        sys.stdout.write(
            f"Attempt {state.attempt_number} failed: {error}\nRetrying in {pause:.2f} seconds...\n"
        )


class CircuitOpenError(TrainvitalsError):
    """The circuit breaker is open; the function was not called."""


class CircuitState(Enum):
    """A state of a circuit breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CircuitBreaker:
    """A circuit breaker that protects calls of one service.

    Args:
        failure_threshold: The number of consecutive failures that open the circuit.
        timeout: The time for which the circuit stays open, in seconds.

    Attributes:
        failure_threshold: The number of consecutive failures that open the circuit, as passed.
        timeout: The time for which the circuit stays open, in seconds, as passed.
        last_failure_time: The time of the last failure, in seconds since 1970; None before the
            first failure.
    """

    def __init__(self, failure_threshold: int = 5, timeout: float = 60) -> None:
        from circuitbreaker import CircuitBreaker as Counter  # noqa: PLC0415 - only when needed

        self.failure_threshold = failure_threshold
        self.timeout = timeout
        self.last_failure_time: float | None = None
        self._counter = Counter(
            max(1, failure_threshold), recovery_timeout=max(_SHORTEST_SECONDS, timeout)
        )

    @property
    def state(self) -> CircuitState:
        """The current state of the circuit breaker."""
        return CircuitState(self._counter.state)

    @property
    def failures(self) -> int:
        """The number of consecutive failures."""
        return int(self._counter.failure_count)

    @property
    def failure_count(self) -> int:
        """The number of consecutive failures, under the usual name for circuit breakers."""
        return self.failures

    @property
    def wait_seconds(self) -> float:
        """The number of seconds until a call is allowed, rounded up; 0 if a call is allowed now."""
        is_open = self.state is CircuitState.OPEN
        return max(0.0, self._counter.open_remaining) if is_open else 0.0

    def call(
        self,
        func: Callable[Parameters, Result],
        /,
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Result:
        """Call a function and return its result; an exception raised by the function is a failure.

        Raises:
            CircuitOpenError: The circuit is open; the function was not called.
        """
        if self.state is CircuitState.OPEN:
            raise CircuitOpenError(f"Circuit breaker is OPEN (failures in a row: {self.failures})")
        before = self.failures
        try:
            with self._counter:
                return func(*args, **kwargs)
        finally:
            if self.failures > before:
                self.last_failure_time = time.time()
