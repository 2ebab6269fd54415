"""Tests for the pauses and the number of attempts in retries of deliveries."""

import pytest

from trainvitals.alerting.retry import RetryPolicy, call_with_retries
from trainvitals.alerting.transport import DeliveryError

POLICY = RetryPolicy(attempts=5, first_seconds=1.0, longest_seconds=4.0)


class Other:
    """A callable that raises the given errors, one for each call, and then succeeds."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.calls = 0

    def __call__(self):
        """Count the call, and raise the next error if one is left."""
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)


def failures(number, **details):
    """Return a number of temporary errors."""
    return [DeliveryError("no", is_temporary=True, **details) for _ in range(number)]


def test_the_pauses_double_up_to_a_bound_with_a_chance_on_top():
    """The pauses are 1, 2, 4 and 4 seconds, each with up to one random second more."""
    pauses = []
    other = Other(*failures(4))
    call_with_retries(other, POLICY, sleep=pauses.append)
    assert other.calls == 5
    for pause, least in zip(pauses, (1.0, 2.0, 4.0, 4.0), strict=True):
        assert least <= pause <= least + 1.0


def test_chance_spreads_those_who_fail_together():
    """The first pauses of ten retries all differ, because they contain a random part."""
    pauses = []
    for _ in range(10):
        call_with_retries(Other(*failures(1)), POLICY, sleep=pauses.append)
    assert len(set(pauses)) == 10


def test_retry_after_is_followed_within_a_bound():
    """Retry-After lengthens a pause to at most five minutes, and never shortens a pause."""
    for asked, least, most in ((0.0, 1.0, 2.0), (77.0, 77.0, 77.0), (1e9, 300.0, 300.0)):
        pauses = []
        other = Other(*failures(1, retry_after_seconds=asked))
        call_with_retries(other, POLICY, sleep=pauses.append)
        assert least <= pauses[0] <= most


def test_what_will_not_pass_is_not_tried_again():
    """A permanent error is raised unchanged, without another attempt."""
    other = Other(DeliveryError("404", is_temporary=False))
    with pytest.raises(DeliveryError, match="404"):
        call_with_retries(other, POLICY, sleep=pytest.fail)
    assert other.calls == 1


def test_the_attempts_end_with_the_last_failure():
    """After the last attempt the error is raised without a further pause."""
    pauses = []
    other = Other(*failures(9))
    with pytest.raises(DeliveryError, match="no"):
        call_with_retries(other, POLICY, sleep=pauses.append)
    assert (other.calls, len(pauses)) == (5, 4)


def test_who_is_about_to_end_does_not_call_with_retries():
    """If the caller must stop, a temporary error is not retried."""
    other = Other(*failures(9))
    with pytest.raises(DeliveryError):
        call_with_retries(other, POLICY, sleep=pytest.fail, must_stop=lambda: True)
    assert other.calls == 1
