"""Tests for the schedule of a recording and of the signals that end it."""

import os
import signal
import time

import pytest

from trainvitals.record.recording import EndSignals, Schedule


class Clock:
    """A clock that a test sets."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        """Return the time that the test has set."""
        return self.now


@pytest.fixture
def clock():
    """Return a clock at 100 s."""
    return Clock()


def test_the_schedule_does_not_drift(clock):
    """The wait is shorter by the duration of the snapshot, so that intervals stay constant."""
    schedule = Schedule(30, clock=clock)
    clock.now = 102.5
    assert schedule.advance() == (27.5, 0)
    clock.now = 130.75
    assert schedule.advance() == (29.25, 0)
    clock.now = 189.5
    assert schedule.advance() == (0.5, 0)


def test_skipped_snapshots_are_counted(clock):
    """After a snapshot that took several intervals, the skipped snapshots are counted."""
    schedule = Schedule(30, clock=clock)
    clock.now = 195.0
    assert schedule.advance() == (25.0, 3)
    clock.now = 221.0
    assert schedule.advance() == (29.0, 0)


def test_an_early_waking_does_not_repeat_a_beat(clock):
    """If the wait ends slightly early, the next wait ends a full interval later."""
    schedule = Schedule(30, clock=clock)
    assert schedule.advance() == (30.0, 0)
    clock.now = 129.999
    assert schedule.advance()[0] == pytest.approx(30.001)


@pytest.fixture
def called():
    """Return a list to which the handler of SIGUSR1 appends."""
    return []


@pytest.fixture
def signals(called):
    """Yield the signal handlers and check that the previous handlers are restored."""
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    signals = EndSignals(lambda: called.append("user"))
    yield signals
    signals.close()
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_cuts_the_waiting_short(signals, number):
    """After an end signal, `wait` returns at once, and so do later calls."""
    os.kill(os.getpid(), number)
    began = time.monotonic()
    assert signals.wait(60)
    assert time.monotonic() - began < 30
    assert signals.wait(0)


def test_waiting_ends_by_itself(signals):
    """Without a signal, `wait` returns False after its timeout."""
    assert not signals.wait(0.01)
    assert not signals.wait(-1)


def test_the_user_signal_is_no_end(signals, called):
    """SIGUSR1 calls its handler and does not end the recording."""
    os.kill(os.getpid(), signal.SIGUSR1)
    assert not signals.wait(0)
    assert called == ["user"]
