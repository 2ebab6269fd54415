"""Trying again: later each time, by chance a little later still, and when the other side says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainvitals.courier.failures import DeliveryError

if TYPE_CHECKING:
    from tenacity import RetryCallState


@dataclass(frozen=True, slots=True)
class Patience:
    """How long somebody tries.

    Attributes:
        attempts: At most so many.
        first_seconds: The wait before the second attempt, which doubles each time; by chance up to
            as much again is added.
        longest_seconds: No wait of our own is longer.
        longest_retry_after_seconds: No wait that the other side asks for is longer.
        timeout_seconds: How long an attempt may hear nothing.
    """

    attempts: int = 4
    first_seconds: float = 1.0
    longest_seconds: float = 30.0
    longest_retry_after_seconds: float = 300.0
    timeout_seconds: float = 10.0


def try_again(
    call: Callable[[], None],
    patience: Patience,
    *,
    sleep: Callable[[float], object],
    is_ending: Callable[[], bool] = lambda: False,
) -> None:
    """Call a function until it succeeds, fails for good, or patience ends.

    Args:
        call: Raises DeliveryError when it fails.
        patience: How long to try.
        sleep: Waits so many seconds, or until it is time to end.
        is_ending: Tells that no further attempt is to be made.

    Raises:
        DeliveryError: The last failure.
    """
    from tenacity import (  # noqa: PLC0415 - only who sends something pays for it
        Retrying,
        retry_if_exception,
        stop_after_attempt,
        wait_exponential,
        wait_random,
    )

    backoff = wait_exponential(
        multiplier=patience.first_seconds, max=patience.longest_seconds
    ) + wait_random(0, patience.first_seconds)

    def wait(state: RetryCallState) -> float:
        asked = find_retry_after(state.outcome.exception() if state.outcome else None)
        return max(backoff(state), min(asked, patience.longest_retry_after_seconds))

    def pause(seconds: float) -> None:
        sleep(seconds)

    Retrying(
        retry=retry_if_exception(_is_passing),
        stop=lambda state: stop_after_attempt(patience.attempts)(state) or is_ending(),
        wait=wait,
        sleep=pause,
        reraise=True,
    )(call)


def find_retry_after(error: BaseException | None) -> float:
    """Give how long the other side asks to be left alone, seconds; 0 where it does not ask."""
    return (error.retry_after_seconds or 0.0) if isinstance(error, DeliveryError) else 0.0


def _is_passing(error: BaseException) -> bool:
    return isinstance(error, DeliveryError) and error.is_passing
