"""Who fails again and again is left alone, then tried once."""

import pytest

from trainvitals.courier.breaker import CircuitBreaker, CircuitState
from trainvitals.courier.failures import CircuitOpenError, DeliveryError


class Other:
    """The other side: it fails as long as the test wants, and counts the calls."""

    def __init__(self):
        self.calls = 0
        self.works = False

    def __call__(self):
        """Answer."""
        self.calls += 1
        if not self.works:
            raise DeliveryError("no", is_passing=True)
        return "yes"


def test_it_opens_half_opens_and_closes():
    """Three failures open it, a minute later one call is made, and its success closes it."""
    now = [0.0]
    other = Other()
    breaker = CircuitBreaker(failure_threshold=3, timeout_seconds=60, clock=lambda: now[0])
    for _ in range(3):
        assert breaker.state is CircuitState.CLOSED
        with pytest.raises(DeliveryError):
            breaker.call(other)
    assert (breaker.state, breaker.wait_seconds) == (CircuitState.OPEN, 60.0)
    with pytest.raises(CircuitOpenError, match="3 times in a row"):
        breaker.call(other)
    assert other.calls == 3
    now[0] = 60.0
    assert breaker.state is CircuitState.HALF_OPEN
    with pytest.raises(DeliveryError):
        breaker.call(other)
    assert (breaker.state, breaker.wait_seconds) == (CircuitState.OPEN, 60.0)
    now[0] = 120.0
    other.works = True
    assert breaker.call(other) == "yes"
    assert (breaker.state, breaker.failures) == (CircuitState.CLOSED, 0)


def test_a_success_forgets_the_failures():
    """Only failures in a row count."""
    other = Other()
    breaker = CircuitBreaker(failure_threshold=2)
    for works in (False, True, False):
        other.works = works
        if works:
            breaker.call(other)
        else:
            with pytest.raises(DeliveryError):
                breaker.call(other)
    assert breaker.state is CircuitState.CLOSED
