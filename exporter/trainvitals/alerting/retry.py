"""Retries deliveries with exponential backoff.

The wait before a retry doubles with each retry, has random jitter, and is at least as long as the
response's header `Retry-After` requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainvitals.alerting.transport import DeliveryError

if TYPE_CHECKING:
    from tenacity import RetryCallState


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The limits for retries of a delivery.

    Attributes:
        attempts: The maximum number of attempts for a message.
        first_seconds: The wait before the second attempt, in seconds; the wait doubles with each
            further attempt, and random jitter adds at most `first_seconds` to each wait.
        longest_seconds: The maximum wait before an attempt, in seconds.
        longest_retry_after_seconds: The maximum wait that the header `Retry-After` can request, in
            seconds.
        timeout_seconds: The timeout of an attempt in seconds.
    """

    attempts: int = 4
    first_seconds: float = 1.0
    longest_seconds: float = 30.0
    longest_retry_after_seconds: float = 300.0
    timeout_seconds: float = 10.0


def call_with_retries(
    call: Callable[[], None],
    policy: RetryPolicy,
    *,
    sleep: Callable[[float], object],
    must_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Call a function until it succeeds or fails permanently, or until no attempts are left.

    Args:
        call: The function to call, which raises DeliveryError on failure.
        policy: The limits of the retries.
        sleep: Sleeps for a number of seconds, and may return early.
        must_stop: Returns whether no further attempt may be made.

    Raises:
        DeliveryError: The last attempt failed.
    """
    from tenacity import (  # noqa: PLC0415 - only needed for sending
        Retrying,
        retry_if_exception,
        stop_after_attempt,
        wait_exponential,
        wait_random,
    )

    backoff = wait_exponential(
        multiplier=policy.first_seconds, max=policy.longest_seconds
    ) + wait_random(0, policy.first_seconds)

    def wait(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        requested = error.retry_after_seconds if isinstance(error, DeliveryError) else None
        return max(backoff(state), min(requested or 0.0, policy.longest_retry_after_seconds))

    def pause(seconds: float) -> None:
        sleep(seconds)

    Retrying(
        retry=retry_if_exception(
            lambda error: isinstance(error, DeliveryError) and error.is_temporary
        ),
        stop=lambda state: stop_after_attempt(policy.attempts)(state) or must_stop(),
        wait=wait,
        sleep=pause,
        reraise=True,
    )(call)
