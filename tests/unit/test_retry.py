"""Calls that fail are repeated with growing pauses, and a service that keeps failing is paused."""

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
    """Fails this many times and then works; counts the calls."""

    def __init__(self, failures=0):
        self.failures = failures
        self.calls = 0

    def ask(self, question, *, loud=False):
        """Answer."""
        self.calls += 1
        if self.calls <= self.failures:
            raise ConnectionError(f"no {self.calls}")
        return question.upper() if loud else question


@pytest.fixture
def pauses(monkeypatch):
    """Collect the pauses in place of waiting."""
    found = []
    monkeypatch.setattr(tenacity.nap.time, "sleep", found.append)
    return found


@pytest.fixture
def now(monkeypatch):
    """Hold the clock of circuit breakers, which the test moves."""
    times = [1000.0]
    monkeypatch.setattr(circuitbreaker, "monotonic", lambda: times[0])
    return times


def test_the_names_are_public():
    """A script imports them from the package."""
    assert trainvitals.retry_with_backoff is retry_with_backoff
    assert trainvitals.CircuitBreaker is CircuitBreaker
    assert trainvitals.CircuitState is CircuitState


def test_the_pauses_grow_and_are_printed(pauses, capsys):
    """2, 4 and 8 seconds, each with up to a tenth more; every failure has its two lines."""
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
    """`retry_with_backoff(max_retries, base_delay, max_delay, exponential_base)`, in that order."""
    with pytest.raises(ConnectionError):
        retry_with_backoff(4, 0.5, 10, 3)(Service(failures=9).ask)("a")
    for pause, least in zip(pauses, (1.5, 4.5, 10), strict=True):
        assert least <= pause <= 1.1 * least


@pytest.mark.parametrize(("most", "calls"), [(1, 1), (2, 2), (3, 3)])
def test_the_last_failure_is_raised(pauses, capsys, most, calls):
    """`max_retries` counts the first call too, and after the last there is neither pause nor line."""
    service = Service(failures=9)
    with pytest.raises(ConnectionError, match=f"no {calls}"):
        retry_with_backoff(max_retries=most)(service.ask)("a")
    assert (service.calls, len(pauses)) == (calls, calls - 1)
    assert len(capsys.readouterr().out.splitlines()) == 2 * len(pauses)


def test_no_retries_are_no_call(pauses, capsys):
    """`max_retries=0` returns None without a call, as published; a coroutine function's too."""
    service = Service()
    assert retry_with_backoff(max_retries=0)(service.ask)("a") is None

    @retry_with_backoff(max_retries=0)
    async def ask():
        return service.ask("a")

    assert asyncio.run(ask()) is None
    assert (service.calls, pauses, capsys.readouterr().out) == (0, [], "")


def test_chance_spreads_those_who_fail_together(pauses):
    """No two of ten have the same first pause."""
    for _ in range(10):
        retry_with_backoff()(Service(failures=1).ask)("a")
    assert len(set(pauses)) == 10


def test_who_interrupts_is_not_made_to_wait(pauses):
    """Ctrl-C ends the call at once."""

    @retry_with_backoff()
    def wait():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wait()
    assert pauses == []


def test_a_coroutine_function_is_repeated_too():
    """It is awaited each time."""
    service = Service(failures=2)

    @retry_with_backoff(base_delay=0)
    async def ask():
        return service.ask("a")

    assert asyncio.run(ask()) == "a"
    assert service.calls == 3


@pytest.mark.parametrize("broken", ["sys.stdout.close()", "sys.stdout = None"])
def test_a_closed_output_does_not_end_the_retries(broken):
    """A run under a launcher may have lost it."""
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
    """Three failures open it, 30 s later one call is made, and its success closes it."""
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
    """What it was made with, and when the last failure was by the clock of the day."""
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
    """Only failures in a row count."""
    breaker = CircuitBreaker(failure_threshold=2)
    for service in (Service(1), Service(0), Service(1)):
        if service.failures:
            with pytest.raises(ConnectionError):
                breaker.call(service.ask, "a")
        else:
            breaker.call(service.ask, "a")
    assert breaker.state is CircuitState.CLOSED


def test_who_interrupts_is_no_failure(now):
    """Ctrl-C says nothing about the service."""

    def interrupt():
        raise KeyboardInterrupt

    breaker = CircuitBreaker(failure_threshold=1)
    with pytest.raises(KeyboardInterrupt):
        breaker.call(interrupt)
    assert breaker.state is CircuitState.CLOSED


def test_the_defaults_are_five_failures_and_a_minute(now):
    """As published."""
    breaker = CircuitBreaker()
    for _ in range(5):
        assert breaker.state is CircuitState.CLOSED
        with pytest.raises(ConnectionError):
            breaker.call(Service(1).ask, "a")
    assert breaker.wait_seconds == 60


def test_a_pause_of_nothing_is_none(now):
    """`timeout=0` half-opens at once, and `failure_threshold=0` opens at the first failure."""
    breaker = CircuitBreaker(failure_threshold=0, timeout=0)
    with pytest.raises(ConnectionError):
        breaker.call(Service(1).ask, "a")
    assert breaker.state is CircuitState.OPEN
    now[0] += 0.001
    assert breaker.call(Service().ask, "a") == "a"
