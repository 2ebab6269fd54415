"""Retries with exponential backoff, and a circuit breaker, for calls that may fail for a while.

    @retry_with_backoff(max_retries=5)
    def download_model(name): ...

    breaker = CircuitBreaker(failure_threshold=3, timeout=30)
    breaker.call(download_model, "bert-base-uncased")

tenacity repeats the calls, and the package circuitbreaker counts their failures. The states of a
circuit breaker:

closed      every call is made
open        after `failure_threshold` failures in a row; no call is made for `timeout` seconds
half_open   after that: one call is made, and closes it or opens it again
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
_SHORTEST_SECONDS = 1e-9  # circuitbreaker takes 0 for its own default


def retry_with_backoff(
    max_retries: int = 3,
    base_delay: float = 1,
    max_delay: float = 60,
    exponential_base: float = 2,
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Return a decorator that repeats a function, also a coroutine function, while it raises.

    Each failure that is followed by another call is printed, with the pause before that call.

    Args:
        max_retries: The most calls, the first one included; with 0 the function is not called, and
            the result is None.
        base_delay: The pause before the second call is this times `exponential_base`, in seconds,
            plus up to a tenth of it at random.
        max_delay: The longest pause without the random part, in seconds.
        exponential_base: The factor from one pause to the next.
    """
    if max_retries < 1:
        return _replace_by_nothing
    from tenacity import (  # noqa: PLC0415 - only where something is repeated
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
    # A standard output that is closed must not end the retries.
    with suppress(OSError, ValueError, AttributeError):
        sys.stdout.write(
            f"Attempt {state.attempt_number} failed: {error}\nRetrying in {pause:.2f} seconds...\n"
        )


class CircuitOpenError(TrainvitalsError):
    """The circuit breaker is open; the function was not called."""


class CircuitState(Enum):
    """The state of a circuit breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CircuitBreaker:
    """A circuit breaker for one service.

    Args:
        failure_threshold: The number of failures in a row that open it.
        timeout: The time that it stays open, in seconds.

    Attributes:
        failure_threshold: As given.
        timeout: As given.
        last_failure_time: When the last failure was, seconds since 1970; None before the first.
    """

    def __init__(self, failure_threshold: int = 5, timeout: float = 60) -> None:
        from circuitbreaker import CircuitBreaker as Counter  # noqa: PLC0415 - only who needs it

        self.failure_threshold = failure_threshold
        self.timeout = timeout
        self.last_failure_time: float | None = None
        self._counter = Counter(
            max(1, failure_threshold), recovery_timeout=max(_SHORTEST_SECONDS, timeout)
        )

    @property
    def state(self) -> CircuitState:
        """The current state."""
        return CircuitState(self._counter.state)

    @property
    def failures(self) -> int:
        """The number of failures in a row."""
        return int(self._counter.failure_count)

    @property
    def failure_count(self) -> int:
        """The same, by the name that circuit breakers usually have for it."""
        return self.failures

    @property
    def wait_seconds(self) -> float:
        """The time until a call is made again, rounded up to seconds; 0 if one is made now."""
        is_open = self.state is CircuitState.OPEN
        return max(0.0, self._counter.open_remaining) if is_open else 0.0

    def call(
        self,
        func: Callable[Parameters, Result],
        /,
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Result:
        """Call a function and return its result; an exception that it raises is a failure.

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
