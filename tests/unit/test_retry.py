"""Tests for repeated calls with growing pauses, and of circuit breakers."""

import asyncio
import subprocess
import sys
import time

import circuitbreaker
import pytest
import tenacity.nap

import trainvitals
from trainvitals.retry import CircuitBreaker, CircuitOpenError, CircuitState, retry_with_backoff


class Service:
    """A service that fails a number of times and then works, and that counts the calls."""

    def __init__(self, failures=0):
        self.failures = failures
        self.calls = 0

    def ask(self, question, *, loud=False):
        """Return the answer, or raise an error."""
        self.calls += 1
        if self.calls <= self.failures:
            raise ConnectionError(f"no {self.calls}")
        return question.upper() if loud else question


@pytest.fixture
def pauses(monkeypatch):
    """Collect the pauses instead of waiting."""
    found = []
    monkeypatch.setattr(tenacity.nap.time, "sleep", found.append)
    return found


@pytest.fixture
def now(monkeypatch):
    """Replace the clock of circuit breakers with a time that the test sets."""
    times = [1000.0]
    monkeypatch.setattr(circuitbreaker, "monotonic", lambda: times[0])
    return times


def test_the_names_are_public():
    """The names can be imported from the package."""
    assert trainvitals.retry_with_backoff is retry_with_backoff
    assert trainvitals.CircuitBreaker is CircuitBreaker
    assert trainvitals.CircuitState is CircuitState


def test_the_pauses_grow_and_are_printed(pauses, capsys):
    """The pauses are 2, 4 and 8 seconds plus up to 10%, and each failure prints two lines."""
    service = Service(failures=3)

    @retry_with_backoff(max_retries=5)
    def download_model(name):
        """Ask."""
        return service.ask(name)

    assert download_model("bert") == "bert"
    assert service.calls == 4
    for pause, least in zip(pauses, (2, 4, 8), strict=True):
        assert least <= pause <= 1.1 * least
    lines = [
        (f"Attempt {number} failed: no {number}", f"Retrying in {pause:.2f} seconds...")
        for number, pause in enumerate(pauses, start=1)
    ]
    assert capsys.readouterr().out.splitlines() == [line for pair in lines for line in pair]
    assert (download_model.__name__, download_model.__doc__) == ("download_model", "Ask.")


def test_every_parameter_has_its_place(pauses):
    """The parameters are `max_retries`, `base_delay`, `max_delay` and `exponential_base`."""
    with pytest.raises(ConnectionError):
        retry_with_backoff(4, 0.5, 10, 3)(Service(failures=9).ask)("a")
    for pause, least in zip(pauses, (1.5, 4.5, 10), strict=True):
        assert least <= pause <= 1.1 * least


@pytest.mark.parametrize(("most", "calls"), [(1, 1), (2, 2), (3, 3)])
def test_the_last_failure_is_raised(pauses, capsys, most, calls):
    """`max_retries` includes the first call, and the last failure is raised without a pause."""
    service = Service(failures=9)
    with pytest.raises(ConnectionError, match=f"no {calls}"):
        retry_with_backoff(max_retries=most)(service.ask)("a")
    assert (service.calls, len(pauses)) == (calls, calls - 1)
    assert len(capsys.readouterr().out.splitlines()) == 2 * len(pauses)


def test_no_retries_are_no_call(pauses, capsys):
    """`max_retries=0` returns None without a call, for functions and coroutine functions."""
    service = Service()
    assert retry_with_backoff(max_retries=0)(service.ask)("a") is None

    @retry_with_backoff(max_retries=0)
    async def ask():
        return service.ask("a")

    assert asyncio.run(ask()) is None
    assert (service.calls, pauses, capsys.readouterr().out) == (0, [], "")


def test_chance_spreads_those_who_fail_together(pauses):
    """The pauses contain a random part, so ten calls have ten different pauses."""
    for _ in range(10):
        retry_with_backoff()(Service(failures=1).ask)("a")
    assert len(set(pauses)) == 10


def test_who_interrupts_is_not_made_to_wait(pauses):
    """Ctrl-C ends the call at once, without a pause."""

    @retry_with_backoff()
    def wait():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wait()
    assert pauses == []


def test_a_coroutine_function_is_repeated_too():
    """A coroutine function is awaited again after each failure."""
    service = Service(failures=2)

    @retry_with_backoff(base_delay=0)
    async def ask():
        return service.ask("a")

    assert asyncio.run(ask()) == "a"
    assert service.calls == 3


@pytest.mark.parametrize("broken", ["sys.stdout.close()", "sys.stdout = None"])
def test_a_closed_output_does_not_end_the_retries(broken):
    """A closed or missing standard output does not end the retries."""
    code = (
        "import sys, trainvitals\n"
        f"{broken}\n"
        "calls = []\n"
        "@trainvitals.retry_with_backoff(base_delay=0)\n"
        "def ask():\n"
        "    calls.append(1)\n"
        "    if len(calls) < 3: raise OSError('no')\n"
        "ask()\n"
        "sys.stderr.write(str(len(calls)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.startswith("3")


def test_it_opens_half_opens_and_closes(now):
    """The breaker opens after three failures, and half-opens after 30 s for one call.

    A success of that call closes the breaker, and a failure opens it again.
    """
    service = Service(failures=4)
    breaker = CircuitBreaker(failure_threshold=3, timeout=30)
    for _ in range(3):
        assert breaker.state is CircuitState.CLOSED
        with pytest.raises(ConnectionError):
            breaker.call(service.ask, "a")
    assert (breaker.state, breaker.failures, breaker.wait_seconds) == (CircuitState.OPEN, 3, 30)
    now[0] += 29.5
    with pytest.raises(CircuitOpenError, match=r"^Circuit breaker is OPEN .*: 3\)$"):
        breaker.call(service.ask, "a")
    assert service.calls == 3
    now[0] += 0.5
    assert (breaker.state, breaker.wait_seconds) == (CircuitState.HALF_OPEN, 0)
    with pytest.raises(ConnectionError, match="no 4"):
        breaker.call(service.ask, "a")
    assert (breaker.state, breaker.wait_seconds) == (CircuitState.OPEN, 30)
    now[0] += 30
    assert breaker.call(service.ask, "a", loud=True) == "A"
    assert (breaker.state, breaker.failures) == (CircuitState.CLOSED, 0)


def test_it_has_the_attributes_that_were_published(now):
    """The breaker has its parameters, failures and time of the last failure as attributes."""
    breaker = CircuitBreaker(failure_threshold=3, timeout=30)
    assert (breaker.failure_threshold, breaker.timeout) == (3, 30)
    assert (breaker.failures, breaker.failure_count, breaker.last_failure_time) == (0, 0, None)
    before = time.time()
    with pytest.raises(ConnectionError):
        breaker.call(Service(1).ask, "a")
    assert breaker.last_failure_time is not None
    assert before <= breaker.last_failure_time <= time.time()
    assert (breaker.failures, breaker.failure_count) == (1, 1)
    breaker.call(Service().ask, "a")
    assert breaker.failures == 0
    assert breaker.last_failure_time is not None


def test_a_success_forgets_the_failures(now):
    """Only consecutive failures count."""
    breaker = CircuitBreaker(failure_threshold=2)
    for service in (Service(1), Service(0), Service(1)):
        if service.failures:
            with pytest.raises(ConnectionError):
                breaker.call(service.ask, "a")
        else:
            breaker.call(service.ask, "a")
    assert breaker.state is CircuitState.CLOSED


def test_who_interrupts_is_no_failure(now):
    """Ctrl-C does not count as a failure of the service."""

    def interrupt():
        raise KeyboardInterrupt

    breaker = CircuitBreaker(failure_threshold=1)
    with pytest.raises(KeyboardInterrupt):
        breaker.call(interrupt)
    assert breaker.state is CircuitState.CLOSED


def test_the_defaults_are_five_failures_and_a_minute(now):
    """By default, the breaker opens after five failures for 60 seconds."""
    breaker = CircuitBreaker()
    for _ in range(5):
        assert breaker.state is CircuitState.CLOSED
        with pytest.raises(ConnectionError):
            breaker.call(Service(1).ask, "a")
    assert breaker.wait_seconds == 60


def test_a_pause_of_nothing_is_none(now):
    """`timeout=0` half-opens the breaker at once, and a threshold of 0 counts as 1."""
    breaker = CircuitBreaker(failure_threshold=0, timeout=0)
    with pytest.raises(ConnectionError):
        breaker.call(Service(1).ask, "a")
    assert breaker.state is CircuitState.OPEN
    now[0] += 0.001
    assert breaker.call(Service().ask, "a") == "a"
